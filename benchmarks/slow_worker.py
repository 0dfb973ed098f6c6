"""The effect of a straggler (10 times slower) on each strategy: gradients per second relative to the undisturbed run.

There are three results: of a formula, in virtual time, and on a cluster of processes. On the cluster gradients are
paced to 20 ms, or to 200 ms if workers split a gradient into many small pieces, so that messages do not dominate. There
are four workers, of which worker-1 is slow. Messages take no time in the formula and in virtual time. The first third
of the run is not counted, so that the result is the steady state, after the slack of a bounded staleness is used up.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

import labkit as lk
from labkit.strategies import STRATEGIES

from .rows import Benchmark, Row, Settings

WORKERS, FACTOR, SLOW, PACE = 4, 10.0, "worker-1", 0.02  # PACE: seconds per gradient
LONG_GRADIENTS = ("tensor-parallel", "pipeline", "hybrid", "pipedream", "fsdp")  # their pieces take 1 to 15 ms of 200
N, F, M = WORKERS, FACTOR, 4  # M: micro-batches of a pipeline, the default

ALL = ("1/F: all workers wait for it", 1 / F)
FREE = ("(N-1+1/F)/N: only its own throughput falls", (N - 1 + 1 / F) / N)
NONE = ("1: a step does not wait for the last worker", 1.0)

# Command-line name: the formula in words, and its value. P: stages of a pipeline, each as long as the others.
THEORY: Mapping[str, tuple[str, float]] = {
    "sync-ps": ALL, "async-ps": FREE, "ssp": ("1/F, once it is s iterations behind", 1 / F), "backup-workers": NONE,
    "ring-all-reduce": ALL, "local-sgd": ALL, "halving-doubling": ALL, "tensor-parallel": ALL, "fsdp": ALL,
    "bucketed-all-reduce": ALL,
    "sparse-ps": ALL, "k-sync": NONE, "k-batch-sync": NONE, "k-batch-async": FREE, "easgd": FREE, "adpsgd": FREE,
    "downpour": FREE,
    "pipeline": ("(M+P-1)/(FM+1): its stage is always busy, which hides the bubble", (M + N - 1) / (F * M + 1)),
    "pipedream": ("1/F: the slowest stage limits the throughput", 1 / F),
    "hybrid": ("(M+P-1)/(FM+1), P=2, and the other replica waits", (M + 1) / (F * M + 1)),
    "k-async": ("(K+K/F)/N: one of the fast workers always waits for a second gradient", (2 + 2 / F) / N),
    "dpsgd": ("1/F: its neighbours wait for it, and their neighbours for them", 1 / F),
}  # fmt: skip


def problem_for(strategy: lk.Strategy, timing_only: bool = False) -> lk.Problem:
    """Return a problem that suits the strategy: a network with four equal layers, or clicks."""
    if strategy.suggested_problem.get("data"):
        return lk.Problem(strategy.suggested_problem["data"], batch_size=16, hidden=(16,), timing_only=timing_only)
    rng = np.random.default_rng(0)
    data = lk.from_arrays(rng.standard_normal((1600, 16)).astype("float32"), np.arange(1600) % 16)
    return lk.Problem(data, batch_size=16, hidden=(16, 16, 16), timing_only=timing_only)


def simulated(name: str, seconds: float = 20.0) -> float:
    """Return the relative throughput in virtual time."""
    strategy = STRATEGIES[name]()
    cluster = lk.SimulatedCluster(workers=WORKERS, compute=PACE)
    rates = [
        _rate(lk.train(problem_for(strategy, True), strategy, on, lk.Budget(seconds=seconds)).wait())
        for on in (cluster, replace(cluster, slow={SLOW: FACTOR}))
    ]
    return rates[1] / rates[0]


def measured(name: str, cluster: lk.DaskCluster, seconds: float) -> float:
    """Measure the relative throughput on processes, with paced gradients. Runs with long gradients take twice as long."""
    strategy, longer = STRATEGIES[name](), name in LONG_GRADIENTS
    problem, budget = problem_for(strategy), lk.Budget(seconds=seconds * (2 if longer else 1))
    rates = []
    for slow in ({}, {SLOW: FACTOR}):
        seen = cluster.resized(slow=slow, pace=PACE * (10 if longer else 1))
        with lk.train(problem, strategy, seen, budget, checkpoint=False) as run:
            rates.append(_rate(run.wait()))
    return rates[1] / rates[0]


def _rate(run: lk.Run) -> float:
    """Return gradients per second applied by shards, up to a factor that is the same for all runs of a strategy."""
    layout = run.trace.header.layout
    role, time, count = run.trace.column("applies", "role", "time", "count")
    own = layout.replication == "local"  # each replica applies its own gradients; else one shard applies all gradients
    shards = run.trace.observed if own else run.trace.observed[:1]
    rate = 0.0
    for shard in shards:
        mine = (role == shard) & (time > run.trace.now / 3)
        at, counts = time[mine], count[mine]
        if len(at) and at[-1] > at[0]:
            rate += counts[at > at[0]].sum() / (at[-1] - at[0])
    return rate


def run(settings: Settings) -> list[Row]:
    """Make three rows for every strategy."""
    rows: list[Row] = []
    seconds = float(settings.choose(6.0, 1.0))  # measured once, because all strategies take some minutes
    with lk.DaskCluster(workers=WORKERS, pace=PACE) as cluster:
        for name in STRATEGIES:
            theory = THEORY[name][1]
            rows.append(Row(name, f"theory, {THEORY[name][0]}", "share left", theory, theory, theory, 1))
            sides: dict[str, Callable[[], float]] = {
                "simulated": functools.partial(simulated, name),
                "Dask, paced": functools.partial(measured, name, cluster, seconds),
            }
            for side, measure in sides.items():
                settings.report_progress(f"{name}, {side}")
                share = measure()
                rows.append(Row(name, side, "share left", share, share, share, 1))
    return rows


NOTE = (
    "N = 4 workers, F = 10, default options. `python -m benchmarks.slow_worker_table --measure` puts the "
    "table into docs/strategies/slow_worker.md."
)
BENCHMARK = Benchmark("slow-worker", "the cost of a worker that is 10 times slower, by strategy", run, NOTE)
