"""Rows made into durations that can be compared: of a gradient, of a turn, of a message, of a step at a server.

    computing   what a worker computes for one gradient; where that is done in many pieces, for one update
    messages    how long a message between a worker and a server is under way
    waiting     a worker's whole turn, from the end of one gradient to the end of the next
    applying    one piece of work of a server

Rows that were read are not read again. Where nothing sets the pace of a real run, the median of every half second stands
for all of it: the machine has other things to do now and then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..trace.trace import Trace
from ..trace.vocabulary import APPLY, COMPUTE, NANO, TRAINING
from .gauge import Gauge

__all__ = ["Durations", "Kind"]

BUCKET = NANO // 2
SLICE = NANO // 100  # a busy machine keeps a process waiting so long: of less, the network or others are not to blame
NOTHING = np.empty((0, 5), np.int64)


@dataclass(frozen=True)
class Kind:
    """What a gauge measures (see the module), and the gauge."""

    what: str
    gauge: Gauge


class Durations:
    """Reads a trace. `kinds`: the gauges that its durations are for. `rows(t)` has columns time, kind, role, ns, total.

    `total`: the nanoseconds of all that the duration stands for, as many as were reported.
    """

    def __init__(self, trace: Trace):
        self.trace, header = trace, trace.header
        cluster, layout = header["cluster"], header["layout"]
        self.real = cluster["engine"] != "simulated"
        self.paced = not self.real or bool(cluster.get("pace"))
        self.workers = trace.role_ids("worker")
        self.split = len({layout["roles"][w]["data"] for w in self.workers}) < len(self.workers)
        observed = [trace.kinds[trace.roles.index(name)] for name in layout["observed"]]
        shards = layout.get("copies") == "equal" and len(observed) > 1 and set(observed) == {"worker"}
        self.pieces = self.split or shards  # a gradient is computed in pieces, and counted by the update
        self.clock = trace.roles.index(layout["observed"][0])  # then its updates divide the time
        self.kinds = self._kinds(layout)
        self._of = {(kind.what, role): i for i, kind in enumerate(self.kinds) for role in kind.gauge.roles}
        self._read = dict.fromkeys(("spans", "messages", "applies"), 0)
        self._before = dict.fromkeys(self.workers, NOTHING[:, :4])  # each one's newest span: end, role, ns, step
        self._open = (np.empty((0, 3), np.int64), np.empty(0, np.int64), 0)
        self._raw = NOTHING

    def _kinds(self, layout: dict[str, Any]) -> list[Kind]:
        groups = [[self.trace.roles.index(name) for name in group] for group in _equal_parts(layout)]
        computing = [Gauge(group) for group in groups if len(group) > 1] if self.split else [Gauge(self.workers)]
        if self.split and not computing:
            computing = [Gauge(self.workers, own=True)]
        made = [Kind("computing", gauge) for gauge in computing]
        for kind in dict.fromkeys(self.trace.kinds):
            if kind not in ("worker", "chief"):
                made.append(Kind("applying", Gauge(self.trace.role_ids(kind))))
        if not self.pieces:
            made += [Kind("messages", Gauge(self.workers)), Kind("waiting", Gauge(self.workers))]
        return made

    def rows(self, t: int) -> np.ndarray:
        """What is new, int64 of shape (n, 5), in no order. In a real run without a pace: of the half seconds that are
        over at `t`.
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
        """Columns of the rows that came since the last time."""
        with self.trace.lock:
            columns, spilled = self.trace.column(table, *names), self.trace.tables[table].spilled
        first = max(0, self._read[table] - spilled)
        self._read[table] = spilled + len(columns[0])
        return [column[first:] for column in columns]

    def _of_spans(self, t: int) -> list[np.ndarray]:
        role, phase, start, end, step = self._new("spans", "role", "phase", "start", "end", "step")
        work, served = (phase == COMPUTE) & np.isin(role, self.workers), phase == APPLY
        found = [self._named("applying", end[served], role[served], (end - start)[served])]
        spans = np.stack([end[work], role[work], (end - start)[work], step[work]], axis=1)
        if self.pieces:
            return [*found, self._of_pieces(spans[:, :3], t)]
        return [*found, self._named("computing", *spans[:, :3].T), self._turns(spans)]

    def _of_pieces(self, spans: np.ndarray, t: int) -> np.ndarray:
        """What each role computed from one update of the model to the next: it has many spans in that time."""
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
        """From the end of one gradient to the end of the next, where none is missing in between."""
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
        """Rows of one kind of duration; of roles that nobody is compared with, none."""
        kind = np.array([self._of.get((what, r), -1) for r in range(len(self.trace.roles))])[role]
        if self.real and what in ("messages", "waiting"):
            ns = np.maximum(ns, SLICE)
        rows = np.stack([time, kind, role, ns, ns], axis=1)
        return rows[kind >= 0]


def _equal_parts(layout: dict[str, Any]) -> list[list[str]]:
    """The groups of workers that have equal parts of the model, in replicas of their own."""
    return [members for name, members in layout.get("groups", {}).items() if name.startswith("part-")]


def _medians(rows: np.ndarray) -> np.ndarray:
    """Of every half second, kind and role the median, with the time at which the half second was over."""
    bucket = rows[:, 0] // BUCKET
    order = np.lexsort((rows[:, 3], bucket, rows[:, 2], rows[:, 1]))
    rows, bucket = rows[order], bucket[order]
    fresh = np.any(np.diff(np.stack([rows[:, 1], rows[:, 2], bucket], axis=1), axis=0, prepend=-1) != 0, axis=1)
    first = np.flatnonzero(fresh)
    middle = (first + np.append(first[1:], len(rows)) - 1) // 2 if len(first) else first
    total = np.add.reduceat(rows[:, 3], first) if len(first) else first
    return np.stack([(bucket[first] + 1) * BUCKET, rows[first, 1], rows[first, 2], rows[middle, 3], total], axis=1)
