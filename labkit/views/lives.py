"""Clocks that go on over the lives of a role: a worker that comes back counts its gradients from 0 again, and those who
bound its lead do not.

Law: a life goes on where the last one stopped; if the others went on without it meanwhile, it begins level with the
slowest of them, and until then it holds nobody back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..trace.events import RoleLeft
from ..trace.role_states import GONE, StateInterval, events_until, intervals
from ..trace.trace import Trace

__all__ = ["Work", "continued", "without"]

Work = tuple[
    np.ndarray, np.ndarray, np.ndarray
]  # start (ns), end (ns), gradients finished before, of one role in order


class _Life(NamedTuple):
    begin: int
    who: int  # place in the list of roles
    first: int  # rows of its work
    last: int


def without(trace: Trace, t: int) -> dict[int, list[StateInterval]]:
    """{role: the intervals in which the others went on without it}, up to `t` ns."""
    ids = {name: i for i, name in enumerate(trace.roles)}
    left = [(ids.get(event.name), event.time) for event in events_until(trace, t) if isinstance(event, RoleLeft)]
    return {
        role: [
            gap for gap in gaps
            if gap.condition in GONE
            and any(who == role and gap.begin <= time and (gap.end is None or time <= gap.end) for who, time in left)
        ]
        for role, gaps in intervals(trace, t).items()
    }  # fmt: skip


def continued(
    trace: Trace, t: int, roles: Sequence[int], work: list[Work]
) -> tuple[list[Work], list[list[tuple[int, int]]]]:
    """The work of these roles with clocks that go on over their lives; and of each role, (ns, gradients finished) where
    another life begins.
    """
    gaps, missed = intervals(trace, t), without(trace, t)
    lives = [life for who, role in enumerate(roles) for life in _lives(who, work[who], gaps.get(role, []))]
    begins: list[list[tuple[int, int]]] = [[] for _ in roles]
    clocks = [clock.copy() for _, _, clock in work]
    for life in sorted(life for life in lives if life.first):
        mine = clocks[life.who]
        begin = int(mine[life.first - 1]) + 1
        if any(gap.end is not None and gap.end <= life.begin for gap in missed.get(roles[life.who], ())):
            present = [
                who for who, role in enumerate(roles)
                if who != life.who and not any(_in(gap, life.begin) for gap in missed.get(role, ()))
            ]  # fmt: skip
            done = [clocks[who][work[who][1] <= life.begin] for who in present]
            begin = min((int(seen[-1]) + 1 if len(seen) else 0 for seen in done), default=begin)
        mine[life.first : life.last] += begin - int(mine[life.first])
        begins[life.who].append((life.begin, begin))
    return [(start, end, clock) for (start, end, _), clock in zip(work, clocks)], begins


def _lives(who: int, work: Work, gaps: Sequence[StateInterval]) -> list[_Life]:
    """A life ends where its role was gone, or where its count begins anew."""
    start, _, clock = work
    back = np.array([gap.end for gap in gaps if gap.condition in GONE and gap.end is not None], dtype=np.int64)
    new = (np.diff(clock) < 0) | (np.diff(np.searchsorted(back, start, side="right")) > 0)
    edges = [0, *(np.flatnonzero(new) + 1).tolist(), len(start)]
    return [_Life(int(start[a]), who, a, b) for a, b in zip(edges, edges[1:]) if b > a]


def _in(gap: StateInterval, time: int) -> bool:
    return gap.begin <= time and (gap.end is None or time < gap.end)
