"""Events on time axes: a dotted orange line for each command or fault, with a short label.

Labels never overlap, are never cut off, and avoid curves. The newest event is placed first. If there is no room for a
label, only the line is drawn; the text is in the log.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from . import style
from .label_placement import CELL, HIGH, HINT, WORDS, LabelPlacement, pixels_of

__all__ = ["Events"]

MOST_LABELS = 6
TOGETHER = 3.0  # pixels: events nearer to each other than this are one line, with the label of the last event


class Events:
    """Event lines and labels of one axes. `above`: the labels are in the margin above the axes, in one row."""

    def __init__(self, axes: Axes, above: bool = False):
        self.axes, self.above = axes, above
        (self.lines,) = axes.plot(
            [], [], color=style.ORANGE, linestyle=(0, (1.2, 1.8)), linewidth=1.4, zorder=1.6 if above else 1.1,
            transform=axes.get_xaxis_transform(), clip_on=not above,
        )  # fmt: skip
        self.words = [
            style.write(axes, 0, 0, "", style.ORANGE, va="center", transform=axes.transAxes, zorder=6)
            for _ in range(MOST_LABELS)
        ]
        for words in self.words:
            words.set_path_effects(style.halo())

    def show(self, marks: Sequence[tuple[float, str]], room: LabelPlacement | None = None) -> None:
        """Draw the `marks` (x in data coordinates, label) that are within the limits of the axes."""
        low, high = self.axes.get_xlim()
        wide = pixels_of(self.axes)[0]
        seen = [((x - low) / (high - low) * wide, label) for x, label in marks if low <= x <= high]
        kept = [
            (x, label)
            for k, (x, label) in enumerate(seen)
            if k + 1 == len(seen) or seen[k + 1][0] - x >= TOGETHER
        ]  # fmt: skip
        at = np.repeat([low + x / wide * (high - low) for x, _ in kept], 3)
        top = 1 + 5 / pixels_of(self.axes)[1] if self.above else 1.0
        self.lines.set_data(at, np.tile([0, top, np.nan], len(kept)))
        for words in self.words:
            words.set_text("")
        newest = kept[::-1][:MOST_LABELS]
        if self.above:
            self._above_axes(newest, wide)
        elif room is not None:
            self._inside(newest, room)

    def _inside(self, newest: list[tuple[float, str]], room: LabelPlacement) -> None:
        for x, _ in newest:
            room.box(x - 1, 0, x + 1, room.high, HINT)
        for words, (x, label) in zip(self.words, newest):
            for said in dict.fromkeys((label, _shorter(label))):
                wide = style.width(said)
                sides = [x + 5] if x + 5 + wide <= room.wide else []
                sides += [x - 5 - wide] if x - 5 - wide >= 0 else []
                left, bottom, cost = room.near(wide, x, room.high, sides or [min(x + 5, room.wide - wide)])
                free = cost < HINT * HIGH / CELL  # the label does not even cover the line of another event
                if free or (cost < WORDS and said != label):
                    words.set_text(said)
                    room.put(words, left, bottom, wide)
                    break

    def _above_axes(self, newest: list[tuple[float, str]], wide: float) -> None:
        taken: list[tuple[float, float]] = []
        high = pixels_of(self.axes)[1]
        for words, (x, label) in zip(self.words, newest):
            long = style.width(label)
            for left in (x - 3, x + 3 - long):
                right = left + long
                if left >= -8 and right <= wide + 4 and all(right + 8 < a or b + 8 < left for a, b in taken):
                    words.set_text(label)
                    words.set_position((left / wide, 1 + 12 / high))
                    taken.append((left, right))
                    break


def _shorter(label: str) -> str:
    """Shorten a label for narrow axes: `w2 5x` for "w2 5x slower", `w2 1x` for "w2 normal speed"."""
    return label.replace(" slower", "").replace(" normal speed", " 1x")
