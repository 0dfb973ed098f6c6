"""Memory that two processes of one host share: a stream of bytes from one sender to one receiver, without the kernel.

Law: the stream keeps the socket's promises (in order, complete, never waits, may take only a part), so frames do not
know on what they travel. Two counters rule it, bytes ever written and bytes ever read, each stored by one side only.
The memory has no name anywhere: the sender makes it, the receiver opens it through the sender's process, and it is gone
with the last of the two, however they end. Its size is sealed, so that nobody can pull it away from under the other.

The first frames of a connection go through the socket, until the receiver has taken the offer up: it says so in the
memory, because a word on the socket that the sender has not read when it closes would make the kernel throw away what
it has not handed over yet. The word `from` says which frame is the first in the memory: the reader turns to it when it
has read all frames before.

Nothing that the other side has stored is believed: it may be garbage, it may change at any moment. Counters that cannot
be right end the connection; nothing outside the memory is touched on their word, and nothing waits for it.

A side that goes to sleep says so in the memory, looks once more, and then sleeps on the socket; whoever then has news
rings there, one byte. Both store first and look afterwards, with a full barrier between (any operation on a lock is
one), so no news is missed. The order of plain stores is that of x86: elsewhere, and between hosts, the socket carries
the frames.
"""

from __future__ import annotations

import mmap
import os
import platform
import secrets
import struct
import sys
import threading
from typing import Any, NamedTuple

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["SIZE", "Offer", "Reader", "Writer", "available"]

SIZE = 16 << 20  # bytes of one stream; only what messages have filled takes memory
_DATA = 4096  # bytes before the data: one word a cache line
_WRITTEN, _ORIGIN, _READ, _ASLEEP, _STARVED, _FROM, _TAKEN = range(0, 56, 8)  # words of 8 bytes, 64 bytes apart
_PIECE = 128 << 10  # bytes of a large message after which the reader is told, so that both sides copy at once

_SEALS = 0x1 | 0x2 | 0x4  # F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW
_WRONG = "the shared memory's counters cannot be right"


def available() -> bool:
    """Whether processes of this machine can share memory in the way described above."""
    in_order = sys.platform == "linux" and platform.machine() in ("x86_64", "AMD64")
    return in_order and hasattr(os, "memfd_create") and hasattr(fcntl, "F_ADD_SEALS")


class Offer(NamedTuple):
    """Where a receiver finds the memory: descriptor `fd` of process `pid`, if what it finds there is called `token`."""

    pid: int
    fd: int
    token: str


