"""A Ray actor on the same machine: a NumPy array as the argument, a NumPy array as the result.

`python -m benchmarks.peers.ray_actor` starts a Ray instance, without dashboard and usage report, and makes the round trips.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager

import numpy as np

from .pairs import RoundTrips, run_peer, serve_trips


def open_pair() -> AbstractContextManager[RoundTrips]:
    """Return a context with a function (bytes, count) -> seconds of each of `count` round trips."""
    return run_peer("benchmarks.peers.ray_actor")


class Server:
    """The actor, which replies to every gradient with weights."""

    def __init__(self) -> None:
        self.weights = np.zeros(0, np.float32)

    def exchange(self, gradient: np.ndarray) -> np.ndarray:
        """Return weights that are as long as the gradient."""
        if len(self.weights) != len(gradient):
            self.weights = np.zeros_like(gradient)
        return self.weights


@contextlib.contextmanager
def _pair() -> Iterator[RoundTrips]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    server = ray.remote(Server).remote()

    def trip(nbytes: int, count: int) -> list[float]:
        gradient, seconds = np.ones(nbytes // 4, np.float32), []
        for _ in range(count):
            began = time.perf_counter()
            weights = ray.get(server.exchange.remote(gradient))
            seconds.append(time.perf_counter() - began)
            assert weights.nbytes == nbytes
        return seconds

    try:
        yield trip
    finally:
        ray.shutdown()


if __name__ == "__main__":
    serve_trips(_pair)
