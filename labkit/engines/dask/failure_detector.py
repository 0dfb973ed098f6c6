"""Failure detection: tells slow from dead by signs of life, without I/O and without a clock of its own."""

from __future__ import annotations

from collections.abc import Collection, Hashable

__all__ = ["FailureDetector"]


class FailureDetector:
    """Which of the watched processes (or roles) have given no sign of life for too long.

    A sign is a report, a heartbeat, or progress: a value, such as the processor time used, that has changed since it was
    last observed. A process that is slow gives signs and is never suspected, however long it takes.

    `absence`: if the detector itself has not been consulted for more than this many seconds (its process was suspended
    or starved), the silence of others proves nothing, and all of them start anew.
    """

    def __init__(self, absence: float):
        self._absence = absence
        self._signs: dict[str, float] = {}
        self._values: dict[str, Hashable] = {}
        self._consulted: float | None = None

    def watch(self, names: Collection[str], now: float) -> None:
        """Watch `names` from now on; for those that are watched already nothing changes."""
        for name in names:
            self._signs.setdefault(name, now)

    def forget(self, name: str) -> None:
        """Watch `name` no longer."""
        self._signs.pop(name, None)
        self._values.pop(name, None)

    def sign(self, name: str, now: float) -> None:
        """`name` has given a sign of life; it is watched from now on."""
        self._signs[name] = now

    def progress(self, name: str, value: Hashable, now: float) -> None:
        """`value` of `name` was observed; if it is another one than before, this is a sign of life."""
        if name in self._values and self._values[name] != value:
            self.sign(name, now)
        self._values[name] = value

    def consult(self, now: float) -> None:
        """To be called regularly: the detector runs. After an absence all silences start anew."""
        if self._consulted is not None and now - self._consulted > self._absence:
            self._signs = dict.fromkeys(self._signs, now)
        self._consulted = now

    def silent(self, limit: float, now: float) -> list[str]:
        """The names without a sign of life for more than `limit` seconds, in the order in which they were watched."""
        return [name for name, since in self._signs.items() if now - since > limit]
