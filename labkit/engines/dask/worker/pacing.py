"""Paced work: really done, and then slept until a drawn duration has passed."""

from __future__ import annotations

from collections.abc import Mapping

from ...distributions import Sampler

__all__ = ["Pacing", "WorkTimes"]


class Pacing:
    """Deadlines of paced work, in nanoseconds: exact on average, although a timer wakes a role about 0.1 ms late.

    By how much a piece of work ended late is taken off the next one, up to `most`: more is no lateness of a timer but of
    the process (stopped, or without a core), and stays lost: durations that follow stay what they are meant to be.
    """

    def __init__(self, most: int = 250_000):
        self.most, self.late = most, 0

    def deadline(self, began: int, duration: int) -> int:
        """When work that `began` then, and is to last `duration`, should end; not shorter than the computing itself."""
        return began + duration - self.late

    def ended(self, deadline: int, now: int) -> None:
        """The work with this deadline ended `now`."""
        self.late = min(max(0, now - deadline), self.most)


class WorkTimes:
    """How long each kind of work of a role ("gradient", "server", "measure") is to last.

    `drawn`: the distribution that a kind of work is paced by, None where it takes what it takes. `factor`: how many times slower
    than usual the role is made; of evaluation it changes nothing.
    """

    def __init__(self, drawn: Mapping[str, Sampler | None], factor: float):
        self._drawn, self.factor = drawn, factor

    def paced(self, work: str) -> bool:
        """Whether such work is to last another time than it takes."""
        return self._drawn[work] is not None or (self.factor != 1.0 and work != "measure")

    def wanted(self, work: str, cost: float, took: int) -> int:
        """How long (ns) such work, `cost` times the usual amount, is to last that has taken `took`; never less than that."""
        drawn = self._drawn[work]
        wanted = took * self.factor if drawn is None else drawn.next() * cost * self.factor
        return max(took, round(wanted))
