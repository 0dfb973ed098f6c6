"""Staleness: number of updates applied between reading the weights and applying the gradient computed on them.

Blue bars: share of gradients with each staleness. Red line: the mean according to theory. Dashed grey line: the
distribution before the first slowdown (or that of a reference run). Orange pins: the mean of each slowed worker.

If a few gradients are far more stale than all others, for example after a freeze, the axis ends before them. The grey bar at
the right end counts them, and its label has the largest value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..formatting import short
from ..trace.index import Lookup
from ..trace.query import StalenessCounts, expected_staleness, recent_staleness, skipped, staleness, totals_only
from ..trace.role_states import slowdowns, slowed
from ..trace.trace import Trace
from . import style
from .forecast import RunForecast, staleness_text
from .label_placement import HINT, LINE, LabelPlacement
from .panel import Panel, Stops, moment

MOST_BARS, ENOUGH = 40, 20
RECENT = 50_000  # gradients over which the mean of a slowed worker is taken
BULK = 0.99  # share of the gradients that the axis shows at least
FAR = 2  # the axis ends before the largest value if that is so many times larger than the bulk


@dataclass(frozen=True)
class _Scale:
    """The bars: `wide` values each, from 0 to `last`. `over`: number of gradients above `last`; the largest is `largest`."""

    wide: int
    last: int
    over: int
    largest: int

    @property
    def overflow(self) -> float:
        """The left edge of the bar of larger values."""
        return self.last + 0.5 + 0.5 * self.wide

    def kept(self, counts: Mapping[int, float]) -> dict[int, float]:
        """Without the values above `last`."""
        return {value: count for value, count in counts.items() if value <= self.last}


class StalenessPanel(Panel):
    """`reference`: the trace of a reference run. `forecast`: the forecast of the run."""

    name: ClassVar[str] = "staleness"
    title: ClassVar[str] = "Staleness"
    tables: ClassVar[tuple[str, ...]] = ("applies",)

    def __init__(self, reference: Trace | None = None, forecast: RunForecast | None = None):
        self.reference, self.forecast = reference, forecast
        self._lookup = Lookup()
        self._now, self._before = StalenessCounts(), StalenessCounts()  # before a fault

    def setup(self, axes: Axes) -> Self:
        super().setup(axes)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
        axes.set_xlabel("updates applied since the weights were read", **style.text(labelpad=2))
        self._scale = _Scale(1, 5, 0, 0)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: style.plain(x) if x <= self._scale.last else ""))
        self.bars = PolyCollection([], facecolors=style.BLUE, edgecolors="none", zorder=2)
        self.over = PolyCollection([], facecolors=style.GREY, edgecolors="none", zorder=2)
        axes.add_collection(self.bars, autolim=False)
        axes.add_collection(self.over, autolim=False)
        self.over_text = self._words(style.GREY)
        (self.before,) = axes.plot(
            [], [], color=style.GREY, linestyle="--", linewidth=1.3, drawstyle="steps-mid", zorder=3
        )
        (self.expected,) = axes.plot(
            [], [], color=style.INK, linestyle=style.FORECAST_LINE, linewidth=1.6, drawstyle="steps-mid", zorder=3.5
        )
        (self.theory,) = axes.plot([], [], color=style.RED, linewidth=1.8, zorder=4)
        self.theory_text = self._words(style.RED)
        self.pins = [
            (axes.plot([], [], color=style.ORANGE, linewidth=1.8, transform=axes.get_xaxis_transform(), zorder=5)[0],
             self._words(style.ORANGE))
            for _ in range(3)
        ]  # fmt: skip
        return self

    def _words(self, colour: str) -> Any:
        made = style.write(self.axes, 0, 0, "", colour, style.NORMAL, va="center", transform=self.axes.transAxes)
        made.set(zorder=6, path_effects=style.halo())
        return made

    def caption(self, trace: Trace, t: int | None = None) -> str:
        then, parts = self._compared(trace, moment(trace, t)), []
        if self.forecast is not None:
            found = self.forecast.staleness(trace, moment(trace, t))
            parts = [staleness_text(found, self.forecast.note) if found is not None else "dashes: forecast"]
        kept = "a sample of the gradients" if skipped(trace, "applies") else "gradients"
        unknown = self._now.at(trace, moment(trace, t))["unknown"]
        lost = f" · {unknown:,} unknown: the server was restored" if unknown else ""
        parts.append(f"share of {kept}" + (f" · dashed: {then[1]}" if then else "") + lost)
        parts += [f"doubtful: {doubt}" for doubt in self.forecast.doubts] if self.forecast is not None else []
        return " · ".join(parts)

    def update(self, trace: Trace, t: int | None = None) -> None:
        t = moment(trace, t)
        counts, then, theory = _histogram(self._now.at(trace, t)), self._compared(trace, t), expected_staleness(trace)
        empty = "only totals were recorded" if t > 0 and totals_only(trace, "applies") else "no gradient applied yet"
        self.note.set_text("" if counts else empty)
        pins = self._pinned(trace, t, theory)
        forecast = self.forecast.histogram(t) if self.forecast is not None and counts else {}
        self._scale = scale = self._scaled(counts, then[0] if then else {}, theory, pins, _bulk(forecast))
        wide, largest = scale.wide, scale.last
        total = sum(counts.values())
        left, share = _binned(scale.kept(counts), wide, total)
        self.bars.set_verts(_bars(left, share, wide))  # type: ignore[arg-type]
        high = max(share, default=0.0)
        for line, other in ((self.before, then[0] if then else {}), (self.expected, forecast)):
            across, tops = _outline(scale.kept(other), wide, sum(other.values()))
            line.set_data(across, tops)
            high = max([high, *tops])
        end = scale.overflow + wide if scale.over else largest + 0.6
        self.axes.set_xlim(-0.5 - 0.03 * largest, end + 0.02 * largest)
        self.axes.set_ylim(0, style.nice_above(1.12 * high) if counts else 1.0)
        room = LabelPlacement(self.axes)
        for x0, top in zip(left, share):
            edges = room.pixels(np.array([x0 - 0.5, x0 + wide - 0.5]), np.array([0.0, top]))
            room.box(edges[0][0], 0, edges[0][1], edges[1][1], LINE)
        for line in (self.before, self.expected):
            room.curve(np.asarray(line.get_xdata()), np.asarray(line.get_ydata()))
        self._overflow(scale, total, room)
        self._theory(theory if counts else None, room)
        self._pins(trace, pins, room)

    def readout(self, trace: Trace, t: int, x: float, y: float) -> str:
        counts = _histogram(self._now.at(trace, t))
        total, scale = sum(counts.values()), self._scale
        if not counts or x < -0.5:
            return ""
        if x > scale.last + 0.5:
            low, high = scale.last + 1, scale.largest
            if not scale.over:
                return ""
        else:
            low = max(0, round(x)) // scale.wide * scale.wide
            high = low + scale.wide - 1
        count = sum(n for value, n in counts.items() if low <= value <= high)
        name = f"staleness {low}" if low == high else f"staleness {low} to {high}"
        return f"{name}: {count:,} of {total:,} gradients ({count / total:.1%})"

    def table(self, trace: Trace, t: int) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        return ("staleness (updates)", "gradients"), sorted(_histogram(self._now.at(trace, t)).items())

    def stops(self, trace: Trace, t: int) -> list[Stops]:
        counts, scale = _histogram(self._now.at(trace, t)), self._scale
        total = sum(counts.values())
        left, share = _binned(scale.kept(counts), scale.wide, total)
        tops = [(x + (scale.wide - 1) / 2, y) for x, y in zip(left, share) if y]
        return (
            [tops + ([(scale.overflow + 0.4 * scale.wide, scale.over / total)] if scale.over else [])] if tops else []
        )

    def axes_key(self) -> Any:
        """Return the last value that has a tick label."""
        return self._scale.last

    @staticmethod
    def _scaled(
        counts: dict[int, int], then: dict[int, int], theory: tuple[float, str] | None, pins: list[tuple[int, float]],
        least: int = 0,
    ) -> _Scale:  # fmt: skip
        """Return the bars for these counts. `then`: those to compare with. `least`: a value that the axis shows."""
        part = all(counts.get(value, 0) >= count for value, count in then.items())  # of this run, not of another one
        bulk = max([_bulk(counts), _bulk(then) if part else max(then), int(2 * theory[0]) if theory else 0, 5, least,
                    *(int(mean) + 1 for _, mean in pins)])  # fmt: skip
        largest = max([*counts, *then, 0])
        last = bulk if largest > FAR * bulk else max(bulk, largest)
        wide = max(1, round(style.nice_above((last + 1) / MOST_BARS)))
        last = (last // wide + 1) * wide - 1 if last < largest else last
        return _Scale(wide, last, sum(count for value, count in counts.items() if value > last), largest)

    def _overflow(self, scale: _Scale, total: int, room: LabelPlacement) -> None:
        self.over.set_verts([])
        self.over_text.set_text("")
        if not scale.over:
            return
        top = max(scale.over / total, 3 / room.high * self.axes.get_ylim()[1])  # one gradient in a thousand is visible
        left, right = scale.overflow, scale.overflow + 0.8 * scale.wide
        self.over.set_verts([[(left, 0), (left, top), (right, top), (right, 0)]])
        words = f"{scale.over:,} above {scale.last:,}, largest {scale.largest:,}"
        wide = style.width(words, style.NORMAL)
        (x0, x1), (_, y) = room.pixels(np.array([left, right]), np.array([0.0, top]))
        room.box(x0, 0, x1, float(y), LINE)
        at, bottom, _ = room.near(wide, float(x1), float(y) + 3, [room.wide - wide - 2])
        self.over_text.set_text(words)
        room.put(self.over_text, at, bottom, wide)

    def _compared(self, trace: Trace, t: int) -> tuple[dict[int, int], str] | None:
        disturbed = [(steps[0][0], role) for role, steps in slowdowns(trace, t).items() if steps[0][0] > 0]
        if disturbed:
            time, role = min(disturbed)
            counts = _histogram(self._before.at(trace, time - 1))
            if sum(counts.values()) >= ENOUGH and len(counts) > 1:
                return counts, f"before {short(trace.roles[role])} slowed"
        elif self.reference is not None:
            counts = _histogram(staleness(self.reference))
            if counts:
                return counts, f"reference, {self.reference.header.strategy.name}"
        return None

    def _theory(self, theory: tuple[float, str] | None, room: LabelPlacement) -> None:
        self.theory.set_data([], [])
        self.theory_text.set_text("")
        if theory is None:
            return
        self.theory.set_data([theory[0]] * 2, [0, self.axes.get_ylim()[1]])
        x = float(room.pixels(theory[0], 0)[0])
        for words in (f"theory: {theory[1]}", theory[1], f"{theory[0]:.4g}"):
            wide = style.width(words, style.NORMAL)
            sides = [x + 6] if x + 6 + wide <= room.wide else []
            sides += [x - 6 - wide] if x - 6 - wide >= 0 else []
            if sides:
                break
        left, bottom, _ = room.near(wide, x, room.high - 4, sides or [(room.wide - wide) / 2])
        self.theory_text.set_text(words)
        room.put(self.theory_text, left, bottom, wide)
        room.box(x - 1, 0, x + 1, room.high, HINT)

    def _pinned(self, trace: Trace, t: int, theory: tuple[float, str] | None) -> list[tuple[int, float]]:
        """Return [(slowed worker, its recent mean), ...] of those whose mean differs from theory."""
        slow = slowed(trace, t)
        if not slow:
            return []
        since = min(slowdowns(trace, t)[role][-1][0] for role in slow)
        means = recent_staleness(trace, t, sorted(slow)[: len(self.pins)], since, RECENT, self._lookup)
        return [(role, mean) for role, mean in means.items() if theory is None or abs(mean - theory[0]) >= 1]

    def _pins(self, trace: Trace, found: list[tuple[int, float]], room: LabelPlacement) -> None:
        for (line, words), pin in zip(self.pins, [*found, *[None] * len(self.pins)]):
            words.set_text("")
            line.set_data([pin[1]] * 2 if pin else [], [0.14, 0.36] if pin else [])
            if pin is not None:
                words.set_text(short(trace.roles[pin[0]]))
                x, wide = float(room.pixels(pin[1], 0)[0]), style.width(words.get_text(), style.NORMAL)
                room.box(x - 1, 0.14 * room.high, x + 1, 0.36 * room.high, LINE)
                left, bottom, _ = room.near(wide, x, 0.38 * room.high, [x - wide / 2, x + 5, x - 5 - wide])
                room.put(words, left, bottom, wide)


def _histogram(found: dict[str, Any]) -> dict[int, int]:
    return {int(value): count for value, count in found["histogram"].items()}


def _bulk(counts: Mapping[int, float]) -> int:
    """Return the smallest value that at least `BULK` of the gradients do not exceed."""
    values = sorted(counts)
    seen = np.cumsum([counts[value] for value in values])
    return values[int(np.searchsorted(seen, BULK * seen[-1]))] if values else 0


def _outline(counts: Mapping[int, float], wide: int, total: float) -> tuple[np.ndarray, list[float]]:
    """Return the points of a line along the tops of bars, from the first one that is not empty: one in the middle of each."""
    x, y = _binned(counts, wide, total)
    if not x:
        return np.empty(0), []
    begin = next(i for i, part in enumerate(y) if part > 0)
    x, y = x[begin:], [0.0, *y[begin:], 0.0]
    return np.array([x[0] - wide, *x, x[-1] + wide]) + (wide - 1) / 2, y


def _binned(counts: Mapping[int, float], wide: int, total: float) -> tuple[list[int], list[float]]:
    """Return the left edges and shares of `total` of bars that are `wide` values wide, without gaps."""
    if not counts:
        return [], []
    sums = [0.0] * (max(counts) // wide + 1)
    for value, count in counts.items():
        sums[value // wide] += count
    return [i * wide for i in range(len(sums))], [s / total for s in sums]


def _bars(left: list[int], share: list[float], wide: int) -> np.ndarray:
    x0 = np.asarray(left, dtype=float) - 0.5 + 0.1 * wide
    x1, top, zero = x0 + 0.8 * wide, np.asarray(share, dtype=float), np.zeros(len(left))
    return np.stack([x0, zero, x0, top, x1, top, x1, zero], axis=-1).reshape(-1, 4, 2)
