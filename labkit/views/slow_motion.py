"""Which moment of a run the loupe looks at, and how far its replay is: a function of the trace and of the time.

Every four seconds of the run (and after 0.5, 1 and 2 s of it) a replay begins, of the newest stretch that was known
then: two gradients of the typical worker. It is slowed down by a round number, so that it is over before the next one
begins. Of a run that was too fast to report everything it is the newest stretch of which most roles have reported.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..trace.trace import Trace
from ..trace.vocabulary import COMPUTE, NANO
from . import style
from .blocks import Blocks

__all__ = ["PERIOD", "Shot", "shot", "turn"]

PERIOD = 4 * NANO  # of engine time, from one replay to the next
GRADIENTS = 2.0
RECENT, CANDIDATES, BACK = 4000, 200, NANO  # rows looked at; ends of a stretch tried; how far back
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


def shot(trace: Trace, t: int, spans: Blocks) -> Shot | None:
    """What the loupe shows at `t` ns; None if nothing has been computed yet. `spans`: by their ends."""
    over = trace.ending is not None and t >= trace.ending["time"]
    known, lasts = (t, PERIOD) if over else turn(t)
    most = RECENT + 4 * len(trace.roles)
    rows = spans.newest(trace, known, most) if known else spans.oldest(trace, t, most)
    columns = trace.tables["spans"].columns
    work = rows[rows[:, columns.index("phase")] == COMPUTE]
    gradient = _typical(trace, work)
    if gradient is None:
        return None
    length = max(1000, round(style.nice_above(GRADIENTS * gradient / NANO) * NANO))
    slower = style.nice_below(lasts / length)
    if over or slower < LEAST_SLOWER:
        end = _reported(trace, rows, t, length)
        return Shot(max(0, end - length), max(end, length), end)
    if not known:
        begin = int(work[:, columns.index("start")].min())
        return Shot(begin, begin + length, min(begin + round((t - begin) / slower), begin + length), slower, True)
    end = _reported(trace, rows, known, length)
    return Shot(end - length, end, min(end - length + round((t - known) / slower), end), slower)


def _typical(trace: Trace, rows: np.ndarray) -> float | None:
    """Nanoseconds from one gradient of a worker to its next: the median. Several spans of one gradient have one step.
    `rows`: spans of computing.
    """
    columns = trace.tables["spans"].columns
    role, start, end, step = (rows[:, columns.index(name)] for name in ("role", "start", "end", "step"))
    if not len(rows):
        return None
    longest = float(np.median(end - start))
    order = np.lexsort((start, role))
    role, start, step = role[order], start[order], step[order]
    new = np.r_[True, (np.diff(role) != 0) | (np.diff(step) != 0)]
    role, start, step = role[new], start[new], step[new]
    next_one = (np.diff(role) == 0) & (np.diff(step) == 1)
    return float(np.median(np.diff(start)[next_one])) if next_one.any() else longest


def _reported(trace: Trace, rows: np.ndarray, known: int, length: int) -> int:
    """The newest end, up to `known`, of a stretch of this length in which most roles have reported what they did, and of
    those one in which as many gradients were begun as there are workers.
    """
    if not trace.tables["spans"].skipped:
        return known
    columns, workers = trace.tables["spans"].columns, max(1, len(trace.role_ids("worker")))
    role, phase, start, end = (rows[:, columns.index(name)] for name in ("role", "phase", "start", "end"))
    tried = known - np.arange(CANDIDATES) * max(length // 2, BACK // CANDIDATES)
    begun = np.sort(start[phase == COMPUTE])
    score = np.minimum(begun.searchsorted(tried) - begun.searchsorted(tried - length), workers) / (workers + 1)
    for who in np.unique(role):
        mine = np.flatnonzero(role == who)
        mine = mine[np.argsort(start[mine], kind="stable")]
        edges = np.stack([start[mine], end[mine]], axis=-1).ravel()
        spent = np.repeat(np.cumsum(end[mine] - start[mine]), 2)
        spent[0::2] -= end[mine] - start[mine]
        told = np.interp(tried, edges, spent) - np.interp(tried - length, edges, spent) > 0.3 * length
        score += told * (3 if trace.kinds[int(who)] == "server" else 1)  # half of all messages are a server's
    return int(tried[int(np.argmax(score))])
