"""Clocks and leads of workers. The clock of a worker is the number of gradients that it has finished, over all instances
of its role.

    lead of a worker = clock of the worker when it began its newest gradient - clock of the slowest worker now

Bounded staleness bounds the lead: an iteration may begin only if the worker's clock is at most s above the slowest clock,
and during the iteration the lead can only decrease. (The gate of a restored server restarts its counts. A worker that was
ahead at that time keeps this lead in addition to the bound.)

A restarted worker counts its gradients from 0 again, but the gate that bounds its lead does not. A new instance therefore
continues at the clock where the previous instance stopped. If the other workers continued without this role in the
meantime, the new instance begins at the clock of the slowest of them, and the role does not limit the other workers while
it is absent.

If rows of spans were skipped (because the run was too fast to report them all), the clocks are the counts of the
gradients of each worker that the first shard holds (net of rollback). A lead can then be s + 1, because the gradient that
was begun at the bound counts when it is finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .index import Growing, SelectedRows, Unread
from .query import computing_since, reports, sampled
from .role_states import FAR_FUTURE, GONE, StateInterval, absences, absent_at_start, intervals, joined_later
from .schema import COMPUTE
from .trace import Trace

MAX_EVENTS, POINTS = 4000, 400  # leads are given at all times of change, or at this many evenly spaced times


# of one role, in order: start (ns), end (ns), gradients finished before
Work = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Leads:
    """The leads of workers over time. `lead[i, k]`: the lead of `roles[i]` at `time[k]` (ns), in gradients. `applied`:
    whether gradients were counted when a server applied them, not when the worker finished them.
    """

    roles: list[int]
    time: np.ndarray
    lead: np.ndarray
    applied: bool = False


def roles_with_clock(trace: Trace) -> list[int]:
    """Return the roles that have a clock. Of several roles that draw the same batches (stages of a pipeline), only the
    first has a clock. Roles that have never taken part have none.
    """
    never = absent_at_start(trace) - joined_later(trace)
    return [role for role in _clocked_roles(trace) if role not in never]


def _clocked_roles(trace: Trace) -> list[int]:
    seen: dict[int, int] = {}
    for role, spec in enumerate(trace.header.layout.roles):
        if spec.data is not None and spec.kind not in ("server", "chief"):
            seen.setdefault(spec.data, role)
    return sorted(seen.values())


def leads(trace: Trace, t: int) -> Leads:
    return Clocks().leads(trace, t)


class Clocks:
    """The leads of workers in a growing trace. The spans of each worker are kept separate and sorted, so that the cost of
    a query depends on the number of new rows only.

    If a worker was lost, or its count restarted, the clocks are continued over its instances. This costs time
    proportional to the length of the run.
    """

    def __init__(self) -> None:
        self._unread = Unread("spans")
        self._start: dict[int, Growing] = {}
        self._end: dict[int, Growing] = {}
        self._clock: dict[int, Growing] = {}  # number of gradients finished before each span
        self._recount = FAR_FUTURE  # time (ns) at which the count of a worker first restarted

    def leads(self, trace: Trace, t: int) -> Leads:
        """Return the lead of each worker, from the start to `t` ns."""
        roles = roles_with_clock(trace)
        if sampled(trace, "spans"):
            return _applied(trace, t, roles)
        self._follow(trace)
        begun_now = computing_since(trace, t)
        work: list[Work] = []
        opened: list[int | None] = []
        for role in roles:
            start = self._start[role].values
            count = int(start.searchsorted(t, side="right"))
            work.append((start[:count], self._end[role].values[:count], self._clock[role].values[:count]))
            now = begun_now.get(role)  # in progress: there is no row yet
            now = now if now is not None and (not count or now > start[count - 1]) else None
            work[-1], now = _gradients(work[-1], now, trace.header.batches_per_gradient)
            opened.append(now)
        if not any(len(start) for start, _, _ in work) and not any(now is not None for now in opened):
            return Leads(roles, np.empty(0, np.int64), np.empty((len(roles), 0), np.int64))
        time = _sample_times(work, opened, t)
        if self._recount > t and not any(
            gap.condition in GONE for gaps in intervals(trace, t).values() for gap in gaps
        ):
            begun = np.array([_begun(start, clock, now, time) for (start, _, clock), now in zip(work, opened)])
            finished = np.array([_last(end, clock, time, 1) for _, end, clock in work])
        else:
            begun, finished = _over_instances(
                trace, t, roles, [_with_open(*both, t) for both in zip(work, opened)], time
            )
        return Leads(roles, time, np.maximum(begun - finished.min(axis=0), 0))

    def _follow(self, trace: Trace) -> None:
        roles = _clocked_roles(trace)
        data, first, same = self._unread.advance(trace)
        if not same:
            first, self._recount = 0, FAR_FUTURE
            for kept in (self._start, self._end, self._clock):
                kept.clear()
                kept.update((role, Growing(np.int64)) for role in roles)
        rows = SelectedRows(data[first:], trace.tables["spans"].columns)
        rows = rows.where((rows["phase"] == COMPUTE) & np.isin(rows["role"], roles))
        role, start, end, step = rows.columns("role", "start", "end", "step")
        for one in np.unique(role).tolist():
            self._put(one, *(column[role == one] for column in (start, end, step)))

    def _put(self, role: int, *new: np.ndarray) -> None:
        kept = self._start[role], self._end[role], self._clock[role]
        known = kept[0].values
        place = int(known.searchsorted(new[0].min(), side="right"))
        tail = [np.concatenate([column.values[place:], more]) for column, more in zip(kept, new)]
        order = np.argsort(tail[0], kind="stable")
        for column, values in zip(kept, tail):
            column.put(place, values[order])
        start, clock = (column.values[max(0, place - 1) :] for column in (kept[0], kept[2]))
        again = np.flatnonzero(np.diff(clock) < 0)
        if len(again):
            self._recount = min(self._recount, int(start[again[0] + 1]))


def _gradients(work: Work, now: int | None, batches: int) -> tuple[Work, int | None]:
    """Return (work with an entry for each gradient, when the gradient in progress was begun), from entries for each of its
    `batches` mini-batches.
    """
    start, end, clock = work
    if batches == 1 or not len(clock):
        return work, now
    first = np.flatnonzero(np.diff(clock, prepend=-1))
    whole = np.diff(first, append=len(clock)) == batches
    if not whole[-1]:
        now = int(start[first[-1]])
    first = first[whole]
    return (start[first], end[first + batches - 1], clock[first]), now


def _sample_times(work: list[Work], opened: list[int | None], t: int) -> np.ndarray:
    """Return the times (ns) at which leads are given, from 0 to `t`: all times at which a lead changes, or, if there are
    too many, evenly spaced times.
    """
    if max(len(start) for start, _, _ in work) <= MAX_EVENTS:
        begun = np.array([now for now in opened if now is not None], np.int64)
        events = np.unique(np.concatenate([begun, *(times for start, end, _ in work for times in (start, end))]))
        events = events[events <= t]
        if len(events) <= MAX_EVENTS:
            return np.unique(np.r_[0, events, t])
    return np.unique(np.linspace(0, t, POINTS).astype(np.int64))


def _begun(start: np.ndarray, clock: np.ndarray, now: int | None, time: np.ndarray) -> np.ndarray:
    """Return, for each time, the number of gradients finished when the newest gradient was begun. `now`: the time (ns) at
    which the gradient in progress was begun.
    """
    found = _last(start, clock, time)
    if now is not None:
        found[time >= now] = clock[-1] + 1 if len(clock) else 0
    return found


def _last(when: np.ndarray, value: np.ndarray, time: np.ndarray, more: int = 0) -> np.ndarray:
    """Return the value, plus `more`, of the last event at or before each time; 0 before the first."""
    place = when.searchsorted(time, side="right")
    found = np.zeros(len(time), np.int64)
    seen = place > 0
    found[seen] = value[place[seen] - 1] + more
    return found


def _with_open(work: Work, now: int | None, t: int) -> Work:
    """Return the work, including the gradient that is in progress at `t` since `now`."""
    if now is None:
        return work
    start, end, clock = work
    return np.r_[start, now], np.r_[end, t + 1], np.r_[clock, clock[-1] + 1 if len(clock) else 0]


def _over_instances(
    trace: Trace, t: int, roles: list[int], work: list[Work], time: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return (gradients finished when the newest one was begun, gradients finished), both of shape (roles, times)."""
    work, begins = continuous_clocks(trace, t, roles, work)
    begun = np.array([_last(start, clock, time) for start, _, clock in work])
    finished = np.array([_finished(*one, levels, time) for one, levels in zip(work, begins)])
    missed = absences(trace, t)
    for i, role in enumerate(roles):  # an absent role does not limit the other roles
        for gap in missed.get(role, ()):
            away = (time >= gap.begin) & (time < (t + 1 if gap.end is None else gap.end))
            begun[i, away], finished[i, away] = 0, np.iinfo(np.int64).max
    return begun, finished


