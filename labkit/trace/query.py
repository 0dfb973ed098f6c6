"""Derived quantities of a trace. This module is the only definition of every number that is computed from rows and
counters.

Functions compute a value from all rows. Query objects are for repeated queries about a growing trace: they keep cursors
into its tables (`index`), so that the cost of a query depends on the number of new rows, not of all rows. This state is a
cache: a query object accepts any trace and any time in any order, and its results depend on (trace, time) only. A query
object must be used by one thread at a time.

*Time.* Times are ns of engine time. If the requested time is the present (`trace.watermark()` or later), totals come from
counters, which are exact. Values of an earlier time are computed from the rows up to that time. Rows can be missing for
two reasons: they were skipped, because the run was too fast to report all of them, or spilled, i.e. dropped because they
were old, to bound memory. Values of an earlier time are then None, or come from the counts that roles report periodically
(table `progress`), or from the remaining rows. `sampled` tests for missing rows.

*Gross and net.* The gross count includes every gradient that was ever applied, by all role instances. It measures work,
never decreases, and is the basis of rates (throughput). The net count is the number of gradients that the model holds. It
decreases when updates are rolled back, because a restored shard holds only the gradients of its checkpoint. Progress of
the model and the ledger are net. Both counts include only gradients applied in this run, so a run that continues an
earlier run begins at 0. If S shards hold parts of one model (or synchronized replicas), each shard counts 1/S of a
gradient, so that each gradient counts once.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .index import BlockIndex, Growing, Lookup, SelectedRows, SortedRows
from .recorder import Counters
from .role_states import (
    FAR_FUTURE,
    GONE,
    Period,
    StateInterval,
    absences,
    absent,
    absent_at_start,
    intervals,
    joined_later,
    periods,
    workers_of,
)  # fmt: skip
from .schema import (
    ALL,
    CATEGORIES,
    COMPUTE,
    NANO,
    PHASES,
    RESTORED,
    TRAINING,
    UNKNOWN,
    WAIT,
    seconds,
)  # fmt: skip
from .trace import Trace

# completeness of tables ---------------------------------------------------------------------------------------------


def sampled(trace: Trace, table: str) -> bool:
    """Return whether rows of `table` are missing (skipped or spilled), so that counts over its rows are not exact."""
    return bool(trace.tables[table].skipped or trace.tables[table].spilled)


def skipped(trace: Trace, table: str) -> bool:
    """Return whether rows of `table` were skipped because roles were too fast to report all rows. Any interval may then
    lack rows.
    """
    return bool(trace.tables[table].skipped)


def rows_written(trace: Trace, table: str) -> int:
    """Return the number of rows added to `table` so far, including spilled rows. It increases with every new row."""
    return len(trace.tables[table]) + trace.tables[table].spilled


def totals_only(trace: Trace, table: str) -> bool:
    """Return whether `table` is empty although roles have done work, because the run records counters only."""
    if len(trace.tables[table]):
        return False
    if table == "applies":
        return any(c.gradients for c in trace.counters.values())
    if table == "spans":
        return any(sum(c.phases) for c in trace.counters.values())
    return any(c.computed for c in trace.counters.values())


def _owners(trace: Trace) -> list[int]:
    """Return the roles whose counts are those of the model: one of several synchronized replicas, otherwise all shards.

    Roles that have never taken part are not among them.
    """
    never = absent_at_start(trace) - joined_later(trace)
    return [role for role in trace.observed if role not in never]


def _absences_of_copies(trace: Trace) -> dict[int, list[StateInterval]]:
    """Return the absences of replicas of which one counts for all, if the one that usually counts was ever absent."""
    if trace.header.layout.replication != "synchronized" or len(owners := _owners(trace)) != 1:
        return {}
    missed = absences(trace, FAR_FUTURE)
    return missed if missed.get(owners[0]) else {}


def _counts(trace: Trace, role: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Return whether rows of `role` at `time` (ns) count for the model, bool of shape (n,).

    If one of several synchronized replicas counts for all, it is the first that is present.
    """
    owners, missed = _owners(trace), _absences_of_copies(trace)
    if not missed:
        return np.isin(role, owners)
    counted, unclaimed = np.zeros(len(role), bool), np.ones(len(role), bool)
    others = (i for i, spec in enumerate(trace.header.layout.roles) if spec.shard is not None and i not in owners)
    for one in (*owners, *others):
        present = unclaimed.copy()
        for gap in missed.get(one, ()):
            present &= (time <= gap.begin) | (time > (FAR_FUTURE if gap.end is None else gap.end))
        counted |= present & (role == one)
        unclaimed &= ~present
    return counted


def _independent(trace: Trace) -> bool:
    """Return whether the shards are replicas that apply only their local gradients."""
    return trace.header.layout.replication == "local"


def _shared(trace: Trace) -> int:
    return 1 if _independent(trace) else len(trace.observed)


# gradients, samples and bytes over time -----------------------------------------------------------------------------


AMOUNTS = ("gradients", "samples", "bytes")


class Series(NamedTuple):
    """A cumulative count: `total[i]` at `time[i]` (ns), both of shape (n,). Times are sorted; of equal times, the last
    entry is valid.

    Rows that add nothing (because another role already counts the same gradient) have an entry, too. `since`: time at
    which counting began (ns); not 0 if older rows were spilled. A series is empty if there is nothing to count or the
    count is unknown.
    """

    time: np.ndarray
    total: np.ndarray
    since: int = 0

    def instants(self) -> Series:
        """Return the same series with one entry for each instant at which the total increased."""
        grown = np.flatnonzero(np.diff(self.total, prepend=0.0))
        time, total = self.time[grown], self.total[grown]
        last = np.flatnonzero(np.diff(time, append=time[-1:] + 1))
        return Series(time[last], total[last], self.since)


NOTHING = Series(np.empty(0), np.empty(0))


def interpolate(series: Series, x: np.ndarray) -> np.ndarray:
    """Interpolate `series` linearly at times `x` (ns), starting from 0 at time 0. `series` must not be empty."""
    when, total = series.time, series.total
    after = np.searchsorted(when, x, side="right")
    before, following = after - 1, np.minimum(after, len(when) - 1)
    start = np.where(after > 0, when[before], 0)
    low = np.where(after > 0, total[before], 0.0)
    end = when[following]
    high = total[np.searchsorted(when, end, side="right") - 1]
    way = np.clip((x - start) / np.maximum(end - start, 1), 0.0, 1.0)
    return np.where(after < len(when), low + (high - low) * way, total[-1])


class Reports(NamedTuple):
    """Periodic reports of a role: at `time` (ns) the role had applied `gradients` gradients (of one sender, or of all).

    `restored`: whether the count is the initial count of a restored instance, which is not work of this instance. All
    shape (n,).
    """

    time: np.ndarray
    gradients: np.ndarray
    restored: np.ndarray

    def gross(self) -> np.ndarray:
        """Return the number of gradients applied by all instances of the role up to each report.

        A decrease of the count is a rollback, and subtracts nothing. If the run continues an earlier run, its first
        instance begins at 0.
        """
        if not len(self.gradients):
            return self.gradients
        first = 0 if self.restored[0] else self.gradients[0]
        return np.cumsum(np.r_[first, np.maximum(np.diff(self.gradients), 0)])

    def net(self) -> np.ndarray:
        """Return the number of gradients of this run that the shard of the role holds at each report."""
        return self.gradients - self.gradients[0] if len(self.gradients) and self.restored[0] else self.gradients


