"""The session of a lab: it starts, ends and records the displayed run, and compares it with a reference run and a forecast.

The session has no widgets and no threads. Only one thread (the command thread) may call the methods of the session and of its
parts, except those that only set values: `playback.seek`, `playback.live`, `history.change`, `prepare`. Every frame is a function
of the trace and the displayed time, so displaying an earlier time does not change the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from ..engines.simulation_only import is_simulation_only
from ..errors import BadInput
from ..forecasts.calibration import Calibration
from ..forecasts.forecaster import Forecaster, forecaster_of
from ..roles.budget import Budget
from ..run import Run, train
from ..trace import Trace
from ..trace.schema import NANO
from ..views.forecast import RunForecast
from .displayed_run import DisplayedRun
from .next_run import Commands, NextRun
from .playback import POLL, SLICE, Playback
from .processes import Processes
from .run_table import RunTable
from .settings import Settings
from .undo_history import UndoHistory

FORECAST_FIRST = 0.5  # most wall seconds for which the forecast of a run is computed before the run starts
# wall seconds of one slice of a forecast: while processes train, every `POLL` s; otherwise
FORECAST_SLICE, FORECAST_IDLE_SLICE = 0.005, 0.02


class Session:
    """The session of a lab.

    `settings`: the settings of the next run. `clock`: returns the wall time in seconds. `slice_s`: wall seconds of one
    slice in which a simulated run is advanced.

    Its parts: `next_run` (settings and commands), `displayed` (the run), `playback` (the displayed time), `history` (what can be
    undone), `table` (of finished runs). `reference`: the trace of the reference run. `calibration` may be set by any thread;
    `advance` forecasts the displayed run with it. `occupied(settings)`: why a run cannot start now, or "".
    """

    def __init__(
        self, settings: Settings, processes: Processes, clock: Callable[[], float] = time.monotonic, slice_s: float = SLICE
    ):  # fmt: skip
        self.processes = processes
        self.next_run = NextRun(settings)
        self.displayed = DisplayedRun(self.next_run)
        self.playback = Playback(self.displayed, self.next_run, clock, slice_s)
        self.history = UndoHistory(self.displayed, self.next_run)
        self.table = RunTable()
        self.reference: Trace | None = None
        self.occupied: Callable[[Settings], str] = lambda settings: ""
        self._recorded = True  # the displayed run is in the table, or must not be added
        self.calibration: Calibration | None = None
        self.forecaster: Forecaster | None = None  # of the displayed run
        self._forecast_with: Calibration | None = None  # the calibration with which `forecaster` was made

    @property
    def forecast(self) -> RunForecast | None:
        """The forecast of the displayed run, as far as it is computed; None if there is none, and during a preview."""
        return self.forecaster.value if self.forecaster is not None and not self.displayed.is_preview else None

    # runs -------------------------------------------------------------------------------------------------------------

    def prepare(self, settings: Settings, commands: Commands = ()) -> None:
        """Set the settings of the next run, and the commands that it repeats."""
        self.history.clear()
        self.next_run.prepare(settings, commands)

    def start(self, settings: Settings | None = None, commands: Commands | None = None) -> None:
        """Start a run with these settings and commands (None: with the prepared settings and commands). An active run is
        stopped first.

        If the run needs processes that are not ready yet, a simulated preview of the run is played until they are ready.
        """
        settings = self.next_run.settings if settings is None else settings
        commands = self.next_run.commands if commands is None else commands
        if not settings.cluster.virtual_time and is_simulation_only() and self.processes.cluster.starts_processes:
            settings = settings.changed(engine="simulated")
        reason = self.occupied(settings)
        if reason:
            raise BadInput(f"Run: {reason}")
        if not settings.cluster.virtual_time:
            self.processes.check()
        self.end()
        forecaster = forecaster_of(settings.spec, self.calibration)
        if not settings.cluster.virtual_time and not self.processes.ready:
            simulated = settings.changed(engine="simulated")
            simulated = replace(simulated, spec=replace(simulated.spec, budget=Budget(seconds=3600)))
            preview = self._train(simulated, ())
            self._show(preview, settings, forecaster, pending=commands)  # forecast while the processes start
            self.processes.start(len(preview.plan.layout.nodes))
            return
        if forecaster is not None:
            forecaster.advance(FORECAST_FIRST)
        self._show(self._train(settings, commands), settings, forecaster)

    def _train(self, settings: Settings, commands: Commands) -> Run:
        cluster = settings.cluster_on(self.processes.cluster if not settings.cluster.virtual_time else None)
        return train(settings.problem, settings.strategy, cluster, settings.budget, faults=commands)

    def _show(
        self, run: Run, settings: Settings, forecaster: Forecaster | None = None, pending: Commands | None = None,
        after_preview: bool = False,
    ) -> None:  # fmt: skip
        self.displayed.show(run, settings, pending)
        self._recorded = pending is not None
        self.playback.begin()
        self.history.clear(after_preview)
        self.forecaster, self._forecast_with = forecaster, self.calibration

    def adopt(self, run: Run, settings: Settings, play: bool) -> None:
        """Show a run that a program started. `play`: whether the session advances the run, if it is simulated."""
        self._show(run, settings)
        self.playback.begin(play)

    def _end_preview(self) -> None:
        """Replace the preview by the run, because the processes are ready. The preview is shown until the run has been made.
        If it cannot be made, or if the processes could not be started, raise the error.
        """
        settings, commands = self.displayed.settings, self.displayed.pending
        try:
            if self.processes.problem is not None:
                raise self.processes.problem
            if not self.processes.ready:  # they have ended meanwhile
                self.start(settings, commands)
                return
            forecaster = self.forecaster
            if forecaster is None or forecaster.spec != settings.spec:  # changed during the preview
                forecaster = forecaster_of(settings.spec, self.calibration)
            if forecaster is not None:
                forecaster.advance(FORECAST_FIRST)
            run = self._train(settings, commands or ())
        except Exception:
            self.end()
            self.displayed.show(None, settings)
            raise
        self.end()
        self._show(run, settings, forecaster, after_preview=True)

    def end(self) -> None:
        """Stop the active run, if any, and record it in the table."""
        self.displayed.pending = None
        run = self.displayed.active_run
        if run is not None:
            run.stop()
        self._record()
        self.playback.end()

    def _record(self) -> None:
        """Add a run that is over to the table, once."""
        shown = self.displayed
        if shown.run is not None and not self._recorded and shown.run.done:
            self._recorded = True
            self.table.add(shown.settings, shown.run, keep=self.reference, forecaster=self.forecaster)

    def reset(self) -> None:
        """Stop the run, and prepare the same run again, with the same seed."""
        shown = self.displayed
        same = shown.settings if shown.previewing or shown.run is None else shown.began_with
        self.end()
        shown.show(None, same)
        self.playback.live()
        self.forecaster = None
        self.prepare(same, self.next_run.commands)

    def step(self) -> None:
        """Go to the next applied update, and pause there; before the first run, start it."""
        if self.displayed.run is None and self.playback.position is None:
            self.start()
        self.playback.step()

    def what_if(self) -> None:
        """Repeat the simulated run exactly up to the displayed time, and continue from there.

        The previous run becomes the reference run. Raises `BadInput` if this is not possible.
        """
        shown, old = self.displayed, self.displayed.run
        if old is None or not shown.simulated:
            raise BadInput(
                "What if: a run on processes cannot be repeated exactly. Run with engine=simulated, and select an earlier time."
            )
        reason = self.occupied(shown.settings)
        if reason:
            raise BadInput(f"What if: {reason}")
        at = self.playback.moment()
        if old.done and at >= old.engine.trace.watermark():
            raise BadInput("What if: this is the end of the run; select an earlier time first.")
        fork, settings = old.fork(at / NANO), shown.settings
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
        elif self.displayed.run is None:
            raise BadInput("There is no run to pin yet.")
        else:
            self.reference = self.displayed.trace

    def unpin(self) -> None:
        """Remove the reference run."""
        self.reference = None

    def show_run(self, number: int) -> None:
        """Show the end of run `number` of the table again."""
        entry = self.table.entry(number)
        self.end()
        assert entry.run is not None
        self.displayed.show(entry.run, entry.settings)
        self.playback.live()
        self.forecaster, self._forecast_with = entry.forecaster, self.calibration

    # advancing --------------------------------------------------------------------------------------------------------

    def advance(self) -> bool:
        """Do the work that is due now. Return whether the run has just ended without a command."""
        if self.displayed.previewing and not self.processes.starting:
            self._end_preview()
        self.playback.advance()
        self._advance_forecast()
        recorded = self._recorded
        self._record()
        return self._recorded and not recorded

    def next_advance(self) -> float | None:
        """Return the wall seconds until `advance` may have work, or None if the session is idle."""
        pause = self.playback.next_advance()
        if self.forecaster is None or self.forecaster.done:
            return pause
        return min(POLL if self.playback.trains else SLICE, pause or POLL)

    def _advance_forecast(self) -> None:
        """Compute the forecast of the displayed run for a short time, if it is not complete."""
        shown, own = self.displayed.run, not self.displayed.is_preview
        if self.calibration is not self._forecast_with:
            self._forecast_with = self.calibration
            begun = self.displayed.began_with
            self.forecaster = forecaster_of(begun.spec, self.calibration) if shown is not None and own else None
        if self.forecaster is None:
            return
        if shown is not None and own:
            self.forecaster.follow(shown)
        self.forecaster.advance(FORECAST_SLICE if self.playback.trains else FORECAST_IDLE_SLICE)
