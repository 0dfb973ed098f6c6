"""`torch.distributed` on gloo: `send` and `recv` between two ranks, with preallocated tensors.

`python -m benchmarks.peers.gloo_round_trip` is rank 0 and makes the trips; with a rendezvous file as argument, it is rank 1.
"""

from __future__ import annotations

import contextlib
import datetime
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager

from .pairs import RoundTrips, companion_process, run_peer, serve_trips

MODULE = "benchmarks.peers.gloo_round_trip"
IDLE_TIMEOUT_S = datetime.timedelta(seconds=600)  # while other pairs are measured


def open_pair() -> AbstractContextManager[RoundTrips]:
    """Return a context with a function (bytes, count) -> seconds of each of `count` round trips."""
    return run_peer(MODULE)


@contextlib.contextmanager
def _pair() -> Iterator[RoundTrips]:
    import torch
    from torch import distributed

    def trip(nbytes: int, count: int) -> list[float]:
        distributed.send(torch.tensor([nbytes, count]), 1)
        gradient, weights, seconds = torch.ones(nbytes // 4), torch.empty(nbytes // 4), []
        for _ in range(count):
            began = time.perf_counter()
            distributed.send(gradient, 1)
            distributed.recv(weights, 1)
            seconds.append(time.perf_counter() - began)
        return seconds

    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/rendezvous"
        with companion_process(MODULE, file), _rank(0, file):
            yield trip
            distributed.send(torch.tensor([0, 0]), 1)  # end of the round trips


@contextlib.contextmanager
def _rank(rank: int, rendezvous: str) -> Iterator[None]:
    from torch import distributed

    distributed.init_process_group(
        "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2, timeout=IDLE_TIMEOUT_S
    )
    try:
        yield
    finally:
        distributed.destroy_process_group()


def _serve(rendezvous: str) -> None:
    import torch
    from torch import distributed

    with _rank(1, rendezvous):
        request = torch.zeros(2, dtype=torch.int64)
        while True:
            distributed.recv(request, 0)
            nbytes, count = request.tolist()
            if not count:
                return
            gradient, weights = torch.empty(nbytes // 4), torch.ones(nbytes // 4)
            for _ in range(count):
                distributed.recv(gradient, 0)
                distributed.send(weights, 0)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _serve(sys.argv[1])
    else:
        serve_trips(_pair)
