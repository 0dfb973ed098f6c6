"""Two processes on labkit's endpoint: a worker here, and a server that replies to every push with as many bytes of weights.

`open_pair` is the worker's side. `python -m benchmarks.transport_pair PORT` is the server; PORT is the worker's
listening port.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator

import numpy as np

from labkit.engines.dask.transport.endpoint import Endpoint
from labkit.engines.dask.transport.frames import FrameCodec
from labkit.roles.messages import Message, Push, Weights

from .peers.pairs import RoundTrips
from .subprocesses import server_process

HOST = "127.0.0.1"
# seconds without a reply; without a request, while other pairs are measured
REPLY_TIMEOUT_S, IDLE_TIMEOUT_S = 30.0, 600.0


@contextlib.contextmanager
def open_pair() -> Iterator[RoundTrips]:
    """Open the pair, and yield a function (bytes, count) -> seconds of each of `count` round trips."""
    endpoint = _endpoint("worker")
    with server_process("benchmarks.transport_pair", *endpoint.contact[1:]) as line, contextlib.closing(endpoint):
        port, key = line.split()
        endpoint.add_peer("server", HOST, int(port), key, 0)

        def trip(nbytes: int, count: int) -> list[float]:
            gradient, seconds = np.ones(nbytes // 4, np.float32), []
            for step in range(count):
                began = time.perf_counter()
                endpoint.send("server", Push(gradient, step, 0, step))
                weights = _next(endpoint, REPLY_TIMEOUT_S)
                seconds.append(time.perf_counter() - began)
                assert isinstance(weights, Weights)
                assert weights.values.nbytes == nbytes
            return seconds

        yield trip


def _endpoint(name: str) -> Endpoint:
    return Endpoint(name, 0, FrameCodec((Push, Weights)), HOST)


def _next(endpoint: Endpoint, timeout: float) -> Message | None:
    """Return the next message; None if the other process has ended. Raises `RuntimeError` after `timeout` seconds."""
    until = time.monotonic() + timeout
    while not endpoint.inbox:
        if endpoint.left or endpoint.lost:
            return None
        if time.monotonic() > until:
            raise RuntimeError(f"{endpoint.name}: no message for {timeout:g} s")
        endpoint.poll(1.0)
    return endpoint.inbox.popleft().message


def _serve(port: int, key: str) -> None:
    with contextlib.closing(_endpoint("server")) as endpoint:
        endpoint.add_peer("worker", HOST, port, key, 0)
        print(*endpoint.contact[1:], flush=True)
        weights = np.zeros(0, np.float32)
        while isinstance(push := _next(endpoint, IDLE_TIMEOUT_S), Push):
            if len(weights) != len(push.values):
                weights = np.zeros_like(push.values)
            endpoint.send(push.sender, Weights(weights, 0, 0, push.version))


if __name__ == "__main__":
    _serve(int(sys.argv[1]), sys.argv[2])
