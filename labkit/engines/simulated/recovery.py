"""Roles that are lost in virtual time, and restarted: as on a cluster, but exact.

A loss is known at once where a process was killed, and after `patience` seconds where a role is only silent (frozen, or cut
off). What a lost instance had in hand, and messages under way from and to it, are lost with it. `restart_after` seconds later
the role's next incarnation begins with its newest checkpoint; peers that have listened for it are told. A role that was only
silent and comes back in time goes on as if nothing had happened; one that comes back too late is fenced: its successor has
taken its place.

Where roles form a group (replicas, parts of one model) all members begin their next incarnation together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...roles.group_restart import (
    drop_unapplied,
    group_restart_states,
    not_waited_for,
    restarts_as_group,
    whole_replicas,
)
from ...trace.events import (
    GroupRestarted,
    RoleFenced,
    RoleFrozen,
    RoleJoined,
    RoleKilled,
    RoleLeft,
    RoleLost,
    RoleRestarted,
    RoleThawed,
    RunWaits,
)
from ...trace.trace import Trace
from ...trace.vocabulary import nanoseconds
from ..cluster_spec import ClusterSpec
from ..parts import Plan
from ..role_core import Membership
from .checkpointing import Checkpoints
from .event_loop import EventLoop
from .network import Network
from .role import SimulatedRole
from .role_factory import RoleFactory

__all__ = ["Recovery"]

JOINS, LEFT = "has not joined yet", "has left"  # why a role is down that is not waited for


class Recovery:
    """The losses and restarts of one run. Its methods are called between two turns of the event loop.

    `lost_instances`: [role's number, incarnation] of every instance that ended without a final report. `outside`: workers that
    do not take part: they have not joined, or have left.
    """

    def __init__(
        self, plan: Plan, cluster: ClusterSpec, loop: EventLoop, network: Network, roles: Sequence[SimulatedRole],
        members: Membership, factory: RoleFactory, checkpoints: Checkpoints, trace: Trace,
    ):  # fmt: skip
        self._plan, self._layout, self._loop, self._network, self._roles = plan, plan.layout, loop, network, roles
        self._by_name = {role.name: role for role in roles}
        self._chief = self._by_name["chief"]
        self._members, self._factory, self._checkpoints, self._trace = members, factory, checkpoints, trace
        self._patience, self._restart_after = cluster.patience, cluster.restart_after
        self._grouped = restarts_as_group(plan.layout)
        self.lost_instances: list[list[int]] = []
        # Each of these maps a role to the serial number of the timer that it waits for: an older timer is void.
        self._restarting: dict[str, int] = {}  # roles that will be restarted
        self._frozen: dict[str, int] = {}
        self._isolated: dict[str, int] = {}  # roles that are cut off from every other one
        self._serial = 0
        self._fenced_frozen: set[str] = set()  # roles of which a frozen instance was declared lost
        self._fenced_isolated: set[str] = set()  # roles of which an isolated instance was declared lost
        absent = plan.elastic.absent if plan.elastic else ()
        self.outside = set(absent)
        members.peers.update(
            {kind: tuple(m for m in names if m not in absent) for kind, names in members.peers.items()}
        )
        for name in absent:
            self._set_down(self._by_name[name], JOINS)
        self._unacknowledged(absent)

    # what happens to roles --------------------------------------------------------------------------------------------

    def kill(self, name: str, restart: bool) -> None:
        """The process of role `name` is gone at this instant, with every role that it plays. `restart`: they are restarted by
        themselves."""
        node = [role.name for role in self._node_of(name)]
        self._trace.event(RoleKilled(self._loop.now, name, restart, all(self._by_name[n].down for n in node)))
        self._lose([n for n in node if not self._by_name[n].down], "was killed")
        self._restart_later([n for n in node if self._by_name[n].down] if restart else [], node)

    def restart(self, name: str) -> None:
        """The next incarnation of role `name`, which is down, begins at this instant, with those of its node."""
        self._restart([role.name for role in self._node_of(name) if role.down])

    def freeze(self, name: str) -> None:
        """The process of role `name` is suspended at this instant; after `patience` seconds it counts as lost."""
        node = [role for role in self._node_of(name) if not role.down and role.name not in self._frozen]
        if node:
            self._trace.event(RoleFrozen(self._loop.now, name))
        for role in node:
            role.suspend()
        self._lose_later([role.name for role in node], self._frozen)

    def thaw(self, name: str) -> None:
        """A frozen process goes on: where it was, or, if it was declared lost meanwhile, not at all."""
        node = self._node_of(name)
        if any(role.name in self._frozen or role.name in self._fenced_frozen for role in node):
            self._trace.event(RoleThawed(self._loop.now, name))
        for role in node:
            self._fence(role, self._fenced_frozen, "woke up")
            if self._frozen.pop(role.name, None) is not None:
                role.resume()

    def isolate(self, name: str) -> None:
        """The node of role `name` is cut off from every other one; after `patience` seconds it counts as lost."""
        names = [r.name for r in self._node_of(name) if not r.down and r.name not in self._network.isolated()]
        self._network.faults.isolate(names)
        self._lose_later(names, self._isolated)

    def reconnect(self, name: str) -> None:
        """The node of role `name` is cut off no more."""
        for role in self._node_of(name):
            self._end_isolation(role.name)
            self._fence(role, self._fenced_isolated, "was connected again")

    def join(self, name: str) -> None:
        """Worker `name`, which is outside, takes part from this instant on."""
        self.outside.discard(name)
        self._restart([name])

    def leave(self, name: str) -> None:
        """Worker `name` takes part no more: what it has in hand is dropped, what it has sent arrives."""
        role = self._by_name[name]
        drop_unapplied(role.recorder, self._loop.now, role.id, len(self._roles), None)
        self._end_instance(role)
        self._set_down(role, LEFT)
        self.outside.add(name)
        self._unacknowledged([name])
        self._go_on_without([name])

    def _node_of(self, name: str) -> list[SimulatedRole]:
        node = self._by_name[name].node
        return [role for role in self._roles if role.node == node]

    def _fence(self, role: SimulatedRole, fenced: set[str], after: str) -> None:
        """An instance that was declared lost is heard of again."""
        if role.name in fenced:
            fenced.discard(role.name)
            incarnation = next(number for lost, number in reversed(self.lost_instances) if lost == role.id)
            self._trace.event(RoleFenced(self._loop.now, role.name, incarnation, after))

    def _end_isolation(self, name: str) -> None:
        self._isolated.pop(name, None)
        self._network.reconnect(name)

    # silence ----------------------------------------------------------------------------------------------------------

    def _lose_later(self, names: list[str], silent: dict[str, int]) -> None:
        """These roles are silent from now on."""
        self._serial += 1
        silent.update(dict.fromkeys(names, self._serial))
        at = self._loop.now + nanoseconds(self._patience)
        self._loop.call_at(at, self._patience_is_over, names, self._serial)

    def _patience_is_over(self, names: list[str], serial: int) -> None:
        """Those that have been silent since then are declared lost."""
        isolated = [name for name in names if self._isolated.get(name) == serial]
        frozen = [name for name in names if self._frozen.get(name) == serial]
        for name in frozen:
            del self._frozen[name]
            self._fenced_frozen.add(name)
        if frozen or isolated:
            self._lose(frozen + isolated, f"was silent for {self._patience:g} s")
            self._restart_later(frozen + isolated, frozen + isolated)
        self._fenced_isolated.update(isolated)

    # losses -----------------------------------------------------------------------------------------------------------

    def _lose(self, names: list[str], why: str) -> None:
        for name in names:
            self._end_isolation(name)
            self._fenced_isolated.discard(name)
        lost = [self._by_name[name] for name in names]
        if not lost:
            return
        for role in lost:
            self._end_instance(role)
            self._frozen.pop(role.name, None)  # its next incarnation is another process
            self._set_down(role, why)
            self.lost_instances.append([role.id, role.recorder.incarnation])
            self._trace.event(RoleLost(self._loop.now, role.name, role.recorder.incarnation, why))
        self._network.discard_messages(set(names))
        self._unacknowledged(names)
        self._go_on_without([role.name for role in lost if self._is_spared(role)])

    def _end_instance(self, role: SimulatedRole) -> None:
        role.end_instance()
        self._trace.append(role.report(self._loop.now))

    def _set_down(self, role: SimulatedRole, why: str) -> None:
        role.down = why
        if why:
            self._members.absent.add(role.name)
        else:
            self._members.absent.discard(role.name)

    def _is_spared(self, role: SimulatedRole) -> bool:
        """Whether the others go on without a lost role until it is back."""
        return role.name in self.outside or not_waited_for(self._layout, role.spec, self._plan.strategy.on_loss)

    def _unacknowledged(self, names: Iterable[str]) -> None:
        names = tuple(names)
        for role in self._roles:
            if not role.down:
                role.unacknowledged.update(names)

    def _go_on_without(self, names: list[str]) -> None:
        """These roles are no peers any more, and are not waited for."""
        if not names:
            return
        for kind, members in self._members.peers.items():
            self._members.peers[kind] = tuple(m for m in members if m not in names)
        for name in names:
            self._trace.event(RoleLeft(self._loop.now, name))
        if self._grouped:
            self._restart_group([])
            return
        for name in names:
            for role in self._roles:
                if not role.down and not role.returned:
                    role.peer_left(name)

    # restarts ---------------------------------------------------------------------------------------------------------

    def _restart_later(self, names: list[str], node: Iterable[str]) -> None:
        """Restart these roles after `restart_after`; for a role that is killed again before, that begins anew."""
        for name in node:
            self._restarting.pop(name, None)
        if not names or self._restart_after is None:
            return
        self._serial += 1
        self._restarting.update(dict.fromkeys(names, self._serial))
        at = self._loop.now + nanoseconds(self._restart_after)
        self._loop.call_at(at, self._restart_is_due, names, self._serial)

    def _restart_is_due(self, names: list[str], serial: int) -> None:
        self._restart([name for name in names if self._restarting.get(name) == serial])

    def _restart(self, names: list[str]) -> None:
        """The next incarnation of each of these roles begins."""
        names = [name for name in names if self._by_name[name].down]
        for name in names:
            self._restarting.pop(name, None)
        every = self._layout.peers()
        for kind, members in self._members.peers.items():
            self._members.peers[kind] = tuple(m for m in every[kind] if m in members or m in names)
        together = [name for name in names if self._grouped and name != self._chief.name]
        for name in names:
            if name not in together:
                self._begin(self._by_name[name], self._checkpoints.newest(name))
                self._announce(name, self._roles)
        if together:
            self._restart_group(together)

    def _begin(self, role: SimulatedRole, state: Any, incarnation: int | None = None, was: str = "") -> None:
        """A role's next incarnation begins with `state`. `was`: why it was down, if that is not known any more."""
        before, was = role.counters.version, was or role.down
        self._factory.prepare(role, role.recorder.incarnation + 1 if incarnation is None else incarnation, state)
        self._checkpoints.register(role)
        self._set_down(role, "")
        role.unacknowledged = {other.name for other in self._roles if other.down}
        number = role.recorder.incarnation
        if was in (JOINS, LEFT):
            self._trace.event(RoleJoined(self._loop.now, role.name, number))
        elif was:
            backup = self._layout.backup_of(role.name)
            copied = backup is not None and not self._by_name[backup].down
            begins = {"source": "backup"} if copied else _begins_with(role, state, before)
            self._trace.event(RoleRestarted(self._loop.now, role.name, number, **begins))
        role.begin()
        self._loop.go_on(role, None)
        if role.name in self._frozen:  # it is suspended, and begins when it is thawed
            role.suspend()

    def _announce(self, name: str, to: Iterable[SimulatedRole]) -> None:
        """The newest instance of role `name` is present."""
        for other in to:
            if other.name != name and not other.down and not other.returned:
                other.peer_joined(name)

    def _restart_group(self, back: list[str]) -> None:
        """All members of the group begin their next incarnation together. `back`: those that were lost."""
        now = self._loop.now
        members = [r for r in self._roles if r is not self._chief and (not r.down or r.name in back)]
        alive = [r for r in members if not r.down]
        shards = {r.name: r.shard for r in alive if r.shard is not None}
        if whole_replicas(self._layout) and self._layout.replication == "synchronized" and shards:
            newest = max(shards, key=lambda name: shards[name].version)  # one stands for all
            shards = {newest: shards[newest]}
        states = {name: shard.to_state() for name, shard in shards.items()}
        begins = group_restart_states(self._layout, states, self._checkpoints.of, [r.name for r in members])
        incarnation = 1 + max(r.recorder.incarnation for r in self._roles if r is not self._chief)
        common = next((state for state in begins.values() if state is not None), None)
        for role in alive:
            drop_unapplied(role.recorder, now, role.id, len(self._roles), begins.get(role.name) or common)
            self._end_instance(role)
        self._network.discard_messages({r.name for r in members})
        version = max((int(s["version"]) for s in begins.values() if s is not None), default=0)
        was, lost = {r.name: r.down for r in members}, [r.name for r in self._roles if r.down and r not in members]
        for role in members:
            self._set_down(role, "")
        for role in members:
            self._begin(role, begins.get(role.name), incarnation, was[role.name])
            self._announce(role.name, [self._chief])  # the others have no earlier messages to repeat
            role.unacknowledged = set(lost)
        workers = sum(r.spec.computes for r in members)
        self._trace.event(GroupRestarted(now, workers, version))

    # what a run waits for ---------------------------------------------------------------------------------------------

    @property
    def all_present(self) -> bool:
        """Whether every role is present, also those that are outside."""
        return not any(role.down for role in self._roles)

    def awaited(self, players: Iterable[SimulatedRole]) -> str:
        """The roles that the run waits for and that nothing brings back, in words; "" if it waits for none. `players`: those
        that have to return for the run to be finished."""
        away = [role for role in self._roles if role.down and role.name not in self._restarting]
        if any(not role.down for role in players):  # else there is no role to go on without them
            away = [role for role in away if not self._is_spared(role)]
        found = [f"{role.name}, which {role.down}" for role in away]
        found += [f"{to}, which is cut off from {name}" for name, to in self._network.held_links()]
        return "; ".join(found)

    def report_waiting(self, players: Iterable[SimulatedRole]) -> bool:
        """Whether the run waits for roles that nothing brings back. If so, this is recorded, once a wait."""
        awaited = self.awaited(players)
        changes = [e for e in self._trace.events if isinstance(e, RunWaits | RoleLost | RoleRestarted)]
        last = changes[-1] if changes else None
        if awaited and not (isinstance(last, RunWaits) and last.awaited == awaited):
            self._trace.event(RunWaits(self._loop.now, awaited))
        return bool(awaited)

    def may_wait(self) -> bool:
        """Whether a role is down, and none is frozen."""
        return not self._frozen and not self.all_present

    def chief_is_gone(self) -> bool:
        """Whether the chief is lost, and is not about to be restarted."""
        return bool(self._chief.down) and self._chief.name not in self._restarting


def _begins_with(role: SimulatedRole, state: Any, before: int) -> dict[str, Any]:
    """What a restarted role begins with, as fields of `RoleRestarted`. `before`: updates that the lost shard had applied."""
    if role.shard is None:
        return {}
    if state is None:
        return {"source": "first weights", "rolled_back": before}
    update = int(state["version"])
    return {"source": "checkpoint", "update": update, "rolled_back": max(0, before - update)}
