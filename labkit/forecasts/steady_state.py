"""The steady state of a run: a timing-only run in virtual time, as long as the precision of its throughput needs.

`advise` ranks strategies by it, and a lab draws it as the forecast of the displayed run. Its length follows from these rules:

- If steps repeat in the newer half of the run, the time of a step is exact, to `SAME`. This is so with constant times.
- Otherwise the 95% confidence interval of the time of a step is computed from the means of batches of steps (Law and Kelton,
  "Simulation Modeling and Analysis", 1982), and the run ends when it is narrow enough.
- A run ends at the latest when it has sent `MOST_MESSAGES` messages, or has as much other work. The interval is then as wide as
  `error` says.

The first quarter is left out as transient. Every role has its own random stream, so two strategies on the same cluster have the
same times of gradients, and their order is more certain than their two intervals say. If a time has no variance (Pareto with an
alpha up to 2), the interval from any finite run is too narrow.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..engines.base import Cluster
from ..engines.plan import make_plan
from ..errors import BadInput, LabkitError
from ..problem import Problem
from ..roles.budget import Budget
from ..roles.layout import Layout
from ..run import Run
from ..strategies import Strategy
from ..trace import Trace
from ..trace.query import Cumulative, Series, rows_written
from ..trace.schema import NANO

PRECISION, ROUGH = 0.02, 0.05  # half-widths of the confidence interval, as shares of the time of a step
# {batches of steps: 97.5% quantile of Student's t with one degree of freedom less}
QUANTILES = {20: 2.093, 10: 2.262}
SAME = 1e-4  # difference of periods that repeat, as a share of the period
FEWEST_STEPS = 6  # applications of a worker's gradients: fewer do not show whether steps repeat
EXCHANGES = ("H", "tau", "n_push", "n_fetch")  # options: mini-batches between two exchanges
ENOUGH_STEPS = 100  # before an interval ends a run, because steps may yet repeat
MOST_MESSAGES = 100_000  # and twice as many spans
LONG = 0.4  # share of the most work from which on workers need not have had several turns, as if an update takes 2 of 1,000
NEVER = 10**9  # updates between evaluations that take no time, so that they are not made
LONGEST = 1e9  # seconds of virtual time
DRAWS = 10_000  # durations of which the mean is taken


def timing_only(problem: Problem) -> Problem:
    """Return the problem without gradients: itself if it has none, because a new one makes its data again."""
    return problem if problem.timing_only else replace(problem, timing_only=True)


class SteadyState:
    """The steady state of a strategy on a simulated cluster, which `advance` computes.

    `step`: the seconds of N mini-batches, where N is the number of workers. `error`: the half-width of its 95% confidence
    interval in seconds; 0 if steps repeat exactly, infinite if the run is too short for one. `window`: the times (ns) of the run
    between which the step is measured. `trace`: that of the run. All are those of the run as far as it is simulated.

    Raises `BadInput` if the strategy cannot run on the cluster.
    """

    step, error, window = math.nan, math.inf, (0, 0)

    def __init__(self, problem: Problem, strategy: Strategy, cluster: Cluster):
        spec = cluster.spec
        timing = timing_only(problem)
        if spec.costs is None and not spec.evaluation_time:
            strategy = replace(strategy, eval_every=NEVER)
        plan = replace(make_plan(timing, strategy, spec, Budget(seconds=LONGEST)), ledger=False)  # it changes no time
        self._run = Run(plan, cluster.start(plan))
        batches = getattr(strategy, "accumulate", 1)  # of a gradient
        self._counted, self._gradients = Cumulative(), spec.workers / batches  # of a step
        # seconds up to which the run is simulated next, and was at the last measurement
        self._until, self._measured = batches * _few_gradients(timing, cluster), 0.0
        self._slowest = self._until * max([1.0, *spec.slow.values()])  # the slowest role, too, has worked a few times
        self._turns = FEWEST_STEPS * max(getattr(strategy, name, 1) for name in EXCHANGES)
        self._steps, self._spent = 0.0, 0.0  # applications of a worker's gradients, share of the most work

    @property
    def trace(self) -> Trace:
        """The trace of the run."""
        return self._run.trace

    @property
    def layout(self) -> Layout:
        """The layout of the run."""
        return self._run.plan.layout

    def advance(self, precision: float = PRECISION, timeout: float | None = None) -> bool:
        """Simulate until `error` is at most `precision` times the step, or the run has become too long. Return False if that
        needs more than about `timeout` wall seconds; another call continues.

        Raises `BadInput` if the run fails or ends, or if no gradients are applied.
        """
        while not self._is_known(precision):
            if self._measured == self._until:
                self._until = self._later(precision)
            _simulate(self._run, self._until, timeout)
            if self._run.engine.seconds < self._until * (1 - 1e-12) - 1e-9:  # not only rounded
                return False
            _simulate(self._run, self._until, None)  # a slice may end between two events of the same time
            self._measure()
        return True

    def _is_known(self, precision: float) -> bool:
        if self.error == 0.0 or self._spent >= 1 or self._until >= LONGEST:
            return True
        return self._has_interval and self.error <= precision * self.step

    @property
    def _has_interval(self) -> bool:
        return math.isfinite(self.error) and (self._steps >= ENOUGH_STEPS or self._spent >= 0.1)

    def _later(self, precision: float) -> float:
        """Return the time at which the interval should be narrow enough, but not far beyond the most work."""
        growth = 2.0
        if self._has_interval:
            growth = min(1.1 * (self.error / (precision * self.step)) ** 2, 3.0)
        return min(self._until * max(1.1, min(growth, 1.05 / self._spent)), LONGEST)

    def _measure(self) -> None:
        """Measure the step in the run up to now."""
        trace, n = self.trace, self._gradients
        series = self._counted.gross(trace, trace.watermark()).instants()
        self._measured, self._steps = self._until, _applications(trace)
        self._spent = max(1, rows_written(trace, "messages"), rows_written(trace, "spans") / 2) / MOST_MESSAGES
        enough = self._steps >= self._turns and self._until >= self._slowest
        kept, self.error = _interval(series, n) if enough or self._spent >= LONG else (series, math.inf)
        if len(kept.time) >= 2:
            self.window = int(kept.time[0]), int(kept.time[-1])
            self.step = float(n * (kept.time[-1] - kept.time[0]) / (kept.total[-1] - kept.total[0]) / NANO)
        elif self._spent >= 1 or self._until >= LONGEST:
            raise BadInput(f"it applied no gradients in {self._until:.3g} s of virtual time.")


def _few_gradients(problem: Problem, cluster: Cluster) -> float:
    """Return the seconds of virtual time in which a worker computes and exchanges a few gradients."""
    spec, objective = cluster.spec, problem.objective()
    known = [spec.latency, objective.size * np.dtype(objective.dtype).itemsize / spec.bandwidth, 1e-6]
    times = [each for each in (spec.compute, spec.server_time) if each is not None]
    known += [float(np.mean(each.draw(np.random.default_rng(0), DRAWS))) for each in times]
    if spec.costs is not None:
        known.append(spec.costs.gradient(objective.size, problem.batch_size))
    return 4 * max(known)


def _simulate(run: Run, until: float, timeout: float | None) -> None:
    """Advance a run to `until` seconds. Raises `BadInput` with the reason if it ends before."""
    try:
        run.advance(max(0.0, until - run.engine.seconds), timeout)
    except BadInput:
        raise
    except LabkitError as error:
        raise BadInput(f"its simulation failed: {str(error).splitlines()[0]}") from error
    if run.done:
        why = (run.trace.ending or {}).get("why") or "its roles returned"
        raise BadInput(
            f"its simulation ended after {run.engine.seconds:.3g} s ({run.stopped_by}): {why.splitlines()[0]}"
        )


def _applications(trace: Trace) -> float:
    """Return how often a shard has applied a gradient of a worker: the median over the workers of which it has applied any.

    Before every worker had several turns, a burst of gradients may look like a steady state.
    """
    role, sender = trace.column("applies", "role", "sender")
    counts = np.unique(role * (len(trace.roles) + 1) + sender, return_counts=True)[1]
    return float(np.median(counts)) if len(counts) else 0.0


def _interval(series: Series, n: float) -> tuple[Series, float]:
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
    for batches, quantile in QUANTILES.items():
        edges = np.unique(total.searchsorted(np.linspace(total[0], total[-1], batches + 1)))
        if len(edges) > batches:
            means = n * np.diff(time[edges]) / np.diff(total[edges]) / NANO
            return Series(time, total), float(quantile * means.std(ddof=1) / math.sqrt(batches))
    return Series(time, total), math.inf


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
