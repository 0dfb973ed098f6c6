"""Events on time axes: a dotted orange line for each command or fault, with a short label.

Labels never overlap, are never cut off, and avoid curves. The newest event is placed first. If there is no room for a
label, only the line is drawn; the text is in the log. If there are many events, those that are near to each other are a group:
one thin line with the label of the last event and the number of the others, which have a short mark at the top.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from . import style
from .label_placement import CELL, HIGH, HINT, WORDS, LabelPlacement, pixels_of

MOST_LABELS = 6
TOGETHER = 3.0  # pixels: events nearer to each other than this are one line, with the label of the last event
GROUP = 36.0  # pixels: largest width of a group, if there are more than `MOST_LABELS` events
MARK = 6.0  # pixels: height of the mark of an event in a group
WIDE, THIN = 1.4, 0.9  # points: of a line, and of one among many


class Events:
    """Event lines and labels of one axes. `above`: the labels are in the margin above the axes, in one row."""

    def __init__(self, axes: Axes, above: bool = False):
        self.axes, self.above = axes, above
        (self.lines,) = axes.plot(
            [], [], color=style.ORANGE, linestyle=(0, (1.2, 1.8)), linewidth=WIDE, zorder=1.6 if above else 1.1,
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
        many = len(kept) > MOST_LABELS and not self.above
        groups = _groups(kept) if many else [[mark] for mark in kept]
        tall = pixels_of(self.axes)[1]
        top = 1 + 5 / tall if self.above else 1.0
        at = np.repeat([low + x / wide * (high - low) for group in groups for x, _ in group], 3)
        ends = [(0.0 if mark is group[-1] else top - MARK / tall, top, np.nan) for group in groups for mark in group]
        self.lines.set_data(at, np.array(ends).ravel())
        self.lines.set_linewidth(THIN if many else WIDE)
        kept = [(group[-1][0], group[-1][1] + (f" +{len(group) - 1}" if len(group) > 1 else "")) for group in groups]
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


def _groups(marks: Sequence[tuple[float, str]]) -> list[list[tuple[float, str]]]:
    """Return the marks (x in pixels, label) in groups that are at most `GROUP` wide."""
    found: list[list[tuple[float, str]]] = []
    for mark in marks:
        if found and mark[0] - found[-1][0][0] <= GROUP:
            found[-1].append(mark)
        else:
            found.append([mark])
    return found


def _shorter(label: str) -> str:
    """Shorten a label for narrow axes: `w2 5x` for "w2 5x slower", `w2 1x` for "w2 normal speed"."""
    return label.replace(" slower", "").replace(" normal speed", " 1x")
