"""Common code of the PyTorch peers: labkit's network in PyTorch, with the same initial weights, and processes by rank.

Only programs that use PyTorch import this module; the benchmark itself does not.
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.multiprocessing as mp
from torch import nn
from torch.distributed import TCPStore

from .job import Job

HOST, LOOPBACK = "127.0.0.1", "lo"  # "lo" is the name of the interface on Linux
OPTIMIZER_MODULE = "torch._dynamo"  # imported when the first optimizer is created, which takes a second


def mlp(job: Job) -> nn.Sequential:
    """Return labkit's network as `nn.Linear` and `nn.ReLU`, with labkit's initial weights. Sets PyTorch to one thread."""
    torch.set_num_threads(1)
    widths = [job.problem.dataset.features, *job.hidden, job.problem.dataset.outputs]
    layers = [layer for a, b in itertools.pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
    model = nn.Sequential(*layers[:-1])
    start, done = torch.from_numpy(job.start), 0
    with torch.no_grad():
        for linear in model[::2]:  # labkit's W is (inputs, outputs), PyTorch's (outputs, inputs)
            end = done + linear.weight.numel()
            linear.weight.copy_(start[done:end].reshape(linear.in_features, linear.out_features).T)
            linear.bias.copy_(start[end : end + linear.out_features])
            done = end + linear.out_features
    return model


def flat(model: nn.Module) -> np.ndarray:
    """Return the parameters in labkit's order, flat."""
    return torch.cat([p.detach().T.reshape(-1) if p.ndim == 2 else p.detach() for p in model.parameters()]).numpy()


def gradient_of(model: nn.Module, batch: Any) -> None:
    """Compute the gradient of the mean loss into the parameters' `grad`. The arrays of the batch are not copied."""
    model.zero_grad()
    nn.functional.cross_entropy(model(torch.from_numpy(batch.x)), torch.from_numpy(batch.y)).backward()


def run_ranks(target: Callable[..., Any], ranks: int, *arguments: Any) -> Any:
    """Run `target(rank, ranks, answers, *arguments)` in a process for each rank. Returns what rank 0 puts into `answers`.

    PyTorch is imported once, in a process from which the ranks are forked, because several imports take longer than a
    measurement. As in `torchrun`, this process serves the rendezvous store, because a store served by rank 0, or a
    file, may disappear before the last rank has left.
    """
    context = mp.get_context("forkserver")
    context.set_forkserver_preload([__name__, OPTIMIZER_MODULE])
    answers = context.SimpleQueue()
    store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    mp.start_processes(_run_rank, (target, ranks, store.port, answers, *arguments), ranks, start_method="forkserver")
    return answers.get()


def _run_rank(rank: int, target: Callable[..., Any], ranks: int, port: int, *arguments: Any) -> None:
    """Set the environment variables with the store's address and the network interface, which PyTorch reads; call `target`."""
    os.environ |= {"MASTER_ADDR": HOST, "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    if LOOPBACK in [name for _, name in socket.if_nameindex()]:
        os.environ |= {"GLOO_SOCKET_IFNAME": LOOPBACK, "TP_SOCKET_IFNAME": LOOPBACK}
    target(rank, ranks, *arguments)
