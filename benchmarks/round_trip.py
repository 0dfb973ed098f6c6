"""A push and its reply between two processes: labkit's transport, two lower bounds, and other systems.

The lower bound that the kernel sets is a bare socket, without headers, names and new arrays, with the same buffers
every time. The lower bound that memory sets is shared memory with one byte through a socket as the doorbell. One
repetition is the median of many round trips. All other pairs stay open and idle while a pair is measured. A peer that
is not installed, or does not start on this machine, is listed as skipped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from statistics import median

from . import transport_pair
from .peers import dask_actor_round_trip, gloo_round_trip, raw_socket, ray_actor, shared_memory, torch_rpc_round_trip
from .peers.pairs import RoundTrips
from .rows import Benchmark, Pair, Row, Settings, Side, Unmeasured, Values, alternate

SIZES = (("40 KB", 40_000, 400), ("1 MB", 1_000_000, 100), ("10 MB", 10_000_000, 20))  # name, bytes, round trips
WARM_UP = 3  # round trips that are not counted
LABKIT, SOCKET = "labkit transport", "raw TCP socket"

# (open_pair, required modules)
PEERS: Mapping[str, tuple[Callable[[], AbstractContextManager[RoundTrips]], tuple[str, ...]]] = {
    "shared memory": (shared_memory.open_pair, ()),
    "PyTorch gloo": (gloo_round_trip.open_pair, ("torch",)),
    "PyTorch RPC": (torch_rpc_round_trip.open_pair, ("torch",)),
    "Dask actor": (dask_actor_round_trip.open_pair, ()),
    "Ray actor": (ray_actor.open_pair, ("ray",)),
}


def run(settings: Settings) -> list[Row]:
    """Measure all sizes in every repetition, sides alternating. Ratios are to the socket, and of labkit to every peer."""
    with transport_pair.open_pair() as transport, raw_socket.open_pair() as bare, contextlib.ExitStack() as stack:
        sides = [Side(name, _round_trips(trip, settings)) for name, trip in ((LABKIT, transport), (SOCKET, bare))]
        for name, (open_pair, needs) in PEERS.items():
            settings.report_progress(f"starting {name}")
            side = Side(name, dict, needs)
            sides.append(side if side.missing else Side(name, _start(stack, open_pair, settings)))
        pairs = [Pair(size, (LABKIT, size), (peer, size), "us") for size, _, _ in SIZES for peer in PEERS]
        return alternate(settings, "round trip", sides, baseline=SOCKET, pairs=pairs)


def _start(
    stack: contextlib.ExitStack, open_pair: Callable[[], AbstractContextManager[RoundTrips]], settings: Settings
) -> Callable[[], Values]:
    """Return the function that measures the pair. If the pair does not start, return a function that raises `Unmeasured`."""
    try:
        return _round_trips(stack.enter_context(open_pair()), settings)
    except Exception as error:
        why = f"did not start: {' '.join(str(error).split())[-200:]}"

    def unmeasured() -> Values:
        raise Unmeasured(why)

    return unmeasured


def _round_trips(trip: RoundTrips, settings: Settings) -> Callable[[], Values]:
    def measure() -> Values:
        values = {}
        for name, nbytes, count in SIZES:
            seconds = trip(nbytes, WARM_UP + int(settings.choose(count, 5)))[WARM_UP:]
            values[name, "us"] = 1e6 * median(seconds)
        return values

    return measure


BENCHMARK = Benchmark(
    "round-trip",
    "push-pull between two processes",
    run,
    "Times: a ratio below 1 means that the first side is faster. A Dask actor is called from a task on another worker.",
)
