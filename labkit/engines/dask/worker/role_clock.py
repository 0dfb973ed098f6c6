"""Engine time as a role counts it: the clock of its machine since the run began, without the pauses."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["RoleClock"]


class RoleClock:
    """Engine time in ns. The client says when it was zero, by the clock of this machine: `monotonic_ns`."""

    def __init__(self, monotonic_ns: Callable[[], int] = time.monotonic_ns):
        self._monotonic = monotonic_ns
        self._zero = 0
        self._paused_at: int | None = None

    def now(self) -> int:
        """Engine time, ns. It stands still during a pause."""
        return self._monotonic() - self._zero if self._paused_at is None else self._paused_at

    @property
    def zero(self) -> int:
        """When engine time was zero, by the clock of this machine (ns)."""
        return self._zero

    @property
    def paused(self) -> bool:
        """Whether engine time stands still."""
        return self._paused_at is not None

    def begin(self, zero: int, paused_at: int | None = None) -> None:
        """Engine time was zero at `zero` of this machine's clock. `paused_at`: engine time, where the run is paused."""
        self._zero, self._paused_at = zero, paused_at

    def pause(self) -> int:
        """Engine time stands still from now on. Returns the time at which it stands."""
        if self._paused_at is None:
            self._paused_at = self.now()
        return self._paused_at

    def ahead_of(self, zero: int) -> int:
        """By how many ns this role has come further than a run whose engine time, without pauses, was zero at `zero`.

        Work that began before a pause and ended during it takes a role ahead of the others.
        """
        return 0 if self._paused_at is None else self._paused_at - (self._monotonic() - zero)

    def resume(self, zero: int) -> None:
        """Engine time passes again, counted from `zero`."""
        self._zero, self._paused_at = zero, None
