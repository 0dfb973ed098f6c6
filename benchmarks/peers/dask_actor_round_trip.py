"""A Dask actor on one worker, called by a task on another: a NumPy array there, a NumPy array back.

A call from a task goes directly from worker to worker; a call from a client is slower. `python -m
benchmarks.peers.dask_actor_round_trip` starts the cluster and requests the round trips, which are timed inside the task.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from .pairs import RoundTrips, run_peer, serve_trips


def open_pair() -> AbstractContextManager[RoundTrips]:
    """Return a context with a function (bytes, count) -> seconds of each of `count` round trips."""
    return run_peer("benchmarks.peers.dask_actor_round_trip")


class Server:
    """The actor, which replies to every gradient with weights."""

    def __init__(self) -> None:
        self.weights = np.zeros(0, np.float32)

    def exchange(self, gradient: np.ndarray) -> np.ndarray:
        """Return weights that are as long as the gradient."""
        if len(self.weights) != len(gradient):
            self.weights = np.zeros_like(gradient)
        return self.weights


def make_trips(server: Any, nbytes: int, count: int) -> list[float]:
    """Return the seconds of each of `count` calls. This is the task."""
    gradient, seconds = np.ones(nbytes // 4, np.float32), []
    for _ in range(count):
        began = time.perf_counter()
        weights = server.exchange(gradient).result(60)
        seconds.append(time.perf_counter() - began)
        assert weights.nbytes == nbytes
    return seconds


@contextlib.contextmanager
def _pair() -> Iterator[RoundTrips]:
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, security=True)
    with cluster, Client(cluster) as client:
        here, there = client.scheduler_info()["workers"]
        server = client.submit(Server, actor=True, workers=[there]).result()

        def trip(nbytes: int, count: int) -> list[float]:
            return client.submit(make_trips, server, nbytes, count, workers=[here], pure=False).result()

        yield trip


if __name__ == "__main__":
    serve_trips(_pair)
