"""Forward or backward? What a pipeline stage computed is told by what it sent when it was done.

A span says only that a stage computed. But a forward ends with an `Activation` for the stage after, and a backward with a
`Delta` for the stage before. Two have nothing to send: the first stage's backward, and the last one's forward, whose
activations become the loss. With split backwards (zb-h1) the weights' half sends nothing, either; then the last stage's
forward is the one whose backward follows at once.
"""

from __future__ import annotations

import numpy as np

from .index import Lookup
from .query import skipped
from .trace import Trace

__all__ = ["Passes", "pipelined"]

FORWARD, BACKWARD = "Activation", "Delta"
SILENT = -1


def pipelined(trace: Trace) -> bool:
    """Whether forwards and backwards can be told apart in this run."""
    kinds = trace.header.get("messages", ())
    return FORWARD in kinds and BACKWARD in kinds and not skipped(trace, "messages")


class Passes:
    """Tells forwards from backwards in the trace that it is asked about."""

    def __init__(self, lookup: Lookup | None = None) -> None:
        self._messages = (lookup or Lookup()).sent

    def backward(self, trace: Trace, t: int, role: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Of each span of computing, ended by `t` ns: was it a backward? Spans of one role are in order of time."""
        found = np.zeros(len(role), dtype=bool)
        if not len(role) or not pipelined(trace):
            return found
        kinds = list(trace.header["messages"])
        rows = self._messages.between(trace, int(end.min()), t)
        to, sender, kind, sent = rows.columns("role", "sender", "kind", "sent")
        zero_bubble = trace.header["strategy"].get("options", {}).get("order") == "zb-h1"
        for stage in np.unique(role):
            mine = np.flatnonzero(role == stage)
            own = (sender == stage) & np.isin(kind, [kinds.index(FORWARD), kinds.index(BACKWARD)])
            said = _first_sent(start[mine], end[mine], sent[own], kind[own] == kinds.index(BACKWARD))
            onward = (to[own] > stage) & (kind[own] == kinds.index(FORWARD))
            found[mine] = said == 1
            if onward.any():  # not the last: what is silent has gone back to the start, or to the weights
                found[mine] |= said == SILENT
            elif zero_bubble:
                found[mine] |= (said == SILENT) & (np.r_[said[1:], SILENT] != 1)
        return found


def _first_sent(start: np.ndarray, end: np.ndarray, sent: np.ndarray, back: np.ndarray) -> np.ndarray:
    """For each span the first message between its end and the next one's start: 0 forward, 1 backward, `SILENT`."""
    if not len(sent):
        return np.full(len(start), SILENT)
    until = np.r_[start[1:], np.iinfo(np.int64).max]
    first = np.searchsorted(sent, end, side="left")
    at = np.minimum(first, len(sent) - 1)
    return np.where((first < len(sent)) & (sent[at] <= until), back[at].astype(int), SILENT)
