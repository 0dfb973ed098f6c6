"""Fault injection on links: cut, delay, loss of frames, and reconnection.

The client stores the fault of each link. It sends each role one order with the faults of all links of this role. The
order replaces earlier orders, and the role applies the faults to its connections.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, TypedDict

from ....roles.layout import Layout
from ....trace.events import LinkCut, LinkDelayed, LinkEvent, LinkLossy, LinkReconnected
from ...commands import Cut, Delay, Drop, Reconnect
from .membership import Membership
from .run_record import RunRecord

__all__ = ["LinkFaults"]


class Fault(TypedDict):
    """The fault of a link: delay in seconds, probability that a transmission is lost, whether the link is cut."""

    delay: float
    drop: float
    cut: bool


NO_FAULT: Fault = {"delay": 0.0, "drop": 0.0, "cut": False}


class LinkFaults:
    """The link faults of one run. Used by the run's thread only; never blocks.

    `post(order, addresses, role, incarnation)` sends an order to an instance of a role.
    """

    def __init__(
        self, layout: Layout, members: Membership, record: RunRecord,
        post: Callable[[dict[str, Any], Iterable[str], str, int], None],
    ):  # fmt: skip
        self._layout, self._members, self._record, self._post = layout, members, record, post
        self._roles = [role.name for role in layout.roles]
        self._faults: dict[tuple[str, str | None], Fault] = {}  # {(role, peer): fault}; if peer is None, on all links of the role
        self._numbers = count(1)  # numbers of the orders

    def cut(self, command: Cut) -> None:
        """Cut a link, or all links of a role. In the second case the link to the client is cut, too."""
        self._change(command, LinkCut, {"cut": True})

    def reconnect(self, command: Reconnect) -> None:
        """Reconnect a link; frames that were held are sent."""
        self._change(command, LinkReconnected, {"cut": False})

    def delay(self, command: Delay) -> None:
        """Delay messages on a link by `command.seconds`."""
        self._change(command, LinkDelayed, {"delay": command.seconds}, command.seconds)

    def drop(self, command: Drop) -> None:
        """Lose transmissions on a link with probability `command.chance`. Lost frames are retransmitted."""
        self._change(command, LinkLossy, {"drop": command.chance}, command.chance)

    def _change(
        self, command: Cut | Reconnect | Delay | Drop, event: type[LinkEvent], change: dict[str, Any], *more: float
    ) -> None:  # fmt: skip
        role, peer = command.role, command.peer
        for name in self._layout.roles_on_node(role) if peer is None and "cut" in change else {role}:
            before = self._faults.get((name, peer), NO_FAULT)
            self._faults[name, peer] = {**before, **change}  # type: ignore[typeddict-item]
        self._record.executed(command)
        self._record.event(event, role, peer, *more)
        self._send_orders([role, peer] if peer is not None else self._roles)
        if isinstance(command, Reconnect) and peer is None:  # also reconnect instances that were cut off and replaced
            for (name, incarnation), address in self._members.fenced.items():
                if name == role:
                    self._post(_order(next(self._numbers), {}, False), [address], role, incarnation)

    def _combined_fault(self, role: str, peer: str) -> Fault:
        """Return the combined fault of the link between two roles. Links between roles on one node have no faults."""
        if peer in self._layout.roles_on_node(role):
            return NO_FAULT
        faults = [self._faults.get(key, NO_FAULT) for key in ((role, None), (peer, None), (role, peer), (peer, role))]
        return {
            "delay": sum(one["delay"] for one in faults),
            "drop": 1.0 - math.prod(1.0 - one["drop"] for one in faults),
            "cut": any(one["cut"] for one in faults),
        }

    def _send_orders(self, roles: Iterable[str]) -> None:
        for role in roles:
            address = self._members.where.get(role)
            if address is not None:
                self._post(self.order_for(role), [address], role, self._members.incarnation[role])

    def order_for(self, role: str) -> dict[str, Any]:
        """Return the order with the faults of all links of a role. It replaces orders with lower numbers."""
        links = {peer: self._combined_fault(role, peer) for peer in self._roles if peer != role}
        faulty = {peer: how for peer, how in links.items() if how != NO_FAULT}
        return _order(next(self._numbers), faulty, self.is_isolated(role))

    def is_isolated(self, role: str) -> bool:
        """Return whether all links of a role are cut, also the link to the client."""
        return self._faults.get((role, None), NO_FAULT)["cut"]

    def remove_cut(self, role: str) -> None:
        """Remove the cut of all links of a role whose instance was lost. Its next instance starts elsewhere, and is connected."""
        faults = self._faults.get((role, None))
        if faults is not None and faults["cut"]:
            self._faults[role, None] = {**faults, "cut": False}
            self._send_orders([name for name in self._members.contact if name != role])


def _order(number: int, links: dict[str, Fault], isolated: bool) -> dict[str, Any]:
    """Return the order for a role: the faults of its links, and whether it is also cut off from the client."""
    return {"do": "link_faults", "number": number, "links": links, "isolated": isolated}
