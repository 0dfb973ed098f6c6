"""Stragglers: the same workers, one of them slow, with and without synchronization.

One of N workers is F times slower. A gradient of the other workers takes c seconds. With synchronization, N gradients are
applied every F c seconds, so the throughput is N / (F c). Without synchronization, no worker waits, and the throughput is
(N - 1) / c + 1 / (F c). For N = 4 and F = 5, that is one fifth and four fifths of the throughput of equal workers.
"""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba

from ...errors import BadInput
from ...formatting import short, speed
from ...trace import RunOrTrace
from ...trace.index import Lookup
from ...trace.query import Cumulative, computing_since, gradient_time
from ...trace.role_states import slowdowns, slowed, workers_of
from ...trace.schema import COMPUTE, NANO
from ...trace.trace import Trace
from ...views import style
from ...views.event_labels import slow_spans
from ...views.figures import LabFigure
from ...views.timeline import shown_roles
from .layout import EDGE, LABEL, WIDTH, WORDS, axes_at, boxes, number, put, sheet, trace_of

LEFT, LONG, GAP, SIDE = 76, 650, 30, 140  # pixels: names, timeline, and the counts next to it
TOP, TITLE, ROW, FOOT = 60, 26, 25, 48
MOST_WORKERS, GRADIENTS = 8, 24  # rows, and typical gradients in a row


