"""How many turns at once? As many as take about a fiftieth of a second, so that whoever asks gets an answer soon.

A turn of a timing-only run takes 5 us, one with the gradient of a large network 50 ms: the number is found by trying.
It decides when a move can be left, and nothing that happens in it.
"""

from __future__ import annotations

import time

__all__ = ["FIRST", "Slices"]

SLICE_S = 0.02
FIRST, MOST = 16, 4000  # turns


class Slices:
    """The slices of one move, which may take about `timeout` seconds (None: any time): `turns` at once, then `next()`."""

    def __init__(self, timeout: float | None, turns: int):
        self.turns = turns
        self._last = time.monotonic()
        self._deadline = None if timeout is None else self._last + timeout
        self._goal = SLICE_S if timeout is None else min(SLICE_S, timeout / 4)

    @property
    def over(self) -> bool:
        """Whether the time was up when the last slice was done."""
        return self._deadline is not None and self._last >= self._deadline

    def next(self) -> None:
        """A slice is done: look at the clock."""
        now = time.monotonic()
        if now - self._last > self._goal:
            self.turns = max(1, self.turns // 2)
        elif now - self._last < self._goal / 2:
            self.turns = min(MOST, 2 * self.turns)
        self._last = now
