"""The run that a lab shows, with the settings that it has now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ..engines.base import VirtualTimeEngine
from ..engines.commands import Command, Executed, Slow
from ..errors import BadInput
from ..options import options_of
from ..run import Run, train
from ..trace import Trace
from .next_run import Commands, NextRun
from .settings import Settings


class DisplayedRun:
    """The displayed run.

    `run`: None before the first run. `began_with`: the settings with which it began. `is_preview`: whether it is a simulated
    preview of a run whose processes are not ready yet. `pending`: the commands that the following run repeats; None if the run is
    not a preview, or was stopped.
    """

    def __init__(self, next_run: NextRun):
        self._next_run = next_run
        self.run: Run | None = None
        self.began_with = self._settings = next_run.settings
        self.is_preview = False
        self.pending: Commands | None = None
        self._blank: tuple[Settings, Trace] | None = None

    def show(self, run: Run | None, settings: Settings, pending: Commands | None = None) -> None:
        """Show another run, or none. `settings`: of this run, or of the one that follows a preview."""
        self.run, self.began_with, self._settings = run, settings, settings
        self.is_preview, self.pending = pending is not None, pending

    @property
    def settings(self) -> Settings:
        """The settings of the displayed run (for a preview, of the run that follows it); without one, of the next run."""
        return self._settings if self.run is not None else self._next_run.settings

    @property
    def trace(self) -> Trace:
        """The trace of the displayed run; before the first run, an empty trace of the next run."""
        if self.run is not None:
            return self.run.engine.trace
        settings = self._next_run.settings
        if self._blank is None or self._blank[0] is not settings:
            simulated = settings.changed(engine="simulated")
            cluster = simulated.cluster_on(None)
            blank = train(simulated.problem, simulated.strategy, cluster, simulated.budget).advance(0.0)
            self._blank = (settings, blank.trace)
        return self._blank[1]

    @property
    def simulated(self) -> bool:
        """Whether the run is in virtual time, so that the lab advances it."""
        return self.run is not None and isinstance(self.run.engine, VirtualTimeEngine)

    @property
    def active_run(self) -> Run | None:
        """The run, if there is one and it has not ended."""
        return self.run if self.run is not None and not self.run.done else None

    @property
    def active(self) -> bool:
        """Whether there is a run that has not ended."""
        return self.active_run is not None

    @property
    def previewing(self) -> bool:
        """Whether the run is a preview, and is played until processes are ready."""
        return self.pending is not None

    def live_options(self, names: Iterable[str]) -> list[str]:
        """Return those of the settings `names` that are live options of the active run."""
        run = self.active_run
        known = options_of(run.plan.strategy) if run is not None else {}
        return [name for name in names if name in known and known[name].live]

    def set_options(self, settings: dict[str, Any]) -> None:
        """Set live options of the strategy on the active run. Settings that are not live options are ignored."""
        live, run = {name: settings[name] for name in self.live_options(settings)}, self.active_run
        if live and run is not None:
            run.set(**live)
            self._settings = self._settings.changed(**live)

    def execute(self, command: Command) -> None:
        """Execute a command on the active run. Before the first run, a `Slow` becomes a setting of the next run.

        Raises `BadInput` for other commands if no run is active.
        """
        slow, run = {command.role: command.factor} if isinstance(command, Slow) else {}, self.active_run
        if run is not None:
            if isinstance(command, Slow):  # the lab shows factors that contain that of the cluster
                command = replace(command, factor=command.factor / self.usual_factor(command.role))
            run.execute(command)
            if slow and self.previewing:
                self._settings = self._settings.changed(slow={**self._settings.cluster.slow, **slow})
        elif slow and self.run is None:
            self._next_run.change({"slow": {**self._next_run.settings.cluster.slow, **slow}})
        else:
            role = getattr(command, "role", "")
            if slow:
                raise BadInput(f"slow {role}: the run is over. Press Run first, or Reset to prepare the next one.")
            raise BadInput(f"{command.word} {role}: no run is active.")

    def usual_factor(self, role: str) -> float:
        """Return the slowdown factor that the cluster of the run gives a role; before the first run, that of the settings."""
        spec = self._next_run.settings.cluster if self.run is None else self.run.engine.cluster.spec
        return spec.slow.get(role, 1.0)

    def command_log(self) -> tuple[Executed, ...]:
        """Return the commands that were executed on the run, or () if the next run would have other settings."""
        if self.run is None or self.is_preview or self._next_run.settings != self._settings:
            return ()
        return tuple(self.run.engine.commands)
