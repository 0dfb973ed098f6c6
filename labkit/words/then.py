"""Numbers as they were at a time: from the counters, which are exact, where the time is now, else from the rows up to
then.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..trace.measures import bytes_sent, staleness, staleness_rows
from ..trace.trace import Trace
from ..trace.vocabulary import seconds

__all__ = ["last_evaluation", "sampled", "sent_then", "staleness_then", "time_to"]


def sampled(trace: Trace, table: str) -> bool:
    """Whether rows of a table are missing, so that what is counted in it is not exact."""
    return bool(trace.tables[table].skipped or trace.tables[table].spilled)


def staleness_then(trace: Trace, t: int) -> dict[str, Any]:
    """{"mean", "p95", "max"} of all gradients applied by `t` ns; None where there is none."""
    if t >= trace.watermark():
        now = staleness(trace)
        return {name: now[name] for name in ("mean", "p95", "max")}
    _, stale, count = staleness_rows(trace, 0, t)
    if not count.sum():
        return {"mean": None, "p95": None, "max": None}
    histogram = np.bincount(stale, count)
    total = histogram.sum()
    return {
        "mean": float(histogram @ np.arange(len(histogram))) / float(total),
        "p95": int(np.searchsorted(np.cumsum(histogram), 0.95 * total)),
        "max": int(stale[count > 0].max()),
    }


def sent_then(trace: Trace, t: int) -> int | None:
    """Payload bytes sent by `t` ns; None where the rows that say so are not all there."""
    if t >= trace.watermark():
        return sum(count for kinds in bytes_sent(trace).values() for count in kinds.values())
    if sampled(trace, "messages") or not len(trace.tables["messages"]):
        return None
    size, sent = trace.column("messages", "bytes", "sent")
    return int(size[sent <= t].sum())


def time_to(trace: Trace, goal: float, t: int) -> float | None:
    """Seconds until an evaluation by `t` ns first reached the accuracy `goal`; None if none did."""
    time, accuracy = trace.column("evaluations", "time", "accuracy")
    hits = np.flatnonzero((accuracy >= goal) & (time <= t))
    return seconds(float(time[hits[0]])) if len(hits) else None


def last_evaluation(trace: Trace, t: int) -> tuple[float, float, float] | None:
    """(ns, loss, accuracy) of the newest evaluation of a trained model by `t` ns; None if there was none."""
    time, update, loss, accuracy = trace.column("evaluations", "time", "update", "loss", "accuracy")
    seen = np.flatnonzero((time <= t) & (update > 0))
    return (float(time[seen[-1]]), float(loss[seen[-1]]), float(accuracy[seen[-1]])) if len(seen) else None
