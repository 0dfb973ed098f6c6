"""What happens when a role is lost: the others are told, a Dask worker is found, and the role's next life begins there.

Driven by the thread that listens to the run. Law: nothing here waits. A task is submitted, and what comes of it is an
event like others, so losses may come two at once, or in the middle of a recovery, of the very role that is recovered.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ....roles.regroup import grouped
from ....trace.events import EngineWarning, RoleLeft, RoleLost, RoleRestarted, RunWaits
from ..cluster.placement import next_home
from ..failure_detector import FailureDetector
from ..mailbox import LEAVE_S
from ..timeouts import ABSENT_S, GIVE_UP_S, GROW_S, LOOK_S, RETURN_S, SHARE_S, SILENT_S, START_S, STARTS
from .comings import Comings
from .events import RoleUp
from .group import Group
from .membership import AWAY, HERE, LOST, STARTING
from .telling import Telling

__all__ = ["Recovery", "Seek"]


@dataclass
class Seek:
    """Roles that were lost together, and whose next lives are to start on one Dask worker."""

    roles: list[str]
    since: float
    worker: str | None = None
    tried: float = 0.0
    grown: float = 0.0  # when more processes were last asked for
    together: bool = False  # they begin with others: a Dask worker is kept for them


class Recovery(Telling):
    """Of one `run`. `known`: the Dask workers of its cluster."""

    def __init__(self, run: Any, known: Collection[str]):
        super().__init__(run)
        self.known = set(known)
        self.seeks: list[Seek] = []
        self.group = Group(self) if grouped(run.plan.layout) else None
        self.comings = Comings(run, self)
        self._empty_since: float | None = None
        self._detector = FailureDetector(ABSENT_S)  # of Dask workers on which roles are starting
        self._observed = 0.0
        self._retired: dict[str, float] = {}  # Dask workers whose roles are about to leave -> since when
        self._failures: dict[str, int] = {}
        self._lost_at: dict[str, float] = {}  # engine time, s, of roles that are not back
        self._since: dict[str, float] = {}  # the same by the clock
        self._waits_for: set[str] = set()  # those of them of which it was said that nobody takes their place

    # losses -----------------------------------------------------------------------------------------------------------

    def lose(self, roles: Collection[str], why: str, silent: bool = False) -> None:
        """These lives are over. `why`: "was killed". `silent`: nobody knows what has become of their processes."""
        roles = [role for role in roles if self.members.state[role] in (HERE, STARTING)]
        if not roles:
            return
        if silent:
            self.suspects |= {self.members.where[role] for role in roles}
        for role in roles:
            life = self.members.lose(role, why, away=role in self.run.held or role in self.comings.leaving)
            self.supervisor.give_up(role)
            self._lost_at.setdefault(role, self.run.seconds)
            self._since.setdefault(role, time.monotonic())
            self.run.forget(role)
            self.run.event(RoleLost, role, life, why)
            if self.group is not None and role in self.group.roles:
                self.group.lost(role)
        self.forget_seeks(roles)
        self.tell_all()
        self.seek([role for role in roles if self.members.state[role] == LOST], silent)
        self._say_who_stays_away([role for role in roles if role in self.run.held])

    def left(self, role: str) -> None:
        """`role` takes part no more."""
        if self.group is not None and role in self.group.roles:
            self.group.lost(role, regroup=True)
        self.tell_all()
        self.run.check_returned()

    def seek(self, roles: list[str], grow: bool) -> None:
        """Look for Dask workers for the next lives of `roles`. `grow`: more processes are needed."""
        nodes = {s.name: (s.node, self._in_group(s.name)) for s in self.run.plan.layout.roles}
        now = time.monotonic()
        for node in dict.fromkeys(nodes[role] for role in roles):
            seek = Seek([role for role in roles if nodes[role] == node], now, together=node[1])
            self.seeks.append(seek)
            if grow:
                self._grow(seek, now)

    def forget_seeks(self, roles: Collection[str]) -> None:
        """Nobody looks for Dask workers for these any more."""
        for seek in self.seeks:
            seek.roles = [role for role in seek.roles if role not in roles]
        self.seeks = [seek for seek in self.seeks if seek.roles]

    def _in_group(self, role: str) -> bool:
        return self.group is not None and role in self.group.roles

    def want_back(self, roles: Collection[str]) -> None:
        """Somebody wants roles back that were to stay away."""
        back = [role for role in roles if self.members.state[role] == AWAY and role not in self.members.outside]
        for role in back:
            self.members.state[role] = LOST
        self.seek(back, False)

    def killed_again(self, role: str, restart: bool) -> None:
        """A role was killed that is not there: the life that is starting is given up, or nobody takes its place now."""
        if self.members.state[role] == STARTING:
            self.lose([role], "was killed")
        elif restart:
            self.want_back([role])
        elif self.members.state[role] == LOST:
            away = [name for name in self.run.held if self.members.state[name] == LOST]
            self.forget_seeks(away)
            for name in away:
                self.members.state[name] = AWAY
            self._say_who_stays_away(away)

    def _say_who_stays_away(self, roles: list[str]) -> None:
        players = [s.name for s in self.run.plan.layout.roles if s.computes]
        somebody = any(name not in self.run.held and name not in self.members.outside for name in players)
        for role in roles:
            reason = self.members.why[role]
            if role in self.members.leaves and somebody:
                self.run.event(RoleLeft, role, reason)
            else:
                self.run.event(RunWaits, f"{role}, which {reason}", role)

    # the next life ----------------------------------------------------------------------------------------------------

    def look(self, now: float) -> str | None:
        """Do what is due. In words, what ends the run, if nobody is left who could play."""
        self.comings.look(now)
        self._look_for_retired(now)
        for seek in list(self.seeks):
            self._look_after(seek, now)
        if self.group is not None:
            self.group.look(now)
        self.tell_again(now)
        self._observe(now)
        if self.known or self.run.backend.returning:
            self._empty_since = None
        elif self._empty_since is None:
            self._empty_since = now
        elif now - self._empty_since > RETURN_S:
            return f"no Dask worker is left, and none came back within {RETURN_S:g} s"
        return None

    def _observe(self, now: float) -> None:
        """Watch the Dask workers on which roles are starting."""
        self._detector.consult(now)
        starting = [self.members.where[role] for role in self.members.in_state(STARTING)]
        self._detector.watch(starting, now)
        if starting and now - self._observed > LOOK_S:
            self._observed = now
            self.supervisor.look_at_workers()

    def signs(self, seen: dict[str, float]) -> None:
        """{Dask worker: when the scheduler heard of it last}, as of now."""
        now = time.monotonic()
        for worker, at in seen.items():
            self._detector.progress(worker, at, now)

    def starts_on(self, worker: str, now: float) -> None:
        """A role starts on a Dask worker, which counts as alive at this moment."""
        self._detector.sign(worker, now)

    def does_not_start(self, worker: str, since: float, now: float) -> bool:
        """Whether a role whose task was given to a Dask worker at `since` will not start there: slow is not dead."""
        return worker in self._detector.silent(SILENT_S, now) or now - since > START_S

    def _look_after(self, seek: Seek, now: float) -> None:
        if seek.worker is None:
            worker = self.free(seek.roles[0], now - seek.since > SHARE_S)
            if worker is not None:
                seek.worker, seek.tried = worker, now
                self.starts_on(worker, now)
                for role in () if seek.together else seek.roles:
                    self.members.place(role, worker)
                    self.supervisor.submit(role, self.run.knobs)
            elif now - max(seek.since, seek.grown) > GROW_S:
                self._grow(seek, now)
        elif not seek.together and self.does_not_start(seek.worker, seek.tried, now):
            return self.lose(seek.roles, "did not start", silent=True)
        overdue = [role for role in seek.roles if now - self._since.get(role, now) > GIVE_UP_S]
        overdue = [role for role in overdue if role not in self._waits_for | self.members.outside]
        self._waits_for.update(overdue)
        self._say_who_stays_away(overdue)

    def free(self, role: str, shared: bool) -> str | None:
        """Where `role` may play next: a Dask worker without a role of this run, and, unless `shared`, of any other."""
        usage, layout = self.members.usage, self.run.plan.layout
        nodes = {spec.name: spec.node for spec in layout.roles}
        rest = self.known - self.suspects - set(self.members.where.values())
        free = {address for address in rest if shared or usage[address] <= 0}
        placed = {nodes[name]: home for name, home in self.members.where.items()}
        return next_home(nodes[role], layout.roles, free, placed, usage, self.run.cluster.place)

    def is_homeless(self, role: str) -> bool:
        """Whether a Dask worker is looked for."""
        return any(role in seek.roles and seek.worker is None for seek in self.seeks)

    def spare(self) -> int:
        """How many Dask workers nobody uses or waits for."""
        used = {address for address, roles in self.members.usage.items() if roles > 0}
        return len(self.known - self.suspects - used) - sum(seek.worker is None for seek in self.seeks)

    def _grow(self, seek: Seek, now: float) -> None:
        """Have processes of labkit's own started, if they are; that may wait for others, so another thread does it."""
        seek.grown = now
        used = {address for address, roles in self.members.usage.items() if roles > 0}
        nodes = len(used | (self.suspects & self.known)) + sum(seek.worker is None for seek in self.seeks)
        backend = self.run.backend
        threading.Thread(target=backend.grow_again, args=(nodes,), name="labkit-grow", daemon=True).start()

    def failed(self, role: str, why: str) -> str | None:
        """The task of a life that was starting has failed by itself. In words, if that ends the run."""
        self._failures[role] = self._failures.get(role, 0) + 1
        self.run.event(EngineWarning, f"{role} did not start again: {why}")
        if self._failures[role] >= STARTS:
            return f"{role} could not be started again: {why}"
        self.lose([role], "did not start", silent=True)
        return None

    def up(self, event: RoleUp) -> None:
        """A life that was starting listens."""
        role = event.role
        if self.supervisor.meet(event):
            if self.group is not None and role in self.group.roles:
                self.group.up(role, event)
            else:
                self._begin(role, event)
        else:
            self.supervisor.measure(self.members.where[role], lambda: self.supervisor.queue.put(event))

    def _begin(self, role: str, event: RoleUp) -> None:
        joins = role in self.members.outside
        self.members.arrive(role, tuple(event.address))
        self.forget_seeks([role])
        self.run.welcome(role)
        self.comings.arrived(role) if joins else self.say_restart(role, event)
        others = [home for name, home in self.members.where.items() if name != role and name in self.members.address]
        self.supervisor.post(self.members.order(), others, then=lambda: self.tell_to_begin(role))

    def say_restart(self, role: str, event: RoleUp) -> None:
        """Record what the next incarnation begins with, and how many updates are rolled back."""
        backup = role.replace("server", "backup")
        begins: tuple[Any, ...] = ()
        if backup != role and self.members.state.get(backup) == HERE:
            begins = ("backup",)
        elif event.restored:
            source, update, remark = event.restored
            saved, lost_at = event.kept_at, self._lost_at.get(role, 0.0)
            age = max(0.0, lost_at - saved / 1e9) if saved else None
            index = self.run.plan.role_ids[role]
            before = self.run.trace.counters[index].version if index in self.run.trace.counters else 0
            begins = (source, update, age, max(0, before - event.version), True, remark)
        self.run.event(RoleRestarted, role, event.incarnation, *begins)
        self.settled(role)

    def settled(self, role: str) -> None:
        """It is here: what was remembered of its loss is of no use any more."""
        for kept in (self._failures, self._lost_at, self._since):
            kept.pop(role, None)
        self._waits_for.discard(role)

    # Dask workers come and go -----------------------------------------------------------------------------------------

    def worker_came(self, worker: str) -> None:
        """Dask has one more worker."""
        self.known.add(worker)
        self.suspects.discard(worker)
        self.comings.worker_came()

    def worker_gone(self, worker: str, why: str, expected: bool) -> None:
        """Dask has one less. `expected`: it was retired in order, and its roles are about to say that they leave."""
        self.known.discard(worker)
        self.suspects.discard(worker)
        self._detector.forget(worker)
        for seek in self.seeks:
            if seek.worker == worker and seek.together:
                seek.worker = None
        if expected and not why:
            self._retired[worker] = time.monotonic()
        else:
            self.lose(self.members.on(worker), why or "ended unexpectedly")

    def _look_for_retired(self, now: float) -> None:
        for worker, since in list(self._retired.items()):
            if now - since > LEAVE_S:
                del self._retired[worker]
                self.lose(self.members.on(worker), "was retired by Dask")
