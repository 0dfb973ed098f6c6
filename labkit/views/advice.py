"""Predicted step times as bars, split into computing, latency and transfer, each with its formula below."""

from __future__ import annotations

from collections.abc import Sequence

from . import style
from .figures import LabFigure, blank, head

__all__ = ["Line", "bars"]

# label, seconds of computing, latency and transfer, the formula, the sum as text, whether it fits into memory
Line = tuple[str, float, float, float, str, str, bool]
WIDTH, TOP, ROW, FOOT = 940, 76, 40, 42  # pixels
LEFT, RIGHT = 190, 90  # room for the names, and for the sums
PARTS = (("compute and waiting", style.BLUE), ("latency", style.FAINT), ("transfer", style.GREEN))
LETTERS, SMALLEST = 124, 8.0  # letters of a formula that fit into a line; points


def bars(lines: Sequence[Line], facts: str) -> LabFigure:
    """Draw one bar per line, in the given order. `facts`: a sentence below the title.

    A bar is cut off if it is more than four times as long as the median.
    """
    height = TOP + ROW * len(lines) + FOOT
    figure = blank(WIDTH, height)
    box = (LEFT / WIDTH, FOOT / height, (WIDTH - LEFT - RIGHT) / WIDTH, ROW * len(lines) / height)
    axes = style.plain_axes(figure.add_axes(box), grid="x")
    sums = [sum(line[1:4]) for line in lines]
    middle = sorted(sums)[len(sums) // 2]
    most = style.nice_above(min(max(sums), 4 * middle) * 1000)
    axes.set_xlim(0, most)
    axes.set_ylim(len(lines), 0)
    axes.set_yticks([])
    axes.set_xlabel("milliseconds per step", **style.text())
    for i, (label, *seconds, formula, total, fits) in enumerate(lines):
        start, y = 0.0, i + 0.3
        for (_, colour), part in zip(PARTS, seconds):
            shown = min(1000 * part, most - start)
            axes.barh(y, shown, 0.42, left=start, color=colour, alpha=1.0 if fits else 0.35, linewidth=0)
            start += shown
        ink = style.INK if fits else style.GREY
        style.write(
            axes, -0.012, y, label, ink, style.NORMAL, ha="right", va="center", transform=axes.get_yaxis_transform()
        )
        far = f"{total}{'' if fits else ', too large'}" + (" →" if 1000 * sums[i] > most * 1.0001 else "")
        style.write(axes, start + most * 0.008, y, far, ink, style.NORMAL, va="center", fontweight="bold")
        cut = formula if len(formula) <= LETTERS else formula[: LETTERS - 1] + "…"
        style.write(axes, most * 0.004, i + 0.7, cut, style.GREY, SMALLEST, va="center")
    head(figure, 0, 4, "Predicted time of a step", "fastest first; statistical efficiency is not included")
    figure.text(8 / WIDTH, 1 - 36 / height, facts, **style.text(style.GREY, style.SMALL, va="center"))
    at = LEFT / WIDTH
    for name, colour in PARTS:
        figure.text(at, 1 - 60 / height, "■ " + name, **style.text(colour, style.NORMAL, va="center"))
        at += (34 + 7.2 * len(name)) / WIDTH
    return figure
