"""Communication behind the backward pass: steps of `BucketedAllReduce` with one bucket for the whole model, and with buckets.

Paced, with limited bandwidth: a gradient takes `PACE` seconds, and the all-reduce of the model as long as its backward pass. How
much shorter a step with buckets is then, is known from virtual time, with the same limit and pace; the last row is the share of
this gain that processes have. The pace is long, because each of a step's messages may come some milliseconds late on a machine
with other load. At full speed through shared memory nothing is expected: there communication is work of the processor, too.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

import labkit as lk

from .rows import Benchmark, Row, Settings, Side, Values, alternate

WORKERS, PACE, BACKWARD = 2, 0.5, 2 / 3  # PACE: seconds of a gradient. BACKWARD: the share of the backward pass
ONE, BUCKETS = "one bucket", "buckets"
SIDES = {  # without evaluations
    ONE: lk.BucketedAllReduce(bucket_size=10**12, eval_every=10**6),
    BUCKETS: lk.BucketedAllReduce(eval_every=10**6),
}
UNIT = "ms/step"
REPETITIONS = 10
SKIPPED = 4  # the first steps of a run, in which connections are opened


def run(settings: Settings) -> list[Row]:
    """Measure both sides in turns: paced, then at full speed."""
    repetitions, pace = int(settings.choose(REPETITIONS, 1)), settings.choose(PACE, 0.02)
    problem, steps = lk.Problem("digits", hidden=(64,) * 4), int(settings.choose(24, 8))
    limit = limit_for(problem, pace)
    name = f"gradients of {1000 * pace:g} ms, bandwidth {limit.bandwidth:,.0f} bytes/s"
    expected = expectation(problem, pace, limit)
    rows = [Row(name, f"{side}, virtual time", UNIT, value, value, value, 1) for side, value in expected.items()]
    with lk.DaskCluster(workers=WORKERS, pace=lk.distributions.Deterministic(pace)).open() as cluster:
        rows += _measured(settings, name, cluster, problem, steps, repetitions, limit)
    rows.append(share_of_gain(rows[-1], expected[BUCKETS] / expected[ONE]))
    problem, steps = lk.Problem("digits", hidden=(256,) * 4), int(settings.choose(100, 8))
    with lk.DaskCluster(workers=WORKERS).open() as cluster:
        rows += _measured(settings, "full speed, 64-256-256-256-256-10", cluster, problem, steps, repetitions)
    return rows


def limit_for(problem: lk.Problem, pace: float) -> lk.Limit:
    """Return the bandwidth of workers with which the all-reduce of the model takes as long as the backward pass."""
    objective = problem.objective()
    sent = 2 * (WORKERS - 1) / WORKERS * objective.size * objective.dtype.itemsize
    return lk.Limit("worker", sent / (BACKWARD * pace))


def expectation(problem: lk.Problem, pace: float, limit: lk.Limit) -> dict[str, float]:
    """Return {side: milliseconds of a step} in virtual time."""
    cluster = lk.SimulatedCluster(workers=WORKERS, compute=pace)
    timing = replace(problem, timing_only=True)
    return {
        side: step_ms(lk.train(timing, strategy, cluster, lk.Budget(updates=24), faults=limit).wait())
        for side, strategy in SIDES.items()
    }


def share_of_gain(ratio: Row, expected: float) -> Row:
    """Return the share of the expected gain. `ratio`: of the times of a step, measured in turns; `expected`: in virtual time."""
    assert ratio.median is not None
    assert ratio.low is not None
    assert ratio.high is not None
    middle, least, most = ((1 - value) / (1 - expected) for value in (ratio.median, ratio.high, ratio.low))
    return replace(ratio, side="gain, relative to virtual time", median=middle, low=least, high=most)


def step_ms(run: lk.Run) -> float:
    """Return the mean milliseconds of a step of worker-0."""
    role, time = run.trace.column("applies", "role", "time")
    ends = np.sort(time[role == run.trace.role_ids("worker")[0]])[SKIPPED:]
    return float(ends[-1] - ends[0]) / (len(ends) - 1) / 1e6


def _measured(
    settings: Settings, name: str, cluster: lk.DaskCluster, problem: lk.Problem, steps: int, repetitions: int,
    limit: lk.Limit | None = None,
) -> list[Row]:  # fmt: skip
    def measure(strategy: lk.Strategy) -> Values:
        faults = () if limit is None else limit
        with lk.train(problem, strategy, cluster, lk.Budget(updates=steps), faults=faults, checkpoint=False) as run:
            return {(name, UNIT): step_ms(run.wait())}

    sides = [Side(side, functools.partial(measure, strategy)) for side, strategy in SIDES.items()]
    return alternate(settings, name, sides, ONE, repetitions=repetitions)


BENCHMARK = Benchmark(
    "overlap",
    "communication during the backward pass: BucketedAllReduce with buckets and with one, two workers",
    run,
    "Medians of ten turns, in each of which both sides were measured; paced runs have 24 steps.",
)
