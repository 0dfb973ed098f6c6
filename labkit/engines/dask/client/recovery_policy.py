"""The recovery policy of a run: decides about lost roles, new and departing Dask workers, joins and leaves.

`RecoveryPolicy.handle(event, now)` returns a list of actions, which the run performs in this order. The policy has no
I/O, no thread and no clock: time is an argument (seconds, monotonic), and the event `Timer` reports that time has
passed. No call waits. The result of an action arrives as another event, so several roles may be lost at once, or during
a recovery.

The lifecycle of one role is the table in `engines/lifecycle.py`. `Membership` stores the present incarnation of each
role, and its Dask worker. The decisions of this module follow three sequences of events:

- *One role.* An incarnation is lost (`_lose`): it is fenced, the other roles are notified, and a Dask worker is sought
  for the next incarnation (`PlacementRequest`). When a Dask worker is found, the next incarnation starts on it
  (`Submit`). When this incarnation is up (`RoleUp`), the other roles are notified (`Announce`); then it receives the
  order to begin (`Begin`).
- *A group*: all roles except the chief, in strategies without servers, in which the loss of a member aborts the round.
  A group restarts in three phases, and events end each phase. First ("collect"), the present members end their
  incarnations and hand over their state. Second ("start"), the next incarnations of all members start (`StartGroup`).
  Third, when all of them are up, they begin together. If a member is lost during a restart, the restart returns to the
  first phase, and keeps the states that were handed over so far. With `on_loss="continue"` the other members restart at
  once; all restart again when a Dask worker has been found for the lost member.
- *Membership by request* (elastic runs). A role that joins is placed like a lost role, and takes part when it is up. A
  role that leaves receives the order to depart: its messages are delivered, and its final report counts. If a join is
  requested before the role has left, the role leaves first and then joins.

A Dask worker on which a role was silent, or did not start, is a suspect: other Dask workers are preferred. It stops
being a suspect when a role on it reports, or when the scheduler has received a new heartbeat of it. The heartbeats of
suspects are requested at the latest when no other Dask worker has been found within `SHARE_S` seconds.

A role whose process ends again and again soon after its start (a native crash, a memory limit) is not restarted for ever:
after `ATTEMPTS` such incarnations in a row the run continues without it if it can, and else ends with the reason.

Every order is idempotent, and is retransmitted every `REPEAT_S` seconds until it has taken effect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ....roles.group_restart import restarts_as_group, whole_replicas
from ....roles.layout import Layout
from ....trace.events import EngineWarning, RoleFenced, RoleJoined, RoleLeft, RoleLost, RoleUnplaced, RunWaits
from ....trace.events import Event as TraceEvent
from ...commands import Join, Leave, Restart
from ...elastic import moving_roles
from ...lifecycle import AWAITING_PLACEMENT, PARTICIPATING, PRESENT, InvalidTransition, State, Trigger
from ..cluster.placement import PlacementRule, next_worker
from ..failure_detector import FailureDetector
from ..timeouts import (
    ABSENT_S,
    ATTEMPTS,
    CANCELLED_S,
    FETCH_S,
    GIVE_UP_S,
    LASTED_S,
    LEAVE_S,
    LOOK_S,
    REPEAT_S,
    RESTARTED_S,
    RETURN_S,
    SCALE_UP_S,
    SHARE_S,
    SILENT_S,
    STARTS,
    UNPLACED_S,
)
from .membership import Membership
from .recovery_events import (
    Departed,
    OfRole,
    RecoveryEvent,
    Report,
    RoleUp,
    StateCollected,
    TaskFailed,
    TaskFinished,
    WorkerHeartbeats,
    WorkerJoined,
    WorkerLeft,
)


class ClusterView(Protocol):
    """The properties of the cluster that the policy reads."""

    @property
    def local(self) -> bool:
        """Whether labkit started the processes of the cluster, and so restarts lost processes."""

    @property
    def place(self) -> PlacementRule:
        """The placement requested by the user."""

    @property
    def recovering(self) -> bool:
        """Whether processes started by labkit run or are starting, so that Dask workers will come back."""


# events, besides those in `recovery_events` and the commands Join, Leave and Restart ----------------------------------------


@dataclass(frozen=True)
class Timer(RecoveryEvent):
    """Some time has passed. This event must be sent several times per second."""


@dataclass(frozen=True)
class Announced(RecoveryEvent):
    """A membership broadcast was acknowledged, or has failed. Now `instances` (role, incarnation) may begin."""

    instances: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Killed(RecoveryEvent):
    """The kill of a role was requested.

    `worker`: the Dask worker whose process is being killed; None if the role has no process now. `restart`: whether the
    roles of its node are restarted.
    """

    role: str
    restart: bool
    worker: str | None


# actions ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecoveryAction:
    """An action for the run to perform."""


@dataclass(frozen=True)
class RoleAction(RecoveryAction):
    """An action on one role instance."""

    role: str
    incarnation: int


@dataclass(frozen=True)
class Submit(RoleAction):
    """Start the task of an instance on this Dask worker."""

    worker: str


@dataclass(frozen=True)
class Admit(RoleAction):
    """Let an instance that is up take part from now on."""


@dataclass(frozen=True)
class Dismiss(RoleAction):
    """Release the task of an instance that has ended."""


@dataclass(frozen=True)
class Begin(RoleAction):
    """Send the order to begin to an instance. `order`: the membership."""

    worker: str
    order: Mapping[str, Any]


@dataclass(frozen=True)
class Order(RoleAction):
    """Send an order (`command`) to an instance."""

    worker: str
    command: Mapping[str, Any]


@dataclass(frozen=True)
class Fence(RoleAction):
    """Make an instance exit that was declared lost, but has reported again."""

    worker: str


@dataclass(frozen=True)
class Fetch(RoleAction):
    """Fetch the final report of an instance whose task has ended. The report arrives as `StateCollected`."""


@dataclass(frozen=True)
class Announce(RecoveryAction):
    """Broadcast the membership to the roles on these Dask workers.

    `then`: the instances (role, incarnation) that may begin afterwards. They are posted as `Announced` when all Dask
    workers have answered, or a second has passed.
    """

    workers: tuple[str, ...]
    order: Mapping[str, Any]
    then: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class StartGroup(RecoveryAction):
    """Start the next incarnations of a group.

    The run chooses their initial states, accounts for dropped gradients, and starts the tasks. `workers`: {role: Dask
    worker}. `reports`: {role: final report} of the incarnations that ended for the restart.
    """

    incarnation: int
    workers: Mapping[str, str]
    reports: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Account(RecoveryAction):
    """Add a final report to the trace. `in_flight`: whether the gradients that were in flight are added to the ledger, too."""

    report: Mapping[str, Any]
    in_flight: bool = True


@dataclass(frozen=True)
class Record(RecoveryAction):
    """Record an event of this kind in the trace. `fields`: its fields after the time."""

    kind: type[TraceEvent]
    fields: tuple[Any, ...]


@dataclass(frozen=True)
class RecordRestart(RecoveryAction):
    """Record that a lost role has restarted. `from_backup`: whether the role was restored from its backup."""

    up: RoleUp
    from_backup: bool


@dataclass(frozen=True)
class ScaleUp(RecoveryAction):
    """Ensure that labkit starts processes until there are `nodes` of them."""

    nodes: int


@dataclass(frozen=True)
class RequestHeartbeats(RecoveryAction):
    """Request the times of the last heartbeats of all Dask workers. The answer arrives as `WorkerHeartbeats`."""


@dataclass(frozen=True)
class CheckReturned(RecoveryAction):
    """Check whether all awaited roles have returned. Needed when a role has left, or is not restarted."""


@dataclass(frozen=True)
class FailRun(RecoveryAction):
    """End the run with an error. `roles`: roles whose final reports are not awaited."""

    roles: tuple[str, ...]
    why: str


NOT_ORDERED = float("-inf")  # the order to depart has not been sent to the role yet

# the policy -------------------------------------------------------------------------------------------------------------


@dataclass
class PlacementRequest:
    """A request for a Dask worker for roles of one node. The request ends when the next incarnations of these roles are up.

    `worker`: the Dask worker; None until one is found. Times in seconds.
    """

    roles: list[str]
    since: float
    grouped: bool  # whether the roles start with their group; the Dask worker is reserved until then
    worker: str | None = None
    scaled_at: float = field(default=float("-inf"))  # time at which more processes were last requested


class RecoveryPolicy:
    """Decides about losses, restarts, joins and leaves of the roles of one run.

    Only the policy changes `members`. `known`: the Dask workers of the cluster. `on_loss`: option of the strategy.
    `patience`: heartbeat timeout, seconds; a role is lost after it only if its process gives no sign of life either.
    `elastic`: whether workers may join and leave. `now`: seconds, as in `handle`.

    After the policy has returned `FailRun`, it returns no further action.
    """

    def __init__(
        self, members: Membership, cluster: ClusterView, known: Collection[str], *, on_loss: str, patience: float,
        elastic: bool, now: float,
    ):  # fmt: skip
        self.members, self.known = members, set(known)
        self._cluster, self._patience, self._now = cluster, patience, now
        layout: Layout = members.layout
        self._layout = layout
        self._node = {spec.name: spec.node for spec in layout.roles}
        self._computing = [spec.name for spec in layout.roles if spec.computes]
        workers = [spec.name for spec in layout.roles if spec.kind == "worker"] if elastic else []
        # the roles that join and leave with it
        self._moving = {worker: moving_roles(layout, worker) for worker in workers}
        self._movable = {role for roles in self._moving.values() for role in roles}
        self._actions: list[RecoveryAction] = []
        self._ended = False
        # silence
        self._roles_alive = FailureDetector(min(ABSENT_S, patience / 4))
        self._roles_alive.watch(members.where, now)
        self._workers_alive = FailureDetector(ABSENT_S)  # Dask workers on which roles are starting
        self._heartbeats_requested = float("-inf")
        self._late: set[str] = set()  # running roles whose reports are overdue, and whose processes are observed
        # present roles whose tasks have ended: a live process is no sign of life of these
        self._finished: set[str] = set()
        # {Dask worker that was silent, or on which a start failed: sign of life first observed since}
        self._suspects: dict[str, Hashable] = {}
        # losses
        self._requests: list[PlacementRequest] = []
        self._stay_away: set[str] = set()  # roles that are not restarted when they are lost
        self._killed: set[str] = set()  # Dask workers whose processes were killed by request
        self._lost_since: dict[str, float] = {}  # {role that has not restarted: time of the loss}
        self._awaited: set[str] = set()  # roles in `_lost_since` whose absence has been recorded after `GIVE_UP_S`
        self._failures: dict[str, list[str]] = {}  # {role: why its last incarnations did not last, see `LASTED_S`}
        self._up_since = dict.fromkeys(members.where, now)  # {role that is up: since when}
        self._cancelled: set[str] = set()  # roles whose tasks Dask has cancelled
        self._cancelled_since = 0.0
        # {Dask worker that Dask retires, whose roles are about to leave: since when}
        self._retired: dict[str, float] = {}
        self._empty_since: float | None = None  # time at which the last Dask worker left; None while there is one
        # orders
        # {role that has not reported since the order to begin: time of the order}
        self._beginning: dict[str, float] = {}
        self._repeated: dict[str, float] = {}  # {role: time of the last retransmission of the membership}
        self._fenced_at: dict[tuple[str, int], float] = {}
        # joins and leaves
        self._joining: dict[str, float] = {}  # {role with a pending join: time of its request, or of its invitation}
        self._leaving: dict[str, float] = {}  # {role with a pending leave: time of the last order, or NOT_ORDERED}
        self._stay_outside: set[str] = set()  # roles that have left by request, and do not join automatically
        self._unplaced: set[str] = set()  # roles for which `RoleUnplaced` has been recorded
        # the group
        self._group = [s.name for s in layout.roles if s.kind != "chief"] if restarts_as_group(layout) else []
        self._continues_on_loss = whole_replicas(layout) and on_loss == "continue"
        self._phase = ""  # phase of a group restart: "", "collect", "start"
        self._restart_wanted = False
        self._pending: set[str] = set()  # members that have not handed over (collect), or are not up (start)
        self._fetching: dict[str, float] = {}  # {member whose final report is being fetched: time at which that began}
        self._ordered_at: dict[str, float] = {}  # {member: time of the last order to hand over}
        self.reserved: dict[str, str] = {}  # {member: Dask worker on which its next incarnation starts, or has started}
        self._reports: dict[str, Mapping[str, Any]] = {}  # {member that has handed over: final report}
        self._consult()

    def handle(self, event: RecoveryEvent | Join | Leave | Restart, now: float) -> list[RecoveryAction]:
        """Return the actions in response to `event` at `now` (seconds; never decreasing from call to call)."""
        if self._ended:
            return []
        self._now = now
        counts = not isinstance(event, OfRole) or self._of_present(event)
        handler = _HANDLERS.get(type(event))
        if counts and handler is not None:
            handler(self, event)
        self._consult()
        # reports are frequent, and no decision depends on them alone
        if handler is not None and type(event) is not Report:
            self._act_on_time()
        actions, self._actions = self._actions, []
        return actions

    # what the run reads ---------------------------------------------------------------------------------------------------

    @property
    def present(self) -> tuple[str, ...]:
        """The workers of an elastic run that take part, or are about to take part."""
        gone = (self.members.outside | self._leaving.keys()) - self._joining.keys()
        return tuple(name for name in self._moving if name not in gone)

    @property
    def changing(self) -> bool:
        """Whether a join or a leave is pending."""
        return bool(self._joining or self._leaving)

    @property
    def phase(self) -> str:
        """The phase of a group restart: "" (none is in progress), "collect" or "start"."""
        return self._phase

    def stays_away(self, role: str) -> bool:
        """Return whether `role`, or another role of its node, is not restarted when it is lost."""
        return not self._stay_away.isdisjoint(self._layout.roles_on_node(role))

    # events of role instances ---------------------------------------------------------------------------------------------

    def _of_present(self, event: OfRole) -> bool:
        """Return whether the instance of `event` is present; if it is, the event counts as a heartbeat.

        An instance that was declared lost is fenced.
        """
        role = event.role
        if self.members.is_present(role, event.incarnation):
            self._roles_alive.sign(role, self._now)
            self._late.discard(role)
            return True
        if not isinstance(event, TaskFinished | TaskFailed):
            self._fence((role, event.incarnation))
        return False

    def _fence(self, key: tuple[str, int]) -> None:
        worker, before = self.members.fenced.get(key), self._fenced_at.get(key)
        if worker is None or (before is not None and self._now - before < REPEAT_S / 4):
            return
        self._suspects.pop(worker, None)  # the Dask worker answers
        if before is None:
            self._emit(Record(RoleFenced, (*key, "reported")))
        self._fenced_at[key] = self._now
        self._emit(Fence(*key, worker))

    def _on_report(self, event: Report) -> None:
        role, now = event.role, self._now
        self._beginning.pop(role, None)
        if event.change < self.members.change and now - self._repeated.get(role, float("-inf")) > REPEAT_S:
            self._repeated[role] = now
            self._emit(Order(role, event.incarnation, self.members.where[role], self.members.order()))

    def _on_up(self, event: RoleUp) -> None:
        role = event.role
        if self.members.state[role] is State.RUNNING:  # a duplicate event
            return
        joins, member = self.members.state[role] is State.JOINING, role in self._group
        if member and self._phase != "start":
            raise InvalidTransition(role, self.members.state[role], Trigger.UP)
        self.members.arrive(role, event.contact)
        self._up_since[role] = self._now
        self._drop_requests([role])
        self._emit(Admit(role, event.incarnation))
        if joins:
            self._joining.pop(role, None)
            self._unplaced.discard(role)
            self._forget_loss(role)
            self._emit(Record(RoleJoined, (role, event.incarnation)))
        elif role in self._lost_since:
            backup = self._layout.backup_of(role)
            self._emit(RecordRestart(event, backup is not None and self.members.state[backup] is State.RUNNING))
            self._forget_loss(role)
        beginning = [role]
        if member:
            self._pending.discard(role)
            if self._pending:
                return
            self._phase, beginning = "", list(self.reserved)
            self.reserved.clear()
        others = [self.members.where[name] for name in self.members.contact if name not in beginning]
        instances = tuple((name, self.members.incarnation[name]) for name in beginning)
        for name in beginning:  # the order to begin is retransmitted even if `Announced` never arrives
            self._beginning[name] = self._now
        self._emit(Announce(_distinct(others), self.members.order(), instances))

    def _forget_loss(self, role: str) -> None:
        """Forget the loss of a role that has restarted, or no longer takes part."""
        self._lost_since.pop(role, None)
        self._awaited.discard(role)

    def _on_announced(self, event: Announced) -> None:
        for role, incarnation in event.instances:
            if self.members.is_present(role, incarnation):
                self._order_begin(role)

    def _order_begin(self, role: str) -> None:
        if self.members.state[role] is State.RUNNING:
            self._beginning[role] = self._now
            members = self.members
            self._emit(Begin(role, members.incarnation[role], members.where[role], members.order()))

    def _on_task_finished(self, event: TaskFinished) -> None:
        role = event.role
        self._late.discard(role)
        self._finished.add(role)
        if self._phase == "collect" and role in self._pending and role not in self._fetching:
            self._roles_alive.forget(role)  # the role sends no more reports; Dask reports the loss of its Dask worker
            self._fetching[role] = self._now
            self._emit(Fetch(role, event.incarnation))

    def _on_task_failed(self, event: TaskFailed) -> None:
        role = event.role
        if event.status in ("cancelled", "lost"):
            if not self._cancelled:
                self._cancelled_since = self._now
            self._cancelled.add(role)
        elif self.members.state[role] is State.RUNNING:
            self._fail_run([role], f"{role} failed: {event.why}")
        else:
            self._failures.setdefault(role, []).append("did not start")
            self._emit(Record(EngineWarning, (f"{role} did not start again: {event.why}",)))
            if len(self._failures[role]) >= STARTS:
                self._fail_run([role], f"{role} could not be started again: {event.why}")
            else:
                self._lose([role], "did not start", silent=True)

    def _on_state_collected(self, event: StateCollected) -> None:
        role = event.role
        if self._phase != "collect" or role not in self._pending:
            return
        if event.report.get("never_began"):
            return self._lose([role], "ended before it began")
        self._pending.discard(role)
        self._emit(Account(event.report))
        self._reports[role], self.reserved[role] = event.report, self.members.where[role]
        self._dismiss(role, self.members.end(role))

    def _on_departed(self, event: Departed) -> None:
        """Handle the end of an incarnation that was ordered to depart, or whose process Dask is about to close."""
        role, worker = event.role, self.members.where[event.role]
        if event.retired:
            self.known.discard(worker)
        self._emit(Account(event.report, in_flight=role in self._movable))
        if role not in self._movable:
            return self._lose([role], "was retired by Dask")
        self.members.leave(role)
        self._dismiss(role, event.incarnation)
        self._emit(Record(RoleLeft, (role, "was retired by Dask" if event.retired else "")))
        self._finish_departure(role)

    # events of the cluster -------------------------------------------------------------------------------------------------

    def _on_worker_joined(self, event: WorkerJoined) -> None:
        worker = event.worker
        self.known.add(worker)
        self._suspects.pop(worker, None)
        self._killed.discard(worker)  # the killed process was an earlier one at this address
        if self._retired.pop(worker, None) is not None:
            self._lose(self.members.on(worker), "was retired by Dask")
        outside = self.members.outside - self._stay_outside - self._joining.keys() - self._leaving.keys()
        candidates = [role for role in self._moving if role in outside]
        if candidates and not self._cluster.local and self._spare_count() > 0:  # one more worker joins
            self._joining |= dict.fromkeys(self._moving[candidates[0]], self._now)

    def _on_worker_left(self, event: WorkerLeft) -> None:
        worker = event.worker
        self.known.discard(worker)
        self._suspects.pop(worker, None)
        self._workers_alive.forget(worker)
        was_killed = worker in self._killed
        self._killed.discard(worker)
        why = "was killed" if was_killed else f"ended unexpectedly ({event.how})" if event.how else "ended unexpectedly"
        for request in self._requests:
            if request.worker == worker and request.grouped:
                request.worker = None
        kept = [role for role, address in self.reserved.items() if address == worker and role not in self.members.where]
        for role in kept:
            del self.reserved[role]
            if self.members.state[role] is State.ENDED:
                self.members.unplace(role, why)
        self._request_workers([role for role in kept if self.members.state[role] in AWAITING_PLACEMENT])
        if event.expected and not was_killed:
            self._retired[worker] = self._now  # its roles are about to report `Departed`
        elif was_killed:
            self._lose(self.members.on(worker), why)
        else:
            self._lose_again(self.members.on(worker), why)

    def _lose_again(self, roles: Collection[str], why: str) -> None:
        """Declare roles lost whose process has ended by itself, and give up those that never last."""
        brief = [role for role in roles if self._now - self._up_since.get(role, self._now) < LASTED_S]
        for role in brief:
            self._failures.setdefault(role, []).append(why)
        never_last = [role for role in brief if len(self._failures[role]) >= ATTEMPTS]
        gone = self._stay_away | self.members.outside
        if never_last and self.members.leaves.issuperset(never_last):
            others = [role for role in self._computing if role not in gone and role not in never_last]
            if others:  # they continue without it
                self._stay_away.update(never_last)
        self._lose(roles, why)
        if not self._stay_away.issuperset(never_last):
            reasons = "; ".join(dict.fromkeys(reason for role in never_last for reason in self._failures[role]))
            self._fail_run(never_last, (
                f"{' and '.join(never_last)} did not last: each of {len(self._failures[never_last[0]])} attempts ended within "
                f"{LASTED_S:g} s, because the process {reasons}"
            ))  # fmt: skip

    def _on_worker_heartbeats(self, event: WorkerHeartbeats) -> None:
        for worker, at in event.seen.items():
            self._workers_alive.progress(worker, at, self._now)
        for role in self._late:  # a report that is late is not a loss if the process lives
            worker = self.members.where[role]
            if worker in event.seen:
                self._roles_alive.progress(role, event.seen[worker], self._now)
        for worker in self._suspects.keys() & event.seen.keys():
            at, before = event.seen[worker], self._suspects[worker]
            if before is None:
                self._suspects[worker] = at
            elif at != before:  # a new heartbeat
                del self._suspects[worker]

    # commands --------------------------------------------------------------------------------------------------------------

    def _on_killed(self, event: Killed) -> None:
        role, node = event.role, self._layout.roles_on_node(event.role)
        self._stay_away = self._stay_away - node if event.restart else self._stay_away | (node - {"chief"}) | {role}
        if event.worker is not None:
            self._killed.add(event.worker)  # the end of the process is a separate event
        elif self.members.state[role] in PRESENT:
            self._lose([role], "was killed")  # the role is starting, and its process is not known yet
        elif event.restart:
            self._restart_roles([role])
        else:
            away = [one for one in self._stay_away if self.members.state[one] in (State.LOST, State.ENDED)]
            self._drop_requests(away)
            for one in away:
                self.members.keep_away(one)
                self.reserved.pop(one, None)
            self._record_absences(away)

    def _on_restart(self, command: Restart) -> None:
        node = self._layout.roles_on_node(command.role)
        self._stay_away -= node
        for role in node:
            self._failures.pop(role, None)
        self._restart_roles(sorted(node))

    def _restart_roles(self, roles: Iterable[str]) -> None:
        back = [role for role in roles if self.members.state[role] is State.STOPPED]
        for role in back:
            self.members.want(role)
        self._request_workers(back)

    def _on_join(self, command: Join) -> None:
        for role in () if command.role in self.present else self._moving[command.role]:
            self._stay_outside.discard(role)
            self._stay_away.discard(role)
            if self._leaving.get(role) == NOT_ORDERED:
                # the order to depart has not been sent, so the role stays; else it leaves first
                del self._leaving[role]
            self._joining[role] = self._now

    def _on_leave(self, command: Leave) -> None:
        for role in self._moving[command.role] if command.role in self.present else ():
            self._stay_outside.add(role)
            self._joining.pop(role, None)
            self._leaving.setdefault(role, NOT_ORDERED)

    def _on_timer(self, event: Timer) -> None:
        """Do nothing, because `handle` calls `_act_on_time` after every event."""

    # losses ------------------------------------------------------------------------------------------------------------------

    def _lose(self, roles: Collection[str], why: str, silent: bool = False) -> None:
        """Declare the present incarnations of `roles` lost.

        `why`: a predicate such as "was killed". `silent`: their processes may still run.
        """
        roles = [role for role in roles if self.members.state[role] in PRESENT]
        if not roles:
            return
        if silent:
            hosting = {self.members.where[role] for role in roles}
            self._suspects |= dict.fromkeys(hosting)
            self._killed -= hosting  # the kill has had no effect
        for role in roles:
            incarnation = self.members.lose(role, why, stays_away=role in self._stay_away or role in self._leaving)
            self._dismiss(role, incarnation)
            self._lost_since.setdefault(role, self._now)
            self._awaited.discard(role)  # an absence recorded for an earlier incarnation does not cover this loss
            self._emit(Record(RoleLost, (role, incarnation, why)))
        for role in roles:
            if role in self._group:
                self._remove_from_group(role)
        self._drop_requests(roles)
        self._broadcast()
        self._request_workers(
            [role for role in roles if self.members.state[role] in AWAITING_PLACEMENT], scale_up=silent
        )
        self._record_absences([r for r in roles if r in self._stay_away and self.members.state[r] is State.STOPPED])

    def _dismiss(self, role: str, incarnation: int) -> None:
        """Forget the pending state of this incarnation, and dismiss it."""
        if self._now - self._up_since.pop(role, self._now) >= LASTED_S:
            self._failures.pop(role, None)
        self._roles_alive.forget(role)
        self._late.discard(role)
        self._finished.discard(role)
        self._cancelled.discard(role)
        self._beginning.pop(role, None)
        self._repeated.pop(role, None)
        self._emit(Dismiss(role, incarnation))

    def _finish_departure(self, role: str) -> None:
        """Finish the departure of a role: broadcast the membership, and restart its group."""
        self._leaving.pop(role, None)
        self._failures.pop(role, None)
        self._forget_loss(role)
        if role in self._group:
            self._remove_from_group(role, restart=True)
        self._broadcast()
        self._emit(CheckReturned())

    def _record_awaited(self) -> None:
        """Record the absence of roles that have been missing for `GIVE_UP_S` seconds while they are being restarted."""
        long = (role for role, since in self._lost_since.items() if self._now - since > GIVE_UP_S)
        wanted = PARTICIPATING - {State.STOPPED}  # the absence of a role that stays away is recorded at once
        news = [role for role in long if role not in self._awaited and self.members.state[role] in wanted]
        self._awaited.update(news)
        self._record_absences(news)

    def _record_absences(self, roles: Collection[str]) -> None:
        """Record for each of these missing roles whether the run waits for it, or continues without it."""
        gone = self._stay_away | self.members.outside
        others_continue = any(name not in gone for name in self._computing)
        for role in roles:
            why = self.members.why[role]
            if role in self.members.leaves and others_continue:
                self._emit(Record(RoleLeft, (role, why)))
            else:
                self._emit(Record(RunWaits, (f"{role}, which {why}", role)))
        if any(self.members.state[role] is State.STOPPED for role in roles):
            self._emit(CheckReturned())

    def _broadcast(self) -> None:
        """Broadcast the membership to all running roles."""
        workers = _distinct(self.members.where[role] for role in self.members.contact)
        self._emit(Announce(workers, self.members.order()))

    def _fail_run(self, roles: Iterable[str], why: str) -> None:
        self._emit(FailRun(tuple(roles), why))
        self._ended = True

    # due actions -------------------------------------------------------------------------------------------------------------

    def _consult(self) -> None:
        self._roles_alive.consult(self._now)
        self._workers_alive.consult(self._now)

    def _act_on_time(self) -> None:
        """Make the decisions that depend on time: timeouts, retransmissions, placement."""
        if self._ended or self._check_cancelled():
            return
        self._check_silence()
        self._advance_joins_and_leaves()
        for worker, since in list(self._retired.items()):
            if self._now - since > LEAVE_S:
                del self._retired[worker]
                self._lose(self.members.on(worker), "was retired by Dask")
        for request in list(self._requests):
            self._advance_request(request)
        if self._group:
            self._advance_group()
        self._record_awaited()
        for role, since in list(self._beginning.items()):
            if self._now - since > REPEAT_S:
                self._order_begin(role)
        self._request_heartbeats()
        self._check_empty()

    def _check_cancelled(self) -> bool:
        """Handle cancelled tasks. Returns True if no decision has been made yet, or the run has ended.

        If Dask has cancelled some tasks, their roles are lost. If it has cancelled all tasks and the Dask workers stay,
        the run ends with an error.
        """
        waited = self._now - self._cancelled_since
        if not self._cancelled or waited <= CANCELLED_S:
            return False
        every = len(self._cancelled) == len(self.members.where) > 1
        if every and waited < RESTARTED_S:
            return True
        gone = sorted(self._cancelled)
        if every:
            self._fail_run(gone, "Dask cancelled its tasks (was the cluster restarted?)")
        else:
            self._lose(gone, "was cancelled by Dask")
        return self._ended

    def _check_silence(self) -> None:
        """Declare roles lost that have been silent for `patience` seconds, with the silent roles of the same processes."""
        alive, patience, members = self._roles_alive, self._patience, self.members
        silent = {role for role in alive.silent(patience, self._now) if members.state[role] is State.RUNNING}
        if silent:  # the other roles of the same process have been silent nearly as long
            hosting = {members.where[role] for role in silent}
            nearly = (role for role in alive.silent(0.6 * patience, self._now) if members.state[role] is State.RUNNING)
            silent |= {role for role in nearly if members.where[role] in hosting}
            self._lose(sorted(silent), f"did not answer for {patience:g} s (frozen, or cut off)", silent=True)

    def _advance_joins_and_leaves(self) -> None:
        leaving, invited = {self._node[role] for role in self._leaving}, []
        for role, since in list(self._joining.items()):
            state = self.members.state[role]
            if self._node[role] in leaving:
                continue
            if state is State.OUTSIDE:
                self._joining[role] = self._now
                self.members.invite(role)
                invited.append(role)
            elif state is State.INVITED:
                if self._now - since > UNPLACED_S and role not in self._unplaced and self._is_unplaced(role):
                    self._unplaced.add(role)
                    self._emit(Record(RoleUnplaced, (role,)))
            elif state is State.RUNNING:
                del self._joining[role]
        self._request_workers(invited, scale_up=True)
        for role, ordered_at in list(self._leaving.items()):
            state = self.members.state[role]
            if state is State.RUNNING and not self._phase and self._now - ordered_at > REPEAT_S:
                self._leaving[role] = self._now
                command = {"do": "depart"}
                self._emit(Order(role, self.members.incarnation[role], self.members.where[role], command))
            elif state in (State.LOST, State.STOPPED, State.ENDED):  # the role leaves, so it is not restarted
                self.members.leave(role)
                self._drop_requests([role])
                self._emit(Record(RoleLeft, (role,)))
                self._finish_departure(role)
            elif state in (State.OUTSIDE, State.INVITED):
                del self._leaving[role]
        for role in self.members.in_state(State.INVITED):
            if role not in self._joining:
                self._drop_requests([role])
                self.reserved.pop(role, None)
                self._forget_loss(role)
                self.members.withdraw(role)

    def _request_heartbeats(self) -> None:
        """Watch the Dask workers on which roles are starting, or roles are late, and request their heartbeats.

        Heartbeats are also requested if there are suspects and no other Dask worker is free.
        """
        late = self._roles_alive.silent(self._patience / 2, self._now)
        self._late.update(
            role for role in late if self.members.state[role] is State.RUNNING and role not in self._finished
        )
        starting = [self.members.where[role] for role in self.members.in_state(State.STARTING, State.JOINING)]
        self._workers_alive.watch(starting, self._now)
        needed = bool(self._suspects) and any(
            request.worker is None and self._now - request.since > SHARE_S for request in self._requests
        )
        interval = min(LOOK_S, self._patience / 10) if self._late else LOOK_S
        if (starting or needed or self._late) and self._now - self._heartbeats_requested > interval:
            self._heartbeats_requested = self._now
            self._emit(RequestHeartbeats())

    def _does_not_start(self, worker: str) -> bool:
        """Return whether a start has failed, because its Dask worker is silent. A slow start has not failed."""
        return worker in self._workers_alive.silent(SILENT_S, self._now)

    def _check_empty(self) -> None:
        if self._ended:
            return
        if self.known or self._cluster.recovering:
            self._empty_since = None
        elif self._empty_since is None:
            self._empty_since = self._now
        elif self._now - self._empty_since > RETURN_S:
            missing = self.members.missing
            gone = "; ".join(f"{role} {self.members.why.get(role, 'is gone')}" for role in missing)
            self._fail_run(missing, f"{gone}, and no Dask worker is left, and none came back within {RETURN_S:g} s")

    # where next incarnations go ----------------------------------------------------------------------------------------------

    def _request_workers(self, roles: Collection[str], scale_up: bool = False) -> None:
        """Request Dask workers for the next incarnations of `roles`, one per node. `scale_up`: also request more processes."""
        for node in dict.fromkeys(self._node[role] for role in roles):
            here = [role for role in roles if self._node[role] == node]
            for member in (False, True):  # the chief is not a member of the group
                together = [role for role in here if (role in self._group) == member]
                if together:
                    request = PlacementRequest(together, self._now, grouped=member)
                    self._requests.append(request)
                    if scale_up:
                        self._scale_up(request)

    def _drop_requests(self, roles: Collection[str]) -> None:
        """Remove these roles from all placement requests."""
        for request in self._requests:
            request.roles = [role for role in request.roles if role not in roles]
        self._requests = [request for request in self._requests if request.roles]

    def _advance_request(self, request: PlacementRequest) -> None:
        now = self._now
        if not request.roles:
            return
        if request.worker is None:
            worker = self._free_worker(request.roles[0], shared=now - request.since > SHARE_S)
            if worker is not None:
                request.worker = worker
                if not request.grouped:
                    self._workers_alive.sign(worker, now)
                    for role in request.roles:
                        self._emit(Submit(role, self.members.place(role, worker), worker))
            elif now - max(request.since, request.scaled_at) > SCALE_UP_S:
                self._scale_up(request)
        elif not request.grouped and self._does_not_start(request.worker):
            self._lose(request.roles, "did not start", silent=True)

    def _free_worker(self, role: str, shared: bool) -> str | None:
        """Return a Dask worker for `role`, or None if no Dask worker is free.

        A free Dask worker is not used by this run nor, unless `shared`, by another run.
        """
        members = self.members
        rest = self.known - self._suspects.keys() - set(members.where.values()) - self.reserved_workers()
        free = {worker for worker in rest if shared or members.usage[worker] <= 0}
        placed = {self._node[name]: worker for name, worker in members.where.items()}
        return next_worker(self._node[role], self._layout.roles, free, placed, members.usage, self._cluster.place)

    def reserved_workers(self) -> set[str]:
        """Return the Dask workers that are reserved for placement requests and for members of the group."""
        return {*self.reserved.values(), *(p.worker for p in self._requests if p.worker is not None)}

    def _is_unplaced(self, role: str) -> bool:
        return any(role in request.roles and request.worker is None for request in self._requests)

    def _used_workers(self) -> set[str]:
        """Return the Dask workers that are used by any run, or reserved by this one."""
        return {worker for worker, roles in self.members.usage.items() if roles > 0} | self.reserved_workers()

    def _unplaced_count(self) -> int:
        """Return the number of placement requests for which no Dask worker has been found."""
        return sum(request.worker is None for request in self._requests)

    def _spare_count(self) -> int:
        """Return the number of Dask workers that are neither used nor needed."""
        return len(self.known - self._suspects.keys() - self._used_workers()) - self._unplaced_count()

    def _scale_up(self, request: PlacementRequest) -> None:
        request.scaled_at = self._now
        self._emit(ScaleUp(len(self._used_workers() | (self._suspects.keys() & self.known)) + self._unplaced_count()))

    # restart of a group ------------------------------------------------------------------------------------------------------

    def _remove_from_group(self, role: str, restart: bool = False) -> None:
        """Handle a member of the group that is lost or has left. `restart`: the other members restart at once."""
        self.reserved.pop(role, None)
        if self._phase == "collect":
            self._pending.discard(role)
        # instances that are starting end before they begin; their Dask workers stay reserved
        elif self._phase == "start":
            self._phase = "collect"
            self._pending.clear()
            self._fetching.clear()
            for other in self.reserved:
                if self.members.state[other] in PRESENT:
                    self._dismiss(other, self.members.recall(other))
        self._restart_wanted = self._restart_wanted or restart or self._continues_on_loss or self._phase != ""

    def _advance_group(self) -> None:
        if self._phase == "":
            if self._restart_due():
                self._collect()
        elif self._phase == "collect":
            for role in sorted(self._pending - self._fetching.keys()):
                if self._now - self._ordered_at[role] > REPEAT_S:  # the order may be lost if the process was too busy
                    self._order_collect(role)
            late = [role for role in self._pending if self._now - self._fetching.get(role, self._now) > FETCH_S]
            self._lose(sorted(late), "did not hand over its shard", silent=True)
            if not self._pending and self._may_start():
                self._start()
        else:
            where = self.members.where
            late = [role for role in self._pending if self._does_not_start(where[role])]
            self._lose(sorted(late), "did not start", silent=True)

    def _placed_members(self) -> dict[str, str]:
        """Return {member that was lost or joins: Dask worker reserved for it}."""
        return {
            role: p.worker for p in self._requests for role in p.roles if role in self._group and p.worker is not None
        }

    def _participants(self) -> list[str]:
        outside = self.members.outside
        return [role for role in self._group if role not in outside]

    def _restart_due(self) -> bool:
        lost = [role for role in self._participants() if self.members.state[role] in (State.LOST, State.STOPPED)]
        placed = self._placed_members()
        if self._continues_on_loss:
            return self._restart_wanted or bool(placed)
        return bool(lost or placed or self._restart_wanted) and all(role in placed for role in lost)

    def _may_start(self) -> bool:
        placed = self._placed_members()
        if self._continues_on_loss and self.reserved:
            return True
        awaited = self._participants()
        if self._continues_on_loss:
            awaited = [role for role in awaited if self.members.state[role] is not State.STOPPED]
        return bool(self.reserved or placed) and all(role in self.reserved or role in placed for role in awaited)

    def _collect(self) -> None:
        self._phase, self._restart_wanted = "collect", False
        self._fetching.clear()
        self._pending = {role for role in self._group if self.members.state[role] is State.RUNNING}
        for role in sorted(self._pending):
            self._order_collect(role)

    def _order_collect(self, role: str) -> None:
        self._ordered_at[role] = self._now
        self._emit(Order(role, self.members.incarnation[role], self.members.where[role], {"do": "group_restart"}))

    def _start(self) -> None:
        placed = self._placed_members()
        self.reserved |= placed
        self._drop_requests(placed)
        workers = {role: self.reserved[role] for role in self._group if role in self.reserved}
        incarnation = max(self.members.incarnation[role] for role in self._group)
        self._phase, self._restart_wanted = "start", False
        self._pending = set(workers)
        for role, worker in workers.items():
            self.members.place(role, worker, incarnation)
            self._workers_alive.sign(worker, self._now)
        self._emit(StartGroup(incarnation, workers, dict(self._reports)))
        self._reports.clear()

    def _emit(self, action: RecoveryAction) -> None:
        if not self._ended:
            self._actions.append(action)


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
    Timer: RecoveryPolicy._on_timer,
}
