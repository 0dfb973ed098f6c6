"""`lk.Lab()`: the laboratory. Every button calls a method here, which works without a browser too.

The lab connects a session (the displayed run), a scenario runner, a command queue with its thread, and a page (widgets and
the drawing thread). What is shown is a function of the trace and of the displayed time.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Self

from ..engines.commands import Command, Cut, Freeze, Kill, Reconnect, Restart, Slow, Thaw, log_text, parse_log
from ..engines.dask import DaskCluster
from ..errors import BadInput, LabkitError
from ..narrative import log_lines, sentence
from ..narrative.log import Log
from ..problem import Problem
from ..roles.budget import Budget
from ..run import Run
from ..strategies import Strategy
from ..trace import Trace
from ..trace.schema import NANO
from ..views import LabFigure, overview
from . import actions
from .actions import Action
from .cells import forget, in_kernel, remember, stale, this_cell
from .command_thread import CommandQueue
from .page import Page
from .processes import Processes
from .run_table import Runs
from .scenario_runner import ScenarioRunner
from .scenarios import SCENARIOS, scenario_by_name
from .session import Session
from .settings import Settings, initial_settings
from .share_text import read_share_text, share_text
from .view import View, make_view

__all__ = ["Lab"]

_numbers = count(1)


class Lab:
    """A live laboratory in a notebook: the last expression of a cell shows it.

    `lk.Lab()` without arguments is ready to run. `problem`, `strategy`, `cluster`, `budget`: the parts of the first run. `run`:
    show this run, which is active or over (`run.watch()`). `scenario`: a prepared experiment, by its name
    (`lk.Lab.scenarios()`). `controls`: which settings can be changed on the page (names; None: all; empty: none). `panels`:
    which panels, in order (None: the first view). `speed`: seconds of virtual time per second at which simulated runs are
    played (1). A given run is played only if `speed` is given, or after Resume: until then the program that started it may
    advance it.

    No method needs a browser: `lk.Lab().run().wait()` works in a script. Raises `BadInput` at once if the arguments do not fit
    together.
    """

    def __init__(
        self, problem: Problem | str | None = None, strategy: Strategy | str | None = None, cluster: Any = None,
        budget: Budget | None = None, *, run: Run | None = None, scenario: str | None = None,
        controls: Iterable[str] | str | None = None, panels: Iterable[str] | str | None = None, speed: float | None = None,
    ):  # fmt: skip
        settings = initial_settings(problem, strategy, cluster, budget, run)
        settings = settings.changed(speed=1.0 if speed is None else speed)
        chosen = scenario_by_name(scenario) if scenario is not None else None
        self._closed = self._displayed = False
        self._close_lock = threading.Lock()
        cell = this_cell()
        given = cluster if isinstance(cluster, DaskCluster) else run.engine.cluster if run is not None else None
        self._processes = Processes(given) if isinstance(given, DaskCluster) else _inherited_processes(cell)
        self.session = Session(settings, self._processes)
        self._scenarios = ScenarioRunner(self.session, chosen)
        self._given_run = run  # stays with the program that started it: closing the lab does not stop it
        self._queue = CommandQueue(f"labkit-lab-{next(_numbers)}", self._scenarios, self._changed)
        if run is not None:
            self.session.adopt(run, settings, play=speed is not None)
        self._page: Page | None = None
        names = _names(panels)
        if names is None and chosen is not None:
            names = chosen.panels
        self._page = Page(self, names, _names(controls), awake=in_kernel())
        remember(self, cell)
        if run is not None:
            self._queue.wake()

    # running ----------------------------------------------------------------------------------------------------------

    def run(self) -> Self:
        """Start the scenario, if one was chosen, else a run with the present settings. Returns at once; see `wait`."""
        return self._do(actions.Start())

    def pause(self) -> Self:
        """Pause the run (or the replay)."""
        return self._do(actions.Pause())

    def resume(self) -> Self:
        """Return the go on after a pause."""
        return self._do(actions.Resume())

    def stop(self) -> Self:
        """End the run now, with a final evaluation; this ends a scenario, too."""
        return self._do(actions.Stop())

    def reset(self) -> Self:
        """End the run, and prepare the same one again, with the same settings and the same seed."""
        return self._do(actions.Reset())

    def step(self) -> Self:
        """Return the go to the next applied update, and pause there."""
        return self._do(actions.Step())

    def seek(self, seconds: float) -> Self:
        """Show an earlier time of the run in all panels."""
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
            raise BadInput(f"seek({seconds!r}): give a time of the run in seconds, 0 or more.")
        self.session.seek(round(min(seconds, 1e9) * NANO))
        self._changed()
        return self

    def live(self) -> Self:
        """Show the present again."""
        self.session.live()
        self._queue.wake()
        return self

    def what_if(self) -> Self:
        """Repeat a simulated run up to the displayed time, and continue from there. The run so far becomes the reference run.
        """
        return self._do(actions.WhatIf())

    def wait(self, timeout: float | None = None, *, fast: bool = False) -> Self:
        """Wait until the lab is idle: the run or the scenario is over, a question waits for its answer, or a program has paused
        the run. Displays the lab first, if no cell has.

        `fast`: simulated runs are not played at their speed but advanced as fast as possible, as always in a script. Raises the
        error that ended the run; `TimeoutError` after `timeout` seconds. Ctrl-C stops the run.
        """
        self._display()
        if self.session.run is self._given_run and self.session.simulated and not self._queue.held:
            self._do(actions.Resume())
        try:
            self._queue.rest(timeout, fast or not in_kernel())
        except KeyboardInterrupt:
            self.press(actions.Stop())
            raise
        run = self.session.run
        error: Exception | None = run.engine.error if run is not None else None
        if error is None:
            error = self._queue.error
        if error is not None:
            raise error
        self._changed()
        if self._page is not None:
            self._page.join(10)  # the last frame
        return self

    # changing ---------------------------------------------------------------------------------------------------------

    def set(self, **settings: Any) -> Self:
        """Change settings by name: live options affect the present run, all others the next run."""
        self.session.change(settings)
        return self._do(actions.ChangeSettings(settings))

    def answer(self, answer: int | str) -> Self:
        """Return the answer the question of the scenario, by the number of the answer (0 is the first) or its text."""
        self._scenarios.commit(answer)
        return self._do(actions.Answer(answer))

    def play(self, scenario: str) -> Self:
        """Return the play a scenario, by its name (`lk.Lab.scenarios()`)."""
        return self._do(actions.PlayScenario(scenario))

    def pin(self, number: int | None = None) -> Self:
        """Make this run (or run `number` of the table) the reference run: later runs are drawn over it."""
        return self._do(actions.Pin(number))

    def unpin(self) -> Self:
        """Remove the reference run."""
        return self._do(actions.Unpin())

    def show_run(self, number: int) -> Self:
        """Show run `number` of the table again."""
        return self._do(actions.ShowRun(number))

    # commands ---------------------------------------------------------------------------------------------------------

    def execute(self, command: Command) -> Self:
        """Execute a command on the present run, at once, as `run.execute` does: `lab.execute(lk.Kill("worker-1"))`.

        Before the first run a `Slow` is a setting of the next run. `BadInput` for other commands while no run is active.
        """
        return self._do(actions.Execute(command))

    def slow(self, role: str, factor: float) -> Self:
        """Make a role compute `factor` times slower; 1 undoes it."""
        return self.execute(Slow(role, factor))

    def kill(self, role: str, restart: bool = True) -> Self:
        """Return the kill a role: on a cluster its process, with SIGKILL. It is restarted automatically; with
        `restart=False` it stays down until `restart(role)`, as after the Kill button, so that the effect of its absence
        can be observed.
        """
        return self.execute(Kill(role, restart=restart))

    def restart(self, role: str) -> Self:
        """Restart a role that is down: its next incarnation restores the last checkpoint."""
        return self.execute(Restart(role))

    def freeze(self, role: str) -> Self:
        """Return the suspend a role's process (SIGSTOP); after the cluster's heartbeat timeout (`patience`) it is
        declared lost.
        """
        return self.execute(Freeze(role))

    def thaw(self, role: str) -> Self:
        """Resume a suspended process; an incarnation that was declared lost in the meantime is shut down."""
        return self.execute(Thaw(role))

    def cut(self, role: str, peer: str | None = None) -> Self:
        """Return the cut the links between a role and `peer`; None: every other role."""
        return self.execute(Cut(role, peer))

    def reconnect(self, role: str, peer: str | None = None) -> Self:
        """Undo `cut`: messages that were held are delivered now."""
        return self.execute(Reconnect(role, peer))

    # reading, at any time and from any thread ---------------------------------------------------------------------------

    @property
    def trace(self) -> Trace:
        """The trace of the run that is shown."""
        return self.session.trace

    @property
    def latest(self) -> Run | None:
        """The run that is shown; None before the first."""
        return self.session.run

    @property
    def settings(self) -> Settings:
        """The settings of the next run."""
        return self.session.settings

    @property
    def cluster(self) -> DaskCluster:
        """The cluster of processes of this lab, started or not."""
        return self._processes.cluster

    @property
    def runs(self) -> Runs:
        """The finished runs, as a table."""
        return Runs({"run": entry.number, **entry.row} for entry in self.session.table)

    @property
    def traces(self) -> list[Trace]:
        """The traces of the runs in the table, oldest first (of many runs, the last ones)."""
        return [entry.trace for entry in self.session.table if entry.trace is not None]

    @property
    def log(self) -> Log:
        """The events up to the displayed time, one per line."""
        return Log(log_lines(self.trace, self.session.moment()))

    @property
    def sentence(self) -> str:
        """What the panels show, in one or two sentences."""
        return sentence(self.trace, self.session.moment(), self.session.reference)

    @property
    def question(self) -> str | None:
        """The question of the scenario, with its answers; None if it has none."""
        asked = self._scenarios.question
        return f"{asked.text} {' / '.join(asked.answers)}" if asked is not None else None

    @property
    def answered(self) -> str | None:
        """The answer given to the question; None before."""
        question, answer = self._scenarios.question, self._scenarios.answer
        return question.answers[answer] if question is not None and answer is not None else None

    @staticmethod
    def scenarios() -> dict[str, str]:
        """Return {name: title} of the scenarios that `lk.Lab(scenario=...)` takes."""
        return {name: scenario.title for name, scenario in SCENARIOS.items()}

    def export_csv(self, path: str | Path) -> Path:
        """Write the table of runs to a file."""
        return self.runs.to_csv(path)

    def snapshot(self) -> LabFigure:
        """Return a static figure of the displayed time: for reports, and for pages without widgets."""
        return overview(self.trace, self.session.moment(), self.session.reference)

    # as a text --------------------------------------------------------------------------------------------------------

    def share_text(self) -> str:
        """Return the lab as a short text that `Lab.from_share_text` opens again: settings, scenario, panels, and the
        commands that were executed on the run (in virtual time the run is then identical bit for bit). `BadInput` if a
        user-defined object has no text.
        """
        scenario = self._scenarios.scenario
        done = log_text(list(self.session.command_log())) if scenario is None else ""
        panels = self._page.chosen if self._page is not None else None
        more = {"scenario": scenario.name if scenario else "", "panels": ",".join(panels or ()), "done": done}
        given = {name: text for name, text in more.items() if text}
        return share_text(self.session.began_with if done else self.session.settings, **given)

    @classmethod
    def from_share_text(cls, text: str, **options: Any) -> Lab:
        """Return the lab that `share_text()` of another one describes, ready to run."""
        settings, more = read_share_text(text, ("scenario", "panels", "done"))
        if "panels" in more:
            options.setdefault("panels", tuple(more["panels"].split(",")))
        commands = parse_log(more.get("done", ""))
        lab = cls(scenario=more.get("scenario"), **options)
        lab.session.prepare(settings, commands)
        lab._changed()
        return lab

    # the page ---------------------------------------------------------------------------------------------------------

    def press(self, action: Action) -> None:
        """Execute an action of the page (see `lab.actions`) as soon as possible; an error is shown and not raised."""
        if self._closed:
            return
        try:
            match action:
                case actions.Seek(seconds=seconds):
                    self.seek(seconds)
                    return
                case actions.BackToLive():
                    self.live()
                    return
                case actions.ChangeSettings(settings=settings):
                    action = actions.ChangeSettings(self._read(settings))
                    self.session.change(action.settings)
                case actions.Answer(answer=answer):
                    self._scenarios.commit(answer)
        except LabkitError as error:
            self._queue.refuse(str(error))
            return
        self._queue.press(
            action.progress, self._operation(action), once=action.once, holds=isinstance(action, actions.Pause)
        )

    def view(self) -> View:
        """Return the present state, as the page shows it."""
        return make_view(self.session, self._scenarios, self._queue.busy, self._queue.problem)

    @property
    def drawing(self) -> bool:
        """Whether the page is being drawn, or will be drawn again without a change."""
        return self._page is not None and self._page.drawing

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        assert self._page is not None
        self._displayed = True
        bundle = self._page.box._repr_mimebundle_(include=include, exclude=exclude)
        data, more = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        self._changed()
        return {**data, "text/plain": repr(self)}, more

    def __repr__(self) -> str:
        return "<labkit Lab>"

    def close(self, keep_processes: bool = False) -> None:
        """Stop the lab's run, threads and own processes, and remove it from the page. Idempotent."""
        with self._close_lock:
            if self._closed:
                return
            self._closed = True
        if self._given_run is None or self.session.run is not self._given_run:
            with contextlib.suppress(LabkitError, RuntimeError):
                self._queue.call("closing", self.session.end)
        self._queue.close()
        if self._page is not None:
            self._page.close()
        forget(self)
        if not keep_processes:
            self._processes.close()

    def hand_over_processes(self) -> Processes | None:
        """Close the lab without ending its own processes, and return these; None if the cluster was given."""
        self.close(keep_processes=True)
        return self._processes if self._processes.ours else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # executing actions ---------------------------------------------------------------------------------------------

    def _operation(self, action: Action) -> Callable[[], Any]:
        """Return the function that executes an action, on the command thread."""
        session, scenarios = self.session, self._scenarios
        match action:
            case actions.Start():
                return scenarios.start
            case actions.Pause():
                return session.pause
            case actions.Resume():
                return session.resume
            case actions.Stop():
                return scenarios.stop
            case actions.Reset():
                return scenarios.reset
            case actions.Step():
                return session.step
            case actions.WhatIf():
                return session.what_if
            case actions.Answer():
                return scenarios.show_result
            case actions.Unpin():
                return session.unpin
            case actions.Execute(command=command):
                return partial(session.execute, command)
            case actions.PlayScenario(scenario=name):
                return partial(self._play, name)
            case actions.Pin(number=number):
                return partial(session.pin, number)
            case actions.ShowRun(number=number):
                return partial(scenarios.show_run, number)
            case actions.ChangeSettings(settings=settings):
                return partial(session.set_options, settings)
        raise TypeError(f"{action!r} is not executed on the command thread")

    def _do(self, action: Action) -> Self:
        if self._closed:
            raise BadInput("This lab is closed; make a new one.")
        self._queue.call(action.progress, self._operation(action))
        self._changed()
        return self

    def _play(self, name: str | None) -> None:
        scenario = scenario_by_name(name) if name else None
        self._scenarios.choose(scenario)
        if scenario is None:
            return
        if self._page is not None:
            self._page.choose(scenario.panels)
        self._scenarios.start()

    def _read(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Parse typed or chosen values: `"8"` is a seed; an emptied field is ignored."""
        given = {name: value for name, value in settings.items() if value != ""}
        return {n: self.session.settings.read(n, v) if isinstance(v, str) else v for n, v in given.items()}

    def _changed(self) -> None:
        """Something has changed: draw it, if the lab may be on a page."""
        if self._page is not None and (self._displayed or in_kernel()):
            self._page.wake()

    def _display(self) -> None:
        from IPython.display import display

        if not self._displayed and not self._closed and in_kernel():
            display(self)


def _names(given: Iterable[str] | str | None) -> tuple[str, ...] | None:
    """Return one name or several, as a tuple."""
    return (given,) if isinstance(given, str) else tuple(given) if given is not None else None


def _inherited_processes(cell: tuple[str, str] | None) -> Processes:
    """Return the processes of the lab that this cell made before, which is closed; else new ones, which are not started
    yet.
    """
    for old in stale(cell):
        kept: Processes | None = old.hand_over_processes()
        if kept is not None:
            return kept
    return Processes()
