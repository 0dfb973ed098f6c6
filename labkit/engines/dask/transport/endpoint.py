"""The endpoint of a role: all its connections, to and from the other roles of a run.

Messages go from process to process, over TCP or, on one host, through shared memory. An endpoint belongs to one role and one
thread, and only `poll` waits. `send` hands its bytes to a stream and copies what the stream does not take, so two roles that
send at once never deadlock, and a slow reader never blocks a fast sender. Every connection carries one direction; the sender
dials. So an end of file means one thing: the sender is gone, in order after a close frame, lost without one.

A connection opens with a handshake in which each side proves which role instance it is (`handshake`). Connections of other
processes, garbage, earlier incarnations of a restarted role, another protocol, and a second connection of an instance that is
connected are closed and recorded in `refused`; the role is not told of them. A connection of an incarnation of which there is
no news yet waits for it. Delivery is first-in first-out per sender. The counts `sent` and `received` are for the current
incarnation of each peer: when they agree between all present roles, no message is in flight.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import Random
from ssl import SSLContext
from typing import Any

from ....errors import BadInput, RoleError, nearest
from ....nn.pool import BufferPool
from ....roles.messages import Message, loose_bytes
from ...commands import RESEND_S
from ..protocol import ProtocolError
from .connection import ReceiveConnection, Receiver, SendConnection
from .frames import FINAL, HEADER, MAGIC, MAX_FRAME, SUSPENDED, Codec, Header, lay_out
from .handshake import DialerHandshake, Hello, Identity, verify, welcome
from .link_faults import DelayedLink, LinkFault, LinkFaults
from .links import Links
from .listener import Listener, Unauthenticated
from .poller import Poller
from .shared_memory import SIZE, Offer

__all__ = ["Delivered", "Endpoint"]

_RECORDS = 1000  # refused connections that are recorded; a flood of them must not fill the memory


@dataclass(slots=True)
class Delivered:
    """A message that has arrived, and what its frame said.

    `nbytes`: of its arrays. `sent_ns`: the sender's engine time, `received_ns`: the receiver's. `computed`: gradients
    the sender had computed so far.
    """

    message: Message
    kind_index: int
    category: int
    nbytes: int
    sent_ns: int
    received_ns: int
    computed: int


@dataclass(frozen=True, slots=True)
class _Peer:
    """Where an instance of another role listens."""

    host: str
    port: int
    key: str
    incarnation: int


class Endpoint:
    """All connections of one role.

    `run` is the same for all roles of a run. `clock()` is engine time in nanoseconds; it stamps frames and decides nothing.
    `server_context` and `client_context` (both or none) encrypt. `max_frame`: bytes. `share`: offer memory, of `memory_size`
    bytes, to peers on this host; what they offer is accepted in any case. `now()`: seconds, for time limits; `random(peer)`:
    the source of chance of a link that loses frames, and `resend_s`: seconds until these are retransmitted. `identity`: the
    key pair of this role instance; a new one unless it is given.

    `address` is what others dial: (host, port); `contact` is what they must know: host, port, public key. What has
    arrived goes to `deliver`, whose arguments are the fields of `Delivered`; where nothing else is set it waits in
    `inbox`. That happens in `poll` and nowhere else.

    To read: `sent`, `received`, `undelivered` (messages by peer), `repeated` (messages that had arrived before), `refused`
    (connections closed for cause), `unreachable` (peers that cannot be reached, and why), `left` and `lost` (senders that
    ended with a close frame, and without).
    """

    def __init__(
        self, name: str, incarnation: int, codec: Codec, host: str = "127.0.0.1", *,
        clock: Callable[[], int] = time.monotonic_ns, run: str = "", server_context: SSLContext | None = None,
        client_context: SSLContext | None = None, max_frame: int = MAX_FRAME, share: bool = True, memory_size: int = SIZE,
        now: Callable[[], float] = time.monotonic, random: Callable[[str], Random] | None = None,
        resend_s: float = RESEND_S, identity: Identity | None = None,
    ) -> None:  # fmt: skip
        if (server_context is None) != (client_context is None):
            raise BadInput("An endpoint is encrypted in both directions or in none: give both TLS contexts or neither.")
        self.name, self.incarnation, self.codec, self.run = name, incarnation, codec, run
        self.clock, self.max_frame = clock, max_frame
        self.identity, self.pool = identity or Identity(), BufferPool()
        self.inbox: deque[Delivered] = deque()
        self.deliver: Callable[[Message, int, int, int, int, int, int], None] = self._keep
        self.received: Counter[str] = Counter()
        self.repeated: Counter[str] = Counter()
        self.refused: list[str] = []
        self.left: set[str] = set()
        self.lost: set[str] = set()
        self._peers: dict[str, _Peer] = {}  # those that can be sent to
        self._minimum: dict[str, int] = {}  # the newest incarnation of each role that was heard of
        self._known: dict[str, _Peer] = {}  # where it listens, of those of which that was said
        self._numbers: dict[str, int] = {}  # of every instance, by its public key, the number of its last connection
        self._suspended_at: dict[str, int] = {}  # of senders whose link was cut: the number of their last frame
        self._dialled = 0  # connections
        self._holding = False  # no message is taken in now: see `progress`
        self._draining = False
        self._now = now
        self._poller = Poller()
        self._receiver = Receiver(
            self._poller, self.pool, max_frame, memory_size, self._deliver, self._count_repeated, self._receive_ended
        )
        self._listener = Listener(
            host, self._poller, server_context, now, self._authenticate, self._hosts, self._record
        )
        self._links = Links(
            self._poller,
            self.pool,
            client_context,
            host if share else "",
            memory_size,
            now,
            self._handshake,
            self._address,
        )
        own_random = random or (lambda peer: Random(f"{run}/{name}/{incarnation}/{peer}/drop"))
        self._faults = LinkFaults(self._links, self.pool, own_random, now, resend_s)
        self.sent, self.undelivered, self.unreachable = (
            self._links.sent,
            self._links.undelivered,
            self._links.unreachable,
        )
        self.address: tuple[str, int] = self._listener.address
        self.contact: tuple[str, int, str] = (*self.address, self.identity.public)

    # peers --------------------------------------------------------------------------------------------------------------

    def add_peer(self, name: str, host: str, port: int, key: str, incarnation: int) -> None:
        """This incarnation of role `name` listens there, and that is its public key.

        Of a newer incarnation than before the counts start at 0, and earlier ones are refused from now on. Of an earlier
        one nothing changes.
        """
        peer = _Peer(host, port, key, incarnation)
        if self._peers.get(name) == peer or incarnation < self._minimum.get(name, -1):
            return
        self._known[name] = peer
        self._listener.news_of(name)
        self.remove_peer(name)
        self.unreachable.pop(name, None)
        self._peers[name] = peer
        self._raise_minimum(name, incarnation)

    def remove_peer(self, name: str) -> None:
        """Role `name` is gone: nothing is sent to it any more. What it has sent can still be read."""
        self._peers.pop(name, None)
        self._links.forget(name)
        self._faults.forget(name)

    def fence(self, name: str, incarnation: int) -> None:
        """Role `name` is gone, and its incarnations before this one are refused from now on."""
        self.remove_peer(name)
        self._raise_minimum(name, incarnation)

    def _raise_minimum(self, name: str, incarnation: int) -> None:
        if incarnation <= self._minimum.get(name, -1):
            return
        self._minimum[name] = incarnation
        if name in self._known and self._known[name].incarnation < incarnation:
            del self._known[name]
        for connection in list(self._receiver.open):
            if connection.name == name:
                connection.end(f"incarnation {connection.incarnation}, but {incarnation} is known")
        for counter in (self.sent, self.received):
            counter.pop(name, None)
        self.left.discard(name)
        self.lost.discard(name)

    def _hosts(self) -> Collection[str]:
        return {peer.host for peer in self._known.values()}

    def _address(self, name: str) -> tuple[str, int]:
        return self._peers[name].host, self._peers[name].port

    def _handshake(self, to: str, offer: Offer | None) -> DialerHandshake:
        self._dialled += 1
        hello = Hello(self.run, self.name, to, self.incarnation, self._dialled, offer, self._links.last_sequence(to))
        return DialerHandshake(hello, self.identity.key(self._peers[to].key))

    # sending ------------------------------------------------------------------------------------------------------------

    def send(self, to: str, message: Message, category: int = 0, computed: int = 0) -> int:
        """Send; never waits, never aliases. Returns the bytes of the message's payload, 0 if `to` is gone.

        `RoleError` for a message that cannot be encoded, and for a name that no role ever had.
        """
        connection = self._links.direct.get(to)
        if connection is not None and connection.in_memory:
            prepared = self.codec.prepare(message)
            if (
                prepared is not None
                and prepared[0].size <= self.max_frame
                and connection.send_prepared(*prepared, category, self.clock(), computed)
            ):
                self.sent[to] += 1
                return prepared[0].payload + loose_bytes(message)
        return self._send_pieces(to, message, category, computed)

    def _send_pieces(self, to: str, message: Message, category: int, computed: int) -> int:
        kind = self.codec.index(message, self.name)
        meta, arrays = self.codec.encode(message)
        payload_pieces, payload, padding = lay_out(arrays)
        if len(meta) + payload > self.max_frame:
            what = f"{self.name} sends {type(message).__name__} of {payload:,} bytes"
            raise RoleError(f"{what}; a message has at most {self.max_frame:,}.")
        link = self._links.direct.get(to) or self._reach(to)
        if link is None:
            self.undelivered[to] += 1
            return 0
        link.sequence += 1
        self.sent[to] += 1
        header = HEADER.pack(
            MAGIC, kind, category, 0, len(meta), padding, link.sequence, self.clock(), computed, payload
        )
        if isinstance(link, DelayedLink):
            self._faults.hold(link, [header, meta, *payload_pieces])
        else:
            link.send([header, meta, *payload_pieces])
        return payload - padding + loose_bytes(message)

    def _reach(self, to: str) -> SendConnection | DelayedLink | None:
        """A new connection, or the delayed link to a peer whose link has a fault; None if `to` is gone."""
        if to not in self._minimum:
            raise RoleError(f"{self.name} sends to {to!r}. {nearest('role', to, self._minimum)}")
        if to not in self._peers or self._links.finished or to in self.unreachable:
            return None
        return self._faults.reach(to) or self._links.dial(to)

    def connect(self, to: str) -> None:
        """Begin a connection to `to`, if there is none, without sending anything."""
        if to not in self._links.direct:
            self._reach(to)

    def flush(self) -> None:
        """Hand over what is queued, as far as the streams take it. Never waits."""
        if self._faults.delayed:
            self._faults.release()
        if self._links.queued:
            self._links.flush()

    def set_link_fault(self, peer: str | None, *, delay: float = 0.0, drop: float = 0.0, cut: bool = False) -> None:
        """From now on the link to `peer` behaves so; None: all links, also those that begin later. Replaces the fault that
        was set before; all zero: none.

        `delay` s pass before a frame to `peer` is handed over; with probability `drop` it is lost, and retransmitted; while
        the link is `cut`, nothing passes in either direction, if the peer's endpoint is told the same. `BadInput` for
        other numbers. Every message still arrives once, and in order. See `link_faults`.
        """
        self._faults.set(peer, LinkFault(delay, drop, cut).checked())
        self._resume_reading()

    def link_fault(self, peer: str) -> LinkFault:
        """How the link to and from `peer` behaves."""
        return self._faults.fault(peer)

    def unsent_gradients(self) -> list[tuple[str, int, int]]:
        """(to, step, count) of every message that carries gradients and of which nothing has left this role.

        For the ledger, between the last `poll` and `close`. A frame of which a stream has taken a part is not listed: its
        peer is one of those that `finish_sending` returns.
        """
        found = []
        for to, data in (*self._faults.messages(), *self._links.messages()):
            header = HEADER.unpack_from(data)
            kind, end = header[1], HEADER.size + header[4]
            message: Any = self.codec.decode(kind, data[HEADER.size : end], data[end:], self.name, self.incarnation)
            if message.carries:
                found.append((to, message.step, message.count))
        return found

    # receiving ----------------------------------------------------------------------------------------------------------

    def poll(self, timeout_s: float, watch: bool = True) -> None:
        """Wait until something can be read or written, or `wake` is called, at most `timeout_s` seconds; then deliver all
        complete messages. `watch`: see `Poller.wait`."""
        receiver = self._receiver
        if receiver.unread or self._listener.retries:
            timeout_s = 0.0
            self._read_again()
        if self._faults.delayed:
            timeout_s = min(timeout_s, self._faults.release())
        if self._listener.pending or self._links.queued:
            timeout_s = min(timeout_s, self._expire())
        for owner in self._poller.wait(timeout_s, watch):
            owner.on_ready()
        for connection in receiver.in_memory:
            if connection.has_news():
                connection.read()
        if self._faults.delayed:
            self._faults.release()

    def progress(self) -> None:
        """Complete handshakes and hand over what is queued, without delivering a message. Never waits.

        For a role that is paused, or has made its step: peers that go on must be able to connect to it, and to receive what
        it sent before.
        """
        self._holding = True
        try:
            for owner in self._poller.look():
                if not isinstance(owner, ReceiveConnection):
                    owner.on_ready()
        finally:
            self._holding = False
        self._resume_reading()

    def wake(self) -> None:
        """End the current `poll`, or the next one. The one method that another thread may call."""
        self._poller.wake()

    def _read_again(self) -> None:
        unread = list(self._receiver.unread)
        self._receiver.unread.clear()
        self._listener.retry()
        for connection in unread:
            if connection.open and not connection.suspended:
                connection.read()

    def _expire(self) -> float:
        """Close connections whose handshake takes too long. Returns the seconds until the next may have to be closed."""
        now = self._now()
        return min(self._links.expire(now), self._listener.expire(now)) - now

    def _authenticate(self, connection: Unauthenticated) -> None:
        """Accept a connection whose hello proves which role instance it is. `ProtocolError` if it does not."""
        assert connection.hello is not None
        hello, said = connection.hello
        name, incarnation = hello.sender, hello.incarnation
        if (hello.run, hello.to) != (self.run, self.name) or not name:
            raise ProtocolError(f"{name!r} of run {hello.run!r} looks for {hello.to!r} of that run")
        minimum = self._minimum.get(name, -1)
        if incarnation < minimum:
            raise ProtocolError(f"incarnation {incarnation} of {name}, but {minimum} is known")
        if incarnation > minimum or name not in self._known:
            return  # restarted, and here before the news of it, which bring its key: see `add_peer`
        public = self._known[name].key
        key = self.identity.key(public)
        verify(said, key)
        if hello.number <= self._numbers.get(public, 0):
            raise ProtocolError(f"connection {hello.number} of {name}, which there has been")
        if self._is_connected(name, incarnation):
            raise ProtocolError(f"a second connection of {name}, incarnation {incarnation}")
        if hello.after not in (0, self._suspended_at.get(name, 0)):
            raise ProtocolError(f"goes on after frame {hello.after}, which was not the last")
        connection.tcp.send_control(welcome(said, key))
        self._numbers[public] = hello.number
        tcp, rest = self._listener.release(connection)
        accepted = ReceiveConnection(name, incarnation, hello.after, tcp, rest, self._receiver)
        accepted.accept(hello.offer)
        if self._is_held(name):
            accepted.suspend()
        else:
            accepted.read()

    def _is_connected(self, name: str, incarnation: int) -> bool:
        """Whether this instance is connected. Reads on first: its end may be there and not read yet."""
        for other in [c for c in self._receiver.open if (c.name, c.incarnation) == (name, incarnation)]:
            if not other.suspended:
                other.on_ready()
            if other.open:
                return True
        return False

    def _is_held(self, name: str) -> bool:
        """Whether no message of `name` may be taken in for now."""
        return self._holding or (self._faults.fault(name).cut and not self._draining)

    def _resume_reading(self) -> None:
        for connection in [c for c in self._receiver.open if c.suspended and not self._is_held(c.name)]:
            connection.resume()

    def _deliver(self, connection: ReceiveConnection, header: Header, body: memoryview) -> None:
        _, kind, category, _, meta, padding, _, sent_ns, computed, payload = header
        message = self.codec.decode(kind, body[:meta], body[meta:], connection.name, connection.incarnation)
        self.received[connection.name] += 1
        self.deliver(message, kind, category, payload - padding, sent_ns, self.clock(), computed)

    def _keep(self, *what: Any) -> None:
        self.inbox.append(Delivered(*what))

    def _count_repeated(self, connection: ReceiveConnection) -> None:
        self.repeated[connection.name] += 1

    def _receive_ended(self, connection: ReceiveConnection, reason: str) -> None:
        name = connection.name
        if reason:
            self._record(f"{name}: {reason}")
        if connection.incarnation != self._minimum[name]:
            return
        if connection.closed_with == SUSPENDED:
            self._suspended_at[name] = connection.sequence
        else:
            (self.left if connection.closed_with == FINAL else self.lost).add(name)

    def _record(self, refusal: str) -> None:
        if len(self.refused) < _RECORDS:
            self.refused.append(refusal)

    # the end ------------------------------------------------------------------------------------------------------------

    def finish_sending(self, timeout: float) -> set[str]:
        """Send a close frame to every peer, reading on meanwhile, at most `timeout` seconds. Returns the peers that have not
        taken everything.

        What is sent afterwards is undelivered. What is held for a link that is cut stays there, and is not waited for.
        """
        self._links.finish()
        self._faults.finish()
        until = self._now() + timeout
        while (self._links.queued or self._faults.waiting) and (left := until - self._now()) > 0:
            self.poll(left)
        self._faults.stop()
        return {connection.name for connection in self._links.queued} | {to for to, _ in self._faults.messages()}

    def drain(self, expected_senders: Collection[str], timeout: float) -> set[str]:
        """Read until the expected senders' connections have ended, at most `timeout` seconds. Returns those that have not.

        A connection that was opened is found, one that was never opened is not waited for: call it when every expected
        sender's `finish_sending` has returned. Then everything that was in flight to this role is delivered, also what
        a cut had held back.
        """
        self._draining = True
        self._resume_reading()
        until = self._now() + timeout
        self.poll(0.0)
        while True:
            still = {connection.name for connection in self._receiver.open} & set(expected_senders)
            left = until - self._now()
            if left <= 0 or not (still or any(connection.begun for connection in self._listener.pending)):
                return still
            self.poll(left)

    def close(self) -> None:
        """Close every connection and the listener. What was not sent is lost; `finish_sending` is the end in order."""
        self._faults.close()
        self._links.close()
        for connection in list(self._receiver.open):
            connection.end("")
        self._listener.close()
        self._poller.close()

    # inspection ---------------------------------------------------------------------------------------------------------

    @property
    def sending(self) -> tuple[SendConnection, ...]:
        """The connections to peers that are not over."""
        return self._links.open

    @property
    def receiving(self) -> tuple[ReceiveConnection, ...]:
        """The authenticated connections from peers that are not over."""
        return tuple(self._receiver.open)

    @property
    def unauthenticated(self) -> tuple[Unauthenticated, ...]:
        """The accepted connections that are not authenticated."""
        return tuple(self._listener.pending)

    @property
    def queued(self) -> int:
        """Connections with bytes that their stream has not taken."""
        return len(self._links.queued)

    @property
    def held(self) -> dict[str, int]:
        """Messages that are held on links with faults, by peer, for each such link."""
        counts = dict.fromkeys(self._faults.delayed, 0)
        for name, _ in self._faults.messages():
            counts[name] += 1
        return counts
