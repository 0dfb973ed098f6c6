"""Acknowledgements of reports: notify roles with a shard which of their reports are in the trace.

A report is lost if its process is killed before the client has received the report. The rows of drops in reports are
needed to determine which gradients a shard contains. So a shard keeps these rows in its checkpoint until their report
is acknowledged (`Recorder.unacknowledged`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Acknowledgements"]

EVERY_S = 2.0  # minimum time between two acknowledgements to one role, seconds


class Acknowledgements:
    """Acknowledges the reports of the roles of one run. `post(order, role, incarnation)` sends an order. `clock`: seconds."""

    def __init__(self, post: Callable[[dict[str, Any], str, int], None], clock: Callable[[], float]):
        self._post, self._clock = post, clock
        self._due: dict[tuple[str, int], int] = {}  # {(role, incarnation): number of its last batch with drops}
        self._sent_at: dict[str, float] = {}

    def acknowledge(self, role: str, incarnation: int, batch: dict[str, Any]) -> None:
        """Acknowledge a batch of `role` that is in the trace, if it contains rows of drops."""
        key = (role, incarnation)
        if "number" in batch and "drops" in batch["tables"]:
            self._due[key] = batch["number"]
        now = self._clock()
        if key in self._due and now - self._sent_at.get(role, -EVERY_S) >= EVERY_S:
            self._sent_at[role] = now
            self._post({"do": "acknowledge", "number": self._due.pop(key)}, role, incarnation)
