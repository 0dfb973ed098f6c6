"""The buttons of the page: what a button does, and the table of all buttons. A button has the name of the method of `Lab` that
does the same, or the word of a command.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..engines.command_words import WORDS
from ..engines.commands import Command, Kill
from .experiments import Experiments
from .scenario_runner import ScenarioRunner
from .session import Session


@dataclass(frozen=True)
class Button:
    """One button.

    `operation`: executed on the command thread, with the arguments of the press. None: `at_once` is all.
    `doing`: what the page says meanwhile. `once`: whether the same press is ignored meanwhile, as after a double click.
    `at_once`: executed before, by the thread of the press, with the same arguments.
    `read`: makes the only argument of both from what the page sends.
    `holds`: whether `Lab.wait` waits until the active run is resumed.
    """

    operation: Callable[..., Any] | None = None
    doing: str = "working"
    once: bool = False
    at_once: Callable[..., Any] | None = None
    read: Callable[..., Any] | None = None
    holds: bool = False

    def arguments(self, sent: tuple[object, ...]) -> tuple[object, ...]:
        """Return the arguments of a press. Raises `TypeError` if their number is wrong, `BadInput` if a value is not allowed."""
        if self.read is not None:
            return (self.read(*sent),)
        takes = self.at_once or self.operation
        assert takes is not None
        inspect.signature(takes).bind(*sent)
        return sent


def buttons_of(
    session: Session, scenarios: ScenarioRunner, experiments: Experiments, seek: Callable[[float], Any],
    live: Callable[[], Any], play: Callable[[str | None], None],
) -> dict[str, Button]:  # fmt: skip
    """Return {name: button} of a lab. `seek`, `live`: the methods of the lab. `play`: starts the scenario of this name."""
    playback, history = session.playback, session.history

    def stop() -> None:
        if not session.displayed.active:
            experiments.cancel()
        scenarios.stop()

    return {
        "run": Button(scenarios.start, "starting", once=True),
        "pause": Button(playback.pause, "pausing", holds=True),
        "resume": Button(playback.resume, "resuming"),
        "stop": Button(stop, "stopping"),
        "reset": Button(scenarios.reset, "resetting", once=True),
        "step": Button(session.step, "stepping"),
        "seek": Button(at_once=seek),
        "live": Button(at_once=live),
        "what_if": Button(session.what_if, "repeating", once=True),
        "set": Button(session.displayed.set_options, "setting", at_once=history.change, read=partial(_settings_read, session)),
        "undo": Button(history.undo, "undoing"),
        "play": Button(play, "starting", once=True),
        "answer": Button(lambda answer: scenarios.show_result(), "starting", at_once=scenarios.commit),
        "pin": Button(session.pin, "pinning"),
        "unpin": Button(session.unpin, "unpinning"),
        "show_run": Button(scenarios.show_run, "loading"),
        "calibrate": Button(experiments.calibrate, "starting to calibrate", once=True),
        "forecast": Button(experiments.forecast, "starting to forecast", once=True),
        "play_forecast": Button(experiments.play_forecast, "starting", once=True),
        "sweep": Button(experiments.sweep, "starting the sweep", once=True),
        "cancel": Button(experiments.cancel, "cancelling"),
        **{kind.word: Button(history.execute, words.progress, read=partial(_command, kind)) for kind, words in WORDS.items()},
    }  # fmt: skip


def _settings_read(session: Session, settings: dict[str, Any]) -> dict[str, Any]:
    """Convert texts from the page to values, for example `"8"` to a seed. An empty field means None if the setting may be None;
    otherwise the setting keeps its value.
    """
    now = session.next_run.settings
    known = now.options()
    given = {name: value for name, value in settings.items() if value != "" or (name in known and known[name].optional)}
    return {n: now.read(n, v) if isinstance(v, str) else v for n, v in given.items()}


def _command(kind: Any, role: Any, *arguments: Any) -> Command:
    """Return the command of a button. A role that is killed by a button stays down until it is restarted by a button."""
    made: Command = kind(role, *arguments, **({"restart": False} if kind is Kill else {}))
    return made
