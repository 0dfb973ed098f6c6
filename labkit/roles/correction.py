"""What an asynchronous server does to a stale gradient before it applies it: a smaller step, or a better gradient.

Both are options of every asynchronous server, so they stand beside the shard and not in a strategy. Off, they cost
nothing.

- Staleness-aware rate: the step of a gradient that is k updates old is divided by k, if k > 0 (Zhang, Gupta, Lian and
  Liu, "Staleness-aware Async-SGD for distributed deep learning", IJCAI 2016).
- Delay compensation: see `labkit.nn.compensation`. The weights that each reader was given are kept until its gradient
  has come: at most two copies a reader (a gradient may still be waiting when its worker has read again), and one for
all that read the same version.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..nn.optimizers import State

__all__ = ["Correction", "correction_of"]


def correction_of(strategy: Any) -> Correction | None:
    """What the strategy's knobs `staleness_aware` and `compensation` ask for; None if it has none or both are off."""
    compensation = getattr(strategy, "compensation", None)
    aware = bool(getattr(strategy, "staleness_aware", False))
    return Correction(compensation, aware) if compensation is not None or aware else None


class Correction:
    """The correction of one shard. `kept`: {version: the shard's weights as they were then}, for those who read it."""

    __slots__ = ("_recent", "aware", "compensation", "kept", "state")

    def __init__(self, compensation: Any, aware: bool):
        self.compensation, self.aware = compensation, aware
        self.kept: dict[int, np.ndarray] = {}
        self.state: State = {}
        self._recent: dict[int, tuple[int, int]] = {}  # the last two versions that each reader has read

    def remember(self, version: int, values: np.ndarray, readers: dict[int, int]) -> None:
        """`values` are handed out as `version`. What no reader holds any more is forgotten."""
        if self.compensation is None or version in self.kept:
            return
        for reader, read in readers.items():
            if self._recent.get(reader, (-1, -1))[1] != read:
                self._recent[reader] = (self._recent.get(reader, (-1, -1))[1], read)
        held = {read for both in self._recent.values() for read in both}
        self.kept = {v: old for v, old in self.kept.items() if v in held}
        self.kept[version] = values.copy()
        if not self.state:
            self.state = self.compensation.state(len(values), values.dtype)

    def correct(self, gradient: np.ndarray, read: int, version: int, now: np.ndarray) -> np.ndarray:
        """The gradient, computed on version `read`, as it is to be applied at `version`, where the weights are `now`."""
        then = self.kept.get(read)  # None: its weights came from somewhere else, as from before a restore
        if self.compensation is not None and then is not None:
            gradient = self.compensation.compensate(gradient, now, then, self.state)
        if self.aware and version - read > 1:
            gradient = gradient / np.asarray(version - read, gradient.dtype)
        return gradient
