"""Three figures that compare architectures: scaling, memory against traffic, and throughput by situation.

    scaling         throughput against workers, both logarithmic: dots are measured, a red line is the formula of each
    memory_traffic  bytes that a worker holds against bytes that it sends: no architecture is low in both
    ranking         a row for each situation, a dot for each strategy: its throughput relative to the best one in the row

Each function takes plain numbers, so that a notebook shows how they were measured, and returns a matplotlib `Figure`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, LogLocator

from ...errors import BadInput, shown
from ...formatting import count_text
from ...views import style
from ...views.figures import LabFigure
from .layout import LABEL, MARKER, WIDTH, axes_at, lanes, number, put, sheet

TOP, HIGH, FOOT, LEFT, NAMES = 66, 320, 52, 74, 250  # pixels
ROW, KEY = 32, 26  # pixels: a row of `ranking` whose markers are in one lane, and its key
POINTS = 200  # points per line
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
COLOURS = (style.BLUE, style.GREEN, style.INK, style.BLUE_LINE, style.ORANGE, style.FAINT, style.GREY, style.GREEN_FILL)
Formula = Callable[[Any], Any]


def scaling(
    measured: Mapping[str, Mapping[int, float]], theory: Mapping[str, Formula], title: str, *,
    ylabel: str = "gradients per second",
) -> LabFigure:  # fmt: skip
    """Draw throughput against workers on logarithmic axes: measured dots, and lines for formulas.

    The dashed grey line is linear scaling, N times the largest measured throughput per worker. Dots for the same number of
    workers that would overlap are side by side.

    Parameters
    ----------
    measured : mapping of str to mapping of int to float
        {name: {workers: throughput}}.
    theory : mapping of str to callable
        {name: formula}, for any of the names of `measured`. A formula takes the numbers of workers, float64 of shape (n,), and
        returns the throughput, of shape (n,).
    title : str
        The title.
    ylabel : str, default: "gradients per second"
        The name of the vertical axis.

    Returns
    -------
    LabFigure
        A matplotlib Figure, which a notebook shows if it is the last expression of a cell.

    Raises
    ------
    BadInput
        If the input is empty or too large, if a formula has no measurements, or if a value is not positive.

    Examples
    --------
    >>> measured = {1: 100, 2: 190, 4: 340, 8: 560}
    >>> theory = lk.lessons.fit_scalability(measured)
    >>> figure = lk.lessons.pictures.scaling({"ring": measured}, {"ring": theory}, "Throughput of a ring")
    >>> figure.savefig("scaling.png")
    """
    _check("scaling", measured, len(MARKS))
    unknown = sorted(set(theory) - set(measured))
    if unknown:
        raise BadInput(f"scaling: theory contains {shown(unknown[0])}; the names measured are {', '.join(measured)}.")
    for name, mine in measured.items():
        if not mine or not all(math.isfinite(v) and v > 0 and n >= 1 for n, v in mine.items()):
            raise BadInput(
                f"scaling: {name} needs {{workers: throughput}}, all positive and finite, not {shown(dict(mine))}."
            )
    figure = sheet(TOP + HIGH + FOOT, title, "dots = measured · red line = theory · dashed = linear scaling")
    axes = axes_at(figure, LEFT, TOP, WIDTH - LEFT - NAMES, HIGH, grid="both")
    _logarithmic(axes, measured)
    reach = np.array(
        [min(n for mine in measured.values() for n in mine), max(n for mine in measured.values() for n in mine)]
    )
    first = max(v / n for mine in measured.values() for n, v in mine.items())
    axes.plot(reach, first * reach, color=style.GREY, linewidth=1.6, linestyle=(0, (4, 2.5)), zorder=2)
    for name, formula in theory.items():
        along = np.unique(np.round(np.geomspace(min(measured[name]), max(measured[name]), POINTS)))  # integers
        axes.plot(along, formula(along), color=style.RED, linewidth=1.8, zorder=3)
    axes.set_xlabel("workers", **style.text(size=LABEL, labelpad=4))
    axes.set_ylabel(ylabel, **style.text(size=LABEL, labelpad=4))
    decade = (WIDTH - LEFT - NAMES) / math.log10(axes.get_xlim()[1] / axes.get_xlim()[0])  # pixels
    heights = {name: _heights(axes, mine) for name, mine in measured.items()}
    aside = _sideways(heights)
    ends = style.spread([mine[max(mine)] / HIGH for mine in heights.values()], 40 / HIGH, 0.05, 0.97)
    for k, (name, mine) in enumerate(measured.items()):
        x = [n * 10 ** (aside[name][n] / decade) for n in mine]
        _marks(axes, x, list(mine.values()), MARKS[k], COLOURS[k])
        n, left, middle = max(mine), WIDTH - NAMES + 20, TOP + HIGH * (1 - ends[k])
        _key(figure, left, middle - 9, MARKS[k], COLOURS[k], f"{name}: {number(mine[n])}", fontweight="bold")
        put(figure, left + 14, middle + 9, f"with {count_text(n, 'worker')}", style.GREY)
    return figure


def memory_traffic(points: Mapping[str, tuple[float, float]], title: str) -> LabFigure:
    """Draw the memory of a worker against its traffic, as a labelled dot for each architecture.

    Parameters
    ----------
    points : mapping of str to tuple of float
        {name: (bytes sent, bytes held)} of a worker. Both are drawn relative to the largest value of bytes held, which is the
        size of the model if some worker holds the whole model.
    title : str
        The title.

    Returns
    -------
    LabFigure
        A matplotlib Figure, which a notebook shows if it is the last expression of a cell.

    Raises
    ------
    BadInput
        If the input is empty or too large, or if a value is negative.

    Examples
    --------
    >>> points = {"RingAllReduce": (67e3, 38e3), "FSDP": (101e3, 9.6e3)}
    >>> figure = lk.lessons.pictures.memory_traffic(points, "FSDP trades traffic for memory")
    >>> figure.savefig("memory.png")
    """
    _check("memory_traffic", points, 12)
    if not all(math.isfinite(v) and v >= 0 for pair in points.values() for v in pair) or not max(
        h for _, h in points.values()
    ):
        raise BadInput(
            f"memory_traffic: give {{name: (bytes sent, bytes held)}}, none of them negative, not {shown(dict(points))}."
        )
    whole = max(held for _, held in points.values())
    figure = sheet(
        TOP + HIGH + FOOT,
        title,
        "one dot per strategy, per worker and for the same work · left = less traffic · low = less memory",
    )
    axes = axes_at(figure, LEFT, TOP, WIDTH - LEFT - 30, HIGH, grid="both", y_ticks=5)
    x = np.array([sent / whole for sent, _ in points.values()])
    y = np.array([held / whole for _, held in points.values()])
    axes.set_xlim(0, 1.22 * max(float(x.max()), 1e-9))
    axes.set_ylim(0, 1.12)
    _marks(axes, x, y, "o", style.BLUE)
    taken: list[tuple[float, float, float]] = []  # (left, right, height) of the names placed so far, pixels
    along, ylabel = (WIDTH - LEFT - 30) / axes.get_xlim()[1], HIGH / axes.get_ylim()[1]
    for k in np.argsort(y, kind="stable").tolist():
        name = list(points)[k]
        begin, height = along * float(x[k]) + 14, ylabel * float(y[k])
        end = begin + style.width(name, LABEL)
        while any(begin < right and left < end and abs(height - other) < 17 for left, right, other in taken):
            height += 17
        taken.append((begin, end, height))
        made = style.write(axes, begin / along, height / ylabel, name, style.INK, LABEL, va="center")
        made.set(path_effects=style.halo())
    axes.set_xlabel("bytes sent / bytes of the model", **style.text(size=LABEL, labelpad=4))
    axes.set_ylabel("bytes held / bytes of the model", **style.text(size=LABEL, labelpad=4))
    return figure


def ranking(rates: Mapping[str, Mapping[str, float]], title: str) -> LabFigure:
    """Draw the throughput of strategies in several situations, relative to the best strategy of each.

    There is one row per situation, with a dot for each strategy. Markers of a row that would overlap are one below the other.

    Parameters
    ----------
    rates : mapping of str to mapping of str to float
        {situation: {strategy: gradients per second}}. A strategy may be missing from a row.
    title : str
        The title.

    Returns
    -------
    LabFigure
        A matplotlib Figure, which a notebook shows if it is the last expression of a cell.

    Raises
    ------
    BadInput
        If the input is empty or too large, or if a row has no positive number.

    Examples
    --------
    >>> def rates(bandwidth):
    ...     cluster = lk.SimulatedCluster(workers=8, bandwidth=bandwidth)
    ...     advice = lk.advise("digits", cluster, ["sync-ps", "ring-all-reduce"])
    ...     return {row.label: row.gradients_per_second for row in advice.rows}
    >>> measured = {"1 GB/s": rates(1e9), "10 MB/s": rates(1e7)}
    >>> figure = lk.lessons.pictures.ranking(measured, "A slow link favours the ring")
    >>> figure.savefig("ranking.png")
    """
    _check("ranking", rates, 12)
    names = list(dict.fromkeys(name for row in rates.values() for name in row))
    if not 1 <= len(names) <= len(MARKS):
        raise BadInput(f"ranking: {len(names)} strategies; a figure can show 1 to {len(MARKS)}.")
    for situation, row in rates.items():
        if not row or not all(math.isfinite(v) and v >= 0 for v in row.values()) or max(row.values()) <= 0:
            raise BadInput(f"ranking: {situation} needs {{strategy: gradients per second}}, not {shown(dict(row))}.")
    left, widest = 20 + round(max(style.width(s, LABEL, bold=True) for s in rates)), 1.03
    across = (WIDTH - left - 120) / widest  # pixels
    shares = [{name: value / max(row.values()) for name, value in row.items()} for row in rates.values()]
    moves = [lanes([across * share for share in row.values()]) for row in shares]
    heights = [ROW + round(2 * max(move)) for move in moves]
    high = sum(heights)
    figure = sheet(
        TOP + KEY + high + FOOT,
        title,
        "one marker per strategy · 100% = the best of its row, with its gradients per second at the right",
    )
    axes = axes_at(figure, left, TOP + KEY, WIDTH - left - 120, high, grid="x")
    axes.set_xlim(0, widest)
    axes.set_ylim(high, 0)
    axes.xaxis.set_major_formatter(lambda v, _: f"{v:.0%}")
    middles = [sum(heights[:k]) + heights[k] / 2 for k in range(len(heights))]
    axes.yaxis.set_major_locator(FixedLocator(middles))
    axes.set_yticklabels(list(rates), **style.text(style.INK, LABEL))
    axes.tick_params(axis="y", length=0)
    for middle, height in zip(middles[1:], heights[1:]):
        axes.axhline(middle - height / 2, color=style.GRID, linewidth=1.0, zorder=1)
    for row, share, move, middle in zip(rates.values(), shares, moves, middles):
        for (name, value), down in zip(share.items(), move):
            _marks(axes, [value], [middle + down], MARKS[names.index(name)], COLOURS[names.index(name)])
        style.write(axes, 1.06, middle, f"{number(max(row.values()))} /s", style.INK, LABEL, va="center")
    x = float(left)
    for name, mark, colour in zip(names, MARKS, COLOURS):
        _key(figure, x, TOP + 8, mark, colour, name)
        x += 34 + style.width(name, LABEL)
    axes.set_xlabel("gradients per second, relative to the best", **style.text(size=LABEL, labelpad=4))
    return figure


def _check(what: str, given: Any, most: int) -> None:
    if not isinstance(given, Mapping) or not 1 <= len(given) <= most:
        raise BadInput(f"{what}: give a dictionary with 1 to {most} names, not {shown(given)}.")


def _logarithmic(axes: Axes, measured: Mapping[str, Mapping[int, float]]) -> None:
    """Make both axes logarithmic, with a tick at every power of ten and limits that contain all dots."""
    workers = [n for mine in measured.values() for n in mine]
    values = [v for mine in measured.values() for v in mine.values()]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(min(workers) / 1.3, max(workers) * 1.3)
    axes.set_ylim(min(values) / 1.6, max(values) * 1.6)
    axes.xaxis.set_major_locator(LogLocator(10, (1.0,), numticks=12))
    axes.yaxis.set_major_locator(LogLocator(10, (1.0,), numticks=12))
    style.numbers(axes)
    axes.minorticks_off()


def _heights(axes: Axes, mine: Mapping[int, float]) -> dict[int, float]:
    """Return {workers: height of the dot in pixels} on a logarithmic axis."""
    low, high = np.log10(axes.get_ylim())
    return {n: HIGH * (math.log10(value) - low) / (high - low) for n, value in mine.items()}


def _sideways(heights: Mapping[str, Mapping[int, float]]) -> dict[str, dict[int, float]]:
    """Return how far each dot is moved sideways (pixels) so that dots of the same number of workers do not overlap."""
    moved: dict[str, dict[int, float]] = {name: {} for name in heights}
    for n in {n for mine in heights.values() for n in mine}:
        here = [name for name, mine in heights.items() if n in mine]
        for name, move in zip(here, lanes([heights[name][n] for name in here])):
            moved[name][n] = move
    return moved


def _key(figure: LabFigure, left: float, top: float, mark: str, colour: str, words: str, **more: Any) -> None:
    """Draw a marker and its name. `left`, `top`: the centre of the marker, in pixels."""
    wide, high = figure.get_size_inches() * style.DPI
    axes = figure.add_axes(((left - 8) / wide, 1 - (top + 8) / high, 16 / wide, 16 / high))
    axes.set_axis_off()
    _marks(axes, [0], [0], mark, colour)
    put(figure, left + 14, top, words, style.INK, LABEL, **more)


def _marks(axes: Axes, x: Any, y: Any, mark: str, colour: str) -> None:
    axes.plot(
        x, y, mark, color=colour, markersize=MARKER, markeredgecolor=style.PAPER, markeredgewidth=1.0, linestyle="none",
        zorder=5, clip_on=False,
    )  # fmt: skip