def reports(trace: Trace, role: int, sender: int = ALL) -> Reports:
    """Return the reports of a role about one sender, or about all senders, oldest first.

    If the role applies only gradients of all workers together, 1/workers of each gradient counts for each worker.
    """
    who, time, sent_by, count = trace.column("progress", "role", "time", "sender", "gradients")
    mine = who == role
    time, sent_by, count = time[mine], sent_by[mine], count[mine]
    ends = np.flatnonzero(sent_by == ALL)  # the last row of each report
    number = np.searchsorted(ends, np.arange(len(time)))
    known = number < len(ends)
    restored = np.zeros(len(ends), bool)
    restored[number[known & (sent_by == RESTORED)]] = True
    if sender == ALL:
        values = count[ends]
    elif (sent_by < 0).all():
        values = count[ends] / max(1, len(workers_of(trace)))
    else:
        values = np.zeros(len(ends), np.int64)
        about = known & (sent_by == sender)
        values[number[about]] = count[about]
    order = np.argsort(time[ends], kind="stable")
    return Reports(time[ends][order], values[order], restored[order])


def last_reported(trace: Trace, t: int) -> int | None:
    """Return the number of gradients that the model held according to the last reports at or before `t` ns.

    The count is net: the minimum over the shards, or the sum over replicas that apply only local gradients. None if some
    role has not reported.
    """
    last = []
    for role in _owners(trace):
        said = reports(trace, role)
        seen = said.net()[said.time <= t]
        if not len(seen):
            return None
        last.append(int(seen[-1]))
    return sum(last) if _independent(trace) else min(last)


class Cumulative:
    """The cumulative amount over time that was applied (gradients, samples) or sent for training (bytes). `of`: one of
    `AMOUNTS`.

    The amount is computed from the rows of the trace. If rows were skipped or spilled, it is computed from the reports of
    the roles, if there are any; each gradient is then assumed to have as many samples as any other, and bytes are unknown.
    """

    def __init__(self, of: str = "gradients"):
        self.of = of
        self._rows = SortedRows(*(("messages", "sent") if of == "bytes" else ("applies", "time")))
        self._sender, self._amount, self._total = Growing(np.int64), Growing(float), Growing(float)
        self._missed: dict[int, list[StateInterval]] = {}  # absences that determine which replica counts
        self._own: dict[int, tuple[Growing, Growing]] = {}  # {sender: (indices into the arrays above, totals)}

    def gross(self, trace: Trace, t: int, sender: int | None = None) -> Series:
        """Return the amount applied (sent) up to `t` ns by all role instances, from all senders or from `sender`. A
        gradient of all workers together counts 1/workers for each worker.
        """
        if self._missing(trace):
            return self._reported(trace, t, ALL if sender is None else sender)
        self._follow(trace)
        count = int(self._rows.times.searchsorted(t, side="right"))
        since = int(self._rows.times[0]) if trace.tables[self._rows.table].spilled and count else 0
        if sender is None:
            return Series(self._rows.times[:count], self._total.values[:count], since)
        if sender not in self._own:
            self._own[sender] = Growing(np.int64), Growing(float)
            self._take(trace, sender, 0)
        places, totals = self._own[sender]
        mine = int(places.values.searchsorted(count))
        return Series(self._rows.times[places.values[:mine]], totals.values[:mine], since)

    def net(self, trace: Trace, t: int) -> Series:
        """Return the amount that the model held at times up to `t` ns: `gross` without the rolled-back part.

        A rollback becomes visible at the next application (or report) of the shard. Bytes are never rolled back.
        """
        if self.of == "bytes":
            return self.gross(trace, t)
        if self._missing(trace):
            return self._reported(trace, t, ALL, net=True)
        data = self._follow(trace)
        count = int(self._rows.times.searchsorted(t, side="right"))
        roles, time, version, amount = data.at(self._rows.rows[:count], "role", "time", "version", self._column)
        kept, shared = _counts(trace, roles, time), _shared(trace)
        change = np.zeros(count)
        for mine in [kept] if shared == 1 and not _independent(trace) else [roles == role for role in _owners(trace)]:
            change[mine] = np.diff(_held(time[mine], version[mine], amount[mine]), prepend=0.0) / shared
        time = time[kept]
        since = int(time[0]) if trace.tables["applies"].spilled and len(time) else 0
        return Series(time, np.cumsum(change[kept]), since)

    def by_worker(self, trace: Trace, edges: np.ndarray) -> np.ndarray | None:
        """Return the part of `gross` that came from each worker by each of the times `edges` (ns, sorted), or None
        without workers.

        Shape (workers, edges). Uses the rows up to the last edge. Between two applications of a worker the amount is
        interpolated. After its last application, the next one is assumed to follow after the same time as the last one.
        """
        workers = np.array(workers_of(trace))
        if not len(workers):
            return None
        if self._missing(trace):
            told = [self._reported(trace, int(edges[-1]), worker) for worker in workers.tolist()]
            return np.array([interpolate(one, edges) if len(one.time) else np.zeros(len(edges)) for one in told])
        self._follow(trace)
        count = int(self._rows.times.searchsorted(edges[-1], side="right"))
        when, who, amount = self._rows.times[:count], self._sender.values[:count], self._amount.values[:count]
        common = who == ALL
        if common.any():
            series = Series(when[common], np.cumsum(amount[common]) / len(workers))
            return np.repeat(interpolate(series, edges)[None, :], len(workers), axis=0)
        place = np.full(len(trace.roles), -1)
        place[workers] = np.arange(len(workers))
        mine = np.flatnonzero((place[who] >= 0) & (amount > 0))
        # grouped by worker, and sorted by time for each worker
        order = mine[np.argsort(place[who[mine]], kind="stable")]
        return _rows_by_worker(place[who[order]], when[order], amount[order], len(workers), edges)

    @property
    def _column(self) -> str:
        return {"gradients": "count", "samples": "samples", "bytes": "bytes"}[self.of]

    def _follow(self, trace: Trace) -> SelectedRows:
        """Process new rows, in order of time: store sender, amount added, and running total. Return all rows."""
        data = self._rows.follow(trace)
        first, missed = self._rows.sorted_from, {} if self.of == "bytes" else _absences_of_copies(trace)
        if missed != self._missed:  # other replicas count from now on
            first, self._missed, self._own = 0, missed, {}
        if first == len(self._rows.times) == len(self._amount.values):
            return data
        why = "category" if self.of == "bytes" else "role"
        counts, sender, amount = data.at(self._rows.rows[first:], why, "sender", self._column)
        if self.of == "bytes":
            added = np.where(counts == TRAINING, amount, 0).astype(float)
        else:
            added = np.where(_counts(trace, counts, self._rows.times[first:]), amount / _shared(trace), 0.0)
        self._sender.put(first, sender)
        self._amount.put(first, added)
        self._total.put(first, (self._total.values[first - 1] if first else 0.0) + np.cumsum(added))
        for one in self._own:
            self._take(trace, one, first)
        return data

    def _take(self, trace: Trace, sender: int, first: int) -> None:
        places, totals = self._own[sender]
        who, amount = self._sender.values[first:], self._amount.values[first:]
        mine = np.flatnonzero((who == sender) | (who == ALL))
        own = np.where(who[mine] == ALL, amount[mine] / max(1, len(workers_of(trace))), amount[mine])
        begin = int(places.values.searchsorted(first))
        places.put(begin, first + mine)
        totals.put(begin, (totals.values[begin - 1] if begin else 0.0) + np.cumsum(own))

    def _missing(self, trace: Trace) -> bool:
        table = trace.tables[self._rows.table]
        absent = table.spilled or not len(table)
        return bool(table.skipped) or (bool(absent) and len(trace.tables["progress"]) > 0)

    def _reported(self, trace: Trace, t: int, sender: int, net: bool = False) -> Series:
        curves = []
        for role in _owners(trace):
            said = reports(trace, role, sender)
            seen = int(said.time.searchsorted(t, side="right"))
            curves.append(Series(said.time[:seen], (said.net() if net else said.gross())[:seen]))
        if self.of == "bytes" or not all(len(one.time) for one in curves):
            return NOTHING
        when = np.unique(np.concatenate([one.time for one in curves]))
        if net:
            each = [np.r_[0, one.total][one.time.searchsorted(when, side="right")] for one in curves]
        else:
            each = [interpolate(one, when) for one in curves]
        size = trace.header.samples_per_gradient if self.of == "samples" else 1
        return Series(when, np.sum(each, axis=0) * size / _shared(trace))


