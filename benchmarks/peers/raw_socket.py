"""Two processes on a blocking TCP socket with `TCP_NODELAY`: the lower bound that the kernel sets.

The size is sent once for many round trips. After that only the bytes are sent, from and into existing buffers.
`python -m benchmarks.peers.raw_socket` is the server.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator

from ..subprocesses import server_process
from .pairs import RoundTrips

HOST, REQUEST = "127.0.0.1", struct.Struct("<QQ")  # bytes, round trips
TIMEOUT_S = 30.0  # seconds


@contextlib.contextmanager
def open_pair() -> Iterator[RoundTrips]:
    """Open the pair, and yield a function (bytes, count) -> seconds of each of `count` round trips."""
    with (
        server_process("benchmarks.peers.raw_socket") as port,
        socket.create_connection((HOST, int(port)), TIMEOUT_S) as sock,
    ):
        _prepare(sock)

        def trip(nbytes: int, count: int) -> list[float]:
            gradient, weights, seconds = bytearray(nbytes), memoryview(bytearray(nbytes)), []
            sock.sendall(REQUEST.pack(nbytes, count))
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
    """Fill `into` with received bytes. Raises `EOFError` if the connection is closed."""
    while into:
        count = sock.recv_into(into)
        if not count:
            raise EOFError
        into = into[count:]


def _serve() -> None:
    with socket.create_server((HOST, 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        sock, _ = listener.accept()
    with sock, contextlib.suppress(EOFError):
        _prepare(sock)
        request = bytearray(REQUEST.size)
        while True:
            _read(sock, memoryview(request))
            nbytes, count = REQUEST.unpack(request)
            gradient, weights = memoryview(bytearray(nbytes)), bytearray(nbytes)
            for _ in range(count):
                _read(sock, gradient)
                sock.sendall(weights)


if __name__ == "__main__":
    _serve()
