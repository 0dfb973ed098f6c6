"""Orders: when each order was last sent to a role instance. Every order is idempotent, and is sent until it has taken effect."""

from __future__ import annotations

from ..timeouts import REPEAT_S


class Orders:
    """The times at which orders were sent. An order is a name such as "begin"."""

    def __init__(self) -> None:
        self._sent: dict[tuple[str, str, int], float] = {}  # {(order, role, incarnation): time, seconds}

    def send(self, order: str, role: str, incarnation: int, now: float) -> None:
        """Record that an order is sent now."""
        self._sent[order, role, incarnation] = now

    def was_sent(self, order: str, role: str, incarnation: int) -> bool:
        """Return whether an order was sent to this instance."""
        return (order, role, incarnation) in self._sent

    def send_if_due(self, order: str, role: str, incarnation: int, now: float, interval: float = REPEAT_S) -> bool:
        """Return whether an order is to be sent now, because it was not sent during the last `interval` seconds."""
        due = now - self._sent.get((order, role, incarnation), float("-inf")) > interval
        if due:
            self.send(order, role, incarnation, now)
        return due
