"""Actions of the page: one frozen dataclass per action of a button, menu, slider or field.

The page creates an action and passes it to `Lab.press`. The lab executes the action on its command thread.
`Session.actions` are the classes of the actions that are available now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..engines.commands import Command, Cut, Freeze, Kill, Reconnect, Restart, Slow, Thaw

COMMAND_PROGRESS: dict[type[Command], str] = {
    Slow: "slowing", Kill: "stopping", Restart: "restarting", Freeze: "freezing", Thaw: "thawing", Cut: "cutting off",
    Reconnect: "reconnecting",
}  # fmt: skip


@dataclass(frozen=True)
class Action:
    """Base class of actions.

    `name`: the name of the action in messages. `doing`: the text that the page shows while the action is executed.
    `once`: whether the same action is ignored while it is executed, as after a double click.
    """

    name: ClassVar[str] = ""
    doing: ClassVar[str] = "working"
    once: ClassVar[bool] = False

    @property
    def progress(self) -> str:
        """The text that the page shows while the action is executed."""
        return self.doing


@dataclass(frozen=True)
class Start(Action):
    """Start the chosen scenario, or a run if no scenario was chosen."""

    name, doing, once = "run", "starting", True


@dataclass(frozen=True)
class Pause(Action):
    """Pause the run or the replay."""

    name, doing = "pause", "pausing"


@dataclass(frozen=True)
class Resume(Action):
    """Continue after a pause."""

    name, doing = "resume", "resuming"


@dataclass(frozen=True)
class Stop(Action):
    """End the run, with a final evaluation."""

    name, doing = "stop", "stopping"


@dataclass(frozen=True)
class Reset(Action):
    """End the run, and prepare the same run again."""

    name, doing, once = "reset", "resetting", True


@dataclass(frozen=True)
class Step(Action):
    """Advance to the next applied update."""

    name, doing = "step", "stepping"


@dataclass(frozen=True)
class Seek(Action):
    """Show the run at an earlier time. `seconds`: engine time."""

    seconds: float

    name = "seek"


@dataclass(frozen=True)
class BackToLive(Action):
    """Show the present again."""

    name = "back to live"


@dataclass(frozen=True)
class WhatIf(Action):
    """Repeat a simulated run up to the displayed time, and continue from there."""

    name, doing, once = "what if", "repeating", True


@dataclass(frozen=True)
class Calibrate(Action):
    """Measure the costs of the cluster. `seconds`: the time of all probes."""

    seconds: float = 10.0

    name, doing, once = "calibrate", "starting to calibrate", True


@dataclass(frozen=True)
class Forecast(Action):
    """Forecast a run with another number of workers, from the calibration. `hosts`: None is the measured number."""

    workers: int
    hosts: int | None = None
    seeds: int = 3

    name, doing, once = "forecast", "starting to forecast", True


@dataclass(frozen=True)
class PlayForecast(Action):
    """Start a simulated run with another number of workers, on a cluster with the measured costs."""

    workers: int
    hosts: int | None = None

    name, doing, once = "run forecast", "starting", True


@dataclass(frozen=True)
class Sweep(Action):
    """Simulate several values of a setting. `values`: None are default values, from the range of the setting."""

    setting: str
    values: tuple[Any, ...] | None = None
    seeds: int = 3

    name, doing, once = "sweep", "starting the sweep", True


@dataclass(frozen=True)
class Cancel(Action):
    """Cancel the calibration, forecast or sweep in progress."""

    name, doing = "cancel", "cancelling"


@dataclass(frozen=True)
class ChangeSettings(Action):
    """Change settings. `settings`: {name: value or text}."""

    settings: dict[str, Any]

    name, doing = "set", "setting"


@dataclass(frozen=True)
class Answer(Action):
    """Answer the question of the scenario. `answer`: the number of the answer, or its text."""

    answer: int | str

    name, doing = "answer", "starting"


@dataclass(frozen=True)
class PlayScenario(Action):
    """Play the scenario of this name. None: leave the scenario."""

    scenario: str | None

    name, doing, once = "play", "starting", True


@dataclass(frozen=True)
class Pin(Action):
    """Make the displayed run, or run `number` of the table, the reference run."""

    number: int | None = None

    name, doing = "pin", "pinning"


@dataclass(frozen=True)
class Unpin(Action):
    """Remove the reference run."""

    name, doing = "unpin", "unpinning"


@dataclass(frozen=True)
class ShowRun(Action):
    """Show run `number` of the table."""

    number: int

    name, doing = "show run", "loading"


@dataclass(frozen=True)
class Undo(Action):
    """Undo the last fault or change of a setting."""

    name, doing = "undo", "undoing"


@dataclass(frozen=True)
class Execute(Action):
    """Execute a command on the present run."""

    command: Command

    name = "execute"

    @property
    def progress(self) -> str:
        """The text that the page shows while the command is executed."""
        return COMMAND_PROGRESS.get(type(self.command), self.doing)
