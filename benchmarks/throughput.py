"""Gradients per second: three strategies on a cluster of processes against one NumPy process alone.

Both sides do the same work on a gradient: the same network, mini-batches of 32 digits, SGD, one thread of linear
algebra in every process. Nothing is paced, recording is on. The cluster stays up, idle, while the other side runs.
"""

from __future__ import annotations

import functools

import labkit as lk

from .live import Window, gradient_rate
from .peers import numpy_process
from .rows import Benchmark, Row, Settings, Side, Values, alternate

__all__ = ["BENCHMARK"]

NETS = ((128,), (256, 256))
RATE = 0.01  # small enough for every number of workers; it decides nothing about speed
ALONE = "one NumPy process"
SHAPES: tuple[tuple[type[lk.Strategy], tuple[int, ...]], ...] = (
    (lk.AsyncPS, (1, 2, 4)),
    (lk.SyncPS, (2, 4)),
    (lk.RingAllReduce, (2, 4)),
)


def net_name(hidden: tuple[int, ...]) -> str:
    """As "64-128-10": the digits' features, the hidden layers, the classes."""
    return "-".join(map(str, (64, *hidden, 10)))


def run(settings: Settings) -> list[Row]:
    """A comparison for each net, on one cluster."""
    window = Window(settings.choose(0.5, 0.1), settings.choose(2.0, 0.2))
    rows: list[Row] = []
    with lk.DaskCluster(workers=4, servers=1).open() as cluster:
        for hidden in NETS[:1] if settings.quick else NETS:
            sides = [Side(ALONE, functools.partial(_alone, hidden, window)), *_labkit(hidden, window, cluster)]
            rows += alternate(settings, net_name(hidden), sides, against=ALONE)
    return rows


def _alone(hidden: tuple[int, ...], window: Window) -> Values:
    return {(net_name(hidden), "gradients/s"): numpy_process.gradient_rate(hidden, 32, RATE, window)}


def _labkit(hidden: tuple[int, ...], window: Window, cluster: lk.DaskCluster) -> list[Side]:
    problem = lk.Problem("digits", hidden=hidden, batch_size=32)

    def measure(strategy: type[lk.Strategy], workers: int) -> Values:
        shape = cluster.resized(workers=workers, servers=1 if strategy.uses_servers else None)
        rate = gradient_rate(problem, strategy(learning_rate=RATE), shape, window)  # type: ignore[call-arg]
        return {(net_name(hidden), "gradients/s"): rate}

    return [
        Side(f"{strategy.__name__}, {_count(workers)}", functools.partial(measure, strategy, workers))
        for strategy, numbers in SHAPES
        for workers in numbers
    ]


def _count(workers: int) -> str:
    return "1 worker" if workers == 1 else f"{workers} workers"


BENCHMARK = Benchmark(
    "throughput",
    "gradients per second on a Dask cluster, against one NumPy process",
    run,
    "AsyncPS: a gradient is an update. SyncPS and RingAllReduce: an update is one gradient of every worker.",
)
