"""Probes: short runs on a cluster whose counters show what one operation costs.

Most probes are `AsyncPS` runs with one worker, one server and no evaluation, so the roles act one after the other: a cycle is one
gradient, one push, one update and one reply. Evaluations, and roles that share cores, are measured in further runs. The means
are computed from counters, between two moments of a run, so its start is not part of them. The time of receiving, which
no counter contains, is what is left of a cycle. (Benchmarks of messages alone would not do: the same code takes two to four times
as long within a run. Nor would the processor times of the system, because a role that polls uses its core.)
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...engines.base import Cluster, VirtualTimeEngine
from ...engines.distributions import Deterministic
from ...errors import ClusterError
from ...models import DataShape
from ...problem import Problem
from ...roles.budget import Budget
from ...run import Run, train
from ...strategies import AsyncPS, Strategy
from ...trace.schema import APPLY, COMPUTE, EVALUATE, SEND
from ...trace.trace import Trace
from ..steady_state import NEVER

WARM_UP_S = 0.25  # at the beginning of each run, which is not measured; in virtual time, half of a probe
LEAST_CYCLES = 5  # of one measurement, which takes longer than its share of the time if they are slow


@dataclass(frozen=True)
class Cycle:
    """The mean cycle of a worker and a server, in seconds.

    `parameters`, `samples`: the size of the network and of a batch. `size`: bytes of the gradient, and of the weights.
    `pace`: the pace of gradients (None: full speed). `total`: the whole cycle; `gradient`, `update`, `send`: its parts (`send`:
    of one message). `durations`: (start, duration) of single gradients.
    """

    parameters: int
    samples: int
    size: int
    pace: float | None
    total: float
    gradient: float
    update: float
    send: float
    durations: tuple[tuple[float, float], ...]

    @property
    def rest(self) -> float:
        """What is left of the cycle, divided by the two messages: receiving, the latency, and the delay of waking up."""
        return (self.total - self.gradient - self.update) / 2 - self.send


@dataclass(frozen=True)
class Evaluations:
    """The mean time of an evaluation in seconds, with `parameters` and `samples`."""

    parameters: int
    samples: int
    seconds: float


@dataclass(frozen=True)
class Reading:
    """Counters of a run with one worker and one server. `at`: the time (ns) of the worker's report."""

    at: int
    computed: int
    updates: int
    messages: int
    gradient: int
    update: int
    send: int
    evaluate: int
    evaluations: int

    @classmethod
    def of(cls, trace: Trace) -> Reading:
        ids = {name: i for i, name in enumerate(trace.roles)}
        worker, server, chief = (trace.counters.get(ids[name]) for name in ("worker-0", "server-0", "chief"))
        if worker is None or server is None:
            return cls(0, 0, 0, 0, 0, 0, 0, 0, 0)
        return cls(
            trace.reported_until.get(ids["worker-0"], 0), worker.computed, server.version, worker.messages,
            worker.phases[COMPUTE], server.phases[APPLY], worker.phases[SEND],
            0 if chief is None else chief.phases[EVALUATE], len(trace.column("evaluations", "time")),
        )  # fmt: skip


@dataclass(frozen=True)
class AppliedGradients:
    """The gradients that a run has applied, at `at` (ns)."""

    at: int
    gradients: int

    @classmethod
    def of(cls, trace: Trace) -> AppliedGradients:
        """Read the counters of the first role that is observed."""
        with trace.lock:
            role = trace.observed[0]
            counters = trace.counters.get(role)
            return cls(0, 0) if counters is None else cls(trace.reported_until.get(role, 0), counters.gradients)


