"""How many gradients had been applied by when: the course behind every throughput."""

from __future__ import annotations

import numpy as np

from ..trace.trace import Trace
from ..trace.vocabulary import EVERYONE

__all__ = ["applied"]


def applied(trace: Trace, t: int, sender: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(ns, gradients applied by then), both of shape (moments,), up to `t` ns; of all workers or of one `sender`.

    With several shards each gradient counts once. From the rows, or, where rows are missing, from the counts that roles
    reported now and then.
    """
    layout = trace.header["layout"]
    owners = [trace.roles.index(name) for name in layout["observed"]]
    shared = 1 if layout.get("copies") == "own" else len(owners)  # how many of them book a gradient
    table = trace.tables["applies"]
    if table.skipped or table.spilled or not len(table):
        return _reported(trace, t, owners, shared, EVERYONE if sender is None else sender)
    role, time, who, count = trace.column("applies", "role", "time", "sender", "count")
    mine = np.isin(role, owners) & (time <= t)
    if sender is not None:
        mine &= (who == sender) | (who == EVERYONE)
    time, who, share = time[mine], who[mine], count[mine] / shared
    if sender is not None:
        share = np.where(who == EVERYONE, share / max(1, len(trace.role_ids("worker"))), share)
    if len(owners) > 1:  # the rows of one role are in order already
        order = np.argsort(time, kind="stable")
        time, share = time[order], share[order]
    last = np.flatnonzero(np.diff(time, append=time[-1:] + 1))  # of the rows of one instant
    return time[last], np.cumsum(share)[last]


def _reported(trace: Trace, t: int, owners: list[int], shared: int, sender: int) -> tuple[np.ndarray, np.ndarray]:
    role, time, who, count = trace.column("progress", "role", "time", "sender", "gradients")
    seen = (who == sender) & (time <= t)
    curves = [(time[seen & (role == owner)], _over_lives(count[seen & (role == owner)])) for owner in owners]
    if not all(len(when) for when, _ in curves):
        return np.empty(0), np.empty(0)
    when = np.unique(np.concatenate([when for when, _ in curves]))
    return when, np.sum([np.interp(when, x, y) for x, y in curves], axis=0) / shared


def _over_lives(count: np.ndarray) -> np.ndarray:
    """What was counted so far, by all lives of who counts: each begins again at zero."""
    before = np.concatenate([count[:1] * 0, count[:-1]])
    return count + np.cumsum(np.where(count < before, before, 0))
