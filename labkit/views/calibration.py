"""The figure of a calibration: the distribution of gradients, and the costs of messages by their size."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from . import style
from .figures import GUTTER, TITLE_ROOM, LabFigure, blank, head

SIZE = (462, 250)  # pixels of one panel
LEFT, BELOW, RIGHT = 62, 46, 86  # pixels around the axes
LARGEST = 1e6  # bytes
Cost = Callable[[float], float]


def calibration_figure(factors: Sequence[float], send: Cost, receive: Cost, update: Cost) -> LabFigure:
    """Draw the measured times of gradients relative to their mean, and the costs of messages and updates by bytes.

    `factors`: shape (n,). The costs are functions from bytes to seconds.
    """
    figure = blank(2 * SIZE[0] + GUTTER, SIZE[1])
    wide, high = 2 * SIZE[0] + GUTTER, SIZE[1]
    for k, (title, caption) in enumerate((
        ("Time of a gradient", "share of gradients below this time"), ("Messages and updates", "processor time"),
    )):  # fmt: skip
        left = k * (SIZE[0] + GUTTER)
        head(figure, left, 0, title, caption, SIZE[0])
        box = (
            (left + LEFT) / wide,
            BELOW / high,
            (SIZE[0] - LEFT - RIGHT) / wide,
            (SIZE[1] - TITLE_ROOM - BELOW - 10) / high,
        )
        axes = style.plain_axes(figure.add_axes(box), y_ticks=5)
        if k == 0:
            values = np.sort(np.asarray(factors, dtype=float))
            axes.step(
                values, 100 * (np.arange(len(values)) + 1) / len(values), where="post", color=style.BLUE, linewidth=2
            )
            axes.axvline(1.0, color=style.GREY, linewidth=1.2, linestyle=(0, (4, 2)))
            axes.set_xlim(0, max(2.0, float(np.quantile(values, 0.99)) * 1.05))
            axes.set_ylim(0, 100)
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0f}%")
            axes.set_xlabel("time / mean", **style.text(labelpad=3))
            continue
        sizes = np.geomspace(1e3, LARGEST, 50)
        ends = []
        lines = (("send", send, style.BLUE), ("receive", receive, style.ORANGE), ("update", update, style.GREEN))
        for name, cost, colour in lines:
            microseconds = np.array([1e6 * cost(float(size)) for size in sizes])
            axes.plot(sizes / 1e3, microseconds, color=colour, linewidth=2)
            ends.append((name, float(microseconds[-1]), colour))
        axes.set_xscale("log")
        axes.minorticks_off()
        style.numbers(axes)
        axes.set_ylim(0, style.nice_above(1.05 * max(end for _, end, _ in ends)))
        axes.set_xlabel("kilobytes", **style.text(labelpad=3))
        axes.set_ylabel("microseconds", **style.text())
        top = axes.get_ylim()[1]
        for (name, _, colour), y in zip(ends, style.spread([end / top for _, end, _ in ends], 15 / 170, 0.03, 0.97)):
            style.write(
                axes, 1.03, y, name, colour, style.NORMAL, va="center", fontweight="bold", transform=axes.transAxes
            )
    return figure
