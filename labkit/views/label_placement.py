"""Placement of labels inside the axes: next to the objects that they name, and without covering other objects.

The axes are divided into a grid of small cells. Drawn objects occupy cells; a label is placed at the free position nearest to
its anchor. Sizes are computed in pixels at `style.DPI` from the lower left corner of the axes, so the result is the same at
every resolution.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.text import Text

from . import style

CELL = 3  # pixels
HIGH = 13  # height of a line of text
# cost of covering a cell of a text, a curve, an event line, one of many lines
WORDS, LINE, HINT, WEAK = 50.0, 1.0, 0.25, 0.0006


def pixels_of(axes: Axes) -> tuple[float, float]:
    """Return the width and height of the axes, in pixels at `style.DPI`."""
    box, dpi = axes.bbox, axes.figure.dpi
    return box.width * style.DPI / dpi, box.height * style.DPI / dpi


class LabelPlacement:
    """The occupied cells of axes. The limits of the axes must be set before."""

    def __init__(self, axes: Axes):
        self.axes = axes
        self.wide, self.high = pixels_of(axes)
        (self._left, right), (self._low, top) = axes.get_xlim(), axes.get_ylim()
        self._by_x, self._by_y = self.wide / (right - self._left), self.high / (top - self._low)
        self.cells = np.zeros((max(1, int(self.high // CELL)), max(1, int(self.wide // CELL))))

    def pixels(self, x: np.ndarray | float, y: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """Return the pixel coordinates of points in data coordinates."""
        return (np.asarray(x) - self._left) * self._by_x, (np.asarray(y) - self._low) * self._by_y

    def curve(self, x: np.ndarray, y: np.ndarray, cost: float = LINE) -> None:
        """Mark the cells along a line through points in data coordinates as occupied."""
        kept = np.isfinite(x) & np.isfinite(y)
        px, py = self.pixels(x[kept], y[kept])
        if not len(px):
            return
        px, py = np.clip(px, -9999, 9999), np.clip(py, -9999, 9999)
        way = np.r_[0.0, np.cumsum(np.hypot(np.diff(px), np.diff(py)))]
        steps = np.linspace(0, way[-1], min(20_000, 2 + int(way[-1] / (CELL / 2))))
        column, row = np.interp(steps, way, px) // CELL, np.interp(steps, way, py) // CELL
        inside = (column >= 0) & (row >= 0) & (column < self.cells.shape[1]) & (row < self.cells.shape[0])
        self.cells[row[inside].astype(int), column[inside].astype(int)] += cost

    def box(self, left: float, bottom: float, right: float, top: float, cost: float = WORDS) -> None:
        """Mark all cells that a box (in pixels) touches as occupied."""
        first, last = (max(0, int(edge // CELL)) for edge in (left, bottom)), (right, top)
        column, row = first
        self.cells[row : max(0, int(last[1] // CELL) + 1), column : max(0, int(last[0] // CELL) + 1)] += cost

    def near(
        self, wide: float, x: float, y: float, lefts: Sequence[float] | None = None, high: float = HIGH
    ) -> tuple[float, float, float]:
        """Return (left, bottom, cost) of the best position for a box: it covers as little as possible and is near (x, y).

        `lefts`: the allowed left edges, the preferred edge first (an edge that does not fit is moved inside). No cells
        are marked. All lengths are in pixels. Covering a cell of cost 1 is equivalent to a distance of 1000 pixels.
        """
        rows, columns = self.cells.shape
        tall, long = min(rows, -(-int(high) // CELL)), min(columns, -(-int(wide) // CELL))
        total = np.zeros((rows + 1, columns + 1))
        total[1:, 1:] = self.cells.cumsum(0).cumsum(1)
        cost = total[tall:, long:] - total[:-tall, long:] - total[tall:, :-long] + total[:-tall, :-long]
        left, bottom = np.arange(cost.shape[1]) * CELL, np.arange(cost.shape[0]) * CELL
        aside = np.maximum(np.maximum(left - x, x - left - wide), 0.0)
        away = np.maximum(np.maximum(bottom - y, y - bottom - high), 0.0)
        if lefts is None:
            price = np.hypot(aside[None, :], away[:, None])
        else:
            price = np.full(cost.shape, np.inf)
            for k, edge in reversed(list(enumerate(lefts))):
                price[:, min(max(0, round(edge / CELL)), cost.shape[1] - 1)] = away + 4.0 * k
        price += 1000 * cost + 0.05 * np.abs(bottom + high / 2 - y)[:, None]
        row, column = np.unravel_index(int(np.argmin(price)), price.shape)
        return float(left[column]), float(bottom[row]), float(cost[row, column])

    def put(self, text: Text, left: float, bottom: float, wide: float, high: float = HIGH) -> None:
        """Move `text` (aligned left and centre, in axes coordinates) to this position, and mark the cells as occupied."""
        text.set_position((left / self.wide, (bottom + high / 2) / self.high))
        self.box(left - 2, bottom, left + wide + 2, bottom + high)
