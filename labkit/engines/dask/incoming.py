"""What one peer says to this role: a connection read, and the words it begins with.

Law: a connection is read with as few calls as its bytes allow. A small read-ahead takes the header, and whole frames if
they are small; the rest of a large frame goes straight into the buffer that its arrays will live in, and the same call
takes the beginning of the next. A call that brings less than it asked for has emptied the socket: nobody asks again.
"""

from __future__ import annotations

import hmac
import socket
import ssl
import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...errors import BadInput
from ...nn.pool import BufferPool
from ...roles.messages import Message
from .frames import GOODBYE, HEADER, FrameError, read_header

__all__ = ["AGAIN", "MAX_HELLO", "Delivered", "Hello", "Incoming"]

AGAIN = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)  # not now
MAX_HELLO = 512  # bytes, and the read-ahead
_HELLO = struct.Struct("<4sHHHHHHHI")
_HELLO_MAGIC = b"LKH1"


@dataclass(slots=True)
class Delivered:
    """A message that has arrived, and what its frame said.

    `nbytes`: of its arrays. `sent_ns`: the sender's engine time, `received_ns`: the receiver's. `computed`: gradients
    the sender had computed so far.
    """

    message: Message
    kind_index: int
    category: int
    sequence: int
    sent_ns: int
    received_ns: int
    computed: int
    nbytes: int


class Hello(NamedTuple):
    """The first words on a connection: who speaks, for which run, to whom, and where the speaker can be answered.

    The address matters when a role was restarted: it speaks before the news of it has reached everybody.
    """

    run: str
    sender: str
    to: str
    host: str
    port: int
    incarnation: int

    def pack(self, secret: bytes) -> bytes:
        """The hello as bytes; `BadInput` if it has more than `MAX_HELLO`."""
        texts = [secret, *(text.encode() for text in (self.run, self.sender, self.to, self.host))]
        size = _HELLO.size + sum(map(len, texts))
        if size > MAX_HELLO:
            raise BadInput(f"Secret, run, names and host take {size} bytes together; at most {MAX_HELLO} are allowed.")
        head = _HELLO.pack(_HELLO_MAGIC, size, *map(len, texts), self.port, self.incarnation)
        return head + b"".join(texts)

    @classmethod
    def unpack(cls, data: bytes, secret: bytes) -> tuple[Hello, int] | None:
        """(hello, its bytes), or None while it is incomplete; `FrameError` if it is none, or the secret is wrong."""
        if data[:4] != _HELLO_MAGIC[: len(data)]:
            raise FrameError(f"no hello starts with {data[:8]!r}")
        if len(data) < _HELLO.size:
            return None
        _, size, *lengths, port, incarnation = _HELLO.unpack_from(data)
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
            run, sender, to, host = (text.decode() for text in texts[1:])
        except UnicodeDecodeError as error:
            raise FrameError("a hello whose names are no text") from error
        return cls(run, sender, to, host, port, incarnation), size


class Incoming:
    """What one peer says to this role. A stranger (`name` is "") until its hello is read."""

    __slots__ = (
        "_ahead", "_ahead_view", "_filled", "_size", "_start", "_stop", "body", "deadline", "goodbye", "header",
        "incarnation", "name", "plain", "sequence", "sock", "where",
    )  # fmt: skip

    def __init__(self, sock: socket.socket, where: str, deadline: float) -> None:
        self.sock, self.where, self.deadline = sock, where, deadline
        self.plain = not isinstance(sock, ssl.SSLSocket)
        self.name, self.incarnation, self.sequence, self.goodbye = "", -1, 0, False
        self._ahead = bytearray(MAX_HELLO)
        self._ahead_view = memoryview(self._ahead)
        self._start = self._stop = 0  # the part of the read-ahead that nobody has looked at
        self.header: tuple[Any, ...] | None = None
        self.body: memoryview | None = None  # meta and payload of the frame that `header` announced
        self._size = self._filled = 0

    def receive(self) -> bool:
        """One read. True if there may be more. Raises `EOFError` at the end, one of `AGAIN` when there was nothing."""
        ahead = self._ahead_view
        if self.body is None:
            room = len(ahead) - self._stop
            count = self.sock.recv_into(ahead[self._stop :] if self._stop else ahead)
            self._stop += count
        else:
            rest = self._size - self._filled
            if self.plain:
                room = rest + len(ahead)
                count = self.sock.recvmsg_into([self.body[self._filled :], ahead])[0]
            else:
                room = count = self.sock.recv_into(self.body[self._filled :])
            self._filled += min(count, rest)
            self._stop = max(0, count - rest)
        if not count:
            raise EOFError
        return count == room or not self.plain

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
            if have < HEADER.size:
                self._ahead[:have] = self._ahead[self._start : self._stop]
                self._start, self._stop = 0, have
                return False
            self._begin(read_header(self._ahead, self._start, max_frame), pool)
        if self._filled < self._size:
            self._start = self._stop = 0
            return False
        return True

    def _begin(self, header: tuple[Any, ...], pool: BufferPool) -> None:
        _, _, _, flags, meta, _, sequence, _, _, payload = header
        if self.goodbye or sequence != self.sequence + 1:
            raise FrameError(f"frame {sequence} where {self.sequence + 1} is due" + " after a goodbye" * self.goodbye)
        self.goodbye = bool(flags & GOODBYE)
        self.header, self.sequence, self._size = header, sequence, meta + payload
        try:
            self.body = memoryview(pool.take(self._size))[: self._size]  # type: ignore[arg-type]
        except MemoryError as error:
            raise FrameError(f"no memory for a frame of {self._size:,} bytes") from error
        start = self._start + HEADER.size
        self._start = min(self._stop, start + self._size)
        self._filled = self._start - start
        self.body[: self._filled] = self._ahead_view[start : self._start]

    def take(self) -> tuple[tuple[Any, ...], memoryview]:
        """The complete frame: (header, body). The next one may begin."""
        header, body = self.header, self.body
        assert header is not None
        assert body is not None
        self.header = self.body = None
        return header, body
