"""What every peer of the round trip offers: `open_pair()`, a context manager that gives a `Trip`."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Trip"]

# (bytes, count) -> the seconds of each of `count` round trips: `bytes` there, then as many back.
Trip = Callable[[int, int], list[float]]
