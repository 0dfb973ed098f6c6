"""A player: lets a simulated run pass at a chosen speed, so that it can be watched. It is no view, and it draws
nothing.

It moves the run only through `Run.advance` and only under its lock: a run in virtual time is one machine, and one hand
may turn it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ..errors import BadInput

__all__ = ["Player"]

LONGEST = 0.5  # seconds of wall time made up for in one go: a machine that is too slow plays slower and does not jump


class Player:
    """Plays `run` at `speed` seconds of virtual time a second. `clock` returns seconds of wall time."""

    def __init__(self, run: Any, speed: float = 1.0, clock: Callable[[], float] = time.monotonic):
        if isinstance(speed, bool) or not isinstance(speed, (int, float)) or not 0 < speed <= 1e6:
            raise BadInput(f"speed={speed!r}: seconds of virtual time a second, more than 0.")
        if not hasattr(run.engine, "advance"):
            raise BadInput("speed is for simulated runs; time on a real cluster passes by itself.")
        self.run, self.speed, self._clock = run, float(speed), clock
        self.lock = threading.RLock()
        self.paused = False
        self._last: float | None = None

    def pause(self) -> None:
        """Time stands still from now on."""
        self.paused = True

    def resume(self) -> None:
        """Time passes again, from here."""
        with self.lock:
            self.paused, self._last = False, None

    def tick(self) -> None:
        """Let pass what has passed since the last call."""
        with self.lock:
            now = self._clock()
            since = 0.0 if self._last is None else min(now - self._last, LONGEST)
            self._last = now
            if since > 0 and not self.paused and not self.run.done:
                self.run.advance(since * self.speed)

    def stop(self) -> None:
        """End the run at this instant."""
        with self.lock:
            self.run.stop()

    def finish(self) -> None:
        """Everything that is left, at once."""
        with self.lock:
            self.run.wait()
