"""`train`: problem + strategy + cluster + budget -> `Run`.

A `Run` is the handle on one training run, the same for both engines. Every report is computed from the trace of the run, and
every action is a call to its engine.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from .engines.base import Cluster, Engine, VirtualTimeEngine
from .engines.commands import (
    EVERY,
    Command,
    Cut,
    Delay,
    Drop,
    Executed,
    Freeze,
    Inject,
    Join,
    Kill,
    Leave,
    Pause,
    Reconnect,
    Restart,
    Resume,
    SetOptions,
    Slow,
    Stop,
    Thaw,
)
from .engines.faults import schedule_faults
from .engines.plan import Plan, make_plan
from .engines.simulation_only import ENVIRONMENT_VARIABLE, to_simulated
from .errors import BadInput, shown
from .manifest import written_manifest
from .narrative.log import Log, log_lines, straggler_text
from .narrative.sentence import sentence
from .nn import SparseParameters
from .options import as_number, check_number
from .predictor import Predictor
from .problem import Problem
from .roles.budget import Budget
from .strategies import Strategy
from .summary import Summary
from .trace import Trace
from .trace.events import EngineWarning
from .trace.schema import nanoseconds, seconds
from .trace.stragglers import stragglers

if TYPE_CHECKING:
    from .lab.lab import Lab
    from .views import Plots

__all__ = ["Run", "train"]

MOST_S = 1e9  # the longest advance, in engine seconds


def train(
    problem: Problem | str, strategy: Strategy, cluster: Any, budget: Budget | None = None, *, seed: int | None = None,
    faults: Any = (), checkpoint: str | Path | bool | None = None,
) -> Run:  # fmt: skip
    """Start training and return at once. A simulated run stays at time zero until `wait`, `advance` or `step` is called.

    `seed`: the seed of the run; None: the seed of the problem. `faults`: a fault schedule, as `[lk.Kill("worker-1", at=2.0),
    lk.Drop("worker", "server", 0.05, during=(3, 5))]`, or in the notation of the command line, `["kill:worker-1@2"]`.

    `checkpoint`: a folder, or an fsspec URL ("s3://bucket/run"), to which the roles write checkpoints. After this program has
    ended, `lk.resume` continues the run from them. None: a temporary folder; False: no checkpoints are written. A simulated run
    writes only if a folder or URL is given.

    Raises `BadInput`, before anything starts, if the arguments do not fit together or if `checkpoint` contains a run that has not
    ended. Raises `ClusterError` if the cluster cannot be started or reached.
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
    with written_manifest(checkpoint, plan, cluster, budget, commands):
        run = Run(plan, cluster.start(plan, commands=commands, checkpoint=checkpoint))
    if cluster is not meant:
        run.engine.trace.event(EngineWarning(0, f"{ENVIRONMENT_VARIABLE} is set: no processes, this run is in virtual time"))
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


_EXAMPLES = {"problem": 'lk.Problem("digits")', "strategy": "lk.AsyncPS(learning_rate=0.1)"}


