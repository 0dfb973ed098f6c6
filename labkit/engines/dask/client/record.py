"""What the client writes into the record of a run: events at the current engine time, reports, and the log of commands."""

from __future__ import annotations

from typing import Any

from ....trace.events import Event
from ....trace.trace import Trace
from ...commands import Command, Executed
from .clock import EngineClock

__all__ = ["RunRecord"]


class RunRecord:
    """The trace of one run, and `commands`, the log of what was executed, in the order of time.

    Once it is closed no event and no command is added: the run is being ended, and what is done to it then has no effect.
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
        """Record an event of this kind, with these fields after the time, which is now."""
        with self.trace.lock:
            if not self.closed:
                self.trace.event(kind(self._clock.now, *fields))

    def executed(self, command: Command) -> None:
        """Add a command to the log, at this instant."""
        with self.trace.lock:
            if not self.closed:
                self.commands.append(Executed(command.changed(at=self._clock.seconds)))

    def close(self) -> None:
        """Record nothing more but the roles' reports."""
        self.closed = True
