"""What one peer says to this role: a connection read, and the words it begins with.

Law: a connection is read with as few calls as its bytes allow. A small read-ahead takes the header, and whole frames if
they are small; the rest of a large frame goes straight into the buffer that its arrays will live in, and the same call
takes the beginning of the next. A call that brings less than it asked for has emptied the socket: nobody asks again.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from dataclasses import dataclass
from typing import Any

from ...nn.pool import BufferPool
from ...roles.messages import Message
from .frames import HEADER, PAUSED, FrameError, read_header
from .handshake import MAX_HELLO, REFUSED, Hello
from .shared import Offer, Reader

__all__ = ["AGAIN", "BELL", "NOT_TAKEN", "Delivered", "Incoming"]

AGAIN = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)  # not now
NOT_TAKEN, BELL = b"N", b"!"  # all that is said against the direction of the frames after the handshake


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


class Incoming:
    """What one peer says to this role. A stranger (`name` is "") until its hello is verified.

    `pipe` is what frames are read from: the socket, or the `stream` that the peer has offered once it begins there.
    """

    __slots__ = (
        "_ahead", "_ahead_view", "_filled", "_size", "_start", "_stop", "body", "deadline", "header", "host",
        "incarnation", "last", "name", "parked", "pipe", "plain", "said", "sequence", "shares", "sock", "stream",
        "tells", "where",
    )  # fmt: skip

    def __init__(self, sock: socket.socket, host: str, port: int, deadline: float) -> None:
        self.sock, self.host, self.where, self.deadline = sock, host, f"{host}:{port}", deadline
        self.said: tuple[Hello, bytes] | None = None  # the hello, as soon as it is complete
        self.plain = not isinstance(sock, ssl.SSLSocket)
        self.pipe: Any = sock
        self.stream: Reader | None = None
        self.shares = False  # frames come through the stream
        self.name, self.incarnation, self.sequence = "", -1, 0
        self.last = 0  # the last word, if it was said: GOODBYE or PAUSED
        self.tells = True  # the frame brings a message: it is no last word, and no repetition
        self.parked = False  # let in, but not read for now
        self._ahead = bytearray(MAX_HELLO)
        self._ahead_view = memoryview(self._ahead)
        self._start = self._stop = 0  # the part of the read-ahead that nobody has looked at
        self.header: tuple[Any, ...] | None = None
        self.body: memoryview | None = None  # meta and payload of the frame that `header` announced
        self._size = self._filled = 0

    def receive(self) -> bool:
        """One read. True if there may be more. Raises `EOFError` at the end, one of `AGAIN` when there was nothing."""
        ahead = self._ahead_view
        if not self.plain:
            room = count = self.sock.recv_into(ahead[self._stop :] if self.body is None else self.body[self._filled :])
            if self.body is None:
                self._stop += count
            else:
                self._filled += count
        elif self.body is None:
            room = len(ahead) - self._stop
            count = self.pipe.recvmsg_into([ahead[self._stop :]])[0]
            self._stop += count
        else:
            rest = self._size - self._filled
            room = rest + len(ahead)
            count = self.pipe.recvmsg_into([self.body[self._filled :], ahead])[0]
            self._filled += min(count, rest)
            self._stop = max(0, count - rest)
        if not count:
            raise EOFError
        return bool(count == room)

    def accept(self, offer: Offer | None) -> None:
        """Take up the offer to share memory, if there is one and it holds; if not, tell the peer."""
        if offer is None or not self.plain:  # what is to be encrypted stays on the socket
            return
        try:
            self.stream = Reader(offer)
        except OSError:  # another host, or another container: the socket carries the frames
            self._say(NOT_TAKEN)

    def hush(self) -> None:
        """Nothing comes through the socket any more but bells, and the end: `EOFError`."""
        with contextlib.suppress(*AGAIN):
            if not self.sock.recv(MAX_HELLO):
                raise EOFError

    def feed(self) -> None:
        """There is room in the stream again: ring, if the peer waits for that."""
        if self.stream is not None and self.stream.starving():
            self._say(BELL)

    def _say(self, what: bytes) -> None:
        with contextlib.suppress(OSError):  # who is gone is noticed where it is read; a full socket rings anyway
            self.sock.send(what)

    def close(self) -> None:
        """Close the socket, and give the shared memory back."""
        self.sock.close()
        if self.stream is not None:
            self.stream.close()
            self.stream = None

    def hello(self) -> tuple[Hello, bytes] | None:
        """The hello and its bytes, or None while it is incomplete; `FrameError` as in `Hello.unpack`."""
        if self.said is None:
            self.said = Hello.unpack(bytes(self._ahead[: self._stop]))
            if self.said is not None:
                self._start = len(self.said[1])
        return self.said

    @property
    def begun(self) -> bool:
        """Whether the peer has sent anything."""
        return self._stop > 0

    def welcome(self, said: bytes) -> None:
        """Answer the hello. `OSError` if the peer is gone, or reads nothing."""
        self.sock.send(said)

    def refuse(self) -> None:
        """Tell a stranger that there is no use in trying again."""
        self._say(REFUSED)

    def complete(self, pool: BufferPool, max_frame: int) -> bool:
        """Whether a whole frame is there, in `header` and `body`; `FrameError` if what is there is none."""
        if self.header is None:
            have = self._stop - self._start
            if not have:
                self._start = self._stop = 0
                return False
            if self.stream is not None and not self.shares and self.stream.begins(self.sequence + 1):
                self._start = self._stop = 0  # a bell: the socket has brought its last frame
                self.pipe, self.shares = self.stream, True
                return False
            if have < HEADER.size:
                self._ahead[:have] = self._ahead[self._start : self._stop]
                self._start, self._stop = 0, have
                return False
            self._begin(read_header(self._ahead, self._start, max_frame), pool)
        if self._filled < self._size:
            self._start = self._stop = 0
            return False
        return True

    def whole(self, pool: BufferPool, max_frame: int) -> bool:
        """A frame that lies in the shared memory as a whole is taken at once; False: read it piece by piece."""
        if self.header is not None or self._start != self._stop:
            return False
        assert self.stream is not None
        there = self.stream.peek()
        if len(there) < HEADER.size:
            return False
        try:
            header = read_header(there, 0, max_frame)
            end = HEADER.size + header[4] + header[9]
            if len(there) < end:
                return False
            self._announce(header, pool)[:] = there[HEADER.size : end]
        except FrameError:
            there.release()  # the error's traceback would hold it, and memory that somebody holds cannot be closed
            raise
        self._filled = self._size
        self.stream.advance(end)
        return True

    def _begin(self, header: tuple[Any, ...], pool: BufferPool) -> None:
        body = self._announce(header, pool)
        start = self._start + HEADER.size
        self._start = min(self._stop, start + self._size)
        self._filled = self._start - start
        body[: self._filled] = self._ahead_view[start : self._start]

    def _announce(self, header: tuple[Any, ...], pool: BufferPool) -> memoryview:
        """The frame that `header` describes is due; the memory for its body."""
        _, _, _, flags, meta, _, sequence, _, _, payload = header
        repeated = 0 < sequence <= self.sequence and not flags
        if self.last or not (repeated or sequence == self.sequence + 1):
            why = f"frame {sequence} where {self.sequence + 1} is due"
            raise FrameError(f"{why} after the last word" if self.last else why)
        self.last, self.tells = flags, not (repeated or flags)
        if not repeated and flags != PAUSED:
            self.sequence = sequence
        self.header, self._size = header, meta + payload
        try:
            self.body = memoryview(pool.take(self._size))[: self._size]  # type: ignore[arg-type]
        except MemoryError as error:
            raise FrameError(f"no memory for a frame of {self._size:,} bytes") from error
        return self.body

    def take(self) -> tuple[tuple[Any, ...], memoryview]:
        """The complete frame: (header, body). The next one may begin."""
        header, body = self.header, self.body
        assert header is not None
        assert body is not None
        self.header = self.body = None
        return header, body
