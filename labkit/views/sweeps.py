"""Figures of a sweep: one line per strategy, with a band over the seeds.

    time_to_accuracy    seconds to the budget's accuracy
    throughput          gradients per second
    efficiency          throughput per worker, relative to the smallest number of workers of the same line
    staleness           mean staleness
    bytes               bytes sent per applied gradient
    pareto              throughput against accuracy: no setting on the front is worse in both than another one

The horizontal axis is the number of workers if it differs between the runs, else the first setting whose values are numbers.
A line is the median over the seeds, its band goes from the smallest to the largest value. Times and throughputs that differ by
more than a factor of 20 are drawn on a logarithmic axis.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullFormatter, NullLocator

from ..errors import BadInput, shown
from ..formatting import bytes_text, number_text
from . import style
from .figures import GUTTER, TITLE_ROOM, LabFigure, blank, head
from .label_placement import WORDS, LabelPlacement

if TYPE_CHECKING:
    from ..forecasts.sweeps import Sweep

SIZE = (462, 270)  # pixels of one panel
LEFT, BELOW, ABOVE, GAP = 62, 46, 14, 10  # pixels around the axes; between the axes and the names of the lines
FOOT, LINE_HIGH = 10, 15  # pixels above the text below the panels, and of each of its lines
MOST = 14  # lines
RATIO = 20  # of the largest and the smallest value, from which an axis is logarithmic
MOST_NUMBERS = 24  # numbers beside marks; of more marks, only the first and the last of each line have one
SAME = 0.01  # of the height of the axes: lines that are nowhere farther apart are drawn so that both are seen
COLOURS = (
    style.BLUE,
    style.GREEN,
    style.ORANGE,
    style.INK,
    style.BLUE_LINE,
    style.GREY,
    style.ORANGE_DEEP,
    style.FAINT,
)
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
NAMES = {
    "workers": "workers",
    "servers": "servers",
    "s": "bound s",
    "latency": "latency (s)",
    "bandwidth": "bandwidth (bytes/s)",
}


@dataclass(frozen=True)
class SweepSeries:
    """One line: its name, and for each x the median, smallest and largest value; NaN where there is none."""

    name: str
    x: np.ndarray
    median: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def scaled(self, factor: float) -> SweepSeries:
        return SweepSeries(self.name, self.x, factor * self.median, factor * self.low, factor * self.high)


@dataclass(frozen=True)
class Axis:
    """A vertical axis: the text of its ticks, the factor of its values, whether it may be logarithmic, and a reference value."""

    text: Callable[[float], str] = style.plain
    scale: float = 1.0
    logarithmic: bool = True
    reference: float | None = None

    def scale_axes(self, axes: Axes, lines: Sequence[SweepSeries]) -> None:
        """Set limits and ticks so that all lines are visible."""
        values = np.concatenate([np.r_[series.low, series.median, series.high] for series in lines])
        values = values[np.isfinite(values)]
        low, high = float(values.min()), float(values.max())
        if self.logarithmic and low > 0 and high / low >= RATIO:
            axes.set_yscale("log")
            axes.set_ylim(low / 1.3, high * 1.3)
            decades = math.log10(high / low)
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 2.2 else (1,)))
            axes.yaxis.set_minor_locator(NullLocator())
            axes.yaxis.set_minor_formatter(NullFormatter())
        else:
            axes.set_ylim(0, style.nice_above(1.02 * high))
        axes.yaxis.set_major_formatter(lambda value, _: self.text(value))

    def scale_speeds(self, axes: Axes, values: Sequence[float]) -> None:
        """Set limits and ticks of the horizontal axis so that all values are visible."""
        low, high = min(values), max(values)
        if low > 0 and high / low >= RATIO:
            axes.set_xscale("log")
            axes.set_xlim(low / 1.3, high * 1.3)
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 60 else (1,)))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_minor_formatter(NullFormatter())
        else:
            axes.set_xlim(0, style.nice_above(1.05 * high))
            axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter(lambda value, _: self.text(value))

    @staticmethod
    def height(axes: Axes, values: np.ndarray) -> np.ndarray:
        """As parts of the height of the axes."""
        return _height(axes, values)


# draws a panel: figure, left, top (pixels), the setting on the x axis
Draw = Callable[[Figure, int, int, str | None], None]


class SweepPlots:
    """The figures of one sweep. `x`, an argument of each, is the setting on the horizontal axis."""

    def __init__(self, sweep: Sweep):
        self._sweep = sweep

    def time_to_accuracy(self, x: str | None = None) -> LabFigure:
        """Draw the seconds until the accuracy of the budget was reached; runs that did not reach it have no point."""
        return self._alone(self._time_to_accuracy, x)

    def throughput(self, x: str | None = None) -> LabFigure:
        """Draw the applied gradients per second."""
        return self._alone(self._throughput, x)

    def efficiency(self) -> LabFigure:
        """Draw the throughput per worker, relative to the smallest number of workers of the same line: 100% is linear
        scaling.
        """
        return self._alone(self._efficiency, "workers")

    def staleness(self, x: str | None = None) -> LabFigure:
        """Draw the mean staleness of the applied gradients."""
        return self._alone(self._staleness, x)

    def bytes(self, x: str | None = None) -> LabFigure:
        """Draw the bytes that are sent per applied gradient."""
        return self._alone(self._bytes, x)

    def pareto(self) -> LabFigure:
        """Draw throughput against accuracy, with a mark for each setting, its ranges over the seeds, and a line through the
        Pareto front.
        """
        return self._alone(self._pareto, None)

    def overview(self, x: str | None = None) -> LabFigure:
        """Draw four figures in one: time to accuracy (or throughput, if no run reached an accuracy), efficiency (or
        throughput, if the number of workers does not differ), staleness and the Pareto front.
        """
        reached = any(row["time_to_accuracy"] is not None for row in self._sweep.rows)
        second = self._throughput if reached else self._accuracy
        if "workers" in self._sweep.varied:
            second = self._efficiency
        return self._four(
            [self._time_to_accuracy if reached else self._throughput, second, self._staleness, self._pareto], x
        )

    def forecast(self, doubts: Sequence[str] = ()) -> LabFigure:
        """Draw throughput, staleness, bytes per gradient and time to accuracy in one figure. `doubts`: written below it."""
        return self._four([self._throughput, self._staleness, self._bytes, self._time_to_accuracy], None, doubts)

    # panels -----------------------------------------------------------------------------------------------------------

    def _alone(self, draw: Draw, x: str | None) -> LabFigure:
        figure = blank(*SIZE)
        draw(figure, 0, 0, x)
        return figure

    def _four(self, panels: Sequence[Draw], x: str | None, doubts: Sequence[str] = ()) -> LabFigure:
        """Draw four panels in two rows, and below them what lines and bands are, and the doubts."""
        seeds = len({row["seed"] for row in self._sweep.rows})
        lines = f"Lines: median of {seeds:,} seeds; bands: from the smallest to the largest value."
        texts = [(lines if seeds > 1 else "One seed, so there are no bands.", style.GREY)]
        wide, high = 2 * SIZE[0] + GUTTER, 2 * SIZE[1] + GUTTER
        for doubt in doubts:
            texts += [(text, style.RED) for text in style.wrapped(f"Doubtful: {doubt}.", wide - 20, style.NORMAL)]
        total = high + FOOT + LINE_HIGH * len(texts) + FOOT
        figure = blank(wide, total)
        right, lower = SIZE[0] + GUTTER, SIZE[1] + GUTTER
        for draw, (left, top) in zip(panels, ((0, 0), (right, 0), (0, lower), (right, lower))):
            draw(figure, left, top, x)
        for k, (words, colour) in enumerate(texts):
            y = 1 - (high + FOOT + LINE_HIGH * (k + 0.5)) / total
            figure.text(8 / wide, y, words, **style.text(colour, style.NORMAL, va="center"))
        return figure

    def _time_to_accuracy(self, figure: Figure, left: int, top: int, x: str | None) -> None:
        targets = {row["target_accuracy"] for row in self._sweep.rows} - {None}
        goal = f"{100 * min(targets):.4g}% of held-out samples" if len(targets) == 1 else "the accuracy of the budget"
        nothing = f"no run reached {goal}" if targets else "the budget has no accuracy"
        self._lines(figure, left, top, x, "time_to_accuracy", "Time to accuracy", f"seconds to {goal}", nothing=nothing)

    def _throughput(self, figure: Figure, left: int, top: int, x: str | None) -> None:
        self._lines(figure, left, top, x, "gradients_per_second", "Throughput", "gradients per second")

    def _accuracy(self, figure: Figure, left: int, top: int, x: str | None) -> None:
        percents = Axis(lambda value: f"{style.plain(value)}%", 100.0, logarithmic=False)
        self._lines(figure, left, top, x, "accuracy", "Accuracy", "of held-out samples, at the end", percents)

    def _staleness(self, figure: Figure, left: int, top: int, x: str | None) -> None:
        axis = Axis(logarithmic=False)
        self._lines(figure, left, top, x, "staleness", "Staleness", "mean over the applied gradients", axis)

    def _bytes(self, figure: Figure, left: int, top: int, x: str | None) -> None:
        axis = Axis(lambda value: bytes_text(value) if value else "0")
        self._lines(figure, left, top, x, "bytes_per_gradient", "Bytes sent", "per applied gradient", axis)

    def _efficiency(self, figure: Figure, left: int, top: int, x: str | None) -> None:
        axis = Axis(lambda value: f"{style.plain(value)}%", 100.0, logarithmic=False, reference=100.0)
        caption = "throughput per worker; dashed: linear"
        self._lines(
            figure,
            left,
            top,
            "workers",
            "gradients_per_second",
            "Scaling efficiency",
            caption,
            axis,
            change=_per_worker,
        )

    def _lines(
        self, figure: Figure, left: int, top: int, x: str | None, result: str, title: str, caption: str, y: Axis | None = None,
        change: Callable[[SweepSeries], SweepSeries] = lambda series: series, nothing: str = "no run has a value",
    ) -> None:  # fmt: skip
        """Draw one panel with a line for each combination of the settings that are not on the horizontal axis."""
        x, y = self._axis(x), y or Axis()
        found = [change(series).scaled(y.scale) for series in self._series(x, result)]
        head(figure, left, top, title, caption, SIZE[0])
        if all(np.isnan(series.median).all() for series in found):
            return _empty(figure, left, top, nothing)
        axes = _axes(figure, left, top, max(style.width(series.name, style.NORMAL, bold=True) for series in found))
        places = np.unique(np.concatenate([series.x for series in found]))
        if len(places) > 2 and places[0] > 0 and places[-1] / places[0] >= 8:
            axes.set_xscale("log")
        style.numbers(axes)
        margin = 0.04  # room at both ends, in parts of the width
        forward, back = axes.xaxis.get_transform().transform, axes.xaxis.get_transform().inverted().transform
        first, last = forward(places[[0, -1]])
        aside = margin * (last - first) or 0.5
        axes.set_xlim(*back(np.array([first - aside, last + aside])))
        y.scale_axes(axes, found)
        _ticks(axes, places)
        if y.reference is not None:
            axes.axhline(y.reference, color=style.GREY, linewidth=1.2, linestyle=(0, (4, 2)), zorder=1)
        ends: list[tuple[str, float, str]] = []
        drawn: list[np.ndarray] = []
        for series, (mark, colour, dashes) in zip(found, _looks()):
            middle = series.median
            seen = np.isfinite(middle)
            axes.fill_between(
                series.x,
                series.low,
                np.minimum(series.high, axes.get_ylim()[1]),
                color=colour,
                alpha=0.18,
                linewidth=0,
                zorder=2,
            )
            heights = np.where(seen, y.height(axes, middle), -1.0)
            covers = any(len(other) == len(heights) and np.abs(other - heights).max() < SAME for other in drawn)
            drawn.append(heights)
            axes.plot(
                series.x, middle, mark, linestyle=(0, (3, 3)) if covers else dashes, color=colour, linewidth=2.0,
                markersize=3.5 if covers else 6.5, markeredgecolor=style.PAPER, markeredgewidth=0.0 if covers else 0.8, zorder=3,
                clip_on=False,
            )  # fmt: skip
            if seen.any():
                ends.append((series.name, float(heights[seen][-1]), colour))
        axes.set_xlabel(_label_of(x), **style.text(labelpad=3))
        _label(axes, ends)

    def _pareto(self, figure: Figure, left: int, top: int, _: str | None) -> None:
        """Draw one mark per setting, and a line through those that no other setting beats in both directions."""
        head(figure, left, top, "Speed and accuracy", "dashed: Pareto front", SIZE[0])
        setting = self._axis(None)
        numbered = setting in self._sweep.varied  # each mark has a number beside it, its value of this setting
        every = self._sweep.medians("gradients_per_second", "accuracy")
        names = list(dict.fromkeys(self._name(line, setting) for line in every))
        lines = [line for line in every if _complete(line)]
        self._check_number(names)
        if not lines:
            return _empty(figure, left, top, "no run has an accuracy")
        axes = _axes(figure, left, top, max(style.width(name, style.NORMAL, bold=True) for name in names))
        x, y = Axis(), Axis(lambda value: f"{style.plain(value)}%", 100.0)
        points = [(line["gradients_per_second"], 100 * line["accuracy"]) for line in lines]
        x.scale_speeds(axes, [speed for speed, _ in points])
        ranges = [100 * line[f"accuracy{end}"] for line in lines for end in ("_low", "_high")]
        margin = max(0.1 * (max(ranges) - min(ranges)), 0.5)
        axes.set_ylim(max(0.0, min(ranges) - margin), min(100.0, max(ranges) + margin))
        axes.yaxis.set_major_formatter(lambda value, _: y.text(value))
        front = sorted({p for p in points if not any(q != p and q[0] >= p[0] and q[1] >= p[1] for q in points)})
        axes.plot(*zip(*front), color=style.GREY, linewidth=1.4, linestyle=(0, (4, 2)), zorder=2)
        pixels = axes.transData.transform(points) - axes.bbox.min
        placed, ends = LabelPlacement(axes), []
        for across, up in pixels:
            placed.box(across - 5, up - 5, across + 5, up + 5)
        # {pixel: number beside the mark}; marks of several strategies may coincide
        seen: dict[tuple[int, int], str] = {}
        for name, (mark, colour, _) in zip(names, _looks()):
            mine = [k for k, line in enumerate(lines) if self._name(line, setting) == name]
            if not mine:
                continue
            ends_only = len(lines) > MOST_NUMBERS
            for k in mine:
                (speed, accuracy), line = points[k], lines[k]
                lows, highs = (
                    [line[f"gradients_per_second{end}"], 100 * line[f"accuracy{end}"]] for end in ("_low", "_high")
                )
                axes.plot([lows[0], highs[0]], [accuracy] * 2, color=colour, linewidth=1.0, alpha=0.45, zorder=3)
                axes.plot([speed] * 2, [lows[1], highs[1]], color=colour, linewidth=1.0, alpha=0.45, zorder=3)
                place = (round(pixels[k][0] / 2), round(pixels[k][1] / 2))
                axes.plot(
                    speed, accuracy, mark, color=colour, markersize=4 if place in seen else 8, markeredgecolor=style.PAPER,
                    markeredgewidth=0.0 if place in seen else 0.8, zorder=4 + (place in seen), clip_on=False,
                )  # fmt: skip
                words = style.plain(line[setting]) if numbered and line[setting] is not None else ""
                if words and (not ends_only or k in (mine[0], mine[-1])) and seen.get(place) != words:
                    _beside(axes, placed, words, colour, pixels[k])
                seen[place] = words
            ends.append((name, float(_height(axes, points[mine[-1]][1])), colour))
        what = f"; numbers: {_label_of(setting)}" if numbered else ""
        axes.set_xlabel(f"gradients per second{what}", **style.text(labelpad=3))
        _label(axes, ends)

    # the lines --------------------------------------------------------------------------------------------------------

    def _axis(self, x: str | None) -> str:
        """Return the setting on the horizontal axis. Raises `BadInput` if there is none, or if its values are not numbers."""
        rows = self._sweep.rows
        if not rows:
            raise BadInput("The sweep has no runs, so there is nothing to draw.")
        numeric = [
            name for name in self._sweep.varied if all(row[name] is None or _is_number(row[name]) for row in rows)
        ]
        if x is None:
            x = "workers" if "workers" in numeric or not numeric else numeric[0]
        if x not in numeric and not (x == "workers" and rows):
            allowed = ", ".join(numeric) or "there is none"
            raise BadInput(f"x={shown(x)}: give a setting whose values are numbers and differ: {allowed}.")
        return x

    def _name(self, line: Mapping[str, Any], x: str) -> str:
        """Return the name of the line of a setting: the strategy, and the other settings but `x`, as `s=3`."""
        settings = [name for name in self._sweep.varied if name != x]
        rest = [f"{name}={_text(line[name])}" for name in settings if name != "strategy" and line[name] is not None]
        if "strategy" in settings or not rest:
            rest.insert(0, str(line["strategy"] if "strategy" in settings else self._sweep.rows[0]["strategy"]))
        return ", ".join(rest)

    def _series(self, x: str, result: str) -> list[SweepSeries]:
        """Return a series for each combination of the settings other than `x`, in the order of the grid."""
        groups: dict[str, list[list[float]]] = {}
        only = self._sweep.rows[0][x] if x not in self._sweep.varied else None
        for line in self._sweep.medians(result):
            values = (line[result], line[f"{result}_low"], line[f"{result}_high"])
            found = groups.setdefault(self._name(line, x), [])
            at = line[x] if only is None else only
            if at is not None:
                found.append([float(at), *(math.nan if values[0] is None else float(value) for value in values)])
        self._check_number(list(groups))
        return [
            SweepSeries(name, *np.array(sorted(points), dtype=float).reshape(-1, 4).T)
            for name, points in groups.items()
        ]

    def _check_number(self, names: Sequence[str]) -> None:
        if len(names) > MOST:
            raise BadInput(
                f"A figure of a sweep shows at most {MOST} lines, not {len(names)}; draw from sweep.frame()."
            )


def _per_worker(series: SweepSeries) -> SweepSeries:
    seen = np.isfinite(series.median)
    if not seen.any():
        return series
    base = series.median[seen][0] / series.x[seen][0]
    return SweepSeries(series.name, series.x, *(v / series.x / base for v in (series.median, series.low, series.high)))


def _label_of(setting: str) -> str:
    return NAMES.get(setting, setting.replace("_", " "))


def _empty(figure: Figure, left: int, top: int, words: str) -> None:
    axes = _axes(figure, left, top, 0)
    axes.set_xticks([])
    axes.set_yticks([])
    style.note(axes).set_text(words)


def _text(value: Any) -> str:
    return number_text(value) if isinstance(value, float) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _complete(line: Mapping[str, Any]) -> bool:
    return line["gradients_per_second"] is not None and line["accuracy"] is not None


def _looks() -> Iterator[tuple[str, str, Any]]:
    for dashes in itertools.chain(["-"], itertools.repeat((0, (6, 2)))):
        for mark, colour in zip(MARKS, COLOURS):
            yield mark, colour, dashes


def _height(axes: Axes, values: Any) -> Any:
    bottom, top = axes.yaxis.get_transform().transform(np.array(axes.get_ylim()))
    return (axes.yaxis.get_transform().transform(np.asarray(values, dtype=float)) - bottom) / (top - bottom)


def _ticks(axes: Axes, places: np.ndarray) -> None:
    """Set ticks at the places, first at the ends, and at as many others as have room for their text."""
    pixels = axes.transData.transform(np.c_[places, np.full(len(places), axes.get_ylim()[1])])[:, 0]
    kept: list[int] = []
    for i in dict.fromkeys([len(places) - 1, 0, *range(len(places))]):
        half = style.width(style.plain(places[i])) / 2
        others = ((pixels[k], style.width(style.plain(places[k])) / 2) for k in kept)
        if all(abs(pixels[i] - at) >= half + wide + 6 for at, wide in others):
            kept.append(i)
    axes.xaxis.set_major_locator(FixedLocator([float(places[i]) for i in sorted(kept)]))
    axes.xaxis.set_minor_locator(NullLocator())


def _axes(figure: Figure, left: int, top: int, names: float) -> Axes:
    """Add the axes of one panel, with room of `names` pixels at the right."""
    wide, high = figure.get_size_inches() * style.DPI
    right = min(names + GAP + 14, SIZE[0] / 2)
    box = (
        (left + LEFT) / wide, (high - top - SIZE[1] + BELOW) / high, (SIZE[0] - LEFT - right) / wide,
        (SIZE[1] - TITLE_ROOM - BELOW - ABOVE) / high,
    )  # fmt: skip
    return style.plain_axes(figure.add_axes(box), y_ticks=5)


def _beside(axes: Axes, placed: LabelPlacement, words: str, colour: str, pixel: np.ndarray) -> None:
    """Write a text near a pixel of the axes, if there is room for it."""
    wide = style.width(words)
    left, bottom, cost = placed.near(wide, *pixel)
    if cost < WORDS:
        text = style.write(axes, 0, 0, words, colour, va="center", transform=axes.transAxes)
        text.set_path_effects(style.halo())
        placed.put(text, left, bottom, wide)


def _label(axes: Axes, ends: Sequence[tuple[str, float, str]]) -> None:
    """Write the names of the lines at their ends, in their colours, without overlap. `ends`: name, height from 0 to 1, colour."""
    size = axes.get_window_extent()
    heights = [height for _, height, _ in ends]
    gap = min(15 / size.height, 0.97 / max(1, len(ends) - 1))
    for (name, _, colour), y in zip(ends, style.spread(heights, gap, 0.0, 1.0)):
        style.write(
            axes,
            1 + GAP / size.width,
            y,
            name,
            colour,
            style.NORMAL,
            va="center",
            fontweight="bold",
            transform=axes.transAxes,
        )
