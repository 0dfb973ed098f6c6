"""Fault injection on links: cut, limited bandwidth, delay, loss of frames, and reconnection.

The client stores the fault of each link. It sends each role one order with the faults of all links of this role. The
order replaces earlier orders, and the role applies the faults to its connections.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, TypedDict

from ....roles.layout import Layout
from ....trace.events import LinkCut, LinkDelayed, LinkEvent, LinkLossy, LinkReconnected, RoleLimited
from ...active_faults import ActiveFaults, Conditions, reason_of
from ...commands import Cut, Delay, Drop, End, Limit, Reconnect
from .membership import Membership
from .run_record import RunRecord


class Fault(TypedDict):
    """The fault of a link: seconds per byte, delay in seconds, probability that a transmission is lost, whether it is cut."""

    per_byte: float
    delay: float
    drop: float
    cut: bool


NO_FAULT: Fault = {"per_byte": 0.0, "delay": 0.0, "drop": 0.0, "cut": False}


class LinkFaultOrders:
    """The link faults of one run. Used by the run's thread only; never blocks.

    `active`: the delays and losses of links. `post(order, addresses, role, incarnation)` sends an order to an instance of a role.
    """

    def __init__(
        self, layout: Layout, members: Membership, record: RunRecord, active: ActiveFaults,
        post: Callable[[dict[str, Any], Iterable[str], str, int], None],
    ):  # fmt: skip
        self._layout, self._members, self._record, self._active, self._post = layout, members, record, active, post
        self._roles = [role.name for role in layout.roles]
        self._cut: Conditions[None] = Conditions()  # of links
        self._isolated: Conditions[int] = Conditions()  # of the incarnations of roles, all of whose links are cut
        self._numbers = count(1)  # numbers of the orders

    def cut(self, command: Cut) -> None:
        """Cut a link, or all links of a role. In the second case the link to the client is cut, too."""
        reason = reason_of(command)
        if command.peer is not None:
            self._cut.begin(frozenset((command.role, command.peer)), reason, None)
        for name in self._layout.roles_on_node(command.role) if command.peer is None else ():
            self._isolated.begin(name, reason, self._members.incarnation[name])
        self._changed(command, LinkCut)

    def reconnect(self, command: Reconnect) -> None:
        """Reconnect a link; frames that were held are sent."""
        for peer in self._roles if command.peer is None else [command.peer]:
            self._cut.end(frozenset((command.role, peer)), None)
        self._reconnect(command)

    def limit(self, command: Limit | End) -> None:
        """Limit the bandwidth of the node of a role."""
        bandwidth = self._active.apply(command)
        self._record.executed(command)
        self._record.event(RoleLimited, command.role, None if math.isinf(bandwidth) else bandwidth)
        self._send_orders(self._roles)

    def change(self, command: Delay | Drop) -> None:
        """Delay messages on a link, or lose transmissions, which are retransmitted."""
        kind = LinkDelayed if isinstance(command, Delay) else LinkLossy
        self._changed(command, kind, self._active.apply(command))

    def end(self, command: End) -> None:
        fault = command.fault
        if isinstance(fault, Limit):
            return self.limit(command)
        if not isinstance(fault, Cut):
            return self._changed(
                command, LinkDelayed if isinstance(fault, Delay) else LinkLossy, self._active.apply(command)
            )
        if fault.peer is not None:
            self._cut.end(frozenset((fault.role, fault.peer)), fault)
        self._reconnect(command)

    def _reconnect(self, command: Reconnect | End) -> None:
        """Reconnect a link or, if it has no peer, a role. Instances that were cut off and replaced are reconnected, too."""
        reason = command.fault if isinstance(command, End) else None
        nodes = self._layout.roles_on_node(command.role) if command.peer is None else ()
        freed = {(name, incarnation) for name in nodes for incarnation in self._isolated.end(name, reason)}
        self._changed(command, LinkReconnected)
        for (name, incarnation), address in self._members.fenced.items():
            if (name, incarnation) in freed:
                self._post(_order(next(self._numbers), {}, False), [address], name, incarnation)

    def _changed(self, command: Cut | Reconnect | Delay | Drop | End, event: type[LinkEvent], *more: float) -> None:
        role, peer = command.role, command.peer
        self._record.executed(command)
        if event is not LinkReconnected or not self._is_cut(role, peer):
            self._record.event(event, role, peer, *more)
        self._send_orders([role, peer] if peer is not None else self._roles)

    def _is_cut(self, role: str, peer: str | None) -> bool:
        return self.is_isolated(role) if peer is None else self._cut.holds(frozenset((role, peer)), None)

    def _combined_fault(self, role: str, peer: str) -> Fault:
        """Return the combined fault of the link between two roles. Links between roles on one node have no faults."""
        if peer in self._layout.roles_on_node(role):
            return NO_FAULT
        cut = self._is_cut(role, peer) or self.is_isolated(role) or self.is_isolated(peer)
        return {
            "per_byte": max(self._per_byte(role), self._per_byte(peer)), "delay": self._active.delay(role, peer),
            "drop": self._active.loss(role, peer), "cut": cut,
        }  # fmt: skip

    def _per_byte(self, role: str) -> float:
        """Return the seconds for which a byte occupies the node of a role; 0 if its bandwidth is not limited."""
        return 1.0 / self._active.bandwidth(self._layout.roles_on_node(role))

    def _send_orders(self, roles: Iterable[str]) -> None:
        for role in roles:
            address = self._members.where.get(role)
            if address is not None:
                self._post(self.order_for(role), [address], role, self._members.incarnation[role])

    def order_for(self, role: str) -> dict[str, Any]:
        """Return the order with the faults of all links of a role. It replaces orders with lower numbers."""
        links = {peer: self._combined_fault(role, peer) for peer in self._roles if peer != role}
        faulty = {peer: how for peer, how in links.items() if how != NO_FAULT}
        return _order(next(self._numbers), faulty, self.is_isolated(role), self._per_byte(role))

    def is_isolated(self, role: str) -> bool:
        """Return whether all links of a role are cut, also the link to the client."""
        return self._isolated.holds(role, self._members.incarnation[role])

    def ended(self, role: str, incarnation: int) -> None:
        """Notify the other roles if an instance that was isolated has ended. The next one starts elsewhere, and is connected."""
        if self._isolated.holds(role, incarnation):
            self._send_orders([name for name in self._members.contact if name != role])


def _order(number: int, links: dict[str, Fault], isolated: bool, per_byte: float = 0.0) -> dict[str, Any]:
    """Return the order for a role: the faults of its links, whether it is also cut off from the client, and the seconds for which
    a byte occupies its node.
    """
    return {"do": "link_faults", "number": number, "links": links, "isolated": isolated, "per_byte": per_byte}
