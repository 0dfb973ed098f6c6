"""Two processes on a blocking TCP socket with `TCP_NODELAY`: the kernel's limit.

The size is sent once for many round trips; after that only the bytes are sent, from and into existing buffers.
`python -m benchmarks.peers.raw_socket` is the server.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator

from ..children import partner
from .pairs import Trip

__all__ = ["open_pair"]

HOST, ORDER = "127.0.0.1", struct.Struct("<QQ")  # bytes, round trips
PATIENCE = 30.0  # seconds


@contextlib.contextmanager
def open_pair() -> Iterator[Trip]:
    """A function (bytes, count) -> seconds of each of `count` round trips."""
    with partner("benchmarks.peers.raw_socket") as port, socket.create_connection((HOST, int(port)), PATIENCE) as sock:
        _prepare(sock)

        def trip(nbytes: int, count: int) -> list[float]:
            gradient, weights, seconds = bytearray(nbytes), memoryview(bytearray(nbytes)), []
            sock.sendall(ORDER.pack(nbytes, count))
            for _ in range(count):
                began = time.perf_counter()
                sock.sendall(gradient)
                _read(sock, weights)
                seconds.append(time.perf_counter() - began)
            return seconds

        yield trip


def _prepare(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.settimeout(None)  # blocking: with a timeout Python calls `poll` before every operation


def _read(sock: socket.socket, into: memoryview) -> None:
    """Fill `into`; `EOFError` if the connection is closed."""
    while into:
        count = sock.recv_into(into)
        if not count:
            raise EOFError
        into = into[count:]


def _serve() -> None:
    with socket.create_server((HOST, 0)) as door:
        print(door.getsockname()[1], flush=True)
        sock, _ = door.accept()
    with sock, contextlib.suppress(EOFError):
        _prepare(sock)
        order = bytearray(ORDER.size)
        while True:
            _read(sock, memoryview(order))
            nbytes, count = ORDER.unpack(order)
            gradient, weights = memoryview(bytearray(nbytes)), bytearray(nbytes)
            for _ in range(count):
                _read(sock, gradient)
                sock.sendall(weights)


if __name__ == "__main__":
    _serve()
