"""`lk.Lab()`: the laboratory. Every button calls a method of this class, and every method also works without a browser.

The lab connects a session (the displayed run), a scenario runner, a command queue with its thread, and a page (widgets
and the drawing thread). The panels are a function of the trace and of the displayed time.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from copy import copy
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from numpy.typing import ArrayLike

from ..engines import command_methods
from ..engines.base import Cluster
from ..engines.command_words import WORDS
from ..engines.commands import Command, log_text, parse_log
from ..engines.dask import DaskCluster
from ..errors import BadInput, LabkitError, nearest, shown
from ..forecasts.calibration import Calibration
from ..forecasts.forecast import Forecasts
from ..forecasts.sweeps import Sweep
from ..narrative import log_lines, sentence
from ..narrative.log import Log
from ..problem import Problem
from ..roles.budget import Budget
from ..run import Run
from ..strategies import Strategy
from ..table import Table
from ..trace import Trace
from ..trace.schema import NANO
from ..views import LabFigure, overview
from ..views.forecast import comparison_table
from .buttons import buttons_of
from .cells import forget, in_kernel, output_name, remember, stale, this_cell, this_execution
from .command_thread import CommandQueue
from .control_widget import ControlWidget
from .experiments import Experiments, ExperimentTask
from .inquiry import Answer, Inquiry
from .page import Page
from .page.widget import widget_view
from .processes import Processes
from .run_table import Runs
from .scenario_runner import ScenarioRunner
from .scenarios import SCENARIOS, scenario_by_name
from .session import Session
from .settings import Settings, initial_settings
from .share_text import read_share_text, share_text
from .static_page import StaticOutput, static_page
from .view import View, make_view

if TYPE_CHECKING:
    import ipywidgets

_numbers = count(1)

CLOSED = "closed: run the cell again"
SAVED = "a picture of the last run; to use the lab, run the cell"


class Lab:
    """A live laboratory in a notebook. It is displayed if it is the last expression of a cell.

    `lk.Lab()` without arguments is ready to run. No method needs a browser: `lk.Lab().run().wait()` works in a script. Methods
    that act on the lab return it, so that calls can be chained. They raise `BadInput` if the action is not possible.

    Parameters
    ----------
    problem : Problem or str, optional
        The problem of the first run, or the name of a data set.
    strategy : Strategy or str, optional
        The strategy of the first run, or its name.
    cluster : DaskCluster or SimulatedCluster, optional
        The cluster of the first run.
    budget : Budget, optional
        The budget of the first run.
    run : Run, optional
        A run to show, which may be active or over (as `run.watch()` does).
    scenario : str, optional
        The name of a prepared experiment, see `scenarios`.
    controls : str or iterable of str, optional
        The names of the settings that can be changed on the page. By default all; () for none.
    panels : str or iterable of str, optional
        The names of the panels, in order. By default the first view.
    speed : float, optional
        Seconds of virtual time per second at which simulated runs are played, by default 1. The lab plays a simulated `run` only
        if `speed` is given, or after Resume, because the program that started the run may advance it.

    Raises
    ------
    BadInput
        If the arguments do not fit together.

    Examples
    --------
    Without a browser, as in a script:

    >>> cluster, budget = lk.SimulatedCluster(workers=4), lk.Budget(updates=100)
    >>> with lk.Lab(strategy="ssp", cluster=cluster, budget=budget) as lab:
    ...     updates = lab.slow("worker-2", 5).run().wait().latest.summary()["updates"]
    >>> updates
    100
    """

    def __init__(
        self, problem: Problem | str | None = None, strategy: Strategy | str | None = None, cluster: Cluster | None = None,
        budget: Budget | None = None, *, run: Run | None = None, scenario: str | None = None,
        controls: Iterable[str] | str | None = None, panels: Iterable[str] | str | None = None, speed: float | None = None,
    ):  # fmt: skip
        settings = initial_settings(problem, strategy, cluster, budget, run)
        settings = settings.changed(speed=1.0 if speed is None else speed)
        chosen = scenario_by_name(scenario) if scenario is not None else None
        self._closed = self._displayed = False
        self._displayed_by: str | None = None  # the execution of a cell
        self._static_lock = threading.Lock()
        self._static_of: tuple[int, int, int, str] | None = None  # what the static output shows
        self._close_lock = threading.Lock()
        cell = this_cell()
        earlier = stale(cell)
        given = cluster if isinstance(cluster, DaskCluster) else run.engine.cluster if run is not None else None
        if run is not None and isinstance(given, DaskCluster) and given.is_closed:
            given = None  # the run is over, and its processes have ended
        calibration = next((old.calibration for old in earlier), None)
        self._processes = Processes(given) if isinstance(given, DaskCluster) else _inherited_processes(earlier)
        self.session = Session(settings, self._processes)
        self.session.calibration = calibration
        self.inquiry = Inquiry(self.session)
        self._controls: list[ControlWidget] = []
        self._scenarios = ScenarioRunner(self.session, chosen, self._watched)
        self._given_run = run  # belongs to the program that started it, so closing the lab does not stop it
        self._queue = CommandQueue(f"labkit-lab-{next(_numbers)}", self._scenarios, self._changed)
        self._pressed: Command | None = None  # the last button, if it is one of a command
        self._experiments = Experiments(self.session, self._experiment_changed)
        self.session.occupied = self._experiments.occupied
        self._buttons = buttons_of(self.session, self._scenarios, self._experiments, self.seek, self.live, self._play)
        if run is not None:
            self.session.adopt(run, settings, play=speed is not None)
        self._page: Page | None = None
        names = _names(panels)
        if names is None and chosen is not None:
            names = chosen.panels
        name = output_name()
        self._page = Page(self, names, _names(controls), awake=in_kernel(), idle=self._idle, output=name)
        self._static = StaticOutput(self._page.widget.model_id, name)
        remember(self, cell, sum(old.closed for old in earlier))
        if run is not None:
            self._queue.wake()

    # running ----------------------------------------------------------------------------------------------------------

    def run(self) -> Self:
        """Start the chosen scenario, or a run with the present settings if no scenario was chosen.

        It returns at once; see `wait`.
        """
        return self._do("run")

    def pause(self) -> Self:
        """Pause the run (or the replay)."""
        return self._do("pause")

    def resume(self) -> Self:
        """Continue after a pause."""
        return self._do("resume")

    def stop(self) -> Self:
        """End the run now, with a final evaluation. This also ends a scenario."""
        return self._do("stop")

    def reset(self) -> Self:
        """End the run, and prepare the same run again, with the same settings and the same seed."""
        return self._do("reset")

    def step(self) -> Self:
        """Go to the next applied update, and pause there."""
        return self._do("step")

    def seek(self, seconds: float) -> Self:
        """Show an earlier time of the run in all panels.

        Parameters
        ----------
        seconds : float
            The time of the run in seconds, at least 0.
        """
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
            raise BadInput(f"seek({seconds!r}): give a time of the run in seconds, 0 or more.")
        self.session.playback.seek(round(min(seconds, 1e9) * NANO))
        self._changed()
        return self

    def live(self) -> Self:
        """Show the present again."""
        self.session.playback.live()
        self._queue.wake()
        return self

    def what_if(self) -> Self:
        """Repeat a simulated run up to the displayed time, and continue from there.

        The previous run becomes the reference run.
        """
        return self._do("what_if")

    def wait(self, timeout: float | None = None, *, fast: bool = False) -> Self:
        """Wait until the lab is idle.

        It is idle if the run or the scenario is over, a question waits for its answer, or a program has paused the run. The
        forecast of the run is then complete. The lab is displayed first, if no cell has displayed it. Ctrl-C stops the run.

        Parameters
        ----------
        timeout : float, optional
            Wall seconds after which the call gives up. By default there is no limit.
        fast : bool, default: False
            Whether simulated runs are advanced as fast as possible (as always in a script), not played at their speed.

        Raises
        ------
        TimeoutError
            After `timeout` seconds.
        LabkitError
            The error that ended the run, if it was an error.
        """
        self._display()
        if self.session.displayed.run is self._given_run and self.session.displayed.simulated and not self._queue.held:
            self._do("resume")
        try:
            self._queue.rest(timeout, fast or not in_kernel())
        except KeyboardInterrupt:
            self.press("stop")
            raise
        run = self.session.displayed.run
        error: Exception | None = run.engine.error if run is not None else None
        if error is None:
            error = self._queue.error
        if error is not None:
            raise error
        self._changed()
        if self._page is not None:
            self._page.join(10)  # the last frame
        self._renew_static(self.session.playback.moment(), SAVED)
        return self

    # changing ---------------------------------------------------------------------------------------------------------

    def set(self, **settings: Any) -> Self:
        """Change settings. Live options affect the present run, and all other settings affect the next run.

        Parameters
        ----------
        **settings : object
            New values by the names of settings, as `workers=8`.
        """
        return self._do("set", settings)

    def control(self, name: str) -> ipywidgets.Widget:
        """Return a widget that shows and changes a setting, for a layout of your own.

        A value that is not allowed is refused: the page shows why, and the widget shows the setting again. The widget is disabled
        while the setting has no effect, and after `close`.

        Parameters
        ----------
        name : str
            The name of the setting.

        Returns
        -------
        ipywidgets.Widget
            The widget.

        Raises
        ------
        BadInput
            If the name is unknown or has no control.

        Examples
        --------
        >>> import ipywidgets
        >>> lab = lk.Lab(controls=())
        >>> row = ipywidgets.HBox([lab.control("workers"), lab.control("learning_rate")])
        >>> lab.close()
        """
        self._check_open()
        made = ControlWidget(name, lambda: self.session.next_run.settings, self._choose)
        if not self._controls:
            self.session.next_run.observe(self._show_controls)
        self._controls.append(made)
        return made.widget

    def _choose(self, name: str, value: Any) -> None:
        self.press("set", {name: value})

    def _show_controls(self) -> None:
        for control in list(self._controls):
            control.show()

    def answer(self, answer: int | str) -> Self:
        """Answer the question of the scenario.

        Parameters
        ----------
        answer : int or str
            The number of the answer, from 0, or its text.
        """
        return self._do("answer", answer)

    def play(self, scenario: str) -> Self:
        """Play a scenario.

        Parameters
        ----------
        scenario : str
            The name of the scenario, see `scenarios`.
        """
        return self._do("play", scenario)

    def pin(self, number: int | None = None) -> Self:
        """Make a run the reference run, with which later runs are compared in the panels.

        Parameters
        ----------
        number : int, optional
            The number of the run in the table. By default the displayed run.
        """
        return self._do("pin", number)

    def undo(self) -> Self:
        """Undo the last fault, or the last change of settings, that was made on the page or with a method of the lab."""
        return self._do("undo")

    def unpin(self) -> Self:
        """Remove the reference run."""
        return self._do("unpin")

    def show_run(self, number: int) -> Self:
        """Show a finished run again.

        Parameters
        ----------
        number : int
            The number of the run in the table.
        """
        return self._do("show_run", number)

    # calibrating and forecasting ---------------------------------------------------------------------------------------

    def calibrate(self, seconds: float = 10.0) -> Self:
        """Measure the costs of the lab's cluster with the lab's problem, as `lk.calibrate` does.

        The call returns when they are measured; `calibration` is the result. Runs on the cluster, the displayed one and the
        following ones, are then compared with their forecast in the panels. Ctrl-C cancels the measurement.

        Parameters
        ----------
        seconds : float, default: 10
            The time of all probes together, from 1 to 3600. Starting the processes and computing the costs takes about twenty
            seconds more.

        Raises
        ------
        BadInput
            If a run is active, if the cluster has no costs to measure because its times are settings, or if another measurement
            is in progress.
        LabkitError
            If the measurement failed or was cancelled.

        Examples
        --------
        On a simulated cluster with known costs, instead of processes:

        >>> costs = lk.Costs(lk.WorkCost(1e-3), send=lk.Linear(2e-5), receive=lk.Linear(3e-5), cores=2)
        >>> cluster = lk.SimulatedCluster(workers=4, compute=None, costs=costs)
        >>> with lk.Lab("moons", "async-ps", cluster) as lab:
        ...     calibration = lab.calibrate(seconds=1).calibration
        >>> print(f"{1000 * calibration.costs.gradient(1000, 32):.2f} ms")
        1.00 ms
        """
        self._experiment("calibrate", seconds)
        return self

    @property
    def calibration(self) -> Calibration | None:
        """The measured costs of the cluster, or None.

        It can be set to a `Calibration`, to the path of a file that `Calibration.save` has written, or to None. With a
        calibration, a run on the cluster is shown with its forecast. A share text does not contain it.
        """
        return self.session.calibration

    @calibration.setter
    def calibration(self, calibration: Calibration | str | Path | None) -> None:
        self._check_open()
        if isinstance(calibration, str | Path):
            calibration = Calibration.load(calibration)
        if not isinstance(calibration, Calibration | None):
            raise BadInput(
                f"calibration={shown(calibration)}: give the result of lk.calibrate, the path of its file, or None."
            )
        self.session.calibration = calibration
        self._queue.wake()

    @property
    def comparison(self) -> Table | None:
        """The displayed run and its forecast up to the displayed time, as a table.

        It has the measured and the forecast throughput and mean staleness, with the difference in per cent of the measured
        value. None without a forecast, or with too few gradients.
        """
        return comparison_table(self.session.forecast, self.trace, self.session.playback.moment())

    def forecast(self, workers: int, *, hosts: int | None = None, seeds: int = 3) -> Forecasts:
        """Forecast the run of the present settings with another number of workers, as `lk.forecast` does.

        The result has the present number of workers, too. The call returns when the runs are simulated. A run is simulated for
        at most 2,000 gradients (with more than 20 workers, 100 for each worker).

        Parameters
        ----------
        workers : int
            The number of workers.
        hosts : int, optional
            The number of hosts. None: as many as were measured.
        seeds : int, default: 3
            The number of simulated runs of each size.

        Returns
        -------
        Forecasts
            Throughput, staleness, bytes and time to the target accuracy (95% if the budget has none).

        Raises
        ------
        BadInput
            If the lab has no calibration, if an argument is not allowed, or if processes train, from which the simulations would
            take time.
        LabkitError
            If the forecast was cancelled.

        Examples
        --------
        What if there were 32 workers?

        >>> costs = lk.Costs(lk.WorkCost(1e-3), send=lk.Linear(2e-5), receive=lk.Linear(3e-5), cores=2)
        >>> cluster = lk.SimulatedCluster(workers=4, compute=None, costs=costs)
        >>> with lk.Lab("moons", "async-ps", cluster, lk.Budget(updates=100)) as lab:
        ...     forecasts = lab.calibrate(seconds=1).forecast(workers=32, seeds=1)
        >>> forecasts.sweep.values("workers")
        [4, 32]
        """
        found: Forecasts = self._experiment("forecast", workers, hosts, seeds)
        return found

    def play_forecast(self, workers: int, *, hosts: int | None = None) -> Self:
        """Start a simulated run of the present settings with another number of workers, on a cluster with the measured costs.

        The displayed run becomes the reference run, and the settings do not change.

        Parameters
        ----------
        workers : int
            The number of workers.
        hosts : int, optional
            The number of hosts. None: as many as were measured.
        """
        return self._do("play_forecast", workers, hosts)

    def sweep(self, setting: str, values: Iterable[Any] | None = None, *, seeds: int = 3) -> Sweep:
        """Simulate runs of the present settings with several values of one setting, as `lk.sweep` does.

        With a calibration, a run on processes is simulated with the measured costs; otherwise as with the engine "simulated". The
        call returns when all runs are over; the page shows results as they come. A run is simulated for at most 2,000 gradients
        (with more than 20 workers, 100 for each worker).

        Parameters
        ----------
        setting : str
            The name of the setting, as "workers" or "learning_rate".
        values : iterable, optional
            Its values. By default up to seven values from its range.
        seeds : int, default: 3
            The number of runs of each value.

        Returns
        -------
        Sweep
            One row per run.

        Raises
        ------
        BadInput
            If there is no such setting, if a value is not allowed, if the setting has no numeric range and no values are given,
            or if processes train, from which the simulations would take time.
        LabkitError
            If the sweep was cancelled.

        Examples
        --------
        >>> cluster, budget = lk.SimulatedCluster(workers=4), lk.Budget(updates=60)
        >>> with lk.Lab("moons", "async-ps", cluster, budget) as lab:
        ...     found = lab.sweep("workers", [1, 2, 4], seeds=1)
        >>> [round(value) for value in found.values("staleness")]
        [0, 1, 3]
        """
        several = None if values is None else (values,) if isinstance(values, str) else _values(values)
        found: Sweep = self._experiment("sweep", setting, several, seeds)
        return found

    def cancel(self) -> Self:
        """Cancel the calibration, the forecast or the sweep in progress, if there is one."""
        return self._do("cancel")

    def _experiment(self, name: str, *arguments: Any) -> Any:
        """Start the task of a button, and wait for its result. Ctrl-C cancels it."""
        self._check_open()
        self._display()
        task: ExperimentTask = self._call(name, *arguments)
        return task.wait()

    def _experiment_changed(self) -> None:
        """A task has made progress, or has ended: its calibration is used by the command thread, and its error is shown."""
        task = self._experiments.task
        if task is not None and not task.active:
            if task.progress.problem:
                self._queue.refuse(task.progress.problem)
            self._queue.wake()
        self._changed()

    # asking the model -------------------------------------------------------------------------------------------------

    def ask(self, sample: ArrayLike | int = 0) -> Answer:
        """Ask the model that the displayed run trains what it predicts for a sample, also while it trains.

        The page shows the sample with the answer, which changes whenever the run has evaluated newer weights. There, pictures can
        be drawn.

        Parameters
        ----------
        sample : array_like or int, default: 0
            The values of a sample that is not standardised, as for `Predictor.predict`, or the number of a held-out sample.

        Returns
        -------
        Answer
            The answer of the newest evaluated weights: `predicted`, the class; `names` and `values`, the classes and their
            probabilities or, for a regression, the predicted values; `update` and `time` of the weights.

        Raises
        ------
        BadInput
            If the sample does not fit the data, if nothing has been evaluated yet, or if an earlier time is displayed, whose
            weights are not kept.
        LabkitError
            If a model of your own fails.

        Examples
        --------
        >>> cluster, budget = lk.SimulatedCluster(workers=4), lk.Budget(updates=100)
        >>> with lk.Lab("digits", "sync-ps", cluster, budget) as lab:
        ...     answer = lab.run().wait().ask(0)
        >>> answer.predicted == answer.names[answer.truth], answer.update, answer.values.shape
        (True, 100, (10,))
        """
        self._check_open()
        self.inquiry.ask(sample)
        answer = self.inquiry.answer()
        self._changed()
        if answer.problem:
            raise BadInput(f"ask: {answer.problem}")
        return answer

    # commands ---------------------------------------------------------------------------------------------------------

    def execute(self, command: Command) -> Self:
        """Execute a command on the present run, at once, as `Run.execute` does.

        Before the first run, a `Slow` becomes a setting of the next run.

        Parameters
        ----------
        command : Command
            The command, for example `lk.Kill("worker-1")`.

        Raises
        ------
        BadInput
            For other commands, if no run is active.
        """
        self._check_open()
        words = WORDS.get(type(command))
        self._execute(words.progress if words is not None else "working", self.session.history.execute, command)
        return self

    slow = command_methods.slow
    kill = command_methods.kill
    restart = command_methods.restart
    freeze = command_methods.freeze
    thaw = command_methods.thaw
    cut = command_methods.cut
    reconnect = command_methods.reconnect
    limit = command_methods.limit
    delay = command_methods.delay
    drop = command_methods.drop

    # reading, at any time and from any thread ---------------------------------------------------------------------------

    @property
    def trace(self) -> Trace:
        """The trace of the displayed run; before the first run, an empty trace of the next run."""
        return self.session.displayed.trace

    @property
    def latest(self) -> Run | None:
        """The displayed run; None before the first run."""
        return self.session.displayed.run

    @property
    def settings(self) -> Settings:
        """The settings of the next run."""
        return self.session.next_run.settings

    @property
    def cluster(self) -> DaskCluster:
        """The cluster of processes of this lab. It may not be started yet."""
        return self._processes.cluster

    @property
    def runs(self) -> Runs:
        """The finished runs, as a table."""
        return Runs({"run": entry.number, **entry.row} for entry in self.session.table)

    @property
    def traces(self) -> list[Trace]:
        """The traces of the runs in the table, oldest first. If there are many runs, only the last traces are kept."""
        return [entry.trace for entry in self.session.table if entry.trace is not None]

    @property
    def log(self) -> Log:
        """The events up to the displayed time, one per line."""
        return Log(log_lines(self.trace, self.session.playback.moment()))

    @property
    def sentence(self) -> str:
        """The content of the panels as text, in a few sentences."""
        return sentence(self.trace, self.session.playback.moment(), self.session.reference)

    @property
    def question(self) -> str | None:
        """The question of the scenario with its answers; None if the scenario has no question."""
        asked = self._scenarios.question
        return f"{asked.text} {' / '.join(asked.answers)}" if asked is not None else None

    @property
    def answered(self) -> str | None:
        """The text of the answer that was given; None if no answer was given yet."""
        question, answer = self._scenarios.question, self._scenarios.answer
        return question.answers[answer] if question is not None and answer is not None else None

    @staticmethod
    def scenarios() -> dict[str, str]:
        """Return the prepared experiments, which `lk.Lab(scenario=...)` and `play` accept.

        Returns
        -------
        dict of str to str
            {name: title}.
        """
        return {name: scenario.title for name, scenario in SCENARIOS.items()}

    def export_csv(self, path: str | Path) -> Path:
        """Write the table of runs to a CSV file.

        Parameters
        ----------
        path : str or Path
            The file.

        Returns
        -------
        Path
            The path.
        """
        return self.runs.to_csv(path)

    def snapshot(self) -> LabFigure:
        """Return a static figure of the displayed time, for reports and for pages without widgets.

        Returns
        -------
        LabFigure
            A matplotlib Figure.
        """
        return overview(self.trace, self.session.playback.moment(), self.session.reference)

    # as a text --------------------------------------------------------------------------------------------------------

    def share_text(self) -> str:
        """Return the lab as a short text, from which `Lab.from_share_text` creates an equal lab.

        The text contains settings, scenario, panels, and the commands that were executed on the run. A run in virtual
        time is then repeated bit for bit.

        Returns
        -------
        str
            The text.

        Raises
        ------
        BadInput
            If a setting is a user-defined object, which has no text.

        Examples
        --------
        >>> with lk.Lab(strategy="ssp", cluster=lk.SimulatedCluster(workers=8)) as lab:
        ...     print(lab.share_text())
        strategy=ssp&...workers=8...
        """
        scenario = self._scenarios.scenario
        done = log_text(self.session.displayed.command_log()) if scenario is None else ""
        panels = self._page.chosen if self._page is not None else None
        more = {"scenario": scenario.name if scenario else "", "panels": ",".join(panels or ()), "done": done}
        given = {name: text for name, text in more.items() if text}
        return share_text(self.session.displayed.began_with if done else self.settings, **given)

    @classmethod
    def from_share_text(cls, text: str, **options: Any) -> Lab:
        """Create a lab from the output of `share_text()` of another lab.

        Parameters
        ----------
        text : str
            The text.
        **options : object
            The arguments `controls`, `panels` and `speed` of the lab.

        Returns
        -------
        Lab
            The lab, which is ready to run.
        """
        settings, more = read_share_text(text, ("scenario", "panels", "done"))
        if "panels" in more:
            options.setdefault("panels", tuple(more["panels"].split(",")))
        commands = parse_log(more.get("done", ""))
        lab = cls(scenario=more.get("scenario"), **options)
        lab.session.prepare(settings, commands)
        lab._changed()
        return lab

    # the page ---------------------------------------------------------------------------------------------------------

    def press(self, name: str, *arguments: object) -> None:
        """Do what a button of the page does, as soon as possible. An error is shown on the page, and not raised.

        Parameters
        ----------
        name : str
            The name of the button: that of a method of the lab which does the same, as "pause" or "kill".
        *arguments : object
            What the page sends: the arguments of the method, and {name: value or text} for "set".

        Raises
        ------
        BadInput
            If there is no such button.
        TypeError
            If it takes another number of arguments.
        """
        if self._closed:
            return
        if name not in self._buttons:
            raise nearest("button", name, self._buttons)
        button = self._buttons[name]
        try:
            given = button.arguments(arguments)
            if button.at_once is not None:
                button.at_once(*given)
        except LabkitError as error:
            self._queue.refuse(str(error))
            return
        if button.operation is not None:
            self._pressed = given[0] if given and isinstance(given[0], Command) else None
            holds = button.holds and self.session.displayed.active
            self._queue.press(button.doing, partial(button.operation, *given), button.once, holds)

    def _watched(self) -> bool:
        return self._page is not None and self._page.watched

    def view(self) -> View:
        """Return the present state of the lab, from which the page is drawn.

        Returns
        -------
        View
            The state, as a value.
        """
        command = self._pressed if self._queue.busy else None
        return make_view(
            self.session,
            self._scenarios,
            self._queue.busy,
            self._queue.problem,
            self._experiments,
            command,
            self.inquiry,
        )

    @property
    def drawing(self) -> bool:
        """Whether the page is being drawn, or will be drawn again even if nothing changes."""
        return self._page is not None and self._page.drawing

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def _ipython_display_(self) -> None:
        """Display the page, and below it the static output for readers without a kernel."""
        from IPython.display import display

        assert self._page is not None
        if self._closed:
            self._static.show(
                static_page(self.trace, self.session.playback.moment(), self.session.reference, CLOSED), repr(self)
            )
            return
        execution = this_execution()
        if execution is not None and execution == self._displayed_by:
            return  # `lab.wait()` at the end of a cell has displayed it, and the cell displays its last value
        self._displayed, self._displayed_by = True, execution
        display(widget_view(self._page.widget), raw=True)
        first = static_page(self.trace, self.session.playback.moment(), self.session.reference, SAVED, picture=False)
        self._static.show(first, repr(self))
        self._page.displayed()
        self._changed()

    def _idle(self) -> None:
        """The page is drawn and nothing moves. Renew the static output once per run, if a browser shows the page: in a notebook
        that runs without a browser, `wait` does it while the cell can still receive it.
        """
        if self._watched() and self.session.playback.state in ("over", "failed"):
            self._renew_static(self.trace.watermark(), SAVED)

    def _renew_static(self, t: int, state: str) -> None:
        """Renew the static output, unless it shows this moment already."""
        trace, reference = self.trace, self.session.reference
        shown = id(trace), t, id(reference), state
        with self._static_lock:
            final = self._closed and state != CLOSED  # the page may draw its last frame after `close` has begun
            if self._static.displayed and shown != self._static_of and not final:
                self._static.renew(static_page(trace, t, reference, state), repr(self), closed=state == CLOSED)
                self._static_of = shown

    def __repr__(self) -> str:
        return "<labkit Lab>"

    def close(self, keep_processes: bool = False) -> None:
        """Stop the run, the threads and the processes of the lab, and remove the lab from the page. Idempotent.

        A run or a cluster that was given to the lab is not stopped.

        Parameters
        ----------
        keep_processes : bool, default: False
            Whether the processes are not stopped, either.
        """
        with self._close_lock:
            if self._closed:
                return
            self._closed = True
        self._experiments.close()
        if self._given_run is None or self.session.displayed.run is not self._given_run:
            with contextlib.suppress(LabkitError, RuntimeError):
                self._queue.call("closing", self.session.end)
        else:
            self.session.displayed.run = copy(
                self._given_run
            )  # a closed lab shows it, and does not keep it (see `cells.py`)
        self._given_run = None
        self._queue.close()
        self.inquiry.close()
        self._renew_static(self.session.playback.moment(), CLOSED)
        if self._page is not None:
            self._page.close()
        for control in self._controls:
            control.disable()
        forget(self)
        if not keep_processes:
            self._processes.close()

    def hand_over_processes(self) -> Processes | None:
        """Close the lab without stopping its processes.

        Returns
        -------
        Processes or None
            The processes; None if the cluster was given to the lab.
        """
        self.close(keep_processes=True)
        return self._processes if self._processes.ours else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # buttons ----------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise BadInput("This lab is closed; make a new one.")

    def _do(self, name: str, *arguments: Any) -> Self:
        """Do what a button does, and wait for it."""
        self._check_open()
        self._call(name, *arguments)
        return self

    def _call(self, name: str, *arguments: Any) -> Any:
        button = self._buttons[name]
        if button.at_once is not None:
            button.at_once(*arguments)
        assert button.operation is not None
        return self._execute(button.doing, button.operation, *arguments)

    def _execute(self, doing: str, operation: Callable[..., Any], *arguments: Any) -> Any:
        """Execute an operation on the command thread, and return its result."""
        self._pressed = None
        result = self._queue.call(doing, partial(operation, *arguments))
        self._changed()
        return result

    def _play(self, name: str | None) -> None:
        scenario = scenario_by_name(name) if name else None
        self._scenarios.choose(scenario)
        if scenario is None:
            return
        if self._page is not None:
            self._page.choose(scenario.panels)
        self._scenarios.start()

    def _changed(self) -> None:
        """Notify the page of a change, if the lab may be displayed."""
        if self._page is not None and (self._displayed or in_kernel()):
            self._page.wake()

    def _display(self) -> None:
        from IPython.display import display

        if not self._displayed and not self._closed and in_kernel():
            display(self)


def _values(given: Any) -> tuple[Any, ...]:
    """Return the values of a setting as a tuple."""
    try:
        return tuple(given)
    except TypeError:
        raise BadInput(f"values={shown(given)}: give a list of values.") from None


def _names(given: Iterable[str] | str | None) -> tuple[str, ...] | None:
    """Return one name or several names as a tuple."""
    return (given,) if isinstance(given, str) else tuple(given) if given is not None else None


def _inherited_processes(earlier: list[Lab]) -> Processes:
    """Return the processes of one of the labs that an earlier execution of this cell made. That lab is closed.

    If there was no such lab, return a new object, whose processes are not started yet.
    """
    for old in earlier:
        kept: Processes | None = old.hand_over_processes()
        if kept is not None:
            return kept
    return Processes()
