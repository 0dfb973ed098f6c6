"""Straggler detection: finds slow roles, and the activity in which they are slow, from the rows of a trace.

Durations. Rows are converted to comparable durations:

    computing   time for one gradient of a worker; if a gradient is computed in many pieces, for one update
    messages    transit time of a message between a worker and a server
    waiting     time of a whole turn of a worker, from the end of one gradient to the end of the next
    applying    time for one piece of work of a server

In a cluster run without a pace, durations are replaced by their median over every half second, because other load on the
machine delays single durations.

The test. Durations are compared as logarithms, so that a factor of five is the same distance for every distribution of
times. A role is slow if each of its last three durations is more than twice the usual duration, and if the mean logarithm
of its last n durations (for some n in `WINDOWS`) exceeds this limit by more than chance explains:

    mean(log own) - log(usual) - log 2  >  Z_THRESHOLD * sigma * sqrt(1/n + 1/m)

Here sigma is the typical deviation, measured between consecutive durations so that a change of speed does not count as
noise, and m is the number of durations from which the usual duration was computed. The role has recovered when each of
its last three durations is less than 1.5 times the usual one, and the mean is below the limit by more than this margin.
Small slowdowns are not reported: the excess must be at least a fifth of the elapsed time.

Detection. A straggler is a role that is slower than the other roles. A role that waits for the straggler as long as all
other roles is not a straggler. If a model is split over the workers, their work differs, and each worker is compared with
its own first durations. The findings as of a time depend only on the rows up to that time. The test runs each time that
as many gradients were computed as there are workers. In a long run it runs less often, so that its cost hardly increases
with the length of the run. Each row is read once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .header import RecordedLayout
from .index import SelectedRows, Unread
from .role_states import absent_at_start, joined_later, workers_of
from .schema import APPLY, COMPUTE, NANO, TRAINING
from .trace import Trace

MIN_DURATIONS = 3  # durations before a role can be reported
WINDOWS = (3, 6, 12, 24, 48)
BASELINE_DURATIONS = 12  # number of first durations that define the usual duration of a role without comparable peers
SLOW, RECOVERED = math.log(2.0), math.log(1.5)
Z_THRESHOLD = 4.0
MIN_EXCESS = 0.2  # minimum excess of a straggler, as a share of the elapsed time
MANY = 16  # with more roles than this, a single role does not change the median
BUCKET = NANO // 2  # ns; of each, the median counts in a cluster run without a pace
SLICE = NANO // 100  # ns; a busy machine can delay a process this long, so shorter delays do not count
NOTHING = np.empty((0, 5), np.int64)
TESTS_PER_DOUBLING = 128  # number of tests after which the number of gradients between two tests doubles
ORDER = ("computing", "applying", "messages", "waiting")  # a role is reported for the first kind in which it is slow


# the test ------------------------------------------------------------------------------------------------------------


class OutlierTest:
    """Outlier test over the last durations of `roles`, which do the same kind of work.

    `own`: whether each role is compared with its own first durations, because the roles' shares of the work differ.
    """

    def __init__(self, roles: Sequence[int], own: bool = False):
        self.roles, self.own = sorted(roles), own
        self._sorted = np.array(self.roles)
        self._place = {role: i for i, role in enumerate(self.roles)}
        self._logs = np.full((len(self.roles), WINDOWS[-1]), np.nan)  # newest at the right
        self._ends = np.zeros((len(self.roles), WINDOWS[-1] + 1))
        self._totals = np.zeros((len(self.roles), WINDOWS[-1]))
        self._first = np.full((len(self.roles), BASELINE_DURATIONS), np.nan)
        self._seen = np.zeros(len(self.roles), np.int64)

    def take(self, roles: np.ndarray, ends: np.ndarray, durations: np.ndarray, totals: np.ndarray) -> None:
        """Add durations (ns) of `roles` that ended at `ends` (ns), all of shape (n,), in order of time.

        `totals`: for each duration, the sum (ns) of all durations that it represents.
        """
        order = np.argsort(roles, kind="stable")
        rows = np.searchsorted(self._sorted, roles[order])
        counts = np.bincount(rows, minlength=len(self.roles))
        logs, number = np.log(np.maximum(durations[order], 1.0)), np.arange(len(rows))
        if self.own:
            place = self._seen[rows] + number - np.searchsorted(rows, rows, side="left")
            early = place < BASELINE_DURATIONS
            self._first[rows[early], place[early]] = logs[early]
        newer = np.searchsorted(rows, rows, side="right") - 1 - number  # number of later durations of the same role
        self._seen += counts
        self._logs = _shifted(self._logs, rows, newer, counts, logs)
        self._ends = _shifted(self._ends, rows, newer, counts, ends[order])
        self._totals = _shifted(self._totals, rows, newer, counts, totals[order])

    def find(self, suspects: Iterable[int] = ()) -> tuple[dict[int, tuple[float, float]], set[int]]:
        """Run the test.

        Returns ({role: (its duration, the usual duration) in ns} of the roles that are clearly slow, the roles of
        `suspects` that clearly are not slow).
        """
        slow: dict[int, tuple[float, float]] = {}
        fine: set[int] = set()
        asked = {self._place[role] for role in suspects if role in self._place}
        doubtful = (self._logs[:, -MIN_DURATIONS:] > self._level() + SLOW / 2).all(axis=1)
        if not asked and not doubtful.any():
            return slow, fine
        sigma, threshold = self._noise()
        for i in sorted({*np.flatnonzero(doubtful).tolist(), *asked}):
            for n in WINDOWS[: np.searchsorted(WINDOWS, min(self._seen[i], WINDOWS[-1]), side="right")]:
                usual, behind = self._usual(i, n)
                ratios = self._logs[i, -n:] - usual
                margin = threshold * sigma * math.sqrt(1 / n + 1 / behind)
                if i in asked and (ratios[-MIN_DURATIONS:] < RECOVERED).all() and SLOW - ratios.mean() > margin:
                    fine.add(self.roles[i])
                elif (
                    (ratios[-MIN_DURATIONS:] > SLOW).all()
                    and ratios.mean() - SLOW > margin
                    and self._is_relevant(i, n, usual)
                ):
                    slow[self.roles[i]] = math.exp(np.median(self._logs[i, -n:])), math.exp(usual)
                else:
                    continue
                break
        return slow, fine

    def _level(self) -> float:
        """Return the usual logarithm of the durations of most roles, which is the first filter for slow and recovered
        roles.

        -inf if it is unknown, or if the roles have no comparable peers.
        """
        known = self._seen >= MIN_DURATIONS
        if self.own or not known.any():
            return -math.inf
        middle = np.sort(self._logs[known, -MIN_DURATIONS:], axis=1)[:, MIN_DURATIONS // 2]
        return float(np.sort(middle)[len(middle) // 2 - (len(middle) % 2 == 0)])

    def _usual(self, i: int, n: int) -> tuple[float, int]:
        """Return (log of the usual duration, number of durations from which it was computed) during the last n durations
        of role `i`.
        """
        if self.own:
            known = min(int(self._seen[i]), BASELINE_DURATIONS)
            return (float(np.median(self._first[i])), known) if known == BASELINE_DURATIONS else (math.nan, 1)
        if len(self.roles) > MANY:
            return self._level(), MIN_DURATIONS * len(self.roles)
        others = (self._seen > 0) & (np.arange(len(self._seen)) != i)
        if not others.any():
            return math.nan, 1
        fresh = self._ends[others, 1:] > self._ends[i, -n - 1]
        fresh[:, -1] = True  # for roles that are even slower, use the newest duration
        fresh &= ~np.isnan(self._logs[others])
        # the medians of the rows: `np.nanmedian` took ten times as long as all the rest of the test
        ordered = np.sort(np.where(fresh, self._logs[others], np.nan), axis=1)  # NaN comes last
        counts, row = fresh.sum(axis=1), np.arange(len(fresh))
        medians = (ordered[row, (counts - 1) // 2] + ordered[row, counts // 2]) / 2
        return float(np.median(medians)), int(counts.sum())

    def _noise(self) -> tuple[float, float]:
        """Return (sigma, multiple of sigma that chance explains).

        The multiple is larger while sigma is estimated from few differences.
        """
        steps = np.diff(self._logs, axis=1)
        counts = (~np.isnan(steps)).sum(axis=1)
        known = counts >= MIN_DURATIONS - 1
        if not known.any():
            return math.inf, Z_THRESHOLD
        squares = np.nansum(steps[known] ** 2, axis=1) / counts[known] / 2
        return math.sqrt(float(np.median(squares))), Z_THRESHOLD * (1 + 8 / float(counts[known].sum()))

    def _is_relevant(self, i: int, n: int, usual: float) -> bool:
        surplus = float((self._totals[i, -n:] * (1 - np.exp(usual - self._logs[i, -n:]))).sum())
        return surplus >= MIN_EXCESS * (self._ends[i, -1] - self._ends[i, -n - 1])


def _shifted(
    rows: np.ndarray, which: np.ndarray, newer: np.ndarray, counts: np.ndarray, values: np.ndarray
) -> np.ndarray:
    """Return `rows`, each shifted left by its entry of `counts`, with its new values at the right end.

    `values[k]` is a new value of row `which[k]`, and `newer[k]` is the number of new values of this row after it.
    """
    width = rows.shape[1]
    moved = np.take_along_axis(rows, np.minimum(np.arange(width) + counts[:, None], width - 1), axis=1)
    fits = newer < width
    moved[which[fits], width - 1 - newer[fits]] = values[fits]
    return moved


# durations -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """One kind of comparable durations, and its test. `what`: "computing", "messages", "waiting" or "applying"."""

    what: str
    test: OutlierTest


class Durations:
    """The durations of a trace. `kinds`: the kinds of durations, each with its test.

    The columns of `rows(t)` are: time (ns) at which the duration ended, index of its kind in `kinds`, role, duration
    (ns), and the sum (ns) of all reported durations that it represents.
    """

    def __init__(self, trace: Trace):
        self.trace, cluster, layout = trace, trace.header.cluster, trace.header.layout
        self.real = not cluster.simulated
        self.paced = cluster.simulated or bool(cluster.compute)
        self.workers, self.joined = workers_of(trace), joined_later(trace)
        self.split = len({layout.roles[w].data for w in self.workers}) < len(self.workers)
        observed = [trace.kinds[role] for role in trace.observed]
        shards = layout.replication == "synchronized" and len(observed) > 1 and set(observed) == {"worker"}
        self.pieces = self.split or shards  # a gradient is computed in pieces, so durations are per update
        # then durations are measured between the updates of this role
        self.clock = trace.observed[0]
        self.kinds = self._kinds(layout)
        self._of = {(kind.what, role): i for i, kind in enumerate(self.kinds) for role in kind.test.roles}
        self._unread = {table: Unread(table) for table in ("spans", "messages", "applies")}
        self._before = dict.fromkeys(self.workers, NOTHING[:, :4])  # newest span of each worker: end, role, ns, step
        self._open = (np.empty((0, 3), np.int64), np.empty(0, np.int64), 0)
        self._raw = NOTHING

    def _kinds(self, layout: RecordedLayout) -> list[Kind]:
        groups = [[self.trace.roles.index(name) for name in group] for group in _equal_parts(layout)]
        computing = (
            [OutlierTest(group) for group in groups if len(group) > 1] if self.split else [OutlierTest(self.workers)]
        )
        if self.split and not computing:
            computing = [OutlierTest(self.workers, own=True)]
        made = [Kind("computing", test) for test in computing]
        for kind in dict.fromkeys(self.trace.kinds):
            if kind not in ("worker", "chief"):
                never = absent_at_start(self.trace) - self.joined
                made.append(
                    Kind("applying", OutlierTest([role for role in self.trace.role_ids(kind) if role not in never]))
                )
        if not self.pieces:
            made += [Kind("messages", OutlierTest(self.workers)), Kind("waiting", OutlierTest(self.workers))]
        return made

    def rows(self, t: int) -> np.ndarray:
        """Return the new durations, int64 of shape (n, 5), unsorted. In a cluster run without a pace, only half seconds
        that are complete at `t` are included.
        """
        found = [*self._of_spans(t)]
        if not self.pieces and self.trace.role_ids("server"):
            found.append(self._of_messages())
        rows = np.concatenate(found)
        if self.paced:
            return rows
        rows = np.concatenate([self._raw, rows])
        over = rows[:, 0] // BUCKET < t // BUCKET
        self._raw = rows[~over]
        return _medians(rows[over])

    def _new(self, table: str, *names: str) -> list[np.ndarray]:
        rows, first, _ = self._unread[table].advance(self.trace)
        return SelectedRows(rows[first:], self.trace.tables[table].columns).columns(*names)

    def _of_spans(self, t: int) -> list[np.ndarray]:
        role, phase, start, end, step = self._new("spans", "role", "phase", "start", "end", "step")
        work, served = (phase == COMPUTE) & np.isin(role, self.workers), phase == APPLY
        found = [self._named("applying", end[served], role[served], (end - start)[served])]
        spans = np.stack([end[work], role[work], (end - start)[work], step[work]], axis=1)
        if self.pieces:
            return [*found, self._of_pieces(spans[:, :3], t)]
        return [*found, self._named("computing", *spans[:, :3].T), self._turns(spans)]

    def _of_pieces(self, spans: np.ndarray, t: int) -> np.ndarray:
        """Return the computing time of each role between consecutive updates of the model, during which it has many
        spans.
        """
        role, time = self._new("applies", "role", "time")
        spans_before, updates_before, last = self._open
        spans = np.concatenate([spans_before, spans])
        updates = np.unique(np.concatenate([updates_before, time[role == self.clock]]))
        updates, later = updates[(updates > last) & (updates <= t)], updates[updates > t]
        place = np.searchsorted(updates, spans[:, 0], side="left")
        self._open = spans[place == len(updates)], later, int(updates[-1]) if len(updates) else last
        spans, place = spans[place < len(updates)], place[place < len(updates)]
        cells = place * len(self.trace.roles) + spans[:, 1]
        which, where = np.unique(cells, return_inverse=True)
        sums = np.bincount(where.reshape(-1), spans[:, 2], len(which)).astype(np.int64)
        update, role = np.divmod(which, len(self.trace.roles))
        return self._named("computing", updates[update], role, sums)

    def _turns(self, spans: np.ndarray) -> np.ndarray:
        """Return the times from the end of one gradient to the end of the next, without pairs between which a gradient is
        missing.
        """
        rows = np.concatenate([*self._before.values(), spans])
        rows = rows[np.lexsort((rows[:, 0], rows[:, 1]))]
        for last in np.flatnonzero(np.diff(rows[:, 1], append=-1)).tolist():
            self._before[int(rows[last, 1])] = rows[last : last + 1]
        same = (rows[1:, 1] == rows[:-1, 1]) & (rows[1:, 3] == rows[:-1, 3] + 1)
        return self._named("waiting", rows[1:, 0][same], rows[1:, 1][same], (rows[1:, 0] - rows[:-1, 0])[same])

    def _of_messages(self) -> np.ndarray:
        to, sender, category, sent, received = self._new("messages", "role", "sender", "category", "sent", "received")
        kinds = np.array([{"worker": 1, "server": 2}.get(kind, 0) for kind in self.trace.kinds])
        seen = (category == TRAINING) & (kinds[to] + kinds[sender] == 3)
        to, sender, sent, received = to[seen], sender[seen], sent[seen], received[seen]
        return self._named("messages", received, np.where(kinds[to] == 1, to, sender), received - sent)

    def _named(self, what: str, time: np.ndarray, role: np.ndarray, ns: np.ndarray) -> np.ndarray:
        """Return the rows of one kind of durations. Roles without a role to compare with have no rows."""
        kind = np.array([self._of.get((what, r), -1) for r in range(len(self.trace.roles))])[role]
        if self.real and what in ("messages", "waiting"):
            ns = np.maximum(ns, SLICE)
        rows = np.stack([time, kind, role, ns, ns], axis=1)
        return rows[kind >= 0]


def _equal_parts(layout: RecordedLayout) -> list[tuple[str, ...]]:
    """Return the groups of workers that hold equal parts of the model, in separate replicas."""
    return [members for name, members in layout.groups.items() if name.startswith("part-")]


def _medians(rows: np.ndarray) -> np.ndarray:
    """Return the median duration of every half second, kind and role, with the end of that half second as its time."""
    bucket = rows[:, 0] // BUCKET
    order = np.lexsort((rows[:, 3], bucket, rows[:, 2], rows[:, 1]))
    rows, bucket = rows[order], bucket[order]
    fresh = np.any(np.diff(np.stack([rows[:, 1], rows[:, 2], bucket], axis=1), axis=0, prepend=-1) != 0, axis=1)
    first = np.flatnonzero(fresh)
    middle = (first + np.append(first[1:], len(rows)) - 1) // 2 if len(first) else first
    total = np.add.reduceat(rows[:, 3], first) if len(first) else first
    return np.stack([(bucket[first] + 1) * BUCKET, rows[first, 1], rows[first, 2], rows[middle, 3], total], axis=1)


# detection -----------------------------------------------------------------------------------------------------------


class SlowRole(NamedTuple):
    """The finding that `role` became slow in `what` ("computing", "applying", "messages" or "waiting") at `time` (ns).

    `what` is None if the role has recovered. `own`: its duration in ns. `usual`: the usual duration in ns.
    `against_start`: whether the usual duration is that of the same role at its start.
    """

    time: int
    role: int
    what: str | None
    own: float = 0.0
    usual: float = 0.0
    against_start: bool = False


def stragglers(trace: Trace, t: int) -> list[SlowRole]:
    """Return every role that became slow and every role that recovered, up to `t` ns, in order of time."""
    return Stragglers().until(trace, t)


class Stragglers:
    """The stragglers of a growing trace. Each row of the trace is read once; again if a role joins for the first time."""

    def __init__(self) -> None:
        self._trace: Trace | None = None
        self._read = -1

    def until(self, trace: Trace, t: int) -> list[SlowRole]:
        """Return every role that became slow and every role that recovered, up to `t` ns, in order of time."""
        if trace is not self._trace or self._durations.joined != joined_later(trace):
            self._begin(trace)
        if t > self._read:
            self._read = t
            self._read_until(trace, t)
        return [found for found in self._found if found.time <= t]

    def _begin(self, trace: Trace) -> None:
        self._trace, self._read = trace, -1
        self._durations = Durations(trace)
        self._kinds = self._durations.kinds
        self._timing = [i for i, kind in enumerate(self._kinds) if kind.what == "computing"]
        self._later = NOTHING
        self._tests = self._since = 0  # tests done, gradients since the last one
        self._slow: dict[int, str] = {}
        self._found: list[SlowRole] = []

    def _read_until(self, trace: Trace, t: int) -> None:
        rows = np.concatenate([self._later, self._durations.rows(t)])
        rows = rows[np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))]
        side = "left" if trace.ending is None else "right"  # more rows of this instant may follow in a live run
        ready = np.searchsorted(rows[:, 0], t, side=side)  # type: ignore[call-overload]
        rows, self._later = rows[:ready], rows[ready:]
        gradients = np.flatnonzero(np.isin(rows[:, 1], self._timing))
        done = taken = 0
        while True:
            wanted = max(1, len(self._durations.workers)) << self._tests // TESTS_PER_DOUBLING
            if done + wanted - self._since > len(gradients):
                break
            done += wanted - self._since
            last = int(gradients[done - 1]) + 1
            self._take(rows[taken:last])
            self._since, taken = 0, last
            self._tests += 1
            self._test(int(rows[last - 1, 0]))
        self._take(rows[taken:])
        self._since += len(gradients) - done

    def _take(self, rows: np.ndarray) -> None:
        for number, kind in enumerate(self._kinds):
            mine = rows[rows[:, 1] == number]
            if len(mine):
                kind.test.take(*mine[:, [2, 0, 3, 4]].T)

    def _test(self, time: int) -> None:
        kinds = sorted(self._kinds, key=lambda kind: ORDER.index(kind.what))
        seen = [(kind, *kind.test.find(self._slow)) for kind in kinds]
        slow: dict[int, SlowRole] = {}
        for kind, found, _ in seen:
            for role, (own, usual) in found.items():
                slow.setdefault(role, SlowRole(time, role, kind.what, own, usual, kind.test.own))
        for role, what in list(self._slow.items()):
            if role not in slow and any(kind.what == what and role in well for kind, _, well in seen):
                del self._slow[role]
                self._found.append(SlowRole(time, role, None))
        for role, finding in slow.items():
            if role not in self._slow:
                self._found.append(finding)
                self._slow[role] = str(finding.what)
