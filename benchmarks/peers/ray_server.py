"""Ray's parameter server, synchronous and asynchronous.

After Ray's own example, https://docs.ray.io/en/latest/ray-core/examples/plot_parameter_server.html

Kept: the two actor classes with their methods, and both loops of the driver. The synchronous loop waits for all
gradients, then calls `apply_gradients`; the asynchronous loop uses `ray.wait` for the first gradient, applies it, and
gives its worker the next task. Changed: the network and the data are labkit's, without a `DataLoader` (labkit's batches
cost less); `prepare` replaces constructors, so that one set of processes does all jobs; gradients are averaged, not
summed; the clock is read where the example evaluates, and the accuracy is measured only if the job needs it.

`python -m benchmarks.peers.ray_server KIND JOBS` runs the jobs. With the kind `torch`, gradients and weights are what
the example sends, a list of arrays and a `state_dict`. With `numpy`, they are labkit's, each one flat array.
"""

from __future__ import annotations

import os
import secrets
import sys
from functools import partial
from typing import Any

import numpy as np

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_TOKEN": secrets.token_hex(32)}  # read when ray is imported

import ray

from .job import Job, JobClock, from_json, run_jobs

STORE = 200_000_000  # bytes


class NumpyServer:
    """The server with labkit's flat weights."""

    def prepare(self, job: Job) -> None:
        """Prepare for the next job."""
        self.weights, self.rate = job.start, np.float32(job.learning_rate)

    def apply_gradients(self, *gradients: np.ndarray) -> np.ndarray:
        """Make one step with the mean of the gradients, and return the new weights."""
        mean = gradients[0] if len(gradients) == 1 else np.mean(gradients, axis=0)
        self.weights -= self.rate * mean
        return self.weights

    def get_weights(self) -> np.ndarray:
        """Return the weights without a step."""
        return self.weights


class NumpyWorker:
    """A worker that computes with labkit's network."""

    def prepare(self, job: Job, number: int) -> None:
        """Prepare for the next job."""
        self.gradient, self.batches = job.gradient(), job.batches(number)

    def compute_gradients(self, weights: np.ndarray) -> np.ndarray:
        """Compute the gradient on the next batch."""
        return self.gradient(weights, next(self.batches))


class TorchServer:
    """The server with PyTorch's model and optimizer."""

    def prepare(self, job: Job) -> None:
        """Prepare for the next job."""
        import torch

        from .torch_net import mlp

        self.model = mlp(job)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=job.learning_rate)
        self.from_numpy = torch.from_numpy

    def apply_gradients(self, *gradients: list[np.ndarray]) -> Any:
        """Make one step with the mean of the gradients, and return the new weights."""
        means = [np.stack(parts).mean(axis=0) for parts in zip(*gradients)]
        for parameter, mean in zip(self.model.parameters(), means):
            parameter.grad = self.from_numpy(mean)
        self.optimizer.step()
        return self.model.state_dict()

    def get_weights(self) -> Any:
        """Return the weights without a step."""
        return self.model.state_dict()


class TorchWorker:
    """A worker with a copy of PyTorch's model."""

    def prepare(self, job: Job, number: int) -> None:
        """Prepare for the next job."""
        from .torch_net import gradient_of, mlp

        self.model, self.batches, self.gradient_of = mlp(job), job.batches(number), gradient_of
        gradient_of(self.model, next(job.batches(number)))  # the first call allocates what the others reuse

    def compute_gradients(self, weights: Any) -> list[np.ndarray]:
        """Compute the gradient on the next batch."""
        self.model.load_state_dict(weights)
        self.gradient_of(self.model, next(self.batches))
        return [parameter.grad.numpy() for parameter in self.model.parameters()]


KINDS: dict[str, tuple[type, type]] = {"numpy": (NumpyServer, NumpyWorker), "torch": (TorchServer, TorchWorker)}


def as_vector(weights: Any) -> np.ndarray:
    """Return the weights in labkit's order, flat."""
    weights = ray.get(weights)
    if isinstance(weights, np.ndarray):
        return weights
    return np.concatenate([w.numpy().T.reshape(-1) for w in weights.values()])


def synchronous(server: Any, workers: list[Any], clock: JobClock, check_every: int) -> None:
    """Run the synchronous loop: a step when all gradients are ready."""
    weights, steps, training = server.get_weights.remote(), 0, True
    while training:
        gradients = [worker.compute_gradients.remote(weights) for worker in workers]
        weights = server.apply_gradients.remote(*gradients)
        steps += 1
        if steps % check_every == 0:
            ray.wait([weights])
            training = clock.should_continue(steps * len(workers), partial(as_vector, weights))


def asynchronous(server: Any, workers: list[Any], clock: JobClock, check_every: int) -> None:
    """Run the asynchronous loop: a step for every gradient, in the order in which gradients are ready."""
    weights, steps, training = server.get_weights.remote(), 0, True
    gradients = {worker.compute_gradients.remote(weights): worker for worker in workers}
    while training:
        (ready, *_), _ = ray.wait(list(gradients))
        worker = gradients.pop(ready)
        weights = server.apply_gradients.remote(ready)
        gradients[worker.compute_gradients.remote(weights)] = worker
        steps += 1
        if steps % check_every == 0:
            training = clock.should_continue(steps, partial(as_vector, weights))
    ray.wait(list(gradients), num_returns=len(gradients))


LOOPS = {"sync": synchronous, "async": asynchronous}


def run(server: Any, workers: list[Any], job: Job) -> float:
    """Run one job with its number of workers."""
    mine, clock = workers[: job.workers], JobClock(job)
    ray.get([server.prepare.remote(job), *(worker.prepare.remote(job, number) for number, worker in enumerate(mine))])
    clock.begin()
    LOOPS[job.rule](server, mine, clock, job.check_every)
    return clock.result


if __name__ == "__main__":
    jobs = from_json(sys.argv[2])
    most = max(job.workers for job in jobs)
    quiet: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init("local", num_cpus=most + 1, object_store_memory=STORE, **quiet)
    server_class, worker_class = map(ray.remote, KINDS[sys.argv[1]])
    run_jobs(jobs, partial(run, server_class.remote(), [worker_class.remote() for _ in range(most)]))
    ray.shutdown()
