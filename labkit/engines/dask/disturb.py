"""What is done to the roles of a run for real: processes killed, frozen and thawed, links cut, delayed, made to lose frames.

Law: a fault is done, and nothing more: what it means for the run is noticed by whoever listens, as if it had come by
itself. Signals go to processes that are labkit's own, or, of others, where the cluster allows it.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterable
from itertools import count
from typing import Any

from ...errors import BadInput, shown
from ...knobs import check_number
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
from ..parts import Plan, find_role
from .membership import HERE, STARTING, Membership
from .processes import boot_id, freeze_process, thaw_process
from .supervisor import Supervisor

__all__ = ["Disturbances"]

NANNY_S = 5.0
NOTHING = {"delay": 0.0, "drop": 0.0, "cut": False}
MOST_LOST = 0.95  # more is as good as a cut, and would take for ever


class Disturbances:
    """The part of a run that does harm."""

    cluster: Any
    plan: Plan
    supervisor: Supervisor
    members: Membership
    _lock: threading.RLock
    _closing: bool
    _killed: set[str]
    held: set[str]

    def __init__(self) -> None:
        self._stopped: dict[
            str, list[tuple[str, tuple[Any, ...]]]
        ] = {}  # role -> (Dask worker, process) that is frozen
        self._links: dict[tuple[str, str | None], dict[str, Any]] = {}  # (role, peer) -> what is wrong between them
        self._numbers = count(1)  # of orders about links

    def event(self, kind: type[Event], *fields: Any) -> None:
        """Record an event at this instant."""
        raise NotImplementedError

    @property
    def verbs(self) -> tuple[str, ...]:
        """What can be done to a role."""
        signals = ("kill", "restart", "freeze", "thaw") if self.cluster.may_kill else ()
        return ("slow", *signals, "cut", "reconnect", "delay", "drop")

    # processes --------------------------------------------------------------------------------------------------------

    def kill(self, role: str, restart: bool = True) -> None:
        """End the process that plays `role`, with SIGKILL. `restart=False`: nobody is to take its place until `restart`.

        Processes that labkit did not start may hold other people's work: `BadInput` unless the cluster allows it.
        """
        find_role(role, self.plan.role_ids)
        self._check_allowed("kill", role)
        address = self.members.where.get(role)
        there = address is not None and address in self.supervisor.processes
        if there:
            self.supervisor.check_kill(role)
        with self._lock:
            if self._closing:
                return
            node = self._node_of(role)
            self.held = self.held - node if restart else self.held | (node - {"chief"}) | {role}
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

    def restart(self, role: str) -> None:
        """Let a role come back that was killed to stay away. `BadInput` if it is here."""
        find_role(role, self.plan.role_ids)
        with self._lock:
            node = self._node_of(role)
            held = bool(self.held & node)
            self.held -= node
            if self.members.state[role] in (HERE, STARTING) and not held:
                raise BadInput(
                    f"restart({shown(role)}): it is {self.members.state[role]}; only who was to stay away is restarted."
                )
            self.supervisor.queue.put({"what": "want back", "roles": sorted(node)})

    def freeze(self, role: str) -> None:
        """Stop the process that plays `role` where it stands (SIGSTOP)."""
        address = self._may_signal("freeze", role)
        with self._lock:
            process = self.supervisor.processes[address]
            self._stopped.setdefault(role, []).append((address, process))
            self.event(RoleFrozen, role)
            self._signal(address, process, freeze_process)

    def thaw(self, role: str) -> None:
        """Let a frozen process go on (SIGCONT): it is taken back, or, if it has been declared lost, told to leave."""
        find_role(role, self.plan.role_ids)
        with self._lock:
            stopped = self._stopped.pop(role, [])
            if not stopped:
                raise BadInput(f"thaw({shown(role)}): it is not frozen.")
            self.event(RoleThawed, role)
            for address, process in stopped:
                self._signal(address, process, thaw_process)

    def thaw_all(self) -> None:
        """The run is over: nobody stays frozen on its account."""
        for stopped in self._stopped.values():
            for _, process in stopped:
                if process[0] == boot_id():
                    thaw_process(process)

    def _may_signal(self, verb: str, role: str) -> str:
        """The Dask worker that plays `role`; `BadInput` if there is none, or it is not to be touched."""
        find_role(role, self.plan.role_ids)
        self._check_allowed(verb, role)
        address = self.members.where.get(role)
        if address is None or address not in self.supervisor.processes:
            raise BadInput(f"{verb}({shown(role)}): it is not here ({role} {self.members.why.get(role, 'is starting')}).")
        self.supervisor.check_kill(role)
        return address

    def _check_allowed(self, verb: str, role: str) -> None:
        if not self.cluster.may_kill:
            raise BadInput(
                f"{verb}({shown(role)}): labkit did not start these processes, and others may need them; "
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

    def cut(self, role: str, peer: str | None = None) -> None:
        """Nothing passes between `role` and `peer` any more; None: between it and everybody, the client included."""
        self._impair("cut", LinkCut, role, peer, {"cut": True})

    def reconnect(self, role: str, peer: str | None = None) -> None:
        """Undo `cut`: what waited passes now."""
        self._impair("reconnect", LinkReconnected, role, peer, {"cut": False})

    def delay(self, role: str, seconds: float, peer: str | None = None) -> None:
        """Whatever `role` and `peer` (None: everybody) say to each other comes so much later; 0 undoes it."""
        seconds = check_number("seconds", seconds, 0, 1e6)
        self._impair("delay", LinkDelayed, role, peer, {"delay": seconds}, seconds)

    def drop(self, role: str, chance: float, peer: str | None = None) -> None:
        """Every transmission between `role` and `peer` (None: everybody) is lost with this chance; 0 undoes it."""
        chance = check_number("chance", chance, 0, MOST_LOST)
        self._impair("drop", LinkLossy, role, peer, {"drop": chance}, chance)

    def _impair(
        self, kind: str, event: type[LinkEvent], role: str, peer: str | None, change: dict[str, Any], *more: float
    ) -> None:  # fmt: skip
        find_role(role, self.plan.role_ids)
        if peer is not None:
            find_role(peer, self.plan.role_ids)
        if peer == role:
            raise BadInput(f"{kind}({shown(role)}, peer={shown(peer)}): nothing lies between a role and itself.")
        with self._lock:
            if self._closing:
                return
            for name in self._node_of(role) if peer is None and "cut" in change else {role}:
                self._links[name, peer] = {**NOTHING, **self._links.get((name, peer), {}), **change}
            self.event(event, role, peer, *more)
            self._order([role, peer] if peer is not None else self.plan.role_ids)
            if kind == "reconnect" and peer is None:  # lives that were cut off, and have been followed
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
