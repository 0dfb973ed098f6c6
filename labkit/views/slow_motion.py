"""Which moment of a run the loupe looks at, and how far its replay is: a function of the trace and of the time.

Every four seconds of the run (and after 0.5, 1 and 2 s of it) a replay begins, of the newest stretch that was known
then: two gradients of the typical worker. It is slowed down by a round number, so that it is over before the next one
begins. Of a run that was too fast to report everything it is the newest stretch of which most roles have reported.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..trace.index import Lookup
from ..trace.query import gradient_period, well_reported
from ..trace.trace import Trace
from ..trace.vocabulary import COMPUTE, NANO
from . import style

__all__ = ["PERIOD", "Shot", "shot", "turn"]

PERIOD = 4 * NANO  # of engine time, from one replay to the next
GRADIENTS = 2.0
RECENT = 4000  # rows looked at
LEAST_SLOWER = 2.0  # what is not even twice as slow is no replay


@dataclass(frozen=True)
class Shot:
    """The stretch [begin, end] in ns; `sweep`: how far the replay is, ns; `slower`: how many times, 1 if nothing is
    replayed; `first`: it is the first stretch of the run.
    """

    begin: int
    end: int
    sweep: int
    slower: float = 1.0
    first: bool = False

    @property
    def length(self) -> int:
        """In ns."""
        return self.end - self.begin


def turn(t: int) -> tuple[int, int]:
    """(when the replay of time `t` began, how long it may last), ns."""
    if t >= PERIOD:
        return t // PERIOD * PERIOD, PERIOD
    begin = next((PERIOD // k for k in (2, 4, 8) if t >= PERIOD // k), 0)
    return begin, begin or PERIOD // 8


def shot(trace: Trace, t: int, lookup: Lookup) -> Shot | None:
    """What the loupe shows at `t` ns; None if nothing has been computed yet."""
    over = trace.ending is not None and t >= trace.ending["time"]
    known, lasts = (t, PERIOD) if over else turn(t)
    most = RECENT + 4 * len(trace.roles)
    rows = lookup.spans.newest(trace, known, most) if known else lookup.spans.oldest(trace, t, most)
    work = rows.where(rows["phase"] == COMPUTE)
    gradient = gradient_period(work)
    if gradient is None:
        return None
    length = max(1000, round(style.nice_above(GRADIENTS * gradient / NANO) * NANO))
    slower = style.nice_below(lasts / length)
    if over or slower < LEAST_SLOWER:
        end = well_reported(trace, rows, t, length)
        return Shot(max(0, end - length), max(end, length), end)
    if not known:
        begin = int(work["start"].min())
        return Shot(begin, begin + length, min(begin + round((t - begin) / slower), begin + length), slower, True)
    end = well_reported(trace, rows, known, length)
    return Shot(end - length, end, min(end - length + round((t - known) / slower), end), slower)
