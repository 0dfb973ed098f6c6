"""Messages as numbers: how much each node sent and got lately, and what "lately" is in a run of this pace.

Only training counts: what the chief looks at travels for free. On a simulated wire the answer is exact, because it is
known when each message held it: bytes / bandwidth at the sender, and as long at the receiver until the message was
there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..trace.trace import Trace
from ..trace.vocabulary import COMPUTE, NANO, TRAINING
from . import style

__all__ = ["Traffic", "bandwidth", "bytes_text", "left_out", "recent_ns", "simulated", "traffic", "typical_ns"]

SAMPLE = 2048  # the first so many spans say how long a gradient takes


def simulated(trace: Trace) -> bool:
    """Whether time is virtual."""
    return bool(trace.header["cluster"].get("engine") == "simulated")


def bandwidth(trace: Trace) -> float | None:
    """Bytes a second that a node can send, and as many that it can get; None where nobody set a limit."""
    found = trace.header["cluster"].get("bandwidth")
    return float(found) if found else None


def typical_ns(trace: Trace) -> float:
    """How long a gradient takes, from the first ones of the run: so it is the same at every later time."""
    phase, start, end = (column[:SAMPLE] for column in trace.column("spans", "phase", "start", "end"))
    work = phase == COMPUTE
    return float(np.median((end - start)[work])) if work.any() else 0.1 * NANO


def recent_ns(trace: Trace) -> int:
    """What "lately" is: sixteen gradients in round numbers, and no less than a second of real time."""
    window = max(1000, round(style.nice_above(14.5 * typical_ns(trace) / NANO) * NANO))
    return window if simulated(trace) else max(NANO, window)


def left_out(trace: Trace) -> np.ndarray:
    """For each role: by how much its messages in the rows must be multiplied because some were never reported. 1 where
    none is missing. Counters are exact, so what a role has sent in all says it.
    """
    table, factors = trace.tables["messages"], np.ones(len(trace.roles))
    if not table.skipped:
        return factors
    sender, category, size = trace.column("messages", "sender", "category", "bytes")
    seen = np.bincount(sender[category == TRAINING], size[category == TRAINING], len(trace.roles))
    kept = len(table) / (len(table) + table.spilled)
    for role, counters in list(trace.counters.items()):
        if seen[role]:
            factors[role] = max(1.0, counters.bytes[TRAINING] * kept / seen[role])
    return factors


@dataclass(frozen=True)
class Traffic:
    """Messages that moved in (`first`, `last`] ns: from `sender` to `receiver` (roles), and the bytes of each that left
    (`out`) and that came in (`into`) in that time.
    """

    first: int
    last: int
    sender: np.ndarray
    receiver: np.ndarray
    out: np.ndarray
    into: np.ndarray

    @property
    def seconds(self) -> float:
        """How long that was."""
        return max(self.last - self.first, 1) / NANO


def traffic(trace: Trace, t: int) -> Traffic:
    """What moved lately, as it was known at `t` ns."""
    first = max(0, t - recent_ns(trace))
    receiver, sender, category, size, sent, received = trace.column(
        "messages", "role", "sender", "category", "bytes", "sent", "received"
    )
    nodes = np.unique(trace.nodes, return_inverse=True)[1]
    seen = (category == TRAINING) & (sent <= t) & (received > first) & (nodes[receiver] != nodes[sender])
    receiver, sender, size, received = receiver[seen], sender[seen], size[seen].astype(float), received[seen]
    size *= left_out(trace)[sender]
    width = bandwidth(trace)
    if width is None:
        there = received <= t
        return Traffic(first, t, sender, receiver, size * there, size * there)
    held = np.maximum(size / width * NANO, 1e-9)
    latency = round((trace.header["cluster"].get("latency") or 0.0) * NANO)

    def part(end: np.ndarray) -> np.ndarray:
        return np.clip(np.minimum(end, t) - np.maximum(end - held, first), 0, None) / held

    return Traffic(first, t, sender, receiver, size * part(received - latency), size * part(received))


def bytes_text(value: float) -> str:
    """`980 kB`, `9.8 MB`: two digits, or three."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= 0.9995 * size:
            return f"{value / size:.{3 if value >= 99.5 * size else 2}g} {unit}"
    return f"{value:.3g} B"