class _Stream:
    """What both ends have: the mapping, its words, its data."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, _DATA + SIZE)
        self._all = memoryview(self._map)
        self._words = self._all[:_DATA].cast("q")
        self._data = self._all[_DATA:]
        self._lock = threading.Lock()

    def _barrier(self) -> None:
        """What was stored before is seen by the other side before what is loaded afterwards."""
        self._lock.acquire()
        self._lock.release()

    def close(self) -> None:
        """Give the memory back. Nobody may use this end any more."""
        for view in (self._words, self._data, self._all):
            view.release()
        self._map.close()


class Writer(_Stream):
    """The sender's end. `offer` can be taken up until `settled` or `close` is called."""

    def __init__(self) -> None:
        token = secrets.token_hex(8)
        self._fd = os.memfd_create(f"labkit-{token}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self._fd, _DATA + SIZE)
            fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, _SEALS)
            super().__init__(self._fd)
        except BaseException:
            os.close(self._fd)
            raise
        self.offer = Offer(os.getpid(), self._fd, token)
        self._written = self._origin = 0

    def taken(self) -> bool:
        """Whether the reader has taken up the offer."""
        return bool(self._words[_TAKEN])

    def settled(self) -> None:
        """The offer was taken up: the descriptor is not needed any more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        """Give the memory back. A reader that has taken it up can still read what is there."""
        self.settled()
        super().close()

    def begin(self, sequence: int) -> None:
        """Frame number `sequence` (from 1) and all that follow come through here; 0: none does."""
        self._words[_FROM] = sequence

    def sendmsg(self, pieces: list[Any]) -> int:
        """Copy bytes-like pieces in, as far as there is room. How many bytes were taken.

        `BlockingIOError` if none, `ConnectionError` if the counters cannot be right.
        """
        words, data, written = self._words, self._data, self._written
        read = words[_READ]
        if not 0 <= written - read <= SIZE:
            raise ConnectionError(_WRONG)
        if written == read and written != self._origin:  # all is read: begin at the beginning, where the cache is warm
            words[_ORIGIN] = self._origin = written
        room = SIZE - (written - read)
        at = (written - self._origin) % SIZE
        begun = written
        for piece in pieces:
            size = len(piece)
            if size <= room and size <= _PIECE and at + size <= SIZE:
                data[at : at + size] = piece
                at += size
            else:
                size = self._write_long(memoryview(piece)[:room], written)
                at = (written + size - self._origin) % SIZE
            written += size
            room -= size
            if not room:
                break
        if written == begun:
            raise BlockingIOError
        words[_WRITTEN] = self._written = written
        return written - begun

    def put(self, packer: struct.Struct, values: tuple[Any, ...], payload: Any, size: int) -> bool:
        """`values` packed, then `payload` (`size` bytes), if both fit in one piece; else False, and nothing is said."""
        words, written = self._words, self._written
        read = words[_READ]
        if written == read and written != self._origin:
            words[_ORIGIN] = self._origin = written
        head = packer.size
        at = (written - self._origin) % SIZE
        start, total = at + head, head + size
        if size > _PIECE or at + total > SIZE or written + total - read > SIZE:
            return False
        try:
            packer.pack_into(self._data, at, *values)
        except struct.error:  # a number too large; whoever packs it field by field says which
            return False
        self._data[start : start + size] = payload
        words[_WRITTEN] = self._written = written + total
        return True

    def _write_long(self, piece: memoryview, written: int) -> int:
        """A piece around the end, or one so long that the reader is told on the way."""
        done, size = 0, len(piece)
        while done < size:
            at = (written + done - self._origin) % SIZE
            count = min(size - done, SIZE - at, _PIECE)
            self._data[at : at + count] = piece[done : done + count]
            done += count
            self._words[_WRITTEN] = written + done
        return done

    def sleeper(self) -> bool:
        """Whether the reader sleeps and must be rung for. Asked once after each `sendmsg`."""
        self._barrier()
        if self._words[_ASLEEP]:
            self._words[_ASLEEP] = 0
            return True
        return False

    def starve(self) -> bool:
        """Ask to be rung for when there is room. False if there is room already."""
        self._words[_STARVED] = 1
        self._barrier()
        return self._written - self._words[_READ] >= SIZE


class Reader(_Stream):
    """The receiver's end, opened from an offer. `OSError` if what is offered is not there."""

    def __init__(self, offer: Offer) -> None:
        path = f"/proc/{offer.pid}/fd/{offer.fd}"
        name = os.readlink(path)  # looked at before it is opened: it may be anything of anybody's
        if name != f"/memfd:labkit-{offer.token} (deleted)":  # whole: who guesses a part would get into others' memory
            raise FileNotFoundError(f"{path} is {name}")
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS != _SEALS or os.fstat(fd).st_size != _DATA + SIZE:
                raise PermissionError(f"{path} could change its size")
            super().__init__(fd)
        finally:
            os.close(fd)
        self.count = 0  # bytes ever read
        self._words[_TAKEN] = 1

    def begins(self, sequence: int) -> bool:
        """Whether frame number `sequence` comes through here."""
        return bool(self._words[_FROM] == sequence)

    def ready(self) -> bool:
        """Whether there is something to read."""
        return bool(self._words[_WRITTEN] != self.count)

    def recvmsg_into(self, buffers: list[memoryview]) -> tuple[int]:
        """Fill `buffers` one after the other as far as bytes are there; how many, in a tuple as a socket does.

        `BlockingIOError` if there are none, `ConnectionError` if the counters cannot be right.
        """
        words, data = self._words, self._data
        have = words[_WRITTEN] - self.count
        if not 0 < have <= SIZE:
            raise ConnectionError(_WRONG) if have else BlockingIOError
        at, left = (self.count - words[_ORIGIN]) % SIZE, have
        for buffer in buffers:
            size = min(left, len(buffer))
            first = SIZE - at
            if size <= first:
                buffer[:size] = data[at : at + size]
            else:
                buffer[:first] = data[at:]
                buffer[first:size] = data[: size - first]
            at = (at + size) % SIZE
            left -= size
            if not left:
                break
        words[_READ] = self.count = self.count + have - left
        return (have - left,)

    def peek(self) -> memoryview:
        """What can be read, without going around the end. `ConnectionError` as in `recvmsg_into`."""
        words = self._words
        have = words[_WRITTEN] - self.count
        if not 0 <= have <= SIZE:
            raise ConnectionError(_WRONG)
        at = (self.count - words[_ORIGIN]) % SIZE
        return self._data[at : at + have]

    def advance(self, count: int) -> None:
        """`count` bytes of what `peek` gave have been read."""
        self._words[_READ] = self.count = self.count + count

    def sleep(self) -> bool:
        """Ask to be rung for when there is something to read. False if there is already."""
        self._words[_ASLEEP] = 1
        self._barrier()
        return not self.ready()

    def woke(self) -> None:
        """No bell is needed any more."""
        self._words[_ASLEEP] = 0

    def starving(self) -> bool:
        """Whether the writer waits for room and must be rung for. Asked once after each `recvmsg_into`."""
        self._barrier()
        if self._words[_STARVED]:
            self._words[_STARVED] = 0
            return True
        return False
