"""Figures of a sweep: one line per strategy, with a band over the seeds.

    time_to_accuracy    seconds to the budget's accuracy
    throughput          gradients per second
    efficiency          throughput per worker, relative to the smallest number of workers of the same line
    staleness           mean staleness
    pareto              throughput against accuracy: no setting on the front is worse in both than another one

The horizontal axis is the number of workers if it differs between the runs, else the first setting whose values are numbers.
A line is the median over the seeds, its band goes from the smallest to the largest value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from ..errors import BadInput, shown
from ..formatting import number_text
from . import style
from .figures import GUTTER, TITLE_ROOM, LabFigure, blank, head

__all__ = ["SweepPlots"]

SIZE = (462, 270)  # pixels of one panel
LEFT, BELOW, ABOVE, GAP = 62, 46, 14, 10  # pixels around the axes; between the axes and the names of the lines
MOST = 8  # lines
COLOURS = (style.BLUE, style.GREEN, style.ORANGE, style.INK, style.BLUE_LINE, style.GREY, style.ORANGE_DEEP, style.FAINT)
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
NAMES = {"workers": "workers", "servers": "servers", "s": "bound s", "latency": "latency (s)", "bandwidth": "bandwidth (bytes/s)"}


class Results(Protocol):
    """What the figures need of a `labkit.Sweep`."""

    @property
    def rows(self) -> tuple[Mapping[str, Any], ...]:
        """One dictionary per run."""

    @property
    def varied(self) -> tuple[str, ...]:
        """The names of the settings that differ."""

    def medians(self, *results: str) -> list[dict[str, Any]]:
        """Return one dictionary per setting, with medians and ranges over the seeds."""


@dataclass(frozen=True)
class Series:
    """One line: its name, and for each x the median, smallest and largest value."""

    name: str
    x: np.ndarray
    median: np.ndarray
    low: np.ndarray
    high: np.ndarray


class SweepPlots:
    """The figures of one sweep. `x`, an argument of each, is the setting on the horizontal axis."""

    def __init__(self, results: Results):
        self._results = results

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

    def pareto(self) -> LabFigure:
        """Draw throughput against accuracy, with a mark for each setting and a line through the Pareto front."""
        return self._alone(lambda figure, left, top, _: self._pareto(figure, left, top), None)

    def overview(self, x: str | None = None) -> LabFigure:
        """Draw four figures in one: time to accuracy (or throughput, if no run reached an accuracy), efficiency (or
        throughput, if the number of workers does not differ), staleness and the Pareto front.
        """
        reached = any(row["time_to_accuracy"] is not None for row in self._results.rows)
        by_workers = "workers" in self._results.varied
        figure = blank(2 * SIZE[0] + GUTTER, 2 * SIZE[1] + GUTTER)
        right, lower = SIZE[0] + GUTTER, SIZE[1] + GUTTER
        (self._time_to_accuracy if reached else self._throughput)(figure, 0, 0, x)
        if by_workers:
            self._efficiency(figure, right, 0, "workers")
        else:
            (self._throughput if reached else self._accuracy)(figure, right, 0, x)
        self._staleness(figure, 0, lower, x)
        self._pareto(figure, right, lower)
        return figure

    # panels -----------------------------------------------------------------------------------------------------------

    def _alone(self, draw: Callable[[Figure, int, int, str | None], None], x: str | None) -> LabFigure:
        figure = blank(*SIZE)
        draw(figure, 0, 0, x)
        return figure

    def _time_to_accuracy(self, figure: Figure, left: int, top: int, x: str | None) -> None:
        self._lines(figure, left, top, x, "time_to_accuracy", "Time to accuracy", "seconds to the budget's accuracy")

    def _throughput(self, figure: Figure, left: int, top: int, x: str | None) -> None:
        self._lines(figure, left, top, x, "gradients_per_second", "Throughput", "gradients per second")

    def _accuracy(self, figure: Figure, left: int, top: int, x: str | None) -> None:
        self._lines(figure, left, top, x, "accuracy", "Accuracy", "of held-out samples, at the end", scale=100.0, unit="%")

    def _staleness(self, figure: Figure, left: int, top: int, x: str | None) -> None:
        self._lines(figure, left, top, x, "staleness", "Staleness", "mean over the applied gradients")

    def _efficiency(self, figure: Figure, left: int, top: int, x: str | None) -> None:
        self._lines(
            figure, left, top, x, "gradients_per_second", "Scaling efficiency", "throughput per worker", scale=100.0, unit="%",
            change=_per_worker,
        )  # fmt: skip

    def _lines(
        self, figure: Figure, left: int, top: int, x: str | None, result: str, title: str, caption: str, scale: float = 1.0,
        unit: str = "", change: Callable[[Series], Series] = lambda series: series,
    ) -> None:  # fmt: skip
        """Draw one panel with a line for each combination of the settings that are not on the horizontal axis."""
        x = self._axis(x)
        found = [change(series) for series in self._series(x, result) if len(series.x)]
        head(figure, left, top, title, caption, SIZE[0])
        if not found:
            axes = _axes(figure, left, top, 0)
            style.note(axes).set_text(f"no run has a {result.replace('_', ' ')}")
            return
        axes = _axes(figure, left, top, max(style.width(series.name, style.NORMAL) for series in found))
        places = np.unique(np.concatenate([series.x for series in found]))
        logarithmic = len(places) > 2 and places[0] > 0 and places[-1] / places[0] >= 8
        axes.set_xscale("log" if logarithmic else "linear")
        style.numbers(axes)
        axes.xaxis.set_major_locator(FixedLocator(list(_thinned(places))))
        axes.xaxis.set_minor_locator(NullLocator())
        ends = []
        for series, mark, colour in zip(found, MARKS, COLOURS):
            low, mid, high = (scale * values for values in (series.low, series.median, series.high))
            axes.fill_between(series.x, low, high, color=colour, alpha=0.18, linewidth=0, zorder=2)
            axes.plot(
                series.x, mid, mark, linestyle="-", color=colour, linewidth=2.0, markersize=6, markeredgecolor=style.PAPER,
                markeredgewidth=0.8, zorder=3, clip_on=False,
            )  # fmt: skip
            ends.append((series.name, float(mid[-1]), colour))
        axes.set_ylim(0, style.nice_above(1.02 * scale * max(float(series.high.max()) for series in found)))
        if unit:
            axes.yaxis.set_major_formatter(lambda value, _: f"{style.plain(value)}{unit}")
        axes.set_xlabel(NAMES.get(x, x.replace("_", " ")), **style.text(labelpad=3))
        _label(axes, ends)

    def _pareto(self, figure: Figure, left: int, top: int) -> None:
        """Draw one mark per setting, and a line through those that no other setting beats in both directions."""
        head(figure, left, top, "Speed and accuracy", "right and up is better; line = Pareto front", SIZE[0])
        lines = [line for line in self._results.medians("gradients_per_second", "accuracy") if _complete(line)]
        names = list(dict.fromkeys(_name(line, self._besides("workers")) for line in lines))
        axes = _axes(figure, left, top, max((style.width(name, style.NORMAL) for name in names), default=0))
        if not lines:
            style.note(axes).set_text("no run has an accuracy")
            return
        self._check_number(names)
        by_workers = "workers" in self._results.varied
        points = [(line["gradients_per_second"], 100 * line["accuracy"]) for line in lines]
        front = sorted(p for p in points if not any(q != p and q[0] >= p[0] and q[1] >= p[1] for q in points))
        axes.plot(*zip(*front), color=style.GREY, linewidth=1.4, linestyle=(0, (4, 2)), zorder=2)
        ends = []
        for name, mark, colour in zip(names, MARKS, COLOURS):
            mine = [(p, line) for p, line in zip(points, lines) if _name(line, self._besides("workers")) == name]
            axes.plot(
                *zip(*(p for p, _ in mine)), mark, color=colour, markersize=7, markeredgecolor=style.PAPER, linestyle="none",
                zorder=4, clip_on=False,
            )  # fmt: skip
            ends.append((name, mine[-1][0][1], colour))
            for (speed, accuracy), line in mine:
                if by_workers:
                    text = style.write(axes, speed, accuracy, f"  {line['workers']:,}", style.GREY, va="bottom")
                    text.set_path_effects(style.halo())
        low, high = min(accuracy for _, accuracy in points), max(accuracy for _, accuracy in points)
        margin = max(0.25 * (high - low), 0.5)
        axes.set_ylim(max(0.0, low - margin), min(100.0, high + margin))
        axes.set_xlim(0, style.nice_above(1.02 * max(speed for speed, _ in points)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{style.plain(value)}%")
        axes.set_xlabel("gradients per second" + ("; numbers: workers" if by_workers else ""), **style.text(labelpad=3))
        _label(axes, ends)

    # the lines --------------------------------------------------------------------------------------------------------

    def _axis(self, x: str | None) -> str:
        """Return the setting on the horizontal axis. Raises `BadInput` if there is none, or if its values are not numbers."""
        rows = self._results.rows
        numeric = [name for name in self._results.varied if all(row[name] is None or _is_number(row[name]) for row in rows)]
        if x is None:
            x = "workers" if "workers" in numeric or not numeric else numeric[0]
        if x not in numeric and not (x == "workers" and rows):
            allowed = ", ".join(numeric) or "there is none"
            raise BadInput(f"x={shown(x)}: give a setting whose values are numbers and differ: {allowed}.")
        return x

    def _besides(self, x: str) -> list[str]:
        return [name for name in self._results.varied if name != x]

    def _series(self, x: str, result: str) -> list[Series]:
        """Return a series for each combination of the settings other than `x`, in the order of the grid."""
        groups: dict[str, list[tuple[float, ...]]] = {}
        only = self._results.rows[0][x] if x not in self._results.varied else None
        for line in self._results.medians(result):
            values = (line[result], line[f"{result}_low"], line[f"{result}_high"])
            found = groups.setdefault(_name(line, self._besides(x)), [])
            at = line[x] if only is None else only
            if at is not None and all(value is not None for value in values):
                found.append((float(at), *values))
        self._check_number(list(groups))
        return [Series(name, *np.array(sorted(points), dtype=float).reshape(-1, 4).T) for name, points in groups.items()]

    def _check_number(self, names: Sequence[str]) -> None:
        if len(names) > MOST:
            raise BadInput(f"A figure of a sweep shows at most {MOST} lines, not {len(names)}; draw from sweep.frame().")


def _per_worker(series: Series) -> Series:
    """Return the throughput per worker relative to that at the smallest number of workers."""
    if not len(series.x):
        return series
    base = series.median[0] / series.x[0]
    return Series(series.name, series.x, *(v / series.x / base for v in (series.median, series.low, series.high)))


def _name(line: Mapping[str, Any], settings: Sequence[str]) -> str:
    """Return the name of a line: the strategy, and the other settings as `s=3`."""
    rest = [f"{name}={_text(line[name])}" for name in settings if name != "strategy" and line[name] is not None]
    return ", ".join([*([line["strategy"]] if "strategy" in settings else []), *rest]) or "all runs"


def _text(value: Any) -> str:
    return number_text(value) if isinstance(value, float) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _complete(line: Mapping[str, Any]) -> bool:
    return line["gradients_per_second"] is not None and line["accuracy"] is not None


def _thinned(places: np.ndarray) -> np.ndarray:
    """Return at most eight of the places, at equal distances in the list, with the first and the last."""
    return places if len(places) <= 8 else places[np.unique(np.linspace(0, len(places) - 1, 8).round().astype(int))]


def _axes(figure: Figure, left: int, top: int, names: float) -> Axes:
    """Add the axes of one panel, with room of `names` pixels at the right."""
    wide, high = figure.get_size_inches() * style.DPI
    right = min(names + GAP + 14, SIZE[0] / 2)
    box = (
        (left + LEFT) / wide, (high - top - SIZE[1] + BELOW) / high, (SIZE[0] - LEFT - right) / wide,
        (SIZE[1] - TITLE_ROOM - BELOW - ABOVE) / high,
    )  # fmt: skip
    return style.plain_axes(figure.add_axes(box), y_ticks=5)


def _label(axes: Axes, ends: Sequence[tuple[str, float, str]]) -> None:
    """Write the names of the lines at their ends, in their colours, without overlap."""
    bottom, top = axes.get_ylim()
    heights = [(value - bottom) / (top - bottom) for _, value, _ in ends]
    size = axes.get_window_extent()
    for (name, _, colour), y in zip(ends, style.spread(heights, 15 / size.height, 0.03, 0.97)):
        style.write(
            axes, 1 + GAP / size.width, y, name, colour, style.NORMAL, va="center", fontweight="bold", transform=axes.transAxes
        )
