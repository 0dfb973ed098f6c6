"""The end of a run: the request for the chief's final evaluation, which ends the training, and the orderly shutdown: stop every
role, drain the links, collect final reports.

The shutdown has two phases, because a role can read all messages in flight to it only after all roles have sent their
close frames. Roles that are lost during the shutdown are not waited for.

An order to a busy process may be cancelled before it is delivered, so orders are repeated. A busy machine makes every phase slow,
so the limit is a time without a sign of life, not a time since the end of the run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from queue import Empty
from typing import Any

from ..timeouts import REPEAT_S
from .clock import EngineClock
from .recovery_events import (
    Departed,
    FinalReport,
    RecoveryEvent,
    Report,
    RoleEnded,
    TaskFailed,
    TaskFinished,
    WorkerLeft,
)
from .supervisor import Supervisor

# limits without a sign of a role, seconds; `AFTER_LOSS_S` if roles were lost before
SHUTDOWN_S, AFTER_LOSS_S = 12.0, 4.0
LONGEST = 5  # the longest shutdown, in multiples of this limit
ANSWER_S = 1.0  # timeout for the acknowledgement of an order, seconds; the role's report acknowledges it as well


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


class Shutdown:
    """Ends all roles of one `supervisor`, except those that are lost or outside.

    `lost`: roles that are not waited for. `on_event`: called with each event that does not concern the shutdown. `clock`:
    seconds.
    """

    def __init__(
        self, supervisor: Supervisor, lost: Collection[str], on_event: Callable[[RecoveryEvent], None],
        clock: Callable[[], float] = time.monotonic,
    ):  # fmt: skip
        self._supervisor, self._on_event = supervisor, on_event
        self._missing = set(lost) | supervisor.members.outside
        self._reports: dict[str, dict[str, Any] | None] = {}  # {role: final report, or None if it could not be fetched}
        self._clock, self._limit = clock, AFTER_LOSS_S if lost else SHUTDOWN_S
        self._began = self._last_sign = self._ordered = clock()

    def perform(self, why: str) -> dict[str, dict[str, Any]]:
        """Perform the shutdown. Returns {role: final report}, without the roles that do not answer in time."""
        end = {"do": "end", "why": why, "lost": sorted(self._missing)}
        self._order(end)
        self._await_ends(end)
        drain = {"do": "drain"}
        self._order(drain)
        return self._collect(drain)

    def _order(self, order: dict[str, Any]) -> None:
        self._supervisor.order_and_wait(order, but=self._missing, limit=ANSWER_S)
        self._ordered = self._clock()

    def _repeat(self, order: dict[str, Any], roles: Collection[str]) -> None:
        """Send the order again to roles that have not answered, if it is time. Does not wait."""
        if self._clock() - self._ordered > REPEAT_S:
            self._ordered, where = self._clock(), self._supervisor.where
            self._supervisor.post(order, [where[role] for role in roles if role in where])

    def _left(self, part: float = 1.0) -> float:
        """Return the seconds left of `part` of the limit."""
        until = min(self._last_sign + part * self._limit, self._began + LONGEST * part * self._limit)
        return max(0.0, until - self._clock())

    @property
    def _connected(self) -> bool:
        return bool(self._supervisor.client.status == "running")

    def _await_ends(self, order: dict[str, Any]) -> None:
        awaited = set(self._supervisor.where) - self._missing
        while awaited and self._connected and (left := self._left(0.5)):
            awaited.discard(self._next(left))
            awaited -= self._missing
            self._repeat(order, awaited)

    def _collect(self, order: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Collect the final reports.

        A report stays on its Dask worker until it is fetched, so it is lost if the Dask worker is lost.
        """
        awaited = dict(self._supervisor.futures)
        fetched: set[str] = set()
        while self._connected:
            for name in (self._missing | self._reports.keys()) & awaited.keys():
                del awaited[name]
            for name, future in awaited.items():
                if future.done() and name not in fetched:
                    fetched.add(name)
                    self._fetch(name, future)
            if not awaited or not (left := self._left()):
                break
            self._next(left)
            self._repeat(order, [name for name in awaited if name not in fetched])
        found = {name: report for name, report in self._reports.items() if report is not None}
        self._supervisor.never_began |= {name for name, report in found.items() if report.get("never_began")}
        return {name: report for name, report in found.items() if not report.get("never_began")}

    def _fetch(self, name: str, future: Any) -> None:
        """Fetch the report of a role into the queue. Does not wait, because its Dask worker may be gone."""
        client, queue, limit = self._supervisor.client, self._supervisor.queue, max(0.1, self._left())
        loop: Any = client.loop

        async def fetch() -> None:
            try:
                report = await asyncio.wait_for(client.gather(future, asynchronous=True), limit)
            except (Exception, asyncio.CancelledError):  # the report is missing, whatever the reason
                report = None
            queue.put(FinalReport(name, report))

        loop.add_callback(fetch)

    def _next(self, left: float) -> str:
        """Handle one event, if one arrives in `left` seconds. Returns the name of the role that has just ended, or ""."""
        try:
            event = self._supervisor.queue.get(timeout=min(0.25, left))
        except Empty:
            return ""
        if isinstance(event, Departed | FinalReport | Report | RoleEnded | TaskFinished):
            self._last_sign = self._clock()
        if isinstance(event, WorkerLeft):
            self._missing |= {name for name, address in self._supervisor.where.items() if address == event.worker}
        elif isinstance(event, TaskFailed):
            self._missing.add(event.role)
        elif isinstance(event, FinalReport):
            self._reports[event.role] = event.report
        elif not isinstance(event, RoleEnded | Departed | TaskFinished):
            self._on_event(event)
        return event.role if isinstance(event, RoleEnded | Departed) else ""
