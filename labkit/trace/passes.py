"""Classification of the spans of a pipeline stage as forward or backward passes, by the message that follows each span.

A span records only that a stage computed. After a forward pass the stage sends an `Activation` to the next stage, and
after a backward pass a `Delta` to the previous stage. Two passes send nothing: the backward pass of the first stage, and
the forward pass of the last stage, whose activations become the loss. If backward passes are split (zb-h1), the half that
computes the gradient of the weights sends nothing, either. In the last stage a span without a message is then a forward
pass if the next span is a backward pass with a message.
"""

from __future__ import annotations

import numpy as np

from .index import Lookup
from .query import skipped
from .trace import Trace

FORWARD, BACKWARD = "Activation", "Delta"
NO_MESSAGE = -1


def pipelined(trace: Trace) -> bool:
    """Return whether forward and backward passes can be distinguished in this run."""
    kinds = trace.header.messages
    return FORWARD in kinds and BACKWARD in kinds and not skipped(trace, "messages")


class Passes:
    def __init__(self, lookup: Lookup | None = None) -> None:
        self._messages = (lookup or Lookup()).sent

    def backward(self, trace: Trace, t: int, role: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Return whether each of these computing spans is a backward pass, bool, shape (spans,).

        The spans must have ended by `t` ns, and the spans of each role must be sorted by time.
        """
        found = np.zeros(len(role), dtype=bool)
        if not len(role) or not pipelined(trace):
            return found
        kinds = trace.header.messages
        rows = self._messages.between(trace, int(end.min()), t)
        to, sender, kind, sent = rows.columns("role", "sender", "kind", "sent")
        zero_bubble = trace.header.strategy.options.get("order") == "zb-h1"
        for stage in np.unique(role):
            mine = np.flatnonzero(role == stage)
            own = (sender == stage) & np.isin(kind, [kinds.index(FORWARD), kinds.index(BACKWARD)])
            sent_next = _first_sent(start[mine], end[mine], sent[own], kind[own] == kinds.index(BACKWARD))
            onward = (to[own] > stage) & (kind[own] == kinds.index(FORWARD))
            found[mine] = sent_next == 1
            # not the last stage: without a message it is a backward pass, of the first stage or of the weights
            if onward.any():
                found[mine] |= sent_next == NO_MESSAGE
            elif zero_bubble:
                found[mine] |= (sent_next == NO_MESSAGE) & (np.r_[sent_next[1:], NO_MESSAGE] != 1)
        return found


def _first_sent(start: np.ndarray, end: np.ndarray, sent: np.ndarray, back: np.ndarray) -> np.ndarray:
    """Return the first message between the end of each span and the start of the next: 0 forward, 1 backward, or
    `NO_MESSAGE`.
    """
    if not len(sent):
        return np.full(len(start), NO_MESSAGE)
    until = np.r_[start[1:], np.iinfo(np.int64).max]
    first = np.searchsorted(sent, end, side="left")
    at = np.minimum(first, len(sent) - 1)
    return np.where((first < len(sent)) & (sent[at] <= until), back[at].astype(int), NO_MESSAGE)
