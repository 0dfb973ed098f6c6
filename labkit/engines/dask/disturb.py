"""What is done to the roles of a run for real: processes killed, frozen and thawed, links cut, delayed, made to lose frames.

Law: a fault is done, and nothing more: what it means for the run is noticed by whoever listens, as if it had come by
itself. Signals go to processes that are labkit's own, or, of others, where the cluster allows it.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from ...errors import BadInput
from ..parts import Plan, find_role
from .membership import AWAY, LOST, Membership
from .processes import boot_id, freeze_process, thaw_process
from .supervisor import Supervisor

__all__ = ["Disturbances"]

NANNY_S = 5.0
NOTHING = {"delay": 0.0, "drop": 0.0, "cut": False}


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

    def say(self, kind: str, text: str, **more: Any) -> None:
        """Write a mark."""
        raise NotImplementedError

    @property
    def verbs(self) -> tuple[str, ...]:
        """What can be done to a role."""
        signals = ("kill", "restart", "freeze", "thaw") if self.cluster.may_kill else ()
        return ("slow", *signals, "cut", "reconnect")

    # processes --------------------------------------------------------------------------------------------------------

    def kill(self, role: str, restart: bool = True) -> None:
        """End the process that plays `role`, with SIGKILL. `restart=False`: nobody is to take its place until `restart`.

        Processes that labkit did not start may hold other people's work: `BadInput` unless the cluster allows it.
        """
        address = self._may_signal("kill", role)
        with self._lock:
            if self._closing:
                return
            if not restart:
                self.held |= set(self.members.on(address)) - {"chief"} | {role}
            self._killed.add(address)
            self.say("kill", f"killed {role}", name=role)
        if not self.supervisor.kill(address, self.cluster.ours):
            self.say("warning", f"{role} did not hear of 'kill'")

    def restart(self, role: str) -> None:
        """Let a role come back that was killed to stay away. `BadInput` if it is here, or already on its way."""
        find_role(role, self.plan.role_ids)
        with self._lock:
            self.held.discard(role)
            if self.members.state[role] != AWAY:
                raise BadInput(
                    f"restart({role!r}): it is {self.members.state[role]}; only who was to stay away is restarted."
                )
            self.supervisor.queue.put({"what": "want back", "role": role})

    def freeze(self, role: str) -> None:
        """Stop the process that plays `role` where it stands (SIGSTOP)."""
        address = self._may_signal("freeze", role)
        with self._lock:
            process = self.supervisor.processes[address]
            self._stopped.setdefault(role, []).append((address, process))
            self.say("freeze", f"froze {role}", name=role)
            self._signal(address, process, freeze_process)

    def thaw(self, role: str) -> None:
        """Let a frozen process go on (SIGCONT): it is taken back, or, if it has been declared lost, told to leave."""
        find_role(role, self.plan.role_ids)
        with self._lock:
            stopped = self._stopped.pop(role, [])
            if not stopped:
                raise BadInput(f"thaw({role!r}): it is not frozen.")
            self.say("thaw", f"thawed {role}", name=role)
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
        if not self.cluster.may_kill:
            raise BadInput(
                f"{verb}({role!r}): labkit did not start these processes, and others may need them; "
                "lk.DaskCluster(..., may_kill=True) allows it."
            )
        address = self.members.where.get(role)
        if address is None or address not in self.supervisor.processes:
            raise BadInput(f"{verb}({role!r}): it is not here ({role} {self.members.why.get(role, 'is starting')}).")
        self.supervisor.check_kill(role)
        return address

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
        self._impair("cut", f"cut {role} off from {peer or 'everybody'}", role, peer, cut=True)

    def reconnect(self, role: str, peer: str | None = None) -> None:
        """Undo `cut`: what waited passes now."""
        self._impair("reconnect", f"reconnected {role} with {peer or 'everybody'}", role, peer, cut=False)

    def delay(self, role: str, seconds: float, peer: str | None = None) -> None:
        """Whatever `role` and `peer` (None: everybody) say to each other comes so much later; 0 undoes it."""
        text = f"messages between {role} and {peer or 'everybody'} come {seconds:g} s later"
        self._impair("delay", text, role, peer, delay=float(seconds))

    def drop(self, role: str, chance: float, peer: str | None = None) -> None:
        """Every transmission between `role` and `peer` (None: everybody) is lost with this chance; 0 undoes it."""
        text = f"messages between {role} and {peer or 'everybody'} are lost with chance {chance:g}"
        self._impair("drop", text, role, peer, drop=float(chance))

    def _impair(self, kind: str, text: str, role: str, peer: str | None, **change: Any) -> None:
        find_role(role, self.plan.role_ids)
        if peer is not None:
            find_role(peer, self.plan.role_ids)
        with self._lock:
            if self._closing:
                return
            now = self._links[role, peer] = {**NOTHING, **self._links.get((role, peer), {}), **change}
            self.say(kind, text, name=role, peer=peer, **{k: v for k, v in change.items() if k != "cut"})
            self._order(role, peer, now)
            for other in self.plan.role_ids if peer is None else [peer]:
                if other != role:
                    self._order(other, role, now)
            if kind == "reconnect" and peer is None:  # lives that were cut off, and have been followed
                for (name, life), address in self.members.former.items():
                    if name == role:
                        self.supervisor.post({"do": "impair", "peer": None, **NOTHING}, [address], role, life)

    def _order(self, role: str, peer: str | None, what: dict[str, Any]) -> None:
        address = self.members.where.get(role)
        if address is not None:
            self.supervisor.post({"do": "impair", "peer": peer, **what}, [address], role)

    def links_of(self, role: str) -> list[dict[str, Any]]:
        """The orders about its links that a life of `role` which has just begun is to hear.

        Whoever was cut off from everybody begins elsewhere, and is not.
        """
        orders = []
        for (name, peer), what in self._links.items():
            if name == role:
                orders.append({"do": "impair", "peer": peer, **what, "cut": what["cut"] and peer is not None})
            elif peer == role or peer is None:
                orders.append(
                    {"do": "impair", "peer": name, **what, "cut": what["cut"] and self._still_cut(name, peer)}
                )
        return [order for order in orders if any(order[key] for key in NOTHING)]

    def _still_cut(self, role: str, peer: str | None) -> bool:
        return peer is not None or self.members.state[role] != LOST

    def mend(self, role: str) -> None:
        """A life that was cut off from everybody is lost: the next one is not."""
        what = self._links.get((role, None))
        if what is not None and what["cut"]:
            what["cut"] = False
            for other in self.members.address:
                if other != role:
                    self._order(other, role, what)
