"""The engine of one run in virtual time: advances the run and executes commands.

A run is determined by (plan, cluster, commands): given the command log of an earlier run, it repeats that run exactly. Virtual
time passes only on request, in one thread at a time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...errors import BadInput, ClusterError, Deadlock, LabkitError, shown
from ...interrupts import DeferredInterrupt
from ...roles.evaluator import Evaluator
from ...roles.messages import Joined, Left, Snapshot
from ...trace.events import (
    EngineWarning,
    LinkCut,
    LinkDelayed,
    LinkLossy,
    LinkReconnected,
    OptionsSet,
    RoleLimited,
    RoleSlowed,
)
from ...trace.schema import AFTER_END, REASONS, ROLLED_BACK, nanoseconds, seconds
from ...trace.trace import Trace
from ..active_faults import ActiveFaults, reason_of
from ..base import Cluster, Evaluated, VirtualTimeEngine
from ..commands import (
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
    not_executed,
)
from ..elastic import check_elastic
from ..error_texts import deadlock_text, divergence_text, failure_report, loss_text, render_failure
from ..plan import Plan, find_role
from ..role_core import KnownMembers
from ..storage.journal import RunJournal, past_text
from ..storage.store import fingerprint, open_store
from .checkpointing import Checkpoints
from .event_loop import CHIEF_WAKE, EventLoop, RunEvent
from .interpreter_tuning import TUNING
from .recovery import SimulatedRecovery
from .role import SimulatedRole
from .role_factory import RoleFactory, check_time_passes, make_network
from .run_lock import RunLock, TimeSlices

FOREVER = 1 << 62
EXAMINE = 1024  # turns after which it is examined whether the last evaluation waits for a role that cannot answer
FLUSH = 200_000  # turns after which the roles' buffers go into the trace


class UpdateWatch:
    """Detects the next update of the model. `versions()`: the number of updates of the model; `changes()`: the number of starts
    and ends of instances.

    The count is reset when an instance starts or ends, because the restore or absence of a shard is not an update.
    """

    def __init__(self, versions: Callable[[], int], changes: Callable[[], int]):
        self._versions, self._changes = versions, changes
        self._base = changes(), versions()

    def reached(self) -> bool:
        changes, versions = self._changes(), self._versions()
        if changes != self._base[0]:
            self._base = changes, versions
        return versions > self._base[1]


class ConditionWatch:
    """Detects that `condition()` is true. It is evaluated when the value of `state()` has changed, and at the beginning."""

    def __init__(self, condition: Callable[[], bool], state: Callable[[], tuple[int, ...]]):
        self._condition, self._state = condition, state
        self._seen: tuple[int, ...] | None = None
        self.holds = False

    def reached(self) -> bool:
        now = self._state()
        if now != self._seen:
            self.holds = self._condition()
            self._seen = self._state()  # the condition may have brought the trace up to date
        return self.holds


class SimulatedRun(VirtualTimeEngine):
    """One run in virtual time. Time passes only in `advance`, `wait` and `step`, which any thread may call.

    The argument `commands` contains primitive commands, which are executed at their times, and entries of the log of an earlier
    run, which are executed before the same turns of the loop. If a command cannot be executed at its time, a warning is
    recorded. The attribute `commands` is the log of this run. `supported_commands`: the classes of commands that `execute`
    accepts. `checkpoint`: the location of the journal, from which another process can resume the run; None: no journal.
    """

    def __init__(
        self, plan: Plan, cluster: Cluster, commands: Iterable[Command | Executed] = (), checkpoint: object = None
    ) -> None:
        spec = cluster.spec
        check_time_passes(plan, spec)
        for name in spec.slow:
            find_role(name, plan.role_ids)
        self.plan, self.cluster, self._loop = plan, cluster, EventLoop()
        self.stopped_by: str | None = None
        self.error: LabkitError | None = None
        self.trace = Trace(plan.header(spec))
        self.commands: list[Executed] = []
        self.supported_commands = frozenset(_HANDLERS)
        self._ending_command: Executed | None = None  # the entry of the command that ended the run
        self._journal = RunJournal(open_store(checkpoint), self._warn)
        self._lock, self._turns_per_slice = RunLock(), TimeSlices(None).turns
        kind_ids = {kind: i for i, kind in enumerate(plan.message_kinds)}
        self._network = make_network(self._loop, plan, spec, kind_ids)
        with TUNING():
            self._make_roles()
        self._slice_end = 0  # the turn before which a slice ends
        self._flush_every = max(FLUSH, 50 * len(self._roles))  # a flush costs more with more roles
        self._flush_at = self._flush_every
        entries = list(commands)
        self._commands_to_repeat = [e for e in reversed(entries) if isinstance(e, Executed) and e.turn is not None]
        timed = [e for e in entries if not isinstance(e, Executed) or e.turn is None]
        self._schedule = [e.command if isinstance(e, Executed) else e for e in timed]
        for command in self._schedule:
            self._loop.call_at(nanoseconds(command.at), self._execute_planned, command)
        self._active = ActiveFaults(spec.slow)
        for name in spec.slow:
            self._slow(name, self._active.slowdown(name))
        for role in self._roles:
            if not role.down:
                self._loop.make_ready(role, None)

    def _make_roles(self) -> None:
        plan, spec, loop = self.plan, self.cluster.spec, self._loop
        self._members = KnownMembers(plan.layout.peers(), dict.fromkeys(plan.role_ids, 0))
        self._factory = RoleFactory(plan, spec, loop, self._network, self._members)
        self._roles = self._factory.make_roles(self)
        self._by_name = {role.name: role for role in self._roles}
        self._chief = self._by_name["chief"]
        # the run is finished when these have returned: roles that compute, or, if there are none, all but the chief
        self._required_roles = [r for r in self._roles if r.spec.computes] or [
            r for r in self._roles if r is not self._chief
        ]
        self._checkpoints = Checkpoints(plan.layout, loop, self._roles, spec.checkpoint_time, spec.checkpoint_every)
        for role in self._roles:
            self._factory.prepare(role, 0)
            self._checkpoints.register(role)
        self._recovery = SimulatedRecovery(
            plan, spec, loop, self._network, self._roles, self._members, self._factory, self._checkpoints, self.trace
        )

    def _warn(self, what: str) -> None:
        self.trace.event(EngineWarning(self._loop.now, what))

    # advancing --------------------------------------------------------------------------------------------------------

    def advance(self, until: float, timeout: float | None = None) -> bool:
        """Advance virtual time up to `until` seconds. The result does not depend on the intervals in which the run is
        advanced.
        """
        goal = min(nanoseconds(min(until, seconds(FOREVER))), FOREVER)

        def set_time() -> None:
            if goal < FOREVER:
                self._loop.now = max(self._loop.now, goal)

        self._advance_in_slices(goal, timeout, then=set_time)
        with self._lock:
            if self.stopped_by is None:
                self.flush()
                self._save_reached()
        return self.stopped_by is None

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the run is over. Raises `TimeoutError` after `timeout` seconds of wall time; the run then continues."""
        if self.stopped_by is None and not self._advance_in_slices(FOREVER, timeout, then=self._end_waiting):
            self._save_reached()
            raise TimeoutError(f"The run is not over after {timeout:g} s; it goes on.")

    def wait_until(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Advance until `condition()` is true, which is checked after each update, evaluation and event of the engine."""
        watch = ConditionWatch(condition, self._progress)
        with self._lock:
            holds = watch.reached()
        if holds:
            return True

        def end_if_waiting() -> None:
            if not watch.holds:
                self._end_waiting()

        in_time = self._advance_in_slices(FOREVER, timeout, watch, then=end_if_waiting)
        self.flush()
        self._save_reached()
        if not in_time:
            raise TimeoutError
        return watch.holds or condition()

    def _progress(self) -> tuple[int, ...]:
        """Return a value that changes with each update, evaluation, start and end of an instance, and recorded event."""
        return self._versions(), self.evaluator.update, self._recovery.changes, len(self.trace.events)

    def step(self, timeout: float | None = None) -> bool:
        """Continue to the next update. Returns False once the run is over."""
        with self._lock:
            watch = UpdateWatch(self._versions, lambda: self._recovery.changes)
        self._advance_in_slices(FOREVER, timeout, watch)
        self.flush()
        self._save_reached()
        return self.stopped_by is None

    def _advance_in_slices(
        self, until: int, timeout: float | None, watch: UpdateWatch | ConditionWatch | None = None,
        then: Callable[[], None] | None = None,
    ) -> bool:  # fmt: skip
        """Advance to `until` (ns), or to the moment detected by `watch`, in time slices; other threads get the lock in between.

        `then` is called when there is no more to do up to `until` and the run is not over, before the lock is released.
        Returns False after `timeout` seconds of wall time.
        """
        slices = TimeSlices(timeout, self._turns_per_slice)
        with DeferredInterrupt(self._end_slice) as interrupt, TUNING():
            continues = True
            while continues:
                if slices.over:
                    return False
                with self._lock:
                    self._slice_end = min(self._loop.turn + slices.turns, self._flush_at)
                    interrupt.check()
                    continues = self._run_slice(until, watch)
                    if not continues and then is not None and self.stopped_by is None:
                        then()
                slices.next()
                self._turns_per_slice = slices.turns
                self._lock.offer()
        return True

    def _end_slice(self) -> None:
        self._slice_end = self._loop.pause = 0

    def _run_slice(self, until: int, watch: UpdateWatch | ConditionWatch | None) -> bool:
        """Perform turns up to the end of the slice. Returns True if there is more to do."""
        loop = self._loop
        if not loop.turn:  # the first move of the run; some roles may have been killed or restarted before
            for role in self._roles:
                if not role.begun and not role.down:
                    role.begin()
        try:
            continues = self._run_turns(until, watch)
        except KeyboardInterrupt:
            self._end("interrupted", "in the middle of an event, so there is no last evaluation")
            raise
        if loop.turn >= self._flush_at:
            self._flush_at = loop.turn + self._flush_every
            self.flush()
        return continues

    def _run_turns(self, until: int, watch: UpdateWatch | ConditionWatch | None) -> bool:
        loop, repeated = self._loop, self._commands_to_repeat
        while self.stopped_by is None:
            if self._chief.down and until == FOREVER and not isinstance(watch, UpdateWatch) and self._cannot_end():
                self._end_deadlocked()
                return False
            if loop.turn >= self._slice_end:
                return True
            if repeated and repeated[-1].turn == loop.turn and nanoseconds(repeated[-1].at) <= until:
                self._repeat_command()
            else:
                examined = loop.turn - loop.turn % EXAMINE + EXAMINE
                # turn by turn if a command of a log, or the end of what is watched, belongs before a certain turn
                loop.pause = loop.turn + 1 if repeated or watch else min(self._slice_end, examined)
                outcome = loop.run(until)
                if outcome is loop.EMPTY:
                    self._end_deadlocked()
                    return False
                if outcome is loop.AHEAD:
                    self._report_waiting()
                    return False
                if outcome is not loop.PAUSED and not self._run_event(outcome):  # type: ignore[arg-type]
                    return False
            if watch is not None and watch.reached():
                return False
            if not loop.turn % EXAMINE:
                self._end_if_unreachable()
        return False

    def _cannot_end(self) -> bool:
        """Return whether the chief, which is needed to end the run, is lost, and no command or restart is scheduled."""
        return self._recovery.chief_is_lost() and not self._commands_to_repeat and not self._loop.run_has_events()

    def _run_event(self, event: RunEvent) -> bool:
        """Handle an event that the event loop passes to the run. Returns False if the run is stuck before this event."""
        time, _, _, what, subject, payload = event
        loop = self._loop
        if what == CHIEF_WAKE:
            self._report_waiting()
            if self._idle(time):
                self._end_deadlocked()
                return False
            loop.now = time
            loop.turn += 1
            if subject.token == payload:
                subject.wait_over()
                self._end_if_unreachable(begins=True)
            return True
        loop.now = time
        if subject != self._execute_planned:  # a planned command is no turn: it is an entry of the log
            loop.turn += 1
        subject(*payload)
        self._end_if_finished()
        self._end_if_unreachable()
        return True

    def _repeat_command(self) -> None:
        """Execute the next command of an earlier run's log, before the same turn."""
        entry = self._commands_to_repeat.pop()
        self._loop.now = max(self._loop.now, nanoseconds(entry.at))
        self._execute_planned(entry.command)

    def _versions(self) -> int:
        """Return the number of updates of the whole model; 0 while a shard that updates need is lost."""
        observed = [self._by_name[owner] for owner in self.plan.layout.observed]
        if any(role.down and not self._recovery.is_not_waited_for(role) for role in observed):
            return 0
        return min((role.shard.version for role in observed if not role.down and role.shard is not None), default=0)

    def _idle(self, time: int) -> bool:
        """Return whether the run was stuck before the chief wakes at `time` (ns), at the end of the budget's seconds: all
        roles are present and wait without timeout, none is suspended, and no message is in flight or held by a cut link.

        Commands that are planned for later times are ignored, because the run ends before it could execute them.
        """
        limit = self.plan.budget.seconds
        if limit is None or time < nanoseconds(limit) or not self._chief.waits_for[0] or self._loop.ready:
            return False
        if not self._recovery.all_present or not self._recovery.none_suspended or self._network.held():
            return False
        return not self._loop.roles_have_events()

    def _report_waiting(self) -> None:
        """Record the roles that the run waits for, if the only event ahead is the end of the budget's seconds."""
        if not self._loop.ready and self._recovery.may_wait() and not self._loop.roles_have_events(but_chief=True):
            self._recovery.report_waiting(self._required_roles)

    @property
    def seconds(self) -> float:
        return seconds(self._loop.now)

    def _save_reached(self) -> None:
        """For a process that resumes the run."""
        if self.stopped_by is None and not self._commands_to_repeat:
            self._journal.reached(self.seconds, self._past)

    def _past(self) -> str:
        return past_text(self.trace, self._loop.now)

    def fork(self, at: float | None = None) -> SimulatedRun:
        """Return a new run that repeats this run up to `at` seconds (None: the present time).

        The new run repeats the commands of this run up to `at`, except a command that ended this run, and executes its planned
        faults at their times.
        """
        with self._lock:
            instant = self._loop.now if at is None else nanoseconds(at)
            log = [e for e in self.commands if nanoseconds(e.at) <= instant and e is not self._ending_command]
            ahead = [command for command in self._schedule if nanoseconds(command.at) > instant]
        return SimulatedRun(self.plan, self.cluster, [*log, *ahead])

    # commands ---------------------------------------------------------------------------------------------------------

    def execute(self, command: Command) -> None:
        """Execute a primitive command now; its `at` is ignored. Does nothing if the run is over."""
        check_supported(command, self.supported_commands)
        command.check(self._by_name)
        with self._lock:
            if self.stopped_by is None:
                _HANDLERS[type(command)](self, command)
                self._end_if_finished()
                self._end_if_unreachable()
        if isinstance(command, Stop):
            self.wait()

    def _execute_planned(self, command: Command) -> None:
        """Execute a command of a schedule or of an earlier run's log. If it is rejected, a warning is recorded."""
        try:
            self.execute(command)
        except BadInput as error:
            self._warn(str(error))

    def _log(self, command: Command) -> None:
        self.commands.append(Executed(command.changed(at=self.seconds), self._loop.turn))
        if not self._commands_to_repeat:  # repeated commands are already in the journal
            self._journal.commands(self.commands, self.seconds)

    def _do_kill(self, command: Kill) -> None:
        self._log(command)
        self._recovery.kill(command.role, command.restart)

    def _do_restart(self, command: Restart) -> None:
        if not self._by_name[command.role].down:
            raise BadInput(f"restart({shown(command.role)}): it is not away; kill it first.")
        if command.role in self._recovery.outside:
            raise BadInput(f"restart({shown(command.role)}): it takes no part in this run; let it join.")
        self._log(command)
        self._recovery.restart(command.role)

    def _do_freeze(self, command: Freeze) -> None:
        self._log(command)
        self._recovery.freeze(command.role, reason_of(command))

    def _do_thaw(self, command: Thaw) -> None:
        self._log(command)
        self._recovery.thaw(command.role, None)

    def _do_end(self, command: End) -> None:
        fault = command.fault
        if isinstance(fault, Slow):
            self._do_slow(command)
        elif isinstance(fault, Freeze):
            self._log(command)
            self._recovery.thaw(command.role, fault)
        elif isinstance(fault, Cut):
            self._do_reconnect(command)
        elif isinstance(fault, Limit):
            self._do_limit(command)
        else:
            self._change_links(command)

    def _do_join(self, command: Join) -> None:
        check_elastic(command, self.plan)
        if command.role in self._recovery.outside:
            self._log(command)
            self._recovery.join(command.role)

    def _do_leave(self, command: Leave) -> None:
        check_elastic(command, self.plan)
        if command.role not in self._recovery.outside:
            self._log(command)
            self._recovery.leave(command.role)

    def _do_cut(self, command: Cut) -> None:
        self._log(command)
        self.trace.event(LinkCut(self._loop.now, command.role, command.peer))
        if command.peer is None:
            self._recovery.isolate(command.role, reason_of(command))
        else:
            self._network.faults.cut(command.role, command.peer, reason_of(command))

    def _do_reconnect(self, command: Reconnect | End) -> None:
        self._log(command)
        role, peer, faults = command.role, command.peer, self._network.faults
        reason = reason_of(command.fault) if isinstance(command, End) else None
        if peer is None:
            self._recovery.reconnect(role, reason)
            if reason is None:
                faults.reconnect(role, self._by_name, None)
        elif faults.reconnect(role, [peer], reason):
            self.trace.event(LinkReconnected(self._loop.now, role, peer))
        faults.send_held()

    def _change_links(self, command: Delay | Drop | End) -> None:
        self._log(command)
        amount = self._network.faults.change(command)
        fault = command.fault if isinstance(command, End) else command
        event = LinkDelayed if isinstance(fault, Delay) else LinkLossy
        self.trace.event(event(self._loop.now, command.role, command.peer, amount))

    def _do_limit(self, command: Limit | End) -> None:
        self._log(command)
        role, node = command.role, self._by_name[command.role].node
        bandwidth = self._network.faults.limit(command, node, self.plan.layout.roles_on_node(role))
        self.trace.event(RoleLimited(self._loop.now, role, None if math.isinf(bandwidth) else bandwidth))

    def _do_slow(self, command: Slow | End) -> None:
        self._slow(command.role, self._active.apply(command))
        self._log(command)

    def _slow(self, role: str, factor: float) -> None:
        self._by_name[role].factor = factor
        self.trace.event(RoleSlowed(self._loop.now, role, factor))

    def _do_inject(self, command: Inject) -> None:
        """Schedule the injected commands. When a run is repeated, those in its log are executed only from the log."""
        for one in command.scheduled:
            check_supported(one, self.supported_commands)
        due = tuple(one.changed(at=max(one.at, self.seconds)) for one in command.scheduled)
        self._log(command.changed(scheduled=due))
        for left in not_executed(due, self._commands_to_repeat):
            self._loop.call_at(max(nanoseconds(left.at), self._loop.now), self._execute_planned, left)

    def _do_set(self, command: SetOptions) -> None:
        changed = self.plan.strategy.changed(**command.options)
        values = {name: getattr(changed, name) for name in command.options}
        self._log(command.changed(options=values))
        for name, value in values.items():  # all roles share one strategy object
            object.__setattr__(self._chief.strategy, name, value)
        self.trace.event(OptionsSet(self._loop.now, values))

    def _do_stop(self, command: Stop) -> None:
        if self.evaluator.stop_requested is None:
            self._log(command)
            self._ending_command = self.commands[-1]
            self._evaluate_and_end(command.reason)

    def _do_nothing(self, command: Pause | Resume) -> None:
        """Do nothing: virtual time passes only while the run is advanced."""

    # the end ----------------------------------------------------------------------------------------------------------

    def _evaluate_and_end(self, reason: str) -> None:
        """Interrupt the chief, so that it makes a final evaluation and ends the run."""
        self.evaluator.stop_requested = reason
        self._chief.interrupt()
        self._end_if_unreachable(begins=True)

    def _end_if_unreachable(self, begins: bool = False) -> None:
        """End the run without its last evaluation, if that would wait for a role that is lost, frozen or cut off from the chief.
        `begins`: the chief is about to request the last snapshots; otherwise it is examined whether it waits for them.
        """
        limit, reason = self.plan.budget.seconds, self.evaluator.stop_requested
        if reason is None and limit is not None and self._loop.now >= nanoseconds(limit):
            reason = "seconds"
        if reason is None or self.stopped_by is not None:
            return
        chief, recovery = self._chief, self._recovery
        awaited = recovery.unreachable([chief.name])
        if not awaited and (begins or Snapshot.__name__ in chief.waits_for[0]):
            awaited = recovery.unreachable(self.evaluator.observed(chief.context))  # type: ignore[arg-type]
        if awaited:
            self._end(reason, f"there is no last evaluation: it would wait for {awaited}")

    def role_returned(self, role: SimulatedRole) -> None:
        """Process the return of a coroutine. If it is the chief's, the run ends. If it is the last for which the run waits, a
        final evaluation follows.
        """
        if role is self._chief:
            self._end(self.evaluator.stopped_by or "finished", "")
        else:
            self._end_if_finished()

    def _end_if_finished(self) -> None:
        """End the run, with a final evaluation, if one of the required roles has returned and the run waits for no other
        role.
        """
        required_roles = self._required_roles
        ending = self.stopped_by is not None or self.evaluator.stop_requested is not None
        if not ending and all(map(self._recovery.is_done, required_roles)) and any(r.returned for r in required_roles):
            self._evaluate_and_end("finished")

    def role_failed(self, role: SimulatedRole, error: BaseException) -> None:
        """End the run because a coroutine has raised `error`."""
        step = role.counters.computed if role.spec.computes else role.counters.version
        self.error = render_failure(failure_report(role.name, step, error))
        self._end("error", str(self.error))

    def _end_deadlocked(self) -> None:
        """End the run because no role can continue: a deadlock, unless the run waits for a role that a command can restart."""
        if self._recovery.report_waiting(self._required_roles):
            return
        waiting = {
            r.name: (
                tuple(kind for kind in r.waits_for[0] if kind not in (Left.__name__, Joined.__name__)),
                r.waits_for[1],
            )
            for r in self._roles
            if r.waits_for[0] and r is not self._chief
        }
        self.flush()
        self.error = Deadlock(deadlock_text(self.trace, self._loop.now, waiting))
        self._end("deadlock", str(self.error))

    def _end_waiting(self) -> None:
        """End a run without further events that waits for roles which are not restarted automatically."""
        awaited = self._recovery.awaited(self._required_roles)
        if self.evaluator.stop_requested is not None:
            return self._end(self.evaluator.stop_requested, f"there is no last evaluation: it would wait for {awaited}")
        self.error = ClusterError(
            loss_text(self._loop.now, f"it waits for {awaited}, and it is not restarted automatically")
        )
        self._end("error", str(self.error))

    def _end(self, stopped_by: str, why: str) -> None:
        if self.stopped_by is not None:
            return
        self.stopped_by = stopped_by
        self._end_slice()
        self.flush()
        evaluator, recovery = self.evaluator, self._recovery
        if stopped_by == "diverged":
            why = divergence_text(evaluator.update, getattr(self._chief.strategy, "learning_rate", None))
        if self._chief.state is not None:
            self._journal.state(self._chief.name, self._chief.state, max(evaluator.update, 0))
        self._journal.reached(self.seconds, self._past, stopped_by)
        self.trace.end(
            stopped_by=stopped_by, why=why, time=self._loop.now, wall_seconds=None, in_flight=self._in_flight(),
            update=evaluator.update, samples=evaluator.samples, loss=evaluator.loss, accuracy=evaluator.accuracy,
            parameters_sha256=fingerprint(evaluator.parameters), **self._returned_gradients(stopped_by),
            lost=sorted(r.name for r in self._roles if r.down and r.name not in recovery.outside),
            lost_instances=recovery.lost_instances,
            commands=[entry.to_dict() for entry in self.commands],
        )  # fmt: skip
        self._release_folder()
        for role in self._roles:
            role.close()

    def _returned_gradients(self, stopped_by: str) -> dict[str, Any]:
        """Return the gradients contained in the returned parameters, if the shards have changed since their last evaluation:
        {"returned": {"contained": [[shard, gradients], ...], "over": why the parameters do not contain later gradients}}.

        {} if nothing was evaluated or nothing has changed. A replica that was not evaluated is unchanged if it contains the same
        gradients as an evaluated one.
        """
        evaluated = {shard: json.loads(text) for shard, text in self.evaluator.contained or ()}
        outside = self._recovery.outside
        shards = [(r, r.shard) for r in self._roles if r.shard is not None and r.name not in outside]
        known = [_gradients(one) for one in evaluated.values()]
        unchanged = all(
            not role.down
            and _gradients(shard.log.contained())
            in ([_gradients(evaluated[shard.index])] if shard.index in evaluated else known)
            for role, shard in shards
        )
        partial = any(one.get("partial") for one in evaluated.values())
        if not evaluated or (evaluated.keys() <= {shard.index for _, shard in shards} and unchanged and not partial):
            return {}
        orderly = not self._chief.down and stopped_by not in ("error", "deadlock")
        over = REASONS[AFTER_END if orderly else ROLLED_BACK]
        return {"returned": {"contained": [list(one) for one in evaluated.items()], "over": over}}

    def _in_flight(self) -> list[list[int]]:
        """Return [shard, sender, incarnation, step, count] of every gradient that is in flight, held by a cut link, or in an
        inbox, unless its receiver is lost.
        """
        pending = self._loop.messages()
        for role in self._roles:
            pending.extend((role, message) for message in role.inbox)
        pending.extend(self._network.held())
        ids = self.plan.role_ids
        return [
            [role.shard.index, ids[m.sender], m.incarnation, m.step, m.count]  # type: ignore[attr-defined]
            for role, m in pending
            if m.carries and role.shard is not None and not role.down
        ]

    # the record -------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        with TUNING(), self._lock:
            unchanged = []
            for role in self._roles:
                if role.touched:
                    self.trace.append(role.report(self._loop.now))
                else:
                    unchanged.append(role.id)
            self.trace.mark_reported(unchanged, self._loop.now)

    @property
    def evaluated(self) -> Evaluated | None:
        """The evaluated model that met the budget, or the newest evaluated one; None if nothing was evaluated."""
        with self._lock:
            found = self.evaluator
            if found.parameters is None:
                return None
            return Evaluated(found.parameters, found.update, found.evaluated_at, found.accuracy)

    # for measurements and tests -------------------------------------------------------------------------------------

    @property
    def roles(self) -> Mapping[str, SimulatedRole]:
        """The roles by name, in the order of the layout."""
        return self._by_name

    @property
    def evaluator(self) -> Evaluator:
        """The chief's evaluator, in its newest instance."""
        return self._factory.evaluator

    @property
    def checkpoints(self) -> Checkpoints:
        return self._checkpoints

    @property
    def present(self) -> tuple[str, ...]:
        """The names of the workers that take part in the run, or are joining it, in the order of the layout."""
        return self._members.peers["worker"]


def _gradients(contained: dict[str, Any]) -> Any:
    """Return the gradients in a shard, from `AppliedLog.contained` or a snapshot, in a comparable form."""
    return [
        contained["incarnation"],
        contained["rounds"],
        *(sorted(map(list, contained[name])) for name in ("rounds_by_incarnation", "applied")),
    ]


_HANDLERS: dict[type[Command], Callable[[SimulatedRun, Any], None]] = {
    Slow: SimulatedRun._do_slow,
    Kill: SimulatedRun._do_kill,
    Restart: SimulatedRun._do_restart,
    Freeze: SimulatedRun._do_freeze,
    Thaw: SimulatedRun._do_thaw,
    Limit: SimulatedRun._do_limit,
    Delay: SimulatedRun._change_links,
    Drop: SimulatedRun._change_links,
    End: SimulatedRun._do_end,
    Cut: SimulatedRun._do_cut,
    Reconnect: SimulatedRun._do_reconnect,
    Join: SimulatedRun._do_join,
    Leave: SimulatedRun._do_leave,
    SetOptions: SimulatedRun._do_set,
    Pause: SimulatedRun._do_nothing,
    Resume: SimulatedRun._do_nothing,
    Stop: SimulatedRun._do_stop,
    Inject: SimulatedRun._do_inject,
}
