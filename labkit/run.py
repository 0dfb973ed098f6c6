"""`train`: problem + strategy + cluster + budget -> `Run`.

A `Run` is the handle on one training run, the same for both engines. Every report is computed from the trace of the run, and
every action is a call to its engine.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

import numpy as np

from .description import Description, HasDescription
from .engines import command_methods
from .engines.base import Cluster, Engine, VirtualTimeEngine
from .engines.commands import (
    Command,
    Executed,
    Freeze,
    Inject,
    Join,
    Kill,
    Leave,
    Pause,
    Resume,
    SetOptions,
    Stop,
    Thaw,
    check_has_end,
)
from .engines.faults import Faults, schedule_faults
from .engines.plan import Plan, find_role, make_plan
from .engines.simulation_only import ENVIRONMENT_VARIABLE, to_simulated
from .errors import BadInput, ClusterError, RunOver, lacks, nearest, shown
from .formatting import count_text, percent
from .interrupts import DeferredInterrupt
from .manifest import written_manifest
from .narrative.labels import states_text
from .narrative.log import Log, log_lines, straggler_text
from .narrative.sentence import sentence
from .nn import SparseParameters
from .options import as_number, check_number
from .predictor import LivePredictor, Predictor
from .problem import Problem
from .progress import Progress, Wait, bar_for, budget_limits, check_progress, state_text
from .roles.budget import Budget
from .strategies import Strategy
from .summary import Summary
from .trace import Trace
from .trace.events import EVENTS, EngineWarning, Event
from .trace.role_states import periods
from .trace.schema import nanoseconds, seconds
from .trace.stragglers import stragglers

if TYPE_CHECKING:
    from .lab.lab import Lab
    from .serving import ModelServer
    from .views import Plots

MOST_S = 1e9  # the longest advance, in engine seconds
SHOWN_LINES = 12  # lines of the log in the error of a wait
T = TypeVar("T")


def train(
    problem: Problem | str, strategy: Strategy, cluster: Cluster, budget: Budget | None = None, *, seed: int | None = None,
    faults: Faults = (), checkpoint: str | Path | bool | None = None,
) -> Run:  # fmt: skip
    """Start training and return at once.

    A simulated run stays at time zero until `wait`, `advance` or `step` is called.

    Parameters
    ----------
    problem : Problem or str
        The learning problem, or the name of a data set.
    strategy : Strategy
        The training algorithm, as `lk.AsyncPS(learning_rate=0.1)`.
    cluster : DaskCluster or SimulatedCluster
        Where the roles of the strategy run: in processes, or in virtual time.
    budget : Budget, optional
        When the run ends. By default after 20 seconds or at an accuracy of 95%, see `Budget`.
    seed : int, optional
        The seed of the run, at least 0. By default the seed of the problem.
    faults : fault, str, or list of these, optional
        A fault schedule, as `[lk.Kill("worker-1", at=2.0), lk.Drop("worker", "server", 0.05, during=(3, 5))]`, or in the
        notation of the command line, `["kill:worker-1@2"]`. Times are in engine seconds.
    checkpoint : str, Path or bool, optional
        A folder, or an fsspec URL ("s3://bucket/run"), to which the roles write checkpoints. After this program has ended,
        `lk.resume` continues the run from them. None is a temporary folder; with False no checkpoints are written. A simulated
        run writes only if a folder or URL is given.

    Returns
    -------
    Run
        The handle on the run.

    Raises
    ------
    BadInput
        If the arguments do not fit together, or if `checkpoint` contains a run that has not ended. Nothing was started.
    ClusterError
        If the cluster cannot be started or reached.

    See Also
    --------
    DaskCluster, SimulatedCluster : The two kinds of clusters.
    resume : Continue a run after its program has ended.
    Lab : The same in a notebook, with panels and controls.

    Examples
    --------
    >>> cluster = lk.SimulatedCluster(workers=4, slow={"worker-2": 5})
    >>> run = lk.train("digits", lk.AsyncPS(), cluster, lk.Budget(updates=200))
    >>> summary = run.wait().summary()
    >>> summary["updates"], summary["stopped_by"], summary["staleness"]["max"]
    (200, 'updates', 15)
    """
    problem = Problem(problem) if isinstance(problem, str) else problem
    for name, value, kind in (("problem", problem, Problem), ("strategy", strategy, Strategy)):
        if not isinstance(value, kind):
            raise BadInput(f"{name}={shown(value)}: give a lk.{kind.__name__}, as {_EXAMPLES[name]}.")
    if not isinstance(cluster, Cluster):
        raise BadInput(f"cluster={shown(cluster)}: give lk.DaskCluster(workers=4) or lk.SimulatedCluster(workers=4).")
    if not isinstance(budget, Budget | None):
        raise BadInput(f"budget={shown(budget)}: give a lk.Budget, as lk.Budget(updates=1000).")
    meant, cluster = cluster, to_simulated(cluster)
    plan = make_plan(problem, strategy, cluster.spec, budget, seed)
    commands = schedule_faults(faults, plan)
    _check_allowed(commands, cluster)
    with written_manifest(checkpoint, plan, cluster, budget, commands) as lock:
        run = Run(plan, cluster.start(plan, commands=commands, checkpoint=checkpoint))
        run.engine.hold(lock)
    if cluster is not meant:
        run.engine.trace.event(
            EngineWarning(0, f"{ENVIRONMENT_VARIABLE} is set: no processes, this run is in virtual time")
        )
    return remembered(run)


def remembered(run: Run) -> Run:
    """Return `run`. In a notebook, a run on processes is registered for the present cell, which may be executed again."""
    if not isinstance(run.engine, VirtualTimeEngine) and "IPython" in sys.modules:
        from .lab.cells import remember_run

        remember_run(run)
    return run


def _check_allowed(commands: Iterable[Command | Executed], cluster: Cluster) -> None:
    """Raise `BadInput` if a command needs signals and the cluster does not allow labkit to send them (`may_kill`)."""
    plain = (entry.command if isinstance(entry, Executed) else entry for entry in commands)
    signal = next((command for command in plain if isinstance(command, Kill | Freeze | Thaw)), None)
    if signal is not None and not cluster.may_kill:
        raise BadInput(
            f"faults: labkit did not start these processes, and others may need them, so it may not {signal.word} them; "
            "lk.DaskCluster(..., may_kill=True) allows it."
        )


def _limit(timeout: Any) -> float | None:
    """Return the timeout in wall seconds; None: no limit, also for infinity and values too large for the clock."""
    if timeout is None:
        return None
    limit = check_number("timeout", timeout, 0, unit="None or a number of seconds", infinite=True)
    return limit if limit < threading.TIMEOUT_MAX else None


def _matcher(run: Run, condition: Any, role: str | None, fields: dict[str, Any]) -> Callable[[Run], Any]:
    """Return a function of the run whose result is true when the condition of `Run.wait_for` holds."""
    if callable(condition):
        if role is not None or fields:
            raise BadInput(
                f"wait_for: {'role' if role is not None else min(fields)} belongs to an event, not to a function."
            )
        return condition
    kind = EVENTS.get(condition) if isinstance(condition, str) else None
    if kind is None:
        raise nearest("event", condition, EVENTS, "Or give a function of the run.")
    if role is not None:
        find_role(role, run.plan.role_ids)
        fields = {"name": role} | fields
    known = {field.name for field in dataclasses.fields(kind)}
    for name in fields:
        if name not in known:
            raise lacks(f"The event {condition!r}", "field", name, known)
    seen = 0

    def find(run: Run) -> Event | None:
        nonlocal seen
        events = run.trace.events
        while seen < len(events):
            event = events[seen]
            seen += 1
            if isinstance(event, kind) and all(getattr(event, name) == value for name, value in fields.items()):
                return event
        return None

    return find


def _awaited(condition: Any, role: str | None, fields: dict[str, Any]) -> str:
    """Return what `Run.wait_for` waits for, as text."""
    if callable(condition):
        text = (getattr(condition, "__doc__", None) or "").strip().partition("\n")[0]
        return text or f"the condition {getattr(condition, '__name__', shown(condition))}"
    of = f" of {role}" if role is not None else ""
    return f"the event {condition!r}{of}" + "".join(f", {name}={value!r}" for name, value in fields.items())


_EXAMPLES = {"problem": 'lk.Problem("digits")', "strategy": "lk.AsyncPS(learning_rate=0.1)"}


class Run(HasDescription):
    """One training run, the same on both engines; `lk.train` returns it.

    - Waiting: `wait()` for the end, `wait_for("restarted", "worker-2")` for an event or a condition.
    - Control: `stop()`, `pause()`, `resume()`, `step()` (one update), `set(learning_rate=0.05)`.
    - Faults: `slow("worker-2", 5)`, `kill("worker-2")`, `freeze`, `cut`, ..., `inject(faults)`.
    - Results: `summary()`, `result()`, `trace`, `watch()`.
    - Simulated runs only: `advance(seconds)`, `fork(at)`.

    Methods that control a run return the run, so that calls can be chained. As a context manager, a run is stopped at the end of
    the block.

    Parameters
    ----------
    plan : Plan
        The checked description of the run.
    engine : Engine
        The engine that executes it.

    Examples
    --------
    >>> cluster, budget = lk.SimulatedCluster(workers=4), lk.Budget(seconds=2)
    >>> run = lk.train("digits", lk.SSP(s=2), cluster, budget)
    >>> run.advance(1.0).slow("worker-2", 10).wait().stopped_by
    'seconds'
    >>> print(run.log)
    0.03 s accuracy passed 50%
    ...
    1.00 s you slowed w2 x10
    1.32 s straggler: w2, computing 0.100 s against a median of 0.010 s
    2.00 s end: time limit of 2 s
    """

    def __init__(self, plan: Plan, engine: Engine):
        self.plan, self.engine = plan, engine

    @property
    def done(self) -> bool:
        """Whether the run is over."""
        return self.engine.stopped_by is not None

    @property
    def stopped_by(self) -> str | None:
        """Why the run ended ("accuracy", "updates", "seconds", "user", "diverged", "error", ...); None before its end."""
        return self.engine.stopped_by

    # control ----------------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None, progress: bool | None = None) -> Self:
        """Block until the run is over.

        Ctrl-C stops the run and raises `KeyboardInterrupt`. It has no effect where SIGINT is ignored, as in a background job of
        a shell script.

        Parameters
        ----------
        timeout : float, optional
            Wall seconds, at least 0, after which the call gives up; the run continues. By default there is no limit.
        progress : bool, optional
            Whether to show a progress bar if this takes longer than half a second. By default it is shown in a terminal (on
            standard error) and in a notebook that a person uses; not in pipes, not in notebooks that are executed without a
            browser, and not in threads besides the main thread.

        Raises
        ------
        BadInput
            If an argument is not allowed.
        TimeoutError
            After `timeout` seconds.
        LabkitError
            The error that ended the run, if it was an error.
        """
        timeout = _limit(timeout)
        with Wait(self.engine, bar_for(check_progress(progress))) as waiting:
            try:
                waiting.wait(timeout)
            except KeyboardInterrupt:
                self.engine.execute(Stop("interrupted"))
                raise
        if self.engine.error is not None:
            raise self.engine.error
        return self

    @overload
    def wait_for(self, condition: Callable[[Run], T], *, timeout: float | None = None) -> T: ...

    @overload
    def wait_for(
        self, condition: str, role: str | None = None, *, timeout: float | None = None, **fields: Any
    ) -> Any: ...

    def wait_for(
        self, condition: Callable[[Run], Any] | str, role: str | None = None, *, timeout: float | None = None, **fields: Any
    ) -> Any:  # fmt: skip
        """Wait until a condition is true, or until an event has been recorded. The run continues.

        In virtual time the run is advanced up to this moment. Conditions are evaluated after each update, evaluation and
        recorded event, on processes also four times per second. Ctrl-C ends only the wait.

        Parameters
        ----------
        condition : callable or str
            A function of the run, which is called until its result is true; or the kind of an event: "restarted", "lost",
            "joined", "left", "killed", "frozen", "waits", ..., as in `run.trace.events`. An event that was recorded before the
            call counts.
        role : str, optional
            The name of the event's role, as "worker-1".
        timeout : float, optional
            Wall seconds, at least 0, after which the call gives up. By default there is no limit: the call ends with the run, or
            when there is no sign of life of the run any more (no report, no event, no heartbeat).
        **fields : object
            Values of other fields of the event, as `incarnation=2`.

        Returns
        -------
        object
            The result of the function, or the event.

        Raises
        ------
        BadInput
            If an argument is not allowed.
        RunOver
            If the run has ended before.
        LabkitError
            If the run has ended before because of an error: this error. `ClusterError` if there is no sign of life of the run.
        TimeoutError
            After `timeout` seconds. The messages of all these errors contain the last lines of the log.

        Examples
        --------
        >>> run = lk.train("digits", lk.AsyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(seconds=9))
        >>> run.advance(1.0).kill("worker-1").wait_for("restarted", "worker-1").incarnation
        1
        >>> run.wait_for(lambda run: run.summary()["updates"] >= 300)
        True
        """
        limit = _limit(timeout)
        matches = _matcher(self, condition, role, fields)
        found: Any = None

        def holds() -> bool:
            nonlocal found
            found = matches(self)
            return bool(found)

        try:
            if self.engine.wait_until(holds, limit):
                return found
            problem: type[Exception] = RunOver
            why = f"The run ended ({state_text(self.engine).removeprefix('ended: ')}) before"
        except TimeoutError:
            problem, why = TimeoutError, f"Not within {limit:g} s:"
        except ClusterError as silence:
            problem, why = ClusterError, f"The run hangs: {silence}, while this was waited for:"
        if problem is RunOver and self.engine.error is not None:
            raise self.engine.error
        raise problem(
            "\n".join([f"{why} {_awaited(condition, role, fields)}. The last events:", *self.log[-SHOWN_LINES:]])
        )

    def stop(self) -> Self:
        """End the run now, with a final evaluation, and release its resources."""
        self.engine.execute(Stop("user"))
        return self

    def pause(self) -> Self:
        """Suspend every role between two effects. Engine time does not advance during a pause.

        On processes, the last updates before the pause may be counted a moment after this method has returned.
        """
        if not self.done:
            self.engine.execute(Pause())
        return self

    def resume(self) -> Self:
        """Continue after a pause."""
        if not self.done:
            self.engine.execute(Resume())
        return self

    def step(self, timeout: float | None = None) -> Self:
        """Continue until one more update has been applied, then pause.

        Parameters
        ----------
        timeout : float, optional
            Wall seconds after which the run pauses even if no update was applied. The next call continues from there.

        Examples
        --------
        >>> run = lk.train("digits", lk.SyncPS(), lk.SimulatedCluster(workers=4))
        >>> run.step().step().summary()["updates"]
        2
        """
        timeout = _limit(timeout)
        if not self.done:
            self.engine.step(timeout)
        return self

    def advance(self, seconds: float, timeout: float | None = None) -> Self:
        """Advance a simulated run by this many seconds of virtual time.

        Several calls give the same run as a single call for the sum of their seconds.

        Parameters
        ----------
        seconds : float
            Virtual seconds, from 0 to 1,000,000,000, or infinity: to the end of the run.
        timeout : float, optional
            Wall seconds after which the call returns early.

        Raises
        ------
        BadInput
            If the run is not simulated, or if `seconds` is not allowed.
        """
        if not isinstance(self.engine, VirtualTimeEngine):
            raise BadInput("advance: time on a real cluster passes by itself; use wait(), pause() or step().")
        number = as_number(seconds)
        if number is None or not (0 <= number <= MOST_S or number == math.inf):
            what = f"give seconds, at least 0 and at most {MOST_S:g}, or infinity: to the end of the run."
            raise BadInput(f"advance({shown(seconds)}): time only goes forward; {what}")
        self.engine.advance(self.engine.seconds + number, _limit(timeout))
        return self

    def fork(self, at: float | None = None, timeout: float | None = None) -> Run:
        """Repeat a simulated run bit for bit up to a moment, from which on the copy is independent.

        The commands that were executed up to this moment are repeated, except a command that ended the run.

        Parameters
        ----------
        at : float, optional
            The moment in seconds, from 0 to the present time, which is the default.
        timeout : float, optional
            Wall seconds after which the new run is returned even if it has not reached `at`; `advance` continues it.

        Returns
        -------
        Run
            The new run, which has reached the moment.

        Raises
        ------
        BadInput
            If the run is not simulated, or has not seen this moment.

        Examples
        --------
        What if a worker becomes five times slower after one second?

        >>> cluster, budget = lk.SimulatedCluster(workers=4), lk.Budget(seconds=2)
        >>> run = lk.train("digits", lk.SyncPS(), cluster, budget).wait()
        >>> slowed = run.fork(at=1.0).slow("worker-0", 5).wait()
        >>> run.summary()["updates"], slowed.summary()["updates"]
        (200, 120)
        """
        if not isinstance(self.engine, VirtualTimeEngine):
            raise BadInput("fork: what real processes did cannot be repeated exactly; only a simulated run can.")
        now = self.engine.seconds
        moment = now if at is None else as_number(at)
        if moment is None or not 0 <= moment <= now:
            raise BadInput(f"fork(at={shown(at)}): give a moment that this run has seen, from 0 to {now:g} seconds.")
        timeout = _limit(timeout)
        forked = self.engine.fork(moment)
        forked.advance(moment, timeout)
        return Run(self.plan, forked)

    def set(self, **options: Any) -> Self:
        """Change live options of the strategy while it runs, as `run.set(learning_rate=0.05)`.

        Parameters
        ----------
        **options : object
            New values by the names of options that can change during a run.

        Raises
        ------
        BadInput
            If an option is unknown, cannot change during a run, or does not allow the value.
        """
        return self.execute(SetOptions(options))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if not self.done:
            self.engine.execute(Stop("user" if exc[0] is None else "interrupted"))

    # commands ---------------------------------------------------------------------------------------------------------

    def execute(self, command: Command) -> Self:
        """Execute a command now.

        Parameters
        ----------
        command : Command
            A command for one role or one link that has no end, as `lk.Kill("worker-1")`; its `at` is ignored. Use `inject` for
            all other commands.

        Raises
        ------
        BadInput
            If the run is over, if its engine does not support the command, or if there is no such role.
        """
        if self.done:
            raise BadInput(f"The run is over (stopped by {self.stopped_by}): nothing can be changed any more.")
        check_has_end(command)
        self.engine.execute(command)
        return self

    def inject(self, faults: Faults) -> Self:
        """Inject faults into the run.

        Parameters
        ----------
        faults : fault, str, or list of these
            The faults, as `lk.Freeze("worker-1", during=(1, 3))` or "freeze:worker-1@1-3". Times are in engine seconds from now.

        Raises
        ------
        BadInput
            If the run is over, if a fault names a role that does not exist, or if the cluster does not allow it (`may_kill`).
        """
        commands = schedule_faults(faults, self.plan, self.engine.seconds)
        _check_allowed(commands, self.engine.cluster)
        return self.execute(Inject(tuple(c.command if isinstance(c, Executed) else c for c in commands)))

    def scale(self, workers: int) -> Self:
        """Change the number of workers: new workers join, or the last workers leave.

        Parameters
        ----------
        workers : int
            The number of workers, from 1 to the `max_workers` of the cluster.

        Raises
        ------
        BadInput
            If the cluster has no `max_workers`, or if the number is not allowed.
        """
        known = [role.name for role in self.plan.layout.roles if role.kind == "worker"]
        if self.plan.elastic is None:
            raise BadInput("scale: the workers of this run are fixed; give the cluster max_workers=8, for example.")
        if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= len(known):
            raise BadInput(f"scale({shown(workers)}): from 1 to max_workers={len(known)} workers.")
        present = self.engine.present
        missing = [name for name in known if name not in present]
        for name in missing[: max(0, workers - len(present))]:
            self.execute(Join(name))
        for name in present[workers:]:
            self.execute(Leave(name))
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

    # what happened ----------------------------------------------------------------------------------------------------

    @property
    def trace(self) -> Trace:
        """The record of the run so far."""
        self.engine.flush()
        return self.engine.trace

    def summary(self) -> Summary:
        """Return the summary of the run so far.

        Returns
        -------
        Summary
            A table when it is displayed or printed. `summary["updates"]` is one of its values; `to_dict()` returns all of them,
            as `--json` prints them.

        Examples
        --------
        >>> cluster, budget = lk.SimulatedCluster(workers=4), lk.Budget(updates=50)
        >>> run = lk.train("digits", lk.SyncPS(), cluster, budget).wait()
        >>> summary = run.summary()
        >>> summary["updates"], summary["gradients"], summary["staleness"]["mean"]
        (50, 200, 0.0)
        """
        return Summary.of(self.trace)

    @property
    def log(self) -> Log:
        """The events so far, one per line: commands, milestones, stragglers, and the end of the run."""
        return Log(log_lines(self.trace))

    @property
    def stragglers(self) -> Log:
        """Which roles became clearly slower than the others, when, and why (computation, communication, waiting)."""
        trace = self.trace
        return Log(
            [f"{seconds(f.time):.2f} s {straggler_text(trace, f)}" for f in stragglers(trace, trace.watermark())]
        )

    def sentence(self, t: float | None = None, reference: Run | Trace | None = None) -> str:
        """Describe the state of the run in sentences.

        Parameters
        ----------
        t : float, optional
            The engine time in seconds that is described. By default the present.
        reference : Run or Trace, optional
            A run to compare with.

        Returns
        -------
        str
            The sentences.
        """
        other = reference.trace if isinstance(reference, Run) else reference
        if not isinstance(other, Trace | None):
            raise BadInput(f"reference={shown(reference)} is not allowed; give another run, its trace, or None.")
        at = None if t is None else nanoseconds(check_number("t", t, 0, MOST_S, unit="a number of seconds"))
        return sentence(self.trace, at, other)

    def result(self) -> Predictor:
        """Return the trained model.

        Returns
        -------
        Predictor
            The model with the last evaluated parameters: those that met the budget if the run is over.

        Raises
        ------
        BadInput
            If nothing has been evaluated yet, or if the problem is `timing_only`.

        Examples
        --------
        >>> problem = lk.Problem("digits")
        >>> cluster, budget = lk.SimulatedCluster(workers=4), lk.Budget(accuracy=0.9)
        >>> run = lk.train(problem, lk.SyncPS(learning_rate=0.5), cluster, budget)
        >>> model = run.wait().result()
        >>> held_out = problem.dataset.raw(problem.dataset.x_test)
        >>> bool((model.predict(held_out) == problem.dataset.y_test).mean() >= 0.9)
        True
        """
        problem, found = self.plan.problem, None if self.plan.problem.timing_only else self.engine.evaluated
        if found is None:
            why = "it is timing only" if problem.timing_only else "nothing has been evaluated yet"
            if not problem.timing_only and len(self.trace.column("evaluations", "update")):
                why = "its checkpoints have no evaluated weights yet; with checkpoint=False they are read at its end"
            raise BadInput(f"This run has no trained model: {why}.")
        held = found.parameters
        values = held.plain() if isinstance(held, SparseParameters) else np.array(held)
        time = None if found.time is None else seconds(found.time)
        return Predictor(problem, values, accuracy=found.accuracy, update=found.update, time=time)

    @overload
    def predictor(self, live: Literal[False] = False) -> Predictor: ...

    @overload
    def predictor(self, live: Literal[True]) -> LivePredictor: ...

    def predictor(self, live: bool = False) -> Predictor | LivePredictor:
        """Return the model, also while the run trains it.

        Parameters
        ----------
        live : bool, default: False
            Whether the model follows the run: its predictions are those of the newest evaluated parameters, and at the end those
            of `result`. Otherwise this is `result`.

        Returns
        -------
        Predictor or LivePredictor
            The model.

        Raises
        ------
        BadInput
            As `result`. A live model exists before the first evaluation, and raises it when it is asked.

        Examples
        --------
        >>> run = lk.train("moons", lk.SyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(updates=100))
        >>> model = run.predictor(live=True)
        >>> run.advance(0.5).wait_for(lambda run: model.update == 60)
        True
        >>> run.wait().done, model.update, model.predict([[0.0, 1.0]]).shape
        (True, 100, (1,))
        """
        if not isinstance(live, bool):
            raise BadInput(f"live={shown(live)} is not allowed; give True or False.")
        if live and self.plan.problem.timing_only:
            raise BadInput("This run has no trained model: it is timing only.")
        return LivePredictor(self.result, self._evaluations) if live else self.result()

    def _evaluations(self) -> tuple[int, bool]:
        """Return the newest evaluated update that the trace has (-1: none), and whether the run is over: a model that is older
        has to be read again.
        """
        done = self.done
        newest = self.trace.column("evaluations", "update")
        return (int(newest[-1]) if len(newest) else -1), done

    def serve(
        self,
        port: int = 0,
        *,
        host: str = "127.0.0.1",
        name: str | None = None,
        token: str | None = None,
        max_bytes: int = 8_000_000,
        max_rows: int = 10_000,
    ) -> ModelServer:
        """Answer predictions over HTTP while the run trains, in the REST form of TensorFlow Serving.

        ``GET /v1/models/NAME`` returns the state and the version: the number of the evaluated update. ``POST
        /v1/models/NAME:predict`` with ``{"instances": [sample, ...]}`` returns ``{"predictions": [...], "model_version": ...}``:
        of each sample the probabilities of the classes or, for a regression, the values, as `Predictor` computes them. The
        server ends with the run, with `ModelServer.close`, or at the end of a ``with`` block.

        Parameters
        ----------
        port : int, default: 0
            The port; 0: a free one.
        host : str, default: '127.0.0.1'
            The address to listen on. By default only programs of this machine can connect. There is no encryption.
        name : str, optional
            The name of the model in the address. By default that of the data set.
        token : str, optional
            The token that requests must have (``Authorization: Bearer TOKEN``). By default a random one, `ModelServer.token`.
        max_bytes : int, default: 8000000
            The largest body of a request.
        max_rows : int, default: 10000
            The largest number of samples in a request.

        Returns
        -------
        ModelServer
            The server, which runs in threads of its own.

        Raises
        ------
        BadInput
            If an argument is not allowed, if the address cannot be used, if the run is timing only or over.

        Examples
        --------
        >>> run = lk.train("moons", lk.SyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(updates=100))
        >>> run.advance(0.3).done
        False
        >>> with run.serve() as server:
        ...     server.url
        'http://127.0.0.1:.../v1/models/moons'
        """
        model = self.predictor(live=True)
        if self.done:
            raise BadInput("serve: this run is over, and a server ends with its run; use run.result().")
        name = self.plan.problem.name if name is None else name
        with DeferredInterrupt():
            from .serving import ModelServer

        return ModelServer(
            model, lambda: self.done, host, port, name=name, token=token, max_bytes=max_bytes, max_rows=max_rows
        )

    def watch(
        self,
        panels: Iterable[str] | str | None = None,
        controls: Iterable[str] | str | None = (),
        speed: float | None = None,
    ) -> Lab:
        """Return a lab for this run. A notebook shows the lab if it is the last expression of a cell.

        Parameters
        ----------
        panels : str or iterable of str, optional
            The names of the panels, as in `Lab`.
        controls : str or iterable of str, default: ()
            The names of the settings that can be changed, as in `Lab`.
        speed : float, optional
            Playback speed of a simulated run, in virtual seconds per second. By default the lab does not advance the run.

        Returns
        -------
        Lab
            The lab.
        """
        with DeferredInterrupt():
            from .lab.lab import Lab

        return Lab(run=self, panels=panels, controls=controls, speed=speed)

    @property
    def plot(self) -> Plots:
        """Figures for reports: `run.plot.staleness()`, `run.plot.timeline()`, ... each returns a matplotlib Figure."""
        with DeferredInterrupt():
            from .views import Plots

        return Plots(lambda: self.trace)

    def _described(self) -> Description:
        trace = self.trace
        progress = Progress.of(trace, budget_limits(self.plan))
        share = "" if progress.share is None else f"{percent(progress.share)}: "
        simulated = isinstance(self.engine, VirtualTimeEngine)
        more = "; time passes in wait(), advance() and step()" if simulated and not self.done else ""
        rows = [("state", state_text(self.engine) + more), ("budget", share + ", ".join(progress.limited))]
        now = periods(trace, nanoseconds(self.engine.seconds))[-1]
        if not self.done and not now.fault_free:
            rows.append(("roles", states_text(trace, now)))
        if trace.now > 0:
            told = ("strategy", "stopped by")
            known = [(name, text) for name, text in Summary.of(trace).rows() if not text.startswith("none")]
            rows += [(name, text) for name, text in known if name not in told]
        roles = [count_text(trace.kinds.count(kind), kind) for kind in ("worker", "server") if kind in trace.kinds]
        where = "in virtual time" if simulated else "on processes"
        title = f"Run of {self.plan.strategy.name} on {self.plan.problem.name}: {', '.join(roles)}, {where}"
        return Description(title, tuple(rows))

    def __repr__(self) -> str:
        progress = Progress.of(self.trace, {})
        sofar = f"{count_text(progress.updates, 'update')} in {progress.seconds:.2f} s"
        name = f"{self.plan.strategy.name} on {self.plan.problem.name}, {self.engine.cluster.engine}"
        return f"<Run {name}: {sofar}, {state_text(self.engine)}>"
