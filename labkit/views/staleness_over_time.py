"""Staleness over time: the mean of what was applied in each short stretch of time, and a band that holds nine in ten.

The law is about the mean of the whole run; here is when it holds. After a worker was slowed its own gradients, the
orange line, become older and those of the others a little younger: the mean stays where it was.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from ..trace.measures import staleness_law
from ..trace.role_states import slowdowns, slowed
from ..trace.trace import Trace
from ..trace.vocabulary import NANO, UNKNOWN, short
from . import style
from .blocks import Blocks
from .curves import Curve, Curves, this_run
from .panel import moment
from .room import WISH, Room

__all__ = ["StalenessOverTime", "draw"]

STRETCHES = 40  # of time, about; their length is round, so they stand still while a run goes on
TOGETHER = 4  # so many of them are looked at together, each time one further: few gradients are no statistics
SHARES = (0.05, 0.95)


def draw(trace: Trace, t: int | None, axes: Axes) -> StalenessOverTime:
    """Mean and spread of staleness up to `t` (ns) on empty axes."""
    return StalenessOverTime().draw(trace, t, axes)


class StalenessOverTime(Curves):
    """See the module."""

    name: ClassVar[str] = "staleness_over_time"
    title: ClassVar[str] = "Staleness over time"
    tables: ClassVar[tuple[str, ...]] = ("applies",)

    def __init__(self) -> None:
        super().__init__(None)
        self._applies = Blocks("applies", "time")
        self._known: dict[tuple[int, int], Any] = {}  # (first row, row after the last) of a stretch: what it came to
        self._of: tuple[Any, ...] = (None,)

    def setup(self, axes: Any) -> Self:
        """A band and a law."""
        super().setup(axes)
        self.band = PolyCollection([], facecolors=style.BLUE_MIST, edgecolors="none", zorder=1)
        axes.add_collection(self.band, autolim=False)
        (self.law,) = axes.plot([], [], color=style.RED, linewidth=1.5, zorder=5.5)
        self.law_text = style.write(
            axes, 0, 0, "", style.RED, style.NORMAL, va="center", transform=axes.transAxes, zorder=6.5
        )
        self.law_text.set_path_effects(style.halo())
        return self

    def caption(self, trace: Trace, t: int | None = None) -> str:
        """What line and band are."""
        return "mean · band: 5–95% of gradients"

    def update(self, trace: Trace, t: int | None = None) -> None:
        """Look at the stretches up to `t`, then draw."""
        t = moment(trace, t)
        self._slow = [role for role in slowdowns(trace, t) if role in slowed(trace, t)][:3]
        self.found = self._stretches(trace, t)
        super().update(trace, t)

    def curves(self, trace: Trace, t: int) -> list[Curve]:
        """The mean of all, and of each slowed worker."""
        x, mean, low, high, *own = self.found
        self.band.set_verts([np.stack([np.r_[x, x[::-1]], np.r_[low, high[::-1]]], axis=-1)] if len(x) else [])
        self._law = staleness_law(trace) if len(x) else None
        found = [this_run(x, mean, f"{mean[-1]:.3g}" if len(x) else "")]
        for role, line in zip(self._slow, own):
            kept = np.isfinite(line)
            if not high.any():
                continue  # nobody's gradients are stale, so neither are its own
            label = f"{short(trace.roles[role])} {line[kept][-1]:,.0f}" if kept.any() else ""
            found.append(Curve(x[kept], line[kept], label, style.ORANGE, "-", 1.8))
        return found

    def highest(self) -> float:
        """The band and the law need room, too."""
        return max(float(self.found[3].max(initial=1.0)), self._law[0] if self._law else 0.0)

    def behind(self, room: Room) -> None:
        """The law with its words; names keep off both."""
        self.law.set_data(*(([0, self.axes.get_xlim()[1]], [self._law[0]] * 2) if self._law else ([], [])))
        self.law_text.set_text("")
        if self._law is None:
            return
        words = f"law: {self._law[1]}"
        wide = style.width(words, style.NORMAL)
        _, y = room.pixels(0.0, self._law[0])
        for line in (self.found[1], self.found[2], self.found[3]):
            room.curve(self.found[0], line, WISH)
        room.curve(np.asarray(self.law.get_xdata()), np.asarray(self.law.get_ydata()))
        spots = [4 + k * (room.wide - wide - 8) / 6 for k in range(7)]
        left, bottom, _ = room.near(wide, 0, float(y) + 8, spots)
        self.law_text.set_text(words)
        room.put(self.law_text, left, bottom, wide)

    def nothing(self, trace: Trace) -> str:
        """Runs that keep no rows have no course of time."""
        applied: Any = any(c.gradients for c in trace.counters.values())
        return "this run keeps totals only" if applied else "no gradient applied yet"

    def _stretches(self, trace: Trace, t: int) -> list[np.ndarray]:
        """Seconds, mean, low and high share of the whole stretches up to `t`; then the mean of each slowed worker."""
        columns = trace.tables["applies"].columns
        step = max(1, round(style.nice_above(t / NANO / STRETCHES) * NANO))
        key = trace.tables["applies"].spilled, step
        if self._of[0] is not trace or self._of[1:] != key:
            self._of, self._known = (trace, *key), {}
        edges = np.arange(t // step + 1) * step
        places = self._applies.until(trace, (edges - 1).tolist())  # how many were applied before each
        wanted = [columns.index(name) for name in ("sender", "staleness", "count")]
        found = []
        first = np.maximum(np.arange(1, len(edges)) - TOGETHER, 0)
        for k, begin in enumerate(first.tolist(), 1):
            end, key = int(edges[k]), (places[begin], places[k])
            if key not in self._known:
                self._known[key] = _told(self._applies.between(trace, int(edges[begin]), end - 1)[:, wanted])
            told = self._known[key]
            if told is not None:
                found.append((end / NANO, *told[0], *(told[1].get(role, np.nan) for role in self._slow)))
        return list(np.array(found).T) if found else [np.empty(0)] * (4 + len(self._slow))


def _told(rows: np.ndarray) -> tuple[tuple[float, ...], dict[int, float]] | None:
    """((mean, low, high), {sender: mean}) of rows of (sender, staleness, gradients); None if there are none."""
    sender, stale, count = rows[rows[:, 1] != UNKNOWN].T
    if not len(stale):
        return None
    each = np.bincount(stale, count)
    total = np.cumsum(each)
    low, high = (float(np.searchsorted(total, share * total[-1])) for share in SHARES)
    who, place = np.unique(sender, return_inverse=True)
    means = np.bincount(place, stale * count) / np.bincount(place, count)
    return (float(stale @ count / total[-1]), low, high), dict(zip(who.tolist(), means.tolist()))
