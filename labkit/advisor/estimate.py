"""The estimate for one strategy, and the formatting of numbers in formulas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Estimate:
    """The estimate for one update: the seconds along the longest path, the bytes and the memory.

    `compute` (including waiting and server work), `latency` and `wire` add up to `seconds`. `gradients`: the number of
    gradients that one update applies. `busiest`: bytes through the busiest direction of a node's link. `memory`: bytes
    of parameters, gradients and the optimizer's state at the node that needs most. `staleness`: the mean staleness,
    None if it is not known. `formula`: the formula of the seconds, with the numbers.
    """

    compute: float
    latency: float
    wire: float
    gradients: float
    busiest: float
    memory: float
    staleness: float | None
    formula: str

    @property
    def seconds(self) -> float:
        """The seconds of one update."""
        return self.compute + self.latency + self.wire


def slots(strategy: Any) -> int:
    """Return the number of the optimizer's state vectors, each as long as the parameters: 0 for SGD, 2 for Adam."""
    state = strategy.optimizer.state(1, "float32")
    return sum(not name.startswith("_") for name in state)


def time_text(seconds: float) -> str:
    """Return a time as text with three digits: `57 us`, `12.3 ms`, `1.2 s`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size or unit == "us":
            return "0" if seconds == 0 else f"{seconds / size:.3g} {unit}"
    raise AssertionError  # unreachable: the last unit fits all
