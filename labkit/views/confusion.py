"""A confusion matrix: a row per true class and a column per predicted class, with the recall of each class at the right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import BadInput
from . import style
from .figures import LabFigure, blank, head, truncated

SIDE, SMALLEST = 560, 5  # pixels: the largest matrix; of a cell
NUMBERED = 22  # pixels: smaller cells have no number
TOP, BELOW, EDGE, RECALL = 44, 60, 20, 62  # pixels: for the title, the names of columns, the margin, and the recalls
LONGEST = 150  # pixels: of a name
MOST = 300  # classes
FULL = 0.65  # the largest opacity at which numbers are legible


def matrix(counts: np.ndarray, names: Sequence[str], recall: np.ndarray, heading: str) -> LabFigure:
    """Draw the counts (true class, predicted class). The shade of a cell is its share of the samples of the true class."""
    classes = len(names)
    if classes > MOST:
        raise BadInput(
            f"A confusion matrix of {classes:,} classes cannot be drawn, only of up to {MOST}; its `counts` are an array."
        )
    cell = max(SMALLEST, min(64, SIDE // classes))
    said = [truncated(name, LONGEST) for name in names]
    left = EDGE + 8 + max(style.width("true class", style.NORMAL), *map(style.width, said))
    side = cell * classes
    width, height = max(int(left + side + RECALL + EDGE), 430), TOP + side + BELOW
    figure = blank(width, height)
    axes = figure.add_axes((left / width, BELOW / height, side / width, side / height))
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    shades = style.tinted(style.RED, FULL * share)
    right = np.arange(classes)
    shades[right, right] = style.tinted(style.BLUE, FULL * share[right, right])
    axes.imshow(shades, aspect="auto", interpolation="nearest", extent=(0, classes, classes, 0))
    for spine in axes.spines.values():
        spine.set_color(style.FAINT)
    axes.set_xticks([])
    axes.set_yticks([])
    shown = range(0, classes, -(-17 // cell))  # names, as many as there is room for
    for i in shown:
        style.write(axes, -6 / cell, i + 0.5, said[i], style.INK, ha="right", va="center")
        if not np.isnan(recall[i]):
            style.write(axes, classes + 8 / cell, i + 0.5, f"{recall[i]:.0%}", style.GREY, va="center")
    fits = max(map(style.width, said)) < cell * shown.step - 4
    for j in shown if fits else ():
        style.write(axes, j + 0.5, classes + 14 / cell, said[j], style.INK, ha="center", va="center")
    below = "predicted class" if fits else "predicted class, in the order of the rows"
    place = 36 if fits else 16
    style.write(axes, classes / 2, classes + place / cell, below, style.GREY, style.NORMAL, ha="center", va="center")
    style.write(axes, classes + 8 / cell, -12 / cell, "recall", style.GREY, style.NORMAL, va="center")
    style.write(axes, -6 / cell, -12 / cell, "true class", style.GREY, style.NORMAL, ha="right", va="center")
    for i, j in np.argwhere(counts > 0) if cell >= NUMBERED else ():
        style.write(axes, j + 0.5, i + 0.5, f"{counts[i, j]:,}", style.INK, ha="center", va="center")
    head(figure, 0, 4, "Confusion matrix", heading, width)
    return figure
