"""One run in real time, as the client sees it: a thread that listens, decides when it is over, and closes the books."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from queue import Empty
from typing import Any

from ...errors import ClusterError, Deadlock, LabkitError
from ...roles.regroup import grouped, replicas
from ...trace.events import Note, RoleSlowed
from ...trace.trace import Trace
from ..base import Engine
from ..checkpoints import Store
from ..commands import (
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
    check_supported,
)
from ..drive import deadlock_text, loss_text, render_failure
from ..parts import Plan
from .acknowledged import Acknowledgements
from .detector import FailureDetector
from .disturb import SIGNALS
from .mailbox import LEAVE_S
from .membership import HERE, STARTING
from .recovery import Recovery
from .resumed import begin_again
from .standing import Standing, at
from .stillness import MARGIN_NS, Stillness
from .supervisor import Supervisor
from .timeouts import ABSENT_S

__all__ = ["DaskRun"]

NEWS = ("Left", "Joined")
KEEP_ROWS = 300_000  # of each table: a run that goes on for hours keeps memory flat
CANCELLED_S = 0.3  # after which it is clear whether a task alone was cancelled, or all of them
RESTARTED_S = LEAVE_S + 0.5  # after which Dask workers that are restarted, which cancels all tasks, are gone
OF_ROLES = (
    "batch",
    "beat",
    "returned",
    "failed",
    "version",
    "stepped",
    "up",
    "ended",
    "task failed",
    "task finished",
    "handed over",
    "departed",
)


def _remove(folder: str, owner: int) -> None:
    """Remove a folder, unless this is a fork of the process that made it."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


