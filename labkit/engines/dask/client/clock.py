"""Engine time of a run on its client, and the clock offsets of other machines.

Engine time is the time since the roles began, without pauses, by the monotonic clock of the client's machine. A role
measures engine time with the clock of its own machine: it receives the origin of engine time, converted to that clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from distributed import Client

from ....errors import ClusterError
from ....trace.schema import seconds
from ..requests import run_on_workers
from ..timeouts import SILENT_S
from ..worker.task import clock

ROUND_TRIPS = 5


class EngineClock:
    """Engine time. Any thread may read it; only one thread may set it. `monotonic_ns`: the clock of this machine."""

    def __init__(self, monotonic_ns: Callable[[], int] = time.monotonic_ns):
        self._monotonic = monotonic_ns
        self._state: tuple[int, int | None] = (0, None)  # (origin, begin of the current pause), replaced as a whole

    def begin(self) -> None:
        """Set engine time to 0, which makes the current time its origin."""
        self._state = (self._monotonic(), None)

    @property
    def zero(self) -> int:
        """The origin of engine time by the clock of this machine (ns). Each pause moves the origin by its duration."""
        return self._state[0]

    @property
    def paused_at(self) -> int | None:
        """The engine time (ns) of the current pause; None if there is none."""
        zero, paused = self._state
        return None if paused is None else paused - zero

    @property
    def now(self) -> int:
        """In ns."""
        zero, paused = self._state
        return (self._monotonic() if paused is None else paused) - zero

    @property
    def seconds(self) -> float:
        """Engine time, s."""
        return seconds(self.now)

    @property
    def pause_seconds(self) -> float:
        """The duration of the current pause, s; 0.0 if there is none."""
        paused = self._state[1]
        return 0.0 if paused is None else seconds(self._monotonic() - paused)

    def pause(self) -> None:
        zero, paused = self._state
        if paused is None:
            self._state = (zero, self._monotonic())

    def resume(self) -> None:
        zero, paused = self._state
        if paused is not None:
            self._state = (zero + self._monotonic() - paused, None)


class ClockOffsets:
    """The clock offset of each Dask worker's machine, ns: its clock minus the clock of this machine."""

    def __init__(self, client: Client):
        self._client = client
        self._offsets: dict[str, int | None] = {}

    def add(self, address: str, same_machine: bool) -> bool:
        """Add a Dask worker. Returns whether its clock offset is known."""
        self._offsets.setdefault(address, 0 if same_machine else None)
        return self._offsets[address] is not None

    @property
    def unknown(self) -> list[str]:
        """The addresses whose clock offsets have not been measured yet."""
        return [address for address, offset in self._offsets.items() if offset is None]

    def local(self, when: int, address: str) -> int:
        """Convert the time `when` of this machine's clock to the clock at `address`."""
        return when + (self._offsets.get(address) or 0)

    def measure(self, address: str) -> None:
        """Measure a clock offset: the time of the other clock minus the midpoint of the shortest of five round trips.

        Blocks. Raises `ClusterError` if the Dask worker does not answer.
        """
        best = (1 << 62, 0)
        for _ in range(ROUND_TRIPS):
            before = clock()
            there = run_on_workers(self._client, [address], SILENT_S, clock, lambda address: ())[address]
            after = clock()
            if isinstance(there, Exception):
                raise ClusterError(f"The Dask worker at {address} does not answer ({there}).")
            best = min(best, (after - before, there - (before + after) // 2))
        self._offsets[address] = best[1]