def straggler(synchronous: RunOrTrace, asynchronous: RunOrTrace) -> LabFigure:
    """Draw the timelines of a synchronous and an asynchronous run with the same straggler.

    At the top all workers wait for the slow worker, at the bottom no worker waits. Only the last part of both runs is shown. The
    right side and the title show the numbers of gradients applied from the slowdown to the end of the last synchronous step.

    Parameters
    ----------
    synchronous, asynchronous : Run or Trace
        Runs with the same number of workers, in which the same worker is slowed, as by `slow={"worker-2": 5}`.

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
    >>> cluster, budget = lk.SimulatedCluster(workers=4, slow={"worker-2": 5}), lk.Budget(seconds=3)
    >>> synchronous = lk.train("digits", lk.SyncPS(), cluster, budget).wait()
    >>> asynchronous = lk.train("digits", lk.AsyncPS(), cluster, budget).wait()
    >>> lk.lessons.pictures.straggler(synchronous, asynchronous).savefig("straggler.png")
    """
    pair = trace_of("straggler", synchronous), trace_of("straggler", asynchronous)
    since, until = _interval(*pair)
    window = min(until, _window(pair[1]))
    counts = [_counts(trace, since, until) for trace in pair]
    if not all(sum(each.values()) for each in counts):
        raise BadInput(
            "straggler: a run applied no gradient, or keeps totals only (record=False); let both run for seconds."
        )
    rates = [sum(each.values()) * NANO / (until - since) for each in counts]
    slow = slowed(pair[0], until) or slowed(pair[1], until)
    rows = [shown_roles(trace, until, MOST_WORKERS) for trace in pair]
    heights = [ROW * len(mine) for mine in rows]
    name = short(pair[0].roles[max(slow, key=lambda i: slow[i])]) if slow else "a worker"
    title = f"Synchronous, with straggler {name}: {number(rates[0])} gradients per second. Asynchronous: {number(rates[1])}."
    figure = sheet(TOP + sum(heights) + 2 * TITLE + GAP // 2 + FOOT, title, _key(slow))
    top, most = TOP, max(max(each.values()) for each in counts)
    for k, (trace, words) in enumerate(
        zip(pair, ("Synchronous: all wait for the straggler", "Asynchronous: no worker waits"))
    ):
        put(figure, EDGE, top + TITLE // 2, words, style.INK, LABEL, fontweight="bold")
        right = LEFT + LONG + GAP
        put(figure, right, top + TITLE // 2, f"gradients in {number((until - since) / NANO)} s", style.GREY, WORDS)
        top += TITLE
        axes = axes_at(figure, LEFT, top, LONG, heights[k], x_ticks=9)
        _timeline(axes, trace, rows[k], until - window, until, last=k == 1)
        _bars(axes_at(figure, right, top, SIDE, heights[k], grid=None), trace, rows[k], counts[k], most, until)
        top += heights[k] + GAP // 2
    return figure


def _key(slow: dict[int, float]) -> str:
    times = [speed(factor).replace("x", " times") for factor in slow.values()]
    who = f"the worker that is {times[0]}" if len(slow) == 1 else "the slowed workers"
    orange = f"orange = {who} · " if slow else ""
    return f"blue = computing a gradient · {orange}gap = waiting · green = update of the weights"


def _interval(synchronous: Trace, asynchronous: Trace) -> tuple[int, int]:
    """Return (begin, end) in ns of the interval that is counted: from the last slowdown to the end of the last
    synchronous step that is within both runs, so that a step cut off by the end of the run does not look like a loss of
    speed.
    """
    both = (synchronous, asynchronous)
    known = min(trace.watermark() for trace in both)
    since = max((time for trace in both for steps in slowdowns(trace, known).values() for time, _ in steps), default=0)
    ends = Cumulative().gross(synchronous, known - 1).time
    after = ends[ends > since]
    if not len(after) or (since and after[0] == after[-1]):
        return since, known
    return (int(after[0]) if since else 0), int(after[-1])


def _window(trace: Trace) -> int:
    """Return the length of the displayed interval in ns: about `GRADIENTS` gradients of a typical worker, rounded."""
    return max(1000, round(style.nice_above(GRADIENTS * gradient_time(trace) / NANO * 0.9) * NANO))


def _counts(trace: Trace, since: int, until: int) -> dict[int, int]:
    """Return {worker: number of its gradients applied after `since` and up to `until` ns}."""
    applied, found = Cumulative(), {}
    for role in workers_of(trace):
        when, total, _ = applied.gross(trace, until, role)
        before = int(np.searchsorted(when, since, side="right"))
        found[role] = round(float(total[-1] - (total[before - 1] if before else 0.0))) if len(when) else 0
    return found


def _timeline(axes: Axes, trace: Trace, rows: list[int], first: int, until: int, last: bool) -> None:
    axes.set_xlim(first / NANO, until / NANO)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.spines["left"].set_visible(False)
    slow, one = slowed(trace, until), len(trace.role_ids("server")) == 1
    kinds = [trace.kinds[i] for i in rows]
    names = ["server" if one and kind == "server" else short(trace.roles[i]) for i, kind in zip(rows, kinds)]
    axes.set_yticks(range(len(rows)), names)
    axes.tick_params(axis="y", length=0)
    for role, kind, label in zip(rows, kinds, axes.get_yticklabels()):
        label.set_color(style.ORANGE if role in slow else style.GREEN if kind == "server" else style.BLUE)
        label.set_fontsize(LABEL)
    if last:
        axes.set_xlabel("seconds", **style.text(size=WORDS, labelpad=3))
    else:
        axes.tick_params(axis="x", labelbottom=False)
    place = np.full(len(trace.roles), -1)
    place[rows] = np.arange(len(rows))
    lookup = Lookup()
    who, phase, start, end = lookup.spans.touching(trace, first, until).columns("role", "phase", "start", "end")
    seen = (phase == COMPUTE) & (place[who] >= 0)
    who, start, end = who[seen], start[seen], np.minimum(end[seen], until)
    late = slow_spans(trace, until, who, start)
    for which, face, edge in ((~late, style.BLUE_FILL, style.BLUE), (late, style.ORANGE_FILL, style.ORANGE)):
        boxes(axes, place[who[which]], start[which] / NANO, end[which] / NANO, face, edge)
    for busy, since in computing_since(trace, trace.watermark()).items():  # a span is recorded only when it ends
        if place[busy] >= 0 and first <= since < until:
            face = style.ORANGE_FILL if busy in slow else style.BLUE_FILL
            boxes(axes, [place[busy]], [since / NANO], [until / NANO], to_rgba(face, 0.55))
    who, time = lookup.applies.between(trace, first + 1, until).columns("role", "time")
    seen = place[who] >= 0
    at, half = time[seen] / NANO, 1.5 * (until - first) / NANO / LONG
    boxes(axes, place[who[seen]], at - half, at + half, style.GREEN, z=3)


def _bars(axes: Axes, trace: Trace, rows: list[int], counts: dict[int, int], most: int, until: int) -> None:
    """Draw the number of applied gradients of each worker."""
    axes.set_axis_off()
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, most * 1.5)
    slow = slowed(trace, until)
    for k, role in enumerate(rows):
        if role in counts:
            colour = style.ORANGE if role in slow else style.BLUE
            boxes(axes, [k], [0], [counts[role]], colour, half=0.28)
            ink = {"va": "center", "fontweight": "bold"}
            style.write(axes, counts[role] + 0.05 * most, k, f"{counts[role]:,}", colour, LABEL, **ink)


assert LEFT + LONG + GAP + SIDE <= WIDTH
