"""Divergence with stale gradients: two runs with the same start and the same staleness, but different rates.

On the loss f = w^2 lambda / 2, with gradients computed tau updates ago, the weight is w(k+1) = w(k) - a w(k - tau), with
a = rate x lambda. It converges if and only if a < 2 sin(pi / (2 (2 tau + 1))), the edge of stability. The point (w(k -
tau), w(k)), i.e. (weight at which the gradient was computed, weight at which it is applied), moves along a spiral:
inwards below the edge, outwards above the edge. At the edge one round takes 2 (2 tau + 1) updates, so tau is about a
quarter of a round, and the orbit is a circle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator
from numpy.typing import ArrayLike

from ...errors import BadInput
from ...trace import RunOrTrace
from ...trace.query import learning_curve
from ...trace.trace import Trace
from ...views import style
from ...views.figures import LabFigure
from ...views.label_placement import pixels_of
from ...views.stability import StabilityPoint, edge, locate_run
from .layout import EDGE, LABEL, WIDTH, WORDS, axes_at, number, put, sheet, trace_of

TOP, TITLE, SIDE, FOOT, LEFT, GAP = 62, 28, 246, 52, 62, 66  # pixels
FRAME = 1.15  # half the width of the frame, relative to the largest weight shown
FAR = 2.4  # maximum distance at which the diverging run is drawn, relative to that of the start


def divergence(inside: RunOrTrace, outside: RunOrTrace, paths: Sequence[ArrayLike] | None = None) -> LabFigure:
    """Draw two asynchronous runs on a quadratic loss, one on each side of the edge of stability.

    Their positions relative to the edge are drawn beside.

    Parameters
    ----------
    inside, outside : Run or Trace
        Runs of `Problem("quadratic")`.
    paths : sequence of two array_like, optional
        For each run, its weight at the start and after every update, float of shape (updates + 1,) or (updates + 1, 1). By
        default the loss is drawn instead.

    Returns
    -------
    LabFigure
        A matplotlib Figure, which a notebook shows if it is the last expression of a cell.

    Raises
    ------
    BadInput
        If the problem or a shape is not as described.

    Notes
    -----
    Runs do not store their weights. They can be recorded by stepping through a simulated run that evaluates every update. The
    server time must not be zero, so that no two updates coincide.

    Examples
    --------
    >>> cluster = lk.SimulatedCluster(workers=8, compute=0.1, server_time=0.001)
    >>> runs, paths = [], []
    >>> for rate in (0.15, 0.25):
    ...     strategy = lk.AsyncPS(learning_rate=rate, eval_every=1)
    ...     run = lk.train("quadratic", strategy, cluster, lk.Budget(updates=50))
    ...     runs.append(run)
    ...     weights = [run.step().result().parameters[0] for _ in range(50)]
    ...     paths.append([1.0, *weights])  # the weight starts at 1
    >>> lk.lessons.pictures.divergence(*runs, paths=paths).savefig("divergence.png")
    """
    traces = trace_of("divergence", inside), trace_of("divergence", outside)
    places = [_place(trace) for trace in traces]
    high = TOP + TITLE + SIDE + FOOT
    figure = sheet(high, _title(places), _key(paths is not None))
    right = LEFT + 2 * SIDE + 2 * GAP
    if paths is None:
        axes = axes_at(figure, LEFT, TOP + TITLE, 2 * SIDE + GAP - 90, SIDE, grid="both", y_ticks=5)
        put(figure, LEFT, TOP + TITLE // 2, "Loss after every update", style.INK, LABEL, fontweight="bold")
        _losses(axes, traces, places)
    else:
        weights = [_path(path) for path in _check_paths(paths)]
        for k, (place, w) in enumerate(zip(places, weights)):
            left = LEFT + k * (SIDE + GAP)
            words = f"Rate {number(place.rate)}: " + ("converges" if place.stable else "diverges")
            put(figure, left, TOP + TITLE // 2, words, _colour(place), LABEL, fontweight="bold")
            _spiral(axes_at(figure, left, TOP + TITLE, SIDE, SIDE, grid="both", x_ticks=5, y_ticks=5), place, w)
    put(figure, right, TOP + TITLE // 2, "Edge of stability", style.INK, LABEL, fontweight="bold")
    _edge(axes_at(figure, right, TOP + TITLE, WIDTH - EDGE - right, SIDE, grid="both"), places)
    return figure


def _place(trace: Trace) -> StabilityPoint:
    place = locate_run(trace, trace.watermark())
    if place is None:
        raise BadInput("divergence: a run has applied no gradient; let both run for a few seconds.")
    if place.product is None:
        raise BadInput("divergence: the curvature must be known; give runs of lk.Problem('quadratic').")
    return place


def _colour(place: StabilityPoint) -> str:
    return style.BLUE if place.stable else style.RED


def _title(places: list[StabilityPoint]) -> str:
    verdicts = ["converges" if place.stable else "diverges" for place in places]
    products, taus = [number(float(p.product or 0)) for p in places], [number(p.tau) for p in places]
    if taus[0] == taus[1]:
        where = f"At staleness {taus[0]} the edge of stability is {number(float(edge(places[0].tau)))}: "
        return where + ", ".join(f"{product} {verdict}" for product, verdict in zip(products, verdicts)) + "."
    each = (f"{product} at staleness {tau} {verdict}" for product, tau, verdict in zip(products, taus, verdicts))
    return f"A high rate with stale gradients diverges: {', '.join(each)}."


def _key(spirals: bool) -> str:
    way = (
        "one dot per update, from pale to dark · dashed = distance of the start"
        if spirals
        else "blue = stable, red = unstable"
    )
    return f"{way} · red line = edge of stability, 2 sin(π / (2 (2τ + 1)))"


def _check_paths(paths: Any) -> Sequence[Any]:
    if isinstance(paths, (str, bytes)) or not hasattr(paths, "__len__") or len(paths) != 2:
        raise BadInput("divergence: paths are two lists, the weights of the first run and those of the second.")
    return paths  # type: ignore[no-any-return]


def _path(path: Any) -> np.ndarray:
    w = np.asarray(path, dtype=float)
    w = w[:, 0] if w.ndim == 2 and w.shape[1] == 1 else w
    if w.ndim != 1 or len(w) < 4:
        raise BadInput(
            f"divergence: a path is one weight after every update, at least 4, not an array of shape {w.shape}."
        )
    return w


def _spiral(axes: Axes, place: StabilityPoint, w: np.ndarray) -> None:
    """Draw the points (weight at which a gradient was computed, weight at which it is applied), until they leave the
    frame.
    """
    late = max(1, round(place.tau))
    x, y = np.r_[np.full(late, w[0]), w][: len(w)], w  # the first gradients are computed at the start
    begun = float(np.hypot(x[0], y[0]))
    reach = FRAME * min(max(float(np.nanmax(np.abs(w))), begun), FAR * begun)
    gone = np.flatnonzero(~(np.maximum(np.abs(x), np.abs(y)) <= reach))
    end = int(gone[0]) + 1 if len(gone) else len(x)
    x, y, colour = x[:end], y[:end], _colour(place)
    axes.set_xlim(-reach, reach)
    axes.set_ylim(-reach, reach)
    for line in (axes.axhline, axes.axvline):
        line(0, color=style.FAINT, linewidth=1.0, zorder=1)
    turn = np.linspace(0, 2 * np.pi, 100)
    axes.plot(
        begun * np.cos(turn), begun * np.sin(turn), color=style.GREY, linewidth=1.3, linestyle=(0, (4, 2.5)), zorder=1
    )
    axes.plot(x, y, color=colour, linewidth=1.2, alpha=0.55, zorder=2)
    dots = np.tile(to_rgba(colour), (len(x), 1))
    dots[:, 3] = np.linspace(0.3, 1.0, len(x))
    axes.scatter(x, y, s=14, c=dots, linewidths=0, zorder=3)
    axes.plot(
        x[:1], y[:1], "o", markersize=8, color=style.PAPER, markeredgecolor=style.INK, markeredgewidth=1.6, zorder=5
    )
    axes.plot([0], [0], "+", markersize=11, color=style.INK, markeredgewidth=1.6, zorder=5)
    axes.set_xlabel(f"weight {late} updates ago", **style.text(size=WORDS, labelpad=4))
    axes.set_ylabel("weight now", **style.text(size=WORDS, labelpad=1))
    made = style.write(axes, x[0] - 0.08 * reach, y[0], "start", style.INK, WORDS, ha="right", va="center")
    made.set(path_effects=style.halo(), zorder=4)


def _losses(axes: Axes, traces: Sequence[Trace], places: list[StabilityPoint]) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(10, (1.0,), numticks=7))
    lasts = []
    for trace, place in zip(traces, places):
        update, loss = learning_curve(trace, trace.watermark(), "loss", "updates")
        seen = loss > 0
        axes.plot(update[seen], loss[seen], color=_colour(place), linewidth=1.8, zorder=3)
        words, late = f"rate {number(place.rate)}", loss[seen][-len(loss) // 6 :]
        if len(late):
            lasts.append(float(late.max()))
            at = {"transform": axes.get_yaxis_transform(), "fontweight": "bold"}
            style.write(axes, 1.02, float(late.max()), words, _colour(place), LABEL, va="center", **at)
    if lasts:
        axes.set_ylim(bottom=0.03 * min(lasts))
    axes.yaxis.set_major_formatter(FuncFormatter(_power))
    axes.set_xlabel("updates", **style.text(size=WORDS, labelpad=4))


def _power(value: float, _: Any = None) -> str:
    """Return the text of a tick: 0.01, 1, 1,000, or 10⁻⁷ if the number would be long."""
    exponent = round(np.log10(value)) if value > 0 else 0
    raised = f"10{str(exponent).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
    return style.plain(value) if -4 <= exponent <= 3 else raised


def _edge(axes: Axes, places: list[StabilityPoint]) -> None:
    """Draw the edge of stability and the positions of both runs."""
    products = [float(place.product or 0.0) for place in places]
    right = style.nice_above(max(6.0, 1.6 * max(place.tau for place in places)))
    tau = np.linspace(0, right, 200)
    low, high = min(0.4 * float(edge(right)), 0.5 * min(products)), max(3.0, 2.2 * max(products))
    axes.set_yscale("log")
    axes.set_xlim(-0.02 * right, right)
    axes.set_ylim(low, high)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_locator(FixedLocator([0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10]))
    style.numbers(axes)
    axes.fill_between(tau, low, edge(tau), color=style.BLUE_MIST, linewidth=0, zorder=1)
    axes.plot(tau, edge(tau), color=style.RED, linewidth=2.4, zorder=3)
    for place, product in zip(places, products):
        axes.plot([place.tau], [product], "o", color=_colour(place), markersize=11, markeredgecolor=style.PAPER,
                  markeredgewidth=1.5, zorder=5)  # fmt: skip
        words, pixel = f"rate {number(place.rate)}", right / pixels_of(axes)[0]
        wide = style.width(words, LABEL, bold=True) * pixel
        x, y = place.tau + 12 * pixel, product
        if place.stable:  # the edge decreases, so the text is on the left, or below if there is no room
            x, y = place.tau - 12 * pixel - wide, product
            if x < 6 * pixel:
                x, y = max(6 * pixel, place.tau - wide / 2), product * (low / high) ** (19 / SIDE)
        made = style.write(axes, x, y, words, _colour(place), LABEL, va="center", fontweight="bold")
        made.set(path_effects=style.halo(), zorder=6)
    inside = {"transform": axes.transAxes, "fontweight": "bold"}
    style.write(axes, 0.04, 0.06, "converges", style.BLUE, LABEL, va="bottom", **inside)
    style.write(axes, 0.96, 0.93, "diverges", style.RED, LABEL, ha="right", va="top", **inside)
    axes.set_xlabel("staleness τ, in updates", **style.text(size=WORDS, labelpad=4))
    axes.set_ylabel("rate × curvature", **style.text(size=WORDS, labelpad=2))
