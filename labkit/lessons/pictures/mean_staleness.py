"""Mean staleness of asynchronous SGD is N - 1, also with slow workers.

While a worker computes one gradient, on average one gradient of each of the other N - 1 workers is applied. This is an
identity, not a statistical result: every update increases the staleness of all gradients in progress by one, so the sum
of the staleness does not depend on the distribution of the work. The gradients of a slow worker are staler, those of the
other workers are less stale, and the mean does not change.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ...errors import BadInput
from ...formatting import short, speed
from ...trace import RunOrTrace
from ...trace.index import Lookup
from ...trace.query import staleness
from ...trace.role_states import slowdowns, workers_of
from ...trace.schema import UNKNOWN
from ...trace.trace import Trace
from ...views import style
from ...views.event_labels import slow_spans
from ...views.figures import LabFigure
from ...views.label_placement import pixels_of
from .layout import EDGE, LABEL, WIDTH, WORDS, axes_at, put, sheet, traces_of

TOP, TITLE, HIGH, FOOT, LEFT, GAP = 62, 28, 210, 52, 62, 50  # pixels
ALL_BUT = 0.005  # share of the gradients, with the largest staleness, that is cut off at the right edge
ASIDE = 10  # pixels between a dot and its label
HEADROOM = 1.42  # above the highest bar, for the labels of the theory and the mean


def mean_staleness(runs: Mapping[int, RunOrTrace]) -> LabFigure:
    """Draw the distribution of staleness for several numbers of workers.

    In the panel of each run the theoretical mean, N - 1, is red, and the measured mean is a dot. Gradients of a slowed worker are
    orange.

    Parameters
    ----------
    runs : mapping of int to Run or Trace
        {workers: asynchronous run}, 1 to 4 runs.

    Returns
    -------
    LabFigure
        A matplotlib Figure, which a notebook shows if it is the last expression of a cell.

    Raises
    ------
    BadInput
        If the runs are not of this kind, or if a run has applied no gradient.

    Examples
    --------
    >>> clusters = {n: lk.SimulatedCluster(workers=n) for n in (2, 4)}
    >>> runs = {n: lk.train("digits", lk.AsyncPS(), clusters[n]).wait() for n in clusters}
    >>> lk.lessons.pictures.mean_staleness(runs).savefig("staleness.png")
    """
    traces = traces_of("mean_staleness", "workers", runs)
    for n, trace in traces.items():
        if len(workers_of(trace)) != n:
            raise BadInput(f"mean_staleness: the run given for {n} workers has {len(workers_of(trace))}.")
    means = {n: staleness(trace)["mean"] for n, trace in traces.items()}
    if any(mean is None or not len(_rows(traces[n])[0]) for n, mean in means.items()):
        raise BadInput("mean_staleness: a run applied no gradient, or keeps totals only (record=False).")
    *first, last = [f"{mean:.2f}" for mean in means.values()]
    listed = f"{', '.join(first)} and {last}" if first else last
    workers = ", ".join(map(str, means))
    figure = sheet(
        TOP + TITLE + HIGH + FOOT,
        f"Mean staleness is N − 1, also with a slow worker: {listed} for N = {workers}.",
        _key(traces),
    )
    right = max(_last_value(trace) for trace in traces.values())
    panels = max(2, len(traces))  # a single panel is as wide as each of two panels
    wide = (WIDTH - LEFT - EDGE - GAP * (panels - 1)) // panels
    shares = {n: _shares(trace) for n, trace in traces.items()}
    for k, (n, trace) in enumerate(traces.items()):
        left = LEFT + k * (wide + GAP)
        put(
            figure, left, TOP + TITLE // 2, f"{n} workers" if n > 1 else "1 worker", style.INK, LABEL, fontweight="bold"
        )
        axes = axes_at(figure, left, TOP + TITLE, wide, HIGH, grid="y")
        _panel(axes, shares[n], right, n, float(means[n]))
        _mark_slow_mean(axes, trace, right)
        axes.set_xlabel("updates since the weights were read", **style.text(size=WORDS, labelpad=4))
        if k == 0:
            axes.set_ylabel("share of gradients", **style.text(size=WORDS, labelpad=4))
    return figure


def _key(traces: dict[int, Trace]) -> str:
    orange = []
    for trace in traces.values():
        for role, steps in slowdowns(trace, trace.watermark()).items():
            words = f"{short(trace.roles[role])}, {speed(steps[-1][1]).replace('x', ' times')}"
            orange += [words] if words not in orange and steps[-1][1] != 1 else []
    slow = f" · orange = gradients of {orange[0]}" if orange else ""
    return f"blue = gradients by their staleness{slow} · red = theory, N − 1 · dots = measured means"


def _rows(trace: Trace) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (staleness, gradients, whether the sender was slow) of every application."""
    rows = Lookup().applies.between(trace, 0, trace.watermark())
    time, sender, stale, count = rows.columns("time", "sender", "staleness", "count")
    known = (stale != UNKNOWN) & (sender >= 0)
    time, sender, stale, count = time[known], sender[known], stale[known], count[known]
    return stale, count, slow_spans(trace, trace.watermark(), sender, time)


