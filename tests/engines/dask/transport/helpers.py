"""Helpers for the tests of the transport."""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from labkit.engines.dask.transport.connection import ReceiveConnection, SendConnection
from labkit.engines.dask.transport.endpoint import Endpoint
from labkit.engines.dask.transport.handshake import Hello, Identity
from labkit.engines.dask.transport.shared_memory import DATA, ORIGIN, WRITTEN, Offer
from labkit.roles.messages import Ack, Pull, Push, Weights, field_names

KINDS = (Push, Pull, Weights, Ack)
LONG = 1e6  # seconds; nothing takes that long


def introduce(*endpoints: Endpoint) -> None:
    for here in endpoints:
        for there in endpoints:
            if here is not there:
                here.add_peer(there.name, *there.contact, there.incarnation)


def connect(*endpoints: Endpoint) -> None:
    """Open all links without sending messages; afterwards every frame goes through shared memory if it is used."""
    for here in endpoints:
        for there in endpoints:
            if here is not there:
                here.connect(there.name)
    others = len(endpoints) - 1
    run(endpoints, lambda: all(len(endpoint.receiving) >= others for endpoint in endpoints))
    run(endpoints, lambda: all(link.ready for endpoint in endpoints for link in endpoint.sending))


def run(endpoints: tuple[Endpoint, ...], done: Callable[[], Any]) -> None:
    """Let the endpoints work until `done()`. If there is nothing to do, only the last one waits: none waits for another."""
    while not done():
        for endpoint in endpoints:
            endpoint.flush()
            endpoint.poll(0.001 if endpoint is endpoints[-1] else 0.0)


def sending_to(here: Endpoint, there: str) -> SendConnection:
    """The connection that `here` sends to `there` on."""
    return next(connection for connection in here.sending if connection.name == there)


def receiving_from(here: Endpoint, sender: str) -> ReceiveConnection:
    """The connection that `here` receives from `sender` on."""
    return next(connection for connection in here.receiving if connection.name == sender)


def suspended(endpoint: Endpoint) -> list[ReceiveConnection]:
    return [connection for connection in endpoint.receiving if connection.suspended]


def values(endpoint: Endpoint) -> list[Any]:
    return [delivered.message for delivered in endpoint.inbox]


def contents(endpoint: Endpoint) -> list[Any]:
    """The messages that have arrived, as they were before they were sent: without sender and incarnation."""
    return [type(m)(*(getattr(m, name) for name in field_names(type(m)))) for m in values(endpoint)]


def dial(endpoint: Endpoint, data: bytes = b"") -> socket.socket:
    sock = socket.create_connection(endpoint.address)
    sock.sendall(data)
    return sock


def hello(to: Endpoint, name: str = "stranger", incarnation: int = 0, run: str = "", **more: Any) -> bytes:
    """The handshake of a role instance that is a member for `to`."""
    identity = Identity()
    to.add_peer(name, "127.0.0.1", 9, identity.public, incarnation)
    return Hello(run, name, more.pop("called", to.name), incarnation, **more).pack(identity.key(to.identity.public))


def is_closed(sock: socket.socket) -> bool:
    """Wait until the connection is closed, after the acceptor's bytes; true."""
    with sock, contextlib.suppress(ConnectionResetError):
        while sock.recv(100):
            pass
    return True


def shut(connection: SendConnection | ReceiveConnection) -> None:
    """Close the stream below a connection, as the kernel does when a process is killed."""
    with socket.socket(fileno=os.dup(connection.fileno())) as sock:
        sock.shutdown(socket.SHUT_RDWR)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def mappings() -> int:
    return Path("/proc/self/maps").read_text().count("/memfd:labkit-")


class Intruder:
    """Access to the memory of a pending offer, for writing in violation of the protocol."""

    def __init__(self, offer: Offer | None) -> None:
        assert offer is not None
        fd = os.open(f"/proc/{offer.pid}/fd/{offer.fd}", os.O_RDWR | os.O_CLOEXEC)
        self._map = mmap.mmap(fd, os.fstat(fd).st_size)
        os.close(fd)
        self.words = memoryview(self._map)[:DATA].cast("q")

    def write(self, data: bytes) -> None:
        """Append bytes as the writer does, also if there is no room."""
        written, size = self.words[WRITTEN], len(self._map) - DATA
        at = (written - self.words[ORIGIN]) % size
        first = data[: size - at]
        self._map[DATA + at : DATA + at + len(first)] = first
        rest = data[len(first) :]
        self._map[DATA : DATA + len(rest)] = rest
        self.words[WRITTEN] = written + len(data)

    def close(self) -> None:
        self.words.release()
        self._map.close()
