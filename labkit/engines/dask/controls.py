"""The control of a run on processes: pause, step, set, slow, stop, and the log of the commands that were executed.

Any thread may call any of these at any time, and none waits for another's run: commands have limits of their own, and what
waits (a step, a stop) waits outside the lock and is let go by whatever makes it pointless. Once a run is being stopped,
nothing holds it up any more.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from ...errors import ClusterError, LabkitError
from ...trace.events import EngineWarning, Event, OptionsSet, RoleSlowed, RunPaused
from ...trace.trace import Trace
from ...trace.vocabulary import seconds
from ..checkpoints import Store
from ..commands import Command, Executed, Pause, Resume, SetOptions, Slow, Stop
from ..parts import Plan
from .disturb import Disturbances
from .resumed import without_books
from .stepping import Stepping
from .supervisor import Supervisor

__all__ = ["Controls"]

STOP_S = 5.0  # seconds for the chief to evaluate once more when it is told to end


class Controls(Disturbances):
    """The part of a run that `Run` calls. Its subclass listens, and decides when the run is over (`_over`)."""

    cluster: Any
    trace: Trace
    folder: str | None
    age: int
    error: LabkitError | None
    _thread: threading.Thread

    def __init__(self, plan: Plan, supervisor: Supervisor):
        super().__init__()
        self.plan, self.supervisor, self.members = plan, supervisor, supervisor.members
        self.stopped_by: str | None = None
        self.commands: list[Executed] = []  # the log of what was executed, in the order of time
        self._evaluated: np.ndarray | None = None
        self._over = threading.Event()
        self._lock, self._one_step = threading.RLock(), threading.Lock()
        self._paused_at: int | None = None
        self._bound = False  # roles go on to a goal, and stand still there
        self._stop_reason: str | None = None
        self._stop_deadline = 0.0
        self._hurried_at = 0  # when (ns) the chief had been told to finish
        self._closing = False  # roles are being brought home: what is done to them now has no effect
        self._stepping = Stepping(plan.layout.roles, plan.layout.copies)
        self._hurried: str | None = None
        self.knobs = plan.strategy
        self._changed: dict[str, Any] = {}  # knobs that were set
        self._killed: set[str] = set()  # addresses
        self.held: set[str] = set()  # roles that are to stay away when they are lost

    # time -------------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """Engine time, ns."""
        paused_at = self._paused_at
        return self.supervisor.now() if paused_at is None else paused_at - self.supervisor.zero

    @property
    def seconds(self) -> float:
        """Engine time, s."""
        return seconds(self.now)

    def _do_pause(self, command: Pause) -> None:
        self._pause(command)

    def _pause(self, command: Pause | None = None) -> None:
        """Hold every role between two effects. `command`: the one that asked for it, for the log."""
        with self._lock:
            if self._paused_at is None and self._goes_on():
                if command is not None:
                    self._log(command)
                self.supervisor.command({"do": "pause"})
                self._paused_at = time.monotonic_ns()  # by now they have heard
                self.event(RunPaused)
                self._unbind()

    def _do_resume(self, command: Resume) -> None:
        with self._lock:
            if self._paused_at is not None or self._bound:
                self._log(command)
                self._resume()

    def _resume(self) -> None:
        """Go on; the pause is taken out of engine time."""
        if self._paused_at is not None or self._bound:
            self._let_run({})
            self._unbind()

    def _let_run(self, goals: dict[str, int]) -> None:
        if self._paused_at is not None:
            self.supervisor.zero += time.monotonic_ns() - self._paused_at
            self._paused_at = None
        self.supervisor.command({"do": "resume", "zero": self.supervisor.zero, "goals": goals})

    def _unbind(self) -> None:
        """There is no goal any more, and nothing to wait for."""
        self._bound = False
        self._stepping.let_go()

    def step(self, timeout: float | None = None) -> bool:
        """Go on to one more update of every shard, then pause; False once the run is over.

        Two clicks are two steps. `timeout` (seconds): after about so long it pauses wherever the shards are.
        """
        with self._one_step:
            self._pause()
            goals = self._stepping.goals(lambda: self.supervisor.command({"do": "version"})) if self._goes_on() else {}
            with self._lock:
                self._bound = self._paused_at is not None and self._goes_on()  # nobody has resumed or stopped meanwhile
                if self._bound:
                    self._let_run(goals)
            if self._bound:
                self._stepping.wait(timeout)
            with self._lock:
                if self._bound:
                    self._pause()
        return self.stopped_by is None

    def _goes_on(self) -> bool:
        return self.stopped_by is None and self._stop_reason is None

    # the end ----------------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> None:
        """Until the run is over, or `TimeoutError`."""
        if not self._over.wait(timeout):
            raise TimeoutError(f"The run is not over after {timeout:g} s; it goes on.")
        self._thread.join(5)  # it has nothing left to do

    def _do_stop(self, command: Stop) -> None:
        """Returns when nothing of the run is left."""
        reason = command.reason
        with self._lock:
            if self._goes_on():
                self._log(command)
                self._stop_reason, self._stop_deadline = reason, time.monotonic() + STOP_S
                self._resume()
                self._hurry(reason)
        if threading.current_thread() is not self._thread and self._over.wait(30):
            self._thread.join(5)

    def forked(self, why: ClusterError) -> None:
        """This is a copy in a forked child, which has none of the run's threads: it is over, because of `why`."""
        self._lock, self._one_step, self._over = threading.RLock(), threading.Lock(), threading.Event()
        self.trace.lock = threading.RLock()
        self._stepping = Stepping(self.plan.layout.roles, self.plan.layout.copies)
        if self.stopped_by is None:
            self.stopped_by, self.error = "error", why
        self._over.set()

    def _hurry(self, reason: str) -> None:
        self._hurried = reason
        self.supervisor.command({"do": "hurry", "reason": reason}, "chief")
        self._hurried_at = self.now

    # what is done to roles --------------------------------------------------------------------------------------------

    def _log(self, command: Command) -> None:
        """Add a command to the log, at this instant, unless the run is over but for its books."""
        with self.trace.lock:
            if not self._closing:
                self.commands.append(Executed(command.changed(at=self.seconds)))

    def _do_set(self, command: SetOptions) -> None:
        knobs = command.options
        with self._lock:
            self.knobs = changed = self.knobs.changed(**knobs)
            values = {name: getattr(changed, name) for name in knobs}
            self._changed |= values
            self._log(command.changed(options=values))
            self._tell({"do": "set", "knobs": values})
            self.event(OptionsSet, values)

    def _do_slow(self, command: Slow) -> None:
        role, factor = command.role, command.factor
        with self._lock:
            self._log(command)
            self.supervisor.launcher.factors[role] = factor  # its next lives, too
            self._tell({"do": "slow", "factor": factor}, role)
            self.event(RoleSlowed, role, factor)

    def _tell(self, command: dict[str, Any], role: str | None = None) -> None:
        """Send a command; who did not hear it stands in the trace."""

        def deaf(address: str) -> None:
            self.event(EngineWarning, f"{self.supervisor.roles_on(address)} did not hear of {command['do']!r}")

        if threading.current_thread() is self._thread:  # which never waits
            homes = self.members.where
            self.supervisor.post(command, [homes[r] for r in homes if role in (None, r)], role, deaf=deaf)
            return
        for address in self.supervisor.command(command, role):
            deaf(address)

    def event(self, kind: type[Event], *fields: Any) -> None:
        """Record an event of this kind with these fields after the time, which is now; none once the run is being closed."""
        with self.trace.lock:
            if not self._closing:
                self.trace.event(kind(self.now, *fields))

    # the record -------------------------------------------------------------------------------------------------------

    @property
    def parameters(self) -> np.ndarray | None:
        """The evaluated parameters that met the budget; of a run that goes on, or lost its chief, the last checkpoint's."""
        if self._evaluated is not None:
            return self._evaluated
        parameters: np.ndarray | None = self._kept_by_chief().get("parameters")
        return parameters

    def _kept_by_chief(self) -> dict[str, Any]:
        """The last evaluation that the chief has kept: parameters, measurements, and which gradients they hold."""
        if self.folder is None:
            return {}
        store = Store(self.folder, age=self.age)
        for tag in reversed(store.known("chief")):
            found = store.read("chief", tag)
            if found is not None:  # of an earlier age: its parameters hold no gradient of this run
                return found[0] if tag >= 0 else without_books(found[0])
        return {}

    def flush(self) -> None:
        """Nothing to do: reports come by themselves."""
