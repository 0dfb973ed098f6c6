"""Clocks of workers: how many gradients each has finished by when, over all instances of its role, and its lead.

    lead of a worker = gradients that it had finished when it began its newest one - fewest finished by any worker now

That is the number which bounded staleness bounds: an iteration may begin only if the worker's own clock is at most s
beyond the slowest clock, and while the iteration goes on its lead can only shrink. (The gate of a server that was restored
counts anew: a worker that was ahead by then stays so beyond the bound.)

A worker that is restarted counts its gradients from 0 again, and the gate that bounds its lead does not. So an instance goes
on where the last one stopped; if the others went on without it meanwhile, it begins level with the slowest of them, and until
then it holds no other back.

Where rows of spans were left out (a run too fast to report them all) the clocks are those of the first shard, which counts
what it holds (net of rollback); then a lead can be s + 1: the gradient that was begun at the bound is finished, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .events import RoleLeft
from .query import reports, sampled, simulated, under_way
from .role_states import GONE, StateInterval, events_until, intervals
from .trace import Trace
from .vocabulary import COMPUTE

__all__ = ["Leads", "clocked", "highest", "leads"]

MOST_EVENTS, POINTS = 4000, 400  # moments at which leads are given: all, or so many evenly spaced ones

Work = tuple[np.ndarray, np.ndarray, np.ndarray]  # start (ns), end (ns), gradients finished before, of one role in order


@dataclass(frozen=True)
class Leads:
    """`lead[i, k]`: gradients that `roles[i]` was ahead at `time[k]` ns. `applied`: as a server has counted them."""

    roles: list[int]
    time: np.ndarray
    lead: np.ndarray
    applied: bool = False


def clocked(trace: Trace) -> list[int]:
    """The roles that have a clock of their own: of those that draw the same batches (stages of a pipeline) the first."""
    seen: dict[int, int] = {}
    for role, spec in enumerate(trace.header["layout"]["roles"]):
        if spec["data"] is not None and spec["kind"] not in ("server", "chief"):
            seen.setdefault(spec["data"], role)
    return sorted(seen.values())


def leads(trace: Trace, t: int) -> Leads:
    """Who was how far ahead, from the start to `t` ns."""
    roles = clocked(trace)
    if sampled(trace, "spans"):
        return _applied(trace, t, roles)
    work, begins = continued(trace, t, roles, _work(trace, t, roles))
    if not any(len(start) for start, _, _ in work):
        return Leads(roles, np.empty(0, np.int64), np.empty((len(roles), 0), np.int64))
    events = np.unique(np.concatenate([np.r_[start, end] for start, end, _ in work]))
    events = events[events <= t]
    time = events if len(events) <= MOST_EVENTS else np.linspace(0, t, POINTS).astype(np.int64)
    time = np.unique(np.r_[0, time, t])
    begun = np.array([_last(start, clock, time) for start, _, clock in work])
    finished = np.array([_finished(*one, levels, time) for one, levels in zip(work, begins)])
    missed = without(trace, t)
    for i, role in enumerate(roles):  # nobody waits for who is not there
        for gap in missed.get(role, ()):
            away = (time >= gap.begin) & (time < (t + 1 if gap.end is None else gap.end))
            begun[i, away], finished[i, away] = 0, np.iinfo(np.int64).max
    return Leads(roles, time, np.maximum(begun - finished.min(axis=0), 0))


def _last(when: np.ndarray, value: np.ndarray, time: np.ndarray) -> np.ndarray:
    """The value of the last event at or before each time; 0 before the first."""
    return np.r_[0, value][np.searchsorted(when, time, side="right")]


def _finished(
    start: np.ndarray, end: np.ndarray, clock: np.ndarray, levels: list[tuple[int, int]], time: np.ndarray
) -> np.ndarray:
    """Gradients finished at each time, where new instances begin at `levels`."""
    when, value = np.r_[end, [at for at, _ in levels]], np.r_[clock + 1, [level for _, level in levels]]
    order = np.argsort(when, kind="stable")
    return _last(when[order], value[order], time).astype(np.int64)


def _work(trace: Trace, t: int, roles: list[int]) -> list[Work]:
    """(start, end, gradients finished before) of each gradient of each role that was begun by `t`."""
    role, phase, start, end, step = trace.column("spans", "role", "phase", "start", "end", "step")
    seen = (phase == COMPUTE) & (start <= t)
    role, start, end, step = role[seen], start[seen], end[seen], step[seen]
    clock = step if simulated(trace) else step - 1  # in real time a span is written when its gradient is counted
    order = np.lexsort((start, role))
    role, start, end, clock = role[order], start[order], end[order], np.maximum(clock[order], 0)
    edges = np.searchsorted(role, [*roles, len(trace.roles)])
    last = np.searchsorted(role, roles, side="right")
    found, open_ = [], under_way(trace, t)
    for who, a, b in zip(roles, edges, last):
        mine = start[a:b], end[a:b], clock[a:b]
        now = open_.get(who)
        if now is not None and (a == b or now > mine[0][-1]):  # under way: no row yet
            begun = mine[2][-1] + 1 if b > a else 0
            mine = np.r_[mine[0], now], np.r_[mine[1], t + 1], np.r_[mine[2], begun]
        found.append(mine)
    return found


def _applied(trace: Trace, t: int, roles: list[int]) -> Leads:
    """The same from what the first shard has said, now and then, that it has applied."""
    owner = trace.roles.index(trace.header["layout"]["observed"][0])
    told = [reports(trace, owner, who) for who in roles]
    when = np.unique(told[0].time[told[0].time <= t]) if told else np.empty(0, np.int64)
    clocks = np.array([_last(one.time, one.net(), when) for one in told])
    return Leads(roles, when, clocks - clocks.min(axis=0) if len(when) else clocks, applied=True)


def highest(found: Leads, first: int, last: int, bins: int) -> tuple[np.ndarray, np.ndarray]:
    """(edges of `bins` equal stretches of [first, last] ns, the largest lead of each role in each)."""
    edges = np.unique(np.linspace(first, last, bins + 1).astype(np.int64))
    time = np.union1d(found.time, edges)
    time = time[(time >= first) & (time < last)]
    lead = found.lead[:, np.maximum(np.searchsorted(found.time, time, side="right") - 1, 0)]
    return edges, np.maximum.reduceat(lead, np.searchsorted(time, edges[:-1]), axis=1)


# over several instances of a role --------------------------------------------------------------------------------


class _Instance(NamedTuple):
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
    """The work of these roles with clocks that go on over their instances; and of each role, (ns, gradients finished) where
    another instance begins.
    """
    gaps, missed = intervals(trace, t), without(trace, t)
    instances = [one for who, role in enumerate(roles) for one in _instances(who, work[who], gaps.get(role, []))]
    begins: list[list[tuple[int, int]]] = [[] for _ in roles]
    clocks = [clock.copy() for _, _, clock in work]
    for one in sorted(one for one in instances if one.first):
        mine = clocks[one.who]
        begin = int(mine[one.first - 1]) + 1
        if any(gap.end is not None and gap.end <= one.begin for gap in missed.get(roles[one.who], ())):
            present = [
                who for who, role in enumerate(roles)
                if who != one.who and not any(_in(gap, one.begin) for gap in missed.get(role, ()))
            ]  # fmt: skip
            done = [clocks[who][work[who][1] <= one.begin] for who in present]
            begin = min((int(seen[-1]) + 1 if len(seen) else 0 for seen in done), default=begin)
        mine[one.first : one.last] += begin - int(mine[one.first])
        begins[one.who].append((one.begin, begin))
    return [(start, end, clock) for (start, end, _), clock in zip(work, clocks)], begins


def _instances(who: int, work: Work, gaps: Sequence[StateInterval]) -> list[_Instance]:
    """An instance ends where its role was gone, or where its count begins anew."""
    start, _, clock = work
    back = np.array([gap.end for gap in gaps if gap.condition in GONE and gap.end is not None], dtype=np.int64)
    new = (np.diff(clock) < 0) | (np.diff(np.searchsorted(back, start, side="right")) > 0)
    edges = [0, *(np.flatnonzero(new) + 1).tolist(), len(start)]
    return [_Instance(int(start[a]), who, a, b) for a, b in zip(edges, edges[1:]) if b > a]


def _in(gap: StateInterval, time: int) -> bool:
    return gap.begin <= time and (gap.end is None or time < gap.end)
