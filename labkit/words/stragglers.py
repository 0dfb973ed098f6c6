"""Who is slow, and by what: told from the rows of a trace alone, whatever was done to the run.

A worker is a straggler if it computes, or waits, or its messages take, clearly longer than the others' (`gauge.py` says
what "clearly" means). The one that others wait for is the one that computes long; who waits as long as everybody is no
straggler. Where a model is split over the workers their work differs: then each is compared with its own beginnings.

What is found at a time follows from the rows up to then, so a person who scrubs back reads what could be known. The
gauges are read each time that every worker has had a turn, and the longer the run, the more seldom: a long run costs
little more than a short one.
"""

from __future__ import annotations

import numpy as np

from ..trace.trace import Trace
from ..trace.vocabulary import short
from .durations import NOTHING, Durations
from .text import duration

__all__ = ["Stragglers", "stragglers"]

AS_OFTEN = 128  # looks, before twice as many gradients pass between two of them
ORDER = ("computing", "applying", "messages", "waiting")  # who waits because it computes long does not wait for others


def stragglers(trace: Trace, t: int) -> list[tuple[int, str]]:
    """(ns, line) of everybody who became slow, and of everybody who no longer was, up to `t` ns."""
    return Stragglers().until(trace, t)


class Stragglers:
    """Remembers how far one trace has been read. A shortcut and no state: `until` says what `stragglers` says."""

    def __init__(self) -> None:
        self._trace: Trace | None = None
        self._read = -1

    def until(self, trace: Trace, t: int) -> list[tuple[int, str]]:
        """See `stragglers`. What has been read once is not read again."""
        if trace is not self._trace:
            self._begin(trace)
        if t > self._read:
            self._read = t
            self._go_on(trace, t)
        return [line for line in self._lines if line[0] <= t]

    def _begin(self, trace: Trace) -> None:
        self._trace, self._read = trace, -1
        self._durations = Durations(trace)
        self._kinds = self._durations.kinds
        self._timing = [i for i, kind in enumerate(self._kinds) if kind.what == "computing"]
        self._later = NOTHING
        self._looks = self._since = 0  # looks taken, gradients since the last one
        self._slow: dict[int, str] = {}
        self._lines: list[tuple[int, str]] = []

    def _go_on(self, trace: Trace, t: int) -> None:
        rows = np.concatenate([self._later, self._durations.rows(t)])
        rows = rows[np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))]
        side = "left" if trace.ending is None else "right"  # of this very moment more may come
        ready = np.searchsorted(rows[:, 0], t, side=side)  # type: ignore[call-overload]
        rows, self._later = rows[:ready], rows[ready:]
        gradients = np.flatnonzero(np.isin(rows[:, 1], self._timing))
        done = taken = 0
        while True:
            wanted = max(1, len(self._durations.workers)) << self._looks // AS_OFTEN
            if done + wanted - self._since > len(gradients):
                break
            done += wanted - self._since
            last = int(gradients[done - 1]) + 1
            self._take(rows[taken:last])
            self._since, taken = 0, last
            self._looks += 1
            self._look(int(rows[last - 1, 0]))
        self._take(rows[taken:])
        self._since += len(gradients) - done

    def _take(self, rows: np.ndarray) -> None:
        for number, kind in enumerate(self._kinds):
            mine = rows[rows[:, 1] == number]
            if len(mine):
                kind.gauge.take(*mine[:, [2, 0, 3, 4]].T)

    def _look(self, time: int) -> None:
        kinds = sorted(self._kinds, key=lambda kind: ORDER.index(kind.what))
        seen = [(kind, *kind.gauge.look(self._slow)) for kind in kinds]
        slow: dict[int, tuple[str, str]] = {}
        for kind, found, _ in seen:
            for role, (own, usual) in found.items():
                slow.setdefault(role, (kind.what, _words(kind.what, own, usual, kind.gauge.own)))
        for role, what in list(self._slow.items()):
            if role not in slow and any(kind.what == what and role in well for kind, _, well in seen):
                del self._slow[role]
                self._lines.append((time, f"{self._name(role)} keeps up again"))
        for role, (what, words) in slow.items():
            if role not in self._slow:
                self._lines.append((time, f"straggler: {self._name(role)}, {words}"))
            self._slow.setdefault(role, what)

    def _name(self, role: int) -> str:
        assert self._trace is not None
        return short(self._trace.roles[role])


def _words(what: str, own: float, usual: float, before: bool) -> str:
    """`computing 0.50 s against a median of 0.10 s`."""
    took, else_ = duration(own, usual)
    if before:
        return f"{what} {took} for an update against {else_} at the start"
    start = {"waiting": "waiting for others, a gradient every", "messages": "its messages take"}.get(what, what)
    return f"{start} {took} against a median of {else_}"
