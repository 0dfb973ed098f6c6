"""Step times as bars, split into computing, updates, latency and transfer, each with its explanation below."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from . import style
from .figures import LabFigure, blank, head

# label, seconds of each of `PARTS`, texts below the bar, the sum as text, whether it fits into memory
Line = tuple[str, tuple[float, ...], tuple[str, ...], str, bool]
WIDTH, TOP, FOOT = 940, 92, 42  # pixels
BAR, WORDS, BETWEEN = 24, 15, 10  # pixels: the height of a bar with its margin, of a line of text, and below it
LEFT, RIGHT = 190, 90  # room for the names, and for the sums
PARTS = (
    ("computing", style.BLUE), ("updates", style.ORANGE), ("latency", style.FAINT), ("transfer", style.GREEN),
    ("waiting", style.GREY),
)  # fmt: skip
SMALLEST = 8.5  # points


def bars(lines: Sequence[Line], facts: str, legend: str = "", doubts: Sequence[str] = ()) -> LabFigure:
    """Draw one bar per line, in the given order, with its texts below it.

    `facts`, `legend`: a sentence each, below the title. `doubts`: written below the bars. A bar is cut off if it is more than
    four times as long as the median.
    """
    below = [text for doubt in doubts for text in style.wrapped(f"Doubtful: {doubt}.", WIDTH - 16, style.SMALL)]
    foot = FOOT + WORDS * len(below)
    texts_below = [[one for text in line[2] for one in wrapped(text, WIDTH - LEFT - 12)] for line in lines]
    tops = list(itertools.accumulate((BAR + WORDS * len(each) + BETWEEN for each in texts_below), initial=0))
    height = TOP + tops[-1] + foot
    figure = blank(WIDTH, height)
    box = (LEFT / WIDTH, foot / height, (WIDTH - LEFT - RIGHT) / WIDTH, tops[-1] / height)
    axes = style.plain_axes(figure.add_axes(box), grid="x")
    sums = [sum(line[1]) for line in lines]
    middle = sorted(sums)[len(sums) // 2]
    most = style.nice_above(min(max(sums), 4 * middle) * 1000)
    axes.set_xlim(0, most)
    axes.set_ylim(tops[-1], 0)
    axes.set_yticks([])
    axes.set_xlabel("milliseconds per step", **style.text())
    for i, (label, seconds, _, total, fits) in enumerate(lines):
        start, y = 0.0, tops[i] + BAR / 2
        for (_, colour), part in zip(PARTS, seconds):
            shown = min(1000 * part, most - start)
            axes.barh(y, shown, 17, left=start, color=colour, alpha=1.0 if fits else 0.35, linewidth=0)
            start += shown
        ink = style.INK if fits else style.GREY
        style.write(
            axes, -0.012, y, label, ink, style.NORMAL, ha="right", va="center", transform=axes.get_yaxis_transform()
        )
        far = f"{total}{'' if fits else ', too large'}" + (" →" if 1000 * sums[i] > most * 1.0001 else "")
        sum_text = style.write(axes, start + most * 0.008, y, far, ink, style.NORMAL, va="center", fontweight="bold")
        texts = [
            style.write(axes, most * 0.004, tops[i] + BAR + WORDS * (k + 0.5), text, style.GREY, SMALLEST, va="center")
            for k, text in enumerate(texts_below[i])
        ]
        for text in (sum_text, *texts):
            text.set(path_effects=style.halo())  # the grid does not cross a text
    head(figure, 0, 4, "Simulated time of a step", "fastest first; statistical efficiency is not included")
    for top, words in ((36, facts), (54, legend)):
        figure.text(8 / WIDTH, 1 - top / height, words, **style.text(style.GREY, style.SMALL, va="center"))
    for i, words in enumerate(reversed(below)):
        figure.text(8 / WIDTH, WORDS * (i + 0.5) / height, words, **style.text(style.RED, style.SMALL, va="center"))
    at = LEFT / WIDTH
    for name, colour in PARTS:
        figure.text(at, 1 - 76 / height, "■ " + name, **style.text(colour, style.NORMAL, va="center"))
        at += (34 + 7.2 * len(name)) / WIDTH
    return figure


def wrapped(formula: str, room: float) -> list[str]:
    """Return a formula as lines of at most `room` pixels. A formula that does not fit into one line is divided between its
    symbols and its values (at a colon or an equals sign) if these fit into a line each, otherwise between words.
    """
    if style.width(formula, SMALLEST) <= room:
        return [formula]
    for mark, begin in ((": ", ""), (" = ", "= ")):
        symbols, found, values = formula.partition(mark)
        halves = [symbols if begin else symbols + ":", begin + values]
        if found and all(style.width(half, SMALLEST) <= room for half in halves):
            return halves
    return style.wrapped(formula, room, SMALLEST)
