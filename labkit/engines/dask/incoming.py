"""What one peer says to this role: a connection read, and the words it begins with.

Law: a connection is read with as few calls as its bytes allow. A small read-ahead takes the header, and whole frames if
they are small; the rest of a large frame goes straight into the buffer that its arrays will live in, and the same call
takes the beginning of the next. A call that brings less than it asked for has emptied the socket: nobody asks again.
"""

from __future__ import annotations

import contextlib
import hmac
import socket
import ssl
import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...errors import BadInput
from ...nn.pool import BufferPool
from ...roles.messages import Message
from .frames import HEADER, PAUSED, FrameError, read_header
from .shared import Offer, Reader

__all__ = ["AGAIN", "BELL", "MAX_HELLO", "NOT_TAKEN", "Delivered", "Hello", "Incoming"]

AGAIN = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)  # not now
MAX_HELLO = 512  # bytes, and the read-ahead
_HELLO = struct.Struct("<4sHHHHHHHHIIIQ")
_HELLO_MAGIC = b"LKH3"
NOT_TAKEN, BELL = b"N", b"!"  # all that is ever said against the direction of the frames


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


class Hello(NamedTuple):
    """The first words on a connection: who speaks, for which run, to whom, and where the speaker can be answered.

    The address matters when a role was restarted: it speaks before the news of it has reached everybody. `offer`: memory
    to share. `after`: the number of the last frame before this connection, of one that goes on where another was cut.
    """

    run: str
    sender: str
    to: str
    host: str
    port: int
    incarnation: int
    offer: Offer | None = None
    after: int = 0

    def pack(self, secret: bytes) -> bytes:
        """The hello as bytes; `BadInput` if it has more than `MAX_HELLO`."""
        offer = self.offer or Offer(0, 0, "")
        texts = [secret, *(text.encode() for text in (self.run, self.sender, self.to, self.host, offer.token))]
        size = _HELLO.size + sum(map(len, texts))
        if size > MAX_HELLO:
            raise BadInput(f"Secret, run, names and host take {size} bytes together; at most {MAX_HELLO} are allowed.")
        numbers = self.port, self.incarnation, offer.pid, offer.fd, self.after
        head = _HELLO.pack(_HELLO_MAGIC, size, *map(len, texts), *numbers)
        return head + b"".join(texts)

    @classmethod
    def unpack(cls, data: bytes, secret: bytes) -> tuple[Hello, int] | None:
        """(hello, its bytes), or None while it is incomplete; `FrameError` if it is none, or the secret is wrong."""
        if data[:4] != _HELLO_MAGIC[: len(data)]:
            raise FrameError(f"no hello starts with {data[:8]!r}")
        if len(data) < _HELLO.size:
            return None
        _, size, *lengths, port, incarnation, pid, fd, after = _HELLO.unpack_from(data)
        if size > MAX_HELLO or size != _HELLO.size + sum(lengths):
            raise FrameError(f"a hello of {size} bytes")
        if len(data) < size:
            return None
        texts, at = [], _HELLO.size
        for length in lengths:
            texts.append(data[at : at + length])
            at += length
        if not hmac.compare_digest(texts[0], secret):
            raise FrameError("the secret is wrong")
        try:
            run, sender, to, host, token = (text.decode() for text in texts[1:])
        except UnicodeDecodeError as error:
            raise FrameError("a hello whose names are no text") from error
        offer = Offer(pid, fd, token) if token else None
        return cls(run, sender, to, host, port, incarnation, offer, after), size


class Incoming:
    """What one peer says to this role. A stranger (`name` is "") until its hello is read.

    `pipe` is what frames are read from: the socket, or the `stream` that the peer has offered once it begins there.
    """

    __slots__ = (
        "_ahead", "_ahead_view", "_filled", "_size", "_start", "_stop", "body", "deadline", "header", "incarnation",
        "last", "name", "parked", "pipe", "plain", "sequence", "shares", "sock", "stream", "tells", "where",
    )  # fmt: skip

    def __init__(self, sock: socket.socket, where: str, deadline: float) -> None:
        self.sock, self.where, self.deadline = sock, where, deadline
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

    def hello(self, secret: bytes) -> Hello | None:
        """The hello, or None while it is incomplete; `FrameError` as in `Hello.unpack`."""
        found = Hello.unpack(bytes(self._ahead[: self._stop]), secret)
        if found is None:
            return None
        self._start = found[1]
        return found[0]

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
