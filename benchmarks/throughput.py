"""Gradients per second: labkit on a cluster of processes, a single NumPy process, and other systems.

All sides do the same work per gradient: the same network with the same initial weights, mini-batches of 32 digits, SGD,
and one thread of linear algebra in every process. Gradients are not paced, and labkit records. labkit's cluster stays
up and idle while the peers are measured; the peers get new processes in each turn. A rate is measured in a window after
a warm-up, which excludes start and stop. Compared values are measured at most minutes apart, and ratios are formed within a turn.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import labkit as lk

from .peers import trainers
from .peers.job import Job
from .rows import Benchmark, Pair, Row, Settings, Side, alternate
from .run_rate import Window, gradient_rate

NETS = ((128,), (256, 256))
SHAPES = {"single": (1,), "async": (1, 2, 4), "sync": (1, 2, 4), "reduce": (2, 4)}  # rule: numbers of workers
STRATEGIES: dict[str, type[lk.Strategy]] = {"async": lk.AsyncPS, "sync": lk.SyncPS, "reduce": lk.RingAllReduce}
LEARNING_RATE = 0.01  # small enough for every number of workers; no effect on speed
UNIT = "gradients/s"
REPETITIONS = 3  # a turn of all sides takes two to three minutes
COMPARISONS = (  # labkit's rule and workers, the peer, its rule and workers
    ("async", 2, trainers.SINGLE, "single", 1),
    ("async", 4, trainers.RPC_NUMPY, "async", 4),
    ("async", 4, trainers.RAY_TORCH, "async", 4),
    ("async", 4, trainers.DASK, "async", 4),
    ("reduce", 2, trainers.DDP, "reduce", 2),
    ("reduce", 4, trainers.DDP, "reduce", 4),
    ("reduce", 2, trainers.MPI, "reduce", 2),
    ("reduce", 4, trainers.MPI, "reduce", 4),
    ("sync", 4, trainers.RAY_TORCH, "sync", 4),
)


def run(settings: Settings) -> list[Row]:
    """Measure all sides, alternating, each with all its jobs; then compute the ratios of labkit to its peers."""
    warm_up, duration = settings.choose(1.0, 0.05), settings.choose(1.0, 0.1)
    jobs = all_jobs(settings, functools.partial(Job, learning_rate=LEARNING_RATE, warm_up=warm_up, duration=duration))
    repetitions = int(settings.choose(REPETITIONS, 1))
    with lk.DaskCluster(workers=4, servers=1).open() as cluster:
        sides = sides_of(jobs, UNIT, functools.partial(_rate, cluster))
        return alternate(settings, "throughput", sides, repetitions=repetitions, pairs=labkit_pairs(jobs))


def all_jobs(settings: Settings, make: Callable[..., Job], min_workers: int = 1) -> list[Job]:
    """Return a job for every rule, net and number of workers, at least `min_workers`. `--quick`: the smaller net, 2 workers."""
    nets, numbers = (NETS[:1], {2}) if settings.quick else (NETS, {n for n in (1, 2, 4) if n >= min_workers})
    return [
        make(rule=rule, hidden=hidden, workers=n)
        for hidden in nets
        for rule, shape in SHAPES.items()
        for n in shape
        if n in numbers or rule == "single"
    ]


def sides_of(jobs: Sequence[Job], unit: str, measure: Callable[[Job], float]) -> list[Side]:
    """Return all sides that can do some of `jobs`. Compared sides are next to each other. `measure` does a job with labkit."""

    def labkit(rule: str) -> Side:
        mine = [job for job in jobs if job.rule == rule]
        return Side(labkit_name(rule), lambda: {(job.name, unit): measure(job) for job in mine})

    sides: list[Side] = []
    for trainer in trainers.TRAINERS:
        sides.append(trainer.side(jobs, unit))
        rule = {trainers.SINGLE: "async", trainers.RAY_NUMPY: "sync", trainers.RAY_TORCH: "reduce"}.get(trainer.name)
        sides += [labkit(rule)] if rule else []
    return sides


def labkit_name(rule: str) -> str:
    """Return the name of labkit's side, such as "labkit AsyncPS"."""
    return f"labkit {STRATEGIES[rule].__name__}"


def labkit_pairs(jobs: Sequence[Job]) -> list[Pair]:
    by_shape = {(job.hidden, job.rule, job.workers): job.name for job in jobs}
    return [
        Pair(
            f"labkit against its peers: {by_shape[hidden, rule, n]}",
            (labkit_name(rule), by_shape[hidden, rule, n]),
            (peer, by_shape[hidden, their_rule, their_n]),
            UNIT,
        )
        for hidden in dict.fromkeys(job.hidden for job in jobs)
        for rule, n, peer, their_rule, their_n in COMPARISONS
        if (hidden, rule, n) in by_shape
    ]


def strategy_for(job: Job) -> lk.Strategy:
    """Return labkit's strategy for the job's rule, with the job's learning rate."""
    return STRATEGIES[job.rule](learning_rate=job.learning_rate)  # type: ignore[call-arg]


def cluster_for(job: Job, cluster: lk.DaskCluster) -> lk.DaskCluster:
    """Return the cluster with the job's number of workers."""
    return cluster.resized(workers=job.workers, servers=1 if STRATEGIES[job.rule].uses_servers else None)


def _rate(cluster: lk.DaskCluster, job: Job) -> float:
    window = Window(job.warm_up, job.duration)
    return gradient_rate(job.problem, strategy_for(job), cluster_for(job, cluster), window)


BENCHMARK = Benchmark(
    "throughput",
    "gradients per second: labkit on a Dask cluster, one NumPy process, and labkit's peers",
    run,
    "Asynchronous: a gradient is an update. Synchronous and all-reduce: an update is one gradient of every worker. "
    "Medians of three turns; a window is one second.",
)
