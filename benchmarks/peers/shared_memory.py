"""Two processes with shared memory, and one byte through a socket to wake the other: the lower bound.

Each side copies its array into the shared memory and sends the byte; the other side reads the array in place. The
kernel copies no arrays. The memory is anonymous, so it is released when the processes end for any reason. `python -m
benchmarks.peers.shared_memory FD` is the server; FD is its end of the socket.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Iterator

from .pairs import RoundTrips, companion_process

REQUEST = struct.Struct("<QQ")  # bytes, round trips
DOORBELL = b"!"
TIMEOUT_S = 30.0  # seconds


@contextlib.contextmanager
def open_pair() -> Iterator[RoundTrips]:
    """Open the pair, and yield a function (bytes, count) -> seconds of each of `count` round trips."""
    ours, theirs = socket.socketpair()
    with theirs, companion_process("benchmarks.peers.shared_memory", theirs.fileno(), pass_fds=[theirs.fileno()]), ours:
        theirs.close()  # the other process has a copy; the end of that process can be detected only if this one is closed

        def trip(nbytes: int, count: int) -> list[float]:
            gradient, seconds = bytes(nbytes), []
            with _memory(ours, nbytes, count) as (there, _):
                for _ in range(count):
                    began = time.perf_counter()
                    there[:] = gradient
                    ours.send(DOORBELL)
                    _wait(ours)
                    seconds.append(time.perf_counter() - began)
            return seconds

        yield trip


@contextlib.contextmanager
def _memory(sock: socket.socket, nbytes: int, count: int) -> Iterator[tuple[memoryview, memoryview]]:
    """Return new memory for both directions, which is announced to the other end."""
    fd = _anonymous(2 * nbytes)
    try:
        socket.send_fds(sock, [REQUEST.pack(nbytes, count)], [fd])
        with _halves(fd, nbytes) as halves:
            yield halves
    finally:
        os.close(fd)


def _anonymous(nbytes: int) -> int:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("round trip")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.truncate(fd, nbytes)
    return fd


@contextlib.contextmanager
def _halves(fd: int, nbytes: int) -> Iterator[tuple[memoryview, memoryview]]:
    """Map the memory, and return the halves (there, back) of `nbytes` each."""
    with (
        mmap.mmap(fd, 2 * nbytes) as memory,
        memoryview(memory) as whole,
        whole[:nbytes] as there,
        whole[nbytes:] as back,
    ):
        yield there, back


def _wait(sock: socket.socket) -> None:
    if not sock.recv(1):
        raise EOFError


def _serve(fd: int) -> None:
    with socket.socket(fileno=fd) as sock, contextlib.suppress(EOFError, ConnectionError):
        while True:
            request, fds, _, _ = socket.recv_fds(sock, REQUEST.size, 1)
            if not request:
                return
            nbytes, count = REQUEST.unpack(request)
            with _halves(fds[0], nbytes) as (_, back):
                os.close(fds[0])
                weights = bytes(nbytes)
                for _ in range(count):
                    _wait(sock)
                    back[:] = weights
                    sock.send(DOORBELL)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