def _last_value(trace: Trace) -> int:
    """Return the staleness that only a share `ALL_BUT` of the gradients exceeds."""
    stale, count, _ = _rows(trace)
    return int(np.quantile(np.repeat(stale, count), 1 - ALL_BUT)) + 1


def _shares(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Return (shares of gradients of workers that are not slow, shares of gradients of slow workers) by staleness 0, 1,
    ...

    Shares are relative to all gradients.
    """
    stale, count, slow = _rows(trace)
    size = int(stale.max(initial=0)) + 1
    plain, late = (np.bincount(stale[which], count[which], minlength=size) for which in (~slow, slow))
    return plain / count.sum(), late / count.sum()


def _panel(axes: Axes, shares: tuple[np.ndarray, np.ndarray], right: int, n: int, mean: float) -> None:
    plain, late = (100 * part for part in shares)
    high = HEADROOM * float((plain + late).max())
    x = np.arange(len(plain))
    axes.bar(x, plain, 0.82, color=style.BLUE, linewidth=0, zorder=2)
    axes.bar(x, late, 0.82, bottom=plain, color=style.ORANGE, linewidth=0, zorder=2)
    axes.set_xlim(-0.8, right + 0.8)
    axes.set_ylim(0, high)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}%"))
    axes.plot([n - 1] * 2, [0, high], color=style.RED, linewidth=2.2, zorder=1.5)
    at = high * 0.8
    axes.plot(
        [mean], [at], "o", color=style.BLUE, markersize=9, markeredgecolor=style.PAPER, markeredgewidth=1.5, zorder=5
    )
    aside = ASIDE * (right + 1.6) / pixels_of(axes)[0]
    on_left = n - 1 > 0.62 * right
    x_words, align = (min(mean, n - 1) - aside, "right") if on_left else (max(mean, n - 1) + aside, "left")
    for y, words, colour in ((0.93, f"theory: N − 1 = {n - 1}", style.RED), (0.8, f"measured: {mean:.2f}", style.BLUE)):
        made = style.write(axes, x_words, high * y, words, colour, LABEL, ha=align, va="center", fontweight="bold")
        made.set(path_effects=style.halo(), zorder=6)


def _mark_slow_mean(axes: Axes, trace: Trace, right: int) -> None:
    """Mark the mean staleness of the slowed worker's gradients."""
    stale, count, slow = _rows(trace)
    if not count[slow].sum():
        return
    mean, high = float(np.average(stale[slow], weights=count[slow])), axes.get_ylim()[1]
    axes.plot([mean] * 2, [0, 0.3 * high], color=style.ORANGE, linewidth=1.6, zorder=3)
    axes.plot([mean], [0.3 * high], "o", color=style.ORANGE, markersize=7, zorder=4)
    names = {short(trace.roles[role]) for role in slowdowns(trace, trace.watermark())}
    words = f"{', '.join(sorted(names))}: {mean:.1f}"
    side, shift = ("right", -1) if mean > 0.6 * right else ("left", 1)
    x = mean + shift * ASIDE * (right + 1.6) / pixels_of(axes)[0]
    style.write(axes, x, 0.3 * high, words, style.ORANGE, LABEL, ha=side, va="center", fontweight="bold")
