"""Engine time in a role: the time since the run began, without pauses, by the clock of the role's machine."""

from __future__ import annotations

import time
from collections.abc import Callable


class RoleClock:
    """Engine time in ns. The client sends the origin of engine time, converted to the clock of this machine (`monotonic_ns`).

    Until `begin`, engine time is 0, not the time of the machine's clock.
    """

    def __init__(self, monotonic_ns: Callable[[], int] = time.monotonic_ns):
        self._monotonic = monotonic_ns
        self._zero = 0
        self._paused_at: int | None = 0

    def now(self) -> int:
        """Engine time, ns. Constant during a pause."""
        return self._monotonic() - self._zero if self._paused_at is None else self._paused_at

    @property
    def zero(self) -> int:
        """The origin of engine time by the clock of this machine (ns)."""
        return self._zero

    @property
    def paused(self) -> bool:
        return self._paused_at is not None

    def begin(self, zero: int, paused_at: int | None = None) -> None:
        """Set the origin of engine time, by the clock of this machine.

        `paused_at`: the engine time at which the run is paused; None if it is not paused.
        """
        self._zero, self._paused_at = zero, paused_at

    def pause(self) -> int:
        """Pause engine time. Returns the engine time of the pause."""
        if self._paused_at is None:
            self._paused_at = self.now()
        return self._paused_at

    def ahead_of(self, zero: int) -> int:
        """Return the ns by which this paused role is ahead of a resumed run. `zero`: the run's new origin of engine time.

        A role is ahead if its work began before a pause and ended during the pause.
        """
        return 0 if self._paused_at is None else self._paused_at - (self._monotonic() - zero)

    def resume(self, zero: int) -> None:
        """Resume engine time, with the origin `zero`."""
        self._zero, self._paused_at = zero, None
