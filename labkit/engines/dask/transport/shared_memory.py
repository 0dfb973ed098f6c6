"""A byte stream through shared memory, from one writer to one reader on the same host, without the kernel.

The stream has the interface of a socket (ordered, reliable, non-blocking, partial writes), so sockets and shared memory carry
the same frames. It is a ring buffer with two counters: the bytes written and the bytes read in total. Each counter is stored
by one side only. The memory is an anonymous file (`memfd`). The writer creates it, and the reader opens it through the writer's
process. The kernel frees the memory when both processes have ended, even if they were killed. The size of the memory is sealed,
so that neither side can truncate it.

The first frames of a connection go through the socket, until the reader has accepted the offer. The reader accepts by setting a
word in the memory, and not by sending a byte on the socket: if the writer closed the socket before reading that byte, the
kernel would discard data that it has not transmitted yet. The word FROM is the number of the first frame in the memory; the
reader switches to the memory when it has read all earlier frames.

Values stored by the other side are not trusted: they may be garbage, and may change at any time. Invalid counters end the
connection; they never cause an access outside the memory, and no side waits for them to become valid.

Before a side sleeps on the socket, it sets a flag in the memory and checks the counters once more. The other side rings the
doorbell (one byte on the socket) when there is data to read, or room to write. Both sides store first and load afterwards,
with a full barrier in between (any operation on a lock is one), so no wake-up is lost. The protocol relies on the order of
plain stores on x86 processors. On other processors, and between hosts, the socket carries the frames.
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

# The format: words of 8 bytes, 64 bytes (a cache line) apart, then the data.
WRITTEN, ORIGIN, READ, READER_SLEEPS, WRITER_WAITS, FROM, ACCEPTED = range(0, 56, 8)  # indexes of words
DATA = 4096  # bytes before the data
SIZE = 16 << 20  # bytes of data; pages take memory only once they have been written
PIECE = 128 << 10  # bytes of a large message after which the counter is updated, so that both sides copy concurrently
SEALS = 0x1 | 0x2 | 0x4  # F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW
_INVALID_COUNTERS = "the shared memory's counters are invalid"


def available() -> bool:
    """Return whether this platform supports streams in shared memory."""
    in_order = sys.platform == "linux" and platform.machine() in ("x86_64", "AMD64")
    return in_order and hasattr(os, "memfd_create") and hasattr(fcntl, "F_ADD_SEALS")


class Offer(NamedTuple):
    """The location of the memory: descriptor `fd` of process `pid`. The reader checks that the memory's name contains `token`."""

    pid: int
    fd: int
    token: str


class _Mapping:
    """The memory as mapped into this process, at either end: its words, and its data."""

    def __init__(self, fd: int, size: int) -> None:
        self._map = mmap.mmap(fd, DATA + size)
        self._all = memoryview(self._map)
        self._lock = threading.Lock()
        self.words = self._all[:DATA].cast("q")
        self.data = self._all[DATA:]

    def barrier(self) -> None:
        """Full memory barrier: earlier stores become visible to the other side before any later load."""
        self._lock.acquire()
        self._lock.release()

    def close(self) -> None:
        for view in (self.words, self.data, self._all):
            view.release()
        self._map.close()


