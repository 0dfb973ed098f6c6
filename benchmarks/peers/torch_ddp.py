"""PyTorch DistributedDataParallel on gloo: every process holds the model, gradients are averaged during `backward`.

After "Getting Started with Distributed Data Parallel", https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html

Kept: `init_process_group("gloo")`, `DDP(model)`, and a step of `zero_grad`, loss, `backward`, `optimizer.step()`.
Changed: the network, the data, and no `DataLoader` (labkit's batches cost less); `gradient_as_bucket_view=True`, which
saves a copy. Every `check_every` steps rank 0 broadcasts whether training continues. Processes end without cleaning up,
because in PyTorch 2.13 the end of a gloo group, while it holds the GIL, waits for a thread that may need the GIL, and
sometimes does not return.
"""

from __future__ import annotations

import os
import sys
from itertools import count
from typing import Any

import torch
import torch.distributed as dist
from torch import optim
from torch.nn.parallel import DistributedDataParallel as DDP

from .job import Job, JobClock, from_json, run_jobs
from .torch_net import flat, gradient_of, mlp, run_ranks


def train(rank: int, ranks: int, answers: Any, job: Job) -> None:
    """Run one process of the group."""
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    network = mlp(job)
    model = DDP(network, gradient_as_bucket_view=True)
    optimizer = optim.SGD(model.parameters(), lr=job.learning_rate)
    batches, clock, keep_training = job.batches(rank), JobClock(job), torch.ones(1)
    gradient_of(model, next(job.batches(rank)))  # the first call allocates what the others reuse
    dist.barrier()
    clock.begin()
    for step in count(1):
        gradient_of(model, next(batches))
        optimizer.step()
        if step % job.check_every == 0:
            if rank == 0:
                keep_training[0] = clock.should_continue(step * ranks, lambda: flat(network))
            dist.broadcast(keep_training, 0)
            if not keep_training:
                break
    if rank == 0:
        answers.put(clock.result)
    os._exit(0)  # without cleaning up, see the docstring of the module


if __name__ == "__main__":
    run_jobs(from_json(sys.argv[1]), lambda job: run_ranks(train, job.workers, job))
