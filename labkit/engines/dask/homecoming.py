"""The way home: every role is told to end, says goodbye, and hands in its last report.

In two phases, because only when all have said goodbye can each find on its links whatever was under way to it. Who is
lost on the way is not waited for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from queue import Empty
from typing import Any

__all__ = ["Homecoming"]

HOME_S, HASTE_S = 12.0, 4.0  # the latter after a loss, where nobody shall wait long
ANSWER_S = 1.0  # whoever is told to end does so whether we wait for an answer or not: the goodbye is the answer


class Homecoming:
    """Of the roles of one `supervisor`, but the `lost`. `hear`: what they say until then."""

    def __init__(self, supervisor: Any, lost: Collection[str], hear: Callable[[dict[str, Any]], None]):
        self._supervisor, self._hear = supervisor, hear
        self._missing = set(lost) | supervisor.members.outside
        self._reports: dict[str, dict[str, Any] | None] = {}  # last ones; None: it could not be fetched
        self._until = time.monotonic() + (HASTE_S if lost else HOME_S)

    def bring(self, why: str) -> dict[str, dict[str, Any]]:
        """{role: last report}. Roles that do not answer in time are missing."""
        self._say({"do": "end", "why": why, "lost": sorted(self._missing)})
        self._await_goodbyes(time.monotonic() + self._left() / 2)
        self._say({"do": "drain"})
        return self._collect()

    def _say(self, command: dict[str, Any]) -> None:
        self._supervisor.command(command, but=self._missing, limit=ANSWER_S)

    def _left(self) -> float:
        return max(0.0, self._until - time.monotonic())

    @property
    def _connected(self) -> bool:
        return bool(self._supervisor.client.status == "running")

    def _await_goodbyes(self, until: float) -> None:
        awaited = set(self._supervisor.where) - self._missing
        while awaited and self._connected and time.monotonic() < until:
            awaited.discard(self._next(until))
            awaited -= self._missing

    def _collect(self) -> dict[str, dict[str, Any]]:
        """Last reports lie on the Dask workers until they are fetched: one that is lost meanwhile takes its own with it."""
        awaited = dict(self._supervisor.futures)
        fetched: set[str] = set()
        while self._connected:
            for name in (self._missing | self._reports.keys()) & awaited.keys():
                del awaited[name]
            for name, future in awaited.items():
                if future.done() and name not in fetched:
                    fetched.add(name)
                    self._fetch(name, future)
            if not awaited or not self._left():
                break
            self._next(self._until)
        found = {name: report for name, report in self._reports.items() if report is not None}
        self._supervisor.never_began |= {name for name, report in found.items() if report.get("abandoned")}
        return {name: report for name, report in found.items() if not report.get("abandoned")}

    def _fetch(self, name: str, future: Any) -> None:
        """Have the report of a role sent to the queue. Waits for nothing: its Dask worker may be gone."""
        client, queue, limit = self._supervisor.client, self._supervisor.queue, max(0.1, self._left())

        async def fetch() -> None:
            try:
                report = await asyncio.wait_for(client.gather(future, asynchronous=True), limit)
            except (Exception, asyncio.CancelledError):  # whatever it was: this role's report is missing
                report = None
            queue.put({"what": "handed in", "role": name, "report": report})

        client.loop.add_callback(fetch)

    def _next(self, until: float) -> str:
        """Take in one event, if one comes in time. The name of the role that has just said goodbye, or ""."""
        try:
            event = self._supervisor.queue.get(timeout=max(0.0, min(0.25, until - time.monotonic())))
        except Empty:
            return ""
        role, what = str(event.get("role", "")), event["what"]
        if what == "worker lost":
            self._missing |= {name for name, home in self._supervisor.where.items() if home == event["worker"]}
        elif what == "task failed":
            self._missing.add(role)
        elif what == "handed in":
            self._reports[role] = event["report"]
        elif what not in ("ended", "departed", "task finished"):
            self._hear(event)
        return role if what in ("ended", "departed") else ""
