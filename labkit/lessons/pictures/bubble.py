"""The pipeline bubble: the stages of a pipeline are idle while it fills and empties.

A mini-batch of M micro-batches takes M + P - 1 turns in a pipeline of P equal stages, where a turn is a forward and a
backward pass of one micro-batch. Each stage is busy for M turns. The idle share is therefore (P - 1) / (M + P - 1): 75%
for one micro-batch and four stages, and less for more micro-batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
from matplotlib.axes import Axes

from ...errors import BadInput
from ...trace import RunOrTrace
from ...trace.index import Lookup
from ...trace.passes import Passes
from ...trace.schema import COMPUTE, NANO
from ...trace.trace import Trace
from ...views import style
from ...views.figures import LabFigure
from .layout import EDGE, LABEL, WIDTH, WORDS, axes_at, boxes, put, sheet, traces_of

LEFT, LONG, GAP = 62, 612, 18  # pixels: names, timeline, and the numbers next to it
TOP, ROW, BETWEEN, FOOT = 66, 22, 22, 44
IDLE = "#f6d5d5"  # pale red: idle
HIGH = 0.44  # half the height of a row


def bubble(runs: Mapping[int, RunOrTrace]) -> LabFigure:
    """Draw the timelines of one mini-batch in a pipeline for several numbers of micro-batches.

    The last complete mini-batch of each run is shown, on a common time axis. Idle time is pale red. The measured value is the
    mean over all mini-batches except the first.

    Parameters
    ----------
    runs : mapping of int to Run or Trace
        {M: run of a pipeline with M micro-batches}, 1 to 4 runs with at least two mini-batches each.

    Returns
    -------
    LabFigure
        A matplotlib Figure, which a notebook shows if it is the last expression of a cell.

    Raises
    ------
    BadInput
        If the runs are not of this kind.

    Examples
    --------
    >>> problem, cluster = lk.Problem(hidden=(64, 64, 64)), lk.SimulatedCluster(workers=4)
    >>> def run(micro_batches):
    ...     strategy = lk.Pipeline(micro_batches=micro_batches)
    ...     return lk.train(problem, strategy, cluster, lk.Budget(updates=5)).wait()
    >>> runs = {m: run(m) for m in (1, 4)}
    >>> lk.lessons.pictures.bubble(runs).savefig("bubble.png")
    """
    traces = traces_of("bubble", "micro-batches", runs)
    steps = {m: _steps(m, trace) for m, trace in traces.items()}
    shares = {m: _idle(trace, steps[m]) for m, trace in traces.items()}
    stages = [len(trace.role_ids("worker")) for trace in traces.values()]
    longest = max(int(np.diff(ends[-2:])[0]) for ends in steps.values())
    listed = ", ".join(f"{share:.0%}" for share in shares.values())
    pieces = "1 micro-batch" if list(traces) == [1] else f"{', '.join(map(str, traces))} micro-batches"
    high = TOP + sum(ROW * count + BETWEEN for count in stages) - BETWEEN + FOOT
    below = "pale blue = forward · blue = backward · pale red = bubble, an idle stage: (P − 1)/(M + P − 1) of the time"
    figure = sheet(high, f"More micro-batches, smaller bubble: {listed} with {pieces}.", below)
    top = TOP
    for k, ((m, trace), count) in enumerate(zip(traces.items(), stages)):
        axes = axes_at(figure, LEFT, top, LONG, ROW * count, x_ticks=8)
        _timeline(axes, trace, steps[m], longest, last=k == len(traces) - 1)
        middle, right = top + ROW * count / 2, LEFT + LONG + GAP
        spent = f"{(int(steps[m][-1]) - int(steps[m][-2])) / NANO:.3g} s per mini-batch"
        put(figure, right, middle - 23, f"M = {m}", style.INK, LABEL + 1, fontweight="bold")
        put(figure, right + 78, middle - 23, spent, style.GREY, WORDS)
        put(figure, right, middle, f"measured: {100 * shares[m]:.1f}% idle", style.BLUE, LABEL, fontweight="bold")
        theory = Fraction(count - 1, m + count - 1)
        words = f"theory: {count - 1}/{m + count - 1} = {100 * float(theory):.1f}%"
        put(figure, right, middle + 22, words, style.RED, LABEL, fontweight="bold")
        top += ROW * count + BETWEEN
    return figure


def _steps(m: int, trace: Trace) -> np.ndarray:
    """Return the end of each mini-batch (ns), i.e. the time at which all stages have applied their steps."""
    role, time = Lookup().applies.between(trace, 0, trace.watermark()).columns("role", "time")
    stages = trace.role_ids("worker")
    given = trace.header.strategy.options.get("micro_batches")
    if given is None:
        raise BadInput(f"bubble: {trace.header.strategy.name} has no micro-batches; give runs of lk.Pipeline.")
    if given != m:
        raise BadInput(f"bubble: the run given for {m} micro-batches has {given}.")
    times = [time[role == stage] for stage in stages]
    count = min((len(mine) for mine in times), default=0)
    if count < 2:
        raise BadInput(f"bubble: the run with {m} micro-batches has not finished two mini-batches; give it more time.")
    return np.max([mine[:count] for mine in times], axis=0)


def _busy(trace: Trace, first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (role of the stage, start, end) of the computations in [first, last] ns."""
    rows = Lookup().spans.touching(trace, first + 1, last)
    role, phase, start, end = rows.columns("role", "phase", "start", "end")
    seen = (phase == COMPUTE) & np.isin(role, trace.role_ids("worker"))
    role, start, end = role[seen], start[seen], end[seen]
    order = np.lexsort((start, role))
    return role[order], start[order], end[order]


