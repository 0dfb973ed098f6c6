"""Overlap of communication and computing in roles that have tasks.

The trace has a row for each communication of a task (`Context.communication`), with the time of it that is hidden, because the
role computed meanwhile, and a row for each piece of a backward pass, which identifies the span that computed this piece.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..formatting import percent
from .index import BlockIndex
from .query import in_progress
from .role_states import intervals
from .trace import Trace

NO_LAYER = -1


class Overlap(NamedTuple):
    """The time of communications (ns): while their role computed, and while it did not. `behind`: what it computed."""

    hidden: int
    exposed: int
    behind: str

    @property
    def text(self) -> str:
        """The share that is hidden, as a sentence without a full stop."""
        share = percent(self.hidden / (self.hidden + self.exposed))
        return f"{share} of the communication is hidden behind {self.behind}"


def overlap(trace: Trace, t: int | None = None, role: int | None = None) -> Overlap | None:
    """Return the overlap of all communications that are over at `t` (ns; None: now), of one role or of all.

    None if there are none, as in roles without tasks, or if they were not recorded.
    """
    who, start, end, hidden = trace.column("communications", "role", "start", "end", "hidden")
    seen = np.ones(len(who), dtype=bool) if t is None else end <= t
    if role is not None:
        seen &= who == role
    covered, took = int(hidden[seen].sum()), int((end - start)[seen].sum())
    behind = "the backward pass" if len(trace.tables["pieces"]) else "computing"
    return Overlap(covered, took - covered, behind) if took else None


def overlapping_roles(trace: Trace) -> list[int]:
    """Return the roles that have recorded communications, or are communicating."""
    begun = [role for role, counters in trace.counters.items() if counters.communicating]
    return sorted({*np.unique(trace.column("communications", "role")).tolist(), *begun})


def communicating_since(trace: Trace, t: int) -> list[tuple[int, int, int]]:
    """Return (role, number, ns at which it began) of each reported communication that is not over at `t` (ns)."""
    found, gaps = [], intervals(trace, t)
    for role, counters in trace.counters.items():
        flat = iter(counters.communicating)
        for number, since in zip(flat, flat):
            if in_progress(since, t, gaps.get(role, ())):
                found.append((role, number, since))
    return found


class BackwardPieces:
    """Finds the computing spans that are pieces of a backward pass."""

    def __init__(self) -> None:
        self._pieces = BlockIndex("pieces", "time")

    def layers(self, trace: Trace, role: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Return, for each of these computing spans, the layer whose backward pass it is, or `NO_LAYER`; shape (spans,)."""
        found = np.full(len(role), NO_LAYER)
        if not len(role) or not len(trace.tables["pieces"]):
            return found
        rows = self._pieces.between(trace, int(start.min()), int(end.max()))
        who, time, layer = rows.columns("role", "time", "layer")
        for each in np.unique(who):
            mine, pieces = np.flatnonzero(role == each), who == each
            mine = mine[np.argsort(end[mine], kind="stable")]
            span = np.searchsorted(end[mine], time[pieces], side="left")
            within = span < len(mine)
            span, layers, times = span[within], layer[pieces][within], time[pieces][within]
            within = start[mine][span] <= times
            found[mine[span[within]]] = layers[within]
        return found


def shared_time(
    start: np.ndarray, end: np.ndarray, since: np.ndarray, until: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return (begin, end) of the time that intervals [start, end] share with intervals [since, until]. The intervals of each
    kind are sorted and do not overlap.
    """
    first, last = np.searchsorted(until, start, side="right"), np.searchsorted(since, end, side="left")
    count = np.maximum(last - first, 0)
    mine = np.repeat(np.arange(len(start)), count)
    other = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    return np.maximum(start[mine], since[other]), np.minimum(end[mine], until[other])
