"""Fault injection on processes: they are killed, frozen and thawed; links are cut, delayed, made to lose frames.

A command is executed, and nothing more: what it means for the run is noticed by the thread that listens, as if it had come
by itself. Signals go to processes that are labkit's own, or, of others, where the cluster allows it.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from ...errors import BadInput, shown
from ...trace.events import (
    EngineWarning,
    Event,
    LinkCut,
    LinkDelayed,
    LinkEvent,
    LinkLossy,
    LinkReconnected,
    RoleFrozen,
    RoleKilled,
    RoleThawed,
)
from ..commands import Command, Cut, Delay, Drop, Freeze, Kill, Reconnect, Restart, Thaw
from ..parts import Plan
from .membership import HERE, STARTING, Membership
from .processes import boot_id, freeze_process, thaw_process
from .supervisor import Supervisor

__all__ = ["SIGNALS", "Disturbances"]

NANNY_S = 5.0
NOTHING = {"delay": 0.0, "drop": 0.0, "cut": False}
SIGNALS: frozenset[type[Command]] = frozenset((Kill, Restart, Freeze, Thaw))  # commands about processes


class Disturbances:
    """The part of a run that executes commands about processes and links."""

    cluster: Any
    plan: Plan
    supervisor: Supervisor
    members: Membership
    _lock: threading.RLock
    _closing: bool
    _killed: set[str]
    held: set[str]
    _log: Callable[[Command], None]

    def __init__(self) -> None:
        self._stopped: dict[
            str, list[tuple[str, tuple[Any, ...]]]
        ] = {}  # role -> (Dask worker, process) that is frozen
        self._links: dict[tuple[str, str | None], dict[str, Any]] = {}  # (role, peer) -> what is wrong between them
        self._numbers = count(1)  # of orders about links

    def event(self, kind: type[Event], *fields: Any) -> None:
        """Record an event at this instant."""
        raise NotImplementedError

    # processes --------------------------------------------------------------------------------------------------------

    def _do_kill(self, command: Kill) -> None:
        """With SIGKILL. `BadInput` if the process is this one."""
        role, restart = command.role, command.restart
        address = self.members.where.get(role)
        there = address is not None and address in self.supervisor.processes
        if there:
            self.supervisor.check_kill(role)
        with self._lock:
            if self._closing:
                return
            node = self._node_of(role)
            self.held = self.held - node if restart else self.held | (node - {"chief"}) | {role}
            self._log(command)
            self.event(RoleKilled, role, restart, not there)
            if not there:  # it is lost already, or its next life has not said where it is: that one is given up
                return self.supervisor.queue.put({"what": "killed again", "role": role, "restart": restart})
            assert address is not None
            self._killed.add(address)
        if not self.supervisor.kill(address, self.cluster.ours):
            self.event(EngineWarning, f"{role} did not hear of 'kill'")

    def _node_of(self, role: str) -> set[str]:
        """The roles that share a process with this one, and itself."""
        nodes = {spec.name: spec.node for spec in self.plan.layout.roles}
        return {name for name, node in nodes.items() if node == nodes[role]}

    def _do_restart(self, command: Restart) -> None:
        """A role comes back that was killed to stay away. `BadInput` if it is here."""
        role = command.role
        with self._lock:
            node = self._node_of(role)
            held = bool(self.held & node)
            self.held -= node
            if self.members.state[role] in (HERE, STARTING) and not held:
                raise BadInput(
                    f"restart({shown(role)}): it is {self.members.state[role]}; only who was to stay away is restarted."
                )
            self._log(command)
            self.supervisor.queue.put({"what": "want back", "roles": sorted(node)})

    def _do_freeze(self, command: Freeze) -> None:
        """With SIGSTOP. `BadInput` if the role is not here, or its process is this one."""
        role, address = command.role, self._address(command)
        with self._lock:
            process = self.supervisor.processes[address]
            self._stopped.setdefault(role, []).append((address, process))
            self._log(command)
            self.event(RoleFrozen, role)
            self._signal(address, process, freeze_process)

    def _do_thaw(self, command: Thaw) -> None:
        """With SIGCONT: the process is taken back, or, if it has been declared lost, told to leave."""
        role = command.role
        with self._lock:
            stopped = self._stopped.pop(role, [])
            if not stopped:
                raise BadInput(f"thaw({shown(role)}): it is not frozen.")
            self._log(command)
            self.event(RoleThawed, role)
            for address, process in stopped:
                self._signal(address, process, thaw_process)

    def thaw_all(self) -> None:
        """The run is over: no process stays frozen because of it."""
        for stopped in self._stopped.values():
            for _, process in stopped:
                if process[0] == boot_id():
                    thaw_process(process)

    def _address(self, command: Freeze) -> str:
        """The Dask worker that plays the role; `BadInput` if there is none, or if its process is this one."""
        role = command.role
        address = self.members.where.get(role)
        if address is None or address not in self.supervisor.processes:
            why = self.members.why.get(role, "is starting")
            raise BadInput(f"{command.word}({shown(role)}): it is not here ({role} {why}).")
        self.supervisor.check_kill(role)
        return address

    def _check_allowed(self, command: Command) -> None:
        """`BadInput` if it is about processes that may hold other people's work, and the cluster does not allow it."""
        if type(command) in SIGNALS and not self.cluster.may_kill:
            role = getattr(command, "role", "")
            raise BadInput(
                f"{command.word}({shown(role)}): labkit did not start these processes, and others may need them; "
                "lk.DaskCluster(..., may_kill=True) allows it."
            )

    def _signal(self, address: str, process: tuple[Any, ...], act: Any) -> None:
        """On this machine at once; elsewhere by the nanny of the process, which is awake even if that is not."""
        if process[0] == boot_id():
            act(process)
            return
        client = self.supervisor.client

        async def ask() -> Any:
            call = client._run(act, process, workers=[address], nanny=True, on_error="return")
            return (await asyncio.wait_for(call, NANNY_S)).get(address, OSError("there is no nanny"))

        try:
            answer = client.sync(ask, callback_timeout=NANNY_S + 1)
        except Exception as error:
            answer = error
        if isinstance(answer, Exception):
            raise BadInput(
                f"The process at {address} is on another machine, and its nanny does not pass the signal on ({answer}); "
                "start workers with `dask worker --nanny`."
            )

    # links ------------------------------------------------------------------------------------------------------------

    def _do_cut(self, command: Cut) -> None:
        """Also, where it is about every other role, between it and the client."""
        self._impair(command, LinkCut, {"cut": True})

    def _do_reconnect(self, command: Reconnect) -> None:
        """What waited passes now."""
        self._impair(command, LinkReconnected, {"cut": False})

    def _do_delay(self, command: Delay) -> None:
        self._impair(command, LinkDelayed, {"delay": command.seconds}, command.seconds)

    def _do_drop(self, command: Drop) -> None:
        self._impair(command, LinkLossy, {"drop": command.chance}, command.chance)

    def _impair(
        self, command: Cut | Reconnect | Delay | Drop, event: type[LinkEvent], change: dict[str, Any], *more: float
    ) -> None:  # fmt: skip
        role, peer = command.role, command.peer
        with self._lock:
            if self._closing:
                return
            for name in self._node_of(role) if peer is None and "cut" in change else {role}:
                self._links[name, peer] = {**NOTHING, **self._links.get((name, peer), {}), **change}
            self._log(command)
            self.event(event, role, peer, *more)
            self._order([role, peer] if peer is not None else self.plan.role_ids)
            if isinstance(command, Reconnect) and peer is None:  # lives that were cut off, and have been followed
                for (name, life), address in self.members.former.items():
                    if name == role:
                        self.supervisor.post(_order(next(self._numbers), {}, False), [address], role, life)

    def _between(self, role: str, peer: str) -> dict[str, Any]:
        """How the link between two roles behaves, by all that was said of it. Roles on one node have none."""
        if peer in self._node_of(role):
            return NOTHING
        said = [self._links.get(key, NOTHING) for key in ((role, None), (peer, None), (role, peer), (peer, role))]
        return {
            "delay": sum(one["delay"] for one in said),
            "drop": 1.0 - math.prod(1.0 - one["drop"] for one in said),
            "cut": any(one["cut"] for one in said),
        }

    def _order(self, roles: Iterable[str]) -> None:
        for role in roles:
            address = self.members.where.get(role)
            if address is not None:
                self.supervisor.post(self.links_of(role), [address], role, self.members.life[role])

    def links_of(self, role: str) -> dict[str, Any]:
        """How all links of a role behave: an order that replaces those before it. Waits for nobody."""
        number = next(self._numbers)  # first: what is said under a higher number is at least as new
        links = {peer: self._between(role, peer) for peer in self.plan.role_ids if peer != role}
        alone = self._links.get((role, None), NOTHING)["cut"]
        return _order(number, {peer: what for peer, what in links.items() if what != NOTHING}, alone)

    def mend(self, role: str) -> None:
        """A life that was cut off from everybody is lost: the next one, which begins elsewhere, is not."""
        what = self._links.get((role, None))
        if what is not None and what["cut"]:
            self._links[role, None] = {**what, "cut": False}
            self._order([name for name in self.members.address if name != role])


def _order(number: int, links: dict[str, dict[str, Any]], alone: bool) -> dict[str, Any]:
    """For a role: how its links behave, and whether it is cut off from the client, too."""
    return {"do": "impair", "number": number, "links": links, "alone": alone}