def variants(problem: Problem) -> list[Problem]:
    """Return the problem and five variants of it: two with another batch, three with a smaller or larger network.

    A model of the user's has one size, and the three are networks of dense layers about as large. Their messages and updates are
    those of a model with as many parameters, but not their gradients.
    """
    network = problem if problem.model is None else replace(problem, model=None, hidden=(_width(problem),))
    widths = network.hidden or (64,)
    batch = problem.batch_size
    wider = tuple(2 * width for width in widths)
    return [
        problem,
        replace(problem, batch_size=max(1, batch // 4)),
        replace(problem, batch_size=batch * 4),
        replace(network, hidden=tuple(max(2, width // 4) for width in widths)),
        replace(network, hidden=wider),
        replace(network, hidden=(*wider, wider[-1])),
    ]


def _width(problem: Problem) -> int:
    """Return the width of a hidden layer with which a network has about as many parameters as the problem's model."""
    size, data = problem.objective().size, DataShape.of(problem.dataset)
    return max(2, (size - data.outputs) // (data.features + data.outputs + 1))


def probe_cycle(problem: Problem, cluster: Cluster, seconds: float, pace: float | None = None) -> Cycle:
    """Measure the cycle of one worker and one server for about `seconds`."""
    with _run(problem, cluster, AsyncPS(eval_every=NEVER), pace) as run:
        first = _read_after(run, _warm_up(run, seconds), lambda reading: reading.computed >= 2)
        last = _read_after(run, seconds, lambda reading: reading.computed >= first.computed + LEAST_CYCLES)
        durations, total = _gradients(run.trace, first.at)
    count, updates = last.computed - first.computed, last.updates - first.updates
    messages = last.messages - first.messages
    objective = problem.objective()
    return Cycle(
        objective.size, problem.batch_size, objective.size * np.dtype(objective.dtype).itemsize, pace,
        total, (last.gradient - first.gradient) / count / 1e9,
        (last.update - first.update) / max(1, updates) / 1e9, (last.send - first.send) / max(1, messages) / 1e9,
        tuple(durations),
    )  # fmt: skip


def _gradients(trace: Trace, since: int) -> tuple[list[tuple[float, float]], float]:
    """Return ((start, duration) of the recorded gradients of worker 0, the mean time from one gradient to the next), in seconds.

    At full speed not every gradient is recorded, so the mean is computed from the numbers of the first and the last one.
    """
    who, phase, start, end, step = trace.column("spans", "role", "phase", "start", "end", "step")
    mine = (who == list(trace.roles).index("worker-0")) & (phase == COMPUTE) & (start >= since)
    steps, ends = step[mine], end[mine]
    if len(steps) < 2 or steps[-1] == steps[0]:
        raise ClusterError("calibrate: too few gradients were recorded; give more seconds.")
    found = list(zip((start[mine] / 1e9).tolist(), ((end - start)[mine] / 1e9).tolist()))
    return found, float(ends[-1] - ends[0]) / float(steps[-1] - steps[0]) / 1e9


def probe_evaluations(problem: Problem, cluster: Cluster, seconds: float, pace: float) -> Evaluations | None:
    """Measure evaluations, in a run whose worker is paced and leaves the cores to the chief. None if there was none."""
    with _run(problem, cluster, AsyncPS(eval_every=1), pace) as run:
        first = _read_after(run, _warm_up(run, seconds), lambda reading: reading.evaluations > 0)
        last = _read_after(run, seconds, lambda reading: reading.evaluations > first.evaluations)
        count = last.evaluations - first.evaluations
    if count < 1:
        return None
    objective = problem.objective()
    samples = problem.dataset.n_test + problem.dataset.n_validation
    return Evaluations(objective.size, samples, (last.evaluate - first.evaluate) / count / 1e9)


def probe_sharing(
    problem: Problem, cluster: Cluster, seconds: float, workers: int, strategy: Strategy
) -> tuple[float, float]:  # fmt: skip
    """Measure a run at full speed in which roles share cores, for about `seconds`.

    Returns (gradients per second, cores that this process has used per role, which monitors the run).
    """
    used = 0.0
    with _run(problem, cluster, strategy, None, workers) as run:
        first = _read_after(run, _warm_up(run, seconds), lambda progress: progress.gradients >= 2, AppliedGradients.of)
        began = time.process_time(), time.monotonic()
        last = _read_after(
            run, seconds, lambda progress: progress.gradients >= first.gradients + LEAST_CYCLES, AppliedGradients.of
        )
        if not isinstance(run.engine, VirtualTimeEngine):
            used = (time.process_time() - began[0]) / (time.monotonic() - began[1])
        roles = len(run.trace.roles)
    return (last.gradients - first.gradients) / (last.at - first.at) * 1e9, used / roles


def _run(problem: Problem, cluster: Cluster, strategy: Strategy, pace: float | None, workers: int = 1) -> Run:
    spec = replace(
        cluster.spec, workers=workers, servers=1 if strategy.uses_servers else None, replicas=0, max_workers=None, slow={},
        compute=None if pace is None else Deterministic(pace), server_time=None, record=True,
    )  # fmt: skip
    return train(problem, strategy, cluster.with_spec(spec), Budget(updates=10**9), checkpoint=False)


def _warm_up(run: Run, seconds: float) -> float:
    return seconds / 2 if isinstance(run.engine, VirtualTimeEngine) else WARM_UP_S


def _read_after(
    run: Run, seconds: float, enough: Callable[[Any], bool], read: Callable[[Trace], Any] = Reading.of
) -> Any:  # fmt: skip
    """Let the run continue for `seconds`, longer if there is not enough to `read`, and return what is read from its trace."""
    limit = max(60.0, 20 * seconds)
    if isinstance(run.engine, VirtualTimeEngine):
        until = run.engine.seconds + limit
        run.advance(seconds)
        while not enough(read(run.trace)) and run.engine.seconds < until:
            run.advance(seconds)
        return read(run.trace)
    began = time.monotonic()
    while True:
        found = read(run.trace)
        passed = time.monotonic() - began
        if passed >= seconds and enough(found):
            return found
        if run.done:
            run.wait()
        if passed > limit:
            raise ClusterError(
                f"calibrate: no gradient was applied within {limit:g} s; the cluster is too slow to be measured."
            )
        time.sleep(min(0.05, seconds / 4))


def mean_cycle(cycles: Sequence[Cycle]) -> Cycle:
    """Return the means of repeated probes of the same kind. (Medians of few probes would leave out the times in which a core is
    slow, which are part of long runs.)
    """
    first = cycles[0]
    names = ("total", "gradient", "update", "send")
    means: dict[str, Any] = {name: statistics.fmean(getattr(cycle, name) for cycle in cycles) for name in names}
    return replace(first, durations=(), **means)
