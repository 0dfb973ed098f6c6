"""Throughput: gradients applied a second, all together, and those of the worker that was slowed.

The rate at a moment is counted over the last stretch of time. Between two applications the count is taken to grow
evenly, so a synchronous run, which applies N gradients at once, has a steady rate and not a comb.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes

from ..trace.trace import Trace
from ..trace.vocabulary import EVERYONE, NANO
from . import style
from .curves import Curve, Curves, pinned_run, this_run
from .marks import factors, short, slowed
from .panel import moment

__all__ = ["STRETCH", "Throughput", "draw", "rate_text", "rates"]

POINTS = 160
STRETCH = 12  # a rate is counted over this part of the time so far


def draw(trace: Trace, t: int | None, axes: Axes, pinned: Trace | None = None) -> Throughput:
    """Gradients a second up to `t` (ns) on empty axes."""
    return Throughput(pinned).draw(trace, t, axes)


def rates(trace: Trace, t: int, sender: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(seconds, gradients a second) up to `t` ns, of all workers or of one. With several shards, each gradient counts
    once.
    """
    when, total = _applied(trace, t, sender)
    if not len(when):
        return np.empty(0), np.empty(0)
    when, total = np.r_[0.0, when / NANO], np.r_[0.0, total]
    stretch = max(t / NANO / STRETCH, 1e-9)
    silent = max(stretch, 10 * when[-1] / len(when))  # after this, nothing applied is news, and the curve comes down
    end = t / NANO if t / NANO - when[-1] > silent else when[-1]
    x = np.linspace(min(stretch, end) / 2, end, POINTS)
    length = np.minimum(stretch, x)
    return x, (np.interp(x, when, total) - np.interp(x - length, when, total)) / length


def _applied(trace: Trace, t: int, sender: int | None) -> tuple[np.ndarray, np.ndarray]:
    """(ns, gradients applied by then), from the rows, or, where rows are missing, from the counts that roles reported."""
    owners = [trace.roles.index(name) for name in trace.header["layout"]["observed"]]
    shared = 1 if trace.header["layout"].get("copies") == "own" else len(owners)  # how many of them book a gradient
    table = trace.tables["applies"]
    if table.skipped or table.spilled or not len(table):
        return _reported(trace, t, owners, shared, EVERYONE if sender is None else sender)
    role, time, who, count = trace.column("applies", "role", "time", "sender", "count")
    mine = np.isin(role, owners) & (time <= t)
    time, who = time[mine], who[mine]
    share = count[mine] / shared
    if sender is not None:
        everyone = who == EVERYONE
        share = np.where(everyone, share / max(1, len(trace.role_ids("worker"))), share)
        kept = everyone | (who == sender)
        time, share = time[kept], share[kept]
    when, place = np.unique(time, return_inverse=True)
    return when, np.cumsum(np.bincount(place, share)) if len(when) else np.empty(0)


def _reported(trace: Trace, t: int, owners: list[int], shared: int, sender: int) -> tuple[np.ndarray, np.ndarray]:
    role, time, who, count = trace.column("progress", "role", "time", "sender", "gradients")
    seen = (who == sender) & (time <= t)
    curves = [(time[seen & (role == owner)], count[seen & (role == owner)]) for owner in owners]
    if not all(len(when) for when, _ in curves):
        return np.empty(0), np.empty(0)
    when = np.unique(np.concatenate([when for when, _ in curves]))
    return when, np.sum([np.interp(when, x, y) for x, y in curves], axis=0) / shared


def rate_text(value: float) -> str:
    """`31/s`, `2.1/s`, `12,000/s`."""
    return f"{value:,.0f}/s" if value >= 9.95 else f"{value:.1f}/s"


class Throughput(Curves):
    """See the module."""

    name: ClassVar[str] = "throughput"
    title: ClassVar[str] = "Throughput"
    tables: ClassVar[tuple[str, ...]] = ("applies", "progress")

    def caption(self, trace: Trace, t: int | None = None) -> str:
        """The unit, and what the dashed line is."""
        pinned = super().caption(trace, t)
        return "gradients a second" + (f" · {pinned}" if pinned else "")

    def curves(self, trace: Trace, t: int) -> list[Curve]:
        """This run, the pinned one, the slowed workers."""
        x, y = rates(trace, t)
        found = [this_run(x, y, rate_text(y[-1]) if len(y) else "")]
        if self.pinned is not None:
            px, py = rates(self.pinned, moment(self.pinned, None))
            found.append(pinned_run(px, py, rate_text(py[-1]) if len(py) else ""))
        for role in [r for r in factors(trace, t) if r in slowed(trace, t)][:3]:
            x, y = rates(trace, t, role)
            words = f"{short(trace.roles[role])} {rate_text(y[-1])}" if len(y) else ""
            found.append(Curve(x, y, words, style.ORANGE, "-", 1.8))
        return found

    def nothing(self, trace: Trace) -> str:
        """Runs that keep no rows have no course of time."""
        applied: Any = any(c.gradients for c in trace.counters.values())
        return "this run keeps totals only" if applied else "no gradient applied yet"
