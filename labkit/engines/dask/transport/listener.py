"""The listener of one role, and the connections that it has accepted and that are not authenticated yet.

The number of these connections and the time that they may take are limited. Where there are too many, some are closed: first
those of hosts on which there is no role, of these the ones of the host that has most, and of these the oldest. So processes
that open connections and send nothing crowd out each other, and not the roles, which send their hello at once. A role that is
closed nevertheless dials again.
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

__all__ = ["Listener", "Unauthenticated"]

PENDING = 256  # unauthenticated connections at one time; most of these may be of no role
ROOM = 64  # of them that are closed where there is no room for another; and accepted in a row
HELLO_S, KNOWN_S = 3.0, 60.0  # seconds that a connection has for its hello, from a host without roles and with


class Unauthenticated:
    """A connection that was accepted and whose hello is not verified. `hello`: (hello, its bytes) when it is complete."""

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
        """What the peer has sent behind its hello."""
        return bytes(self._data[len(self.hello[1]) :]) if self.hello else b""

    def receive(self) -> None:
        """Read what has arrived. `EOFError` or `OSError` at the end, `ProtocolError` if it is no hello."""
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
        """Something has happened to the socket."""
        self._listener.read(self)


class Listener:
    """Accepts connections. `address`: (host, port).

    `authenticate(connection)` is called with each whose hello is complete: it calls `release` and takes the connection
    over, does nothing where it has to wait for news of the peer (see `news_of`), or raises `ProtocolError`, and the
    connection is refused. `hosts()`: those with roles. `record(text)`: of a connection that was closed for cause.

    To read: `pending`, the unauthenticated connections, the oldest first; `retries`, what `retry` has to do.
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
        """Accept connections, a limited number in a row."""
        for _ in range(ROOM):
            try:
                sock, address = self._socket.accept()
            except OSError:  # there is none, or it has left again
                return
            try:
                tcp = accept(sock, self._context)
            except OSError as error:
                sock.close()
                self._record(f"{address[0]}:{address[1]}: {error}")
                continue
            if len(self.pending) >= PENDING:
                self.make_room()
            limit = KNOWN_S if address[0] in self._hosts() else HELLO_S
            connection = Unauthenticated(tcp, address[0], address[1], self._now() + limit, self)
            self.pending[connection] = None
            self._poller.register(tcp.fileno(), READ, connection)
            self.read(connection)

    def make_room(self) -> None:
        """Close some unauthenticated connections. A role that is among them dials again."""
        known, crowd = set(self._hosts()), Counter(connection.host for connection in self.pending)

        def worth(connection: Unauthenticated) -> tuple[bool, bool, int]:
            return connection.hello is not None, connection.host in known, -crowd[connection.host]

        for connection in sorted(self.pending, key=worth)[:ROOM]:  # stable: of equal ones the oldest
            self._record(f"{connection.where}: closed, too many connections that say nothing")
            self._close(connection)

    def read(self, connection: Unauthenticated) -> None:
        """Read what has arrived on an unauthenticated connection."""
        self._step(connection, connection.receive)

    def news_of(self, name: str) -> None:
        """There is news of role `name`: authenticate its connections at the next `retry`."""
        self.retries += [c for c in self.pending if c.hello is not None and c.hello[0].sender == name]

    def retry(self) -> None:
        """Authenticate the connections of roles of which there was news."""
        retry, self.retries = self.retries, []
        for connection in retry:
            self._step(connection, lambda: None)

    def release(self, connection: Unauthenticated) -> tuple[TcpStream, bytes]:
        """Hand the connection over: (its stream, the bytes behind its hello)."""
        self._poller.unregister(connection.tcp.fileno())
        del self.pending[connection]
        return connection.tcp, connection.rest

    def expire(self, now: float) -> float:
        """Close connections that have not sent a hello in time. Returns when the next may have to be closed, in seconds."""
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
            with contextlib.suppress(OSError):  # it is gone, or reads nothing
                connection.tcp.send_control(REFUSED)
            self._close(connection)

    def _close(self, connection: Unauthenticated) -> None:
        del self.pending[connection]
        self._poller.unregister(connection.tcp.fileno())
        connection.tcp.close()
