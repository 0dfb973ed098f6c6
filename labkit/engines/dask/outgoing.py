"""What one role says to its peers: links dialled when first needed, and outboxes for what the kernel does not take.

Law: nothing here waits, and nothing here refers to the sender's arrays once a call has returned. Bytes go to the kernel
at once or are copied; what is in an outbox goes out first. A peer that is gone is no error: what was meant for it is
counted. Frames in an outbox count as sent until the link dies; then they count as undelivered.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections import Counter, deque
from collections.abc import Callable
from itertools import islice
from ssl import SSLContext, SSLWantReadError
from typing import Any

import numpy as np

from ...nn.pool import BufferPool
from .frames import ALIGN, MAGIC, Prepared
from .incoming import AGAIN, BELL, MAX_HELLO, NOT_TAKEN
from .poller import READ, WRITE, Poller
from .shared import Offer, Writer, available

__all__ = ["BUFFER", "PATIENCE", "Outbound", "Outgoing", "lay_out"]

PATIENCE = 3.0  # seconds that a stranger has for its hello, and a peer for answering a dial
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


class Outgoing:
    """The link to one peer. Its methods raise `OSError` when the peer is gone."""

    def __init__(
        self, name: str, sock: socket.socket, poller: Poller, context: SSLContext | None, stream: Writer | None
    ) -> None:
        self.name, self.sock, self.poller, self.context = name, sock, poller, context
        self.deadline = time.monotonic() + PATIENCE
        self.outbox: deque[tuple[memoryview, int]] = deque()  # bytes, and how many frames end with them
        self.sequence = 0
        self.opening = True  # dialled, not yet answered
        self.plain = False  # open, and not encrypted: many pieces can be sent at once
        self.ending = False  # the goodbye is said
        self.pipe: Any = sock  # what frames are written to: the socket, later the stream, if the peer takes it up
        self.stream = stream
        self.shares = False  # frames go to the stream
        self._watched = READ
        poller.register(sock.fileno(), READ)

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
        rest = memoryview(pool.take(total - taken))[: total - taken]  # type: ignore[arg-type]
        at = 0
        for piece in pieces:
            if taken < len(piece):
                end = at + len(piece) - taken
                rest[at:end] = memoryview(piece)[taken:]
                at = end
            taken = max(0, taken - len(piece))
        self.outbox.append((rest, frames))
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
            if self.opening and not self._open():
                return self._watch(READ | WRITE)
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

    def listen(self) -> None:
        """Hear that the peer cannot take the offer up, and its bells; an end is an end."""
        with contextlib.suppress(*AGAIN):
            heard = self.sock.recv(MAX_HELLO)
            if not heard:
                raise ConnectionError("closed by the peer")
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

    def _open(self) -> bool:
        """Whether the dialled peer has answered; from then on the link can be used."""
        try:
            host = self.sock.getpeername()[0]
        except OSError:  # not yet, or never: then the poller tells
            return False
        self.opening = False
        self.plain = self.context is None
        if self.context is not None:
            self.sock = self.context.wrap_socket(self.sock, server_hostname=host, do_handshake_on_connect=False)
        return True


class Outbound:
    """All links of a role. `hello(to)`: the bytes that open a connection to `to`."""

    def __init__(
        self, poller: Poller, pool: BufferPool, hello: Callable[[str, Offer | None], bytes],
        context: SSLContext | None, host: str,
    ) -> None:  # fmt: skip
        self.poller, self.pool, self.hello, self.context, self.host = poller, pool, hello, context, host
        self.sent: Counter[str] = Counter()
        self.undelivered: Counter[str] = Counter()
        self.broken: dict[str, str] = {}
        self.by_name: dict[str, Outgoing] = {}
        self.by_fd: dict[int, Outgoing] = {}
        self.waiting: dict[int, Outgoing] = {}  # those whose outbox is not empty
        self.finished = False

    def dial(self, to: str, host: str, port: int) -> Outgoing | None:
        """A link to `to`, opened by a hello; None if it cannot be reached."""
        if self.finished or to in self.broken:
            return None
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        error = sock.connect_ex((host, port))
        if error not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
            self.broken[to] = os.strerror(error)
            sock.close()
            return None
        stream = self._stream(host)
        link = Outgoing(to, sock, self.poller, self.context, stream)
        self.by_name[to] = self.by_fd[sock.fileno()] = link
        self.put(link, [self.hello(to, stream.offer if stream else None)], 0)
        return self.by_name.get(to)

    def _stream(self, host: str) -> Writer | None:
        """Memory to share with a peer at `host`, if that is where this role is, and nothing is to be encrypted."""
        if self.context is not None or host != self.host or not available():
            return None
        try:
            return Writer()
        except OSError:  # no descriptor or no memory for it: the socket carries the frames
            return None

    def put(self, link: Outgoing, pieces: list[Any], frames: int) -> None:
        """Send the pieces over the link; `frames`: 1 for a message, 0 for a hello or a goodbye."""
        try:
            link.put(pieces, frames, self.pool)
        except OSError as error:
            self.gone(link, str(error))
        else:
            if link.outbox:
                self.waiting[link.sock.fileno()] = link

    def push(self, link: Outgoing, listen: bool = False) -> None:
        """Send what waits; with `listen`, first notice whether the peer is still there."""
        try:
            if listen:
                link.listen()
            if link.outbox:
                link.push()
        except OSError as error:
            self.gone(link, str(error))
        else:
            if not link.outbox:
                self.waiting.pop(link.sock.fileno(), None)

    def finish(self, goodbye: Callable[[Outgoing], bytes]) -> None:
        """Say goodbye on every link; each is shut when its outbox is empty. Nothing can be sent afterwards."""
        self.finished = True
        links = list(self.by_name.values())
        self.by_name.clear()
        for link in links:
            link.ending = True
            empty = not link.outbox
            self.put(link, [goodbye(link)], 0)
            if empty and not link.outbox and link.sock.fileno() in self.by_fd:
                with contextlib.suppress(OSError):  # the peer has closed already
                    link.sock.shutdown(socket.SHUT_WR)

    def gone(self, link: Outgoing, why: str) -> None:
        """The link's peer is gone. That is the supervisor's business; here it is counted."""
        frames = sum(frames for _, frames in link.outbox)
        link.outbox.clear()
        self.sent[link.name] -= frames
        self.undelivered[link.name] += frames
        if self.by_name.get(link.name) is link:
            del self.by_name[link.name]
            self.broken[link.name] = why
        fd = link.sock.fileno()
        if self.by_fd.pop(fd, None) is not None:
            self.poller.unregister(fd)
        self.waiting.pop(fd, None)
        link.close()

    def close(self) -> None:
        for link in list(self.by_fd.values()):
            self.gone(link, "closed by this role")
