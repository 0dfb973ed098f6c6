"""A parameter server on `torch.distributed.rpc`: trainers call a method of the server, which returns the model.

After "Implementing Batch RPC Processing Using Asynchronous Executions" (its parameter server),
https://docs.pytorch.org/tutorials/intermediate/rpc_async_execution.html

Kept: an object on the server, referred to by an `RRef`; trainers that send their gradients with `rpc_sync` and get the
new model back; a lock around the update. Changed: the server is asynchronous, which means that it applies every
gradient at once and does not wait for all trainers; parameters are returned, not a pickled module; the network and the
data are labkit's. With the argument `numpy`, gradients and weights are labkit's, each one flat tensor; with `torch`,
they are one tensor for every parameter.
"""

from __future__ import annotations

import sys
from threading import Lock
from typing import Any

import numpy as np
import torch
import torch.distributed.rpc as rpc
from torch import optim

from .job import Job, JobClock, from_json, run_jobs
from .torch_net import flat, gradient_of, mlp, run_ranks

Tensors = list[torch.Tensor]


class NumpyModel:
    """labkit's network and SGD over one flat vector."""

    def __init__(self, job: Job) -> None:
        self.weights, self.rate, self._gradient = job.start, job.learning_rate, job.gradient()

    def gradient(self, batch: Any) -> Tensors:
        """Return the gradient at the loaded weights."""
        return [torch.from_numpy(self._gradient(self.weights, batch))]

    def load(self, parameters: Tensors) -> None:
        """Load the weights of the server."""
        self.weights = parameters[0].numpy()

    def step(self, gradient: Tensors) -> None:
        """Make one step: w -= rate x g."""
        self.weights -= np.float32(self.rate) * gradient[0].numpy()

    def parameters(self) -> Tensors:
        """Return a copy of the parameters, because the next update may come before they are sent."""
        return [torch.from_numpy(self.weights.copy())]

    def vector(self) -> np.ndarray:
        """Return the parameters in labkit's order."""
        return self.weights


class TorchModel:
    """PyTorch's network and optimizer, with the interface of `NumpyModel`."""

    def __init__(self, job: Job) -> None:
        self.network = mlp(job)
        self.optimizer = optim.SGD(self.network.parameters(), lr=job.learning_rate)
        gradient_of(self.network, next(job.batches(0)))  # the first call allocates what the others reuse

    def gradient(self, batch: Any) -> Tensors:
        """Return the gradient at the loaded weights."""
        gradient_of(self.network, batch)
        return [p.grad for p in self.network.parameters()]

    def load(self, parameters: Tensors) -> None:
        """Load the weights of the server."""
        for own, new in zip(self.network.parameters(), parameters):
            own.data = new

    def step(self, gradient: Tensors) -> None:
        """Make one step of the optimizer."""
        for own, new in zip(self.network.parameters(), gradient):
            own.grad = new
        self.optimizer.step()

    def parameters(self) -> Tensors:
        """Return a copy of the parameters, because the next update may come before they are sent."""
        return [p.detach().clone() for p in self.network.parameters()]

    def vector(self) -> np.ndarray:
        """Return the parameters in labkit's order."""
        return flat(self.network)


MODELS = {"numpy": NumpyModel, "torch": TorchModel}


class ParameterServer:
    """The server, which holds the model. `update_and_fetch_model` runs in a thread for each caller, one thread at a time."""

    def __init__(self, kind: str, job: Job) -> None:
        self.model, self.clock, self.check_every, self.lock = MODELS[kind](job), JobClock(job), job.check_every, Lock()
        self.gradients, self.training = 0, True

    @staticmethod
    def update_and_fetch_model(server: rpc.RRef, gradient: Tensors) -> Tensors | None:
        """Apply the gradient, and return the new parameters, or None when training is over."""
        self = server.local_value()
        with self.lock:
            if not self.training:
                return None
            self.model.step(gradient)
            self.gradients += 1
            if self.gradients % self.check_every == 0:
                self.training = self.clock.should_continue(self.gradients, self.model.vector)
            return self.model.parameters()


class Trainer:
    """A trainer. All trainers are created first, and begin to train when all are ready."""

    def __init__(self, kind: str, job: Job, number: int) -> None:
        self.model, self.batches = MODELS[kind](job), job.batches(number)

    def ready(self) -> None:
        """Return when the trainer has been created."""

    def train(self, server: rpc.RRef, parameters: Tensors | None) -> None:
        """Train until the server returns None."""
        while parameters is not None:
            self.model.load(parameters)
            gradient = self.model.gradient(next(self.batches))
            call = (server, gradient)
            parameters = rpc.rpc_sync(server.owner(), ParameterServer.update_and_fetch_model, args=call)


def run_rank(rank: int, ranks: int, answers: Any, kind: str, job: Job) -> None:
    """Run one rank. Rank 0 is the server and starts the trainers; all other ranks wait for calls."""
    torch.set_num_threads(1)
    rpc.init_rpc(f"rank{rank}", rank=rank, world_size=ranks)
    if rank == 0:
        own = ParameterServer(kind, job)
        server = rpc.RRef(own)
        trainers = [rpc.remote(f"rank{n}", Trainer, args=(kind, job, n - 1)) for n in range(1, ranks)]
        for trainer in trainers:
            trainer.rpc_sync().ready()
        own.clock.begin()
        torch.futures.wait_all([t.rpc_async(timeout=0).train(server, own.model.parameters()) for t in trainers])
        answers.put(own.clock.result)
    rpc.shutdown()


if __name__ == "__main__":
    run_jobs(from_json(sys.argv[2]), lambda job: run_ranks(run_rank, job.workers + 1, sys.argv[1], job))
