"""Seconds to 98%: how long until the test set, which nobody trains on, is that well answered.

All start from the same first weights, with the same split and the same batches of 32 for each worker, and step by the
same rate: an asynchronous server by each gradient, the others by the mean of all workers' gradients. Those that step
together therefore walk one path, and differ in nothing but time.

What is counted: from the moment when training begins (processes, roles and data are there, a peer's first gradient has
been computed) to the look at the weights that finds the accuracy reached. Everybody looks every 10 updates, or as soon
after as it may. A peer looks where its weights are, and its clock stands still meanwhile; nothing else of a peer
waits less for it. labkit's clock goes on while the chief evaluates, and the chief spends at most 5% of its time on
that, so labkit may be some 20 ms late: part of its time, and not taken off.

98% of 359 samples is 7 mistakes. On most of the twelve splits that were tried, some side stays just below for ever
whatever the rate (0.1 and 0.2 were tried), so the split is chosen: number 11, where every rule with 1, 2 and 4 workers
gets there after some 300 to 400 updates (64-128-10) or 100 to 200 (64-256-256-10) at 0.1, labkit's usual rate.
"""

from __future__ import annotations

import functools

import labkit as lk
from labkit.trace.query import time_to_accuracy

from .peers.job import Job
from .rows import Benchmark, Row, Settings, Unmeasured, alternate
from .throughput import all_jobs, cluster_for, sides_of, strategy_for

__all__ = ["BENCHMARK"]

GOAL, QUICK_GOAL = 0.98, 0.5
RATE, SEED, LOOK = 0.1, 11, 10
LONGEST = 20.0  # seconds
REPETITIONS = 3


def run(settings: Settings) -> list[Row]:
    """All sides in turns, each with all its jobs."""
    goal = settings.choose(GOAL, QUICK_GOAL)
    rest = {"learning_rate": RATE, "warm_up": 0.0, "length": LONGEST, "accuracy": goal, "look": LOOK, "seed": SEED}
    jobs = all_jobs(settings, functools.partial(Job, **rest), fewest=2)
    with lk.DaskCluster(workers=4, servers=1).open() as cluster:
        sides = sides_of(jobs, f"s to {goal:.0%}", functools.partial(_seconds, cluster))
        return alternate(settings, "accuracy", sides, repetitions=int(settings.choose(REPETITIONS, 1)))


def _seconds(cluster: lk.DaskCluster, job: Job) -> float:
    budget = lk.Budget(accuracy=job.accuracy, seconds=job.length)
    strategy = strategy_for(job)  # looks every 10 updates, too
    run = lk.train(job.problem, strategy, cluster_for(job, cluster), budget, checkpoint=False).wait()
    seconds = time_to_accuracy(run.trace)
    if seconds is None:
        raise Unmeasured(f"{job.name}: {job.accuracy:.0%} was not reached within {job.length:g} s")
    return seconds


BENCHMARK = Benchmark(
    "accuracy",
    "seconds of training to 98% on the test set, from the same start",
    run,
    "Time counts from when training begins; a peer's clock stands still while it evaluates, labkit's does not.",
)
