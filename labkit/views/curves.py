"""Something against time: a few curves, each named at its end, and a dotted orange line for everything that was done to
the run.

The base of throughput, accuracy and loss, which only say what their curves are. The time axis grows in round steps
while the run goes on, so the picture stands still in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from ..trace.trace import Trace
from ..trace.vocabulary import NANO
from . import style
from .marks import mark_labels
from .panel import Panel, moment

__all__ = ["Curve", "Curves", "this_run", "until"]

MOST_CURVES, MOST_MARKS = 8, 4
LABEL_GAP = 0.105  # of the height, between the names at the ends of two curves


@dataclass(frozen=True)
class Curve:
    """Points (`x` in seconds), how they are drawn, and what stands at the end."""

    x: np.ndarray
    y: np.ndarray
    label: str = ""
    colour: str = style.BLUE
    line: Any = "-"
    width: float = 2.2
    bold: bool = field(default=False)


def this_run(x: np.ndarray, y: np.ndarray, label: str) -> Curve:
    """The curve of the run that is looked at."""
    return Curve(x, y, label, style.BLUE, "-", 2.4, True)


def pinned_run(x: np.ndarray, y: np.ndarray, label: str) -> Curve:
    """The curve of the run that it is compared with."""
    return Curve(x, y, label, style.GREY, (0, (4, 2.5)), 1.6)


def until(trace: Trace, t: int) -> float:
    """Where the time axis ends, in seconds: at the end of a finished run, else at a round number beyond `t`."""
    over = trace.ending is not None and t >= trace.ending["time"]
    if t <= 0:
        return 1.0
    return t / NANO if over else style.nice_above(max(t / NANO * 1.02, 1e-3))


class Curves(Panel):
    """The base; a subclass gives `curves(trace, t)`."""

    margins: ClassVar[tuple[int, int, int, int]] = (48, 78, 36, 10)
    labels_at: ClassVar[tuple[float, float]] = (0.95, -0.12)  # height of the first mark's label, and step to the next

    def __init__(self, pinned: Trace | None = None):
        self.pinned = pinned

    def curves(self, trace: Trace, t: int) -> list[Curve]:
        """What is drawn, the most important one first."""
        raise NotImplementedError

    def ceiling(self, trace: Trace, highest: float) -> float:
        """Where the upright axis ends, if the highest point is `highest`."""
        return style.nice_above(1.06 * highest)

    def setup(self, axes: Any) -> Self:
        """A pool of lines and names."""
        super().setup(axes)
        axes.set_xlabel("seconds", **style.text(labelpad=2))
        end = axes.get_yaxis_transform()
        self.lines = [axes.plot([], [], solid_joinstyle="round", zorder=5 - k / 10)[0] for k in range(MOST_CURVES)]
        self.names = [style.write(axes, 1.02, 0, "", va="center", transform=end) for _ in range(MOST_CURVES)]
        across = axes.get_xaxis_transform()
        self.events = [
            (axes.plot([], [], color=style.ORANGE, linestyle=":", linewidth=1.5, transform=across, zorder=1)[0],
             style.write(axes, 0, 0, "", style.ORANGE, va="center", transform=across, zorder=6))
            for _ in range(MOST_MARKS)
        ]  # fmt: skip
        for _, words in self.events:
            words.set_path_effects(style.halo())
        return self

    def caption(self, trace: Trace, t: int | None = None) -> str:
        """Names the pinned run."""
        return f"dashed: pinned, {self.pinned.header['strategy']['name']}" if self.pinned is not None else ""

    def update(self, trace: Trace, t: int | None = None) -> None:
        """Draw all curves up to `t`."""
        t = moment(trace, t)
        end = until(trace, t)
        self.show(self.curves(trace, t)[:MOST_CURVES], end, trace)
        self._events([(time / NANO, label) for time, label in mark_labels(trace, t)], end)

    def show(self, curves: list[Curve], end: float, trace: Trace) -> None:
        """Draw these curves on a time axis that ends at `end` seconds."""
        known = [c for c in curves if len(c.x)]
        self.note.set_text("" if known else self.nothing(trace))
        inside = [c.y[(c.x <= end) & np.isfinite(c.y)] for c in known]
        top = self.ceiling(trace, max((float(y.max()) for y in inside if len(y)), default=1.0))
        self.axes.set_xlim(-0.015 * end, end)
        self.axes.set_ylim(-0.015 * top, top)
        named = []
        for k, line in enumerate(self.lines):
            curve = known[k] if k < len(known) else None
            line.set_data(*((curve.x, curve.y) if curve else ([], [])))
            self.names[k].set_text("")
            if curve is not None:
                line.set(color=curve.colour, linestyle=curve.line, linewidth=curve.width)
                if curve.label and len(inside[k]):
                    named.append((k, curve, float(inside[k][-1])))
        heights = style.spread([y / top for _, _, y in named], LABEL_GAP, 0.02, 0.98)
        for (k, curve, _), height in zip(named, heights):
            self.names[k].set(text=curve.label, color=curve.colour, y=height * top)
            self.names[k].set_fontweight("bold" if curve.bold else "normal")

    def nothing(self, trace: Trace) -> str:
        """What is said when there is no curve."""
        return "nothing measured yet"

    def _events(self, marks: list[tuple[float, str]], end: float) -> None:
        recent = marks[-MOST_MARKS:]
        for k, (line, words) in enumerate(self.events):
            if k >= len(recent):
                line.set_data([], [])
                words.set_text("")
                continue
            at, label = recent[k]
            right = at < 0.6 * end
            line.set_data([at, at], [0, 1])
            words.set(
                text=label, x=at + (0.012 if right else -0.012) * end, y=self.labels_at[0] + self.labels_at[1] * k
            )
            words.set_horizontalalignment("left" if right else "right")
