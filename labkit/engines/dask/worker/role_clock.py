"""Engine time in a role: the clock of its machine since the run began, without pauses."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["RoleClock"]


class RoleClock:
    """Engine time in ns. The client sends its zero, by the clock of this machine (`monotonic_ns`)."""

    def __init__(self, monotonic_ns: Callable[[], int] = time.monotonic_ns):
        self._monotonic = monotonic_ns
        self._zero = 0
        self._paused_at: int | None = None

    def now(self) -> int:
        """Engine time, ns. Constant during a pause."""
        return self._monotonic() - self._zero if self._paused_at is None else self._paused_at

    @property
    def zero(self) -> int:
        """The zero of engine time by the clock of this machine (ns)."""
        return self._zero

    @property
    def paused(self) -> bool:
        """Whether engine time is paused."""
        return self._paused_at is not None

    def begin(self, zero: int, paused_at: int | None = None) -> None:
        """Set the zero of engine time, by this machine's clock. `paused_at`: engine time of the pause, if the run is paused."""
        self._zero, self._paused_at = zero, paused_at

    def pause(self) -> int:
        """Pause engine time. Returns the time at which it is paused."""
        if self._paused_at is None:
            self._paused_at = self.now()
        return self._paused_at

    def ahead_of(self, zero: int) -> int:
        """Nanoseconds by which this paused role is ahead of a resumed run whose zero of engine time is `zero`.

        A role gets ahead by work that began before a pause and ended during it.
        """
        return 0 if self._paused_at is None else self._paused_at - (self._monotonic() - zero)

    def resume(self, zero: int) -> None:
        """Resume engine time, counted from `zero`."""
        self._zero, self._paused_at = zero, None
