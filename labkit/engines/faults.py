"""What goes wrong, as values: a fault says what, to whom and when; each engine carries it out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import BadInput
from ..knobs import check_knobs, knob
from .parts import Plan, check_factor, find_role

__all__ = ["Slow", "schedule_faults"]


@dataclass(frozen=True)
class Slow:
    """From `at` (engine seconds) on, `role` computes `factor` times slower; until `until`, if given."""

    role: str = knob("worker-0")
    factor: float = knob(2.0, low=0.001, high=1000.0)
    at: float = knob(0.0, low=0.0, high=1e9)
    until: float | None = knob(None, low=0.0, high=1e9)

    def __post_init__(self) -> None:
        check_knobs(self)
        if self.until is not None and self.until <= self.at:
            raise BadInput(f"Slow({self.role!r}, at={self.at:g}, until={self.until:g}): it ends after it has begun.")

    def commands(self, plan: Plan) -> list[tuple[float, str, dict[str, Any]]]:
        """(when, the engine's method, its arguments)."""
        find_role(self.role, plan.role_ids)
        check_factor(self.factor)
        made = [(self.at, "slow", {"role": self.role, "factor": self.factor})]
        if self.until is not None:
            made.append((self.until, "slow", {"role": self.role, "factor": 1.0}))
        return made


def schedule_faults(faults: Any, plan: Plan) -> list[tuple[float, str, dict[str, Any]]]:
    """The commands of all faults (or of a single one), in the order of their times."""
    commands: list[tuple[float, str, dict[str, Any]]] = []
    for fault in faults if isinstance(faults, Iterable) else [faults]:
        if isinstance(fault, type) or not hasattr(fault, "commands"):
            raise BadInput(f"faults: {fault!r} is not a fault; give for example lk.Slow('worker-0', 5, at=2.0).")
        commands.extend(fault.commands(plan))
    return sorted(commands, key=lambda command: command[0])
