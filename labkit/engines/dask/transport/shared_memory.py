"""A byte stream in memory that two processes of one host share: from one writer to one reader, without the kernel.

It behaves as a socket does (in order, complete, never blocks, may take only a part), so frames are the same on both. Two
counters rule it, bytes ever written and bytes ever read, each stored by one side only. The memory has no name in any file
system: the writer makes it, the reader opens it through the writer's process, and it is freed with the last of the two,
however they end. Its size is sealed, so that neither side can take it away from the other.

The first frames of a connection go through the socket, until the reader has accepted the offer. It says so in the memory,
because a byte on the socket that the writer has not read when it closes would make the kernel discard what it has not
transmitted yet. The word FROM says which frame is the first in the memory: the reader switches when it has read all frames
before.

No value that the other side has stored is trusted: it may be garbage, and may change at any moment. Counters that cannot be
right end the connection; they never lead to an access outside the memory, and nothing waits for them.

A side that is about to sleep says so in the memory, looks once more, and then sleeps on the socket; the other side rings the
doorbell, one byte on the socket, when there is something to read, or room to write. Both store first and look afterwards,
with a full barrier between (any operation on a lock is one), so no wake-up is missed. The order of plain stores is that of
x86: elsewhere, and between hosts, the socket carries the frames.
"""

from __future__ import annotations

import mmap
import os
import platform
import secrets
import struct
import sys
import threading
from collections.abc import Sequence
from typing import NamedTuple

from .frames import Piece

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["SIZE", "MemoryReader", "MemoryWriter", "Offer", "available"]

# The format: words of 8 bytes, 64 bytes (a cache line) apart, then the data.
WRITTEN, ORIGIN, READ, ASLEEP, STARVED, FROM, ACCEPTED = range(0, 56, 8)  # indexes of words
DATA = 4096  # bytes before the data
SIZE = 16 << 20  # bytes of data; only what messages have filled takes memory
PIECE = 128 << 10  # bytes of a large message after which the reader is told, so that both sides copy at once
SEALS = 0x1 | 0x2 | 0x4  # F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW
_WRONG = "the shared memory's counters cannot be right"


def available() -> bool:
    """Whether processes of this machine can share memory in the way described above."""
    in_order = sys.platform == "linux" and platform.machine() in ("x86_64", "AMD64")
    return in_order and hasattr(os, "memfd_create") and hasattr(fcntl, "F_ADD_SEALS")


class Offer(NamedTuple):
    """Where a reader finds the memory: descriptor `fd` of process `pid`, if what it finds there is called `token`."""

    pid: int
    fd: int
    token: str


class _Mapping:
    """A memory that is mapped into this process: its words, and its data. Both ends have one."""

    def __init__(self, fd: int, size: int) -> None:
        self._map = mmap.mmap(fd, DATA + size)
        self._all = memoryview(self._map)
        self._lock = threading.Lock()
        self.words = self._all[:DATA].cast("q")
        self.data = self._all[DATA:]

    def barrier(self) -> None:
        """What was stored before is seen by the other side before what is loaded afterwards."""
        self._lock.acquire()
        self._lock.release()

    def close(self) -> None:
        """Unmap the memory."""
        for view in (self.words, self.data, self._all):
            view.release()
        self._map.close()


