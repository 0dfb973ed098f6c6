"""The wire: what roles say to each other on Dask goes straight from process to process, over TCP or, on one host, through
memory that they share.

Law: one wire belongs to one role and one thread, and nothing on it waits but `poll`. A `send` hands its bytes to the
kernel and copies what the kernel does not take, so that two roles that send at once never deadlock and a slow reader
never stops a fast sender. Every connection carries one direction; whoever has something to say dials. So an end of
file means one thing: that sender is gone, in order after a goodbye, lost without one.

A connection opens with a handshake in which each side proves which role instance it is (`handshake`). Strangers,
garbage, earlier incarnations of a restarted role and a second connection in the name of an instance that is connected
are closed and recorded in `refused`; the role never hears of them. A connection of an incarnation of which there is
no news yet waits for it. Order is first-in first-out per sender. The counts `sent` and `received` are for the current
incarnation of each peer: when they agree between all living roles, nothing is under way.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from random import Random
from ssl import SSLContext
from typing import Any

from ...errors import BadInput, RoleError, nearest
from ...roles.messages import Message, loose_bytes
from .frames import HEADER, MAGIC, MAX_FRAME, Codec
from .handshake import Greeting, Hello
from .inbound import Inbound
from .incoming import Delivered
from .outbound import Outbound
from .outgoing import CONNECT_S, Outgoing, lay_out
from .shared import Offer
from .trouble import Line, Lines, Trouble

__all__ = ["Delivered", "Wire"]


class Wire(Inbound):
    """All connections of one role.

    `run` is the same for all roles of a run. `clock()` is engine time in nanoseconds; it stamps frames
    and decides nothing. `server_context` and `client_context` (both or none) encrypt. `max_frame`: bytes.
    `share`: offer memory to peers on this host; what they offer is taken up in any case.
    `address` is what others dial: (host, port); `contact` is what they must know: host, port, public key. What has
    arrived goes to `deliver`, whose arguments are the fields of `Delivered`; where nothing else is set it waits in
    `inbox`. That happens in `poll` and nowhere else.

    To read: `sent`, `received`, `undelivered` (frames by peer), `repeated` (frames that had arrived before), `refused`
    (connections closed for cause), `broken` (peers that cannot be reached, and why), `left` and `lost` (senders that
    ended with a goodbye, and without).
    """

    def __init__(
        self, name: str, incarnation: int, codec: Codec, host: str = "127.0.0.1", *,
        clock: Callable[[], int] = time.monotonic_ns, run: str = "", server_context: SSLContext | None = None,
        client_context: SSLContext | None = None, max_frame: int = MAX_FRAME, share: bool = True,
    ) -> None:  # fmt: skip
        if (server_context is None) != (client_context is None):
            raise BadInput("A wire is encrypted in both directions or in none: give both TLS contexts, or neither.")
        super().__init__(name, codec, host, clock, run, server_context, max_frame)
        self.incarnation = incarnation
        self.contact: tuple[str, int, str] = (*self.address, self.identity.public)
        self.peers: dict[str, tuple[str, int, str, int]] = {}  # name -> host, port, public key, incarnation
        self._calls = 0
        self._tending = False  # connections are accepted now, and read later
        self._out = Outbound(self._poller, self.pool, self._hello, client_context, host if share else "")
        self._lines = Lines(self._out, self._dial, lambda peer: Random(f"{run}/{name}/{incarnation}/{peer}/drop"))
        self.sent, self.undelivered, self.broken = self._out.sent, self._out.undelivered, self._out.broken

    def _hello(self, to: str, offer: Offer | None) -> Greeting:
        self._calls += 1
        hello = Hello(self.run, self.name, to, self.incarnation, self._calls, offer, self._out.after.get(to, 0))
        return Greeting(hello, self.identity.key(self.peers[to][2]))

    def know(self, name: str, host: str, port: int, key: str, incarnation: int) -> None:
        """`name` listens there, and that is its public key. "": there is no news of that. A newer incarnation: earlier ones
        are refused from now on, its counts start at 0."""
        fence = self._fence.get(name, -1)
        if self.peers.get(name) == (host, port, key, incarnation) or incarnation < fence:
            return
        if incarnation > fence:
            self._keys.pop(name, None)
        if key:
            self._keys[name], self._hosts[name] = key, host
            self._again += [end for end in self._strangers.values() if end.said and end.said[0].sender == name]
        self.forget(name)
        self.broken.pop(name, None)
        self.peers[name] = (host, port, key, incarnation)
        if incarnation == fence:
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
        self._lines.forget(name)
        self._out.after.pop(name, None)

    def impair(self, peer: str | None, *, delay: float = 0.0, drop: float = 0.0, cut: bool = False) -> None:
        """From now on the link to `peer` behaves so; None: the link to everybody, strangers included. What was said of
        it before is replaced; all zero: as if nothing had been.

        `delay` s pass before a frame to `peer` is handed over; with chance `drop` it is lost, and said again; while the
        link is `cut`, nothing passes in either direction, if the peer's wire is told the same. `BadInput` for other
        numbers. Every message still arrives once, and in order. See `trouble`. For the wire's own thread.
        """
        self._lines.impair(peer, Trouble(delay, drop, cut).checked())
        self._unpark()

    def send(self, to: str, message: Message, category: int = 0, computed: int = 0) -> int:
        """Send; never waits, never aliases. Returns the bytes of the message's payload, 0 if `to` is gone.

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
                return prepared[0].payload + loose_bytes(message)
        return self._send_pieces(to, message, category, computed)

    def _send_pieces(self, to: str, message: Message, category: int, computed: int) -> int:
        kind = self.codec.index(message, self.name)
        meta, arrays = self.codec.encode(message)
        pieces, payload, padding = lay_out(arrays)
        if len(meta) + payload > self.max_frame:
            what = f"{self.name} sends {type(message).__name__} of {payload:,} bytes"
            raise RoleError(f"{what}; a message has at most {self.max_frame:,}.")
        link = self._out.by_name.get(to) or self._reach(to)
        if link is None:
            self.undelivered[to] += 1
            return 0
        link.sequence += 1
        self.sent[to] += 1
        header = HEADER.pack(
            MAGIC, kind, category, 0, len(meta), padding, link.sequence, self.clock(), computed, payload
        )
        if isinstance(link, Line):
            self._lines.hold(link, [header, meta, *pieces])
        else:
            self._out.put(link, [header, meta, *pieces], 1)
        return payload - padding + loose_bytes(message)

    def _reach(self, to: str) -> Outgoing | Line | None:
        """A new link, or the line to a peer whose link is in trouble; None if `to` is gone."""
        if to not in self._fence:
            raise RoleError(f"{self.name} sends to {to!r}. {nearest('role', to, self._fence)}")
        if to not in self.peers or self._out.finished or to in self.broken:
            return None
        return self._lines.reach(to) or self._dial(to)

    def _dial(self, to: str) -> Outgoing | None:
        host, port, _, _ = self.peers[to]
        return self._out.dial(to, host, port)

    def flush(self) -> None:
        """Hand over what waits, as far as the kernel takes it. Never waits."""
        if self._lines.by_name:
            self._lines.pump()
        for link in list(self._out.waiting.values()):
            self._out.push(link, listen=link.opening)

    def finish_sending(self, timeout: float) -> set[str]:
        """Say goodbye to every peer, reading on meanwhile, at most `timeout` seconds. Returns who has not taken it all.

        What is sent afterwards is undelivered. What a line still holds stays there: for a link that is cut nobody waits.
        """
        self._out.finish()
        self._lines.finish()
        until = time.monotonic() + timeout
        while (self._out.waiting or self._lines.busy()) and (left := until - time.monotonic()) > 0:
            self.poll(left)
        self._lines.stopped = True
        return {link.name for link in self._out.waiting.values()} | {to for to, _ in self._lines.frames()}

    def unsent(self) -> list[tuple[str, int, int]]:
        """(to, step, count) of every message that carries gradients and of which nothing has left this role.

        For the books, between the last `poll` and `close`. A frame of which the kernel has taken a part is not listed:
        its peer is one of those that `finish_sending` names.
        """
        found = []
        for to, data in (*self._lines.frames(), *self._out.frames()):
            header = HEADER.unpack_from(data)
            kind, end = header[1], HEADER.size + header[4]
            message: Any = self.codec.decode(kind, data[HEADER.size : end], data[end:], self.name, self.incarnation)
            if message.carries:
                found.append((to, message.step, message.count))
        return found

    def poll(self, timeout_s: float, watch: bool = True) -> None:
        """Wait until something can be read or written, or `wake` is called, at most `timeout_s` seconds; then read all
        complete frames into `inbox`. `watch`: see `Poller.wait`."""
        if self._again:
            again, self._again, timeout_s = self._again, [], 0.0
            for end in again:
                if end.sock.fileno() in self._incoming:
                    self._read(end, again=True)
        if self._lines.by_name:
            timeout_s = min(timeout_s, self._lines.pump())
        if self._strangers or self._out.waiting:
            timeout_s = min(timeout_s, self._expire())
        for fd in self._poller.wait(timeout_s, watch):
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
        if self._lines.by_name:
            self._lines.pump()

    def tend(self) -> None:
        """Complete handshakes and hand over what waits, without taking in a message. Never waits.

        For a role that is paused, or has made its step: peers that go on must be able to connect to it, and to receive what
        it sent before.
        """
        self._tending = True
        try:
            for fd in self._poller.look():
                if fd in self._strangers:
                    self._read(self._strangers[fd])
                elif fd in self._out.by_fd:
                    self._out.push(self._out.by_fd[fd], listen=True)
                elif fd not in self._incoming:
                    self._accept()
        finally:
            self._tending = False
        self._unpark()

    def wake(self) -> None:
        """End the current `poll`, or the next one. The one method that another thread may call."""
        self._poller.wake()

    def drain(self, expected_senders: Collection[str], timeout: float) -> set[str]:
        """Read until the expected senders' connections have ended, at most `timeout` seconds. Returns who has not.

        A connection that was opened is found, one that was never opened is not waited for: call it when every expected
        sender's `finish_sending` has returned. Then `inbox` holds everything that was under way to this role, also what
        a cut had kept from it.
        """
        self._draining = True
        self._unpark()
        until = time.monotonic() + timeout
        self.poll(0.0)
        while True:
            still = {end.name for end in self._incoming.values()} & set(expected_senders)
            left = until - time.monotonic()
            if left <= 0 or not (still or any(end.begun for end in self._strangers.values())):
                return still
            self.poll(left)

    def _expire(self) -> float:
        """Give up on those who have not answered in time. Returns the seconds until the next may have to go."""
        now = time.monotonic()
        return min(self._expire_dials(now), self._expire_strangers(now)) - now

    def _expire_dials(self, now: float) -> float:
        opening = [link for link in self._out.waiting.values() if not link.connected]
        for link in opening:
            if now >= link.deadline:
                self._out.gone(link, f"no answer within {CONNECT_S:g} s")
        return min((link.deadline for link in opening), default=math.inf)

    def _is_cut(self, name: str) -> bool:
        return self._tending or (self._lines.trouble(name).cut and not self._draining)

    def close(self) -> None:
        """Close every connection and the door. What was not flushed is lost; `finish_sending` is the way in order."""
        self._lines.close()
        self._out.close()
        self._hang_up()
