"""Paced work of processes, real or simulated: after the work is done, the role sleeps until a drawn duration has passed."""

from __future__ import annotations

from collections.abc import Mapping

from .distributions import Sampler


class Pacing:
    """Deadlines of paced work, in ns. Durations are exact on average, although a timer wakes a role about 0.1 ms late.

    The lateness of one piece of work is subtracted from the duration of the next, up to `most`. A larger delay is
    caused by the process (it was suspended, or had no core) and not by the timer. The part above `most` is not
    subtracted, so later durations stay correct.
    """

    def __init__(self, most: int = 250_000):
        self.most, self.late = most, 0

    def deadline(self, began: int, duration: int) -> int:
        return began + duration - self.late

    def ended(self, deadline: int, now: int) -> None:
        self.late = min(max(0, now - deadline), self.most)


class WorkTimes:
    """The durations of each kind of work of a role ("gradient", "server", "measure").

    `drawn`: {kind of work: the sampler of its durations, or None for its real duration}. `factor`: slowdown factor of
    the role; it does not apply to evaluation ("measure").
    """

    def __init__(self, drawn: Mapping[str, Sampler | None], factor: float):
        self._drawn, self.factor = drawn, factor

    def paced(self, work: str) -> bool:
        """Return whether the duration of this kind of work may differ from its real duration."""
        return self._drawn[work] is not None or (self.factor != 1.0 and work != "measure")

    def duration(self, work: str, cost: float, took: int) -> int:
        """Return the duration (ns) of a piece of work, which is at least its real duration `took`.

        `cost`: the amount of work, in multiples of the usual amount.
        """
        drawn = self._drawn[work]
        duration = took * self.factor if drawn is None else drawn.next() * cost * self.factor
        return max(took, round(duration))
