"""The wire: what roles say to each other on Dask goes straight from process to process, over TCP or, on one host, through
memory that they share.

Law: one wire belongs to one role and one thread, and nothing on it waits but `poll`. A `send` hands its bytes to the
kernel and copies what the kernel does not take, so that two roles that send at once never deadlock and a slow reader
never stops a fast sender. Every connection carries one direction; whoever has something to say dials. So an end of
file means one thing: that sender is gone, in order after a goodbye, lost without one.

A connection opens with a hello: run, secret, names, incarnation. Strangers, garbage and earlier incarnations of a
restarted role are closed and recorded in `refused`; the role never hears of them. Order is first-in first-out per
sender. The counts `sent` and `received` are for the current incarnation of each peer: when they agree between all
living roles, nothing is under way.
"""

from __future__ import annotations

import math
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Collection
from ssl import SSLContext
from typing import Any

from ...errors import BadInput, RoleError, nearest
from ...nn.pool import BufferPool
from ...roles.messages import Message
from .frames import GOODBYE, HEADER, MAGIC, MAX_FRAME, Codec, FrameError
from .incoming import AGAIN, Delivered, Hello, Incoming
from .outgoing import BUFFER, PATIENCE, Outbound, Outgoing, lay_out
from .poller import READ, Poller
from .shared import SIZE, Offer, Reader

__all__ = ["Delivered", "Wire"]

_BURST = 64  # reads from one connection in a row; then the others have their turn
_STRANGERS = 256  # connections without a hello at one time
_RECORDS = 1000  # refusals written down; a flood of strangers must not fill the memory


