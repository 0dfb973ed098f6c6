"""The endpoint of a role: all its connections, to and from the other roles of a run.

Messages are sent directly between processes, over TCP or, on one host, through shared memory. An endpoint belongs to
one role and one thread, and only `poll` blocks. `send` writes to a stream and queues a copy of the bytes that the
stream does not accept. So two roles that send to each other never deadlock, and a slow receiver never blocks a fast
sender. Every connection is simplex and dialled by the sender. So an end of file means that the sender has ended: as
intended after a close frame, lost without one.

A connection opens with a handshake in which each side proves which role instance it is (`handshake`). A connection is
closed and recorded in `refused`, without notifying the role, if it comes from another process, carries invalid bytes or
another protocol number, comes from an earlier incarnation of a restarted role, or is a second connection of a connected
instance. A connection of an incarnation that is not known yet stays unauthenticated until `add_peer` announces this
incarnation.

Delivery is first-in first-out per sender. The counts `sent` and `received` cover only the current incarnation of each
peer. If they agree between all present roles, no message is in flight.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from random import Random
from ssl import SSLContext
from typing import Any

from ....errors import BadInput, RoleError, nearest
from ....nn.buffer_pool import BufferPool
from ....roles.messages import Message, bytes_outside_arrays
from ....trace.schema import EVALUATION
from ...commands import RESEND_S
from ..protocol import ProtocolError
from .connection import ReceiveConnection, Receiver, SendConnection
from .frames import FINAL, HEADER, MAGIC, MAX_FRAME, SUSPENDED, FrameCodec, Header, lay_out
from .handshake import DialerHandshake, Hello, Identity, verify, welcome
from .link_faults import DelayedLink, FaultyLinks, LimitedArrivals, LinkFault
from .links import RoleLinks
from .listener import Listener, Unauthenticated
from .poller import Poller
from .shared_memory import SIZE, Offer

NO_ANSWER = "no answer"
_RECORDS = 1000  # limit of the rejected connections that are recorded


@dataclass(slots=True)
class Delivered:
    """A message that has arrived, with the fields of its frame.

    `kind_index`: number of the message's kind. `category`: category of the message, for the trace. `nbytes`: bytes of
    its arrays. `sent_ns`: the sender's engine time. `received_ns`: the receiver's engine time. `computed`: number of
    gradients that the sender had computed.
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
    """The address and public key of an instance of another role."""

    host: str
    port: int
    key: str
    incarnation: int


