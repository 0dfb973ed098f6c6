"""Roles that are lost in virtual time, and come back: as on a cluster, but exact.

A loss is known at once where a process was killed, and after `patience` seconds where a role is only silent (frozen, or
cut off). What a lost role had in hand, and what was on its way from and to it, is lost with it. `restart_after` seconds
later its next incarnation begins, with what its last one had saved; who has listened for it is told. A role that was
only silent and comes back in time goes on as if nothing had been; one that comes back too late is fenced: its next
incarnation has its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import BadInput, shown
from ...roles.messages import Left
from ...roles.regroup import grouped, leave_in_hand
from ...trace.events import RoleFenced, RoleFrozen, RoleKilled, RoleLeft, RoleLost, RoleThawed
from ...trace.vocabulary import nanoseconds
from ..commands import Command, Freeze, Join, Kill, Leave, Restart, Thaw
from ..elastic import check_elastic
from .one_hand import OneHand
from .returning import Returning
from .turns import EARLY, INTERNAL

__all__ = ["Recovery"]


class Recovery(Returning):
    """What happens to the roles of a run whose nodes fail."""

    cluster: Any
    _hand: OneHand
    peers: dict[str, tuple[str, ...]]  # who takes part, by kind: all contexts look here
    _log: Callable[[Command], None]

    def _begin_whole(self) -> None:
        """Everybody is there."""
        self._lost_lives: list[list[int]] = []
        self._back: dict[str, int] = {}  # roles that will come back by themselves -> the serial number of that event
        self._frozen: dict[str, int] = {}  # roles that were frozen -> the serial number
        self._ghosts: set[str] = set()  # roles that are frozen and have been given up
        self._serial = 0
        absent = self.plan.elastic.absent if self.plan.elastic else ()
        self._away = set(absent)  # who is not there, and is not waited for
        self.peers |= {kind: tuple(m for m in members if m not in absent) for kind, members in self.peers.items()}
        for role in self.roles:
            if role.name in absent:
                role.down = "has not joined yet"
        self._unaware(list(absent))

    # commands: called while the run goes on, by the thread that holds it ------------------------------------------------

    def _do_kill(self, command: Kill) -> None:
        """The process that plays the role is gone at this instant, with every role that it plays."""
        role, restart = command.role, command.restart
        self._log(command)
        node = [r.name for r in self.roles if r.node == self.by_name[role].node]
        absent = all(self.by_name[name].down for name in node)
        self.trace.event(RoleKilled(self.now, role, restart, absent))
        self._lose([name for name in node if not self.by_name[name].down], "was killed")
        self._come_back_later([name for name in node if self.by_name[name].down] if restart else [], node)

    def _do_restart(self, command: Restart) -> None:
        """A role that is away comes back at this instant in its next incarnation. `BadInput` if it is not away."""
        target = self.by_name[command.role]
        if not target.down:
            raise BadInput(f"restart({shown(command.role)}): it is not away; kill it first.")
        self._log(command)
        self._return([r.name for r in self.roles if r.node == target.node and r.down])

    def _do_freeze(self, command: Freeze) -> None:
        """The process that plays the role stands still at this instant; after `patience` seconds it counts as lost."""
        role, target = command.role, self.by_name[command.role]
        self._log(command)
        node = [r for r in self.roles if r.node == target.node and not r.down and r.name not in self._frozen]
        if node:
            self.trace.event(RoleFrozen(self.now, role))
        for one in node:
            self._hold(one)
        self._watch_silence([one.name for one in node], self._frozen)

    def _do_thaw(self, command: Thaw) -> None:
        """A frozen process goes on: where it was, or, if it has been given up meanwhile, not at all."""
        role, target = command.role, self.by_name[command.role]
        self._log(command)
        node = [r for r in self.roles if r.node == target.node]
        if any(one.name in self._frozen or one.name in self._ghosts for one in node):
            self.trace.event(RoleThawed(self.now, role))
        for one in node:
            if one.name in self._ghosts:
                self._ghosts.discard(one.name)
                self.trace.event(RoleFenced(self.now, one.name, self._newest_lost(one.id), "woke up"))
            if self._frozen.pop(one.name, None) is not None:
                self._release(one)

    def _newest_lost(self, role: int) -> int:
        """The incarnation of role number `role` that was lost last."""
        return next(incarnation for lost, incarnation in reversed(self._lost_lives) if lost == role)

    # who comes and goes -----------------------------------------------------------------------------------------------

    @property
    def present(self) -> tuple[str, ...]:
        """The workers that take part."""
        return self.peers["worker"]

    def _do_join(self, command: Join) -> None:
        """A worker that is not there takes part from this instant on."""
        check_elastic(command, self.plan)
        if command.role in self._away:
            self._log(command)
            self._away.discard(command.role)
            self._return([command.role])

    def _do_leave(self, command: Leave) -> None:
        """A worker leaves at this instant: what it has in hand is dropped, what it has sent arrives."""
        check_elastic(command, self.plan)
        role, target = command.role, self.by_name[command.role]
        if not target.down:
            self._log(command)
            leave_in_hand(target.recorder, self.now, target.id, len(self.roles), None)
            self._bury(target)
            target.down = "has left"
            self._away.add(role)
            self._unaware([role])
            self._leave([role])

    # silence ----------------------------------------------------------------------------------------------------------

    def _watch_silence(self, names: list[str], since: dict[str, int]) -> None:
        self._serial += 1
        since.update(dict.fromkeys(names, self._serial))
        at = self.now + nanoseconds(self.cluster.patience)
        self._event(at, EARLY, INTERNAL, "_silent", {"names": names, "serial": self._serial})

    def _silent(self, names: list[str], serial: int) -> None:
        """Who has been silent since then is given up."""
        frozen = [n for n in names if self._frozen.get(n) == serial]
        for name in frozen:
            del self._frozen[name]
            self._ghosts.add(name)
        cut = [n for n in names if self._alone(n) == serial]
        if frozen or cut:
            self._lose(frozen + cut, f"was silent for {self.cluster.patience:g} s")
            self._come_back_later(frozen + cut, frozen + cut)

    def _alone(self, name: str) -> int | None:
        """The serial number under which a role is cut off from everybody; None if it is not."""
        return None

    # losses -----------------------------------------------------------------------------------------------------------

    def _lose(self, names: list[str], why: str) -> None:
        lost = [self.by_name[name] for name in names]
        if not lost:
            return
        for role in lost:
            self._bury(role)
            self._frozen.pop(role.name, None)  # its next incarnation is another process
            role.down = why
            self._lost_lives.append([role.id, role.recorder.incarnation])
            self.trace.event(RoleLost(self.now, role.name, role.recorder.incarnation, why))
        self._forget_mail(set(names))
        self._unaware(names)
        self._leave([r.name for r in lost if self._goes_on_without(r)])

    def _leave(self, names: list[str]) -> None:
        """These are no peers any more, and nobody waits for them."""
        if not names:
            return
        for kind, members in self.peers.items():
            self.peers[kind] = tuple(m for m in members if m not in names)
        for name in names:
            self.trace.event(RoleLeft(self.now, name))
        if grouped(self.plan.layout):
            self._regroup([])
            return
        for name in names:
            for role in self.roles:
                self._tell(role, Left(name))
