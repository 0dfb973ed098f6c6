"""The scheduled commands of a run."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from ...commands import Command, Resume, Stop
from .clock import EngineClock

at = attrgetter("at")


class CommandSchedule:
    """The scheduled commands of one run, ordered by time (engine time, seconds).

    Engine time does not pass during a pause, so no command is due then. There is one exception. In a pause that was
    itself scheduled (`in_scheduled_pause`), a `Resume` or `Stop` is due when engine time plus the duration of the pause
    reaches its time.
    """

    def __init__(self, commands: Iterable[Command], clock: EngineClock):
        self._clock = clock
        self._commands = sorted(commands, key=at)
        self.in_scheduled_pause = False

    def add(self, commands: Iterable[Command]) -> None:
        self._commands = sorted([*self._commands, *commands], key=at)

    def take(self) -> Command | None:
        """Remove and return the next command if it is due, else None."""
        command = self._next()
        if command is None or self._left(command) > 0:
            return None
        self._commands.remove(command)
        return command

    @property
    def left(self) -> float:
        """Seconds until a command is due; infinity if no command can become due (none is scheduled, or the run is paused)."""
        command = self._next()
        return float("inf") if command is None else self._left(command)

    def _next(self) -> Command | None:
        if self._clock.paused_at is None:
            return self._commands[0] if self._commands else None
        if not self.in_scheduled_pause:
            return None
        return next((command for command in self._commands if isinstance(command, Resume | Stop)), None)

    def _left(self, command: Command) -> float:
        return command.at - self._clock.seconds - self._clock.pause_seconds
