"""Base class of panels with curves over time, each labelled at its end, and a dotted orange line for each command.

Subclasses (throughput, staleness over time, accuracy, loss) only define their curves. During a live run the time axis
grows in round steps, so that the axis does not change with every frame. A label is placed as near to the end of its curve
as possible without covering anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from ..trace.schema import NANO
from ..trace.trace import Trace
from . import style
from .event_labels import event_labels
from .event_lines import Events
from .label_placement import WEAK, LabelPlacement, pixels_of
from .panel import Panel, Stops, moment

MOST_CURVES = 8
LABEL_GAP = 15  # pixels between the labels of two curves in the margin
NEAR = 5  # pixels: a readout has the events and the curves without a label that are this near


@dataclass(frozen=True)
class Curve:
    """A curve: points (`x` in seconds), line style, and the label at its end."""

    x: np.ndarray
    y: np.ndarray
    label: str = ""
    colour: str = style.BLUE
    line: Any = "-"
    width: float = 2.2
    bold: bool = field(default=False)
    name: str = "this run"  # in a table and in a readout
    above: bool = False  # whether it is drawn over the other curves


def this_run(x: np.ndarray, y: np.ndarray, label: str) -> Curve:
    return Curve(x, y, label, style.BLUE, "-", 2.4, True)


def reference_curve(x: np.ndarray, y: np.ndarray, label: str) -> Curve:
    return Curve(x, y, label, style.GREY, (0, (4, 2.5)), 1.6, name="reference")


def forecast_curve(x: np.ndarray, y: np.ndarray, label: str) -> Curve:
    """Return the curve of the forecast of the current run. It lies over that of the run, which it should be equal to."""
    return Curve(x, y, label, style.INK, style.FORECAST_LINE, 1.6, name="forecast", above=True)


def until(trace: Trace, t: int) -> float:
    """Return the end of the time axis in seconds: the end of a finished run, otherwise a round number above `t`."""
    over = trace.ending is not None and t >= trace.ending["time"]
    if t <= 0:
        return 1.0
    return t / NANO if over else style.nice_above(max(t / NANO * 1.02, 1e-3))


class CurvesPanel(Panel):
    """Base class of panels with curves. A subclass implements `curves(trace, t)`."""

    margins: ClassVar[tuple[int, int, int, int]] = (48, 14, 36, 10)
    quantity: ClassVar[str] = ""  # of the vertical axis, with its unit, in a table
    outside: bool = False  # labels in the right margin, which must be wide enough

    def __init__(self, reference: Trace | None = None):
        self.reference = reference

    def curves(self, trace: Trace, t: int) -> list[Curve]:
        """The most important curve comes first."""
        raise NotImplementedError

    def others(self, trace: Trace, t: int) -> list[Curve]:
        """What a subclass draws in addition, without labels."""
        return []

    def ceiling(self, trace: Trace, highest: float) -> float:
        """Return the upper limit of the vertical axis if the highest point is `highest`."""
        return style.nice_above(1.06 * highest)

    def setup(self, axes: Any) -> Self:
        super().setup(axes)
        axes.set_xlabel("seconds", **style.text(labelpad=2))
        self.lines = [axes.plot([], [], solid_joinstyle="round", zorder=5 - k / 10)[0] for k in range(MOST_CURVES)]
        self.names = [
            style.write(axes, 0, 0, "", size=style.NORMAL, va="center", transform=axes.transAxes, zorder=6.5)
            for _ in range(MOST_CURVES)
        ]
        for name in self.names:
            name.set_path_effects(style.halo())
        self._styles: list[Any] = [None] * MOST_CURVES
        self.events = Events(axes)
        return self

    def caption(self, trace: Trace, t: int | None = None) -> str:
        return f"dashed: reference, {self.reference.header.strategy.name}" if self.reference is not None else ""

    def update(self, trace: Trace, t: int | None = None) -> None:
        t = moment(trace, t)
        marks = [(self.across(trace, t, time), label) for time, label in event_labels(trace, t)]
        self.show(self.curves(trace, t)[:MOST_CURVES], self.end(trace, t), trace, marks)

    def readout(self, trace: Trace, t: int, x: float, y: float) -> str:
        """Return the newest value of each curve at `x`, and the position of that value. Curves without a label and events are
        left out unless they are near.
        """
        (left, right), (low, high) = self.axes.get_xlim(), self.axes.get_ylim()
        wide, tall = (
            NEAR * abs(b - a) / size for (a, b), size in zip(((left, right), (low, high)), pixels_of(self.axes))
        )
        found = []
        for curve, all_ in [(c, True) for c in self._shown(trace, t)] + [(c, False) for c in self.others(trace, t)]:
            k = int(np.searchsorted(curve.x, x, side="right")) - 1
            if k >= 0 and np.isfinite(curve.y[k]) and (all_ or abs(curve.y[k] - y) <= tall):
                found.append(f"{curve.name}: {self.value(float(curve.y[k]))} at {self.position(float(curve.x[k]))}")
        for time, label in event_labels(trace, t):
            if abs(self.across(trace, t, time) - x) <= wide:
                found.append(f"{label} at {self.position(self.across(trace, t, time))}")
        return "\n".join(found)

    def stops(self, trace: Trace, t: int) -> list[Stops]:
        found = []
        for curve in [*self._shown(trace, t), *self.others(trace, t)]:
            inside = np.isfinite(curve.y) & (curve.x >= 0) & (curve.x <= self.axes.get_xlim()[1])
            found.append(list(dict.fromkeys(zip(curve.x[inside].tolist(), curve.y[inside].tolist()))))
        return [points for points in found if points]

    def _shown(self, trace: Trace, t: int) -> list[Curve]:
        return [curve for curve in self.curves(trace, t)[:MOST_CURVES] if len(curve.x)]

    def value(self, y: float) -> str:
        return style.plain(float(f"{y:.4g}"))

    def position(self, x: float) -> str:
        """Return a position on the horizontal axis as text."""
        return f"{x:,.3f} s"

    def table(self, trace: Trace, t: int) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        curves = [*self._shown(trace, t), *self.others(trace, t)]
        rows = [(c.name, x, y) for c in curves for x, y in zip(c.x.tolist(), c.y.tolist())]
        return ("curve", self.axes.get_xlabel(), self.quantity), rows

    def highest(self) -> float:
        """Return the largest value that a subclass draws in addition to its curves."""
        return 0.0

    def behind(self, room: LabelPlacement) -> None:
        """Reserve room for anything that a subclass draws in addition to its curves. Called before labels and marks are
        placed.
        """

    def across(self, trace: Trace, t: int, time: int) -> float:
        """Return the position of `time` (ns) on the horizontal axis, as far as it is known at `t`."""
        return time / NANO

    def end(self, trace: Trace, t: int) -> float:
        """Return the end of the horizontal axis at `t` (ns)."""
        return until(trace, t)

    def show(self, curves: list[Curve], end: float, trace: Trace, marks: Sequence[tuple[float, str]] = ()) -> None:
        """Draw these curves, and lines at `marks` (x, label), on a horizontal axis that ends at `end`."""
        known = [c for c in curves if len(c.x)]
        self.note.set_text("" if known else self.nothing(trace))
        inside = [c.y[(c.x <= end) & np.isfinite(c.y)] for c in known]
        top = self.ceiling(trace, max((self.highest(), *(float(y.max()) for y in inside if len(y)))) or 1.0)
        if self.axes.get_xlim() != (-0.015 * end, end) or self.axes.get_ylim() != (-0.015 * top, top):
            self.axes.set(xlim=(-0.015 * end, end), ylim=(-0.015 * top, top))
        room = LabelPlacement(self.axes)
        for x, _ in marks:
            room.curve(np.array([x, x]), np.array([0.0, top]), 5 * WEAK)
        for k, line in enumerate(self.lines):
            curve = known[k] if k < len(known) else None
            line.set_data(*((curve.x, curve.y) if curve else ([], [])))
            self.names[k].set_text("")
            if curve is not None:
                self._style(k, curve)
                room.curve(curve.x, curve.y)
        self.behind(room)
        named = [(k, c, _last_inside(c, end)) for k, c in enumerate(known) if c.label and len(inside[k])]
        (self._name_outside if self.outside else self._name_inside)(named, room)
        self.events.show(marks if known else (), room)

    def _name_inside(self, named: list[tuple[int, Curve, tuple[float, float]]], room: LabelPlacement) -> None:
        for k, curve, end in named:
            x, y = room.pixels(*end)
            wide = style.width(curve.label, style.NORMAL, curve.bold)
            after = [float(x) + 5] if x + 5 + wide <= room.wide else []
            edge = min(float(x), room.wide - 2) - wide
            left, bottom, _ = room.near(wide, float(x), float(y), [*after, *(edge - 6 * i for i in range(14))])
            self._name(k, curve)
            room.put(self.names[k], left, bottom, wide)

    def _name_outside(self, named: list[tuple[int, Curve, tuple[float, float]]], room: LabelPlacement) -> None:
        ends = [float(room.pixels(*end)[1]) / room.high for _, _, end in named]
        for (k, curve, _), height in zip(named, style.spread(ends, LABEL_GAP / room.high, 0.02, 0.98)):
            self._name(k, curve)
            self.names[k].set_position((1 + 6 / room.wide, height))

    def _style(self, k: int, curve: Curve) -> None:
        """Set the appearance of a line and its label. Most frames do not change it."""
        appearance = curve.colour, curve.line, curve.width, curve.bold, curve.above
        if appearance != self._styles[k]:
            self._styles[k] = appearance
            zorder = 5.2 if curve.above else 5 - k / 10
            self.lines[k].set(color=curve.colour, linestyle=curve.line, linewidth=curve.width, zorder=zorder)
            self.names[k].set(color=curve.colour, fontweight="bold" if curve.bold else "normal")

    def _name(self, k: int, curve: Curve) -> None:
        self.names[k].set_text(curve.label)

    def nothing(self, trace: Trace) -> str:
        """The text shown if there is no curve."""
        return "no data yet"


def _last_inside(curve: Curve, end: float) -> tuple[float, float]:
    """Return the point where a curve ends or leaves the axes."""
    finite = np.isfinite(curve.y)
    x = min(float(curve.x[finite][-1]), end)
    return x, float(np.interp(x, curve.x[finite], curve.y[finite]))
