"""Throughput: gradients (or samples, or bytes) per second, in total and of each worker.

The rate is gross: rollbacks are not subtracted. The rate at a time is the mean over a recent interval. The count is
interpolated linearly between two applications, so a synchronous run, which applies N gradients at once, has a steady rate
without peaks. Thin lines are single workers. With more than eight workers, a band contains the rates of 90% of the
workers, with the median. These rates are multiplied by the number of workers, so the band lies at the thick line if all
workers have the same rate.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.collections import LineCollection, PolyCollection

from ..errors import nearest
from ..formatting import bytes_text, rate, short
from ..options import is_one_of
from ..trace.query import AMOUNTS, RATE_WINDOW, Cumulative, rates, totals_only
from ..trace.role_states import slowdowns, slowed, workers_of
from ..trace.schema import NANO
from ..trace.trace import Trace
from . import style
from .curves import Curve, CurvesPanel, forecast_curve, reference_curve, this_run, until
from .forecast import Comparison, RunForecast, throughput_text
from .label_placement import WEAK, LabelPlacement
from .panel import moment

MOST_LINES = 8
BANDS = 40  # times at which the band is computed
COMPARED_EVERY = 500_000_000  # ns of engine time between two comparisons with the forecast


class ThroughputPanel(CurvesPanel):
    """`reference`: the trace of a reference run. `of`: "gradients", "samples" or "bytes". `forecast`: the forecast of the run."""

    name: ClassVar[str] = "throughput"
    title: ClassVar[str] = "Throughput"
    tables: ClassVar[tuple[str, ...]] = ("applies", "progress")

    def __init__(self, reference: Trace | None = None, of: str = "gradients", forecast: RunForecast | None = None):
        super().__init__(reference)
        self.forecast = forecast
        # trace and time; the comparison with the forecast
        self._compared: tuple[Any, Comparison | None] = (None, None)
        if not is_one_of(of, AMOUNTS):
            raise nearest("of", of, AMOUNTS)
        self.of, self._counted, self._reference_counted = of, Cumulative(of), Cumulative(of)
        self.quantity = f"{of} per second"  # type: ignore[misc]
        self._seen: tuple[Any, Any, Any] = (None, None, None)
        self._highest = 0.0
        self._single: tuple[Any, list[Curve]] = (None, [])  # trace, time and workers; their curves
        self._lines: list[np.ndarray] = []  # of single workers, or the median: seconds and rates, shape (n, 2)

    def setup(self, axes: Any) -> Self:
        super().setup(axes)
        self.band = PolyCollection([], facecolors=style.BLUE_MIST, edgecolors="none", zorder=1)
        self.each = LineCollection([], colors=style.BLUE_LINE, linewidths=1.0, zorder=2)
        axes.add_collection(self.band, autolim=False)
        axes.add_collection(self.each, autolim=False)
        return self

    def caption(self, trace: Trace, t: int | None = None) -> str:
        reference, workers = super().caption(trace, t), len(workers_of(trace))
        each = f"band: 5–95% of workers × {workers:,}" if workers > MOST_LINES else "thin: each worker"
        parts = [f"{self.of} per second", reference, each if workers > 1 else ""]
        if self.forecast is not None:
            found = self._comparison(trace, moment(trace, t))
            parts = [
                throughput_text(found, self.forecast.note) if found is not None else "", "short dashes: forecast", *parts,
                *(f"doubtful: {doubt}" for doubt in self.forecast.doubts),
            ]  # fmt: skip
        return " · ".join(part for part in parts if part)

    def _comparison(self, trace: Trace, t: int) -> Comparison | None:
        key = trace, t // COMPARED_EVERY, len(trace.events), trace.ending is None
        if self.forecast is not None and self._compared[0] != key:
            counted = self._counted if self.of != "bytes" else None
            self._compared = key, self.forecast.throughput(trace, t, counted) if counted is not None else None
        return self._compared[1]

    def key(self, trace: Trace, t: int) -> Any:
        """Return a value that changes when the end of the curve has moved by a pixel, or something has happened."""
        pixel = until(trace, t) * NANO / self.size[0]
        return t // max(1, round(pixel)), len(trace.events), trace.ending is None

    def update(self, trace: Trace, t: int | None = None) -> None:
        t = moment(trace, t)
        self._highest = self._workers(trace, t)
        super().update(trace, t)

    def curves(self, trace: Trace, t: int) -> list[Curve]:
        x, y = rates(trace, t, None, self._counted)
        own = "this run " if self.reference is not None or self.forecast is not None else ""
        found = [this_run(x, y, own + self._text(y[-1]) if len(y) else "")]
        if self.forecast is not None and self.of != "bytes":
            rated = {k: part.rate(self.of) for k, part in enumerate(self.forecast.parts)}
            px, py = self.forecast.steps(rated, until(trace, t))
            found.append(forecast_curve(px, py, f"forecast {self._text(py[-1])}" if len(py) else ""))
        if self.reference is not None:
            px, py = rates(self.reference, moment(self.reference, None), None, self._reference_counted)
            found.append(reference_curve(px, py, f"reference {self._text(py[-1])}" if len(py) else ""))
        for role in [r for r in slowdowns(trace, t) if r in slowed(trace, t)][:3]:
            x, y = rates(trace, t, role, self._counted)
            words = f"{short(trace.roles[role])} {self._text(y[-1])}" if len(y) else ""
            found.append(Curve(x, y * self._times(trace), words, style.ORANGE, "-", 1.8, name=short(trace.roles[role])))
        return found

    def others(self, trace: Trace, t: int) -> list[Curve]:
        """Return the rates of single workers, or the edges and the median of the band. During a run they end at a round time,
        less than 1% of `t` ago.
        """
        workers, slow = workers_of(trace), slowed(trace, t)
        if len(workers) > MOST_LINES:
            x, *edges = self._percentile_band(trace, t)
            said = ("5% of workers", "median of workers", "95% of workers")
            return [Curve(x, y, name=f"{name} × {len(workers):,}") for name, y in zip(said, edges) if len(x)]
        mine = [role for role in workers if role not in slow] if len(workers) > 1 else []
        over = trace.ending is not None and t >= trace.ending["time"]
        last = t if over else t - t % round(style.nice_below(t / 100))
        key = trace, last, tuple(mine)
        if self._single[0] != key:
            found = [Curve(*rates(trace, last, role, self._counted), name=short(trace.roles[role])) for role in mine]
            self._single = key, [curve for curve in found if len(curve.x)]
        return self._single[1]

    def value(self, y: float) -> str:
        return f"{bytes_text(y)}/s" if self.of == "bytes" else f"{y:.4g}/s"

    def highest(self) -> float:
        return self._highest

    def behind(self, room: LabelPlacement) -> None:
        """Reserve the lines of single workers at low cost, so that labels avoid them if possible."""
        for line in self._lines:
            room.curve(line[:, 0], line[:, 1], WEAK)

    def nothing(self, trace: Trace) -> str:
        return "only totals were recorded" if totals_only(trace, "applies") else "no gradient applied yet"

    def _text(self, value: float) -> str:
        return f"{bytes_text(value) if self.of == 'bytes' else rate(value)}/s"

    @staticmethod
    def _times(trace: Trace) -> int:
        workers = len(workers_of(trace))
        return workers if workers > MOST_LINES else 1

    def _workers(self, trace: Trace, t: int) -> float:
        """Return the largest value drawn."""
        if len(workers_of(trace)) > MOST_LINES:
            x, low, middle, high = self._percentile_band(trace, t)
            self._lines = [np.stack([x, middle], axis=-1)] if len(x) else []
            self.band.set_verts([np.stack([np.r_[x, x[::-1]], np.r_[low, high[::-1]]], axis=-1)] if len(x) else [])
            self.each.set_segments(self._lines)
            return float(high.max(initial=0.0))
        self._lines = [np.stack((line.x, line.y), axis=-1) for line in self.others(trace, t)]
        self.each.set_segments(self._lines)
        self.band.set_verts([])
        return 0.0

    def _percentile_band(self, trace: Trace, t: int) -> tuple[np.ndarray, ...]:
        """Return (seconds, 5%, median, 95%) of the rates of workers, multiplied by the number of workers, at fixed round
        times.
        """
        step = max(1, round(style.nice_above(t / NANO / BANDS) * NANO))
        last = t // step
        if self._seen[0] is trace and self._seen[1] == (step, last):
            return self._seen[2]  # type: ignore[no-any-return]
        edges = np.arange(last + 1) * step
        by = self._counted.by_worker(trace, edges) if last >= 2 else None
        empty = (np.empty(0),) * 4
        found = empty
        if by is not None and by.size and by.max() > 0:
            back = np.maximum(np.arange(1, last + 1) - max(1, BANDS // RATE_WINDOW), 0)
            each = (by[:, 1:] - by[:, back]) / ((edges[1:] - edges[back]) / NANO) * len(by)
            found = (edges[1:] / NANO, *np.percentile(each, (5, 50, 95), axis=0))
        self._seen = (trace, (step, last), found)
        return found