class MemoryWriter:
    """The sender's end. `offer` can be accepted until `end_offer` or `close` is called.

    `size`: bytes of data. `piece`: see `PIECE`.
    """

    max_pieces = 1 << 30  # limit of the buffers in one `write`

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
        """Return whether the reader has accepted the offer."""
        return bool(self._words[ACCEPTED])

    def end_offer(self) -> None:
        """Close the descriptor through which the reader opens the memory, once the reader has opened it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        """Unmap the memory. A reader that has accepted the offer can still read the remaining data."""
        self.end_offer()
        self._mapping.close()

    def switch_at(self, sequence: int) -> None:
        """Declare that frame number `sequence` (from 1) and all later frames use this memory. 0: no frame uses it."""
        self._words[FROM] = sequence

    def write(self, pieces: Sequence[Piece]) -> int:
        """Copy as many bytes of the pieces as there is room for. Returns the number of bytes copied.

        Raises `BlockingIOError` if there is no room, `ConnectionError` if the counters are invalid.
        """
        words, data, written, total = self._words, self._data, self._written, self._size
        read = words[READ]
        if not 0 <= written - read <= total:
            raise ConnectionError(_INVALID_COUNTERS)
        if written == read and written != self._origin:  # all data is read: restart at offset 0, which is in the cache
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
        """Write `values`, packed by `packer`, then `payload` (`size` bytes).

        Returns False, without writing anything, if they do not fit.
        """
        words, written = self._words, self._written
        read = words[READ]
        if written == read and written != self._origin:
            words[ORIGIN] = self._origin = written
        head = packer.size
        at = (written - self._origin) % self._size
        start, total = at + head, head + size
        if size > self._piece or at + total > self._size or written + total - read > self._size or read > written:
            return False  # `write` raises if the counters are invalid
        try:
            packer.pack_into(self._data, at, *values)
        except struct.error:  # a number is out of range; `Codec.encode` raises an error that names its field
            return False
        self._data[start : start + size] = payload
        words[WRITTEN] = self._written = written + total
        return True

    def _write_long(self, piece: memoryview, written: int) -> int:
        """Copy a piece that wraps around the end, or is longer than `PIECE`, updating the counter in between."""
        done, size = 0, len(piece)
        while done < size:
            at = (written + done - self._origin) % self._size
            count = min(size - done, self._size - at, self._piece)
            self._data[at : at + count] = piece[done : done + count]
            done += count
            self._words[WRITTEN] = written + done
        return done

    def reader_sleeps(self) -> bool:
        """Return whether the reader sleeps, so that the doorbell must be rung. Clears the flag.

        Called once after each `write`.
        """
        self._barrier()
        if self._words[READER_SLEEPS]:
            self._words[READER_SLEEPS] = 0
            return True
        return False

    def wait_for_room(self) -> bool:
        """Request the doorbell for room to write. Returns False if there is room already."""
        self._words[WRITER_WAITS] = 1
        self._barrier()
        return self._written - self._words[READ] >= self._size


class MemoryReader:
    """The receiver's end, opened from an offer. Raises `OSError` if the offered memory cannot be opened.

    `size`: bytes of data, the same as the writer's.
    """

    def __init__(self, offer: Offer, size: int = SIZE) -> None:
        path = f"/proc/{offer.pid}/fd/{offer.fd}"
        name = os.readlink(path)  # checked before the file is opened, because it may be any file of any process
        # compares the whole name, so a partial token opens nothing
        if name != f"/memfd:labkit-{offer.token} (deleted)":
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
        self.count = 0  # bytes read in total
        self._words[ACCEPTED] = 1

    def close(self) -> None:
        self._mapping.close()

    def starts_at(self, sequence: int) -> bool:
        """Return whether frame number `sequence` is the first in this memory."""
        return bool(self._words[FROM] == sequence)

    def ready(self) -> bool:
        return bool(self._words[WRITTEN] != self.count)

    def read_into(self, buffers: list[memoryview]) -> int:
        """Fill the buffers in order with the available bytes. Returns the number of bytes read.

        Raises `BlockingIOError` if no byte is available, `ConnectionError` if the counters are invalid.
        """
        words, data, total = self._words, self._data, self._size
        have = words[WRITTEN] - self.count
        if not 0 < have <= total:
            raise ConnectionError(_INVALID_COUNTERS) if have else BlockingIOError
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
        """Return a view of the readable bytes, at most up to the end of the buffer.

        Raises `ConnectionError` if the counters are invalid.
        """
        words, total = self._words, self._size
        have = words[WRITTEN] - self.count
        if not 0 <= have <= total:
            raise ConnectionError(_INVALID_COUNTERS)
        at = (self.count - words[ORIGIN]) % total
        return self._data[at : at + have]

    def advance(self, count: int) -> None:
        """Mark `count` bytes returned by `peek` as read."""
        self._words[READ] = self.count = self.count + count

    def sleep(self) -> bool:
        """Request the doorbell for new data. Returns False if there is data to read already."""
        self._words[READER_SLEEPS] = 1
        self._barrier()
        return not self.ready()

    def cancel_sleep(self) -> None:
        """Cancel the request made by `sleep`."""
        self._words[READER_SLEEPS] = 0

    def writer_waits(self) -> bool:
        """Return whether the writer waits for room, so that the doorbell must be rung. Clears the flag.

        Called once after each read.
        """
        self._barrier()
        if self._words[WRITER_WAITS]:
            self._words[WRITER_WAITS] = 0
            return True
        return False