class DaskRun(Standing, Engine):
    """The engine behind `Run` on a Dask cluster. `error`: what ended the run, if that was one.

    `store`: where roles keep their states; None: in a folder that goes with this run; False: nowhere. `resume`: where
    an earlier run has kept them, which this one goes on with. `commands`: primitive commands, or entries of a log, executed
    at their times. What was executed is in the attribute `commands`. `supported_commands`: the classes of commands that
    `execute` takes; without signals where the processes are not labkit's own, and the cluster does not allow it.
    """

    def __init__(
        self, plan: Plan, cluster: Any, supervisor: Supervisor, commands: Iterable[Command | Executed], store: Any,
        began: float, resume: Store | None = None,
    ):  # fmt: skip
        super().__init__(plan, supervisor)
        self.cluster, self._began = cluster, began
        self.supported_commands = frozenset(_HANDLERS) - (frozenset() if cluster.may_kill else SIGNALS)
        self.trace = Trace(plan.header(cluster.spec), keep=KEEP_ROWS)
        self.error: LabkitError | None = None
        self._still = Stillness(plan.role_ids)
        self._acknowledgements = Acknowledgements(self._post)
        self._returned: set[str] = set()
        self._given_up: set[str] = set()  # who is not waited for when the run ends
        self._cancelled: float | None = None
        self.in_flight: list[Any] = []  # of lives that have handed their role on
        self._due = sorted((c.command if isinstance(c, Executed) else c for c in commands), key=at)
        self.named, self.age = resume or store or None, resume.age if resume else 0
        self.folder = self._folder(store)
        self._start(resume)

    def _folder(self, store: Any) -> str | None:
        """Where roles keep their checkpoints: a given place, none, or a folder that goes when this run is forgotten."""
        if store is False:
            return None
        if store is not None:
            return str(store.place)
        temporary = tempfile.mkdtemp(prefix="labkit-")
        weakref.finalize(self, _remove, temporary, os.getpid())
        return temporary

    def _start(self, resume: Store | None) -> None:
        cluster = self.cluster
        settings = {
            "pace": cluster.pace, "server_time": cluster.server_time, "folder": self.folder,
            "factors": dict(cluster.slow), "ours": cluster.ours, "every": cluster.checkpoint_every,
            "together": grouped(self.plan.layout) and not replicas(self.plan.layout),
            "age": self.age, "restored": begin_again(self.plan, resume) if resume else {},
        }  # fmt: skip
        if resume:
            versions = [
                int(state["version"]) for state, _ in settings["restored"].values() if "version" in (state or {})
            ]
            self.trace.event(Note(0, f"goes on from update {min(versions, default=0)}"))
        try:
            self.supervisor.start(settings)
        except BaseException:
            self.supervisor.abandon()
            raise
        for role, factor in cluster.slow.items():
            self.trace.event(RoleSlowed(0, role, float(factor)))
        now = time.monotonic()
        self._heard = FailureDetector(min(ABSENT_S, cluster.patience / 2))
        self._heard.watch(self.supervisor.where, now)
        self.recovery = Recovery(self, self._known_workers())
        for role in self.supervisor.unheard:
            self.recovery.tell_to_begin(role)
        cluster.runs.add(self)
        self._thread = threading.Thread(target=self._listen, name=f"labkit-run-{self.supervisor.run}", daemon=True)
        self._thread.start()

    def _known_workers(self) -> list[str]:
        try:
            return list(self.cluster._backend.known())
        except ClusterError:  # gone already, which will be noticed
            return list(self.supervisor.where.values())

    def execute(self, command: Command) -> None:
        """Execute a primitive command now, whatever its `at`; any thread may ask.

        `BadInput` if the command is not supported, names roles that are not there, or makes no sense now.
        """
        self._check_allowed(command)
        check_supported(command, self.supported_commands)
        command.check(self.plan.role_ids)
        _HANDLERS[type(command)](self, command)

    # the listening thread ---------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        stopped_by, why = "error", ""
        try:
            while True:
                over = self._hear()
                if over is not None:
                    stopped_by, why = over
                    break
        except Exception as error:  # a bug of ours: the run ends, and says so
            self.error = ClusterError(f"The supervisor failed: {type(error).__name__}: {error}")
            why = str(self.error)
        finally:
            self._finish(stopped_by, why)

    def _hear(self) -> tuple[str, str] | None:
        """Take in one event. (stopped_by, why) when it ends the run."""
        try:
            event = self.supervisor.queue.get(timeout=self._carry_out())
        except Empty:
            return self._look_around()
        role, what = event.get("role", ""), event["what"]
        if what in OF_ROLES:
            if what == "task finished" and self.recovery.group is not None:
                self.recovery.group.finished(role, event["incarnation"])
            if not self.members.is_present(role, event["incarnation"]):
                if "task" not in what:
                    self.recovery.late(event)
                return self._look_around()
            self._heard.sign(role, time.monotonic())
        return self._take(role, what, event) or self._look_around()

    def _take(self, role: str, what: str, event: dict[str, Any]) -> tuple[str, str] | None:
        if what == "batch":
            self.trace.append(event["batch"])
            self._acknowledgements.heard(role, event["incarnation"], event["batch"])
            self.recovery.heard(role, event["change"])
            return self._check_deadlock(event)
        if what == "returned":
            return self._role_returned(role, event["verdict"])
        if what == "failed":
            self.error = render_failure(event["report"])
            return "error", str(self.error)
        if what == "up" and self.members.state[role] == STARTING:
            self.recovery.up(event)
        if what == "signs":
            self.recovery.signs(event["seen"])
        if what == "worker came":
            self.recovery.worker_came(event["worker"])
        if what == "worker lost":
            killed = event["worker"] in self._killed
            self.recovery.worker_gone(event["worker"], "was killed" if killed else "", event["expected"])
        if what == "task failed":
            return self._task_failed(role, event["status"])
        if what == "handed over" and self.recovery.group is not None:
            self.recovery.group.handed_over(role, event["report"])
        if what == "departed":
            self.recovery.comings.departed(role, event["report"], event["retired"])
        if what == "want back":
            self.recovery.want_back(event["roles"])
        if what == "killed again":
            self.recovery.killed_again(role, event["restart"])
        if what == "inject":
            self._due = sorted([*self._due, *event["commands"]], key=at)
        if what == "version":
            self._stepping.version(role, event["version"])
        if what == "stepped":
            self._stepping.arrived(role)
        return None

    def _post(self, command: dict[str, Any], role: str, incarnation: int) -> None:
        self.supervisor.post(command, [self.members.where[role]], role, incarnation)

    def _task_failed(self, role: str, status: str) -> tuple[str, str] | None:
        if status in ("cancelled", "lost"):
            self._cancelled = self._cancelled or time.monotonic()
            return None
        why = self.supervisor.why_failed(role)
        if self.members.state[role] == STARTING:
            why_over = self.recovery.failed(role, why)
            return None if why_over is None else self._over_because([role], why_over)
        return self._over_because([role], f"{role} failed: {why}")

    def _who_was_cancelled(self, waited: float) -> tuple[str, str] | None:
        """Tasks were cancelled a moment ago: one by one they are losses, all together, on Dask workers that stay, the end."""
        gone = [role for role, future in self.supervisor.futures.items() if future.status in ("cancelled", "lost")]
        every = len(gone) == len(self.members.where) and len(gone) > 1
        if every and waited < RESTARTED_S:
            return None
        self._cancelled = None
        if every:
            return self._over_because(gone, self._why_cancelled())
        self.recovery.lose(gone, "was cancelled by Dask")
        return None

    # how it ends -------------------------------------------------------------------------------------------------------

    def _role_returned(self, role: str, verdict: str | None) -> tuple[str, str] | None:
        roles = self.plan.layout.roles
        if roles[self.plan.role_ids[role]].kind == "chief":
            return verdict or "finished", ""
        self._returned.add(role)
        self.check_returned()
        return None

    def check_returned(self) -> None:
        """Have all returned who compute (or, where nobody does, all but the chief) and take part?"""
        roles = [r for r in self.plan.layout.roles if r.name not in self.members.outside and r.kind != "chief"]
        players = [r.name for r in roles if r.computes] or [r.name for r in roles]
        if players and self._returned.issuperset(players):
            self._hurry("finished")

    def _look_around(self) -> tuple[str, str] | None:
        now, patience = time.monotonic(), self.cluster.patience
        self._heard.consult(now)
        if self._stop_reason is not None and now > self._stop_deadline:
            return self._stop_reason, "the chief did not answer, so there is no last evaluation"
        if self.supervisor.client.status != "running":
            return self._over_because(self.plan.role_ids, self._why_cancelled())
        if self._cancelled is not None and now - self._cancelled > CANCELLED_S:
            return self._who_was_cancelled(now - self._cancelled)
        silent = {role for role in self._heard.silent(patience, now) if self._is_here(role)}
        if silent:  # whoever shares a process with them has been silent nearly as long
            homes = {self.members.where[role] for role in silent}
            also = (role for role in self._heard.silent(0.6 * patience, now) if self._is_here(role))
            silent |= {role for role in also if self.members.where[role] in homes}
            why = f"did not answer for {patience:g} s (frozen, or cut off)"
            self.recovery.lose(sorted(silent), why, silent=True)
        over = self.recovery.look(now)
        return None if over is None else self._over_because(self.members.missing, f"{self._who_is_gone()}, and {over}")

    def _is_here(self, role: str) -> bool:
        return self.members.state[role] == HERE

    def _who_is_gone(self) -> str:
        return "; ".join(f"{role} {self.members.why.get(role, 'is gone')}" for role in self.members.missing)

    def _why_cancelled(self) -> str:
        if self.supervisor.client.status != "running":
            return "the connection to the Dask scheduler is gone"
        return "Dask cancelled its tasks (was the cluster restarted?)"

    def _over_because(self, roles: Iterable[str], what: str) -> tuple[str, str]:
        self._given_up.update(roles)
        self.error = ClusterError(loss_text(self.now, what))
        return "error", str(self.error)

    def _check_deadlock(self, event: dict[str, Any]) -> tuple[str, str] | None:
        if event["change"] != self.members.change or not self.members.whole:
            return None
        if event["batch"]["until"] <= self._hurried_at + MARGIN_NS:
            return None  # the chief waited then, and has been told to finish since; until it reports again nothing is known
        self._still.hear(
            event["role"], event["waiting"], event["only"], event["sent"], event["received"], event["batch"]["until"]
        )
        stuck = self._still.stuck() if self._paused_at is None else None
        if not stuck:
            return None
        awaited = {}  # of the roles that stand still, in the order of the layout; news is nothing that they lack
        for name in (r.name for r in self.plan.layout.roles if r.kind != "chief" and r.name in stuck):
            kinds, only = stuck[name]
            awaited[name] = tuple(kind for kind in kinds if kind not in NEWS), only
        self.error = Deadlock(deadlock_text(self.trace, self.now, awaited))
        return "deadlock", str(self.error)


_HANDLERS: dict[type[Command], Callable[[DaskRun, Any], None]] = {
    Slow: DaskRun._do_slow,
    Kill: DaskRun._do_kill,
    Restart: DaskRun._do_restart,
    Freeze: DaskRun._do_freeze,
    Thaw: DaskRun._do_thaw,
    Delay: DaskRun._do_delay,
    Drop: DaskRun._do_drop,
    Cut: DaskRun._do_cut,
    Reconnect: DaskRun._do_reconnect,
    Join: DaskRun._do_join,
    Leave: DaskRun._do_leave,
    SetOptions: DaskRun._do_set,
    Pause: DaskRun._do_pause,
    Resume: DaskRun._do_resume,
    Stop: DaskRun._do_stop,
    Inject: DaskRun._do_inject,
}
