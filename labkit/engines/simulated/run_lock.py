"""A fair lock for a run in virtual time, and the time slices in which the run is advanced.

A thread holds the lock of a run while it advances the run, executes commands, or reads the records of the run. A long advance
is divided into time slices of about 20 ms, between which other threads can take the lock. (If a plain lock was released and
taken again at once, other threads waited for up to 2 s.) Time slices do not affect the results of a run.
"""

from __future__ import annotations

import threading
import time
from typing import Self

YIELD_S = 0.001  # seconds in which a waiting thread can take the lock
SLICE_S = 0.02
FIRST, MOST = 16, 4000  # turns per slice: at the start, at most


class RunLock:
    """A reentrant lock that tracks whether other threads wait for it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._waiting: set[int] = set()  # threads

    def __enter__(self) -> Self:
        if not self._lock.acquire(blocking=False):
            me = threading.get_ident()
            self._waiting.add(me)
            try:
                self._lock.acquire()
            finally:
                self._waiting.discard(me)
        return self

    def __exit__(self, *exc: object) -> None:
        self._lock.release()

    def offer(self) -> None:
        """Let waiting threads take the lock first. Called between two slices, without holding the lock."""
        if self._waiting:
            time.sleep(YIELD_S)


class TimeSlices:
    """The time slices of one advance of a run, which may take about `timeout` seconds (None: no limit).

    `turns`: the number of turns of the next slice; the argument is its initial value. The number is adapted after each slice,
    because a turn takes 5 us in a timing-only run, but 50 ms if it computes the gradient of a large network.
    """

    def __init__(self, timeout: float | None, turns: int = FIRST):
        self.turns = turns
        self._last = time.monotonic()
        self._deadline = None if timeout is None else self._last + timeout
        self._goal = SLICE_S if timeout is None else min(SLICE_S, timeout / 4)

    @property
    def over(self) -> bool:
        """Whether the timeout had passed when the last slice was done."""
        return self._deadline is not None and self._last >= self._deadline

    def next(self) -> None:
        now = time.monotonic()
        if now - self._last > self._goal:
            self.turns = max(1, self.turns // 2)
        elif now - self._last < self._goal / 2:
            self.turns = min(MOST, 2 * self.turns)
        self._last = now
