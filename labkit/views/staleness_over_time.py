"""Staleness over time: the mean of what was applied in each short stretch of time, and a band that holds nine in ten.

The law is about the mean of the whole run; here is when it holds. After a worker was slowed its own gradients, the
orange line, become older and those of the others a little younger: the mean stays where it was.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from ..formatting import short
from ..trace.query import StalenessCourse, staleness_law, totals_only
from ..trace.role_states import slowdowns, slowed
from ..trace.trace import Trace
from ..trace.vocabulary import NANO
from . import style
from .curves import Curve, Curves, this_run
from .panel import moment
from .room import WISH, Room

__all__ = ["StalenessOverTime", "draw"]

STRETCHES = 40  # of time, about; their length is round, so they stand still while a run goes on
TOGETHER = 4  # so many of them are looked at together, each time one further: few gradients are no statistics


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
        self._course = StalenessCourse(0.05, 0.95)

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
        step = max(1, round(style.nice_above(t / NANO / STRETCHES) * NANO))
        self.found = self._course.stretches(trace, step, t, TOGETHER, self._slow)
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
        words = f"theory: {self._law[1]}"
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
        return "this run keeps totals only" if totals_only(trace, "applies") else "no gradient applied yet"
