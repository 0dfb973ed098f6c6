"""A parameter server as a Dask actor, called from long-running tasks: the obvious design with Dask.

After "Actors", https://distributed.dask.org/en/stable/actors.html (Dask documents no parameter server that trains)

Kept: a plain class, `client.submit(Server, actor=True)`, calls that return actor futures, `.result()`, and a
`LocalCluster`, which is encrypted because otherwise any user of the machine could run code in it. Changed: one call
both pushes a gradient and returns the weights (two calls would be more obvious); each role is pinned to a separate Dask
worker; gradients and weights are labkit's, one flat array.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np
from distributed import Client, LocalCluster

from .job import Job, JobClock, from_json, run_jobs


class ParameterServer:
    """The actor that holds the weights. Dask calls its methods one after the other, in one thread."""

    def __init__(self, job: Job) -> None:
        self.weights, self.clock, self.job = job.start, JobClock(job), job
        self.gradients, self.training = 0, True

    def start(self) -> np.ndarray:
        """Begin training, and return the initial weights."""
        self.clock.begin()
        return self.weights.copy()

    def push(self, gradient: np.ndarray) -> np.ndarray | None:
        """Apply a gradient and return the weights, or None when training is over.

        The weights are copied, because the next push may come before they are sent.
        """
        if not self.training:
            return None
        self.weights -= np.float32(self.job.learning_rate) * gradient
        self.gradients += 1
        if self.gradients % self.job.check_every == 0:
            self.training = self.clock.should_continue(self.gradients, lambda: self.weights)
        return self.weights.copy()

    def result(self) -> float:
        """Return the result of the job."""
        return self.clock.result


def train(server: Any, job: Job, worker: int, weights: np.ndarray | None) -> None:
    """Train until the server returns None. This is a worker's task."""
    batches, gradient = job.batches(worker), job.gradient()
    while weights is not None:
        weights = server.push(gradient(weights, next(batches))).result()


def run(client: Client, addresses: list[str], job: Job) -> float:
    """Run one job on a new server and new workers."""
    first, *others = addresses[: job.workers + 1]
    client.gather(
        [client.submit(job.batches, 0, workers=[a], pure=False) for a in others]
    )  # data and imports are loaded
    server = client.submit(ParameterServer, job, actor=True, workers=[first], pure=False).result()
    weights = server.start().result()
    tasks = [
        client.submit(train, server, job, number, weights, workers=[address], pure=False)
        for number, address in enumerate(others)
    ]
    client.gather(tasks)
    return server.result().result()


if __name__ == "__main__":
    jobs = from_json(sys.argv[1])
    most = max(job.workers for job in jobs)
    with (
        LocalCluster(n_workers=most + 1, threads_per_worker=1, dashboard_address=None, security=True) as cluster,
        Client(cluster) as client,
    ):
        run_jobs(jobs, partial(run, client, list(cluster.scheduler.workers)))
