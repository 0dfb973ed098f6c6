"""One process that only makes batches, gradients and steps: the baseline for distributed training.

It uses labkit's network, data and optimizer without roles, engine or recording, in a new process with one BLAS thread:
`python -m benchmarks.peers.numpy_process JOBS`.
"""

from __future__ import annotations

import sys
from itertools import count

import labkit as lk

from .job import Job, JobClock, from_json, run_jobs


def train(job: Job) -> float:
    """Do the job and return its result."""
    weights, gradient, batches, sgd = job.start, job.gradient(), job.batches(0), lk.SGD()
    state, clock = sgd.state(weights.size, weights.dtype), JobClock(job)
    clock.begin()
    for step in count(1):
        sgd.apply(weights, gradient(weights, next(batches)), job.learning_rate, state, step)
        if step % job.check_every == 0 and not clock.should_continue(step, lambda: weights):
            break
    return clock.result


if __name__ == "__main__":
    run_jobs(from_json(sys.argv[1]), train)
