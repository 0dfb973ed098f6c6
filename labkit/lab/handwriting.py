"""What a user draws, as a picture like those of the training data.

The digits of the UCI repository, from which scikit-learn's are, were made so: a bitmap with black or white cells was scaled to a
standard size, and the number of black cells in each block of 4 x 4 is a pixel. Here the strokes of the pen are scaled and moved
into the box that ink fills in the data, drawn on cells of a quarter of a pixel, and counted in the same blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

FINE = 4  # cells along a side of a pixel
PEN = 0.085  # half the width of a line, as a share of the box: drawings have as much ink as the digits of the data set
LARGEST_SCALE = 4.0  # a dot stays a dot
CHUNK = 256  # line segments that are drawn at once

Box = tuple[float, float, float, float]  # top, left, height, width in pixels


def inked_box(shares: np.ndarray) -> Box:
    """Return the box that ink fills in typical pictures. `shares`: ink from 0 to 1, shape (n, height, width)."""
    mean = shares.mean(axis=0)
    found = []
    for axis in (1, 0):
        ink = mean.mean(axis=axis)
        rows = np.flatnonzero(ink >= 0.1 * ink.max(initial=0.0)) if ink.max(initial=0.0) > 0 else np.arange(len(ink))
        found.append((float(rows[0]), float(rows[-1] + 1 - rows[0])))
    (top, height), (left, width) = found
    return top, left, height, width


def drawn(strokes: Sequence[np.ndarray], shape: tuple[int, int], box: Box) -> np.ndarray:
    """Return the share of each pixel that is covered with ink, shape (height, width).

    `strokes`: the points of each stroke, shape (k, 2), as shares of the width and of the height of the drawing area, from the
    upper left corner.
    """
    height, width = shape
    bits = np.zeros((FINE * height, FINE * width), bool)
    if strokes:
        pen = PEN * FINE * max(box[2], box[3])
        lines = [FINE * np.asarray(stroke, dtype=float) * (width, height) for stroke in strokes]
        for starts, ends in _segments(_fitted(lines, FINE * np.array(box), pen)):
            bits |= _near(bits.shape, starts, ends, pen)
    return bits.reshape(height, FINE, width, FINE).mean(axis=(1, 3))


def _fitted(lines: list[np.ndarray], box: np.ndarray, pen: float) -> list[np.ndarray]:
    """Return the lines, scaled and moved so that they, as wide as the pen, fit into the box, in its centre."""
    points = np.concatenate(lines)
    low, high = points.min(axis=0), points.max(axis=0)
    room = np.maximum(box[[3, 2]] - 2 * pen, 1.0)
    scale = min(LARGEST_SCALE, *(room / np.maximum(high - low, 1e-9)))
    centre = box[[1, 0]] + box[[3, 2]] / 2
    return [(line - (low + high) / 2) * scale + centre for line in lines]


def _segments(lines: list[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (starts, ends) of the segments of all lines, in parts of limited size; a point is a segment of length 0."""
    starts = np.concatenate([line[: max(1, len(line) - 1)] for line in lines])
    ends = np.concatenate([line[min(1, len(line) - 1) :] for line in lines])
    return [(starts[k : k + CHUNK], ends[k : k + CHUNK]) for k in range(0, len(starts), CHUNK)]


def _near(shape: tuple[int, ...], starts: np.ndarray, ends: np.ndarray, pen: float) -> np.ndarray:
    """Return which cells have their centre within `pen` of a segment."""
    y, x = np.indices(shape).reshape(2, -1) + 0.5
    cells, along = np.stack([x, y], axis=1), ends - starts
    # with c a centre, s a start, a the segment: |c - s - share a|^2, where share a is the nearest point of the segment
    dot = cells @ along.T - (starts * along).sum(axis=1)
    length = (along**2).sum(axis=1)
    share = np.clip(dot / np.maximum(length, 1e-12), 0, 1)
    away = (cells**2).sum(axis=1)[:, None] - 2 * cells @ starts.T + (starts**2).sum(axis=1)
    near: np.ndarray = (away - 2 * share * dot + share**2 * length <= pen**2).any(axis=1)
    return near.reshape(shape)