class Endpoint:
    """All connections of one role.

    `run`: the same for all roles of a run. `clock()`: engine time in ns, used only to timestamp frames.
    `server_context` and `client_context`: TLS contexts, both or neither. `max_frame`: limit of the bytes of a frame.
    `share`: offer shared memory of `memory_size` bytes to peers on this host; offers of peers are accepted in any case.
    `now()`: seconds, for time limits. `random(peer)`: random generator of a lossy link. `resend_s`: seconds until lost
    frames are retransmitted. `identity`: the key pair of this role instance; None: a new one.

    `address`: (host, port) that peers dial. `contact`: (host, port, public key). Messages are delivered only in `poll`,
    which calls `deliver` with the fields of `Delivered` as arguments. By default `deliver` appends them to `inbox`.

    Attributes to read: `sent`, `received`, `undelivered` (numbers of messages by peer), `repeated` (numbers of
    duplicates by peer), `refused` (texts about connections that were closed because of an error), `unreachable` ({peer:
    reason}), `left` and `lost` (senders that ended with and without a close frame).
    """

    def __init__(
        self, name: str, incarnation: int, codec: FrameCodec, host: str = "127.0.0.1", *,
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
        self.deliver: Callable[[Message, int, int, int, int, int, int], None] = self._append_to_inbox
        self.received: Counter[str] = Counter()
        self.repeated: Counter[str] = Counter()
        self.refused: list[str] = []
        self.left: set[str] = set()
        self.lost: set[str] = set()
        self._peers: dict[str, _Peer] = {}  # peers that messages can be sent to
        # {role: minimum incarnation that is accepted, which is the newest one known}
        self._minimum: dict[str, int] = {}
        self._known: dict[str, _Peer] = {}  # {role: address and key of that incarnation, if known}
        self._numbers: dict[str, int] = {}  # {public key of an instance: number of its last connection}
        self._suspended_at: dict[str, int] = {}  # {sender whose link was cut: number of its last frame}
        self._unanswered: dict[_Peer, float] = {}  # {peer that does not answer: since when}
        self._dialled = 0  # number of connections that this endpoint has dialled
        self._holding = False  # reading is suspended: see `progress`
        self._draining = False
        self._now = now
        self._poller = Poller()
        self._receiver = Receiver(
            self._poller, self.pool, max_frame, memory_size, self._deliver, self._count_repeated, self._receive_ended
        )
        self._listener = Listener(
            host, self._poller, server_context, now, self._authenticate, self._hosts, self._record
        )
        self._links = RoleLinks(
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
        self._faults = FaultyLinks(self._links, self.pool, own_random, now, resend_s)
        self._arrivals: LimitedArrivals | None = None  # once the bandwidth of this role was limited
        self.sent, self.undelivered, self.unreachable = (
            self._links.sent,
            self._links.undelivered,
            self._links.unreachable,
        )
        self.address: tuple[str, int] = self._listener.address
        self.contact: tuple[str, int, str] = (*self.address, self.identity.public)

    # peers --------------------------------------------------------------------------------------------------------------

    def add_peer(self, name: str, host: str, port: int, key: str, incarnation: int) -> None:
        """Add this incarnation of role `name`, with its address and public key.

        If the incarnation is newer than the known one, the counts restart at 0, and earlier incarnations are rejected
        from now on. A call with an earlier incarnation has no effect.
        """
        peer = _Peer(host, port, key, incarnation)
        if self._peers.get(name) == peer or incarnation < self._minimum.get(name, -1):
            return
        self._known[name] = peer
        self._listener.peer_announced(name)
        self.remove_peer(name)
        self.unreachable.pop(name, None)
        self._peers[name] = peer
        self._raise_minimum(name, incarnation)

    def remove_peer(self, name: str) -> None:
        """Stop sending to role `name`. Messages that it has sent can still be read."""
        self._peers.pop(name, None)
        self._links.forget(name)
        self._faults.forget(name)

    def fence(self, name: str, incarnation: int) -> None:
        """Stop sending to role `name`, and reject connections of incarnations before `incarnation` from now on."""
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
        if self._arrivals is not None:
            self._arrivals.forget(name)

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
        """Send a message. Never blocks, and keeps no reference to its arrays. Returns its payload bytes, or 0 if `to` is gone.

        Raises `RoleError` if the message cannot be encoded, or no role is called `to`.
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
                return prepared[0].payload + bytes_outside_arrays(message)
        return self._send_pieces(to, message, category, computed)

    def _send_pieces(self, to: str, message: Message, category: int, computed: int) -> int:
        kind = self.codec.index(message, self.name)
        meta, arrays = self.codec.encode(message)
        payload_pieces, payload, padding = lay_out(arrays)
        size = payload - padding + bytes_outside_arrays(message)
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
            self._faults.hold(link, [header, meta, *payload_pieces], 0 if category == EVALUATION else size)
        else:
            link.send([header, meta, *payload_pieces])
        return size

    def _reach(self, to: str) -> SendConnection | DelayedLink | None:
        """Return a new connection, or the delayed link if the link to `to` has a fault. Returns None if `to` is gone."""
        if to not in self._minimum:
            raise RoleError(f"{self.name} sends to {to!r}. {nearest('role', to, self._minimum)}")
        if to not in self._peers or self._links.finished or to in self.unreachable:
            return None
        return self._faults.reach(to) or self._links.dial(to)

    def connect(self, to: str) -> None:
        """Open a connection to `to` without sending a message, unless a connection is open."""
        if to not in self._links.direct:
            self._reach(to)

    def flush(self) -> None:
        """Write as much of the queues as the streams accept. Never blocks."""
        if self._faults.delayed:
            self._faults.release()
        if self._links.queued:
            self._links.flush()

    def limit(self, per_byte: float) -> None:
        """Set the seconds for which a byte occupies this role when it is sent, and when it is received; 0: no limit.

        It concerns the links whose fault has a `per_byte`, and messages that are sent or arrive from now on.
        """
        self._faults.per_byte = per_byte
        if per_byte and self._arrivals is None:
            self._arrivals = LimitedArrivals(self._now)
        if self._arrivals is not None:
            self._arrivals.per_byte = 0.0 if self._draining else per_byte

    def set_link_fault(
        self, peer: str | None, *, delay: float = 0.0, drop: float = 0.0, cut: bool = False, per_byte: float = 0.0
    ) -> None:
        """Set the fault of the link to `peer`; None: of all links, including later ones. Replaces the previous fault.

        `delay`: seconds by which each frame to `peer` is delayed. `drop`: probability that a transmission is lost and
        retransmitted. `cut`: whether no frame passes (in both directions if the peer's endpoint is set likewise).
        `per_byte`: seconds that each byte takes, at the slower of both ends (`limit`: of this one). The defaults mean that
        the link has no fault. Every message is still delivered once and in order: see `link_faults`.

        Raises `BadInput` if a number is not allowed.
        """
        self._faults.set(peer, LinkFault(delay, drop, cut, per_byte).checked())
        self._resume_reading()

    def unanswered(self) -> dict[str, tuple[int, float, str]]:
        """Return the peers that messages do not reach: {peer: (its incarnation, for how many seconds, why)}.

        No connection to such a peer could be established, or its host does not acknowledge what is sent. Must be called
        regularly, because the seconds count from the first call.
        """
        now, why = self._now(), dict(self.unreachable)
        why |= {connection.name: NO_ANSWER for connection in self._links.open if not connection.answered}
        here = {name: peer for name, peer in self._peers.items() if name in why} if why else {}
        self._unanswered = {peer: self._unanswered.get(peer, now) for peer in here.values()}
        return {name: (peer.incarnation, now - self._unanswered[peer], why[name]) for name, peer in here.items()}

    def unsent_gradients(self) -> list[tuple[str, int, int]]:
        """Return (to, step, count) of every message with gradients of which no byte has left this role.

        Used for the ledger, between the last `poll` and `close`. Partially sent frames are not listed: their peers are
        among those that `finish_sending` returns.
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

    def poll(self, timeout_s: float, spin: bool = True) -> None:
        """Wait until a stream can be read or written, or `wake` is called, at most `timeout_s` seconds.

        Then deliver all complete messages. `spin=False`: sleep at once, without polling repeatedly first (see
        `Poller.wait`).
        """
        receiver = self._receiver
        if receiver.unread or self._listener.retries:
            timeout_s = 0.0
            self._read_again()
        if self._faults.delayed:
            timeout_s = min(timeout_s, self._faults.release())
        if self._listener.pending or self._links.queued:
            timeout_s = min(timeout_s, self._expire())
        arrivals = self._arrivals
        if arrivals is not None:
            timeout_s = arrivals.before_wait(timeout_s)
        ready = self._poller.wait(timeout_s, spin)
        if arrivals is not None:
            arrivals.after_wait()
        for owner in ready:
            owner.on_ready()
        for connection in receiver.in_memory:
            if connection.has_data():
                connection.read()
        if arrivals is not None:
            arrivals.release()
        if self._faults.delayed:
            self._faults.release()

    def progress(self) -> None:
        """Complete handshakes and write the queues, without delivering a message. Never blocks.

        Used while the role is paused, or has made its step. Peers that still run must be able to connect to the role,
        and to receive the messages that it has sent.
        """
        self._holding = True
        try:
            for owner in self._poller.ready_now():
                if not isinstance(owner, ReceiveConnection):
                    owner.on_ready()
        finally:
            self._holding = False
        self._resume_reading()

    def wake(self) -> None:
        """End the current `poll`, or the next one. The only method that other threads may call."""
        self._poller.wake()

    def _read_again(self) -> None:
        unread = list(self._receiver.unread)
        self._receiver.unread.clear()
        self._listener.retry()
        for connection in unread:
            if connection.open and not connection.suspended:
                connection.read()

    def _expire(self) -> float:
        """Close connections whose handshake exceeds its time limit. Returns the seconds until the next deadline."""
        now = self._now()
        return min(self._links.expire(now), self._listener.expire(now)) - now

    def _authenticate(self, connection: Unauthenticated) -> None:
        """Accept a connection whose hello proves which role instance it is. Raises `ProtocolError` if it does not."""
        assert connection.hello is not None
        hello, hello_bytes = connection.hello
        name, incarnation = hello.sender, hello.incarnation
        if (hello.run, hello.to) != (self.run, self.name) or not name:
            raise ProtocolError(f"a connection of {name!r} to {hello.to!r} of run {hello.run!r}")
        minimum = self._minimum.get(name, -1)
        if incarnation < minimum:
            raise ProtocolError(f"incarnation {incarnation} of {name}, but {minimum} is known")
        if incarnation > minimum or name not in self._known:
            return  # the instance is not announced yet; `add_peer` will announce it with its key
        public = self._known[name].key
        key = self.identity.key(public)
        verify(hello_bytes, key)
        if hello.number <= self._numbers.get(public, 0):
            raise ProtocolError(f"connection {hello.number} of {name} is a replay")
        if self._is_connected(name, incarnation):
            raise ProtocolError(f"a second connection of {name}, incarnation {incarnation}")
        if hello.after not in (0, self._suspended_at.get(name, 0)):
            raise ProtocolError(f"continues after frame {hello.after}, which was not the last")
        connection.tcp.send_control(welcome(hello_bytes, key))
        self._numbers[public] = hello.number
        tcp, rest = self._listener.release(connection)
        accepted = ReceiveConnection(name, incarnation, hello.after, tcp, rest, self._receiver)
        accepted.accept(hello.offer)
        if self._is_held(name):
            accepted.suspend()
        else:
            accepted.read()

    def _is_connected(self, name: str, incarnation: int) -> bool:
        """Return whether this instance is connected.

        Reads pending bytes first, because these may include the end of the connection.
        """
        for other in [c for c in self._receiver.open if (c.name, c.incarnation) == (name, incarnation)]:
            if not other.suspended:
                other.on_ready()
            if other.open:
                return True
        return False

    def _is_held(self, name: str) -> bool:
        """Return whether reading from `name` is suspended: by `progress`, or because its link is cut."""
        return self._holding or (self._faults.fault(name).cut and not self._draining)

    def _resume_reading(self) -> None:
        for connection in [c for c in self._receiver.open if c.suspended and not self._is_held(c.name)]:
            connection.resume()

    def _deliver(self, connection: ReceiveConnection, header: Header, body: memoryview) -> None:
        _, kind, category, _, meta, padding, _, sent_ns, computed, payload = header
        message = self.codec.decode(kind, body[:meta], body[meta:], connection.name, connection.incarnation)
        size = payload - padding
        if self._arrivals is not None:
            limited = category != EVALUATION and self._faults.fault(connection.name).per_byte
            occupies = size + bytes_outside_arrays(message) if limited else 0
            deliver = partial(self._deliver_message, message, kind, category, size, sent_ns, computed)
            self._arrivals.add(connection.name, occupies, deliver)
            return
        self._deliver_message(message, kind, category, size, sent_ns, computed)

    def _deliver_message(
        self, message: Message, kind: int, category: int, size: int, sent_ns: int, computed: int
    ) -> None:
        self.received[message.sender] += 1
        self.deliver(message, kind, category, size, sent_ns, self.clock(), computed)

    def _append_to_inbox(self, *what: Any) -> None:
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
        """Send a close frame to every peer, reading meanwhile, for at most `timeout` seconds.

        Returns the peers to which frames are left. Messages sent afterwards count as undelivered. Frames that are held
        for a cut link stay in its queue, and are not waited for.
        """
        self._links.finish()
        self._faults.finish()
        until = self._now() + timeout
        while (self._links.queued or self._faults.waiting) and (left := until - self._now()) > 0:
            self.poll(left)
        self._faults.stop()
        return {connection.name for connection in self._links.queued} | {to for to, _ in self._faults.messages()}

    def drain(self, expected_senders: Collection[str], timeout: float) -> set[str]:
        """Read until the connections of the expected senders have ended, at most `timeout` seconds.

        Returns the senders whose connections have not ended. Only opened connections are waited for, so call this
        method when `finish_sending` of every expected sender has returned. Then all messages in flight to this role are
        delivered, including those that were held back by a cut.
        """
        self._draining = True
        if self._arrivals is not None:
            self._arrivals.drain()
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
        """Close every connection and the listener. Unsent messages are lost; `finish_sending` sends them first."""
        self._faults.close()
        self._links.close()
        for connection in list(self._receiver.open):
            connection.end("")
        self._listener.close()
        self._poller.close()
        self.pool.clear()  # an endpoint is part of reference cycles, and its buffers would wait for the garbage collector

    # inspection ---------------------------------------------------------------------------------------------------------

    @property
    def sending(self) -> tuple[SendConnection, ...]:
        """The connections to peers, without those that have ended."""
        return self._links.open

    @property
    def receiving(self) -> tuple[ReceiveConnection, ...]:
        """The authenticated connections from peers, without those that have ended."""
        return tuple(self._receiver.open)

    @property
    def unauthenticated(self) -> tuple[Unauthenticated, ...]:
        """The accepted connections that are not authenticated yet."""
        return tuple(self._listener.pending)

    @property
    def queued(self) -> int:
        """The number of connections with queued bytes."""
        return len(self._links.queued)

    @property
    def held(self) -> dict[str, int]:
        """{peer: number of held messages}, for each link with a fault."""
        counts = dict.fromkeys(self._faults.delayed, 0)
        for name, _ in self._faults.messages():
            counts[name] += 1
        return counts
