"""The links of one role to its peers: for each peer a sequence of send connections, and counts of sent messages.

Sending to a peer that is gone is not an error; such messages count as undelivered. Frames in the queue of a connection
count as sent until the connection ends; then they count as undelivered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from ssl import SSLContext

from ....nn.buffer_pool import BufferPool
from .connection import Dialer, SendConnection
from .frames import FINAL
from .handshake import DialerHandshake
from .poller import Poller
from .shared_memory import Offer


class RoleLinks:
    """All links of one role. `address(to)`: (host, port) to dial. The other arguments are those of `Dialer`.

    Attributes to read: `sent` and `undelivered`, numbers of messages by peer; `unreachable`, {peer: why no connection is
    possible}; `direct`, the connections of links without faults, by peer; `queued`, the connections with a non-empty queue.
    """

    def __init__(
        self, poller: Poller, pool: BufferPool, context: SSLContext | None, host: str, memory_size: int,
        now: Callable[[], float], handshake: Callable[[str, Offer | None], DialerHandshake],
        address: Callable[[str], tuple[str, int]],
    ) -> None:  # fmt: skip
        self.sent: Counter[str] = Counter()
        self.undelivered: Counter[str] = Counter()
        self.unreachable: dict[str, str] = {}
        self.direct: dict[str, SendConnection] = {}
        self.finished = False  # whether close frames have been sent, after which no message can be sent
        self._address = address
        # {peer whose link was cut: number of the last frame that the peer has received}
        self._resume_after: dict[str, int] = {}
        self._owner_of: dict[SendConnection, Callable[[SendConnection, str], None]] = {}
        self._dialer = Dialer(poller, pool, context, host, memory_size, now, handshake, self._ended)
        self.queued = self._dialer.queued

    @property
    def open(self) -> tuple[SendConnection, ...]:
        return tuple(self._dialer.open)

    def dial(self, to: str) -> SendConnection | None:
        """Open and return a connection to `to`, or None if `to` cannot be reached.

        The connection is established in the background.
        """
        if to in self.unreachable:
            return None
        try:
            connection = SendConnection(to, *self._address(to), self.last_sequence(to), self._dialer)
        except OSError as error:
            self.unreachable[to] = str(error)
            return None
        self.direct[to] = connection
        connection.push()
        return self.direct.get(to)

    def last_sequence(self, to: str) -> int:
        """Return the number of the last frame of a link that was cut and continues in a new connection. 0 for a new link."""
        return self._resume_after.get(to, 0)

    def suspended(self, connection: SendConnection) -> None:
        """Record that the peer has closed a connection after the close frame `SUSPENDED`, so the peer has received all frames."""
        self._resume_after[connection.name] = connection.sequence

    def take(self, name: str, ended: Callable[[SendConnection, str], None]) -> SendConnection | None:
        """Remove the connection to `name` from `direct`, and return it, or None if there is none.

        From now on `ended` is called when this connection ends.
        """
        connection = self.direct.pop(name, None)
        if connection is not None:
            self._owner_of[connection] = ended
        return connection

    def return_connection(self, connection: SendConnection) -> None:
        """Put a connection that was removed by `take` back into `direct`."""
        del self._owner_of[connection]
        self.direct[connection.name] = connection

    def flush(self) -> None:
        """Write as much of the queues as the streams accept."""
        for connection in list(self.queued):
            connection.push()

    def expire(self, now: float) -> float:
        """End connections that are not established in time. Returns the next deadline, in seconds, or infinity."""
        return min((connection.expire(now) for connection in list(self.queued)), default=float("inf"))

    def forget(self, name: str) -> None:
        """End the direct connection to `name`; the next message to it begins a new link."""
        if name in self.direct:
            self.direct[name].end("forgotten")
        self._resume_after.pop(name, None)

    def finish(self) -> None:
        """Send a close frame on every direct connection. No message can be sent to any peer afterwards."""
        self.finished = True
        connections = list(self.direct.values())
        self.direct.clear()
        for connection in connections:
            connection.finish(FINAL)

    def count_undelivered(self, name: str, count: int) -> None:
        """Count `count` messages to `name`, which had counted as sent, as undelivered."""
        self.sent[name] -= count
        self.undelivered[name] += count

    def messages(self) -> Iterator[tuple[str, memoryview]]:
        """Yield (to, frame) of every queued message of which no byte has been sent."""
        for connection in self.queued:
            for data in connection.messages():
                yield connection.name, data

    def close(self) -> None:
        for connection in self.open:
            connection.end("closed by this role")

    def _ended(self, connection: SendConnection, reason: str) -> None:
        name = connection.name
        self.count_undelivered(name, connection.unsent)
        owner = self._owner_of.pop(connection, None)
        if owner is not None:
            owner(connection, reason)
        elif self.direct.get(name) is connection:
            del self.direct[name]
            self.unreachable[name] = reason
