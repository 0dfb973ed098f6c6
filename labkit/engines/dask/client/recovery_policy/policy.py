"""The policy itself: the table of events, the membership, and the order in which its parts act on time.

The lifecycle of one role is the table in `engines/lifecycle.py`. `Membership` stores the present incarnation of each
role, and its Dask worker. An incarnation is lost (`_lose`): it is fenced, the other roles are notified, and a Dask worker
is sought for the next incarnation. When one is found, the next incarnation starts on it (`Submit`). When this incarnation
is up (`RoleUp`), the other roles are notified (`Announce`); then it receives the order to begin (`Begin`). Members of a
group wait for each other before they start, and before they begin.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .....trace.events import EngineWarning, RoleFenced, RoleJoined, RoleLeft, RoleLost, RoleUnplaced
from ....commands import Join, Leave, Restart
from ....lifecycle import AWAITING_PLACEMENT, PRESENT, State, Trigger
from ...timeouts import REPEAT_S, RETURN_S, STARTS
from ..membership import Membership
from ..orders import Orders
from ..recovery_events import (
    Announced,
    Departed,
    Killed,
    OfRole,
    RecoveryEvent,
    Report,
    RoleUp,
    StateCollected,
    TaskFailed,
    TaskFinished,
    Timer,
    WorkerHeartbeats,
    WorkerJoined,
    WorkerLeft,
)
from .absences import Absences
from .actions import (
    Account,
    Admit,
    Announce,
    Begin,
    CheckReturned,
    Dismiss,
    FailRun,
    Fence,
    Fetch,
    Order,
    Record,
    RecordRestart,
    RecoveryAction,
    RequestHeartbeats,
    StartGroup,
    Submit,
)
from .attempts import RestartAttempts
from .detection import FailureDetection
from .elasticity import Elasticity
from .group_restart import GroupRestart, Phase
from .placement import WorkerPlacement

if TYPE_CHECKING:
    from ..recovery import ConnectionView


class RecoveryPolicy:
    """Decides about losses, restarts, joins and leaves of the roles of one run.

    Only the policy changes `members`. `known`: the Dask workers of the cluster. `on_loss`: option of the strategy.
    `heartbeat_timeout`: seconds; a role is lost after it only if its process gives no sign of life either.
    `elastic`: whether workers may join and leave. `now`: seconds, as in `handle`.

    After the policy has returned `FailRun`, it returns no further action.
    """

    def __init__(
        self, members: Membership, cluster: ConnectionView, known: Collection[str], *, on_loss: str, heartbeat_timeout: float,
        elastic: bool, now: float,
    ):  # fmt: skip
        self.members, self._cluster, self._now = members, cluster, now
        self._layout = members.layout
        self._detection = FailureDetection(members, heartbeat_timeout, now)
        self._group = GroupRestart(members, on_loss)
        self._placement = WorkerPlacement(members, cluster.place, known, self._group.roles)
        self._elasticity = Elasticity(members, elastic)
        self._absences, self._attempts, self._orders = Absences(members), RestartAttempts(members.where, now), Orders()
        self._heartbeat_timeout = heartbeat_timeout
        self._killed: set[str] = set()  # Dask workers whose processes were killed by request
        self._beginning: set[str] = set()  # roles that have not reported since they were up
        self._actions: list[RecoveryAction] = []
        self._ended = False

    def handle(self, event: RecoveryEvent | Join | Leave | Restart, now: float) -> list[RecoveryAction]:
        """Return the actions in response to `event` at `now` (seconds; never decreasing from call to call)."""
        if self._ended:
            return []
        self._now = now
        handler = _HANDLERS.get(type(event))
        if (not isinstance(event, OfRole) or self._of_present(event)) and handler is not None:
            handler(self, event)
        self._detection.consult(now)
        # reports are frequent, and no decision depends on them alone
        if handler is not None and type(event) is not Report:
            self._act_on_time()
        actions, self._actions = self._actions, []
        return actions

    def _act_on_time(self) -> None:
        """Make the decisions that depend on time, in the order of `_ON_TIME`."""
        if self._detection.awaits_restart(self._now):
            return
        for act in _ON_TIME:
            if not self._ended:
                act(self)

    def _emit(self, *actions: RecoveryAction) -> None:
        if not self._ended:
            self._actions += actions

    def _fail_run(self, roles: Iterable[str], why: str) -> None:
        self._emit(FailRun(tuple(roles), why))
        self._ended = True

    # what the run reads ---------------------------------------------------------------------------------------------------

    @property
    def present(self) -> tuple[str, ...]:
        """The workers of an elastic run that take part, or are about to take part."""
        return self._elasticity.present

    @property
    def changing(self) -> bool:
        """Whether a join or a leave is pending."""
        return self._elasticity.changing

    @property
    def phase(self) -> Phase:
        """The phase of a group restart."""
        return self._group.phase

    @property
    def reserved(self) -> Mapping[str, str]:
        """{member of the group: Dask worker on which its next incarnation starts, or has started}."""
        return self._placement.reserved

    def reserved_workers(self) -> set[str]:
        """Return the Dask workers that are reserved for placement requests and for members of the group."""
        return self._placement.reserved_workers()

    def stays_away(self, role: str) -> bool:
        """Return whether `role`, or another role of its node, is not restarted when it is lost."""
        return not self._absences.stay_away.isdisjoint(self._layout.roles_on_node(role))

    # events of role instances ---------------------------------------------------------------------------------------------

    def _of_present(self, event: OfRole) -> bool:
        """Return whether the instance of `event` is present; if it is, the event counts as a sign of life.

        An instance that was declared lost is fenced.
        """
        if type(event) is not Report and type(event) in _HANDLERS:
            self.members.note(event.role, f"{type(event).__name__} of incarnation {event.incarnation}")
        if self.members.is_present(event.role, event.incarnation):
            self._detection.sign(event.role, self._now)
            return True
        if not isinstance(event, TaskFinished | TaskFailed):
            self._fence(event.role, event.incarnation)
        return False

    def _fence(self, role: str, incarnation: int) -> None:
        worker = self.members.fenced.get((role, incarnation))
        first = not self._orders.was_sent("fence", role, incarnation)
        if worker is None or not self._orders.is_due("fence", role, incarnation, self._now, REPEAT_S / 4):
            return
        self._orders.sent("fence", role, incarnation, self._now)
        self._placement.trust(worker)
        if first:
            self._emit(Record(RoleFenced, (role, incarnation, "reported")))
        self._emit(Fence(role, incarnation, worker))

    def _on_report(self, event: Report) -> None:
        self._beginning.discard(event.role)
        if event.change < self.members.change:
            self._order(event.role, self.members.order())

    def _order(self, role: str, command: Mapping[str, Any]) -> bool:
        """Send an order to a role, unless this was done a short time ago. Returns whether it is sent."""
        incarnation = self.members.incarnation[role]
        due = self._orders.is_due(command["do"], role, incarnation, self._now)
        if due:
            self._orders.sent(command["do"], role, incarnation, self._now)
            self._emit(Order(role, incarnation, self.members.where[role], command))
        return due

    def _on_up(self, event: RoleUp) -> None:
        role = event.role
        if self.members.state[role] is State.RUNNING:  # a duplicate event
            return
        joins = self.members.state[role] is State.JOINING
        self.members.arrive(role, event.contact)
        self._attempts.up(role, self._now)
        self._placement.drop([role])
        self._emit(Admit(role, event.incarnation))
        was_lost = self._absences.forget(role)
        if joins:
            self._elasticity.joined(role)
            self._emit(Record(RoleJoined, (role, event.incarnation)))
        elif was_lost:
            backup = self._layout.backup_of(role)
            self._emit(RecordRestart(event, backup is not None and self.members.state[backup] is State.RUNNING))
        beginning = [role]
        if role in self._group.roles:
            if not self._group.up(role):
                return
            beginning = list(self._placement.reserved)
            self._placement.release(beginning)
        others = [self.members.where[name] for name in self.members.contact if name not in beginning]
        instances = tuple((name, self.members.incarnation[name]) for name in beginning)
        self._beginning.update(beginning)
        for instance in instances:  # the order to begin is retransmitted even if `Announced` never arrives
            self._orders.sent("begin", *instance, self._now)
        self._emit(Announce(_distinct(others), self.members.order(), instances))

    def _on_announced(self, event: Announced) -> None:
        for role, incarnation in event.instances:
            if self.members.is_present(role, incarnation):
                self._beginning.add(role)
                self._begin(role)

    def _begin(self, role: str) -> None:
        incarnation = self.members.incarnation[role]
        self._orders.sent("begin", role, incarnation, self._now)
        self._emit(Begin(role, incarnation, self.members.where[role], self.members.order()))

    def _on_task_finished(self, event: TaskFinished) -> None:
        self._detection.finished(event.role)
        if self._group.ended(event.role, self._now):
            self._detection.ignore(event.role)  # Dask reports the loss of its Dask worker
            self._emit(Fetch(event.role, event.incarnation))

    def _on_task_failed(self, event: TaskFailed) -> None:
        role = event.role
        if event.status in ("cancelled", "lost"):
            self._detection.cancelled(role, self._now)
        elif self.members.state[role] is State.RUNNING:
            self._fail_run([role], f"{role} failed: {event.why}")
        else:
            self._emit(Record(EngineWarning, (f"{role} did not start again: {event.why}",)))
            if self._attempts.failed(role, "did not start") >= STARTS:
                self._fail_run([role], f"{role} could not be started again: {event.why}")
            else:
                self._lose([role], "did not start", silent=True)

    def _on_state_collected(self, event: StateCollected) -> None:
        role = event.role
        if not self._group.awaits_report(role):
            return
        if event.report.get("never_began"):
            return self._lose([role], "ended before it began")
        self._emit(Account(event.report))
        self._group.handed_over(role, event.report)
        self._placement.reserve(role, self.members.where[role])
        self._dismiss(role, self.members.end(role))

    def _on_departed(self, event: Departed) -> None:
        """Handle the end of an incarnation that was ordered to depart, or whose process Dask is about to close."""
        role, movable = event.role, event.role in self._elasticity.movable
        if event.retired:
            self._placement.closes(self.members.where[role])
        self._emit(Account(event.report, in_flight=movable))
        if not movable:
            return self._lose([role], "was retired by Dask")
        self.members.leave(role)
        self._dismiss(role, event.incarnation)
        self._emit(Record(RoleLeft, (role, "was retired by Dask" if event.retired else "")))
        self._finish_departure(role)

    # events of the cluster -------------------------------------------------------------------------------------------------

    def _on_worker_joined(self, event: WorkerJoined) -> None:
        worker = event.worker
        self._placement.joined(worker)
        self._killed.discard(worker)  # the killed process was an earlier one at this address
        if self._detection.joined(worker):
            self._lose(self.members.on(worker), "was retired by Dask")
        if not self._cluster.local and self._placement.spare > 0:
            self._elasticity.join_another(self._now)

    def _on_worker_left(self, event: WorkerLeft) -> None:
        worker = event.worker
        self._detection.left(worker)
        was_killed = worker in self._killed
        self._killed.discard(worker)
        why = "was killed" if was_killed else f"ended unexpectedly ({event.how})" if event.how else "ended unexpectedly"
        unplaced = self._placement.left(worker)
        for role in unplaced:
            if self.members.state[role] is State.ENDED:
                self.members.move(role, Trigger.LOSE_PLACEMENT, why)
        self._request_workers([role for role in unplaced if self.members.state[role] in AWAITING_PLACEMENT])
        if was_killed:
            self._lose(self.members.on(worker), why)
        elif event.expected:
            self._detection.retires(worker, self._now)
        else:
            self._lose_again(self.members.on(worker), why)

    def _lose_again(self, roles: Collection[str], why: str) -> None:
        """Declare roles lost whose process has ended by itself, and give up those that never last."""
        never_last = self._attempts.ended(roles, why, self._now)
        if self.members.leaves.issuperset(never_last) and self._absences.others_compute(never_last):
            self._absences.keep_away(never_last)  # the others continue without it
        self._lose(roles, why)
        if not self._absences.stay_away.issuperset(never_last):
            self._fail_run(never_last, self._attempts.explanation(never_last))

    def _on_worker_heartbeats(self, event: WorkerHeartbeats) -> None:
        self._detection.heartbeats(event.seen, self._now)
        self._placement.heartbeats(event.seen)

    # commands --------------------------------------------------------------------------------------------------------------

    def _on_killed(self, event: Killed) -> None:
        role, node = event.role, self._layout.roles_on_node(event.role)
        if event.restart:
            self._absences.restart(node)
        else:
            self._absences.keep_away((node - {"chief"}) | {role})
        if event.worker is not None:
            self._killed.add(event.worker)  # the end of the process is a separate event
        elif self.members.state[role] in PRESENT:
            self._lose([role], "was killed")  # the role is starting, and its process is not known yet
        elif event.restart:
            self._restart_roles([role])
        else:
            ended = (State.LOST, State.ENDED)
            cancelled = [one for one in self._absences.stay_away if self.members.state[one] in ended]
            self._placement.drop(cancelled)
            self._placement.release(cancelled)
            for one in cancelled:
                self.members.move(one, Trigger.CANCEL_RESTART)
            self._emit(*self._absences.records(cancelled))

    def _on_restart(self, command: Restart) -> None:
        node = self._layout.roles_on_node(command.role)
        self._absences.restart(node)
        for role in node:
            self._attempts.forget(role)
        self._restart_roles(sorted(node))

    def _restart_roles(self, roles: Iterable[str]) -> None:
        back = [role for role in roles if self.members.state[role] is State.STOPPED]
        for role in back:
            self.members.move(role, Trigger.RESTART)
        self._request_workers(back)

    def _on_join(self, command: Join) -> None:
        self._absences.restart(self._elasticity.join(command.role, self._now))

    def _on_leave(self, command: Leave) -> None:
        self._elasticity.leave(command.role)

    # losses ------------------------------------------------------------------------------------------------------------------

    def _lose(self, roles: Collection[str], why: str, silent: bool = False) -> None:
        """Declare the present incarnations of `roles` lost.

        `why`: a predicate such as "was killed". `silent`: their processes may still run.
        """
        members, away = self.members, self._absences.stay_away
        roles = [role for role in roles if members.state[role] in PRESENT]
        if not roles:
            return
        if silent:
            hosting = {members.where[role] for role in roles}
            self._placement.suspect(hosting)
            self._killed -= hosting  # the kill has had no effect
        for role in roles:
            incarnation = members.lose(role, why, stays_away=role in away or role in self._elasticity.leaving)
            self._dismiss(role, incarnation)
            self._absences.lost(role, self._now)
            self._emit(Record(RoleLost, (role, incarnation, why)))
        for role in roles:
            if role in self._group.roles:
                self._remove_from_group(role)
        self._placement.drop(roles)
        self._broadcast()
        self._request_workers([role for role in roles if members.state[role] in AWAITING_PLACEMENT], scale_up=silent)
        stopped = [role for role in roles if role in away and members.state[role] is State.STOPPED]
        self._emit(*self._absences.records(stopped))

    def _dismiss(self, role: str, incarnation: int) -> None:
        """Forget the pending state of this incarnation, and dismiss it."""
        self._attempts.over(role, self._now)
        self._detection.forget(role)
        self._beginning.discard(role)
        self._emit(Dismiss(role, incarnation))

    def _remove_from_group(self, role: str, restart: bool = False) -> None:
        """Handle a member of the group that is lost or has left. `restart`: the other members restart at once."""
        self._placement.release([role])
        if self._group.lose(role, restart):  # instances that are starting end; their Dask workers stay reserved
            for other in self._placement.reserved:
                if self.members.state[other] in PRESENT:
                    self._dismiss(other, self.members.recall(other))

    def _finish_departure(self, role: str) -> None:
        """Finish the departure of a role: broadcast the membership, and restart its group."""
        self._elasticity.left(role)
        self._attempts.forget(role)
        self._absences.forget(role)
        if role in self._group.roles:
            self._remove_from_group(role, restart=True)
        self._broadcast()
        self._emit(CheckReturned())

    def _broadcast(self) -> None:
        """Broadcast the membership to all running roles."""
        workers = _distinct(self.members.where[role] for role in self.members.contact)
        self._emit(Announce(workers, self.members.order()))

    def _request_workers(self, roles: Collection[str], scale_up: bool = False) -> None:
        self._emit(*self._placement.request(roles, self._now, scale_up))

    # what depends on time ----------------------------------------------------------------------------------------------------

    def _lose_cancelled(self) -> None:
        """Declare roles lost of which Dask has cancelled some; end the run if it has cancelled all, and its workers stay."""
        gone = self._detection.cancelled_roles(self._now)
        if gone and self._detection.all_cancelled:
            self._fail_run(gone, "Dask cancelled its tasks (was the cluster restarted?)")
        else:
            self._lose(gone, "was cancelled by Dask")

    def _lose_silent(self) -> None:
        silent = self._detection.silent_roles(self._now)
        self._lose(silent, f"did not answer for {self._heartbeat_timeout:g} s (frozen, or cut off)", silent=True)

    def _advance_joins(self) -> None:
        invited, unplaced = self._elasticity.advance_joins(self._placement.waiting, self._now)
        for role in invited:
            self.members.invite(role)
        self._emit(*(Record(RoleUnplaced, (role,)) for role in unplaced))
        self._request_workers(invited, scale_up=True)

    def _advance_leaves(self) -> None:
        for role in self._elasticity.leaving:
            state = self.members.state[role]
            if state is State.RUNNING:
                if self._group.phase is Phase.IDLE and self._order(role, {"do": "depart"}):
                    self._elasticity.ordered(role)
            elif state in (State.LOST, State.STOPPED, State.ENDED):  # the role leaves, so it is not restarted
                self.members.leave(role)
                self._placement.drop([role])
                self._emit(Record(RoleLeft, (role,)))
                self._finish_departure(role)
            elif state in (State.OUTSIDE, State.INVITED):
                self._elasticity.left(role)

    def _withdraw_invitations(self) -> None:
        for role in self._elasticity.withdrawn:
            self._placement.drop([role])
            self._placement.release([role])
            self._absences.forget(role)
            self.members.move(role, Trigger.WITHDRAW)

    def _lose_retired(self) -> None:
        for worker in self._detection.overdue(self._now):
            self._lose(self.members.on(worker), "was retired by Dask")

    def _advance_placement(self) -> None:
        for request in list(self._placement.requests):
            if not request.roles:  # they were lost meanwhile
                continue
            if request.worker is not None:
                if not request.grouped and self._detection.does_not_start(request.worker, self._now):
                    self._lose(request.roles, "did not start", silent=True)
                continue
            self._emit(*self._placement.find_worker(request, self._now))
            if request.worker is not None and not request.grouped:
                self._detection.starts_on(request.worker, self._now)
                for role in request.roles:
                    self._emit(Submit(role, self.members.place(role, request.worker), request.worker))

    def _advance_group(self) -> None:
        group, placement, now = self._group, self._placement, self._now
        if group.phase is Phase.START:
            where = self.members.where
            silent = [role for role in group.starting if self._detection.does_not_start(where[role], now)]
            return self._lose(silent, "did not start", silent=True)
        was_idle = group.phase is Phase.IDLE
        if was_idle:
            group.collect_if_due(placement.found)
        for role in group.unanswered:  # the order may be lost if the process was too busy
            self._order(role, {"do": "group_restart"})
        self._lose(group.late(now), "did not hand over its shard", silent=True)
        if not was_idle and group.may_start(placement.reserved, placement.found):
            self._start_group()

    def _start_group(self) -> None:
        placement, members = self._placement, self.members
        placement.reserve_found()
        workers = {role: placement.reserved[role] for role in self._group.roles if role in placement.reserved}
        incarnation = max(members.incarnation[role] for role in self._group.roles)
        for role, worker in workers.items():
            members.place(role, worker, incarnation)
            self._detection.starts_on(worker, self._now)
        self._emit(StartGroup(incarnation, workers, self._group.start(workers)))

    def _record_absences(self) -> None:
        self._emit(*self._absences.overdue(self._now))

    def _repeat_begin(self) -> None:
        for role in sorted(self._beginning):
            if self._orders.is_due("begin", role, self.members.incarnation[role], self._now):
                self._begin(role)

    def _request_heartbeats(self) -> None:
        if self._detection.heartbeats_are_due(self._placement.needs_heartbeats(self._now), self._now):
            self._emit(RequestHeartbeats())

    def _check_deserted(self) -> None:
        if self._detection.is_deserted(bool(self._placement.known) or self._cluster.recovering, self._now):
            missing = self.members.missing
            gone = "; ".join(f"{role} {self.members.why.get(role, 'is gone')}" for role in missing)
            self._fail_run(missing, f"{gone}, and no Dask worker is left, and none came back within {RETURN_S:g} s")


def _distinct(workers: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(workers)))


_HANDLERS: dict[type, Callable[[RecoveryPolicy, Any], None]] = {
    Report: RecoveryPolicy._on_report,
    RoleUp: RecoveryPolicy._on_up,
    TaskFinished: RecoveryPolicy._on_task_finished,
    TaskFailed: RecoveryPolicy._on_task_failed,
    StateCollected: RecoveryPolicy._on_state_collected,
    Departed: RecoveryPolicy._on_departed,
    WorkerJoined: RecoveryPolicy._on_worker_joined,
    WorkerLeft: RecoveryPolicy._on_worker_left,
    WorkerHeartbeats: RecoveryPolicy._on_worker_heartbeats,
    Announced: RecoveryPolicy._on_announced,
    Killed: RecoveryPolicy._on_killed,
    Restart: RecoveryPolicy._on_restart,
    Join: RecoveryPolicy._on_join,
    Leave: RecoveryPolicy._on_leave,
    Timer: lambda policy, event: None,  # `handle` calls `_act_on_time` after every event
}

# Losses come first, so that the rest decides with a current membership: who leaves, who needs a Dask worker, whether a
# group may start. A decision of one part that another part waits for is seen in the same pass or, at the latest, in that
# of the next `Timer`; no part is woken by another.
_ON_TIME: tuple[Callable[[RecoveryPolicy], None], ...] = (
    RecoveryPolicy._lose_cancelled,
    RecoveryPolicy._lose_silent,
    RecoveryPolicy._advance_joins,
    RecoveryPolicy._advance_leaves,
    RecoveryPolicy._withdraw_invitations,
    RecoveryPolicy._lose_retired,
    RecoveryPolicy._advance_placement,
    RecoveryPolicy._advance_group,
    RecoveryPolicy._record_absences,
    RecoveryPolicy._repeat_begin,
    RecoveryPolicy._request_heartbeats,
    RecoveryPolicy._check_deserted,
)
