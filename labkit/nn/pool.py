"""Buffers that are used again, but never while somebody still looks at them.

A buffer handed out belongs to whoever holds it or any view of it. It comes back by being forgotten, not by being
returned: the pool looks at its reference count. So an array received earlier stays what it was for as long as anyone
holds it, and nobody can give a buffer back too soon.

Why a pool at all: a fresh large array is fresh pages from the kernel, and touching them costs more than copying into
them. Buffers come in size classes (steps of an eighth of a power of two, at most 12.5% too large).
"""

from __future__ import annotations

import sys
from collections import deque

import numpy as np

__all__ = ["BufferPool"]

_SMALL = 4096  # bytes; below, a fresh array is cheaper than a look into the pool
_LOOK_AT = 8  # buffers of a class that one call looks at; the rest have their turn in later calls
_KEEP = 64  # buffers of a class that are kept at most


def _references(buffers: deque[np.ndarray]) -> int:
    """How many references the first buffer has, the pool's own included."""
    return sys.getrefcount(buffers[0])


class BufferPool:
    """uint8 arrays by size class. `limit`: bytes the pool keeps at most (those still held by others included).

    For one thread. A buffer is at least as large as asked and aligned to 16 bytes; its contents are arbitrary.
    """

    def __init__(self, limit: int = 128 << 20) -> None:
        self.limit = limit
        self.kept = 0  # bytes
        self._classes: dict[int, deque[np.ndarray]] = {}
        # What "only the pool refers to it" looks like differs between versions of Python: measured, not assumed.
        self._alone = _references(deque([np.empty(0, np.uint8)]))

    def take(self, nbytes: int) -> np.ndarray:
        """A buffer of at least `nbytes` bytes that nobody else refers to; `MemoryError` if there is no memory."""
        if nbytes <= _SMALL:
            return np.empty(nbytes, np.uint8)
        step = 1 << (nbytes.bit_length() - 4)
        size = (nbytes + step - 1) & -step
        buffers = self._classes.get(size)
        if buffers is None:
            buffers = self._classes[size] = deque()
        for _ in range(min(len(buffers), _LOOK_AT)):
            if _references(buffers) == self._alone:
                return buffers[0]
            buffers.rotate(-1)
        buffer = np.empty(size, np.uint8)
        if size <= self.limit:
            self._keep(size, buffers, buffer)
        return buffer

    def _keep(self, size: int, buffers: deque[np.ndarray], buffer: np.ndarray) -> None:
        """Take `buffer` in; forget others until the limits hold (what is forgotten lives on with its holders)."""
        if len(buffers) >= _KEEP:
            buffers.popleft()
            self.kept -= size
        for other in list(self._classes):
            theirs = self._classes[other]
            while theirs and self.kept + size > self.limit:
                theirs.popleft()
                self.kept -= other
            if not theirs and theirs is not buffers:
                del self._classes[other]
        buffers.append(buffer)
        self.kept += size
