"""The listener of one role, and the accepted connections that are not authenticated yet.

The number of these connections, and the time until their hello, are limited. If there are too many, some are closed:
first those without a complete hello, then those from hosts without roles, then those of the host with the most
connections, then the oldest. So processes that open connections and send nothing displace each other. They do not
displace roles, which send their hello at once. A role whose connection is closed dials again.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Collection
from ssl import SSLContext

from ..protocol import ProtocolError
from .handshake import MAX_HELLO, REFUSED, Hello
from .poller import READ, Poller
from .tcp import TcpStream, accept, listen

MAX_PENDING = 256  # limit of unauthenticated connections
EVICTED = 64  # number of connections that are closed at that limit; also limit of consecutive accepts
HELLO_S, PEER_HELLO_S = 3.0, 60.0  # timeouts for the hello, seconds; the second one is for hosts with roles


class Unauthenticated:
    """An accepted connection whose hello is not verified yet. `hello`: (hello, its bytes) once it is complete."""

    __slots__ = ("_data", "_listener", "deadline", "hello", "host", "tcp", "where")

    def __init__(self, tcp: TcpStream, host: str, port: int, deadline: float, listener: Listener) -> None:
        self.tcp, self.host, self.where, self.deadline = tcp, host, f"{host}:{port}", deadline
        self.hello: tuple[Hello, bytes] | None = None
        self._data = bytearray()
        self._listener = listener

    @property
    def begun(self) -> bool:
        """Whether the peer has sent anything."""
        return bool(self._data)

    @property
    def rest(self) -> bytes:
        """The bytes that the peer has sent after its hello."""
        return bytes(self._data[len(self.hello[1]) :]) if self.hello else b""

    def receive(self) -> None:
        """Read the available bytes.

        Raises `EOFError` or `OSError` at the end of the stream, and `ProtocolError` if the bytes are not a hello.
        """
        buffer = memoryview(bytearray(MAX_HELLO - len(self._data)))
        if not buffer:
            raise ProtocolError("too many bytes before the handshake is complete")
        try:
            self._data += buffer[: self.tcp.read_into([buffer])]
        except BlockingIOError:
            return
        if self.hello is None:
            self.hello = Hello.unpack(bytes(self._data))

    def on_ready(self) -> None:
        self._listener.read(self)


class Listener:
    """Accepts connections. `address`: (host, port).

    `authenticate(connection)` is called for each connection with a complete hello. This function calls `release` and takes over
    the connection, or does nothing if the peer is not known yet (see `peer_announced`), or raises `ProtocolError` to reject the
    connection. `hosts()`: hosts with roles. `record(text)` is called for each connection that is closed because of an error.

    Attributes to read: `pending`, the unauthenticated connections, oldest first; `retries`, the connections for `retry`.
    """

    def __init__(
        self, host: str, poller: Poller, context: SSLContext | None, now: Callable[[], float],
        authenticate: Callable[[Unauthenticated], None], hosts: Callable[[], Collection[str]],
        record: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._poller, self._context, self._now = poller, context, now
        self._authenticate, self._hosts, self._record = authenticate, hosts, record
        self.pending: dict[Unauthenticated, None] = {}
        self.retries: list[Unauthenticated] = []
        self._socket = listen(host)
        self.address: tuple[str, int] = (host, self._socket.getsockname()[1])
        poller.register(self._socket.fileno(), READ, self)

    def on_ready(self) -> None:
        """Accept connections, at most `EVICTED` of them."""
        for _ in range(EVICTED):
            try:
                sock, address = self._socket.accept()
            except OSError:  # there is no connection to accept, or the peer has disconnected
                return
            try:
                tcp = accept(sock, self._context)
            except OSError as error:
                sock.close()
                self._record(f"{address[0]}:{address[1]}: {error}")
                continue
            if len(self.pending) >= MAX_PENDING:
                self.evict()
            limit = PEER_HELLO_S if address[0] in self._hosts() else HELLO_S
            connection = Unauthenticated(tcp, address[0], address[1], self._now() + limit, self)
            self.pending[connection] = None
            self._poller.register(tcp.fileno(), READ, connection)
            self.read(connection)

    def evict(self) -> None:
        """Close some unauthenticated connections, in the order that the module describes. Roles dial again."""
        known, per_host = set(self._hosts()), Counter(connection.host for connection in self.pending)

        def priority(connection: Unauthenticated) -> tuple[bool, bool, int]:
            return connection.hello is not None, connection.host in known, -per_host[connection.host]

        # the sort is stable: among equals the oldest come first
        for connection in sorted(self.pending, key=priority)[:EVICTED]:
            self._record(f"{connection.where}: closed, too many unauthenticated connections")
            self._close(connection)

    def read(self, connection: Unauthenticated) -> None:
        """Read from an unauthenticated connection, and authenticate it if its hello is complete."""
        self._step(connection, connection.receive)

    def peer_announced(self, name: str) -> None:
        """Select the connections of role `name` for the next `retry`, because a membership change has announced this role."""
        self.retries += [c for c in self.pending if c.hello is not None and c.hello[0].sender == name]

    def retry(self) -> None:
        """Try again to authenticate the connections that `peer_announced` has selected."""
        retry, self.retries = self.retries, []
        for connection in retry:
            self._step(connection, lambda: None)

    def release(self, connection: Unauthenticated) -> tuple[TcpStream, bytes]:
        """Give up ownership of a connection. Returns (its stream, the bytes after its hello)."""
        self._poller.unregister(connection.tcp.fileno())
        del self.pending[connection]
        return connection.tcp, connection.rest

    def expire(self, now: float) -> float:
        """Close connections that have not sent a hello in time. Returns the next deadline, in seconds, or infinity."""
        for connection in list(self.pending):
            if now >= connection.deadline:
                self._record(f"{connection.where}: no hello in time")
                self._close(connection)
        return min((connection.deadline for connection in self.pending), default=math.inf)

    def close(self) -> None:
        """Close the listening socket and all unauthenticated connections."""
        for connection in list(self.pending):
            self._close(connection)
        self._socket.close()

    def _step(self, connection: Unauthenticated, receive: Callable[[], None]) -> None:
        if connection not in self.pending:
            return
        try:
            receive()
            if connection.hello is not None:
                self._authenticate(connection)
        except (ProtocolError, EOFError, OSError) as error:
            self._record(f"{connection.where}: {str(error) or 'closed before its hello'}")
            with contextlib.suppress(OSError):  # the peer may be gone, or not read
                connection.tcp.send_control(REFUSED)
            self._close(connection)

    def _close(self, connection: Unauthenticated) -> None:
        del self.pending[connection]
        self._poller.unregister(connection.tcp.fileno())
        connection.tcp.close()
