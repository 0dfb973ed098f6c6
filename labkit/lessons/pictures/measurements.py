"""Two general figures for lessons: `scatter` compares a measurement with a formula, and `side_by_side` shows one panel
for several runs.

A formula is drawn as a line and a measurement as dots, because a formula is defined everywhere and a measurement only at
the measured points. The first line is red. Further lines are for comparison, and are dashed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib.ticker import LogLocator

from ...errors import BadInput, shown
from ...trace import RunOrTrace
from ...views import style
from ...views.figures import EDGE, GUTTER, TITLE_ROOM, LabFigure, blank, head, place
from ...views.plots import make_panel

SIZE, LEFT, RIGHT, BELOW, ABOVE = (760, 330), 80, 22, 44, 40  # pixels
NAME = 58  # pixels from the vertical axis to its name, with room for the longest tick label
POINTS = 200  # points of a line given by a formula
# on a logarithmic axis, parts of a line that are further from the dots than this factor do not affect the limits
FAR = 10.0
Points = Mapping[float, float] | Mapping[int, float]  # {x: y}
Line = Callable[[Any], Any] | Points


def scatter(
    measured: Points, theory: Mapping[str, Line], title: str, xlabel: str, ylabel: str, *, log: str = "", caption: str = "",
) -> LabFigure:  # fmt: skip
    """Draw measurements as dots, and formulas as lines.

    Parameters
    ----------
    measured : mapping of float to float
        {x: y}. Points that are not finite are left out.
    theory : mapping of str to callable or mapping
        {name: formula, or {x: y}}. A formula takes an array of x, of shape (n,), and returns y, of shape (n,) or one number.
    title : str
        The title.
    xlabel, ylabel : str
        The names of the axes.
    log : {"", "x", "y", "xy"}, default: ""
        The logarithmic axes.
    caption : str, default: ""
        A sentence after the title.

    Returns
    -------
    LabFigure
        A matplotlib Figure, which a notebook shows if it is the last expression of a cell.

    Raises
    ------
    BadInput
        If no point is left, or if a value on a logarithmic axis is not positive.

    Examples
    --------
    >>> measured = {1: 100, 2: 190, 4: 340}
    >>> theory = {"linear": lambda n: 100 * n}
    >>> figure = lk.lessons.pictures.scatter(measured, theory, "Throughput", "workers", "gradients per second")
    >>> figure.savefig("ring.png")
    """
    if log not in ("", "x", "y", "xy"):
        raise BadInput(f"scatter: log={shown(log)} is not allowed; it is '', 'x', 'y' or 'xy'.")
    x, y = _points(measured)
    if not len(x):
        raise BadInput("scatter: no measured point is finite.")
    for axis, values in (("x", x), ("y", y)):
        if axis in log and values.min() <= 0:
            raise BadInput(
                f"scatter: {values.min():g} cannot be shown on a logarithmic axis; remove {axis!r} from log."
            )
    figure = blank(*SIZE)
    axes = style.plain_axes(figure.add_axes(_box()), x_ticks=8, y_ticks=5)
    axes.set_xscale("log" if "x" in log else "linear")
    axes.set_yscale("log" if "y" in log else "linear")
    style.numbers(axes)
    axes.set_xlabel(xlabel, **style.text(labelpad=3))
    axes.set_ylabel(ylabel, **style.text())
    axes.yaxis.set_label_coords(-NAME / (SIZE[0] - LEFT - RIGHT), 0.5)
    lines = {name: _curve(formula, x, "x" in log) for name, formula in theory.items()}
    axes.set_xlim(*_limits(x, "x" in log))
    seen = np.concatenate([y, *(_seen(line, x) for line in lines.values())])
    if "y" in log:
        seen = np.clip(seen, y.min() / FAR, y.max() * FAR)
    axes.set_ylim(*_limits(seen, "y" in log))
    for k, (along, high) in enumerate(lines.values()):
        look: dict[str, Any] = (
            {"color": style.RED, "linewidth": 2.2} if k == 0 else
            {"color": style.GREY, "linewidth": 1.6, "linestyle": (0, (4, 2.5))}
        )  # fmt: skip
        axes.plot(along, high, zorder=3 - k / 10, **look)
    axes.plot(x, y, "o", color=style.BLUE, markersize=7, markeredgecolor=style.PAPER, markeredgewidth=1.0, zorder=5)
    if "y" in log:
        decades = np.ptp(np.log10(axes.get_ylim()))
        axes.yaxis.set_major_locator(LogLocator(10, (1.0, 2.0, 5.0) if decades < 2.5 else (1.0,), numticks=8))
    if "x" in log:
        axes.set_xticks(x)
    axes.minorticks_off()
    _legend(figure, list(theory))
    head(figure, 0, 4, title, caption, SIZE[0] - GUTTER)
    return figure


def side_by_side(panel: str, runs: Mapping[str, RunOrTrace]) -> LabFigure:
    """Draw the same panel for several runs, from left to right, with separate scales.

    Parameters
    ----------
    panel : str
        The name of the panel, for example "progress".
    runs : mapping of str to Run or Trace
        {title: run}.

    Returns
    -------
    LabFigure
        A matplotlib Figure, which a notebook shows if it is the last expression of a cell.

    Raises
    ------
    BadInput
        If the panel is unknown, or if there are no runs.

    Examples
    --------
    >>> cluster = lk.SimulatedCluster(workers=4, slow={"worker-2": 5})
    >>> budget = lk.Budget(seconds=2)
    >>> runs = {f"s = {s}": lk.train("digits", lk.SSP(s=s), cluster, budget).wait() for s in (0, 10)}
    >>> lk.lessons.pictures.side_by_side("progress", runs).savefig("progress.png")
    """
    if not runs:
        raise BadInput("side_by_side: give at least one run, as {'s = 3': run}.")
    panels = [make_panel(panel) for _ in runs]
    wide, high = panels[0].size[0], panels[0].size[1] + TITLE_ROOM
    figure = blank(len(panels) * (wide + GUTTER) - GUTTER, high + 2 * EDGE)
    for k, (made, (title, run)) in enumerate(zip(panels, runs.items())):
        trace: Any = getattr(run, "trace", run)
        left = k * (wide + GUTTER)
        place(figure, made, left, EDGE, wide, high, title=True)
        made.update(trace, trace.watermark())
        head(figure, left, EDGE, title, made.caption(trace, trace.watermark()), wide)
    return figure


def _box() -> tuple[float, float, float, float]:
    """Return the position of the axes in figure coordinates."""
    wide, high = SIZE
    return LEFT / wide, BELOW / high, (wide - LEFT - RIGHT) / wide, (high - BELOW - ABOVE - 18) / high


def _points(given: Points) -> tuple[np.ndarray, np.ndarray]:
    """Return (x, y) sorted by x, without points that are not finite."""
    pairs = np.array(sorted((float(a), float(b)) for a, b in given.items()), float).reshape(-1, 2)
    pairs = pairs[np.isfinite(pairs).all(axis=1)]
    return pairs[:, 0], pairs[:, 1]


def _curve(formula: Line, x: np.ndarray, log: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return (x, y) of a line: the given points, or the formula evaluated from the first to the last dot."""
    if isinstance(formula, Mapping):
        return _points(formula)
    along = np.geomspace(x[0], x[-1], POINTS) if log else np.linspace(x[0], x[-1], POINTS)
    return along, np.broadcast_to(np.asarray(formula(along), float), along.shape)


