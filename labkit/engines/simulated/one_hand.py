"""A run in virtual time is one machine: one thread at a time may turn it, and nobody waits long for a turn.

Whoever moves a run, commands it or reads its books does so inside `with hand:`. A long move is made in slices, and
between two of them `offer` lets in whoever has asked meanwhile: a lock that is taken again at once keeps them out, for
up to 2 s where it was tried.
"""

from __future__ import annotations

import threading
import time
from typing import Self

__all__ = ["OneHand"]

NOD = 0.001  # seconds for whoever asks to take over


class OneHand:
    """A lock that its thread may take again, and that knows whether others ask for it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._asking: set[int] = set()  # threads

    def __enter__(self) -> Self:
        if not self._lock.acquire(blocking=False):
            me = threading.get_ident()
            self._asking.add(me)
            try:
                self._lock.acquire()
            finally:
                self._asking.discard(me)
        return self

    def __exit__(self, *exc: object) -> None:
        self._lock.release()

    def offer(self) -> None:
        """Between two slices: if others ask, let them in first."""
        if self._asking:
            time.sleep(NOD)
