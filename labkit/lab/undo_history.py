"""What a user did to the displayed run and to the settings of the next one, and can undo."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..engines.command_words import WORDS
from ..engines.commands import Command, Slow
from ..errors import BadInput
from ..formatting import short
from ..run import Run
from ..trace.role_states import undoable
from .announcement import announcement
from .controls import label_of
from .displayed_run import DisplayedRun
from .next_run import Commands, NextRun
from .settings import Settings


@dataclass(frozen=True)
class _Done:
    """Something that a user did and can undo. `label`: what it was, as "slowdown of w2". `undo()` undoes it. `command`: the
    command that undoes it; None for a change of settings.
    """

    label: str
    undo: Callable[[], None]
    command: Command | None = None


class UndoHistory:
    """The commands and changes of settings that a user made, each of which can be undone while it has an effect.

    `notice`: which settings the last change of a setting has changed, too. `change` may be called by any thread.
    """

    def __init__(self, displayed: DisplayedRun, next_run: NextRun):
        self._displayed, self._next_run = displayed, next_run
        self.notice = ""
        self._lock = threading.Lock()
        self._done: list[_Done] = []

    def change(self, settings: dict[str, Any]) -> None:
        """Change settings of the next run, by name. Raises `BadInput`, and changes nothing, if a value is not allowed. `notice`
        says which other settings this has changed.
        """
        shown = self._displayed
        live = {name: shown.settings.value(name) for name in shown.live_options(settings)}
        before, commands = self._next_run.change(settings)
        self.notice = announcement(before, self._next_run.settings, settings)
        if self._next_run.settings != before or any(settings[name] != value for name, value in live.items()):
            label = ", ".join(label_of(name) for name in settings)
            restore = partial(self._restore, before, commands, tuple(settings), shown.run, live)
            with self._lock:
                self._done = [*self._done, _Done(label, restore)]

    def _restore(
        self, settings: Settings, commands: Commands, names: tuple[str, ...], run: Run | None, live: dict[str, Any]
    ) -> None:
        """Undo a change of the settings `names`. `live`: the values of live options of `run` before it; another run that is
        displayed by now gets the values of the settings.
        """
        self._next_run.prepare(settings, commands)
        others = {name: settings.value(name) for name in names if name in settings.names}
        self._displayed.set_options(live if run is self._displayed.run else others)

    def execute(self, command: Command) -> None:
        """Execute a command on the displayed run, as `DisplayedRun.execute`."""
        opposite = self._opposite(command)
        self._displayed.execute(command)
        self.notice = ""
        with self._lock:  # what this command has undone need not be undone any more
            self._done = [done for done in self._done if isinstance(command, Slow) or not _same(done.command, command)]
            if opposite is not None and opposite != command:
                peer = getattr(opposite, "peer", None)
                label = f"{WORDS[type(command)].noun} of {short(getattr(opposite, 'role', ''))}"
                label += f" from {short(peer)}" if peer is not None else ""
                self._done.append(_Done(label, partial(self._displayed.execute, opposite), opposite))

    def _opposite(self, command: Command) -> Command | None:
        if isinstance(command, Slow):
            run, role = self._displayed.run, command.role
            factor = usual = self._displayed.usual_factor(role)
            for done in () if run is None else run.engine.commands:
                if isinstance(done.command, Slow) and done.command.until is None and done.command.role == role:
                    factor = done.command.factor * usual
            return Slow(role, factor)
        kind: Any = WORDS[type(command)].undone_by if type(command) in WORDS else None
        return kind(*(getattr(command, part) for part in kind.parts)) if kind is not None else None

    @property
    def undoes(self) -> str:
        """What `undo` undoes, for example "slowdown of w2"; "" if there is nothing to undo."""
        done = self._last()
        return done.label if done is not None else ""

    def undo(self) -> None:
        """Undo the last command, or the last change of settings, that still has an effect. Raises `BadInput` if there is none.

        A command can be undone while its run is active. If a killed role was restarted, for example, there is nothing left of
        the kill to undo.
        """
        done = self._last()
        if done is None:
            raise BadInput("There is nothing to undo.")
        with self._lock:
            self._done = [other for other in self._done if other is not done]
        self.notice = ""
        done.undo()

    def _last(self) -> _Done | None:
        possible = undoable(self._displayed.trace) if any(done.command is not None for done in self._done) else {}
        return next((done for done in reversed(self._done) if self._has_effect(done.command, possible)), None)

    def _has_effect(self, command: Command | None, possible: dict[str, frozenset[str]]) -> bool:
        """Whether the command that undoes something would have an effect. `possible`: the result of `undoable`."""
        if command is None:
            return True
        if not self._displayed.active:
            return self._displayed.run is None and isinstance(command, Slow)
        if isinstance(command, Slow) or getattr(command, "peer", None) is not None:
            return True
        return command.word in possible.get(getattr(command, "role", ""), ())

    def clear(self, after_preview: bool = False) -> None:
        """Forget what concerns the run before. `after_preview`: settings and slowdowns of a preview are those of its run, too."""
        self.notice = ""
        with self._lock:
            kept = [done for done in self._done if done.command is None or isinstance(done.command, Slow)]
            self._done = kept if after_preview else []


def _same(one: Command | None, other: Command) -> bool:
    """Whether two commands do the same to the same role or link."""
    return type(one) is type(other) and one is not None and one.changed(at=0.0) == other.changed(at=0.0)
