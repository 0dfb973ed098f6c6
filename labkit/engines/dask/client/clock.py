"""Engine time of a run as its client counts it, and how far the clocks of other machines are ahead.

Engine time is the monotonic clock of the client's machine since the roles began, without the pauses. A role counts it by the
clock of its own machine: it is told when engine time was zero by that clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from distributed import Client

from ....errors import ClusterError
from ....trace.vocabulary import seconds
from ..requests import ask
from ..timeouts import SILENT_S
from ..worker.task import clock

__all__ = ["ClockOffsets", "EngineClock"]

ROUND_TRIPS = 5


class EngineClock:
    """Engine time. Any thread may read it; it is set by one. `monotonic_ns`: the clock of this machine."""

    def __init__(self, monotonic_ns: Callable[[], int] = time.monotonic_ns):
        self._monotonic = monotonic_ns
        self._state: tuple[int, int | None] = (0, None)  # (zero, when the pause began), replaced as one

    def begin(self) -> None:
        """Engine time is zero now."""
        self._state = (self._monotonic(), None)

    @property
    def zero(self) -> int:
        """When engine time was zero by the clock of this machine (ns); pauses that are over are added."""
        return self._state[0]

    @property
    def paused_at(self) -> int | None:
        """The engine time (ns) of the pause; None while time passes."""
        zero, paused = self._state
        return None if paused is None else paused - zero

    @property
    def now(self) -> int:
        """Engine time, ns."""
        zero, paused = self._state
        return (self._monotonic() if paused is None else paused) - zero

    @property
    def seconds(self) -> float:
        """Engine time, s."""
        return seconds(self.now)

    @property
    def pause_seconds(self) -> float:
        """How long the present pause has lasted, s; 0.0 while time passes."""
        paused = self._state[1]
        return 0.0 if paused is None else seconds(self._monotonic() - paused)

    def pause(self) -> None:
        """Engine time stands still from now on."""
        zero, paused = self._state
        if paused is None:
            self._state = (zero, self._monotonic())

    def resume(self) -> None:
        """Engine time passes again."""
        zero, paused = self._state
        if paused is not None:
            self._state = (zero + self._monotonic() - paused, None)


class ClockOffsets:
    """By how many nanoseconds the clock of each Dask worker's machine is ahead of the clock of this one."""

    def __init__(self, client: Client):
        self._client = client
        self._offsets: dict[str, int | None] = {}

    def meet(self, address: str, same_machine: bool) -> bool:
        """A Dask worker is used from now on. Returns whether its clock is known."""
        self._offsets.setdefault(address, 0 if same_machine else None)
        return self._offsets[address] is not None

    @property
    def unknown(self) -> list[str]:
        """The addresses whose clocks are to be measured."""
        return [address for address, offset in self._offsets.items() if offset is None]

    def local(self, when: int, address: str) -> int:
        """The time `when` of this machine's clock, by the clock at `address`."""
        return when + (self._offsets.get(address) or 0)

    def measure(self, address: str) -> None:
        """Measure the clock there: the middle of the shortest of five round trips. Waits; `ClusterError` without an answer."""
        best = (1 << 62, 0)
        for _ in range(ROUND_TRIPS):
            before = clock()
            there = ask(self._client, [address], SILENT_S, clock, lambda address: ())[address]
            after = clock()
            if isinstance(there, Exception):
                raise ClusterError(f"The Dask worker at {address} does not answer ({there}).")
            best = min(best, (after - before, there - (before + after) // 2))
        self._offsets[address] = best[1]
