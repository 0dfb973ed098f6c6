"""The sending half of a wire: all links of a role, by name, and how they begin and end.

Law: a peer that is gone is no error: what was meant for it is counted. Frames in an outbox count as sent until the link
dies; then they count as undelivered.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from ssl import SSLContext, SSLError
from typing import Any

from ...nn.pool import BufferPool
from .frames import GOODBYE, HEADER, MAGIC, last_words
from .handshake import Greeting, Refusal
from .outgoing import BUFFER, Outgoing
from .poller import Poller
from .shared import Offer, Writer, available

__all__ = ["Outbound"]

TRIES = 20  # connections that end before the handshake is complete, one after the other


class Outbound:
    """All links of a role. `hello(to, offer)`: the handshake that opens a connection to `to`."""

    def __init__(
        self, poller: Poller, pool: BufferPool, hello: Callable[[str, Offer | None], Greeting],
        context: SSLContext | None, host: str,
    ) -> None:  # fmt: skip
        self.poller, self.pool, self.hello, self.context, self.host = poller, pool, hello, context, host
        self.sent: Counter[str] = Counter()
        self.undelivered: Counter[str] = Counter()
        self.broken: dict[str, str] = {}
        self.by_name: dict[str, Outgoing] = {}
        self.by_fd: dict[int, Outgoing] = {}
        self.waiting: dict[int, Outgoing] = {}  # those whose outbox is not empty
        self.after: dict[str, int] = {}  # of a link that was shut for a while, the number of its last frame
        self.released: Callable[[Outgoing, bool, str], None] = lambda *_: (
            None
        )  # told of the end of links not in `by_name`
        self.finished = False

    def dial(self, to: str, host: str, port: int) -> Outgoing | None:
        """A link to `to`, whose handshake has begun; None if it cannot be reached."""
        if to in self.broken:
            return None
        try:
            sock, stream, greeting = self._call(to, host, port)
        except OSError as error:
            self.broken[to] = str(error)
            return None
        link = Outgoing(to, sock, self.poller, self.context, stream, greeting)
        link.where = host, port
        link.sequence = self.after.get(to, 0)
        self.by_name[to] = self.by_fd[sock.fileno()] = link
        self.push(link)
        return self.by_name.get(to)

    def _call(self, to: str, host: str, port: int) -> tuple[socket.socket, Writer | None, Greeting]:
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        error = sock.connect_ex((host, port))
        if error not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
            sock.close()
            raise OSError(error, os.strerror(error))
        stream = self._stream(host)
        return sock, stream, self.hello(to, stream.offer if stream else None)

    def _call_again(self, link: Outgoing, error: OSError) -> bool:
        """A connection has ended before its handshake was complete, and so before anything was sent: dial once more.

        The acceptor closes strangers where there are too many. False: there is no use in it.
        """
        final = isinstance(error, Refusal | SSLError) or not link.connected
        if final or not link.opening or link.tries >= TRIES:
            return False
        try:
            sock, stream, greeting = self._call(link.name, *link.where)
        except OSError:
            return False
        fd = link.sock.fileno()
        self.poller.unregister(fd)
        del self.by_fd[fd]
        self.waiting.pop(fd, None)
        link.close()
        link.begin(sock, stream, greeting)
        self.by_fd[sock.fileno()] = link
        if link.outbox:
            self.waiting[sock.fileno()] = link
        return True

    def _stream(self, host: str) -> Writer | None:
        """Memory to share with a peer at `host`, if that is where this role is, and nothing is to be encrypted."""
        if self.context is not None or host != self.host or not available():
            return None
        try:
            return Writer()
        except OSError:  # no descriptor or no memory for it: the socket carries the frames
            return None

    def put(self, link: Outgoing, pieces: list[Any], frames: int) -> None:
        """Send the pieces over the link; `frames`: 1 for a message, 0 for a goodbye."""
        try:
            link.put(pieces, frames, self.pool)
        except OSError as error:
            if not self._call_again(link, error):
                self.gone(link, str(error))
        else:
            if link.outbox:
                self.waiting[link.sock.fileno()] = link

    def push(self, link: Outgoing, listen: bool = False) -> None:
        """Send what waits; with `listen`, first notice whether the peer is still there."""
        try:
            if listen:
                link.listen()
            if link.outbox or link.opening:
                link.push()
        except OSError as error:
            if not self._call_again(link, error):
                self.gone(link, str(error))
        else:
            if not link.outbox:
                self.waiting.pop(link.sock.fileno(), None)

    def finish(self) -> None:
        """Say goodbye on every link; each is shut when its outbox is empty. Nothing can be sent afterwards."""
        self.finished = True
        links = list(self.by_name.values())
        self.by_name.clear()
        for link in links:
            self.last(link, last_words(GOODBYE, link.sequence + 1))

    def last(self, link: Outgoing, words: bytes) -> None:
        """Say the last words on a link, and shut it when they are out."""
        link.ending = True
        empty = not link.outbox
        self.put(link, [words], 0)
        if empty and not link.outbox and link.sock.fileno() in self.by_fd:
            with contextlib.suppress(OSError):  # the peer has closed already
                link.sock.shutdown(socket.SHUT_WR)

    def gone(self, link: Outgoing, why: str) -> None:
        """The link's peer is gone. That is the supervisor's business; here it is counted."""
        said_all = not link.outbox
        self.undeliver(link.name, sum(frames for _, frames in link.outbox))
        link.outbox.clear()
        fd = link.sock.fileno()
        if self.by_fd.pop(fd, None) is not None:
            self.poller.unregister(fd)
        self.waiting.pop(fd, None)
        link.close()
        if self.by_name.get(link.name) is link:
            del self.by_name[link.name]
            self.broken[link.name] = why
        else:
            self.released(link, said_all, why)

    def undeliver(self, name: str, frames: int) -> None:
        """So many frames that counted as sent to `name` will never arrive."""
        self.sent[name] -= frames
        self.undelivered[name] += frames

    def frames(self) -> Iterator[tuple[str, memoryview]]:
        """(to, frame) of every message of which nothing has been handed over."""
        for link in self.waiting.values():
            for data, counts in link.outbox:
                if counts and data[:4] == MAGIC and len(data) >= HEADER.size:
                    header = HEADER.unpack_from(data)
                    if len(data) == HEADER.size + header[4] + header[9]:
                        yield link.name, data

    def close(self) -> None:
        for link in list(self.by_fd.values()):
            self.gone(link, "closed by this role")
