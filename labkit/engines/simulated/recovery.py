"""Loss and restart of roles in virtual time, by the same rules as on a cluster of processes.

A loss is detected at once if the process was killed, and after `heartbeat_timeout` seconds if the role is silent (frozen, or
isolated). The work of the lost instance and all messages in flight from and to it are lost. `restart_after` seconds later, the
next incarnation of the role starts from the newest checkpoint, and peers that wait for `Joined` are notified. A silent role that
recovers within `heartbeat_timeout` seconds continues where it was. A silent role that recovers later is fenced, i.e. told to
exit, because it has been declared lost.

If roles form a group (replicas, parts of one model), all members start their next incarnation together.

When a worker leaves, its work is dropped. Messages that it has sent are delivered; messages in flight to it are lost. The
worker is outside until a `Join`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from ...roles.group_restart import (
    drop_unapplied,
    group_restart_states,
    newest_version,
    not_waited_for,
    restarts_as_group,
    whole_replicas,
)
from ...trace.events import (
    GroupRestarted,
    LinkReconnected,
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
from ...trace.schema import nanoseconds
from ...trace.trace import Trace
from ..active_faults import Conditions, Reason
from ..cluster_spec import ClusterSpec
from ..elastic import moving_roles
from ..plan import Plan
from ..role_core import KnownMembers
from .checkpointing import Checkpoints
from .event_loop import EventLoop
from .network import SimulatedNetwork
from .role import SimulatedRole
from .role_factory import RoleFactory

JOINS, LEFT = "has not joined yet", "has left"  # reasons in `role.down` of workers that are outside


class SimulatedRecovery:
    """The losses and restarts of one run. Its methods are called between two turns of the event loop.

    `lost_instances`: [role's number, incarnation] of every instance that ended without a final report. `outside`: workers that
    do not take part, because they have not joined or have left. `changes`: the number of starts and ends of instances.
    """

    def __init__(
        self, plan: Plan, cluster: ClusterSpec, loop: EventLoop, network: SimulatedNetwork, roles: Sequence[SimulatedRole],
        members: KnownMembers, factory: RoleFactory, checkpoints: Checkpoints, trace: Trace,
    ):  # fmt: skip
        self._plan, self._layout, self._loop, self._network, self._roles = plan, plan.layout, loop, network, roles
        self._by_name = {role.name: role for role in roles}
        self._chief = self._by_name["chief"]
        self._members, self._factory, self._checkpoints, self._trace = members, factory, checkpoints, trace
        self._heartbeat_timeout, self._restart_after = cluster.heartbeat_timeout, cluster.restart_after
        self._grouped = restarts_as_group(plan.layout)
        self.lost_instances: list[list[int]] = []
        self.changes = 0
        # Each of these maps a role to the serial number of its newest timer. Older timers are void.
        self._restarting: dict[str, int] = {}  # roles that will be restarted
        self._frozen: dict[str, int] = {}
        self._isolated: dict[str, int] = {}  # roles that are cut off from all others
        self._serial = 0
        self._process: Counter[str] = Counter()  # {role: number of its present process}
        self._why_frozen: Conditions[int] = Conditions()  # of the processes of roles
        self._why_isolated: Conditions[int] = Conditions()
        # {(role, process): its incarnation, which was declared lost but still exists; it is fenced when it recovers}
        self._fenced_frozen: dict[tuple[str, int], int] = {}
        self._fenced_isolated: dict[tuple[str, int], int] = {}
        absent = plan.elastic.absent if plan.elastic else ()
        self.outside = set(absent)
        members.peers.update(
            {kind: tuple(m for m in names if m not in absent) for kind, names in members.peers.items()}
        )
        for name in absent:
            self._mark_down(self._by_name[name], JOINS)
        self._unacknowledged(absent)

    # faults and membership --------------------------------------------------------------------------------------------

    def kill(self, name: str, restart: bool) -> None:
        """Kill the process of role `name`, with all roles on its node. `restart`: restart them after `restart_after`; those that
        are lost already are restarted no later than without this kill. Workers that are outside have no process."""
        node = [role.name for role in self._node_of(name) if role.name not in self.outside]
        self._trace.event(RoleKilled(self._loop.now, name, restart, all(self._by_name[n].down for n in node)))
        self._lose([n for n in node if not self._by_name[n].down], "was killed")
        if restart:
            self._restart_later([n for n in node if self._by_name[n].down and n not in self._restarting])
        for n in node if not restart else ():
            self._restarting.pop(n, None)

    def restart(self, name: str) -> None:
        """Restart role `name` now, with the other lost roles of its node."""
        self._restart([role.name for role in self._node_of(name) if role.down and role.name not in self.outside])

    def freeze(self, name: str, reason: Reason) -> None:
        """Suspend the process of role `name`. If it is suspended for `heartbeat_timeout` seconds, the role is declared lost."""
        node = [role for role in self._node_of(name) if not role.down]
        for role in node:
            self._why_frozen.begin(role.name, reason, self._process[role.name])
        node = [role for role in node if role.name not in self._frozen]
        if node:
            self._trace.event(RoleFrozen(self._loop.now, name))
        for role in node:
            role.suspend()
        self._start_heartbeat_timeout([role.name for role in node], self._frozen)

    def thaw(self, name: str, reason: Reason) -> None:
        """Resume a frozen process, unless there is another reason. If its role was declared lost in the meantime, the process is
        fenced."""
        freed = {role: self._why_frozen.end(role.name, reason) for role in self._node_of(name)}
        if any(freed.values()):
            self._trace.event(RoleThawed(self._loop.now, name))
        for role, processes in freed.items():
            self._fence(role, self._fenced_frozen, processes, "woke up")
            if self._process[role.name] in processes and self._frozen.pop(role.name, None) is not None:
                role.resume()

    def isolate(self, name: str, reason: Reason) -> None:
        """Cut the node of role `name` off from all other nodes. If it is cut off for `heartbeat_timeout` seconds, its roles are
        declared lost.
        """
        names = [role.name for role in self._node_of(name) if not role.down]
        for member in names:
            self._why_isolated.begin(member, reason, self._process[member])
        names = [member for member in names if member not in self._network.isolated()]
        self._network.faults.isolate(names)
        self._start_heartbeat_timeout(names, self._isolated)

    def reconnect(self, name: str, reason: Reason) -> None:
        """Reconnect the node of role `name`, unless there is another reason. Held messages: see `SimulatedNetwork.send_held`."""
        freed = {role: self._why_isolated.end(role.name, reason) for role in self._node_of(name)}
        if not self._why_isolated.holds(name, self._process[name]):
            self._trace.event(LinkReconnected(self._loop.now, name, None))
        for role, processes in freed.items():
            if self._process[role.name] in processes:
                self._end_isolation(role.name)
            self._fence(role, self._fenced_isolated, processes, "was connected again")

    def join(self, name: str) -> None:
        """Add worker `name`, which is outside, to the run."""
        names = moving_roles(self._layout, name)
        self.outside.difference_update(names)
        for one in names:
            self._end_process(one)
        isolated = [one for one in names if one in self._network.isolated()]
        for one in isolated:  # the new instance has a new process
            self._end_isolation(one)
        if isolated:
            self._network.send_held()
        self._restart(list(names))

    def leave(self, name: str) -> None:
        """Remove worker `name` from the run: its work is dropped, and the messages that it has sent are delivered. If it is
        lost, it is not restarted."""
        names = moving_roles(self._layout, name)
        roles = [self._by_name[one] for one in names]
        waited_for = any(not (role.down and self.is_not_waited_for(role)) for role in roles)
        for role in roles:
            if not role.down:
                drop_unapplied(role.recorder, self._loop.now, role.name, {})
                self._end_instance(role)
            for timers in (self._restarting, self._frozen, self._isolated):
                timers.pop(role.name, None)
            self._why_frozen.discard(role.name, self._process[role.name])
            self._mark_down(role, LEFT)
        self.outside.update(names)
        self._network.discard_messages(set(names), sent=False)
        self._unacknowledged(names)
        if waited_for:
            self._continue_without(list(names))
        else:
            for one in names:
                self._trace.event(RoleLeft(self._loop.now, one))

    def _node_of(self, name: str) -> list[SimulatedRole]:
        node = self._by_name[name].node
        return [role for role in self._roles if role.node == node]

    def _fence(
        self, role: SimulatedRole, fenced: dict[tuple[str, int], int], processes: Iterable[int], after: str
    ) -> None:
        """Record which of these processes, whose instances were declared lost, have recovered and are fenced."""
        for process in processes:
            incarnation = fenced.pop((role.name, process), None)
            if incarnation is not None:
                self._trace.event(RoleFenced(self._loop.now, role.name, incarnation, after))

    def _end_process(self, name: str, exists: bool = False) -> None:
        """Give the next instance of a role another process. `exists`: the present process may still exist."""
        if not exists:
            self._why_frozen.discard(name, self._process[name])
            self._why_isolated.discard(name, self._process[name])
        self._process[name] += 1

    def _end_isolation(self, name: str) -> None:
        self._isolated.pop(name, None)
        self._network.reconnect(name)

    # silence ----------------------------------------------------------------------------------------------------------

    def _start_heartbeat_timeout(self, names: list[str], silent: dict[str, int]) -> None:
        self._serial += 1
        silent.update(dict.fromkeys(names, self._serial))
        at = self._loop.now + nanoseconds(self._heartbeat_timeout)
        self._loop.call_at(at, self._heartbeat_timed_out, names, self._serial)

    def _heartbeat_timed_out(self, names: list[str], serial: int) -> None:
        """Declare those of the roles `names` lost that have been silent since the timer with this serial number was started."""
        isolated = [name for name in names if self._isolated.get(name) == serial]
        frozen = [name for name in names if self._frozen.get(name) == serial]
        for fenced, silent in ((self._fenced_frozen, frozen), (self._fenced_isolated, isolated)):
            for name in silent:
                fenced[name, self._process[name]] = self._by_name[name].recorder.incarnation
        if frozen or isolated:
            self._lose(frozen + isolated, f"was silent for {self._heartbeat_timeout:g} s", exists=True)
            self._restart_later(frozen + isolated)

    # losses -----------------------------------------------------------------------------------------------------------

    def _lose(self, names: list[str], why: str, exists: bool = False) -> None:
        """Declare these roles lost. `exists`: their processes may still exist."""
        for name in names:
            self._end_isolation(name)
            self._end_process(name, exists)
        lost = [self._by_name[name] for name in names]
        if not lost:
            return
        for role in lost:
            self._end_instance(role)
            self._frozen.pop(role.name, None)  # its next incarnation has another process
            self._mark_down(role, why)
            self.lost_instances.append([role.id, role.recorder.incarnation])
            self._trace.event(RoleLost(self._loop.now, role.name, role.recorder.incarnation, why))
        self._network.discard_messages(set(names))
        self._unacknowledged(names)
        self._continue_without([role.name for role in lost if self.is_not_waited_for(role)])

    def _end_instance(self, role: SimulatedRole) -> None:
        role.end_instance()
        self._trace.append(role.report(self._loop.now))

    def _mark_down(self, role: SimulatedRole, why: str) -> None:
        """Set the reason why no instance of `role` is present; "" if an instance is present."""
        role.down = why
        self.changes += 1
        if why:
            self._members.absent.add(role.name)
        else:
            self._members.absent.discard(role.name)

    def is_not_waited_for(self, role: SimulatedRole) -> bool:
        """Return whether the other roles continue without `role` while it is lost."""
        return role.name in self.outside or not_waited_for(self._layout, role.spec, self._plan.strategy.on_loss)

    def _unacknowledged(self, names: Iterable[str]) -> None:
        names = tuple(names)
        for role in self._roles:
            if not role.down:
                role.unacknowledged.update(names)

    def _continue_without(self, names: list[str]) -> None:
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

    def _restart_later(self, names: list[str]) -> None:
        """After `restart_after`."""
        if not names or self._restart_after is None:
            return
        self._serial += 1
        self._restarting.update(dict.fromkeys(names, self._serial))
        at = self._loop.now + nanoseconds(self._restart_after)
        self._loop.call_at(at, self._restart_is_due, names, self._serial)

    def _restart_is_due(self, names: list[str], serial: int) -> None:
        self._restart([name for name in names if self._restarting.get(name) == serial])

    def _restart(self, names: list[str]) -> None:
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
        """Start the next incarnation of `role` with `state`. `was`: why it was down, if `role.down` has been reset."""
        # before `prepare`, which gives the role a new recorder
        before, was = role.counters.version, was or role.down
        self._factory.prepare(role, role.recorder.incarnation + 1 if incarnation is None else incarnation, state)
        self._checkpoints.register(role)
        self._mark_down(role, "")
        role.unacknowledged = {other.name for other in self._roles if other.down}
        number = role.recorder.incarnation
        if was in (JOINS, LEFT):
            self._trace.event(RoleJoined(self._loop.now, role.name, number))
        elif was:
            backup = self._layout.backup_of(role.name)
            copied = backup is not None and not self._by_name[backup].down
            begins = {"source": "backup"} if copied else _initial_state(role, state, before)
            self._trace.event(RoleRestarted(self._loop.now, role.name, number, **begins))
        role.begin()
        self._loop.make_ready(role, None)
        if role.name in self._frozen:  # a frozen member of a restarted group starts when it is thawed
            role.suspend()

    def _announce(self, name: str, to: Iterable[SimulatedRole]) -> None:
        """Notify the roles `to` that the newest instance of role `name` is present."""
        for other in to:
            if other.name != name and not other.down and not other.returned:
                other.peer_joined(name)

    def _restart_group(self, restarted: list[str]) -> None:
        """Start the next incarnation of all members of the group together. `restarted`: the members that were lost."""
        now = self._loop.now
        members = [r for r in self._roles if r is not self._chief and (not r.down or r.name in restarted)]
        alive = [r for r in members if not r.down]
        shards = {r.name: r.shard for r in alive if r.shard is not None}
        if whole_replicas(self._layout) and self._layout.replication == "synchronized" and shards:
            newest = max(shards, key=lambda name: shards[name].version)  # one represents all
            shards = {newest: shards[newest]}
        states = {name: shard.to_state() for name, shard in shards.items()}
        begins = group_restart_states(self._layout, states, self._checkpoints.of, [r.name for r in members])
        # the same for all members: a replica knows the gradients of the others by its own incarnation
        incarnation = 1 + max(r.recorder.incarnation for r in self._roles if r is not self._chief)
        for role in alive:
            drop_unapplied(role.recorder, now, role.name, begins)
            self._end_instance(role)
        self._network.discard_messages({r.name for r in members})
        was, lost = {r.name: r.down for r in members}, [r.name for r in self._roles if r.down and r not in members]
        for role in members:  # all before the first one begins: a role that begins notes which others are down
            self._mark_down(role, "")
        for role in members:
            self._begin(role, begins.get(role.name), incarnation, was[role.name])
            self._announce(role.name, [self._chief])  # the others have no earlier messages to repeat
            role.unacknowledged = set(lost)
        workers = sum(r.spec.computes for r in members)
        self._trace.event(GroupRestarted(now, workers, newest_version(begins)))

    # what a run waits for ---------------------------------------------------------------------------------------------

    @property
    def all_present(self) -> bool:
        return not any(role.down for role in self._roles)

    def awaited(self, required_roles: Iterable[SimulatedRole]) -> str:
        """Return a text about the roles that the run waits for and that will not be restarted automatically; "" if there are
        none. `required_roles`: the roles that have to return for the run to be finished."""
        away = [role for role in self._roles if role.down and role.name not in self._restarting]
        if any(not role.down for role in required_roles):  # else no role is left that could continue without them
            away = [role for role in away if not self.is_not_waited_for(role)]
        found = [f"{role.name}, which {role.down}" for role in away]
        held = [(name, to) for name, to in self._network.held_links() if name not in self.outside]
        found += [f"{to}, which is cut off from {name}" for name, to in held]
        return "; ".join(found)

    def unreachable(self, roles: Iterable[str]) -> str:
        """Return a text about those of these roles that cannot answer the chief now; "" if all can."""
        found = []
        for role in map(self._by_name.__getitem__, roles):
            why = role.down or ("is frozen" if role.name in self._frozen else "")
            if not why and role is not self._chief and self._network.is_cut(self._chief, role):
                why = f"is cut off from {self._chief.name}"
            found += [f"{role.name}, which {why}"] if why else []
        return "; ".join(found)

    def report_waiting(self, required_roles: Iterable[SimulatedRole]) -> bool:
        """Return whether the run waits for roles that will not be restarted automatically. If so, this is recorded once."""
        awaited = self.awaited(required_roles)
        changes = [e for e in self._trace.events if isinstance(e, RunWaits | RoleLost | RoleRestarted)]
        last = changes[-1] if changes else None
        if awaited and not (isinstance(last, RunWaits) and last.awaited == awaited):
            self._trace.event(RunWaits(self._loop.now, awaited))
        return bool(awaited)

    @property
    def none_suspended(self) -> bool:
        """Whether no role is frozen or being saved. A suspended role has no events, but may continue."""
        return not any(role.suspended for role in self._roles)

    def may_wait(self) -> bool:
        """Return whether a role is down or a worker outside, and no role is suspended."""
        return not self.all_present and self.none_suspended

    def chief_is_lost(self) -> bool:
        return bool(self._chief.down) and self._chief.name not in self._restarting

    def is_done(self, role: SimulatedRole) -> bool:
        """Return whether the run can be finished without `role`: it has returned, is outside, or is lost, will not be restarted
        automatically, and is not waited for."""
        if role.returned or role.name in self.outside:
            return True
        return bool(role.down) and role.name not in self._restarting and self.is_not_waited_for(role)


def _initial_state(role: SimulatedRole, state: Any, before: int) -> dict[str, Any]:
    """Return the initial state of a restarted role, as fields of `RoleRestarted`. `before`: updates applied by the lost
    shard.
    """
    if role.shard is None:
        return {}
    if state is None:
        return {"source": "first weights", "rolled_back": before}
    update = int(state["version"])
    return {"source": "checkpoint", "update": update, "rolled_back": max(0, before - update)}
