"""Common layout of the teaching figures: one size, one title style, text legible from a distance.

A figure is 940 pixels wide, the width of a notebook. Its title is a sentence with measured numbers. Below the title, in
grey, is the meaning of the colours. Text has at least 9 points. Coordinates are pixels from the upper left corner.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from ...errors import BadInput, shown
from ...trace.trace import Trace
from ...views import style
from ...views.figures import LabFigure, blank

WIDTH = 940
WORDS, LABEL, HEAD = 9.5, 10.5, 14.0  # points
EDGE = 14  # pixels
MARKER = 9.0  # points: the size of a marker
APART = 15.0  # pixels between the centres of two markers of this size, including their white edges
MOST = 4  # rows of a figure with one row per run


def trace_of(what: str, run: Any) -> Trace:
    """Return the trace of `run`, which may also be a trace. Raises `BadInput` if it is neither, or if the trace is empty."""
    found = run if isinstance(run, Trace) else getattr(run, "trace", None)
    if not isinstance(found, Trace):
        raise BadInput(f"{what}: {shown(run)} is not a run; give the result of lk.train, or its trace.")
    if found.watermark() <= 0:
        raise BadInput(f"{what}: {shown(run)} has no data yet; call wait() first.")
    return found


def traces_of(what: str, key: str, runs: Any, most: int = MOST) -> dict[int, Trace]:
    """Return {number: trace} of the runs {number: run}, in ascending order. `key`: the meaning of the numbers."""
    if not isinstance(runs, Mapping) or not 1 <= len(runs) <= most:
        raise BadInput(f"{what}: give a dictionary {{{key}: run}} with 1 to {most} runs, not {shown(runs)}.")
    for n in runs:
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
            raise BadInput(f"{what}: {shown(n)} is not a number of {key}; give a whole number, at least 1.")
    return {int(n): trace_of(what, runs[n]) for n in sorted(runs)}


def sheet(height: int, title: str, below: str) -> LabFigure:
    """Create a figure with its title, in the largest size that fits, and the meaning of the colours `below` it."""
    figure, size = blank(WIDTH, height), HEAD
    while style.width(title, size, bold=True) > WIDTH - 2 * EDGE and size > WORDS:
        size -= 0.5
    put(figure, EDGE, 20, title, style.INK, size, fontweight="bold")
    put(figure, EDGE, 44, below, style.GREY, WORDS)
    return figure


def put(figure: LabFigure, left: float, top: float, words: str, colour: str, size: float = WORDS, **more: Any) -> Any:
    """Write a text whose vertical centre is `top` pixels below the upper edge."""
    wide, high = figure.get_size_inches() * style.DPI
    return figure.text(left / wide, 1 - top / high, words, **style.text(colour, size, **{"va": "center", **more}))


def axes_at(
    figure: LabFigure, left: int, top: int, width: int, height: int, grid: str | None = "x", **more: Any
) -> Axes:
    """Add plain axes. The upper left corner of their frame (without labels) is at (left, top)."""
    wide, high = figure.get_size_inches() * style.DPI
    box = (left / wide, 1 - (top + height) / high, width / wide, height / high)
    axes = style.plain_axes(figure.add_axes(box), grid=grid, **more)
    axes.tick_params(labelsize=WORDS)
    return axes


def boxes(
    axes: Axes,
    row: Any,
    start: Any,
    end: Any,
    face: Any,
    edge: Any = "none",
    half: float = 0.36,
    z: float = 2,
    line: float = 1.0,
) -> None:
    """Draw boxes from `start` to `end` (in axis units), centred on each `row`."""
    row, start, end = (np.asarray(a, dtype=float) for a in (row, start, end))
    low, high = row - half, row + half
    corners = np.stack([start, low, start, high, end, high, end, low], axis=-1).reshape(-1, 4, 2)
    made = PolyCollection(list(corners), facecolors=face, edgecolors=edge, linewidths=line, zorder=z)
    axes.add_collection(made, autolim=False)


def lanes(positions: Sequence[float]) -> list[float]:
    """Return the distance in pixels by which to move each marker sideways so that markers of one row do not overlap.

    `positions`: the positions of the markers along the row, in pixels. Markers that would overlap are placed side by side,
    centred on the row; all others are not moved.
    """
    lane = [0] * len(positions)
    groups: list[list[int]] = []
    for i in sorted(range(len(positions)), key=lambda i: positions[i]):
        near = [k for group in groups[-1:] for k in group if positions[i] - positions[k] < APART]
        taken = {lane[k] for k in near}
        lane[i] = next(n for n in range(len(positions)) if n not in taken)
        groups = [*groups[:-1], [*groups[-1], i]] if near else [*groups, [i]]
    moved = [0.0] * len(positions)
    for group in groups:
        middle = max(lane[i] for i in group) / 2
        for i in group:
            moved[i] = (lane[i] - middle) * APART
    return moved


def number(value: float) -> str:
    """Format with three digits: 0.209, 8, 31.9, 1,240."""
    if value and abs(value) < 100:
        value = round(value, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:g}"
