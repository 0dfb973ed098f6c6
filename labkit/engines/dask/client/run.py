"""The engine of one run on a Dask cluster: the client's side of a run in real time.

One thread, the run's thread, owns all state. It takes events (reports of roles, events of Dask, answers to orders,
commands of other threads) from a queue, dispatches each event by its type, executes commands when they are due, and
decides when the run ends. During the run, this thread never waits for another process. Other threads post events, and
wait until these have been handled. State that other threads read is either replaced as a whole and never modified, or
has a lock (the trace).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from queue import Empty
from typing import Any, Literal, NamedTuple

from ....errors import BadInput, ClusterError, Deadlock, LabkitError
from ....roles.group_restart import restarts_as_group, whole_replicas
from ....trace.events import EngineWarning, Note, OptionsSet, RoleSlowed
from ....trace.events import Event as TraceEvent
from ....trace.trace import Trace
from ...active_faults import ActiveFaults
from ...base import Cluster, Engine, Evaluated
from ...commands import (
    Command,
    Cut,
    Delay,
    Drop,
    End,
    Executed,
    Freeze,
    Inject,
    Join,
    Kill,
    Leave,
    Limit,
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
from ...elastic import check_elastic
from ...error_texts import deadlock_text, loss_text, render_failure
from ...plan import Plan
from ...storage.store import Store
from ..cluster.dask_cluster import DaskCluster
from ..cluster.dask_connection import DaskConnection
from ..timeouts import STALLED_S
from .activity import CHECK_S, Activity
from .checkpoints import RunCheckpoints
from .deadlock import MARGIN_NS, DeadlockDetector
from .final_accounting import FinalAccounting
from .link_faults import LinkFaultOrders
from .pause_control import PauseControl
from .process_faults import SIGNALS, ProcessFaults, check_allowed
from .reachability import PORTS, Reachability
from .recovery import Recovery
from .recovery_events import (
    Answered,
    CommandRequested,
    Done,
    InternalError,
    OfRole,
    RecoveryEvent,
    Report,
    Returned,
    RoleFailed,
    RoleUp,
    Stepped,
    StepRequested,
    VersionReported,
    WorkerHeartbeats,
    WorkerJoined,
    WorkerLeft,
)
from .recovery_policy import Announced, Timer
from .resume import resumed_states
from .run_record import Acknowledgements, RunRecord
from .schedule import CommandSchedule
from .shutdown import FinalEvaluation, Shutdown
from .supervisor import Supervisor

MEMBERSHIP_EVENTS = ("Left", "Joined")
KEEP_ROWS = 300_000  # rows kept of each table of the trace; limits the memory of long runs
STOP_S = 5.0  # timeout for the chief's final evaluation after `Stop` and, if a role is lost, after the budget's seconds
STOPPED_S = 30.0  # timeout of `Stop` for the end of the run, seconds
TIMER_S = 0.05  # shortest interval between two `Timer` events, seconds
FOR_RECOVERY = (OfRole, WorkerJoined, WorkerLeft, WorkerHeartbeats)

log = logging.getLogger("labkit.engines.dask.client")


class RunEnd(NamedTuple):
    """The end of a run: its reason (`stopped_by`), and details as text (`why`)."""

    stopped_by: str
    why: str


class DaskRun(Engine):
    """One run on a Dask cluster.

    `commands`: primitive commands, or entries of a command log; each is executed at its time. `store`: where roles save
    their checkpoints; None: in a temporary folder that is removed with this object; False: nowhere. `began`: time
    (`time.monotonic`) at which the start of the run began. `resume`: the checkpoints of an earlier run that this run
    resumes.

    Attributes to read: `error`, the error that ended the run, or None; `commands`, the log of executed commands;
    `supported_commands`, the classes of commands that `execute` accepts. Commands that signal processes are supported
    only if the cluster allows them.
    """

    def __init__(
        self, plan: Plan, cluster: Cluster, connection: DaskConnection, supervisor: Supervisor,
        commands: Iterable[Command | Executed], store: Store | Literal[False] | None, began: float, resume: Store | None = None,
    ):  # fmt: skip
        self.plan, self.cluster, self.connection, self.supervisor = plan, cluster, connection, supervisor
        self.members, self.clock = supervisor.members, supervisor.clock
        self.trace = Trace(plan.header(cluster.spec), keep=KEEP_ROWS)
        self.record = RunRecord(self.trace, self.clock)
        self.commands = self.record.commands
        self.checkpoints = RunCheckpoints(store, resume, lambda text: self.record.event(EngineWarning, text))
        self.folder = self.checkpoints.folder
        self.accounting = FinalAccounting(plan, self.members, self.record, self.clock, self.checkpoints)
        self.pauses = PauseControl(plan.layout, self.clock, self.record, self._order_all, self._post_to, time.monotonic)
        self.final_evaluation = FinalEvaluation(self._order_chief, self.clock, time.monotonic)
        self.active = ActiveFaults(cluster.spec.slow)
        self.links = LinkFaultOrders(plan.layout, self.members, self.record, self.active, supervisor.post)
        self.stopped_by: str | None = None
        self.error: LabkitError | None = None
        self.options = plan.strategy
        self._began = began
        self._changed: dict[str, Any] = {}  # options that were changed during the run
        self._schedule = CommandSchedule((c.command if isinstance(c, Executed) else c for c in commands), self.clock)
        self._deadlock = DeadlockDetector(self.members.where)
        self._acknowledgements = Acknowledgements(self._post_to, time.monotonic)
        self._reachability = Reachability(self.members)
        self._returned: set[str] = set()
        self._given_up: set[str] = set()  # roles whose final reports are not awaited
        self._check_s = min(CHECK_S, cluster.spec.heartbeat_timeout / 8)  # at most the absence that counts as silence
        self._timer_due = 0.0  # time of the next `Timer` event
        self._stop_reason: str | None = None
        self._stop_deadline = 0.0
        self._activity = Activity(cluster.spec.heartbeat_timeout)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=f"labkit-run-{supervisor.run}", daemon=True)
        self._start(resume)

    def _start(self, resume: Store | None) -> None:
        """Start the roles, then the run's thread."""
        spec, plan = self.cluster.spec, self.plan
        restored, damaged = resumed_states(plan, resume) if resume else ({}, [])
        settings = {
            "folder": self.folder,
            "factors": dict(spec.slow or {}), "local": self.connection.local, "every": spec.checkpoint_every,
            "synchronized": restarts_as_group(plan.layout) and not whole_replicas(plan.layout),
            "times_resumed": self.checkpoints.times_resumed, "restored": restored,
        }  # fmt: skip
        if resume:
            states = [state for state, _ in restored.values()]
            versions = [int(state["version"]) for state in states if state and "version" in state]
            self.trace.event(Note(0, f"resumed from update {min(versions, default=0)}"))
            for text in damaged:
                self.trace.event(EngineWarning(0, text))
        self.supervisor.start(settings)
        for role, factor in (spec.slow or {}).items():
            self.trace.event(RoleSlowed(0, role, float(factor)))
        self.recovery = Recovery(
            plan, self.supervisor, self.connection, self.record, self.accounting, self.checkpoints, self, self._known_workers(),
            place=spec.place, heartbeat_timeout=spec.heartbeat_timeout, clock=time.monotonic,
        )  # fmt: skip
        self.processes = ProcessFaults(self.connection.local, self.supervisor, self.record, self.recovery)
        self._event_handlers, self._command_handlers = self._event_table(), self._command_table()
        self.supported_commands = frozenset(self._command_handlers) - (
            frozenset() if self.cluster.may_kill else SIGNALS
        )
        incarnations = self.members.incarnation
        self.recovery.handle(
            Announced(tuple((role, incarnations[role]) for role in sorted(self.supervisor.unacknowledged)))
        )
        self.connection.runs.add(self)
        try:
            self._thread.start()
        except BaseException:
            self.connection.runs.discard(self)
            raise

    def _known_workers(self) -> list[str]:
        try:
            return list(self.connection.worker_addresses())
        except ClusterError:  # the loss of the scheduler is detected later
            return list(self.supervisor.where.values())

    # for any thread ---------------------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """Engine time, ns."""
        return self.clock.now

    @property
    def seconds(self) -> float:
        """Engine time, s."""
        return self.clock.seconds

    @property
    def stopping(self) -> str | None:
        """The reason for which the run was asked to stop; None if it was not."""
        return self._stop_reason

    @property
    def paused(self) -> bool:
        """Whether the roles are paused."""
        return self.stopped_by is None and self.pauses.paused

    @property
    def present(self) -> tuple[str, ...]:
        """The workers of an elastic run that take part, or are about to take part."""
        return self.recovery.present

    @property
    def evaluated(self) -> Evaluated | None:
        """The model of the final evaluation; during the run, or without a chief, that of the last checkpoint."""
        return self.accounting.evaluated

    def flush(self) -> None:
        """Do nothing, because roles report periodically."""

    def execute(self, command: Command) -> None:
        """Execute a primitive command now, ignoring its `at`, and wait until it is done. No effect after the end of the run.

        `Stop` also waits for the end of the run (at most 30 s). Raises `BadInput` if the command is not supported,
        names unknown roles, or is not possible in the current state.
        """
        self._check(command)
        self._request(lambda done: CommandRequested(command, done))
        if isinstance(command, Stop) and threading.current_thread() is not self._thread and self._over.wait(STOPPED_S):
            self._thread.join(5)

    def _check(self, command: Command) -> None:
        check_allowed(command, self.cluster.may_kill)
        check_supported(command, self.supported_commands)
        command.check(self.plan.role_ids)

    def step(self, timeout: float | None = None) -> bool:
        """Continue until every shard has made one more update, then pause. Returns False if the run has ended.

        Concurrent calls are executed one after the other. `timeout`: seconds after which the run pauses in any case.
        """
        self._request(lambda done: StepRequested(timeout, done))
        return self.stopped_by is None

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end of the run. Raises `TimeoutError` after `timeout` seconds; the run then continues."""
        if not self._over.wait(timeout):
            raise TimeoutError(f"The run is not over after {timeout:g} s; it goes on.")
        self._thread.join(5)  # the thread is about to end

    def wait_until(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until `condition()` is true, which is checked after each report and event, and four times per second."""
        return self._activity.wait_until(condition, timeout)

    def _request(self, event: Callable[[Done], RecoveryEvent]) -> None:
        """Post `event(done)` to the run's thread, and wait until `done` has been called, or the run has ended."""
        if self.stopped_by is not None:
            return
        answer: Future[None] = Future()

        def done(error: BadInput | None) -> None:
            if not answer.done():
                answer.set_result(None) if error is None else answer.set_exception(error)

        self.supervisor.queue.put(event(done))
        if threading.current_thread() is self._thread:  # called by a finalizer on this thread: must not wait
            return
        while True:
            try:
                return answer.result(CHECK_S)
            except FutureTimeout:
                if self._over.is_set() and not answer.done():
                    return

    def forked(self, why: ClusterError) -> None:
        """Mark this copy as ended, in a forked child process, which does not have the run's threads. `why`: its error."""
        self._over = threading.Event()
        self.trace.lock = threading.RLock()
        if self.stopped_by is None:
            self.stopped_by, self.error = "error", why
        self._over.set()
        self._activity = Activity(self.cluster.spec.heartbeat_timeout)
        self._activity.close()

    # the run's thread -------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        end = None
        try:
            while end is None:
                end = self._handle_next()
        except Exception as error:
            end = self._internal_error(error)
        finally:
            self._finish(end or RunEnd("error", "its thread was ended"))

    def _internal_error(self, error: Exception) -> RunEnd:
        log.error("Run %s has failed because of an internal error of labkit", self.supervisor.run, exc_info=error)
        self.error = ClusterError(f"The supervisor failed: {type(error).__name__}: {error}")
        return RunEnd("error", str(self.error))

    def _handle_next(self) -> RunEnd | None:
        """Execute due commands, handle the next event if one arrives in time, and check the time limits."""
        self._execute_due()
        self.processes.renew_leases()
        try:
            event = self.supervisor.queue.get(timeout=self._time_left())
        except Empty:
            event = None
        end = (None if event is None else self._dispatch(event)) or self._check_limits()
        self._activity.handled(event)
        return end

    def _time_left(self) -> float:
        """Return the seconds until a command or a time limit is due, at most the interval between two checks."""
        left = min(self.pauses.due - time.monotonic(), self._schedule.left)
        return min(max(left, 0.0), self._check_s)

    def _dispatch(self, event: RecoveryEvent) -> RunEnd | None:
        """Pass an event to recovery, then to its handler. Events of fenced instances are passed only to recovery."""
        present = not isinstance(event, OfRole) or self.members.is_present(event.role, event.incarnation)
        if present and isinstance(event, OfRole):
            self._reachability.heard(event.role, time.monotonic())
        if present and isinstance(event, RoleUp) and not self._clock_is_known(event):
            return None
        if isinstance(event, WorkerHeartbeats):
            event = self._received(event)
        elif isinstance(event, WorkerLeft) and not event.how:
            event = replace(event, how=self.connection.how_ended(event.worker))
        if isinstance(event, FOR_RECOVERY):
            self.recovery.handle(event)
        if isinstance(event, WorkerLeft):
            self.supervisor.left(event.worker)
        handler = self._event_handlers.get(type(event)) if present else None
        return (None if handler is None else handler(event)) or self._check_recovery()

    def _received(self, event: WorkerHeartbeats) -> WorkerHeartbeats:
        """Return the signs of life without those of Dask workers that a link fault has cut off from the client."""
        where = self.members.where
        cut_off = {address for role, address in where.items() if self.links.is_isolated(role)}
        return WorkerHeartbeats({address: value for address, value in event.seen.items() if address not in cut_off})

    def _event_table(self) -> dict[type[RecoveryEvent], Callable[[Any], RunEnd | None]]:
        return {
            Report: self._on_report,
            Returned: self._on_returned,
            RoleFailed: self._on_failed,
            VersionReported: lambda event: self.pauses.version(event.role, event.version),
            Stepped: lambda event: self.pauses.reached(event.role),
            CommandRequested: lambda event: self._execute(event.command, event.done),
            StepRequested: lambda event: self.pauses.step(event.limit, lambda: event.done(None)),
            Answered: lambda event: event.then(),
            InternalError: lambda event: self._internal_error(event.error),
        }

    def _clock_is_known(self, event: RoleUp) -> bool:
        """Return whether the clock offset of the role's machine is known.

        If it is not known, it is measured, and the event is posted again afterwards.
        """
        if self.supervisor.add_process(event):
            return True
        self.supervisor.measure(self.members.where[event.role], lambda: self.supervisor.queue.put(event))
        return False

    def _on_report(self, event: Report) -> RunEnd | None:
        self.trace.append(event.batch)
        self._acknowledgements.acknowledge(event.role, event.incarnation, event.batch)
        self.pauses.reported(event.role, event.incarnation, event.flow)
        self._reachability.report(event.role, event.incarnation, event.unanswered, time.monotonic())
        if event.role == "chief":
            self.final_evaluation.reported(event.finishing)
        return self._check_deadlock(event)

    def _on_returned(self, event: Returned) -> RunEnd | None:
        role = event.role
        if self.plan.layout.roles[self.plan.role_ids[role]].kind == "chief":
            return RunEnd(event.verdict or "finished", "")
        self._returned.add(role)
        self.check_returned()
        return None

    def _on_failed(self, event: RoleFailed) -> RunEnd:
        self.error = render_failure(event.report)
        return RunEnd("error", str(self.error))

    def _check_recovery(self) -> RunEnd | None:
        """Return the end of the run if recovery has decided to end it, else None."""
        ended = self.recovery.ended
        return None if ended is None else self._end_after_loss(ended.roles, ended.why)

    # commands ---------------------------------------------------------------------------------------------------------

    def _execute_due(self) -> None:
        """Execute the commands that are scheduled and due."""
        while (command := self._schedule.take()) is not None:
            try:
                self._check(command)
            except BadInput as error:
                self._warn_if_refused(error)
            else:
                self._execute(command, self._warn_if_refused, scheduled=True)

    def _warn_if_refused(self, error: BadInput | None) -> None:
        # a scheduled command has no caller that could receive the error, so the error is recorded
        if error is not None:
            self.event(EngineWarning, str(error))

    def _execute(self, command: Command, done: Done, scheduled: bool = False) -> None:
        if isinstance(command, Pause | Resume):
            self._schedule.in_scheduled_pause = scheduled and isinstance(command, Pause)
        try:
            self._command_handlers[type(command)](command, done)
        except BadInput as error:
            done(error)

    def _command_table(self) -> dict[type[Command], Callable[[Any, Done], None]]:
        def at_once(execute: Callable[[Any], None]) -> Callable[[Any, Done], None]:
            def work(command: Command, done: Done) -> None:
                execute(command)
                done(None)

            return work

        pauses, processes, links = self.pauses, self.processes, self.links
        return {
            Slow: self._slow,
            SetOptions: self._set,
            Pause: lambda command, done: pauses.pause(command, lambda: done(None)),
            Resume: lambda command, done: pauses.resume(command, lambda: done(None)),
            Stop: at_once(self._stop),
            Inject: at_once(self._inject),
            Join: at_once(self._join),
            Leave: at_once(self._leave),
            Kill: processes.kill,
            Restart: at_once(processes.restart),
            Freeze: processes.freeze,
            Thaw: processes.thaw,
            Cut: at_once(links.cut),
            Reconnect: at_once(links.reconnect),
            Limit: at_once(links.limit),
            Delay: at_once(links.change),
            Drop: at_once(links.change),
            End: self._end,
        }

    def _set(self, command: SetOptions, done: Done) -> None:
        names = command.options
        self.options = changed = self.options.changed(**names)
        values = {name: getattr(changed, name) for name in names}
        self._changed |= values
        self.record.executed(command.changed(options=values))
        self.event(OptionsSet, values)
        self._order({"do": "set", "options": values}, None, done)

    def _end(self, command: End, done: Done) -> None:
        """End a temporary fault."""
        if isinstance(command.fault, Slow):
            self._slow(command, done)
        elif isinstance(command.fault, Freeze):
            self.processes.end(command, done)
        else:
            self.links.end(command)
            done(None)

    def _slow(self, command: Slow | End, done: Done) -> None:
        role, factor = command.role, self.active.apply(command)
        self.record.executed(command)
        self.supervisor.set_factor(role, factor)
        self.event(RoleSlowed, role, factor)
        self._order({"do": "slow", "factor": factor}, role, done)

    def _order(self, order: dict[str, Any], role: str | None, done: Done) -> None:
        """Send an order to `role`, or to all roles (None), then call `done(None)`.

        Roles that do not acknowledge the order in time are recorded in the trace.
        """

        def answered(unresponsive: list[str]) -> None:
            for address in unresponsive:
                self.event(EngineWarning, f"{self.supervisor.roles_on(address)} did not acknowledge {order['do']!r}")
            done(None)

        self.supervisor.send_in_order(order, role, answered)

    def _order_all(self, order: dict[str, Any], then: Callable[[], None]) -> None:
        self.supervisor.send_in_order(order, None, lambda unresponsive: then())

    def _order_chief(self, order: dict[str, Any]) -> None:
        self.supervisor.send_in_order(order, "chief")

    def _post_to(self, order: dict[str, Any], role: str, incarnation: int) -> None:
        self.supervisor.post(order, [self.members.where[role]], role, incarnation)

    def _stop(self, command: Stop) -> None:
        if self._stop_reason is None:
            self.record.executed(command)
            self._stop_reason, self._stop_deadline = command.reason, time.monotonic() + STOP_S
            self.pauses.stop()
            self.final_evaluation.request(command.reason)

    def _inject(self, command: Inject) -> None:
        """Schedule the commands of `command` at their engine times."""
        for one in command.scheduled:
            check_supported(one, self.supported_commands)
        self.record.executed(command)
        self._schedule.add(command.scheduled)

    def _join(self, command: Join) -> None:
        """Let an absent worker join as soon as a Dask worker is free for it."""
        check_elastic(command, self.plan)
        if command.role not in self.recovery.present:
            self.record.executed(command)
            self.recovery.handle(command)

    def _leave(self, command: Leave) -> None:
        """Let a worker leave: its current work is dropped, and the messages that it has sent are delivered."""
        check_elastic(command, self.plan)
        if command.role in self.recovery.present:
            self.record.executed(command)
            self.recovery.handle(command)

    # end of the run ---------------------------------------------------------------------------------------------------

    def check_returned(self) -> None:
        """Request the final evaluation if the coroutines of all awaited roles have returned."""
        awaited = self.members.must_return
        if awaited and self._returned.issuperset(awaited):
            self.final_evaluation.request("finished")

    def _check_limits(self) -> RunEnd | None:
        """Check all time limits, and the connection to the scheduler."""
        now = time.monotonic()
        self.pauses.check_deadline(now)
        if self._stop_reason is not None and now > self._stop_deadline:
            return RunEnd(self._stop_reason, "the chief did not answer, so there is no final evaluation")
        for text in self._reachability.news(now):
            self.event(EngineWarning, text)
        limit = self.plan.budget.seconds
        if limit is not None and self.clock.seconds > limit:
            missing, late = self.members.missing, self.clock.seconds > limit + STOP_S
            if missing and late:
                awaited = "; ".join(f"{role}, which {self.members.why.get(role, 'is starting')}" for role in missing)
                return RunEnd("seconds", f"there is no last evaluation: it would wait for {awaited}")
            if unreachable := self._reachability.text(now, "chief"):
                return RunEnd("seconds", f"there is no last evaluation: {unreachable}")
        if unreachable := self._reachability.text(now, "chief", STALLED_S):  # the model cannot be evaluated
            return self._end_after_loss((), f"{unreachable}. {PORTS}")
        if self.supervisor.client.status != "running":
            return self._end_after_loss(self.plan.role_ids, "the connection to the Dask scheduler is gone")
        if now >= self._timer_due:
            self._timer_due = now + TIMER_S
            self.recovery.handle(Timer())
        return self._check_recovery()

    def _end_after_loss(self, roles: Iterable[str], what: str) -> RunEnd:
        self._given_up.update(roles)
        self.error = ClusterError(loss_text(self.now, what))
        return RunEnd("error", str(self.error))

    def _check_deadlock(self, event: Report) -> RunEnd | None:
        if event.change != self.members.change or not self.members.settled:
            return None
        until, acknowledged_at = event.batch["until"], self.final_evaluation.acknowledged_at
        if acknowledged_at is None or until <= acknowledged_at + MARGIN_NS:
            return None  # the report may be older than the request for a final evaluation
        self._deadlock.report(event.role, event.waiting, event.only, event.sent, event.received, until)
        unreachable = self._reachability.text(time.monotonic())
        blocked = None if self.pauses.paused else self._deadlock.blocked(bool(unreachable))
        if not blocked:
            return None
        if unreachable:
            return self._end_after_loss((), f"all roles wait: {unreachable}. {PORTS}")
        awaited = {}  # {blocked role: (kinds, sender)}, in the order of the layout, without membership events
        for name in (r.name for r in self.plan.layout.roles if r.kind != "chief" and r.name in blocked):
            kinds, only = blocked[name]
            awaited[name] = tuple(kind for kind in kinds if kind not in MEMBERSHIP_EVENTS), only
        self.error = Deadlock(deadlock_text(self.trace, self.now, awaited))
        return RunEnd("deadlock", str(self.error))

    def _finish(self, end: RunEnd) -> None:
        """Shut down all roles, and complete the trace. Takes a limited time even if roles do not answer."""
        self.record.close()
        stopped_by, why = end
        try:
            lost = {*self._given_up, *self.members.missing}
            reports = Shutdown(self.supervisor, lost, self._on_shutdown_event).perform(why or stopped_by)
            self.accounting.close(
                stopped_by, why, self.error, reports, self.supervisor.never_began,
                getattr(self.options, "learning_rate", None), time.monotonic() - self._began,
            )  # fmt: skip
        except Exception as error:
            log.exception("The final accounting of run %s failed", self.supervisor.run)
            self.error = ClusterError(f"The final accounting of the run failed: {type(error).__name__}: {error}")
            stopped_by = "error"
        finally:
            for close in (self.processes.thaw_all, self.supervisor.close, self._deregister):
                try:
                    close()
                except Exception:  # continue, because threads that wait for the end of the run must be released
                    log.exception("Resources of run %s could not be released", self.supervisor.run)
            self.stopped_by = stopped_by
            self._release_folder()
            self._over.set()
            self._activity.close()
            self._release_callers()
            self._release_cluster()

    def _release_cluster(self) -> None:
        """Keep the cluster's processes no longer: they end if nothing else refers to the cluster."""
        if isinstance(self.cluster, DaskCluster):
            kept, self.cluster = [self.cluster], self.cluster.with_spec(self.cluster.spec, keep=False)
            # the last reference ends the processes, for which callers that join the run's thread do not wait
            threading.Thread(target=kept.clear, name="labkit-release").start()

    def _deregister(self) -> None:
        self.connection.runs.discard(self)

    def _on_shutdown_event(self, event: RecoveryEvent) -> None:
        """Handle an event during the shutdown: reports still go into the trace, commands have no effect."""
        if isinstance(event, Report) and self.members.is_present(event.role, event.incarnation):
            self.trace.append(event.batch)
        elif isinstance(event, CommandRequested):
            event.done(None)

    def _release_callers(self) -> None:
        """Release all threads that wait for a command or a step."""
        self.pauses.close()
        while True:
            try:
                event = self.supervisor.queue.get_nowait()
            except Empty:
                return
            if isinstance(event, CommandRequested | StepRequested):
                event.done(None)

    # interface for recovery -------------------------------------------------------------------------------------------

    def event(self, kind: type[TraceEvent], *fields: Any) -> None:
        """Record an event of this kind at the current engine time. `fields`: its fields after the time."""
        self.record.event(kind, *fields)

    def dismissed(self, role: str, incarnation: int) -> None:
        """Update the components of the run after an instance of `role` has ended."""
        self.links.ended(role, incarnation)
        self._returned.discard(role)
        self._deadlock.reset(self.members.contact)
        self.pauses.lost(role)

    def admitted(self, role: str) -> None:
        """Update the components of the run when the next instance of `role` is up."""
        self._deadlock.reset(self.members.contact)

    def begin_fields(self, role: str) -> dict[str, Any]:
        """Return additional fields of the order to begin, for an instance that begins during a run.

        They contain the origin of engine time, the engine time of the current pause (or None), the options that were
        changed, and orders: link faults, the pause or step in progress, and the request for a final evaluation.
        """
        finish = self.final_evaluation.orders() if role == "chief" else []
        orders = [self.links.order_for(role), *self.pauses.orders(), *finish]
        clock = self.clock
        return {"zero": clock.zero, "paused_at": clock.paused_at, "options": dict(self._changed), "orders": orders}
