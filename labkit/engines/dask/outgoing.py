"""What one role says to one peer: a link, and an outbox for what the kernel does not take.

Law: nothing here waits, and nothing here refers to the sender's arrays once a call has returned. Bytes go to the kernel
at once or are copied; what is in the outbox goes out first.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections import deque
from itertools import islice
from ssl import SSLContext, SSLWantReadError
from typing import Any

import numpy as np

from ...nn.pool import BufferPool
from .frames import ALIGN, MAGIC, Prepared
from .handshake import MAX_HELLO, Greeting
from .incoming import AGAIN, BELL, NOT_TAKEN
from .poller import READ, WRITE, Poller
from .shared import Writer

__all__ = ["BUFFER", "CONNECT_S", "Outgoing", "copied", "lay_out"]

CONNECT_S = 15.0  # seconds that a connection may take; the kernel tries again after 1, 3 and 7
BUFFER = 4 << 20  # bytes in the kernel, each way: a quarter less time than its own choice at 1 and 10 MB
_PIECES = 256  # buffers in one call; the kernel takes 1024


def lay_out(arrays: list[np.ndarray]) -> tuple[list[Any], int, int]:
    """(the payload's pieces in order, its bytes, the bytes of them that are padding)."""
    if len(arrays) == 1:
        return arrays, arrays[0].size, 0
    pieces: list[Any] = []
    total = padding = 0
    for array in arrays:
        if total % ALIGN and array.size:
            gap = -total % ALIGN
            pieces.append(bytes(gap))
            padding += gap
            total += gap
        pieces.append(array)
        total += array.size
    return pieces, total, padding


def copied(pieces: list[Any], pool: BufferPool, start: int = 0) -> memoryview:
    """The bytes of the pieces (bytes, flat uint8 arrays) from number `start` on, in memory of their own."""
    total = sum(map(len, pieces)) - start
    rest = memoryview(pool.take(total))[:total]  # type: ignore[arg-type]
    at = 0
    for piece in pieces:
        if start < len(piece):
            end = at + len(piece) - start
            rest[at:end] = memoryview(piece)[start:]
            at = end
        start = max(0, start - len(piece))
    return rest


class Outgoing:
    """The link to one peer. Its methods raise `OSError` when the peer is gone."""

    def __init__(
        self, name: str, sock: socket.socket, poller: Poller, context: SSLContext | None, stream: Writer | None,
        greeting: Greeting,
    ) -> None:  # fmt: skip
        self.name, self.poller, self.context = name, poller, context
        self.outbox: deque[tuple[memoryview, int]] = deque()  # bytes, and how many frames end with them
        self.sequence = 0
        self.plain = False  # open, and not encrypted: many pieces can be sent at once
        self.ending = False  # the last word is said
        self.where = "", 0  # host, port
        self.tries = 0
        self.begin(sock, stream, greeting)

    def begin(self, sock: socket.socket, stream: Writer | None, greeting: Greeting) -> None:
        """A connection that has been dialled. Frames wait in the outbox until its handshake is complete."""
        self.sock, self.stream, self.greeting = sock, stream, greeting
        self.tries += 1
        self.deadline = time.monotonic() + CONNECT_S
        self.connected = False
        self.opening = True  # the handshake is not complete
        self.pipe: Any = sock  # what frames are written to: the socket, later the stream, if the peer takes it up
        self.shares = False  # frames go to the stream
        self._watched = READ | WRITE
        self.poller.register(sock.fileno(), self._watched)

    def put(self, pieces: list[Any], frames: int, pool: BufferPool) -> None:
        """Hand the pieces (bytes, flat uint8 arrays) to the kernel; copy what it does not take."""
        if not self.shares and self.stream is not None and frames and not self.outbox:
            self._turn(self.stream)
        taken, total = 0, sum(map(len, pieces))
        if self.plain and not self.outbox and len(pieces) <= _PIECES:
            try:
                taken = self.pipe.sendmsg(pieces)
                if taken == total:
                    if self.shares and self.pipe.sleeper():
                        self.ring()
                    return
            except BlockingIOError:
                pass
            except OSError:
                self.outbox.append((memoryview(b""), frames))
                raise
        self.outbox.append((copied(pieces, pool, taken), frames))
        self.push()

    def put_prepared(self, frame: Prepared, numbers: tuple[Any, ...], payload: Any, said: tuple[int, int, int]) -> bool:
        """A frame straight into the shared memory; False if it does not fit in one piece. `said`: category, time,
        gradients computed."""
        category, now, computed = said
        values = (
            MAGIC, frame.index, category, 0, frame.meta, 0, self.sequence + 1, now, computed, frame.payload,
            0, *numbers, frame.described,
        )  # fmt: skip
        if not self.pipe.put(frame.struct, values, payload, frame.payload):
            return False
        self.sequence += 1
        if self.pipe.sleeper():
            self.ring()
        return True

    def push(self) -> None:
        """Hand over what waits, as far as the kernel takes it, and be told when it takes more."""
        try:
            if self.opening:
                self._greet()
                return self._watch(READ if self.connected and not self.greeting.unsent else READ | WRITE)
            while self.outbox:
                if self.shares:
                    self._pour()
                elif self.plain:
                    self._took(self.sock.sendmsg([data for data, _ in islice(self.outbox, _PIECES)]))
                else:
                    self._took(self.sock.send(self.outbox[0][0]))
        except AGAIN as error:
            if self.shares:
                return None
            return self._watch(READ if isinstance(error, SSLWantReadError) else READ | WRITE)
        self._watch(READ)
        if self.ending:
            self.sock.shutdown(socket.SHUT_WR)

    def take_back(self) -> list[memoryview]:
        """The frames that wait, without the first: of that a part may be under way, and a TLS record of it be sealed."""
        if not self.outbox:
            return []
        first, *others = self.outbox
        self.outbox = deque([first])
        return [data for data, frames in others if frames]

    def listen(self) -> None:
        """Hear the peer's part of the handshake, that it cannot take the offer up, and its bells; an end is an end."""
        if not self.connected and not self._connect():
            return
        with contextlib.suppress(*AGAIN):
            heard: bytes | None = self.sock.recv(MAX_HELLO)
            if not heard:
                raise ConnectionError("closed by the peer")
            if self.opening:
                heard = self.greeting.hear(heard)
                if heard is None:
                    return
                self.opening, self.plain = False, self.context is None
            if NOT_TAKEN in heard and not self.shares:
                self._forget_stream()

    def _turn(self, stream: Writer) -> None:
        """Has the peer taken the offer up, all goes through the shared memory from the frame that is due; what was before
        is with the kernel. The peer turns at the bell: no bell, no turn."""
        if not stream.taken():
            return
        stream.begin(self.sequence)
        try:
            self.sock.send(BELL)
        except OSError:  # the socket is full, or dead: the next to use it sees which
            stream.begin(0)
        else:
            stream.settled()
            self.pipe, self.shares = stream, True

    def ring(self) -> None:
        """Wake a peer that sleeps on the socket. A full socket wakes it as well; one that is gone is noticed in `listen`."""
        with contextlib.suppress(OSError):
            self.sock.send(BELL)

    def _pour(self) -> None:
        """What waits goes into the shared memory, as far as there is room; `BlockingIOError` if there is none."""
        assert self.stream is not None
        with contextlib.suppress(BlockingIOError):
            self._took(self.stream.sendmsg([data for data, _ in islice(self.outbox, _PIECES)]))
        if self.stream.sleeper():
            self.ring()
        if self.outbox and self.stream.starve():
            raise BlockingIOError  # the peer rings when it has read

    def close(self) -> None:
        """Close the socket; what is in the shared memory can still be read."""
        self.sock.close()
        self._forget_stream()

    def _forget_stream(self) -> None:
        if self.stream is not None:
            self.stream.close()
            self.stream = None

    def _took(self, count: int) -> None:
        outbox = self.outbox
        while outbox and count >= len(outbox[0][0]):
            count -= len(outbox.popleft()[0])
        if count:
            data, frames = outbox[0]
            outbox[0] = (data[count:], frames)

    def _watch(self, wanted: int) -> None:
        if wanted != self._watched:
            self._watched = wanted
            self.poller.modify(self.sock.fileno(), wanted)

    def _greet(self) -> None:
        """Send what is left of the hello."""
        if self.connected or self._connect():
            while self.greeting.unsent:
                self.greeting.unsent = self.greeting.unsent[self.sock.send(self.greeting.unsent) :]

    def _connect(self) -> bool:
        """Whether the dialled peer has answered; from then on the socket can be used."""
        try:
            host = self.sock.getpeername()[0]
        except OSError:  # not yet, or never
            error = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error)) from None
            return False
        self.connected = True
        if self.context is not None:
            self.sock = self.context.wrap_socket(self.sock, server_hostname=host, do_handshake_on_connect=False)
        return True
