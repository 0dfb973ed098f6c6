"""The request for the chief's final evaluation, which ends the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..timeouts import REPEAT_S
from .clock import EngineClock

__all__ = ["FinalEvaluation"]


class FinalEvaluation:
    """Requests a final evaluation from the chief of one run. Repeats the request until a report of the chief acknowledges it.

    Used by the run's thread only; never blocks. `send(order)` sends an order to the chief. `clock`: engine time.
    `monotonic`: a clock for timeouts, seconds.

    Attributes to read: `reason`, why the evaluation was requested, or None; `acknowledged_at`, the engine time (ns) of
    the acknowledgement: None if the request is not acknowledged yet, 0 if there is no request.
    """

    def __init__(self, send: Callable[[dict[str, Any]], None], clock: EngineClock, monotonic: Callable[[], float]):
        self._send, self._clock, self._monotonic = send, clock, monotonic
        self._sent_at = 0.0
        self.reason: str | None = None
        self.acknowledged_at: int | None = 0

    def request(self, reason: str) -> None:
        """Request the final evaluation. Ignored after the first request."""
        if self.reason is None:
            self.reason, self.acknowledged_at = reason, None
            self._send_request()

    def reported(self, finishing: bool) -> None:
        """Handle a report of the chief. `finishing`: whether the chief has received the request."""
        if self.acknowledged_at is not None:
            return
        if finishing:
            self.acknowledged_at = self._clock.now
        elif self._monotonic() - self._sent_at > REPEAT_S:
            self._send_request()

    def orders(self) -> list[dict[str, Any]]:
        """Return the orders for a chief that begins now."""
        return [] if self.reason is None else [{"do": "finish", "reason": self.reason}]

    def _send_request(self) -> None:
        self._sent_at = self._monotonic()
        for order in self.orders():
            self._send(order)
