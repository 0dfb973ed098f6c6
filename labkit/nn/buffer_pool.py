"""A pool of reusable buffers. A buffer is reused only when nothing outside the pool refers to it.

Buffers are not returned to the pool explicitly; the pool checks their reference counts. Therefore an array (or a view
of it) stays unchanged as long as a reference to it exists, and a buffer cannot be released too early.

Reason for a pool: a new large array consists of new pages from the kernel, and the page faults cost more than a copy into
existing pages. Buffers come in size classes (steps of an eighth of a power of two, at most 12.5% too large).
"""

from __future__ import annotations

import sys
from collections import deque

import numpy as np

_SMALL = 4096  # bytes; below this size a new array is cheaper than a lookup in the pool
_LOOK_AT = 8  # buffers of a size class that one call checks; later calls check the others
_KEEP = 64  # maximum number of buffers per size class


def _references(buffers: deque[np.ndarray]) -> int:
    """Return the reference count of the first buffer, including the pool's reference."""
    return sys.getrefcount(buffers[0])


class BufferPool:
    """A pool of uint8 arrays by size class. `limit`: maximum bytes of all buffers of the pool, including those in use.

    Not thread-safe. A buffer is at least as large as requested and aligned to 16 bytes; its contents are arbitrary.
    """

    def __init__(self, limit: int = 128 << 20) -> None:
        self.limit = limit
        self.kept = 0  # bytes
        self._classes: dict[int, deque[np.ndarray]] = {}
        # The reference count of an unused buffer depends on the version of Python, so it is measured here.
        self._alone = _references(deque([np.empty(0, np.uint8)]))

    def take(self, nbytes: int) -> np.ndarray:
        """Return a buffer of at least `nbytes` bytes that is not in use. Raises `MemoryError` if memory cannot be allocated."""
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

    def clear(self) -> None:
        """Drop all buffers; those in use exist until their users release them."""
        self._classes.clear()
        self.kept = 0

    def _keep(self, size: int, buffers: deque[np.ndarray], buffer: np.ndarray) -> None:
        """Add `buffer`; drop other buffers until the limits hold (a dropped buffer exists until its users release it)."""
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
