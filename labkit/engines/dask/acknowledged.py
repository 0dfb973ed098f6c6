"""Acknowledgements of reports: tells roles with a shard which of their reports are in the trace.

A report is lost with its process if that is killed before the client has got it. Rows of drops are needed to say which
gradients a shard holds, so a shard keeps them in its checkpoint until they are acknowledged (`Recorder.unheard`).
"""

from __future__ import annotations

import time
from typing import Any

__all__ = ["Acknowledgements"]

EVERY_S = 2.0  # seconds between two acknowledgements to one role


class Acknowledgements:
    """Of the reports to one run. `post(command, role, incarnation)` sends a command and waits for nothing."""

    def __init__(self, post: Any):
        self._post = post
        self._due: dict[tuple[str, int], int] = {}  # (role, incarnation) -> number of its last batch with drops
        self._sent_at: dict[str, float] = {}

    def heard(self, role: str, incarnation: int, batch: dict[str, Any]) -> None:
        """A batch of `role` is in the trace. Only batches with rows of drops need an acknowledgement."""
        key = (role, incarnation)
        if "number" in batch and "drops" in batch["tables"]:
            self._due[key] = batch["number"]
        now = time.monotonic()
        if key in self._due and now - self._sent_at.get(role, -EVERY_S) >= EVERY_S:
            self._sent_at[role] = now
            self._post({"do": "acknowledge", "number": self._due.pop(key)}, role, incarnation)
