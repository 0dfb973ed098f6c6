"""Failure detection: distinguishes slow from dead processes by signs of life. No I/O; times are arguments."""

from __future__ import annotations

from collections.abc import Collection, Hashable


class FailureDetector:
    """Detects processes (or roles) that have given no sign of life for too long.

    A sign of life is a report, a heartbeat, or progress. Progress means that an observed value, such as the processor
    time used, has changed since the last observation. A slow process gives signs of life, so it is never reported as
    silent, however long it takes.

    `absence`: seconds. If the detector was not consulted for longer than this, its own process was suspended or had no
    core. Then the silence of the watched processes proves nothing: of the time between two consultations, at most
    `absence` seconds count as silence.
    """

    def __init__(self, absence: float):
        self._absence = absence
        self._signs: dict[str, float] = {}
        self._values: dict[str, Hashable] = {}
        self._consulted: float | None = None

    def watch(self, names: Collection[str], now: float) -> None:
        """Watch `names` from now on. No effect for names that are watched already."""
        for name in names:
            self._signs.setdefault(name, now)

    def forget(self, name: str) -> None:
        self._signs.pop(name, None)
        self._values.pop(name, None)

    def sign(self, name: str, now: float) -> None:
        """Record a sign of life of `name`, and watch it from now on."""
        self._signs[name] = now
        self._values.pop(name, None)  # a change of the value before this sign is not a later sign

    def progress(self, name: str, value: Hashable, now: float) -> None:
        """Record an observed `value` of `name`. A change since the last observation, and the last sign, is a sign of life."""
        if name in self._values and self._values[name] != value:
            self.sign(name, now)
        self._values[name] = value

    def consult(self, now: float) -> None:
        """Record that the detector runs. Must be called regularly, because an absence does not count as silence."""
        if self._consulted is not None and (absent := now - self._consulted - self._absence) > 0.0:
            self._signs = {name: min(now, since + absent) for name, since in self._signs.items()}
        self._consulted = now

    def silent(self, limit: float, now: float) -> list[str]:
        """Return the names without a sign of life for more than `limit` seconds, in the order in which they were watched."""
        return [name for name, since in self._signs.items() if now - since > limit]
