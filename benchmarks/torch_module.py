"""A module of PyTorch in labkit, and in a plain loop: the processor time of a gradient, and updates per second.

A gradient of labkit reads a flat vector of parameters and writes a flat gradient; that of the plain loop is in the parameters'
`grad`. Both take the samples as arrays, and compute on one thread. The rate is that of one worker and one server on processes,
which exchange parameters and gradients, and of a loop with PyTorch's SGD in this process.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import labkit as lk

from .rows import Benchmark, Row, Settings, Side, Values, alternate

HIDDEN = (128, 976)  # widths of two hidden layers, which have some 10 thousand and 1 million parameters
PLAIN, LABKIT = "plain PyTorch", "from_torch"
RATE = 0.05
TURNS = 15


def mlp(hidden: int) -> Any:
    """Return a network of dense layers: one hidden layer of 128, or two wider ones."""
    from torch import nn

    second = [nn.Linear(hidden, hidden), nn.ReLU()] if hidden > 128 else []
    return nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), *second, nn.Linear(hidden, 10))


def run(settings: Settings) -> list[Row]:
    """Measure both sides in turns, for each size."""
    repetitions = int(settings.choose(TURNS, 1))
    rows: list[Row] = []
    for hidden in HIDDEN:
        count = int(settings.choose(200 if hidden == HIDDEN[0] else 20, 2))
        measures = {PLAIN: plain_gradients, LABKIT: gradients}
        sides = [
            Side(name, functools.partial(measure, hidden, count), needs=("torch",))
            for name, measure in measures.items()
        ]
        rows += alternate(settings, "cpu of a gradient", sides, PLAIN, repetitions=repetitions)
    rates = {PLAIN: plain_updates, LABKIT: updates}
    count = int(settings.choose(1000, 20))
    sides = [Side(name, functools.partial(measure, count), needs=("torch",)) for name, measure in rates.items()]
    return rows + alternate(settings, "rate of updates", sides, PLAIN)


def problem_of(hidden: int) -> lk.Problem:
    """Return digits with the network."""
    return lk.Problem("digits", model=lk.from_torch(functools.partial(mlp, hidden)))


def cpu(hidden: int, count: int, gradient: Callable[[], object]) -> Values:
    """Return the microseconds of processor time of a gradient."""
    for _ in range(3):
        gradient()
    began = time.thread_time()
    for _ in range(count):
        gradient()
    size = problem_of(hidden).objective().size
    return {(f"cpu of a gradient, {size:,} parameters", "us"): 1e6 * (time.thread_time() - began) / count}


def gradients(hidden: int, count: int) -> Values:
    """Measure gradients of labkit's objective."""
    problem = problem_of(hidden)
    objective, batch = problem.objective(), next(problem.batches()[0])
    params = objective.start(0)
    out = np.empty_like(params)
    return cpu(hidden, count, lambda: objective.gradient(params, batch.x, batch.y, out))


def plain_gradients(hidden: int, count: int) -> Values:
    """Measure gradients of a plain loop."""
    import torch

    net, batch = mlp(hidden), next(problem_of(hidden).batches()[0])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return cpu(hidden, count, functools.partial(plain_gradient, net, batch))
    finally:
        torch.set_num_threads(threads)


def plain_gradient(net: Any, batch: Any) -> float:
    """Compute a gradient into `grad`, and return the loss."""
    import torch

    net.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(torch.tensor(batch.x)), torch.tensor(batch.y))
    loss.backward()
    return float(loss.detach())


def updates(count: int) -> Values:
    """Measure updates per second of one worker and one server."""
    problem, strategy = problem_of(HIDDEN[0]), lk.AsyncPS(learning_rate=RATE, eval_every=10**6)
    with (
        lk.DaskCluster(workers=1, servers=1).open() as cluster,
        lk.train(problem, strategy, cluster, lk.Budget(updates=count), checkpoint=False) as run,
    ):
        times = run.wait().trace.column("applies", "time")
    tail = np.sort(times)[len(times) // 4 :]  # without the first gradients
    return {("updates of 9,610 parameters", "1/s"): 1e9 * (len(tail) - 1) / float(tail[-1] - tail[0])}


def plain_updates(count: int) -> Values:
    """Measure updates per second of a plain loop with PyTorch's SGD."""
    import torch

    net, batches = mlp(HIDDEN[0]), problem_of(HIDDEN[0]).batches()[0]
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        began = time.perf_counter()
        for _ in range(count):
            plain_gradient(net, next(batches))
            optimizer.step()
        return {("updates of 9,610 parameters", "1/s"): count / (time.perf_counter() - began)}
    finally:
        torch.set_num_threads(threads)


BENCHMARK = Benchmark(
    "torch-module",
    "a module of PyTorch in labkit and in a plain loop: processor time of a gradient, updates per second",
    run,
    "Medians of fifteen turns for gradients; of five for rates.",
)
