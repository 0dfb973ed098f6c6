"""Workers that come and go in the middle of a run: who joins is placed on a free Dask worker, who leaves does so in order.

Driven by the thread that listens to the run. Law: a role that leaves says what it has to say first:
what it has sent arrives, what it had in hand is dropped as cancelled, and its last report is in the books. Nobody waits
for a role that is to join: it takes part when it is there.
"""

from __future__ import annotations

import time
from typing import Any

from ....trace.events import RoleJoined, RoleLeft, RoleUnplaced
from .membership import AWAY, HERE, LOST, Membership

__all__ = ["Comings"]

AGAIN_S = 2.0  # seconds after which a role that was told to leave is told again
SAY_S = 3.0  # seconds that a Dask worker is looked for before the trace says so


class Comings:
    """Of one `run`; `recovery` finds Dask workers. On a cluster that is not labkit's own, a role that is outside joins by
    itself when a Dask worker comes, unless it was asked to leave.
    """

    def __init__(self, run: Any, recovery: Any):
        self.run, self.recovery = run, recovery
        self.members: Membership = run.members
        elastic = run.plan.elastic
        self.workers = tuple(r.name for r in run.plan.layout.roles if r.kind == "worker") if elastic else ()
        self.joining: dict[str, float] = {}  # who is to join, and since when
        self.leaving: dict[str, float] = {}  # who is to leave -> when it was told so last
        self._asked: set[str] = set()  # who was asked to leave, and stays outside until asked to join
        self._said: set[str] = set()

    # by commands ------------------------------------------------------------------------------------------------------

    @property
    def present(self) -> tuple[str, ...]:
        """The workers that take part, or are about to."""
        outside = self.members.outside - self.joining.keys()
        return tuple(name for name in self.workers if name not in outside and name not in self.leaving)

    def join(self, role: str) -> bool:
        """Have a worker join; whether it does not take part yet."""
        absent = role not in self.present
        if absent:
            self._asked.discard(role)
            self.run.held.discard(role)
            self.leaving.pop(role, None)
            self.joining[role] = time.monotonic()
        return absent

    def leave(self, role: str) -> bool:
        """Have a worker leave; whether it takes part."""
        present = role in self.present
        if present:
            self._asked.add(role)
            self.joining.pop(role, None)
            self.leaving[role] = 0.0
        return present

    # by events --------------------------------------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Do what is due."""
        for role, since in list(self.joining.items()):
            self._join(role, now - since)
        for role, told in list(self.leaving.items()):
            self._leave(role, now, told)
        for role in self.members.outside - self.joining.keys():
            if self.members.state[role] == LOST:  # it does not join after all
                self.recovery.forget_seeks([role])
                self.members.state[role] = AWAY

    def _join(self, role: str, waits: float) -> None:
        if role not in self.members.outside:
            if self.members.state[role] == HERE:
                self.joining.pop(role, None)
        elif self.members.state[role] == AWAY:
            self.members.invite(role)
            self.recovery.seek([role], grow=True)
        elif waits > SAY_S and role not in self._said and self.recovery.is_homeless(role):
            self._said.add(role)
            self.run.event(RoleUnplaced, role)

    def _leave(self, role: str, now: float, told: float) -> None:
        state, group = self.members.state[role], self.recovery.group
        if state == HERE and not (group is not None and group.busy):
            if now - told > AGAIN_S:
                self.leaving[role] = now
                home = self.members.where[role]
                self.run.supervisor.post({"do": "depart"}, [home], role, self.members.life[role])
        elif state in (LOST, AWAY):
            if role not in self.members.outside:  # it is lost, and does not come back
                self.members.outside.add(role)
                self.run.event(RoleLeft, role)
                self._gone(role)
            self.leaving.pop(role, None)

    def _gone(self, role: str) -> None:
        self.members.state[role] = AWAY
        self.members.change += 1
        self.recovery.forget_seeks([role])
        self.recovery.left(role)

    def departed(self, role: str, report: dict[str, Any], retired: bool) -> None:
        """A life has ended in order, because it was told to, or because Dask is about to close its process."""
        home = self.members.where[role]
        if retired:
            self.recovery.known.discard(home)
        if role not in self.workers:
            self.run.trace.append(report["batch"])
            return self.recovery.lose([role], "was retired by Dask")
        self.run.accounting.add(report)
        self.run.supervisor.give_up(role)
        self.run.forget(role)
        self.leaving.pop(role, None)
        self.members.depart(role)
        self.run.event(RoleLeft, role, "was retired by Dask" if retired else "")
        self.recovery.left(role)

    def arrived(self, role: str) -> None:
        """A role that was outside takes part."""
        self.joining.pop(role, None)
        self._said.discard(role)
        self.recovery.settled(role)
        self.run.event(RoleJoined, role, self.members.life[role])

    def worker_came(self) -> None:
        """Dask has one more worker: on a cluster that comes and goes, one more role may take part."""
        absent = [r for r in self.workers if r in self.members.outside and r not in self.joining | self.leaving]
        willing = [role for role in absent if role not in self._asked]
        if willing and not self.run.cluster.ours and self.recovery.spare() > 0:
            self.joining[willing[0]] = time.monotonic()