def _held(time: np.ndarray, version: np.ndarray, amount: np.ndarray) -> np.ndarray:
    """Return the amount that a shard holds after each application, shape (n,).

    If the version of the shard decreases, the shard was restored. It then holds the amount of the version that was
    restored.
    """
    steps = (np.diff(version) != 0) | (np.diff(time) != 0)
    begins = [0, *(np.flatnonzero(steps & (np.diff(version) <= 0)) + 1).tolist()]
    if len(begins) == 1:
        return np.cumsum(amount, dtype=float)
    held = np.empty(len(amount))
    versions, totals = np.empty(0, np.int64), np.empty(0)  # of the applications that the model still holds
    for begin, end in zip(begins, [*begins[1:], len(amount)]):
        kept = int(versions.searchsorted(version[begin : begin + 1], side="left")[0]) if end > begin else 0
        base = totals[kept - 1] if kept else 0.0
        held[begin:end] = base + np.cumsum(amount[begin:end])
        versions = np.concatenate([versions[:kept], version[begin:end]])
        totals = np.concatenate([totals[:kept], held[begin:end]])
    return held


def _rows_by_worker(
    place: np.ndarray, when: np.ndarray, amount: np.ndarray, workers: int, edges: np.ndarray
) -> np.ndarray:
    """Interpolate the amounts of all workers at once. The times of each worker are mapped to a separate interval of one
    long axis.
    """
    last = np.searchsorted(place, np.arange(workers), side="right") - 1  # index of each worker's newest row, if any
    has = (last >= 0) & (place[np.maximum(last, 0)] == np.arange(workers)) if len(place) else np.zeros(workers, bool)
    who = np.flatnonzero(has)
    newest = last[who]
    earlier = np.where((newest > 0) & (place[newest - 1] == who), when[newest - 1], 0)
    coming = when[newest] + np.maximum(when[newest] - earlier, 1)  # time at which the next application is expected
    place = np.r_[place, who, np.arange(workers)]
    when = np.r_[when, coming, np.full(workers, -1)]
    amount = np.r_[amount, amount[newest], np.zeros(workers)]
    order = np.lexsort((when, place))
    long = float(max(when.max(), edges[-1]) + 2)
    total = np.cumsum(amount[order])
    axis = place[order] * long + when[order]
    starts = np.searchsorted(place[order], np.arange(workers), side="left")
    base = total[starts]  # at time 0 of each worker, before its first application
    found = np.interp((np.arange(workers)[:, None] * long + edges[None, :]).ravel(), axis, total)
    return found.reshape(workers, len(edges)) - base[:, None]


# rates --------------------------------------------------------------------------------------------------------------

RATE_WINDOW = 12  # a rate is counted over the elapsed time divided by this number
SUBWINDOWS = 4  # a rate is the mean over this many shorter windows, which turns a step of the curve into a smooth slope
TURNS = 3  # minimum number of turns of the slowed worker (or of each worker) for a rate
# after this many turns of all other workers without a turn of the slowed worker, no further turn of it is expected
SILENT = 20

Window = tuple[int, int]  # (begin, end), ns


def rates(
    trace: Trace, t: int, sender: int | None = None, counted: Cumulative | None = None, points: int = 100
) -> tuple[np.ndarray, np.ndarray]:
    """Return (seconds, gradients per second), both of shape (points,), up to `t` ns, of all workers or of `sender`.

    Rates are gross: a rollback is not negative work. `counted`: a `Cumulative` of another amount, or a `Cumulative` that
    was already used for this trace.
    """
    when, total, since = (counted or Cumulative()).gross(trace, t, sender)
    workers = max(1, len(workers_of(trace)))
    count = _whole_groups(when, workers)
    if not count:
        return np.empty(0), np.empty(0)
    when, total = when[:count], total[:count]
    gap = float(when[-1]) / count  # between two gradients
    window = max(t / RATE_WINDOW, 3.0 * gap * (workers if sender is None else 1), 1.0)
    silent = max(window, 10 * gap)  # after this time without an application, the curve decreases
    end = float(t) if t - when[-1] > silent else float(when[-1])
    x = np.linspace(since + min(window, end - since) / 2, max(end, 1.0), points)
    long = np.minimum(window, x - since)[:, None]
    shift, box = long * np.arange(SUBWINDOWS) / (2 * SUBWINDOWS - 2), long / 2
    last = x[:, None] - shift
    upper, lower = interpolate(Series(when, total), np.stack((last, last - box)).ravel()).reshape(2, *last.shape)
    return x / NANO, ((upper - lower) / np.maximum(box, 1e-9)).mean(axis=1) * NANO


def _whole_groups(when: np.ndarray, workers: int) -> int:
    """Return the number of entries of `when` up to the end of the last complete group.

    The gradients of workers of equal speed are applied in groups. If the end of the run or the current time cuts off a
    part of the last group, counting the rest of it would look like a loss of speed.
    """
    recent = when[-5 * workers :]
    if len(recent) < 3:
        return len(when)
    gaps = np.diff(recent)
    between = np.flatnonzero(gaps > gaps.max() / 2)
    within = np.delete(gaps, between)
    if len(between) < 2 or not len(within) or np.median(within) > gaps.max() / 8:
        return len(when)
    sizes = np.diff(between)
    last = len(recent) - 1 - int(between[-1])
    return len(when) - last if last < np.median(sizes) else len(when)


def mean_rate(trace: Trace, t: int, counted: Cumulative | None = None) -> float | None:
    """Return the gradients applied per second (gross) from the start to `t` ns, or None if there was none or the number
    is unknown.

    `counted`: a `Cumulative` of gradients already used for this trace.
    """
    series = (counted or Cumulative()).gross(trace, t)
    applied = float(series.total[-1]) if len(series.time) else 0.0
    return applied / seconds(t) if applied and not series.since and t > 0 else None


def rate_between(series: Series, window: Window | None) -> float | None:
    """Return the gradients per second from the first to the second instant of `window`, or None without a window."""
    if window is None:
        return None
    low, high = np.searchsorted(series.time, window, side="right") - 1
    return float(series.total[high] - series.total[low]) / (window[1] - window[0]) * NANO


