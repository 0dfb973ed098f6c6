"""A push and the pull that answers it, between two processes: labkit's wire against a bare socket.

The bare socket is what the kernel allows: no header, no names, no fresh array, the same buffer every time. One
repetition is the median of many round trips; the same two processes serve all repetitions.
"""

from __future__ import annotations

import functools
from statistics import median

from . import wire_pair
from .peers import raw_socket
from .peers.pairs import Trip
from .rows import Benchmark, Row, Settings, Side, Values, alternate

__all__ = ["BENCHMARK"]

SIZES = (("40 KB", 40_000, 400), ("1 MB", 1_000_000, 100), ("10 MB", 10_000_000, 20))  # name, bytes, round trips
WARM_UP = 3  # round trips that are not counted


def run(settings: Settings) -> list[Row]:
    """All sizes in every repetition, the two sides in turns."""
    with wire_pair.open_pair() as wire, raw_socket.open_pair() as bare:
        pairs = {"labkit's wire": wire, "raw TCP socket": bare}
        sides = [Side(name, functools.partial(_measure, trip, settings)) for name, trip in pairs.items()]
        return alternate(settings, "round trip", sides, against="raw TCP socket")


def _measure(trip: Trip, settings: Settings) -> Values:
    values = {}
    for name, nbytes, count in SIZES:
        seconds = trip(nbytes, WARM_UP + int(settings.choose(count, 5)))[WARM_UP:]
        values[name, "us"] = 1e6 * median(seconds)
    return values


BENCHMARK = Benchmark("round-trip", "push-pull between two processes", run)