def _idle(trace: Trace, ends: np.ndarray) -> float:
    """Return the idle share of the stages' time, from the first step to the last."""
    first, last = int(ends[0]), int(ends[-1])
    _, start, end = _busy(trace, first, last)
    busy = int((np.minimum(end, last) - np.maximum(start, first)).sum())
    return 1.0 - busy / ((last - first) * len(trace.role_ids("worker")))


def _timeline(axes: Axes, trace: Trace, ends: np.ndarray, longest: int, last: bool) -> None:
    """Draw the last mini-batch, beginning at 0."""
    first, until = int(ends[-2]), int(ends[-1])
    stages = trace.role_ids("worker")
    axes.set_xlim(0, longest / NANO)
    axes.set_ylim(len(stages) - 0.5, -0.5)
    axes.spines["left"].set_visible(False)
    axes.set_yticks(range(len(stages)), [f"stage {k}" for k in range(len(stages))])
    axes.tick_params(axis="y", length=0)
    for label in axes.get_yticklabels():
        label.set_color(style.BLUE)
    if last:
        axes.set_xlabel("seconds since the mini-batch began", **style.text(size=WORDS, labelpad=3))
    else:
        axes.tick_params(axis="x", labelbottom=False)
    rows = np.arange(len(stages))
    boxes(axes, rows, 0 * rows, 0 * rows + (until - first) / NANO, IDLE, half=0.5, z=1.5)
    role, start, end = _busy(trace, first, until)
    whole = (start >= first) & (end <= until)
    role, start, end = role[whole], start[whole], end[whole]
    back = Passes().backward(trace, trace.watermark(), role, start, end)
    row = np.searchsorted(stages, role)
    fine = 1.0 if len(start) and np.median(end - start) * LONG > 12 * longest else 0.5
    for which, face in ((~back, style.BLUE_FILL), (back, style.BLUE_LINE)):
        x0, x1 = (start[which] - first) / NANO, (end[which] - first) / NANO
        boxes(axes, row[which], x0, x1, face, style.BLUE, half=HIGH, line=fine)
    edge = axes.axvline((until - first) / NANO, color=style.GREY, linewidth=1.2, linestyle=(0, (3, 2)), zorder=3)
    edge.set_clip_on(False)  # also at the right edge


assert LEFT + LONG + GAP + 230 <= WIDTH - EDGE
