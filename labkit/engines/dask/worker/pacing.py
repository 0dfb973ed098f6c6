"""Paced work: the work is done, then the role sleeps until a drawn duration has passed."""

from __future__ import annotations

from collections.abc import Mapping

from ...distributions import Sampler

__all__ = ["Pacing", "WorkTimes"]


class Pacing:
    """Deadlines of paced work, in nanoseconds: exact on average, although a timer wakes a role about 0.1 ms late.

    The lateness of one piece of work is subtracted from the next, up to `most`. A larger delay is not due to the timer
    but to the process (suspended, or without a core); it is not made up for, so later durations stay correct.
    """

    def __init__(self, most: int = 250_000):
        self.most, self.late = most, 0

    def deadline(self, began: int, duration: int) -> int:
        """The time at which work that began at `began` and lasts `duration` should end."""
        return began + duration - self.late

    def ended(self, deadline: int, now: int) -> None:
        """Record that the work with this deadline ended at `now`."""
        self.late = min(max(0, now - deadline), self.most)


class WorkTimes:
    """The durations of each kind of work of a role ("gradient", "server", "measure").

    `drawn`: the sampler that paces each kind of work; None: its real duration. `factor`: slowdown factor of the role; it does
    not apply to evaluation ("measure").
    """

    def __init__(self, drawn: Mapping[str, Sampler | None], factor: float):
        self._drawn, self.factor = drawn, factor

    def paced(self, work: str) -> bool:
        """Whether the duration of such work differs from its real duration."""
        return self._drawn[work] is not None or (self.factor != 1.0 and work != "measure")

    def duration(self, work: str, cost: float, took: int) -> int:
        """The duration (ns) of such work, of `cost` times the usual amount; at least `took`, its real duration."""
        drawn = self._drawn[work]
        duration = took * self.factor if drawn is None else drawn.next() * cost * self.factor
        return max(took, round(duration))
