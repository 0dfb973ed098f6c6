"""The session of a lab: the displayed run, the reference run, and the displayed time.

The session has no widgets and no threads. Only one thread (the command thread) may call its methods, except `seek`,
`live`, `change` and `prepare`, which only set values. Every frame is a function of the trace and the displayed time, so
displaying an earlier time does not change the run.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..calibration import Calibration
from ..engines.base import VirtualTimeEngine
from ..engines.commands import Command, Cut, Executed, Freeze, Kill, Reconnect, Restart, Slow, Thaw
from ..engines.simulation_only import is_simulation_only
from ..errors import BadInput
from ..formatting import short
from ..options import options_of
from ..roles.budget import Budget
from ..run import Run, train
from ..trace import Trace
from ..trace.query import next_apply
from ..trace.role_states import undoable
from ..trace.schema import NANO
from ..views.forecast import RunForecast
from .actions import (
    Action,
    BackToLive,
    ChangeSettings,
    Execute,
    Pause,
    Pin,
    Reset,
    Resume,
    Seek,
    Start,
    Step,
    Stop,
    Undo,
    Unpin,
    WhatIf,
)
from .announcement import announcement
from .controls import label_of
from .forecaster import Forecaster, can_forecast
from .processes import Processes
from .run_table import RunTable
from .settings import Settings

SLICE = 0.02  # wall seconds of one slice in which a simulated run is advanced; commands are executed between slices
FINISH_SLICE = 0.2  # wall seconds of one slice of a simulated run that is advanced as fast as possible
ROLES_PER_SLICE = 500  # collecting the reports of this many roles after a slice takes as long as a slice
LONGEST = 0.25  # maximum wall seconds to catch up at once, so that a slow machine plays slower, without jumps
# commands that can be undone
NOUNS: dict[type[Command], str] = {Slow: "slowdown", Kill: "kill", Freeze: "freeze", Cut: "cut"}
POLL = 0.1  # seconds between two checks of a run on processes
FORECAST_FIRST = 0.5  # most wall seconds for which the forecast of a run is computed before the run starts
# wall seconds of one slice of a forecast: while processes train, every `POLL` s; otherwise
FORECAST_SLICE, FORECAST_IDLE_SLICE = 0.005, 0.02

Commands = tuple[Command | Executed, ...]


@dataclass(frozen=True)
class _Pending:
    """A run that starts when its processes are ready. Until then, a simulated preview of the run is played."""

    settings: Settings
    commands: Commands


@dataclass(frozen=True)
class _Done:
    """Something that a user did and can undo. `label`: what it was, as "slowdown of w2". `undo()` undoes it. `command`: the
    command that undoes it; None for a change of settings.
    """

    label: str
    undo: Callable[[], None]
    command: Command | None = None


class Session:
    """The session of a lab: the displayed run, the reference run, and the displayed time.

    `settings`: the settings of the next run. `clock`: returns the wall time in seconds. `slice_s`: wall seconds of one
    slice in which a simulated run is advanced.
    """

    def __init__(
        self, settings: Settings, processes: Processes, clock: Callable[[], float] = time.monotonic, slice_s: float = SLICE
    ):  # fmt: skip
        self.processes, self._clock, self._slice = processes, clock, slice_s
        self.settings = settings
        self._commands: Commands = ()  # the command log that the next run repeats
        self._settings_lock = threading.Lock()
        self._observers: list[Callable[[], None]] = []  # of changes of `settings`
        self.run: Run | None = None
        self._began_with = self._now_with = settings  # settings of the displayed run: at its beginning, and now
        self.reference: Trace | None = None
        self.table = RunTable()
        self.position: int | None = None  # the displayed time in ns; None: the present
        self._playing = False  # a simulated run, or a replay, advances with wall time
        self._continues = False  # whether the simulated run goes on when the present is shown again
        self._paused = False  # a run on processes was paused
        self._driven_elsewhere = False  # another program may advance this simulated run
        self._pending: _Pending | None = None
        self._recorded = True  # the displayed run is in the table, or must not be added
        self._blank: tuple[Settings, Trace] | None = None
        self._last_played: float | None = None
        self._preview: Run | None = None  # the last simulated preview
        self._done: list[_Done] = []  # what a user did and can undo, in order
        self.calibration: Calibration | None = None  # set by any thread; `advance` forecasts the displayed run with it
        self._forecast_with: Calibration | None = None  # the one with which `forecaster` was made
        self.forecaster: Forecaster | None = None  # of the displayed run
        self.occupied: Callable[[Settings], str] = lambda settings: ""  # why a run cannot start now, or ""
        self.notice = ""  # which settings the last change of a setting has changed, too

    # what is shown ----------------------------------------------------------------------------------------------------

    @property
    def trace(self) -> Trace:
        """The trace of the displayed run; before the first run, an empty trace of the next run."""
        if self.run is not None:
            return self.run.engine.trace
        settings = self.settings
        if self._blank is None or self._blank[0] is not settings:
            simulated = settings.changed(engine="simulated")
            cluster = simulated.cluster_on(None)
            blank = train(simulated.problem, simulated.strategy, cluster, simulated.budget).advance(0.0)
            self._blank = (settings, blank.trace)
        return self._blank[1]

    @property
    def simulated(self) -> bool:
        """Whether the displayed run is in virtual time, so that this session advances it."""
        return self.run is not None and isinstance(self.run.engine, VirtualTimeEngine)

    @property
    def active(self) -> bool:
        """Whether the displayed run exists and has not ended."""
        return self.run is not None and not self.run.done

    @property
    def previewing(self) -> bool:
        """Whether the displayed run is a simulated preview, which is played until processes are ready."""
        return self._pending is not None

    @property
    def shows_preview(self) -> bool:
        """Whether the displayed run is a simulated preview, which may have been stopped."""
        return self.run is not None and self.run is self._preview

    @property
    def replaying(self) -> bool:
        """Whether an earlier time is displayed and advances with wall time."""
        return self.position is not None and self._playing

    @property
    def shown_settings(self) -> Settings:
        """The settings of the displayed run (for a preview, of the run that follows it); before the first run, of the
        next run.
        """
        if self._pending is not None:
            return self._pending.settings
        return self._now_with if self.run is not None else self.settings

    @property
    def state(self) -> str:
        """`"ready"` (no run yet), `"running"`, `"paused"`, `"over"` or `"failed"`."""
        if self.run is None:
            return "ready"
        if self.run.done:
            return "failed" if self.run.engine.error is not None else "over"
        moves = self._playing or self._driven_elsewhere or not self.simulated
        return "paused" if self._paused or not moves else "running"

    @property
    def actions(self) -> frozenset[type[Action]]:
        """The classes of the actions that are available now."""
        found: set[type[Action]] = {ChangeSettings} if self.occupied(self.settings) else {Start, ChangeSettings}
        run, active, back = self.run, self.active, self.position is not None
        if (active and not self._paused and (self._playing or not self.simulated)) or (back and self._playing):
            found.add(Pause)
        elif active or back:
            found.add(Resume)
        if active:
            found |= {Stop, Execute}
        if run is not None:
            found |= {Reset, Seek, Pin}
            if self.simulated and not self.shows_preview:
                found.add(WhatIf)
        if back:
            found.add(BackToLive)
        if back or (active and not self.previewing) or (run is None and self.settings.cluster.virtual_time):
            found.add(Step)
        if self.reference is not None:
            found.add(Unpin)
        if self.undoes:
            found.add(Undo)
        return frozenset(found)

    @property
    def forecast(self) -> RunForecast | None:
        """The forecast of the displayed run, as far as it is computed; None if there is none, and during a preview."""
        return self.forecaster.value if self.forecaster is not None and not self.shows_preview else None

    def moment(self) -> int:
        """Return the displayed time in ns."""
        now = self.trace.watermark()
        return now if self.position is None else min(self.position, now)

    # settings ---------------------------------------------------------------------------------------------------------

    def change(self, settings: dict[str, Any]) -> None:
        """Change settings of the next run, by name; `undo` undoes it. Raises `BadInput`, and changes nothing, if a value is not
        allowed. `notice` says which other settings this has changed.
        """
        run = self.run
        known = options_of(run.plan.strategy) if run is not None and not run.done else {}
        live = {name: self._now_with.value(name) for name in settings if name in known and known[name].live}
        before, commands = self._change(settings)
        self.notice = announcement(before, self.settings, settings)
        if self.settings != before or any(settings[name] != value for name, value in live.items()):
            label = ", ".join(label_of(name) for name in settings)
            self._add_done(_Done(label, partial(self._restore, before, commands, tuple(settings), run, live)))

    def _change(self, settings: dict[str, Any]) -> tuple[Settings, Commands]:
        """Change settings of the next run. Returns the settings and the commands before."""
        with self._settings_lock:
            before = self.settings, self._commands
            self.settings = self.settings.changed(**settings)
            # a different run: recorded turns of the event loop are not valid
            self._commands = _at_times(self._commands)
        self._notify()
        return before

    def _restore(
        self, settings: Settings, commands: Commands, names: tuple[str, ...], run: Run | None, live: dict[str, Any]
    ) -> None:  # fmt: skip
        """Undo a change of the settings `names`. `live`: the values of live options of `run` before it; another run that is
        displayed by now gets the values of the settings.
        """
        with self._settings_lock:
            self.settings, self._commands = settings, commands
        self._notify()
        self.set_options(
            live if run is self.run else {name: settings.value(name) for name in names if name in settings.names}
        )

    def observe_settings(self, observer: Callable[[], None]) -> None:
        """Call `observer` after each change of `settings`, on the thread of the change."""
        self._observers.append(observer)

    def _notify(self) -> None:
        for observer in list(self._observers):
            observer()

    # undoing ----------------------------------------------------------------------------------------------------------

    @property
    def undoes(self) -> str:
        """What `undo` undoes, for example "slowdown of w2"; "" if there is nothing to undo."""
        done = self._last_done()
        return done.label if done is not None else ""

    def undo(self) -> None:
        """Undo the last command, or the last change of settings, that a user made and that still has an effect. Raises
        `BadInput` if there is none.

        A command can be undone while its run is active. If a killed role was restarted, for example, there is nothing left of
        the kill to undo.
        """
        done = self._last_done()
        if done is None:
            raise BadInput("There is nothing to undo.")
        with self._settings_lock:
            self._done = [other for other in self._done if other is not done]
        self.notice = ""
        done.undo()

    def _last_done(self) -> _Done | None:
        possible = undoable(self.trace) if any(done.command is not None for done in self._done) else {}
        return next((done for done in reversed(self._done) if self._has_effect(done.command, possible)), None)

    def _has_effect(self, command: Command | None, possible: dict[str, frozenset[str]]) -> bool:
        """Whether the command that undoes something would have an effect. `possible`: the result of `undoable`."""
        if command is None:
            return True
        if not self.active:
            return self.run is None and isinstance(command, Slow)
        if isinstance(command, Slow) or getattr(command, "peer", None) is not None:
            return True
        return command.word in possible.get(getattr(command, "role", ""), ())

    def _add_done(self, done: _Done) -> None:
        with self._settings_lock:
            self._done = [*self._done, done]

    def prepare(self, settings: Settings, commands: Commands = ()) -> None:
        """Set the settings of the next run, and the commands that it repeats."""
        with self._settings_lock:
            self.settings = settings
            self._done, self.notice = [], ""
            self._commands = commands if settings.cluster.virtual_time else _at_times(commands)
        self._notify()

    def set_options(self, settings: dict[str, Any]) -> None:
        """Set live options of the strategy on the active run. Settings that are not live options are ignored."""
        if not self.active:
            return
        known = options_of(self.run.plan.strategy)  # type: ignore[union-attr]
        live = {name: value for name, value in settings.items() if name in known and known[name].live}
        if live:
            self.run.set(**live)  # type: ignore[union-attr]
            self._now_with = self._now_with.changed(**live)
            self._change_pending(**live)

    def _change_pending(self, **settings: Any) -> None:
        """Apply changes made during the preview to the settings of the pending run, if there is one."""
        if self._pending is not None:
            self._pending = replace(self._pending, settings=self._pending.settings.changed(**settings))

    # running ----------------------------------------------------------------------------------------------------------

    def start(self, settings: Settings | None = None, commands: Commands | None = None) -> None:
        """Start a run with these settings and commands (None: with the prepared settings and commands). An active run is
        stopped first.

        If the run needs processes that are not ready yet, a simulated preview of the run is played until they are ready.
        """
        settings = self.settings if settings is None else settings
        commands = self._commands if commands is None else commands
        if not settings.cluster.virtual_time and is_simulation_only() and self.processes.cluster.starts_processes:
            settings = settings.changed(engine="simulated")
        reason = self.occupied(settings)
        if reason:
            raise BadInput(f"Run: {reason}")
        if not settings.cluster.virtual_time:
            self.processes.check()
        self.end()
        forecaster = self._new_forecast(settings)
        if not settings.cluster.virtual_time and not self.processes.ready:
            self._start_preview(settings, commands)
            self.forecaster = forecaster  # computed while the processes start
            return
        self._begin(settings, commands, forecaster)

    def _begin(self, settings: Settings, commands: Commands, forecaster: Forecaster | None) -> None:
        """Start a run. Its forecast is computed before, as far as this takes `FORECAST_FIRST` s."""
        if forecaster is not None:
            forecaster.advance(FORECAST_FIRST)
        self._show(self._train(settings, commands), settings)
        self.forecaster = forecaster

    def _new_forecast(self, settings: Settings) -> Forecaster | None:
        """Return the forecast of a run with these settings, which is not computed yet; None if there is nothing to forecast, or
        if the run is simulated with the calibration itself.
        """
        calibration, costs = self.calibration, settings.cluster.costs
        if calibration is None or not can_forecast(settings):
            return None
        if (
            settings.cluster.virtual_time
            and costs is not None
            and replace(costs, hosts=1) == replace(calibration.costs, hosts=1)
        ):
            return None
        return Forecaster(calibration, settings)

    def _train(self, settings: Settings, commands: Commands) -> Run:
        cluster = settings.cluster_on(self.processes.cluster if not settings.cluster.virtual_time else None)
        return train(settings.problem, settings.strategy, cluster, settings.budget, faults=commands)

    def _show(self, run: Run, settings: Settings) -> None:
        self.run, self._now_with, self._began_with, self._recorded = run, settings, settings, False
        self.position, self._paused, self._playing, self._last_played = None, False, True, None
        self.notice, self.forecaster, self._forecast_with = "", None, self.calibration
        with self._settings_lock:
            self._done = []  # concerns the run before
        self._driven_elsewhere = False

    def adopt(self, run: Run, settings: Settings, play: bool) -> None:
        """Show a run that a program started. `play`: whether the session advances the run, if it is simulated."""
        self._show(run, settings)
        self._driven_elsewhere = not play
        self._playing = play or not self.simulated

    def _start_preview(self, settings: Settings, commands: Commands) -> None:
        simulated = settings.changed(engine="simulated")
        simulated = replace(simulated, spec=replace(simulated.spec, budget=Budget(seconds=3600)))
        run = train(simulated.problem, simulated.strategy, simulated.cluster_on(None), simulated.budget)
        self._show(run, settings)
        self._preview, self._pending, self._recorded = run, _Pending(settings, commands), True
        self.processes.start(len(run.plan.layout.nodes))

    def _end_preview(self) -> None:
        """Replace the preview by the run, because the processes are ready. The preview is shown until the run has been made.
        If it cannot be made, or if the processes could not be started, raise the error.
        """
        assert self._pending is not None
        pending = self._pending
        try:
            if self.processes.problem is not None:
                raise self.processes.problem
            if not self.processes.ready:  # they have ended meanwhile
                self.start(pending.settings, pending.commands)
                return
            forecaster = self.forecaster
            if forecaster is None or forecaster.settings != pending.settings:  # changed during the preview
                forecaster = self._new_forecast(pending.settings)
            if forecaster is not None:
                forecaster.advance(FORECAST_FIRST)
            run = self._train(pending.settings, pending.commands)
        except Exception:
            self.end()
            self.run = None
            raise
        kept = [done for done in self._done if done.command is None or isinstance(done.command, Slow)]
        self.end()
        self._show(run, pending.settings)
        self.forecaster = forecaster
        for done in kept:  # settings and slowdowns of the preview are those of the run, too
            self._add_done(done)

    def end(self) -> None:
        """Stop the active run, if any, and record it in the table."""
        self._pending = None
        if self.run is not None and not self.run.done:
            self.run.stop()
        self._record()
        self._playing = self._paused = False

    def reset(self) -> None:
        """Stop the run, and prepare the same run again, with the same seed."""
        if self._pending is not None:
            settings = self._pending.settings
        else:
            settings = self._began_with if self.run is not None else self.settings
        self.end()
        self.run, self.position, self.forecaster = None, None, None
        self.prepare(settings, self._commands)

    def pause(self) -> None:
        """Pause the run, or the replay."""
        self._playing = False
        if self.position is None and self.active and not self.simulated:
            self.run.pause()  # type: ignore[union-attr]
            self._paused = True

    def hold(self) -> None:
        """Pause the run, also while an earlier time is displayed, until `resume`."""
        self._playing = self._continues = False
        if self.active and not self.simulated and not self._paused:
            self.run.pause()  # type: ignore[union-attr]
            self._paused = True

    def halt(self) -> None:
        """Stop advancing and replaying, after an error."""
        self._playing = False

    def resume(self) -> None:
        """Continue after a pause. If an earlier time is displayed, replay from this time."""
        self._last_played, self._driven_elsewhere = None, False
        if self.position is None and self._paused and self.active:
            self.run.resume()  # type: ignore[union-attr]
        self._paused = self._paused and self.position is not None
        self._playing = self._continues = self.active or self.position is not None

    def step(self) -> None:
        """Go to the next applied update, and pause there.

        If an earlier time is displayed, this is the next recorded update. Otherwise the run continues until it applies an
        update.
        """
        if self.position is not None:
            self._playing = False
            after = next_apply(self.trace, self.position)
            self.position = after if after is not None else self.trace.watermark()
            return
        if self.run is None:
            self.start()
        if self.active and not self.previewing:
            self._playing = False
            self.run.step()  # type: ignore[union-attr]
            self._paused = not self.simulated

    def execute(self, command: Command) -> None:
        """Execute a command on the active run. Before the first run, a `Slow` becomes a setting of the next run. `undo`
        undoes it, if there is a command that does.

        Raises `BadInput` for other commands if no run is active.
        """
        opposite = self._opposite(command)
        self._execute(command)
        self.notice = ""
        with self._settings_lock:  # what this command has undone need not be undone any more
            self._done = [done for done in self._done if isinstance(command, Slow) or not _same(done.command, command)]
        if opposite is not None and opposite != command:
            peer = f" from {short(command.peer)}" if isinstance(command, Cut) and command.peer is not None else ""
            label = f"{NOUNS[type(command)]} of {short(opposite.role)}{peer}"
            self._add_done(_Done(label, partial(self._execute, opposite), opposite))

    def _opposite(self, command: Command) -> Slow | Restart | Thaw | Reconnect | None:
        """Return the command that undoes `command`, or None."""
        match command:
            case Slow():
                before = self._normal(command.role)
                for done in () if self.run is None else self.run.engine.commands:
                    if (
                        isinstance(done.command, Slow)
                        and done.command.until is None
                        and done.command.role == command.role
                    ):
                        before = done.command.factor * self._normal(command.role)
                return Slow(command.role, before)
            case Cut():
                return Reconnect(command.role, command.peer)
            case Kill():
                return Restart(command.role)
            case Freeze():
                return Thaw(command.role)
        return None

    def _normal(self, role: str) -> float:
        """Return the slowdown factor of the cluster of the run or, before the first run, of the settings."""
        return (self.settings.cluster if self.run is None else self.run.engine.cluster.spec).slow.get(role, 1.0)

    def _execute(self, command: Command) -> None:
        slow = {command.role: command.factor} if isinstance(command, Slow) else {}
        if self.active:
            if isinstance(command, Slow):  # the lab shows factors that contain that of the cluster
                command = replace(command, factor=command.factor / self._normal(command.role))
            self.run.execute(command)  # type: ignore[union-attr]
            if slow and self._pending is not None:
                self._change_pending(slow={**self._pending.settings.cluster.slow, **slow})
        elif slow and self.run is None:
            self._change({"slow": {**self.settings.cluster.slow, **slow}})
        else:
            role = getattr(command, "role", "")
            if slow:
                raise BadInput(f"slow {role}: the run is over. Press Run first, or Reset to prepare the next one.")
            raise BadInput(f"{command.word} {role}: no run is active.")

    # looking back -----------------------------------------------------------------------------------------------------

    def seek(self, t: int) -> None:
        """Show the time `t` (ns). A simulated run does not advance while an earlier time is displayed, but a run on
        processes continues.
        """
        if self.position is None:
            self._continues = self._playing
        self.position, self._playing = max(0, min(int(t), self.trace.watermark())), False

    def live(self) -> None:
        """Show the present again. A simulated run continues, unless it was paused."""
        if self.position is not None:
            self._playing = self.active and self._continues
        self.position, self._last_played = None, None

    def what_if(self) -> None:
        """Repeat the simulated run exactly up to the displayed time, and continue from there.

        The previous run becomes the reference run. Raises `BadInput` if this is not possible.
        """
        if not self.simulated:
            raise BadInput(
                "What if: a run on processes cannot be repeated exactly. Run with engine=simulated, and select an earlier time."
            )
        assert self.run is not None
        reason = self.occupied(self._now_with)
        if reason:
            raise BadInput(f"What if: {reason}")
        at, old = self.moment(), self.run
        if old.done and at >= old.engine.trace.watermark():
            raise BadInput("What if: this is the end of the run; select an earlier time first.")
        fork, settings = old.fork(at / NANO), self._now_with
        self.reference = old.engine.trace
        if not old.done:
            old.stop()
        self._record()
        self._show(fork, settings)

    # the table of runs ------------------------------------------------------------------------------------------------

    def pin(self, number: int | None = None) -> None:
        """Make the displayed run (or run `number` of the table) the reference run."""
        if number is not None:
            self.reference = self.table.entry(number).trace
        elif self.run is None:
            raise BadInput("There is no run to pin yet.")
        else:
            self.reference = self.run.engine.trace

    def unpin(self) -> None:
        """Remove the reference run."""
        self.reference = None

    def show_run(self, number: int) -> None:
        """Show the end of run `number` of the table again."""
        entry = self.table.entry(number)
        self.end()
        self.run, self._now_with, self._began_with, self.position = entry.run, entry.settings, entry.settings, None
        self.forecaster, self._forecast_with = entry.forecaster, self.calibration

    def _record(self) -> None:
        """Add a run that is over to the table, once."""
        if self.run is not None and not self._recorded and self.run.done:
            self._recorded = True
            self.table.add(self._now_with, self.run, keep=self.reference, forecaster=self.forecaster)

    # advancing ------------------------------------------------------------------------------------------------------

    def advance(self) -> bool:
        """Do the work that is due now. Return whether the run has just ended without a command."""
        if self._pending is not None and not self.processes.starting:
            self._end_preview()
        if self.replaying:
            self._play_back()
        elif self.simulated and self.active and self._playing:
            self._play()
        self._advance_forecast()
        if self.run is None or not self.run.done or self._recorded:
            return False
        self._record()
        if self.position is None:
            self._playing = False
        return True

    def next_advance(self) -> float | None:
        """Return the wall seconds until `advance` may have work, or None if the session is idle."""
        pause = self._next_move()
        if self.forecaster is None or self.forecaster.done:
            return pause
        trains = self.active and not self.simulated and not self._paused
        return min(POLL if trains else SLICE, pause or POLL)

    def _next_move(self) -> float | None:
        if self._playing and (self.position is not None or (self.simulated and self.active)):
            return SLICE
        moves = self._driven_elsewhere or not self.simulated or self._playing
        return POLL if self.previewing or (self.active and moves and not self._paused) else None

    def _advance_forecast(self) -> None:
        """Compute the forecast of the displayed run for a short time, if it is not complete."""
        if self.calibration is not self._forecast_with:
            self._forecast_with = self.calibration
            shown = self.run is not None and not self.shows_preview
            self.forecaster = self._new_forecast(self._began_with) if shown else None
        if self.forecaster is None:
            return
        if self.run is not None and not self.shows_preview:
            self.forecaster.follow(self.run)
        trains = self.active and not self.simulated and not self._paused
        self.forecaster.advance(FORECAST_SLICE if trains else FORECAST_IDLE_SLICE)

    def finish(self) -> None:
        """Advance a simulated run that is being played by one slice, as fast as possible."""
        if self.run is not None and self.simulated and self.active and self._playing and not self.previewing:
            with contextlib.suppress(TimeoutError):  # the slice is over
                self.run.engine.wait(FINISH_SLICE * (1 + len(self.trace.roles) / ROLES_PER_SLICE))

    def _elapsed(self) -> float:
        """Return the seconds of wall time since the last call, at most `LONGEST`."""
        now = self._clock()
        since = 0.0 if self._last_played is None else min(now - self._last_played, LONGEST)
        self._last_played = now
        return since

    def _play(self) -> None:
        since = self._elapsed()
        if since > 0:
            limit = self._slice * (1 + len(self.trace.roles) / ROLES_PER_SLICE)
            self.run.advance(since * self.settings.speed, timeout=limit)  # type: ignore[union-attr]

    def _play_back(self) -> None:
        assert self.position is not None
        self.position += round(self._elapsed() * self.settings.speed * NANO)
        if self.position >= self.trace.watermark():
            self.live()

    # as a text --------------------------------------------------------------------------------------------------------

    def command_log(self) -> tuple[Executed, ...]:
        """Return the commands that were executed on the displayed run, or () if the next run would have other settings."""
        if self.run is None or self.shows_preview or self.settings != self._now_with:
            return ()
        return tuple(self.run.engine.commands)

    @property
    def began_with(self) -> Settings:
        """The settings with which the displayed run began."""
        return self._began_with


def _at_times(commands: Commands) -> tuple[Command, ...]:
    """Return these commands with their times, but without the turns of the event loop in which they were executed."""
    return tuple(command.command if isinstance(command, Executed) else command for command in commands)


def _same(one: Command | None, other: Command) -> bool:
    """Whether two commands do the same to the same role or link."""
    return type(one) is type(other) and one is not None and one.changed(at=0.0) == other.changed(at=0.0)
