"""Performs the actions of the recovery policy of a run: orders to roles, tasks, trace records.

The decisions are made in `recovery_policy`, which has no I/O, and in `engines/lifecycle.py`. Only the run's thread uses
this module. It never blocks, because final reports are fetched, and processes are started, in separate threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from ....roles.group_restart import drop_unapplied, group_restart_states, newest_version
from ....trace.events import GroupRestarted, RoleJoined, RoleLeft, RoleLost, RoleRestarted
from ....trace.recorder import Counters, Recorder
from ...commands import Join, Leave, Restart
from ...plan import Plan
from ..cluster.dask_connection import DaskConnection
from ..cluster.placement import PlacementRule
from ..timeouts import FETCH_S
from .checkpoints import RunCheckpoints
from .final_accounting import FinalAccounting
from .recovery_events import RecoveryEvent, StateCollected
from .recovery_policy import (
    Account,
    Admit,
    Announce,
    Announced,
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
    RecoveryPolicy,
    RequestHeartbeats,
    ScaleUp,
    StartGroup,
    Submit,
)
from .run_record import RunRecord
from .supervisor import Supervisor

if TYPE_CHECKING:
    from .run import DaskRun


class ConnectionView:
    """What the policy reads of the cluster. `place`: the placement requested by the user."""

    def __init__(self, connection: DaskConnection, place: PlacementRule):
        self._connection, self.place = connection, place

    @property
    def local(self) -> bool:
        """Whether labkit started the processes of the cluster, and so restarts lost processes."""
        return self._connection.local

    @property
    def recovering(self) -> bool:
        """Whether processes started by labkit run or are starting, so that Dask workers will come back."""
        return self._connection.recovering


class Recovery:
    """Recovery of one run. `known`: the Dask workers of its cluster. `clock`: seconds, monotonic.

    `ended`: the action that ends the run with an error; None until the policy has returned this action. `present`: the
    workers of an elastic run that take part, or are about to take part; replaced, never modified, so any thread may read it.
    """

    def __init__(
        self, plan: Plan, supervisor: Supervisor, connection: DaskConnection, record: RunRecord, accounting: FinalAccounting,
        checkpoints: RunCheckpoints, run: DaskRun, known: Collection[str], *, place: PlacementRule, heartbeat_timeout: float,
        clock: Callable[[], float],
    ):  # fmt: skip
        self._plan, self._supervisor, self._connection, self._record = plan, supervisor, connection, record
        self._accounting, self._checkpoints, self._run = accounting, checkpoints, run
        self._clock = clock
        self.policy = RecoveryPolicy(
            supervisor.members, ConnectionView(connection, place), known, on_loss=plan.strategy.on_loss,
            heartbeat_timeout=heartbeat_timeout,
            elastic=plan.elastic is not None, now=clock(),
        )  # fmt: skip
        self._lost_at: dict[str, float] = {}  # {role that has not restarted: engine time of the loss, s}
        self.ended: FailRun | None = None
        self.present = self.policy.present
        self._perform: dict[type[RecoveryAction], Callable[[Any], None]] = {
            Submit: lambda do: self._submit(do.role, do.incarnation, do.worker),
            Admit: lambda do: run.admitted(do.role),
            Dismiss: self._dismiss,
            Begin: self._begin,
            Order: lambda do: self._order(do, do.command),
            Fence: lambda do: self._order(do, {"do": "leave", "fenced": True}),
            Fetch: self._fetch,
            Announce: self._announce,
            StartGroup: self._start_group,
            Account: self._account,
            Record: self._add_record,
            RecordRestart: self._record_restart,
            ScaleUp: self._scale_up,
            RequestHeartbeats: lambda do: supervisor.request_heartbeats(),
            CheckReturned: lambda do: run.check_returned(),
            FailRun: self._end,
        }

    def handle(self, event: RecoveryEvent | Join | Leave | Restart) -> None:
        """Perform the policy's actions in response to `event`."""
        for action in self.policy.handle(event, self._clock()):
            self._perform[type(action)](action)
        self.present = self.policy.present

    # instances --------------------------------------------------------------------------------------------------------

    def _submit(self, role: str, incarnation: int, worker: str, restored: Any = None) -> None:
        self._supervisor.submit(role, incarnation, worker, self._run.options, restored)

    def _dismiss(self, do: Dismiss) -> None:
        self._supervisor.give_up(do.role)
        self._run.dismissed(do.role, do.incarnation)

    def _begin(self, do: Begin) -> None:
        self._order(do, {**do.order, "do": "begin", **self._run.begin_fields(do.role)})

    def _order(self, do: Begin | Order | Fence, command: Any) -> None:
        self._supervisor.post(command, [do.worker], do.role, do.incarnation)

    def _announce(self, do: Announce) -> None:
        announced = (lambda: self.handle(Announced(do.then))) if do.then else None
        self._supervisor.post(dict(do.order), do.workers, then=announced)

    def _fetch(self, do: Fetch) -> None:
        future, queue = self._supervisor.futures[do.role], self._supervisor.queue

        def fetch() -> None:
            try:
                report = future.result(timeout=FETCH_S)
            except Exception:  # the policy detects the loss, at the latest after `FETCH_S` seconds
                return
            queue.put(StateCollected(do.role, do.incarnation, report))

        threading.Thread(target=fetch, name="labkit-fetch", daemon=True).start()

    def _scale_up(self, do: ScaleUp) -> None:
        grow = self._connection.scale_up  # may wait for a lock, so it runs in a separate thread
        threading.Thread(target=grow, args=(do.nodes,), name="labkit-grow", daemon=True).start()

    # a group ----------------------------------------------------------------------------------------------------------

    def _start_group(self, do: StartGroup) -> None:
        layout = self._plan.layout
        states = {role: report["state"] for role, report in do.reports.items() if report["state"] is not None}
        begins = group_restart_states(layout, states, self._checkpoints.states, list(do.workers))
        self._account_for_ended(do.reports, begins)
        workers = sum(spec.computes and spec.name in do.workers for spec in layout.roles)
        self._record.event(GroupRestarted, workers, newest_version(begins))
        for role, worker in do.workers.items():
            self._submit(role, do.incarnation, worker, (begins.get(role), False))

    def _account_for_ended(self, reports: Any, begins: dict[str, Any]) -> None:
        """Record those gradients of ended instances as dropped that the initial states of their group do not contain."""
        ids = self._plan.role_ids
        for role, report in reports.items():
            batch = report["batch"]
            recorder = Recorder(ids[role], batch["incarnation"], True, len(ids))
            recorder.counters = Counters.from_dict(batch["counters"])
            drop_unapplied(recorder, report["time"], role, begins)
            self._record.trace.append(recorder.take(batch["until"]))

    # the record -------------------------------------------------------------------------------------------------------

    def _account(self, do: Account) -> None:
        if do.in_flight:
            self._accounting.add(dict(do.report))
        else:
            self._record.trace.append(do.report["batch"])

    def _add_record(self, do: Record) -> None:
        if do.kind is RoleLost:
            self._lost_at.setdefault(do.fields[0], self._record.seconds)
        elif do.kind in (RoleJoined, RoleLeft):
            self._lost_at.pop(do.fields[0], None)
        self._record.event(do.kind, *do.fields)

    def _record_restart(self, do: RecordRestart) -> None:
        """Record a restart, with the restored state and the number of updates that were rolled back."""
        up, lost_at = do.up, self._lost_at.pop(do.up.role, 0.0)
        begins: tuple[Any, ...] = ()
        if do.from_backup:
            begins = ("backup",)
        elif up.restored:
            source, update, remark = up.restored
            age = max(0.0, lost_at - up.saved_at / 1e9) if up.saved_at else None
            before = self._record.trace.counters.get(self._plan.role_ids[up.role])
            rolled_back = 0 if before is None else max(0, before.version - up.version)
            begins = (source, update, age, rolled_back, True, remark)
        self._record.event(RoleRestarted, up.role, up.incarnation, *begins)

    def _end(self, do: FailRun) -> None:
        self.ended = do
