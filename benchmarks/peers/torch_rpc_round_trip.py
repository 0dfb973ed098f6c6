"""PyTorch RPC: a function is called in another process with a tensor, and returns a tensor.

`python -m benchmarks.peers.torch_rpc_round_trip` is the worker, which makes the round trips. With a rendezvous file as
argument, it is the server.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from .pairs import RoundTrips, companion_process, run_peer, serve_trips

MODULE = "benchmarks.peers.torch_rpc_round_trip"
TIMEOUT_S = 60.0  # seconds for a call


def open_pair() -> AbstractContextManager[RoundTrips]:
    """Return a context with a function (bytes, count) -> seconds of each of `count` round trips."""
    return run_peer(MODULE)


def exchange(gradient: Any) -> Any:
    """Return the argument, so that as many bytes are sent back without a new tensor. This function runs on the server."""
    return gradient


@contextlib.contextmanager
def _pair() -> Iterator[RoundTrips]:
    import torch
    from torch.distributed import rpc

    def trip(nbytes: int, count: int) -> list[float]:
        gradient, seconds = torch.ones(nbytes // 4), []
        for _ in range(count):
            began = time.perf_counter()
            weights = rpc.rpc_sync("server", exchange, args=(gradient,))
            seconds.append(time.perf_counter() - began)
            assert weights.nbytes == nbytes
        return seconds

    with tempfile.TemporaryDirectory() as folder, companion_process(MODULE, f"{folder}/rendezvous"):
        _join("worker", 0, f"{folder}/rendezvous")
        yield trip
        rpc.shutdown()


def _join(name: str, rank: int, rendezvous: str) -> None:
    from torch.distributed import rpc

    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{rendezvous}", rpc_timeout=TIMEOUT_S)
    rpc.init_rpc(name, rank=rank, world_size=2, rpc_backend_options=options)


def _serve(rendezvous: str) -> None:
    from torch.distributed import rpc

    _join("server", 1, rendezvous)
    rpc.shutdown()  # serves until the worker shuts down


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _serve(sys.argv[1])
    else:
        serve_trips(_pair)