def steady_window(
    trace: Trace, series: Series, since: int, until: int, slow: Mapping[int, float] | None = None
) -> Window | None:
    """Return the two instants of [since, until) ns between which a rate is counted, or None if there are too few
    gradients.

    `series`: gross applied gradients, one entry per instant. The first third is left out as transient.

    `slow`: {role: slowdown factor} in that time. The window then covers whole turns of the slowest worker (if a worker is
    sped up, whole turns of another worker), so that N workers of which one is f times slower have exactly (N - 1 + 1/f)/N
    of the rate.
    """
    workers = workers_of(trace)
    pace = {worker: (slow or {}).get(worker, 1.0) for worker in workers}
    slowed = any(role in pace for role in slow or ())
    slowest = max(pace, key=lambda role: pace[role], default=None) if slowed else None
    if slowest is not None and len(series.time) and not sampled(trace, "applies"):
        time, count = _applications_of(trace, slowest)
        mine = (time > since) & (time <= series.time[-1])
        turns = _turns(trace, time[mine], count[mine])
        before = np.searchsorted(series.time, since, side="right")
        others = series.total[-1] - (series.total[before - 1] if before else 0.0)
        if turns or (len(time) and others < SILENT * len(workers)):
            return turns
    low, high = np.searchsorted(series.time, [since, until], side="right")
    low += (high - low) // 3
    enough = high - low > TURNS and series.total[high - 1] - series.total[low] >= TURNS * len(workers)
    return (int(series.time[low]), int(series.time[high - 1])) if enough else None


