"""What the next run of a lab will be: its settings, and the commands that it repeats."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ..engines.commands import Command, Executed
from .settings import Settings

Commands = tuple[Command | Executed, ...]


class NextRun:
    """The settings of the next run, and the commands that it repeats. Any thread may change them."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.commands: Commands = ()
        self._lock = threading.Lock()
        self._observers: list[Callable[[], None]] = []

    def change(self, settings: dict[str, Any]) -> tuple[Settings, Commands]:
        """Change settings, by name. Returns the settings and the commands before. Raises `BadInput`, and changes nothing, if a
        value is not allowed.
        """
        with self._lock:
            before = self.settings, self.commands
            self.settings = self.settings.changed(**settings)
            # a different run: recorded turns of the event loop are not valid
            self.commands = _at_times(self.commands)
        self._notify()
        return before

    def prepare(self, settings: Settings, commands: Commands = ()) -> None:
        """Set the settings, and the commands to repeat."""
        with self._lock:
            self.settings = settings
            self.commands = commands if settings.cluster.virtual_time else _at_times(commands)
        self._notify()

    def observe(self, observer: Callable[[], None]) -> None:
        """Call `observer` after each change of `settings`, on the thread of the change."""
        self._observers.append(observer)

    def _notify(self) -> None:
        for observer in list(self._observers):
            observer()


def _at_times(commands: Commands) -> tuple[Command, ...]:
    """Return these commands with their times, but without the turns of the event loop in which they were executed."""
    return tuple(command.command if isinstance(command, Executed) else command for command in commands)
