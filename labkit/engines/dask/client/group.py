"""Strategies without servers: a role that is lost takes the round with it, so all begin their next lives together.

In three phases, each left by events: whoever is here ends its life and hands over its shard (`collect`); with what they
begin is `roles.regroup`'s to say; their next lives start (`start`), and begin when all are up. A loss in between goes
back to the first phase, with what has been handed over so far. The chief stays as it is.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from ....errors import ClusterError
from ....roles.regroup import begin_together, leave_in_hand, replicas
from ....trace.events import GroupRestarted
from ....trace.recorder import Counters, Recorder
from ..timeouts import FETCH_S, REPEAT_S
from .events import HandedOver, RoleUp
from .membership import AWAY, HERE, LOST, STARTING

__all__ = ["Group"]


class Group:
    """All roles but the chief of one run. `recovery` finds Dask workers for those that are lost."""

    def __init__(self, recovery: Any):
        self.recovery, self.run = recovery, recovery.run
        self.members, self.supervisor = recovery.members, recovery.supervisor
        layout = self.run.plan.layout
        self.roles = [spec.name for spec in layout.roles if spec.kind != "chief"]
        self.replicas = replicas(layout)
        self.goes_on = self.replicas and self.run.plan.strategy.on_loss == "continue"
        self.phase = ""
        self._wanted = False
        self._awaited: set[str] = set()
        self._since = 0.0  # when the phase began
        self._fetched: dict[str, float] = {}  # roles whose last report is under way, and since when
        self._told: dict[str, float] = {}  # when roles were last told to hand over their shards
        self._homes: dict[str, str] = {}  # Dask workers of the lives that are to begin
        self._reports: dict[str, dict[str, Any]] = {}  # last ones of lives that have ended for this
        self._back: list[str] = []  # roles that were lost, and begin again

    @property
    def busy(self) -> bool:
        """Whether the lives of all are just changing."""
        return self.phase != ""

    # what happens -----------------------------------------------------------------------------------------------------

    def lost(self, role: str, regroup: bool = False) -> None:
        """A life is lost, or has left. `regroup`: the others go on at once."""
        self._homes.pop(role, None)
        if self.phase == "collect":
            self._awaited.discard(role)
        elif self.phase == "start":
            self._start_over()
        self._wanted = self._wanted or regroup or self.goes_on or self.phase != ""

    def _start_over(self) -> None:
        """Lives that were starting end before they have begun; their homes, and what they begin with, stay."""
        self.phase = "collect"
        self._awaited.clear()
        for role in self._homes:
            if self.members.state[role] in (HERE, STARTING):
                self.members.lose(role, "began again", reported=True)
                self.supervisor.give_up(role)
                self.run.forget(role)

    def finished(self, role: str, life: int) -> None:
        """The task of a role is over: what it has handed over is fetched, in a thread of its own."""
        if self.phase != "collect" or role not in self._awaited:
            return
        future, queue = self.supervisor.futures[role], self.supervisor.queue
        self.run.expect_silence(role)  # it plays no more; if its Dask worker is lost on the way, Dask says so
        self._fetched[role] = time.monotonic()

        def fetch() -> None:
            try:
                report = future.result(timeout=FETCH_S)
            except Exception:  # lost on the way, which is noticed elsewhere, or when time is up
                return
            queue.put(HandedOver(role, life, report))

        threading.Thread(target=fetch, name="labkit-fetch", daemon=True).start()

    def handed_over(self, role: str, report: dict[str, Any]) -> None:
        """Here it is."""
        if self.phase != "collect" or role not in self._awaited:
            return
        self._awaited.discard(role)
        self.run.accounting.add(report)
        self._reports[role], self._homes[role] = report, self.members.where[role]
        self.members.lose(role, "ended its life with the others", reported=True)
        self.supervisor.give_up(role)
        self.run.forget(role)

    # what is due ------------------------------------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Go on to the next phase, if it is time."""
        if self.phase == "":
            if self._due():
                self._collect(now)
        elif self.phase == "collect":
            for role in self._awaited - self._fetched.keys():
                if now - self._told[role] > REPEAT_S:  # the order may be lost: its process was too busy to take it in
                    self._tell_to_hand_over(role, now)
            late = [role for role in self._awaited if now - self._fetched.get(role, now) > FETCH_S]
            self.recovery.lose(sorted(late), "did not hand over its shard", silent=True)
            if not self._awaited and self._may_start():
                self._start(now)
        else:
            where = self.members.where
            late = [role for role in self._awaited if self.recovery.does_not_start(where[role], self._since, now)]
            self.recovery.lose(sorted(late), "did not start", silent=True)

    def _placed(self) -> dict[str, str]:
        """{role that was lost: the Dask worker that is kept for it}."""
        return {role: s.worker for s in self.recovery.seeks for role in s.roles if role in self.roles and s.worker}

    def _due(self) -> bool:
        lost = [role for role in self._members if self.members.state[role] in (LOST, AWAY)]
        placed = self._placed()
        if not (lost or placed or self._wanted):
            return False
        if self.goes_on:
            return bool(self._wanted or placed)
        return all(role in placed for role in lost)

    @property
    def _members(self) -> list[str]:
        """The roles that take part."""
        return [role for role in self.roles if role not in self.members.outside]

    def _may_start(self) -> bool:
        if self.goes_on and self._homes:
            return True
        return all(role in self._homes or role in self._placed() for role in self._members)

    def _collect(self, now: float) -> None:
        self.phase, self._since, self._wanted = "collect", now, False
        self._fetched.clear()
        self._awaited = {role for role in self.roles if self.members.state[role] == HERE}
        for role in self._awaited:
            self._tell_to_hand_over(role, now)

    def _tell_to_hand_over(self, role: str, now: float) -> None:
        self._told[role] = now
        self.supervisor.post({"do": "regroup"}, [self.members.where[role]], role, self.members.life[role])

    def _start(self, now: float) -> None:
        self._since, self._wanted = now, False
        self._back = list(self._placed())
        self._homes |= self._placed()
        self.recovery.forget_seeks(self._back)
        roles = [role for role in self.roles if role in self._homes]
        states = {role: r["state"] for role, r in self._reports.items() if r["state"] is not None}
        begins = begin_together(self.run.plan.layout, states, self.run.checkpoints.states, roles)
        self._close_books(begins)
        life = max(self.members.life[role] for role in self.roles)
        self._awaited = set(roles)
        self.phase = "start"
        version = max((int(state["version"]) for state in begins.values() if state is not None), default=0)
        workers = sum(spec.computes and spec.name in self._awaited for spec in self.run.plan.layout.roles)
        self.run.event(GroupRestarted, workers, version)
        for role in roles:
            self.members.life[role] = life
            self.members.place(role, self._homes[role])
            self.recovery.starts_on(self._homes[role], now)
            self.supervisor.submit(role, self.run.knobs, (begins.get(role), False))

    def _close_books(self, begins: dict[str, Any]) -> None:
        """What ended lives had in hand, and nobody begins with, is dropped."""
        ids = self.run.plan.role_ids
        anybody = next((state for state in begins.values() if state is not None), None)
        for role, report in self._reports.items():
            batch = report["batch"]
            recorder = Recorder(ids[role], batch["incarnation"], True, len(ids))
            recorder.counters = Counters.from_dict(batch["counters"])
            leave_in_hand(recorder, report["time"], ids[role], len(ids), begins.get(role) or anybody)
            self.run.trace.append(recorder.take(batch["until"]))
        self._reports.clear()

    def up(self, role: str, event: RoleUp) -> None:
        """A life of the group listens. When all do, they begin."""
        if self.phase != "start":
            raise ClusterError(f"{role} has started, and nobody was waiting for it")
        joins = role in self.members.outside
        self.members.arrive(role, tuple(event.address))
        self.run.welcome(role)
        self._awaited.discard(role)
        if joins:
            self.recovery.comings.arrived(role)
        elif role in self._back:
            self.recovery.say_restart(role, event)
        if self._awaited:
            return
        self.phase, roles = "", list(self._homes)
        self._homes.clear()
        others = [self.members.where[name] for name in self.members.address if name not in roles]
        self.supervisor.post(self.members.order(), others, then=lambda: self._begin(roles))

    def _begin(self, roles: list[str]) -> None:
        for role in roles:
            self.recovery.tell_to_begin(role)
