"""Orders: when each order was last sent to a role instance. Every order is idempotent, and is sent until it has taken effect."""

from __future__ import annotations

from ..timeouts import REPEAT_S


class Orders:
    """The times at which orders were sent. An order is a name such as "begin"."""

    def __init__(self) -> None:
        self._sent: dict[tuple[str, str, int], float] = {}  # {(order, role, incarnation): time, seconds}

    def sent(self, order: str, role: str, incarnation: int, now: float) -> None:
        """Record that an order is sent now."""
        self._sent[order, role, incarnation] = now

    def was_sent(self, order: str, role: str, incarnation: int) -> bool:
        """Return whether an order was sent to this instance."""
        return (order, role, incarnation) in self._sent

    def is_due(self, order: str, role: str, incarnation: int, now: float, interval: float = REPEAT_S) -> bool:
        """Return whether an order was not sent during the last `interval` seconds."""
        return now - self._sent.get((order, role, incarnation), float("-inf")) > interval