class Run:
    """One training run. As a context manager, it stops the run at the end of the block.

    - Control: `wait()`, `stop()`, `pause()`, `resume()`, `step()` (one update), `set(learning_rate=0.05)`.
    - Faults: `slow("worker-2", 5)`, `kill("worker-2")`, `freeze`, `cut`, ..., `inject(faults)`.
    - Results: `summary()`, `result()`, `trace`, `watch()`.
    - Simulated runs only: `advance(seconds)`, `fork(at)`.
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

    def wait(self, timeout: float | None = None) -> Self:
        """Block until the run is over. If an error ended the run, the error is raised.

        Ctrl-C stops the run and raises `KeyboardInterrupt`. It has no effect where SIGINT is ignored, as in a background job of
        a shell script.

        `timeout` (wall seconds): after this time `TimeoutError` is raised; the run continues.
        """
        timeout = _limit(timeout)
        try:
            self.engine.wait(timeout)
        except KeyboardInterrupt:
            self.engine.execute(Stop("interrupted"))
            raise
        if self.engine.error is not None:
            raise self.engine.error
        return self

    def stop(self) -> Self:
        """End the run now, with a final evaluation, and release its resources."""
        self.engine.execute(Stop("user"))
        return self

    def pause(self) -> Self:
        """Suspend every role between two effects. Engine time does not advance during a pause."""
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

        `timeout` (wall seconds): after about this time the run pauses even if no update was applied. The next call of `step`
        continues from there.
        """
        timeout = _limit(timeout)
        if not self.done:
            self.engine.step(timeout)
        return self

    def advance(self, seconds: float, timeout: float | None = None) -> Self:
        """Advance by this many seconds of virtual time. Simulated runs only.

        `timeout` (wall seconds): after about this time the call returns early. Several calls give the same run as a single call
        for the sum of their seconds.
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
        """Return a new run that repeats this run bit for bit up to `at` seconds (None: the present time) and is independent of it
        from then on. Simulated runs only.

        The commands that were executed up to `at` are repeated, except a command that ended the run. `timeout` (wall seconds):
        after about this time the new run is returned even if it has not reached `at`; `advance` continues it.
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
        """Change live options of the strategy while it runs, as `run.set(learning_rate=0.05)`."""
        return self.execute(SetOptions(options))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if not self.done:
            self.engine.execute(Stop("user" if kind is None else "interrupted"))

    # commands ---------------------------------------------------------------------------------------------------------

    def execute(self, command: Command) -> Self:
        """Execute a command now, as `lk.Kill("worker-1")`; its `at` is ignored. The command must be for one role or one link and
        have no end; use `inject` for all other commands.

        Raises `BadInput` if the run is over, if its engine does not support the command, or if there is no such role.
        """
        if self.done:
            raise BadInput(f"The run is over (stopped by {self.stopped_by}): nothing can be changed any more.")
        self.engine.execute(command)
        return self

    def inject(self, faults: Any) -> Self:
        """Inject one or several faults, as `lk.Freeze("worker-1", during=(1, 3))`. Their times are in seconds from now."""
        commands = schedule_faults(faults, self.plan, self.engine.seconds)
        _check_allowed(commands, self.engine.cluster)
        return self.execute(Inject(tuple(c.command if isinstance(c, Executed) else c for c in commands)))

    def scale(self, workers: int) -> Self:
        """Change the number of workers: new workers join, or the last workers leave.

        Only on a cluster with `max_workers`, which is the upper limit.
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

    def slow(self, role: str, factor: float) -> Self:
        """Make `role` compute `factor` times slower than normal; 1 undoes it."""
        return self.execute(Slow(role, factor))

    def kill(self, role: str, restart: bool = True) -> Self:
        """Kill the process of `role` without notice (on a cluster, with SIGKILL).

        The role restarts automatically as its next incarnation. With `restart=False`, it restarts only when `restart(role)` is
        called.
        """
        return self.execute(Kill(role, restart=restart))

    def restart(self, role: str) -> Self:
        """Restart `role` after `kill(role, restart=False)`. Raises `BadInput` if it is running."""
        return self.execute(Restart(role))

    def freeze(self, role: str) -> Self:
        """Suspend the process of `role` (on a cluster, with SIGSTOP). If it is frozen for longer than the cluster's `patience`
        (the heartbeat timeout), the role is declared lost."""
        return self.execute(Freeze(role))

    def thaw(self, role: str) -> Self:
        """Continue the frozen process of `role`. If the role was declared lost in the meantime, this process is shut down."""
        return self.execute(Thaw(role))

    def cut(self, role: str, peer: str | None = None) -> Self:
        """Block all messages between `role` and `peer` (None: every other role). A role that is cut off from all others is
        declared lost after the cluster's `patience` (the heartbeat timeout)."""
        return self.execute(Cut(role, peer))

    def reconnect(self, role: str, peer: str | None = None) -> Self:
        """Undo `cut` between `role` and `peer` (None: every other role), and deliver the messages that were held."""
        return self.execute(Reconnect(role, peer))

    def delay(self, role: str, seconds: float, peer: str | None = None) -> Self:
        """Delay messages between `role` and `peer` (None: every other role) by `seconds`; 0 undoes it."""
        return self.execute(Delay(role, EVERY if peer is None else peer, seconds))

    def drop(self, role: str, chance: float, peer: str | None = None) -> Self:
        """Lose each transmission between `role` and `peer` (None: every other role) with probability `chance`; 0 undoes it.
        Lost messages are retransmitted."""
        return self.execute(Drop(role, EVERY if peer is None else peer, chance))

    # what happened ----------------------------------------------------------------------------------------------------

    @property
    def trace(self) -> Trace:
        """The record of the run so far."""
        self.engine.flush()
        return self.engine.trace

    def summary(self) -> Summary:
        """Return the summary of the run: a table when it is printed; its `to_dict()` is the object that `--json` prints."""
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
        """Describe the state of the run in sentences. `t`: the engine time (s) to describe; None: now. `reference`: a run to
        compare with.
        """
        other = reference.trace if isinstance(reference, Run) else reference
        if not isinstance(other, Trace | None):
            raise BadInput(f"reference={shown(reference)} is not allowed; give another run, its trace, or None.")
        at = None if t is None else nanoseconds(check_number("t", t, 0, MOST_S, unit="a number of seconds"))
        return sentence(self.trace, at, other)

    def result(self) -> Predictor:
        """Return the trained model, with the last evaluated parameters: those that met the budget if the run is over."""
        parameters = self.engine.parameters
        if parameters is None or self.plan.problem.timing_only:
            why = "it is timing only" if self.plan.problem.timing_only else "nothing has been evaluated yet"
            raise BadInput(f"This run has no trained model: {why}.")
        if isinstance(parameters, SparseParameters):
            return Predictor(self.plan.problem, parameters.plain())
        return Predictor(self.plan.problem, np.array(parameters))

    def watch(
        self,
        panels: Iterable[str] | str | None = None,
        controls: Iterable[str] | str | None = (),
        speed: float | None = None,
    ) -> Lab:
        """Return a lab for this run. A notebook shows the lab if it is the last expression of a cell.

        `panels`, `controls`: see `lk.Lab`. `speed`: playback speed of a simulated run, in virtual seconds per second; None: the
        lab does not advance the run.
        """
        from .lab.lab import Lab

        return Lab(run=self, panels=panels, controls=controls, speed=speed)

    @property
    def plot(self) -> Plots:
        """Figures for reports: `run.plot.staleness()`, `run.plot.timeline()`, ... each returns a matplotlib Figure."""
        from .views import Plots

        return Plots(lambda: self.trace)

    def __repr__(self) -> str:
        state = self.stopped_by or "running"
        return f"<Run {self.plan.strategy.name} on {self.plan.problem.name}, {self.engine.cluster.engine}: {state}>"
