"""One process: batch, gradient, step, nothing else. The baseline for distributed training.

It uses labkit's network, data and optimizer without roles, engine or recording, in a new process with one BLAS thread:
`python -m benchmarks.peers.numpy_process JOBS`.
"""

from __future__ import annotations

import sys
from itertools import count

import labkit as lk

from .job import Job, Score, answer, from_json


def train(job: Job) -> float:
    """The result of `job`."""
    weights, gradient, batches, sgd = job.start, job.gradient(), job.batches(0), lk.SGD()
    state, score = sgd.state(weights.size, weights.dtype), Score(job)
    score.begin()
    for step in count(1):
        sgd.apply(weights, gradient(weights, next(batches)), job.learning_rate, state, step)
        if step % job.look == 0 and not score.goes_on(step, lambda: weights):
            break
    return score.result


if __name__ == "__main__":
    answer(from_json(sys.argv[1]), train)