def _seen(line: tuple[np.ndarray, np.ndarray], x: np.ndarray) -> np.ndarray:
    """Return the y values of a line within the x range of the dots."""
    inside = (line[0] >= x[0]) & (line[0] <= x[-1]) & np.isfinite(line[1])
    return line[1][inside]


def _limits(values: np.ndarray, log: bool) -> tuple[float, float]:
    """Return the limits of an axis, with a margin. They include 0 if all values are positive and not far from 0."""
    low, high = float(values.min()), float(values.max())
    if log:
        room = max(1.2, (high / low) ** 0.06)
        return low / room, high * room
    span = (high - low) or abs(high) or 1.0
    return (-0.02 * high if 0 <= low < 0.6 * high else low - 0.06 * span), high + 0.08 * span


def _legend(figure: LabFigure, names: list[str]) -> None:
    """Write the names in a row below the title, with a dot for the measurement and a line segment for each formula."""
    wide, high = SIZE
    y, x = 1 - 42 / high, 16.0
    for k, name in enumerate(["measured", *names]):
        mark, colour = ("●", style.BLUE) if k == 0 else ("—", style.RED) if k == 1 else ("- -", style.GREY)
        figure.text(x / wide, y, mark, **style.text(colour, style.NORMAL, va="center", fontweight="bold"))
        x += style.width(mark, style.NORMAL, bold=True) + 6
        figure.text(x / wide, y, name, **style.text(style.GREY, style.NORMAL, va="center"))
        x += style.width(name, style.NORMAL) + 18
