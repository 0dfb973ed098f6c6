"""The critical path of a run: the chain of work and messages that determined when the last gradient was applied.

The chain is followed backwards. Work (a span of computing or applying) is preceded by what its role did before. A wait is
preceded by the message that ended it, and that message by what its sender did before it sent it. The parts of the path add up to
its length, so their shares say what a step's time consists of: if workers wait for the slowest of them, the path contains the
computing of the slowest.

A message takes the latency of the cluster; the rest of its time is its transfer, including the time in which it queues for links
that other messages occupy.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

import numpy as np

from .schema import APPLY, EVALUATION, WAIT, nanoseconds, seconds
from .trace import Trace

HOPS = 2_000  # spans and messages on a path


class PathParts(NamedTuple):
    """The parts of a critical path, in seconds. `wait`: waiting that no message ended, as a sleep."""

    compute: float
    update: float
    latency: float
    transfer: float
    wait: float


class _RowsByRole:
    """Rows of a table by role, sorted by one column."""

    def __init__(self, trace: Trace, table: str, by: str, *columns: str):
        role, *values = trace.column(table, "role", by, *columns)
        if table == "messages":
            kept = trace.column(table, "category") != EVALUATION
            role, values = role[kept], [column[kept] for column in values]
        order = np.lexsort((values[0], role))
        edges = role[order].searchsorted(np.arange(len(trace.roles) + 1))
        self._columns, self._edges = [column[order] for column in values], edges.tolist()
        self._known: dict[int, list[list[int]]] = {}

    def of(self, role: int) -> list[list[int]]:
        if role not in self._known:
            first, last = self._edges[role : role + 2]
            self._known[role] = [column[first:last].tolist() for column in self._columns]
        return self._known[role]


def critical_path(trace: Trace, since: int, until: int) -> PathParts:
    """Return the parts of the path that ends at the last application up to `until` ns; it is followed back to `since` ns, but for
    at most `HOPS` spans and messages.
    """
    roles, times = trace.column("applies", "role", "time")
    due = np.flatnonzero(times <= until)
    if not len(due):
        return PathParts(0.0, 0.0, 0.0, 0.0, 0.0)
    last = due[np.argmax(times[due])]
    role, now = int(roles[last]), int(times[last])
    spans = _RowsByRole(trace, "spans", "end", "start", "phase")
    messages = _RowsByRole(trace, "messages", "received", "sent", "sender")
    latency = nanoseconds(trace.header.cluster.latency or 0.0)
    parts = dict.fromkeys(PathParts._fields, 0)
    met = {role}  # the roles on the path at this instant: messages that take no time can form a cycle
    for _ in range(HOPS):
        if now <= since:
            break
        ends, starts, kinds = spans.of(role)
        place = min(bisect_left(ends, now), len(ends) - 1)
        while place >= 0 and starts[place] >= now:  # it begins now or later; what ends now comes before it
            place -= 1
        begin, end, kind = (starts[place], ends[place], kinds[place]) if place >= 0 else (since, since, WAIT)
        found = _message(messages.of(role), now, met)
        if end < now and not found:  # processor time of messages
            parts["transfer"] += now - end
            now, met = end, {role}
            continue
        if kind != WAIT and not (found and found[0] < now):  # otherwise the message ended the work: it was cancelled
            parts["update" if kind == APPLY else "compute"] += now - begin
            now, met = begin, {role}
            continue
        if found is None:
            parts["wait"] += now - begin
            now, met = begin, {role}
            continue
        sent, sender = found
        parts["latency"] += min(latency, now - sent)
        parts["transfer"] += max(0, now - sent - latency)
        met = met | {sender} if sent == now else {sender}
        role, now = sender, sent
    return PathParts(*(seconds(parts[name]) for name in PathParts._fields))


def _message(rows: list[list[int]], now: int, met: set[int]) -> tuple[int, int] | None:
    """Return (time of sending, sender) of the first message that a role received `now`, or None. A message that took no time
    does not lead back to a role in `met`.
    """
    received, sent, sender = rows
    for place in range(bisect_left(received, now), len(received)):
        if received[place] != now:
            break
        if sent[place] < now or sender[place] not in met:
            return sent[place], sender[place]
    return None
