"""One process alone: batch, gradient, step, nothing else. What distributing the work is measured against.

It is labkit's own network, data and optimizer without roles, engine or record, in a fresh process with one BLAS thread:
`python -m benchmarks.peers.numpy_process` with the arguments below.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

import labkit as lk
from labkit.data import Batches

from ..children import fresh
from ..live import Window

__all__ = ["gradient_rate"]

LOOK = 20  # gradients between two looks at the clock


def gradient_rate(hidden: tuple[int, ...], batch_size: int, learning_rate: float, window: Window) -> float:
    """Gradients per second of a fresh process, after `window.warm_up`, over `window.length`."""
    shape = "-".join(map(str, hidden))
    module = "benchmarks.peers.numpy_process"
    return fresh(module, shape, batch_size, learning_rate, window.warm_up, window.length)["gradients_per_second"]


def _train(problem: lk.Problem, learning_rate: float, warm_up: float, length: float) -> float:
    objective, sgd, data = problem.objective(), lk.SGD(), problem.dataset
    weights = objective.start(problem.seed)
    gradient, state = np.empty_like(weights), sgd.state(objective.size, weights.dtype)
    batches = Batches(data.x_train, data.y_train, problem.batch_size, np.random.default_rng(problem.seed))
    step = first = 0
    began: float | None = None
    start = now = time.perf_counter()
    while began is None or now < began + length:
        for _ in range(LOOK):
            batch = next(batches)
            objective.gradient(weights, batch.x, batch.y, gradient)
            step += 1
            sgd.apply(weights, gradient, learning_rate, state, step)
        now = time.perf_counter()
        if began is None and now >= start + warm_up:
            began, first = now, step
    return (step - first) / (now - began)


def _main(shape: str, batch_size: str, learning_rate: str, warm_up: str, length: str) -> None:
    problem = lk.Problem("digits", hidden=tuple(map(int, shape.split("-"))), batch_size=int(batch_size))
    rate = _train(problem, float(learning_rate), float(warm_up), float(length))
    print(json.dumps({"gradients_per_second": rate}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