def _finished(
    start: np.ndarray, end: np.ndarray, clock: np.ndarray, levels: list[tuple[int, int]], time: np.ndarray
) -> np.ndarray:
    """Return the number of gradients finished at each time. `levels`: (ns, clock) at which each later instance begins."""
    when, value = np.r_[end, [at for at, _ in levels]], np.r_[clock + 1, [level for _, level in levels]]
    order = np.argsort(when, kind="stable")
    return _last(when[order], value[order], time)


def _applied(trace: Trace, t: int, roles: list[int]) -> Leads:
    """Return the leads computed from the reports of the first shard about the gradients that it has applied."""
    owner = trace.observed[0]
    told = [reports(trace, owner, who) for who in roles]
    when = np.unique(told[0].time[told[0].time <= t]) if told else np.empty(0, np.int64)
    clocks = np.array([_last(one.time, one.net(), when) for one in told])
    return Leads(roles, when, clocks - clocks.min(axis=0) if len(when) else clocks, applied=True)


def binned_maximum(found: Leads, first: int, last: int, bins: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (edges of `bins` equal intervals of [first, last] ns, the largest lead of each role in each interval)."""
    edges = np.unique(np.linspace(first, last, bins + 1).astype(np.int64))
    time = np.union1d(found.time, edges)
    time = time[(time >= first) & (time < last)]
    lead = found.lead[:, np.maximum(np.searchsorted(found.time, time, side="right") - 1, 0)]
    return edges, np.maximum.reduceat(lead, np.searchsorted(time, edges[:-1]), axis=1)


# over several instances of a role --------------------------------------------------------------------------------


class _Instance(NamedTuple):
    begin: int
    who: int  # index in the list of roles
    first: int  # rows of its work: [first, last)
    last: int


def continuous_clocks(
    trace: Trace, t: int, roles: Sequence[int], work: list[Work]
) -> tuple[list[Work], list[list[tuple[int, int]]]]:
    """Return (the work of these roles with clocks that continue over their instances, the beginnings of later instances).

    The beginnings are a list for each role of (ns, gradients finished).
    """
    gaps, missed = intervals(trace, t), absences(trace, t)
    instances = [one for who, role in enumerate(roles) for one in _instances(who, work[who], gaps.get(role, []))]
    begins: list[list[tuple[int, int]]] = [[] for _ in roles]
    clocks = [clock.copy() for _, _, clock in work]
    for one in sorted(one for one in instances if one.first):
        mine = clocks[one.who]
        begin = int(mine[one.first - 1]) + 1
        if any(gap.end is not None and gap.end <= one.begin for gap in missed.get(roles[one.who], ())):
            present = [
                who for who, role in enumerate(roles)
                if who != one.who and not any(gap.contains(one.begin) for gap in missed.get(role, ()))
            ]  # fmt: skip
            done = [clocks[who][work[who][1] <= one.begin] for who in present]
            begin = min((int(seen[-1]) + 1 if len(seen) else 0 for seen in done), default=begin)
        mine[one.first : one.last] += begin - int(mine[one.first])
        begins[one.who].append((one.begin, begin))
    return [(start, end, clock) for (start, end, _), clock in zip(work, clocks)], begins


def _instances(who: int, work: Work, gaps: Sequence[StateInterval]) -> list[_Instance]:
    """Split the work into instances: an instance ends where its role was absent, or where its count restarts."""
    start, _, clock = work
    back = np.array([gap.end for gap in gaps if gap.condition in GONE and gap.end is not None], dtype=np.int64)
    new = (np.diff(clock) < 0) | (np.diff(np.searchsorted(back, start, side="right")) > 0)
    edges = [0, *(np.flatnonzero(new) + 1).tolist(), len(start)]
    return [_Instance(int(start[a]), who, a, b) for a, b in zip(edges, edges[1:]) if b > a]