class MemoryWriter:
    """The sender's end. `offer` can be accepted until `end_offer` or `close` is called.

    `size`: bytes of data. `piece`: see `PIECE`.
    """

    max_pieces = 1 << 30  # buffers in one `write`

    def __init__(self, size: int = SIZE, piece: int = PIECE) -> None:
        token = secrets.token_hex(8)
        self._size, self._piece = size, piece
        self._fd = os.memfd_create(f"labkit-{token}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self._fd, DATA + size)
            fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, SEALS)
            self._mapping = _Mapping(self._fd, size)
        except BaseException:
            os.close(self._fd)
            raise
        self._words, self._data = self._mapping.words, self._mapping.data
        self._barrier = self._mapping.barrier
        self.offer = Offer(os.getpid(), self._fd, token)
        self._written = self._origin = 0

    def accepted(self) -> bool:
        """Whether the reader has accepted the offer."""
        return bool(self._words[ACCEPTED])

    def end_offer(self) -> None:
        """Close the descriptor through which the reader opens the memory: it has done so."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        """Unmap the memory. A reader that has accepted the offer can still read what is there."""
        self.end_offer()
        self._mapping.close()

    def switch_at(self, sequence: int) -> None:
        """Frame number `sequence` (from 1) and all that follow come through here; 0: none does."""
        self._words[FROM] = sequence

    def write(self, pieces: Sequence[Piece]) -> int:
        """Copy the pieces in as far as there is room. How many bytes were taken.

        `BlockingIOError` if none, `ConnectionError` if the counters cannot be right.
        """
        words, data, written, total = self._words, self._data, self._written, self._size
        read = words[READ]
        if not 0 <= written - read <= total:
            raise ConnectionError(_WRONG)
        if written == read and written != self._origin:  # all is read: begin at the beginning, where the cache is warm
            words[ORIGIN] = self._origin = written
        room = total - (written - read)
        at = (written - self._origin) % total
        begun = written
        for piece in pieces:
            size = len(piece)
            if size <= room and size <= self._piece and at + size <= total:
                data[at : at + size] = piece
                at += size
            else:
                size = self._write_long(memoryview(piece)[:room], written)
                at = (written + size - self._origin) % total
            written += size
            room -= size
            if not room:
                break
        if written == begun:
            raise BlockingIOError
        words[WRITTEN] = self._written = written
        return written - begun

    def write_packed(self, packer: struct.Struct, values: tuple[object, ...], payload: Piece, size: int) -> bool:
        """Write `values` packed, then `payload` (`size` bytes), if both fit in one piece; else False, and nothing is written."""
        words, written = self._words, self._written
        read = words[READ]
        if written == read and written != self._origin:
            words[ORIGIN] = self._origin = written
        head = packer.size
        at = (written - self._origin) % self._size
        start, total = at + head, head + size
        if size > self._piece or at + total > self._size or written + total - read > self._size:
            return False
        try:
            packer.pack_into(self._data, at, *values)
        except struct.error:  # a number too large; encoding it field by field says which
            return False
        self._data[start : start + size] = payload
        words[WRITTEN] = self._written = written + total
        return True

    def _write_long(self, piece: memoryview, written: int) -> int:
        """A piece around the end, or one so long that the reader is told on the way."""
        done, size = 0, len(piece)
        while done < size:
            at = (written + done - self._origin) % self._size
            count = min(size - done, self._size - at, self._piece)
            self._data[at : at + count] = piece[done : done + count]
            done += count
            self._words[WRITTEN] = written + done
        return done

    def reader_sleeps(self) -> bool:
        """Whether the reader sleeps and the doorbell must be rung. Asked once after each `write`."""
        self._barrier()
        if self._words[ASLEEP]:
            self._words[ASLEEP] = 0
            return True
        return False

    def wait_for_room(self) -> bool:
        """Ask the reader to ring the doorbell when there is room. False if there is room already."""
        self._words[STARVED] = 1
        self._barrier()
        return self._written - self._words[READ] >= self._size


class MemoryReader:
    """The receiver's end, opened from an offer. `OSError` if what is offered is not there.

    `size`: bytes of data, the same as the writer's.
    """

    def __init__(self, offer: Offer, size: int = SIZE) -> None:
        path = f"/proc/{offer.pid}/fd/{offer.fd}"
        name = os.readlink(path)  # looked at before it is opened: it may be any file of any process
        if name != f"/memfd:labkit-{offer.token} (deleted)":  # whole: a guessed part must not open another's memory
            raise FileNotFoundError(f"{path} is {name}")
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & SEALS != SEALS or os.fstat(fd).st_size != DATA + size:
                raise PermissionError(f"{path} could change its size")
            self._mapping = _Mapping(fd, size)
        finally:
            os.close(fd)
        self._size = size
        self._words, self._data = self._mapping.words, self._mapping.data
        self._barrier = self._mapping.barrier
        self.count = 0  # bytes ever read
        self._words[ACCEPTED] = 1

    def close(self) -> None:
        """Unmap the memory."""
        self._mapping.close()

    def starts_at(self, sequence: int) -> bool:
        """Whether frame number `sequence` is the first that comes through here."""
        return bool(self._words[FROM] == sequence)

    def ready(self) -> bool:
        """Whether there is something to read."""
        return bool(self._words[WRITTEN] != self.count)

    def read_into(self, buffers: list[memoryview]) -> int:
        """Fill the buffers one after the other as far as bytes are there; how many.

        `BlockingIOError` if there are none, `ConnectionError` if the counters cannot be right.
        """
        words, data, total = self._words, self._data, self._size
        have = words[WRITTEN] - self.count
        if not 0 < have <= total:
            raise ConnectionError(_WRONG) if have else BlockingIOError
        at, left = (self.count - words[ORIGIN]) % total, have
        for buffer in buffers:
            size = min(left, len(buffer))
            first = total - at
            if size <= first:
                buffer[:size] = data[at : at + size]
            else:
                buffer[:first] = data[at:]
                buffer[first:size] = data[: size - first]
            at = (at + size) % total
            left -= size
            if not left:
                break
        words[READ] = self.count = self.count + have - left
        return have - left

    def peek(self) -> memoryview:
        """What can be read, up to the end of the data. `ConnectionError` as in `read_into`."""
        words, total = self._words, self._size
        have = words[WRITTEN] - self.count
        if not 0 <= have <= total:
            raise ConnectionError(_WRONG)
        at = (self.count - words[ORIGIN]) % total
        return self._data[at : at + have]

    def advance(self, count: int) -> None:
        """`count` bytes of what `peek` returned have been read."""
        self._words[READ] = self.count = self.count + count

    def sleep(self) -> bool:
        """Ask the writer to ring the doorbell when there is something to read. False if there is already."""
        self._words[ASLEEP] = 1
        self._barrier()
        return not self.ready()

    def woke(self) -> None:
        """The doorbell need not be rung any more."""
        self._words[ASLEEP] = 0

    def writer_waits(self) -> bool:
        """Whether the writer waits for room and the doorbell must be rung. Asked once after each read."""
        self._barrier()
        if self._words[STARVED]:
            self._words[STARVED] = 0
            return True
        return False
