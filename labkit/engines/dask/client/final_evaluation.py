"""The request for the chief's final evaluation, which ends the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..timeouts import REPEAT_S
from .clock import EngineClock

__all__ = ["FinalEvaluation"]


class FinalEvaluation:
    """Asks the chief of one run to evaluate once more and to return; repeats that until a report of the chief acknowledges it.

    Used by the run's thread only, and never waits. `send(order)`: sends an order to the chief. `clock`: engine time.
    `monotonic`: a clock for limits, in seconds. `reason`: why it was requested; None if it was not.

    `acknowledged_at`: the engine time (ns) at which the chief is known to have the request; None: it may not know yet; 0: there
    is no request.
    """

    def __init__(self, send: Callable[[dict[str, Any]], None], clock: EngineClock, monotonic: Callable[[], float]):
        self._send, self._clock, self._monotonic = send, clock, monotonic
        self._sent_at = 0.0
        self.reason: str | None = None
        self.acknowledged_at: int | None = 0

    def request(self, reason: str) -> None:
        """The first reason counts."""
        if self.reason is None:
            self.reason, self.acknowledged_at = reason, None
            self._tell()

    def reported(self, finishing: bool) -> None:
        """The chief has reported. `finishing`: it has the request."""
        if self.acknowledged_at is not None:
            return
        if finishing:
            self.acknowledged_at = self._clock.now
        elif self._monotonic() - self._sent_at > REPEAT_S:
            self._tell()

    def orders(self) -> list[dict[str, Any]]:
        """What a chief has to be told that begins now."""
        return [] if self.reason is None else [{"do": "finish", "reason": self.reason}]

    def _tell(self) -> None:
        self._sent_at = self._monotonic()
        for order in self.orders():
            self._send(order)
