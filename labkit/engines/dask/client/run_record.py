"""The client's record of a run: trace events at the current engine time, and the log of commands."""

from __future__ import annotations

from typing import Any

from ....trace.events import Event
from ....trace.trace import Trace
from ...commands import Command, Executed
from .clock import EngineClock

__all__ = ["RunRecord"]


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