class Wire:
    """All connections of one role.

    `secret` and `run` are the same for all roles of a run. `clock()` is engine time in nanoseconds; it stamps frames
    and decides nothing. `server_context` and `client_context` (both or none) encrypt. `max_frame`: bytes.
    `share`: offer memory to peers on this host; what they offer is taken up in any case.
    `address` is what others dial: (host, port). What has arrived goes to `deliver`, whose arguments are the fields of
    `Delivered`; where nothing else is set it waits in `inbox`. That happens in `poll` and nowhere else.

    To read: `sent`, `received`, `undelivered` (frames by peer), `refused` (connections closed for cause), `broken`
    (peers that cannot be reached, and why), `left` and `lost` (senders that ended with a goodbye, and without).
    """

    def __init__(
        self, name: str, incarnation: int, codec: Codec, secret: bytes, host: str = "127.0.0.1", *,
        clock: Callable[[], int] = time.monotonic_ns, run: str = "", server_context: SSLContext | None = None,
        client_context: SSLContext | None = None, max_frame: int = MAX_FRAME, share: bool = True,
    ) -> None:  # fmt: skip
        if (server_context is None) != (client_context is None):
            raise BadInput("A wire is encrypted in both directions or in none: give both TLS contexts, or neither.")
        self.name, self.incarnation, self.codec, self.secret = name, incarnation, codec, secret
        self.clock, self.run, self.max_frame, self._context = clock, run, max_frame, server_context
        self.pool = BufferPool()
        self.inbox: deque[Delivered] = deque()
        self.deliver: Callable[..., None] = self._keep
        self.peers: dict[str, tuple[str, int, int]] = {}  # name -> host, port, incarnation
        self.received: Counter[str] = Counter()
        self.refused: list[str] = []
        self.left: set[str] = set()
        self.lost: set[str] = set()
        self._fence: dict[str, int] = {}  # the newest incarnation of every name ever heard of
        self._incoming: dict[int, Incoming] = {}
        self._strangers: dict[int, Incoming] = {}  # those of them that have not said hello
        self._sharing: tuple[Incoming, ...] = ()  # those whose frames come through shared memory
        self._again: list[Incoming] = []  # had more to read than their turn allowed
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._door = socket.create_server((host, 0), family=family, backlog=4096)
        self._door.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)  # those it accepts inherit it
        self.address: tuple[str, int] = (host, self._door.getsockname()[1])
        self._door.setblocking(False)
        self._poller = Poller()
        self._poller.register(self._door.fileno(), READ)
        self._out = Outbound(self._poller, self.pool, self._hello, client_context, host if share else "")
        self.sent, self.undelivered, self.broken = self._out.sent, self._out.undelivered, self._out.broken

    def _hello(self, to: str, offer: Offer | None) -> bytes:
        return Hello(self.run, self.name, to, *self.address, self.incarnation, offer).pack(self.secret)

    def know(self, name: str, host: str, port: int, incarnation: int) -> None:
        """`name` listens there. A newer incarnation: earlier ones are refused from now on, its counts start at 0."""
        if self.peers.get(name) == (host, port, incarnation) or incarnation < self._fence.get(name, 0):
            return
        self.forget(name)
        self.broken.pop(name, None)
        self.peers[name] = (host, port, incarnation)
        if incarnation == self._fence.get(name):
            return
        self._fence[name] = incarnation
        for end in list(self._incoming.values()):
            if end.name == name:
                self._refuse(end, f"incarnation {end.incarnation}, but {incarnation} is known")
        for counter in (self.sent, self.received):
            counter.pop(name, None)
        self.left.discard(name)
        self.lost.discard(name)

    def forget(self, name: str) -> None:
        """`name` is gone: nothing is sent to it any more. What it has sent can still be read."""
        self.peers.pop(name, None)
        if name in self._out.by_name:
            self._out.gone(self._out.by_name[name], "forgotten")

    def send(self, to: str, message: Message, category: int = 0, computed: int = 0) -> int:
        """Send; never waits, never aliases. Returns the bytes of the message's arrays, 0 if `to` is gone.

        `RoleError` for a message that does not travel, and for a name that nobody ever had.
        """
        link = self._out.by_name.get(to)
        if link is not None and link.shares and not link.outbox:
            prepared = self.codec.prepare(message)
            if (
                prepared is not None
                and prepared[0].size <= self.max_frame
                and link.put_prepared(*prepared, (category, self.clock(), computed))
            ):
                self.sent[to] += 1
                return prepared[0].payload
        return self._send_pieces(to, message, category, computed)

    def _send_pieces(self, to: str, message: Message, category: int, computed: int) -> int:
        kind = self.codec.index(message, self.name)
        meta, arrays = self.codec.encode(message)
        pieces, payload, padding = lay_out(arrays)
        if len(meta) + payload > self.max_frame:
            what = f"{self.name} sends {type(message).__name__} of {payload:,} bytes"
            raise RoleError(f"{what}; a message has at most {self.max_frame:,}.")
        link = self._out.by_name.get(to) or self._dial(to)
        if link is None:
            self.undelivered[to] += 1
            return 0
        link.sequence += 1
        self.sent[to] += 1
        header = HEADER.pack(
            MAGIC, kind, category, 0, len(meta), padding, link.sequence, self.clock(), computed, payload
        )
        self._out.put(link, [header, meta, *pieces], 1)
        return payload - padding

    def _dial(self, to: str) -> Outgoing | None:
        if to not in self._fence:
            raise RoleError(f"{self.name} sends to {to!r}. {nearest('role', to, self._fence)}")
        if to not in self.peers:
            return None
        host, port, _ = self.peers[to]
        return self._out.dial(to, host, port)

    def flush(self) -> None:
        """Hand over what waits, as far as the kernel takes it. Never waits."""
        for link in list(self._out.waiting.values()):
            self._out.push(link)

    def finish_sending(self, timeout: float) -> set[str]:
        """Say goodbye to every peer, reading on meanwhile, at most `timeout` seconds. Returns who has not taken it all.

        What is sent afterwards is undelivered.
        """
        self._out.finish(self._goodbye)
        until = time.monotonic() + timeout
        while self._out.waiting and (left := until - time.monotonic()) > 0:
            self.poll(left)
        return {link.name for link in self._out.waiting.values()}

    def _goodbye(self, link: Outgoing) -> bytes:
        return HEADER.pack(MAGIC, 0, 0, GOODBYE, 0, 0, link.sequence + 1, self.clock(), 0, 0)

    def poll(self, timeout_s: float) -> None:
        """Wait until something can be read or written, or `wake` is called, at most `timeout_s` seconds; then read all
        complete frames into `inbox`."""
        if self._again:
            again, self._again, timeout_s = self._again, [], 0.0
            for end in again:
                if end.sock.fileno() in self._incoming:
                    self._read(end)
        if self._strangers or self._out.waiting:
            timeout_s = min(timeout_s, self._expire())
        for fd in self._poller.wait(timeout_s):
            if fd in self._incoming:
                end = self._incoming[fd]
                self._hear(end) if end.shares else self._read(end)
            elif fd in self._out.by_fd:
                self._out.push(self._out.by_fd[fd], listen=True)
            else:
                self._accept()
        for end in self._sharing:
            if end.stream is not None and end.stream.ready():
                self._read(end)

    def wake(self) -> None:
        """End the current `poll`, or the next one. The one method that another thread may call."""
        self._poller.wake()

    def drain(self, expected_senders: Collection[str], timeout: float) -> set[str]:
        """Read until the expected senders' connections have ended, at most `timeout` seconds. Returns who has not.

        A connection that was opened is found, one that was never opened is not waited for: call it when every expected
        sender's `finish_sending` has returned. Then `inbox` holds everything that was under way to this role.
        """
        until = time.monotonic() + timeout
        self.poll(0.0)
        while True:
            still = {end.name for end in self._incoming.values()} & set(expected_senders)
            left = until - time.monotonic()
            if left <= 0 or not (still or self._strangers):
                return still
            self.poll(left)

    def _accept(self) -> None:
        while len(self._strangers) < _STRANGERS:  # the others wait outside
            try:
                sock, address = self._door.accept()
            except OSError:  # nobody else is there, or they have left again
                return
            where = f"{address[0]}:{address[1]}"
            sock.setblocking(False)
            try:
                if self._context is not None:
                    sock = self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            except OSError as error:
                sock.close()
                self._record(f"{where}: {error}")
                continue
            end = Incoming(sock, where, time.monotonic() + PATIENCE)
            self._incoming[sock.fileno()] = self._strangers[sock.fileno()] = end
            self._poller.register(sock.fileno(), READ)
            self._read(end)

    def _hear(self, end: Incoming) -> None:
        """The socket of an end that shares memory: a bell, or the end. What is in the memory then is still read."""
        try:
            end.hush()
        except (EOFError, OSError):
            assert end.stream is not None
            until = end.stream.count + SIZE  # the memory holds no more; who still writes is mad, and is not waited for
            while end.stream is not None and end.stream.ready() and end.stream.count < until:
                self._read(end)
            if end.stream is not None:
                self._end(end)

    def _read(self, end: Incoming) -> None:
        try:
            for _ in range(_BURST):
                if end.shares and end.whole(self.pool, self.max_frame):
                    self._deliver(end)
                    if end.stream is None or not end.stream.ready():
                        break
                    continue
                more = end.receive()
                if end.name or self._greet(end):
                    while end.complete(self.pool, self.max_frame):
                        self._deliver(end)
                if not more:
                    break
            else:
                self._again.append(end)
        except AGAIN:
            pass
        except FrameError as error:
            self._refuse(end, str(error))
        except (EOFError, OSError) as error:
            if end.name and not end.shares:
                self._end(end)
            else:  # memory does not fail by itself
                self._refuse(end, str(error) or "closed before its hello")
        if end.shares and end.stream is not None:
            self._feed(end, end.stream)

    def _feed(self, end: Incoming, stream: Reader) -> None:
        if end not in self._sharing:
            self._sharing = (*self._sharing, end)
            self._poller.streams.append(stream)
        end.feed()

    def _greet(self, end: Incoming) -> bool:
        """Whether the stranger has said the hello that lets it in."""
        hello = end.hello(self.secret)
        if hello is None:
            return False
        if (hello.run, hello.to) != (self.run, self.name) or not hello.sender:
            raise FrameError(f"{hello.sender!r} of run {hello.run!r} looks for {hello.to!r} of that run")
        fence = self._fence.get(hello.sender, -1)
        if hello.incarnation < fence:
            raise FrameError(f"incarnation {hello.incarnation} of {hello.sender}, but {fence} is known")
        if hello.incarnation > fence:  # restarted, and here before the news of it
            self.know(hello.sender, hello.host, hello.port, hello.incarnation)
        end.name, end.incarnation = hello.sender, hello.incarnation
        end.accept(hello.offer)
        del self._strangers[end.sock.fileno()]
        return True

    def _deliver(self, end: Incoming) -> None:
        (_, kind, category, _, meta, padding, _, sent_ns, computed, payload), body = end.take()
        if end.goodbye:
            return
        message = self.codec.decode(kind, body[:meta], body[meta:], end.name, end.incarnation)
        self.received[end.name] += 1
        self.deliver(message, kind, category, payload - padding, sent_ns, self.clock(), computed)

    def _keep(self, *what: Any) -> None:
        self.inbox.append(Delivered(*what))

    def _refuse(self, end: Incoming, why: str) -> None:
        self._record(f"{end.name or end.where}: {why}")
        self._end(end)

    def _record(self, refusal: str) -> None:
        if len(self.refused) < _RECORDS:
            self.refused.append(refusal)

    def _end(self, end: Incoming) -> None:
        """A connection is over: in order, lost, or it never began."""
        if end.name and end.incarnation == self._fence[end.name]:
            (self.left if end.goodbye else self.lost).add(end.name)
        fd = end.sock.fileno()
        self._poller.unregister(fd)
        self._incoming.pop(fd)
        self._strangers.pop(fd, None)
        if end.shares:
            self._sharing = tuple(other for other in self._sharing if other is not end)
            self._poller.streams = [other.stream for other in self._sharing if other.stream is not None]
        end.close()

    def _expire(self) -> float:
        """Give up on those who have not answered in time. Returns the seconds until the next may have to go."""
        now = time.monotonic()
        opening = [link for link in self._out.waiting.values() if link.opening]
        for link in opening:
            if now >= link.deadline:
                self._out.gone(link, f"no answer within {PATIENCE:g} s")
        for end in list(self._strangers.values()):
            if now >= end.deadline:
                self._refuse(end, f"no hello within {PATIENCE:g} s")
        deadlines = [link.deadline for link in opening] + [end.deadline for end in self._strangers.values()]
        return min(deadlines, default=math.inf) - now

    def close(self) -> None:
        """Close every connection and the door. What was not flushed is lost; `finish_sending` is the way in order."""
        self._out.close()
        for end in list(self._incoming.values()):
            self._end(end)
        self._door.close()
        self._poller.close()
