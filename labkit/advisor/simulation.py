"""The time of a step, measured in a timing-only run in virtual time that is as long as its precision needs.

A run is advanced until one of these holds:

- its steps repeat in its newer half: the step time is exact, to `SAME`. This is the rule with constant times.
- the 95% confidence interval of the step time is narrower than `PRECISION` on either side, from the means of `BATCHES` batches
  of steps (Law and Kelton, "Simulation Modeling and Analysis", 1982).
- it has sent `MOST_MESSAGES` messages, or has as much other work. The interval is then as wide as the result says.

The first quarter is left out as transient. Every role has its own random stream, so two strategies on the same cluster have the
same times of gradients, and their order is more certain than their two intervals say. A heavy tail without a variance (Pareto
with alpha below 2) makes any interval from a finite sample too narrow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..engines.base import Cluster
from ..errors import BadInput, LabkitError
from ..problem import Problem
from ..roles.budget import Budget
from ..run import Run, train
from ..strategies import Strategy
from ..trace import Trace
from ..trace.critical_path import PathParts, critical_path
from ..trace.query import Cumulative, Series, busy_share, rows_written, staleness_between, traffic, traffic_by_node
from ..trace.role_states import workers_of
from ..trace.schema import APPLY, NANO

PRECISION = 0.02  # half-width of the confidence interval, as a share of the step time
BATCHES, QUANTILE = 20, 2.093  # batches of steps, and the 97.5% quantile of Student's t with one degree of freedom less
SAME = 1e-4  # difference of periods that repeat, as a share of the period
FEWEST_STEPS = 6  # applications of a worker's gradients: fewer do not show whether steps repeat
EXCHANGES = ("H", "tau", "n_push", "n_fetch")  # options: mini-batches between two exchanges
ENOUGH_STEPS = 50  # before an interval ends a run, because steps may yet repeat
MOST_MESSAGES = 100_000  # and twice as many spans
NEVER = 10**9  # updates between evaluations that take no time, so that they are not made
LONGEST = 1e9  # seconds of virtual time


@dataclass(frozen=True)
class Measured:
    """What a run showed. `step`: seconds of N gradients. `error`: half-width of its 95% confidence interval in seconds, 0 if the
    steps repeat exactly, infinite if the run was too short for one. `path`: the parts of the critical path. `waiting`: the share
    of time in which workers wait. `busiest`: (bytes of a step through the busiest direction of any node's link, the first role of
    the node). `updating`: (share of time, role) of the role that spends most of its time on updates. `staleness`: the mean, or
    None.
    """

    step: float
    error: float
    path: PathParts
    waiting: float
    busiest: tuple[float, str]
    updating: tuple[float, str]
    staleness: float | None
    trace: Trace


def measure(problem: Problem, strategy: Strategy, cluster: Cluster, first: float) -> Measured:
    """Measure the step time of a strategy. `first`: the seconds of virtual time to begin with.

    Raises `BadInput` if the strategy cannot run here, or applies no gradients.
    """
    if cluster.spec.costs is None and not cluster.spec.evaluation_time:
        strategy = replace(strategy, eval_every=NEVER)
    run = train(problem, strategy, cluster, Budget(seconds=LONGEST))
    counted, n, until = Cumulative(), cluster.spec.workers, first
    turns = FEWEST_STEPS * max(getattr(strategy, name, 1) for name in EXCHANGES)
    slowest = first * max([1.0, *cluster.spec.slow.values()])  # in which the slowest role, too, works a few times
    while True:
        _advance(run, until)
        trace, growth = run.trace, 2.0
        series = counted.gross(trace, trace.watermark()).instants()
        steps = _applications(trace)
        spent = max(1, rows_written(trace, "messages"), rows_written(trace, "spans") / 2) / MOST_MESSAGES
        enough = steps >= turns and until >= slowest
        kept, error = _interval(series, n) if enough or spent >= 1 else (series, math.inf)
        if error == 0.0 or until >= LONGEST or spent >= 1:
            break
        if math.isfinite(error) and (steps >= ENOUGH_STEPS or spent >= 0.1):
            wide = error / (PRECISION * _step(kept, n))
            if wide <= 1.0:
                break
            growth = min(1.1 * wide * wide, 3.0)
        until = min(until * max(1.1, min(growth, 1.05 / spent)), LONGEST)  # not far beyond the limit
    if len(kept.time) < 2:
        raise BadInput(f"it applied no gradients in {until:.3g} s of virtual time.")
    return _measured(trace, kept, error, n)


def _applications(trace: Trace) -> float:
    """Return how often a shard has applied a gradient of a worker: the median over the workers of which it has applied any.

    Before every worker had several turns, a burst of gradients may look like a steady state.
    """
    role, sender = trace.column("applies", "role", "sender")
    counts = np.unique(role * (len(trace.roles) + 1) + sender, return_counts=True)[1]
    return float(np.median(counts)) if len(counts) else 0.0


def _advance(run: Run, until: float) -> None:
    """Advance a run to `until` seconds. Raises `BadInput` with the reason if it ends before."""
    try:
        run.advance(until - run.engine.seconds)
    except BadInput:
        raise
    except LabkitError as error:
        raise BadInput(f"its simulation failed: {str(error).splitlines()[0]}") from error
    if run.done:
        why = (run.trace.ending or {}).get("why") or "its roles returned"
        raise BadInput(
            f"its simulation ended after {run.engine.seconds:.3g} s ({run.stopped_by}): {why.splitlines()[0]}"
        )


def _interval(series: Series, n: int) -> tuple[Series, float]:
    """Return the entries that count, and the half-width of the confidence interval of the step time in seconds.

    If steps repeat, these are the last whole periods, and the half-width is 0.
    """
    time, total = series.time, series.total
    if len(time) < 2:
        return series, math.inf
    period = _period(time, total)
    if period:
        first = len(time) - 1 - (len(time) // 2) // period * period
        return Series(time[first:], total[first:]), 0.0
    first = len(time) // 4
    time, total = time[first:], total[first:]
    edges = np.unique(total.searchsorted(np.linspace(total[0], total[-1], BATCHES + 1)))
    if len(edges) <= BATCHES:
        return Series(time, total), math.inf
    means = n * np.diff(time[edges]) / np.diff(total[edges]) / NANO
    return Series(time, total), float(QUANTILE * means.std(ddof=1) / math.sqrt(BATCHES))


def _period(time: np.ndarray, total: np.ndarray) -> int:
    """Return the number of entries after which the newer half repeats; or 0."""
    half, last = len(time) // 2, len(time) - 1
    for period in range(1, half // 2 + 1):
        took = time[-1] - time[last - period]
        if abs(time[half + period] - time[half] - took) > SAME * took:
            continue
        every, amounts = (all_[half + period :] - all_[half : last + 1 - period] for all_ in (time, total))
        if np.ptp(every) <= SAME * took and np.ptp(amounts) < 1e-6:
            return period
    return 0


def _step(kept: Series, n: int) -> float:
    return float(n * (kept.time[-1] - kept.time[0]) / (kept.total[-1] - kept.total[0]) / NANO)


def _measured(trace: Trace, kept: Series, error: float, n: int) -> Measured:
    window = int(kept.time[0]), int(kept.time[-1])
    step = _step(kept, n)
    _, stale, count = staleness_between(trace, window[0] + 1, window[1])
    moved = traffic_by_node(trace, traffic(trace, *window))
    role = max(moved, key=lambda one: max(moved[one]))
    busy = busy_share(trace, window, workers_of(trace))
    return Measured(
        step, error, critical_path(trace, *window), 0.0 if busy is None else 1.0 - busy,
        (max(moved[role]) * step, trace.roles[role]), _updating(trace, *window),
        float(np.average(stale, weights=count)) if len(stale) else None, trace,
    )  # fmt: skip


def _updating(trace: Trace, first: int, last: int) -> tuple[float, str]:
    """Return (share of the time from `first` to `last` ns that is spent on updates, role) of the role with the largest share."""
    role, phase, start, end = trace.column("spans", "role", "phase", "start", "end")
    took = (np.minimum(end, last) - np.maximum(start, first)).clip(0) * (phase == APPLY)
    shares = np.bincount(role, took, len(trace.roles)) / (last - first)
    return float(shares.max()), trace.roles[int(shares.argmax())]
