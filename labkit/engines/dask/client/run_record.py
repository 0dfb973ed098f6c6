"""The client's record of a run: trace events at the current engine time, the log of commands, and the acknowledgement of
recorded reports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....trace.events import Event
from ....trace.trace import Trace
from ...commands import Command, Executed
from .clock import EngineClock
from .orders import Orders


class RunRecord:
    """The client's record of one run: its trace, and `commands`, the log of executed commands in chronological order.

    After `close` no event and no command is added, because commands have no effect during the shutdown.
    """

    def __init__(self, trace: Trace, clock: EngineClock):
        self.trace = trace
        self.commands: list[Executed] = []
        self.closed = False
        self._clock = clock

    @property
    def seconds(self) -> float:
        """Engine time, s."""
        return self._clock.seconds

    def event(self, kind: type[Event], *fields: Any) -> None:
        """Record an event of this kind at the current engine time. `fields`: its fields after the time."""
        with self.trace.lock:
            if not self.closed:
                self.trace.event(kind(self._clock.now, *fields))

    def executed(self, command: Command) -> None:
        """Add a command to the log, at the current engine time."""
        with self.trace.lock:
            if not self.closed:
                self.commands.append(Executed(command.changed(at=self._clock.seconds)))

    def close(self) -> None:
        """Stop recording events and commands. Reports of roles are still added to the trace."""
        self.closed = True


class Acknowledgements:
    """Notifies roles with a shard which of their reports are in the trace. `post(order, role, incarnation)` sends an order.
    `clock`: seconds.

    A report is lost if its process is killed before the client has received the report. The rows of drops in reports are
    needed to determine which gradients a shard contains. So a shard keeps these rows in its checkpoint until their report
    is acknowledged (`Recorder.unacknowledged`).
    """

    def __init__(self, post: Callable[[dict[str, Any], str, int], None], clock: Callable[[], float]):
        self._post, self._clock = post, clock
        self._due: dict[tuple[str, int], int] = {}  # {(role, incarnation): number of its last batch with drops}
        self._orders = Orders()

    def acknowledge(self, role: str, incarnation: int, batch: dict[str, Any]) -> None:
        """Acknowledge a batch of `role` that is in the trace, if it contains rows of drops."""
        key = (role, incarnation)
        if "number" in batch and "drops" in batch["tables"]:
            self._due[key] = batch["number"]
        now = self._clock()
        if key in self._due and self._orders.is_due("acknowledge", *key, now):
            self._orders.sent("acknowledge", *key, now)
            self._post({"do": "acknowledge", "number": self._due.pop(key)}, role, incarnation)
