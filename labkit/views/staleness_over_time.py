"""Staleness over time: the mean over short intervals of time, and a band that contains 90% of the gradients.

The theory gives the mean over the whole run. This panel shows the mean at each time of the run. After a worker is slowed,
its gradients (the orange line) become staler, those of the other workers slightly less stale, and the mean does not
change.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.collections import PolyCollection

from ..formatting import short
from ..trace.query import StalenessHistory, expected_staleness, totals_only
from ..trace.role_states import slowdowns, slowed
from ..trace.schema import NANO
from ..trace.trace import Trace
from . import style
from .curves import Curve, CurvesPanel, forecast_curve, this_run, until
from .forecast import RunForecast
from .label_placement import WEAK, LabelPlacement
from .panel import moment

STRETCHES = 40  # approximate number of intervals; their length is round, so they do not move while a run is live
TOGETHER = 4  # moving average over this many intervals, because few gradients give a noisy mean


class StalenessOverTimePanel(CurvesPanel):
    """`forecast`: the forecast of the run."""

    name: ClassVar[str] = "staleness_over_time"
    title: ClassVar[str] = "Staleness over time"
    quantity: ClassVar[str] = "staleness (updates)"
    tables: ClassVar[tuple[str, ...]] = ("applies",)

    def __init__(self, forecast: RunForecast | None = None) -> None:
        super().__init__(None)
        self.forecast = forecast
        self._course = StalenessHistory(0.05, 0.95)

    def setup(self, axes: Any) -> Self:
        super().setup(axes)
        self.band = PolyCollection([], facecolors=style.BLUE_MIST, edgecolors="none", zorder=1)
        axes.add_collection(self.band, autolim=False)
        (self.theory,) = axes.plot([], [], color=style.RED, linewidth=1.5, zorder=5.5)
        self.theory_text = style.write(
            axes, 0, 0, "", style.RED, style.NORMAL, va="center", transform=axes.transAxes, zorder=6.5
        )
        self.theory_text.set_path_effects(style.halo())
        return self

    def caption(self, trace: Trace, t: int | None = None) -> str:
        more = " · short dashes: forecast" + self.forecast.note if self.forecast is not None else ""
        doubts = [f" · doubtful: {doubt}" for doubt in self.forecast.doubts] if self.forecast is not None else []
        return "mean" + more + " · band: 5–95% of gradients" + "".join(doubts)

    def update(self, trace: Trace, t: int | None = None) -> None:
        t = moment(trace, t)
        self._slow = [role for role in slowdowns(trace, t) if role in slowed(trace, t)][:3]
        step = max(1, round(style.nice_above(t / NANO / STRETCHES) * NANO))
        self.found = self._course.intervals(trace, step, t, TOGETHER, self._slow)
        super().update(trace, t)

    def curves(self, trace: Trace, t: int) -> list[Curve]:
        x, mean, low, high, *own = self.found
        self.band.set_verts([np.stack([np.r_[x, x[::-1]], np.r_[low, high[::-1]]], axis=-1)] if len(x) else [])
        self._theory = expected_staleness(trace) if len(x) else None
        found = [this_run(x, mean, f"{mean[-1]:.3g}" if len(x) else "")]
        if self.forecast is not None and len(x):
            means = {k: part.mean for k, part in enumerate(self.forecast.parts)}
            px, py = self.forecast.steps(means, until(trace, t))
            found.append(forecast_curve(px, py, f"forecast {py[-1]:.3g}" if len(py) else ""))
        for role, line in zip(self._slow, own):
            kept = np.isfinite(line)
            if not high.any():
                continue  # no gradients are stale, including those of this worker
            label = f"{short(trace.roles[role])} {line[kept][-1]:,.0f}" if kept.any() else ""
            found.append(Curve(x[kept], line[kept], label, style.ORANGE, "-", 1.8, name=short(trace.roles[role])))
        return found

    def others(self, trace: Trace, t: int) -> list[Curve]:
        x, _, low, high, *_ = self.found
        return [Curve(x, y, name=f"{share} of gradients") for share, y in (("5%", low), ("95%", high)) if len(x)]

    def highest(self) -> float:
        return max(float(self.found[3].max(initial=1.0)), self._theory[0] if self._theory else 0.0)

    def behind(self, room: LabelPlacement) -> None:
        """Draw the theoretical mean and its label, and reserve their room, so that other labels avoid both."""
        self.theory.set_data(*(([0, self.axes.get_xlim()[1]], [self._theory[0]] * 2) if self._theory else ([], [])))
        self.theory_text.set_text("")
        if self._theory is None:
            return
        words = f"theory: {self._theory[1]}"
        wide = style.width(words, style.NORMAL)
        _, y = room.pixels(0.0, self._theory[0])
        for line in (self.found[1], self.found[2], self.found[3]):
            room.curve(self.found[0], line, WEAK)
        room.curve(np.asarray(self.theory.get_xdata()), np.asarray(self.theory.get_ydata()))
        spots = [4 + k * (room.wide - wide - 8) / 6 for k in range(7)]
        left, bottom, _ = room.near(wide, 0, float(y) + 8, spots)
        self.theory_text.set_text(words)
        room.put(self.theory_text, left, bottom, wide)

    def nothing(self, trace: Trace) -> str:
        return "only totals were recorded" if totals_only(trace, "applies") else "no gradient applied yet"
