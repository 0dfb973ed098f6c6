"""Failure detection: which roles and Dask workers have failed, by the time of their last sign of life.

A role gives a sign of life when it reports. If its report is late, its process is observed, too: a slow role is not lost.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from ....lifecycle import State
from ...failure_detector import FailureDetector
from ...timeouts import ABSENT_S, CANCELLED_S, LEAVE_S, LOOK_S, RESTARTED_S, RETURN_S, SILENT_S
from ..membership import Membership


class FailureDetection:
    """Detects failures of the present incarnations of `members`. `heartbeat_timeout`: seconds."""

    def __init__(self, members: Membership, heartbeat_timeout: float, now: float):
        self._members, self._heartbeat_timeout = members, heartbeat_timeout
        self._roles = FailureDetector(min(ABSENT_S, heartbeat_timeout / 4))
        self._roles.watch(members.where, now)
        self._workers = FailureDetector(ABSENT_S)  # Dask workers on which roles are starting
        self._requested_at = float("-inf")  # time of the last request of heartbeats
        self._late: set[str] = set()  # running roles whose reports are overdue, and whose processes are observed
        # present roles whose tasks have ended: a live process is no sign of life of these
        self._finished: set[str] = set()
        self._cancelled: set[str] = set()  # roles whose tasks Dask has cancelled
        self._cancelled_since = 0.0
        # {Dask worker that Dask is closing, whose roles are about to leave: since when}
        self._retired: dict[str, float] = {}
        self._empty_since: float | None = None  # time at which the last Dask worker left; None while there is one
        self.consult(now)

    def consult(self, now: float) -> None:
        """Record that the run's thread runs. Time in which it does not run is no silence of others."""
        self._roles.consult(now)
        self._workers.consult(now)

    # signs of life --------------------------------------------------------------------------------------------------------

    def sign(self, role: str, now: float) -> None:
        """Record a sign of life of a role."""
        self._roles.sign(role, now)
        self._late.discard(role)

    def starts_on(self, worker: str, now: float) -> None:
        """Watch a Dask worker, on which a role starts now."""
        self._workers.sign(worker, now)

    def heartbeats(self, seen: Mapping[str, Hashable], now: float) -> None:
        """Record signs of life of Dask workers. A report that is late is not a loss if the process lives."""
        for worker, at in seen.items():
            self._workers.progress(worker, at, now)
        for role in self._late:
            worker = self._members.where[role]
            if worker in seen:
                self._roles.progress(role, seen[worker], now)

    def finished(self, role: str) -> None:
        """Record that the task of a role has ended."""
        self._late.discard(role)
        self._finished.add(role)

    def cancelled(self, role: str, now: float) -> None:
        """Record that Dask has cancelled the task of a role."""
        if not self._cancelled:
            self._cancelled_since = now
        self._cancelled.add(role)

    def ignore(self, role: str) -> None:
        """No longer wait for reports of a role, because its final report is being fetched."""
        self._roles.forget(role)

    def forget(self, role: str) -> None:
        """Forget the present incarnation of a role, which is over."""
        self._roles.forget(role)
        for some in (self._late, self._finished, self._cancelled):
            some.discard(role)

    def retires(self, worker: str, now: float) -> None:
        """Record that Dask is closing a Dask worker, whose roles are about to report that they have left."""
        self._retired[worker] = now

    def joined(self, worker: str) -> bool:
        """Record that a Dask worker has joined. Returns whether Dask was closing an earlier one at this address."""
        return self._retired.pop(worker, None) is not None

    def left(self, worker: str) -> None:
        """Record that a Dask worker has left."""
        self._workers.forget(worker)

    # failures -------------------------------------------------------------------------------------------------------------

    @property
    def all_cancelled(self) -> bool:
        """Whether Dask has cancelled the tasks of all roles."""
        return len(self._cancelled) == len(self._members.where) > 1

    def awaits_restart(self, now: float) -> bool:
        """Return whether Dask has cancelled all tasks, which it does before its workers leave if it restarts them."""
        return self.all_cancelled and CANCELLED_S < now - self._cancelled_since < RESTARTED_S

    def cancelled_roles(self, now: float) -> list[str]:
        """Return the roles whose tasks Dask has cancelled, once it is certain that no more are being cancelled."""
        return sorted(self._cancelled) if now - self._cancelled_since > CANCELLED_S else []

    def silent_roles(self, now: float) -> list[str]:
        """Return the roles that have been silent for `heartbeat_timeout` seconds, with the silent roles of the same processes."""
        where = self._members.where
        hosting = {where[role] for role in self._silent(self._heartbeat_timeout, now)}
        # the other roles of the same process have been silent nearly as long
        return sorted(role for role in self._silent(0.6 * self._heartbeat_timeout, now) if where[role] in hosting)

    def _silent(self, limit: float, now: float) -> list[str]:
        return [role for role in self._roles.silent(limit, now) if self._members.state[role] is State.RUNNING]

    def does_not_start(self, worker: str, now: float) -> bool:
        """Return whether a start has failed, because its Dask worker is silent. A slow start has not failed."""
        return worker in self._workers.silent(SILENT_S, now)

    def overdue(self, now: float) -> list[str]:
        """Return the Dask workers that Dask is closing, and whose roles had enough time to leave."""
        found = [worker for worker, since in self._retired.items() if now - since > LEAVE_S]
        for worker in found:
            del self._retired[worker]
        return found

    def heartbeats_are_due(self, wanted: bool, now: float) -> bool:
        """Watch the Dask workers on which roles are starting, or roles are late; return whether to request heartbeats now.

        `wanted`: whether they are needed for another reason.
        """
        self._late.update(role for role in self._silent(self._heartbeat_timeout / 2, now) if role not in self._finished)
        starting = [self._members.where[role] for role in self._members.in_state(State.STARTING, State.JOINING)]
        self._workers.watch(starting, now)
        interval = min(LOOK_S, self._heartbeat_timeout / 10) if self._late else LOOK_S
        if not (starting or wanted or self._late) or now - self._requested_at <= interval:
            return False
        self._requested_at = now
        return True

    def is_deserted(self, workers_expected: bool, now: float) -> bool:
        """Return whether there has been no Dask worker for `RETURN_S` seconds. `workers_expected`: there are, or will be."""
        if workers_expected:
            self._empty_since = None
        elif self._empty_since is None:
            self._empty_since = now
        return self._empty_since is not None and now - self._empty_since > RETURN_S
