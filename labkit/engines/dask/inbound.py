"""The receiving half of a wire: the door, those who have come through it, and what they say.

Law: who is let in has said who it is; what it says is read as it comes, one connection a while, then the next. Whatever
a connection brings that cannot be right ends that connection, and nothing else. The role hears of messages only.
"""

from __future__ import annotations

import math
import socket
import time
from collections import Counter, deque
from collections.abc import Callable
from ssl import SSLContext
from typing import Any

from ...nn.pool import BufferPool
from .frames import GOODBYE, PAUSED, Codec, FrameError
from .handshake import Identity, verify, welcome
from .incoming import AGAIN, Delivered, Incoming
from .outgoing import BUFFER
from .poller import READ, Poller
from .shared import SIZE, Reader

__all__ = ["Inbound"]

_BURST = 64  # reads from one connection in a row; then the others have their turn
_STRANGERS = 256  # connections whose hello is not verified, at one time; most of these may be of nobody
_ROOM = 64  # of them that are closed where there is no room for another; and accepted in a row
HELLO_S, KNOWN_S = 3.0, 60.0  # seconds that a stranger has for its hello, from a host without roles and with
_RECORDS = 1000  # refusals written down; a flood of strangers must not fill the memory


class Inbound:
    """What `Wire` does to hear. Its arguments and what it offers to read are described there."""

    def __init__(
        self, name: str, codec: Codec, host: str, clock: Callable[[], int], run: str,
        context: SSLContext | None, max_frame: int,
    ) -> None:  # fmt: skip
        self.name, self.codec, self.identity = name, codec, Identity()
        self.clock, self.run, self.max_frame, self._context = clock, run, max_frame, context
        self.pool = BufferPool()
        self.inbox: deque[Delivered] = deque()
        self.deliver: Callable[..., None] = self._keep
        self.received: Counter[str] = Counter()
        self.repeated: Counter[str] = Counter()
        self.refused: list[str] = []
        self.left: set[str] = set()
        self.lost: set[str] = set()
        self._fence: dict[str, int] = {}  # the newest incarnation of every name ever heard of
        self._keys: dict[str, str] = {}  # its public key, as far as that is known
        self._hosts: dict[str, str] = {}  # where it is
        self._numbers: dict[str, int] = {}  # of every instance, by its public key, the number of its last connection
        self._incoming: dict[int, Incoming] = {}
        self._strangers: dict[int, Incoming] = {}  # those of them whose hello is not verified
        self._sharing: tuple[Incoming, ...] = ()  # those whose frames come through shared memory
        self._again: list[Incoming] = []  # had more to read than their turn allowed
        self._parked: list[Incoming] = []  # connected while the link is cut: not read until it is mended
        self._heard: dict[str, int] = {}  # the last frame of senders that have paused
        self._draining = False
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._door = socket.create_server((host, 0), family=family, backlog=4096)
        self._door.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)  # those it accepts inherit it
        self.address: tuple[str, int] = (host, self._door.getsockname()[1])
        self._door.setblocking(False)
        self._poller = Poller()
        self._poller.register(self._door.fileno(), READ)

    def _is_cut(self, name: str) -> bool:
        """Whether nothing may be heard from `name` for now."""
        raise NotImplementedError

    def _accept(self) -> None:
        """Let connections in, a limited number in a row. Where strangers are too many, some are closed: first those of hosts on
        which there is no role, of these the ones of the host that has most, and of these the oldest. So whoever opens
        connections and says nothing keeps out its like, and not the roles, who say hello as soon as they are connected."""
        for _ in range(_ROOM):
            try:
                sock, address = self._door.accept()
            except OSError:  # nobody else is there, or they have left again
                return
            sock.setblocking(False)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a bell does not wait for the last one's receipt
                if self._context is not None:
                    sock = self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            except OSError as error:
                sock.close()
                self._record(f"{address[0]}:{address[1]}: {error}")
                continue
            if len(self._strangers) >= _STRANGERS:
                self._make_room()
            limit = KNOWN_S if address[0] in self._hosts.values() else HELLO_S
            end = Incoming(sock, address[0], address[1], time.monotonic() + limit)
            self._incoming[sock.fileno()] = self._strangers[sock.fileno()] = end
            self._poller.register(sock.fileno(), READ)
            self._read(end)

    def _make_room(self) -> None:
        """Close some strangers, without a word: a role that is among them dials again."""
        known, crowd = set(self._hosts.values()), Counter(end.host for end in self._strangers.values())

        def worth(end: Incoming) -> tuple[bool, bool, int]:
            return end.said is not None, end.host in known, -crowd[end.host]

        for end in sorted(self._strangers.values(), key=worth)[:_ROOM]:  # stable: of equal ones the oldest
            self._record(f"{end.where}: closed, too many connections that say nothing")
            self._end(end)

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

    def _read(self, end: Incoming, again: bool = False) -> None:
        try:
            if again and (end.name or self._greet(end)):  # something may have been read already, and been left
                self._take(end)
            for _ in range(_BURST):
                if end.shares and end.whole(self.pool, self.max_frame):
                    self._deliver(end)
                    if end.stream is None or not end.stream.ready():
                        break
                    continue
                more = end.receive()
                if end.name or self._greet(end):
                    self._take(end)
                if not more or end.parked:
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

    def _take(self, end: Incoming) -> None:
        while end.complete(self.pool, self.max_frame):
            self._deliver(end)

    def _feed(self, end: Incoming, stream: Reader) -> None:
        if end not in self._sharing:
            self._sharing = (*self._sharing, end)
            self._poller.streams.append(stream)
        end.feed()

    def _greet(self, end: Incoming) -> bool:
        """Whether the stranger has proved which role instance it is, and can be read."""
        found = end.hello()
        if found is None:
            return False
        hello, said = found
        name, incarnation = hello.sender, hello.incarnation
        if (hello.run, hello.to) != (self.run, self.name) or not name:
            raise FrameError(f"{name!r} of run {hello.run!r} looks for {hello.to!r} of that run")
        fence = self._fence.get(name, -1)
        if incarnation < fence:
            raise FrameError(f"incarnation {incarnation} of {name}, but {fence} is known")
        if incarnation > fence or name not in self._keys:
            return False  # restarted, and here before the news of it, which bring its key: see `know`
        public = self._keys[name]
        key = self.identity.key(public)
        verify(said, key)
        if hello.number <= self._numbers.get(public, 0):
            raise FrameError(f"connection {hello.number} of {name}, which there has been")
        if self._is_present(name, incarnation):
            raise FrameError(f"a second connection of {name}, incarnation {incarnation}")
        if hello.after not in (0, self._heard.get(name, 0)):
            raise FrameError(f"goes on after frame {hello.after}, which was not the last")
        end.welcome(welcome(said, key))
        self._numbers[public] = hello.number
        end.name, end.incarnation, end.sequence = name, incarnation, hello.after
        end.accept(hello.offer)
        del self._strangers[end.sock.fileno()]
        if self._is_cut(end.name):
            self._park(end)
        return not end.parked

    def _is_present(self, name: str, incarnation: int) -> bool:
        """Whether this instance is connected. Reads on first: its end may be there and not yet seen."""
        for other in [e for e in self._incoming.values() if (e.name, e.incarnation) == (name, incarnation)]:
            if not other.parked:
                self._hear(other) if other.shares else self._read(other)
            if self._incoming.get(other.sock.fileno()) is other:
                return True
        return False

    def _park(self, end: Incoming) -> None:
        """The link is cut, and its sender has not heard of that: what it says waits in the kernel and in the memory."""
        end.parked = True
        self._parked.append(end)
        self._poller.unregister(end.sock.fileno())

    def _unpark(self) -> None:
        """Go on with those whose links are cut no more."""
        for end in [end for end in self._parked if not self._is_cut(end.name)]:
            end.parked = False
            self._parked.remove(end)
            self._poller.register(end.sock.fileno(), READ)
            self._again.append(end)

    def _deliver(self, end: Incoming) -> None:
        (_, kind, category, _, meta, padding, _, sent_ns, computed, payload), body = end.take()
        if not end.tells:
            if not end.last:
                self.repeated[end.name] += 1
            return
        message = self.codec.decode(kind, body[:meta], body[meta:], end.name, end.incarnation)
        self.received[end.name] += 1
        self.deliver(message, kind, category, payload - padding, sent_ns, self.clock(), computed)

    def _keep(self, *what: Any) -> None:
        self.inbox.append(Delivered(*what))

    def _refuse(self, end: Incoming, why: str) -> None:
        self._record(f"{end.name or end.where}: {why}")
        if not end.name:
            end.refuse()
        self._end(end)

    def _record(self, refusal: str) -> None:
        if len(self.refused) < _RECORDS:
            self.refused.append(refusal)

    def _end(self, end: Incoming) -> None:
        """A connection is over: in order, lost, or it never began."""
        if end.name and end.incarnation == self._fence[end.name]:
            if end.last == PAUSED:
                self._heard[end.name] = end.sequence
            else:
                (self.left if end.last == GOODBYE else self.lost).add(end.name)
        fd = end.sock.fileno()
        if end.parked:
            self._parked.remove(end)
        else:
            self._poller.unregister(fd)
        self._incoming.pop(fd)
        self._strangers.pop(fd, None)
        if end.shares:
            self._sharing = tuple(other for other in self._sharing if other is not end)
            self._poller.streams = [other.stream for other in self._sharing if other.stream is not None]
        end.close()

    def _expire_strangers(self, now: float) -> float:
        """Give up on those who have not said hello in time. Returns when the next may have to go."""
        for end in list(self._strangers.values()):
            if now >= end.deadline:
                self._record(f"{end.where}: no hello in time")
                self._end(end)
        return min((end.deadline for end in self._strangers.values()), default=math.inf)

    def _hang_up(self) -> None:
        """Close every connection and the door."""
        for end in list(self._incoming.values()):
            self._end(end)
        self._door.close()
        self._poller.close()