def _applications_of(trace: Trace, worker: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (times in ns, gradients) of the applications of gradients of this worker alone, at the first shard that has
    any.
    """
    role, time, sender, count = trace.column("applies", "role", "time", "sender", "count")
    mine = sender == worker
    mine &= role == role[mine][0] if mine.any() else mine
    return time[mine], count[mine]


def _turns(trace: Trace, own: np.ndarray, count: np.ndarray) -> Window | None:
    """Return a window of whole turns of the slowed worker; for replicas that average every H steps, of a multiple of H
    turns.
    """
    turns = trace.header.strategy.options.get("H")
    every = turns if isinstance(turns, int) and turns else 1
    first = len(own) // 3
    last = first + (len(own) - 1 - first) // every * every
    return (int(own[first]), int(own[last])) if count[first + 1 : last + 1].sum() >= TURNS else None


# totals -------------------------------------------------------------------------------------------------------------


def _shards(trace: Trace) -> list[Counters]:
    gone = absent(trace) if trace.header.layout.replicated else ()  # a replica that left is not part of the model
    return [c for role, c in trace.counters.items() if c.shard >= 0 and role not in gone]


def next_apply(trace: Trace, t: int) -> int | None:
    """Return the time of the first application after `t` ns, or None if there is none so far."""
    times = trace.column("applies", "time")
    later = times[times > t]
    return int(later.min()) if len(later) else None


def updates(trace: Trace) -> int:
    """Return the number of updates applied to the whole model (net): the minimum over the shards.

    For an ended run, return the number of updates that the returned parameters hold, if the ending records it
    (`returned`, see `ledger`). The number of a shard may differ, because the shard may have applied more updates or may
    have been restored.
    """
    ending = trace.ending or {}
    if (ending.get("returned") or {}).get("contained"):
        return int(ending["update"])
    return min((c.updates for c in _shards(trace)), default=0)


def samples_applied(trace: Trace) -> int:
    """Return the number of training samples in the applied gradients (net).

    The minimum over the shards, or the sum over replicas that apply only local gradients. For an ended run, the number of
    samples that the returned parameters hold, as in `updates`.
    """
    ending = trace.ending or {}
    if (ending.get("returned") or {}).get("contained") and ending.get("samples") is not None:
        return int(ending["samples"])
    seen = [c.samples for c in _shards(trace)]
    return sum(seen) if _independent(trace) else min(seen, default=0)


def samples_per_update(trace: Trace, t: int) -> float:
    """Return the mean number of training samples per update of the model up to `t` ns (samples over updates, both net).

    All batches except the last one of an epoch have the same size, so the value is nearly constant. 0 if there was no
    update.
    """
    owners = _owners(trace)
    means = []
    role, time, samples, version = trace.column("applies", "role", "time", "samples", "version")
    for owner in owners if _independent(trace) else owners[:1]:
        mine = np.flatnonzero((role == owner) & (time <= t))
        mine = mine[np.argsort(time[mine], kind="stable")]
        if sampled(trace, "applies") or not len(mine):
            counters = trace.counters.get(owner)
            means.append(counters.samples / max(1, counters.updates) if counters else 0.0)
        else:
            held = _held(time[mine], version[mine], samples[mine])
            means.append(float(held[-1]) / max(1, int(version[mine[-1]] - version[mine[0]]) + 1))
    return sum(means)


def computed_gradients(trace: Trace) -> int:
    return sum(c.computed for c in trace.counters.values())


def computed_by_worker(trace: Trace) -> dict[int, int]:
    """{worker: number of gradients}."""
    return {role: int(trace.counters[role].computed) if role in trace.counters else 0 for role in workers_of(trace)}


def training_bytes(trace: Trace) -> dict[int, int]:
    """Return {role: payload bytes sent for training} so far."""
    return {role: int(counters.bytes[TRAINING]) for role, counters in sorted(trace.counters.items())}


def bytes_sent(trace: Trace) -> dict[str, dict[str, int]]:
    """Return {kind of role: {category: payload bytes sent}} so far."""
    sums: dict[str, dict[str, int]] = {}
    for role, counters in sorted(trace.counters.items()):
        into = sums.setdefault(trace.kinds[role], dict.fromkeys(CATEGORIES, 0))
        for name, count in zip(CATEGORIES, counters.bytes):
            into[name] += count
    return sums


def least_received(trace: Trace, receiver: int, kinds: Sequence[str]) -> list[int]:
    """Return the roles from which `receiver` has received fewer messages of these kinds than from another role."""
    to, sender, kind = trace.column("messages", "role", "sender", "kind")
    wanted = np.isin(kind, [i for i, k in enumerate(trace.header.messages) if k in kinds])
    senders = {trace.kinds[s] for s in sender[wanted].tolist()} - {"chief"}
    peers = [i for i, k in enumerate(trace.kinds) if k in senders and i != receiver]
    received = trace.counters[receiver].last_received if receiver in trace.counters else {}
    if received:  # gradients are numbered, and the last received numbers are in every report
        heard = {peer: received.get(peer, -1) for peer in peers}
    else:
        heard = {peer: int((sender[wanted & (to == receiver)] == peer).sum()) for peer in peers}
    most = max(heard.values(), default=0)
    return [peer for peer, count in heard.items() if count < most]


def bytes_sent_until(trace: Trace, t: int) -> int | None:
    """Return the payload bytes sent by `t` ns, of all categories, or None if the required rows are incomplete."""
    if t >= trace.watermark():
        return sum(count for kinds in bytes_sent(trace).values() for count in kinds.values())
    if sampled(trace, "messages") or not len(trace.tables["messages"]):
        return None
    size, sent = trace.column("messages", "bytes", "sent")
    return int(size[sent <= t].sum())


def phases(trace: Trace) -> dict[str, dict[str, float]]:
    """Return {kind of role: {phase: seconds}}, summed over the roles of the kind."""
    sums: dict[str, dict[str, int]] = {}
    for role, counters in sorted(trace.counters.items()):
        into = sums.setdefault(trace.kinds[role], dict.fromkeys(PHASES, 0))
        for name, count in zip(PHASES, counters.phases):
            into[name] += count
    return {kind: {name: seconds(ns) for name, ns in spent.items() if ns} for kind, spent in sums.items()}


def hot_rows(trace: Trace, most: int = 10) -> list[tuple[int, int, float]]:
    """Return (row, pulls, share of all pulls) of the rows of an embedding table that were pulled most often, in
    descending order.

    Every server reports only a few dozen of its rows, so if `most` is above 32, some rows may be missing.
    """
    counters = _shards(trace)
    total = sum(c.row_pulls for c in counters)
    hot = sorted(
        ((pulls, row) for c in counters for row, pulls, _ in list(c.hot)), key=lambda both: (-both[0], both[1])
    )
    return [(row, pulls, pulls / total) for pulls, row in hot[:most] if pulls]


def row_load(trace: Trace) -> list[tuple[str, int, int, float]]:
    """Return (server, rows touched, number of pulls and pushes of single rows, share of all pulls and pushes) of every
    server.

    [] if the run has no embedding table.
    """
    servers = [(i, trace.counters[i]) for i in trace.role_ids("server") if i in trace.counters]
    total = sum(c.row_pulls + c.row_pushes for _, c in servers)
    if not total:
        return []
    loads = [(i, c, c.row_pulls + c.row_pushes) for i, c in servers]
    return [(trace.roles[i], c.rows, load, load / total) for i, c, load in loads]


# staleness ----------------------------------------------------------------------------------------------------------


def staleness(trace: Trace) -> dict[str, Any]:
    """Return {mean, max, p50, p95, histogram {"value": gradients}, unknown} over all gradients applied so far, summed
    over the shards.

    Values are None before the first gradient. Gradients of unknown staleness (their weights were of another generation)
    are counted in `unknown`, not as 0.
    """
    histogram: dict[int, int] = {}
    shards = _shards(trace)
    layout = trace.header.layout
    parts = [role.part for role in layout.roles if role.shard is not None]
    if layout.replication == "synchronized" and parts.count(parts[0]) == len(parts):
        shards = shards[:1]  # replicas that apply the same gradients: count one of them
    for counters in shards:
        for value, count in list(counters.staleness.items()):  # a copy, because the counters of a live run change
            histogram[value] = histogram.get(value, 0) + count
    unknown = histogram.pop(UNKNOWN, 0)
    counts = np.zeros(max(histogram, default=-1) + 1, np.int64)
    for value, count in histogram.items():
        counts[value] = count
    return _distribution(counts) | {"unknown": unknown}


def _distribution(counts: np.ndarray) -> dict[str, Any]:
    """Return mean, maximum, percentiles and histogram. `counts`: numbers of gradients with staleness 0, 1, ..."""
    total = int(counts.sum())
    if not total:
        return {"mean": None, "max": None, "p50": None, "p95": None, "histogram": {}}
    cumulated, values = np.cumsum(counts), np.flatnonzero(counts)
    return {
        "mean": float(values @ counts[values]) / total,
        "max": int(values[-1]),
        "p50": int(np.searchsorted(cumulated, 0.50 * total)),
        "p95": int(np.searchsorted(cumulated, 0.95 * total)),
        "histogram": {str(v): int(counts[v]) for v in values.tolist()},
    }


def staleness_between(
    trace: Trace, first: int, last: int, lookup: Lookup | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (sender, staleness, gradients) of the applications in [first, last] ns, in order of time.

    Applications with unknown staleness are left out.
    """
    rows = (lookup or Lookup()).applies.between(trace, first, last)
    sender, stale, count = rows.where(rows["staleness"] != UNKNOWN).columns("sender", "staleness", "count")
    return sender, stale, count


def staleness_in_order(trace: Trace) -> list[int]:
    """Return the staleness of every application at the first shard that has any, in order of the shard's versions.

    Applications with unknown staleness are left out.
    """
    role, stale, version = trace.column("applies", "role", "staleness", "version")
    mine = (role == role.min(initial=0)) & (stale != UNKNOWN)
    return [int(s) for s in stale[mine][np.argsort(version[mine], kind="stable")]]


class StalenessCounts:
    """Histogram of staleness as of a time. The cost of a query depends on the number of rows between its time and that of
    the previous query.
    """

    def __init__(self) -> None:
        self._rows = SortedRows("applies", "time")
        self._trace: Trace | None = None
        self._count = 0
        self._counts = np.zeros(1, np.int64)  # at index staleness + 1; index 0 is unknown staleness

    def at(self, trace: Trace, t: int) -> dict[str, Any]:
        """Return the result of `staleness` over the gradients applied by `t` ns.

        It comes from the counters, which are exact, if `t` is the present, otherwise from the rows.
        """
        if t >= trace.watermark():
            return staleness(trace)
        data = self._rows.follow(trace)
        count = int(self._rows.times.searchsorted(t, side="right"))
        if trace is not self._trace or self._rows.sorted_from < self._count:
            self._trace, self._count, self._counts = trace, 0, np.zeros(1, np.int64)
        low, high = sorted((self._count, count))
        stale, gradients = data.at(self._rows.rows[low:high], "staleness", "count")
        if len(stale):
            found = np.bincount(stale - UNKNOWN, gradients, len(self._counts)).astype(np.int64)
            self._counts = np.pad(self._counts, (0, len(found) - len(self._counts)))
            self._counts += found if count > self._count else -found
        self._count = count
        return _distribution(self._counts[1:]) | {"unknown": int(self._counts[0])}


def staleness_until(trace: Trace, t: int) -> dict[str, Any]:
    return StalenessCounts().at(trace, t)


def mean_staleness(trace: Trace, window: Window | None, senders: Sequence[int]) -> tuple[float, float] | None:
    """Return (mean staleness of the gradients of `senders`, mean staleness of all other gradients).

    Only gradients applied in (window[0], window[1]] ns count. None if either group has no gradients.
    """
    if window is None:
        return None
    sender, stale, count = staleness_between(trace, window[0] + 1, window[1])
    theirs = np.isin(sender, senders) & (sender >= 0)
    others = ~theirs & (sender >= 0)
    if not count[theirs].sum() or not count[others].sum():
        return None
    mine, rest = (float(np.average(stale[which], weights=count[which])) for which in (theirs, others))
    return mine, rest


def recent_staleness(
    trace: Trace, t: int, senders: Sequence[int], since: int = 0, most: int = 50_000, lookup: Lookup | None = None
) -> dict[int, float]:
    """Return {sender: mean staleness of its gradients applied in [since, t] ns}.

    The mean is over about the last `most` applications of all senders. Senders without gradients are left out.
    """
    rows = (lookup or Lookup()).applies.newest(trace, t, most)
    rows = rows.where((rows["time"] >= since) & (rows["staleness"] != UNKNOWN))
    sender, stale, count = rows.columns("sender", "staleness", "count")
    kept = {who: sender == who for who in senders}
    return {
        who: float(np.average(stale[m], weights=count[m])) for who, m in kept.items() if count[m].sum()
    }  # fmt: skip


class StalenessHistory:
    """Staleness over time: the mean and two percentiles of the staleness of gradients applied in short intervals of time.

    `low`, `high`: the percentiles, as shares from 0 to 1.
    """

    def __init__(self, low: float = 0.05, high: float = 0.95) -> None:
        self._shares = low, high
        self._applies = BlockIndex("applies", "time")
        # {(first row, row after the last) of an interval: statistics of these rows}
        self._known: dict[tuple[int, int], Any] = {}
        self._of: tuple[Any, ...] = (None,)

    def intervals(
        self, trace: Trace, step: int, t: int, together: int, senders: Sequence[int] = ()
    ) -> list[np.ndarray]:
        """Return [seconds, mean, low, high, mean of each of `senders`], each of shape (n,).

        There is one value for every `step` ns up to `t`, over the last `together` steps. Intervals without gradients are
        left out. The mean of a sender is NaN if it had no gradients in an interval.
        """
        key = trace.tables["applies"].spilled, step
        if self._of[0] is not trace or self._of[1:] != key:
            self._of, self._known = (trace, *key), {}
        edges = np.arange(t // step + 1) * step
        places = self._applies.until(trace, (edges - 1).tolist())  # number of applications before each edge
        found = []
        for k in range(1, len(edges)):
            begin, end = max(k - together, 0), int(edges[k])
            which = places[begin], places[k]
            if which not in self._known:
                self._known[which] = self._statistics(self._applies.between(trace, int(edges[begin]), end - 1))
            told = self._known[which]
            if told is not None:
                found.append((end / NANO, *told[0], *(told[1].get(role, np.nan) for role in senders)))
        return list(np.array(found).T) if found else [np.empty(0)] * (4 + len(senders))

    def _statistics(self, rows: SelectedRows) -> tuple[tuple[float, ...], dict[int, float]] | None:
        """Return ((mean, low, high), {sender: mean}) of these rows, or None if no row has a known staleness."""
        sender, stale, count = rows.where(rows["staleness"] != UNKNOWN).columns("sender", "staleness", "count")
        if not len(stale):
            return None
        total = np.cumsum(np.bincount(stale, count))
        low, high = (float(np.searchsorted(total, share * total[-1])) for share in self._shares)
        who, place = np.unique(sender, return_inverse=True)
        means = np.bincount(place, stale * count) / np.bincount(place, count)
        return (float(stale @ count / total[-1]), low, high), dict(zip(who.tolist(), means.tolist()))


def expected_staleness(trace: Trace) -> tuple[float, str] | None:
    """Return (mean staleness predicted for the strategy, formula as text) from the header, or None if there is no
    prediction.

    N in the formula is the number of workers that draw separate batches. If no known formula gives this number, the text
    is the number.
    """
    strategy = trace.header.strategy
    mean = strategy.mean_staleness
    if mean is None:
        return None
    if mean == 0:
        return mean, "always 0"
    outside = absent_at_start(trace)
    if outside != {role for role in absent(trace) if trace.header.cluster.max_workers is not None}:
        return None  # workers have joined or left, and the formula is for a constant number
    roles = enumerate(trace.header.layout.roles)
    others = len({spec.data for role, spec in roles if spec.data is not None and role not in outside}) - 1
    together = strategy.options.get("K")
    number = f"{mean:,.0f}" if mean == round(mean) else f"{mean:.4g}"
    if math.isclose(mean, others):
        return mean, f"mean = N − 1 = {number}"
    if isinstance(together, int) and math.isclose(mean * together, others):
        return mean, f"mean = (N − 1) / K = {number}"
    return mean, f"mean = {number}"


def staleness_identity(trace: Trace, shard_role: int) -> tuple[int, int]:
    """Return (left side, right side) of the conservation law of staleness, for the shard of one role.

    If each read is followed by one gradient, the two sides are equal for any timing:

    sum(staleness) = sum over updates of (outstanding readers before the update - 1) - sum of the counters at the end

    A reader is outstanding from its read until its gradient is applied or dropped. Its counter is the number of updates
    applied in this time. Every update applies the gradient of one reader: it removes the counter of this reader, and adds
    one to the counters of all other outstanding readers.

    The left side is the sum of the recorded staleness of each gradient. The right side is counted from reads and updates.
    Both are exact, because they come from counters.
    """
    c = trace.counters[shard_role]
    left = sum(value * count for value, count in c.staleness.items() if value != UNKNOWN)
    return left, c.outstanding - c.residual - sum(c.version - read for read in c.reads.values())


# evaluations --------------------------------------------------------------------------------------------------------

AGAINST = ("time", "updates", "samples")
TEST_SET = "evaluations"  # the table of the evaluations on the test set


def judged_on(trace: Trace) -> str:
    """Return the table of the evaluations to which the rules of the budget apply: of the validation part, or of the test set."""
    return "validations" if trace.header.problem.validation else TEST_SET


def learning_curve(
    trace: Trace, t: int, what: str, against: str = "time", table: str = TEST_SET
) -> tuple[np.ndarray, np.ndarray]:
    """Return (x, values) of the evaluations up to `t` ns.

    `what`: "accuracy" or "loss". `against`: the unit of x, one of `AGAINST`: "time" (seconds), "updates" or "samples".
    Values that are not finite are left out.
    """
    time, update, value = trace.column(table, "time", "update", what)
    seen = (time <= t) & np.isfinite(value)
    x = time[seen] / NANO if against == "time" else update[seen]
    return (x * samples_per_update(trace, t) if against == "samples" else x), value[seen]


def last_evaluation(
    trace: Trace, t: int | None = None, trained: bool = True, table: str = TEST_SET
) -> tuple[float, float, float] | None:
    """Return (ns, loss, accuracy) of the newest evaluation (by `t` ns), or None if there was none.

    `trained`: whether to ignore the evaluation of the initial weights.
    """
    time, update, loss, accuracy = trace.column(table, "time", "update", "loss", "accuracy")
    seen = np.flatnonzero((time <= (math.inf if t is None else t)) & ((update > 0) | (not trained)))
    return (float(time[seen[-1]]), float(loss[seen[-1]]), float(accuracy[seen[-1]])) if len(seen) else None


def evaluations(trace: Trace, t: int) -> list[tuple[float, float, float, float]]:
    """Return (ns, update, loss, accuracy) of every evaluation up to `t` ns, in order of time; `judged_on`."""
    columns = trace.column(judged_on(trace), "time", "update", "loss", "accuracy")
    seen = int(columns[0].searchsorted(t, side="right"))
    return list(zip(*(column[:seen].tolist() for column in columns)))


def first_loss(trace: Trace) -> float | None:
    loss = trace.column("evaluations", "loss")
    return float(loss[0]) if len(loss) else None


def time_to_accuracy(trace: Trace, accuracy: float | None = None, t: int | None = None) -> float | None:
    """Return the seconds until an evaluation (by `t` ns) first reached `accuracy`, or None if none has; `judged_on`.

    `accuracy`: 0 to 1; by default that of the budget, or 0.95.
    """
    goal = accuracy if accuracy is not None else trace.header.budget.target_accuracy
    time, reached = trace.column(judged_on(trace), "time", "accuracy")
    hits = np.flatnonzero((reached >= goal) & (time <= (math.inf if t is None else t)))
    return seconds(float(time[hits[0]])) if len(hits) else None


# norms --------------------------------------------------------------------------------------------------------------

NO_NORM = -1.0  # in place of a norm that was not recorded; a NaN is a norm that was computed and is NaN


class Norms:
    """Newest norms of each worker as of a time. The cost of a query at a later time depends on the number of new rows
    only.
    """

    def __init__(self) -> None:
        self._rows = SortedRows("norms", "time")
        self._of: Any = None
        self._count = 0
        self._known = np.empty((0, 0, 3))

    def newest(self, trace: Trace, t: int) -> tuple[list[int], np.ndarray]:
        """Return (workers, norms of shape (workers, layers, 3)) from each worker's newest row of each layer up to `t` ns.

        The last axis has the norm of the gradient, the norm of the weights on which it was computed, and the number of the
        gradient. `NO_NORM` if there is no row.
        """
        data = self._rows.follow(trace)
        workers = workers_of(trace) or sorted(set(data["role"].astype(int).tolist()))
        layers = max(len(trace.header.layers), int(data["layer"].max(initial=-1)) + 1)
        count = int(self._rows.times.searchsorted(t, side="right"))
        of = trace, tuple(workers), layers
        again = self._of is None or self._of[0] is not trace or self._of[1:] != of[1:]
        if again or min(count, self._rows.sorted_from) < self._count:
            self._of, self._count = of, 0
            self._known = np.full((len(workers), layers, 3), NO_NORM)
        new = data.where(self._rows.rows[self._count : count])
        place = np.full(len(trace.roles), -1)
        place[workers] = np.arange(len(workers))
        # sorted by time, so the newest row of an entry is assigned last
        new = new.where(place[new["role"].astype(int)] >= 0)
        row, layer = place[new["role"].astype(int)], new["layer"].astype(int)
        self._known[row, layer] = np.stack(new.columns("gradient", "weight", "step"), axis=1)
        self._count = count
        return workers, self._known.copy()


def relative_steps(norms: np.ndarray, rate: float = 1.0) -> np.ndarray:
    """Return the median over workers of `rate` x gradient norm / weight norm, shape (layers,), NaN if unknown.

    `norms`: the second result of `Norms.newest`, shape (workers, layers, 3).
    """
    with np.errstate(all="ignore"):
        known = np.where(norms == NO_NORM, np.nan, norms)
        return medians(rate * known[..., 0] / known[..., 1])


def medians(values: np.ndarray, share: float = 50.0) -> np.ndarray:
    """Return percentile `share` (in %, by default the median) of the finite values of each column; NaN for a column
    without any.
    """
    if len(values) and np.isfinite(values).all():
        return np.asarray(np.percentile(values, share, axis=0))
    found = np.full(values.shape[1], np.nan)
    for k, column in enumerate(values.T):
        kept = column[np.isfinite(column)]
        if len(kept):
            found[k] = np.percentile(kept, share)
    return found


# work ---------------------------------------------------------------------------------------------------------------

FIRST_SPANS = 2048  # number of spans that determine the gradient time


def gradient_time(trace: Trace) -> float:
    """Return the time to compute a gradient (ns): the median of the first spans of the run.

    Later spans do not count, so that the value does not change during the run. 0.1 s before the first span.
    """
    phase, start, end = (column[:FIRST_SPANS] for column in trace.column("spans", "phase", "start", "end"))
    work = phase == COMPUTE
    return float(np.median((end - start)[work])) if work.any() else 0.1 * NANO


def mean_gradient_time(trace: Trace) -> float:
    """Return the time to compute a whole gradient (ns), i.e. the sum of all its spans.

    It is the median over workers of each worker's mean so far. Before the first gradient the result is 0.1 s.
    """
    counters = [trace.counters[i] for i in workers_of(trace) if i in trace.counters]
    means = [c.phases[COMPUTE] / c.computed for c in counters if c.computed]
    return float(statistics.median(means)) if means else 0.1 * NANO


def gradient_period(work: SelectedRows) -> float | None:
    """Return the time from one gradient of a worker to its next (ns), or None if there are no spans.

    `work`: spans of computing; several spans of one gradient have the same step. The result is the median over pairs of
    consecutive gradients. If there is no such pair, it is the median length of the spans.
    """
    role, start, end, step = work.columns("role", "start", "end", "step")
    if not len(role):
        return None
    longest = float(np.median(end - start))
    order = np.lexsort((start, role))
    role, start, step = role[order], start[order], step[order]
    new = np.r_[True, (np.diff(role) != 0) | (np.diff(step) != 0)]
    role, start, step = role[new], start[new], step[new]
    next_one = (np.diff(role) == 0) & (np.diff(step) == 1)
    return float(np.median(np.diff(start)[next_one])) if next_one.any() else longest


CANDIDATES = 200  # ends of an interval that are tried


def reported_interval_end(trace: Trace, rows: SelectedRows, known: int, length: int) -> int:
    """Return the end (ns) of the newest interval of this length, up to `known` ns, in which most roles have reported
    spans.

    Of several such intervals, the interval with the most gradients begun (at most one per worker counts) is chosen.
    `rows`: the newest spans. If no span was skipped, the result is `known`.
    """
    if not skipped(trace, "spans"):
        return known
    workers = max(1, len(workers_of(trace)))
    role, phase, start, end = rows.columns("role", "phase", "start", "end")
    tried = known - np.arange(CANDIDATES) * max(length // 2, NANO // CANDIDATES)
    begun = np.sort(start[phase == COMPUTE])
    score = np.minimum(begun.searchsorted(tried) - begun.searchsorted(tried - length), workers) / (workers + 1)
    for who in np.unique(role):
        mine = np.flatnonzero(role == who)
        mine = mine[np.argsort(start[mine], kind="stable")]
        edges = np.stack([start[mine], end[mine]], axis=-1).ravel()
        spent = np.repeat(np.cumsum(end[mine] - start[mine]), 2)
        spent[0::2] -= end[mine] - start[mine]
        told = np.interp(tried, edges, spent) - np.interp(tried - length, edges, spent) > 0.3 * length
        score += told * (3 if trace.kinds[int(who)] == "server" else 1)  # a server sends half of all messages
    return int(tried[int(np.argmax(score))])


def computing_since(trace: Trace, t: int) -> dict[int, int]:
    """Return {role: time (ns) at which its current computation began} of the reported computations that are not finished
    at `t`.

    Computations of roles that were lost are not included.
    """
    found, gaps = {}, intervals(trace, t)
    for role, counters in trace.counters.items():
        since = counters.open[1] if counters.open and counters.open[0] == COMPUTE else t + 1
        if in_progress(since, t, gaps.get(role, ())):
            found[role] = since
    return found


def in_progress(since: int, t: int, gaps: Iterable[StateInterval]) -> bool:
    """Return whether what a role reported as begun at `since` (ns) can go on at `t`: the role was not lost since. `gaps`: its
    state intervals.
    """
    gone = [spell for spell in gaps if spell.condition in GONE]
    return since <= t and not any(since < spell.begin or spell.end is None for spell in gone)


def iterations(trace: Trace) -> dict[int, list[tuple[int, int]]]:
    """Return {worker: [(begin, end) in ns of the span that produced each of its gradients]}. Other work is not included."""
    role, phase, start, end, step = trace.column("spans", "role", "phase", "start", "end", "step")
    found = {}
    for worker, computed in computed_by_worker(trace).items():
        made = (role == worker) & (phase == COMPUTE) & (step < computed)
        # earlier work that produced no gradient has the same number, so the last span of each number counts
        newest = {s: (b, e) for s, b, e in sorted(zip(step[made].tolist(), start[made].tolist(), end[made].tolist()))}
        found[worker] = [newest[s] for s in sorted(newest)]
    return found


def busy_share(trace: Trace, window: Window | None, roles: Sequence[int]) -> float | None:
    """Return the share of computing in the computing and waiting time of these roles in `window`, or None without such
    spans.
    """
    if window is None or not roles:
        return None
    role, phase, start, end = trace.column("spans", "role", "phase", "start", "end")
    near = np.flatnonzero((end > window[0]) & (start < window[1]))
    near = near[np.isin(role[near], roles)]
    took = np.minimum(end[near], window[1]) - np.maximum(start[near], window[0])
    work, wait = (int(took[phase[near] == kind].sum()) for kind in (COMPUTE, WAIT))
    return work / (work + wait) if work + wait else None


# traffic ------------------------------------------------------------------------------------------------------------


def in_flight(trace: Trace, t: int, lookup: Lookup | None = None) -> int:
    """Return the number of training messages that were sent by `t` ns and received later."""
    rows = (lookup or Lookup()).messages.touching(trace, t + 1, t + 1)
    return int(np.count_nonzero(rows["category"] == TRAINING))


@dataclass(frozen=True)
class Traffic:
    """Messages in transit in (`first`, `last`] ns.

    `sender`, `receiver`: roles. `out`: bytes of each message that left the sender in that time. `into`: bytes of each
    message that arrived at the receiver in that time. All arrays have shape (messages,).
    """

    first: int
    last: int
    sender: np.ndarray
    receiver: np.ndarray
    out: np.ndarray
    into: np.ndarray

    @property
    def seconds(self) -> float:
        return max(self.last - self.first, 1) / NANO


def _left_out(trace: Trace, lookup: Lookup) -> np.ndarray:
    """Return the factor for each role by which the bytes of its recorded messages are multiplied to account for skipped
    rows.

    Shape (roles,); 1 if no row is missing. The factor follows from the counters, which contain the exact total of each
    role.
    """
    table, factors = trace.tables["messages"], np.ones(len(trace.roles))
    if not table.skipped:
        return factors
    seen = lookup.training_bytes(trace)
    kept = len(table) / (len(table) + table.spilled)
    for role, counters in list(trace.counters.items()):
        if seen[role]:
            factors[role] = max(1.0, counters.bytes[TRAINING] * kept / seen[role])
    return factors


def traffic(trace: Trace, first: int, t: int, lookup: Lookup | None = None) -> Traffic:
    """Return the training traffic between nodes in (`first`, `t`] ns, as known at `t`. If rows were skipped, the
    remaining messages are scaled up.

    On a simulated network of limited bandwidth the result is exact, because the time for which each message occupies a
    link is known: bytes / bandwidth at the sender, and the same time at the receiver until the message has arrived. (Messages
    of a node with a limit of its own count as if they took this time at its end.)
    Evaluation traffic takes no bandwidth.
    """
    lookup = lookup or Lookup()
    rows = lookup.messages.touching(trace, first + 1, t + 1)
    nodes = np.unique(trace.nodes, return_inverse=True)[1]
    rows = rows.where((rows["category"] == TRAINING) & (nodes[rows["role"]] != nodes[rows["sender"]]))
    receiver, sender, received = rows.columns("role", "sender", "received")
    size = rows["bytes"] * _left_out(trace, lookup)[sender]
    width = trace.header.cluster.bandwidth
    if width is None:
        there = received <= t
        return Traffic(first, t, sender, receiver, size * there, size * there)
    held = np.maximum(size / width * NANO, 1e-9)
    latency = round(trace.header.cluster.latency * NANO)

    def part(end: np.ndarray) -> np.ndarray:
        return np.clip(np.minimum(end, t) - np.maximum(end - held, first), 0, None) / held

    return Traffic(first, t, sender, receiver, size * part(received - latency), size * part(received))


def traffic_by_node(trace: Trace, moved: Traffic) -> dict[int, tuple[float, float]]:
    """Return {role: (bytes per second received, bytes per second sent)} of every node. The key is the first role of the
    node that is not a chief.
    """
    number = {node: i for i, node in enumerate(dict.fromkeys(trace.nodes))}
    place = np.array([number[node] for node in trace.nodes])
    into = np.bincount(place[moved.receiver], moved.into, len(number)) / moved.seconds
    out = np.bincount(place[moved.sender], moved.out, len(number)) / moved.seconds
    named: dict[int, int] = {}
    for role, kind in enumerate(trace.kinds):
        if kind != "chief":
            named.setdefault(int(place[role]), role)
    return {role: (float(into[node]), float(out[node])) for node, role in named.items()}


# effect of a fault ----------------------------------------------------------------------------------------------------
# Rates are counted from one application of the slowed worker to another, so that they cover whole turns of it. If one of
# N workers is f times slower, the remaining share of the throughput is then exactly (N - 1 + 1/f)/N if the other workers
# do not wait, and 1/f if they wait. The first third of the time after a change is left out as transient.


@dataclass(frozen=True)
class FaultEffect:
    """The effect of the slowed and unavailable roles of `period` on the run.

    `rate`: gradients per second. `left`: ratio of `rate` to the rate of the preceding fault-free period. `busy`: share of
    time that the other workers spend computing. `busy_before`: the same share in the fault-free period. `own_busy`: the
    same share of the slowed workers. `stale`: (mean staleness of the gradients of the roles with a fault, mean staleness
    of all other gradients). A value is None if it is unknown, or not known yet.
    """

    period: Period
    rate: float | None
    left: float | None
    busy: float | None
    busy_before: float | None
    own_busy: float | None
    stale: tuple[float, float] | None


def fault_effect(trace: Trace, period: Period, t: int, counted: Cumulative | None = None) -> FaultEffect:
    """Measure the effect of `period` up to `t` ns. `counted`: a `Cumulative` of gradients already used for this trace."""
    # more rows may follow at this instant
    applied = (counted or Cumulative()).gross(trace, min(t, period.until) - 1).instants()
    fault_free = next((p for p in reversed(periods(trace, period.since)) if p.fault_free and p.until > p.since), None)
    usual = None if fault_free is None else steady_window(trace, applied, fault_free.since, fault_free.until)
    now = steady_window(trace, applied, period.since, period.until, period.slow)
    rate, was = rate_between(applied, now), rate_between(applied, usual)
    if rate is None and usual is not None and was:
        last = int(applied.time[-1]) if len(applied.time) else 0
        if min(t, period.until) - last > SILENT * TURNS * len(workers_of(trace)) / was * NANO:
            rate = 0.0  # nothing is applied any more
    left = rate / was if was and rate is not None else None
    who = set(period.roles)
    others = [worker for worker in workers_of(trace) if worker not in who]
    return FaultEffect(
        period, rate, left, busy_share(trace, now, others), busy_share(trace, usual, others),
        busy_share(trace, now, [role for role in period.slow if trace.kinds[role] == "worker"]),
        mean_staleness(trace, now, period.roles),
    )  # fmt: skip
