"""Fault injection on links: they are cut, delayed, made to lose frames, and reconnected.

Kept here is what was said of each link; roles are told how all of their links behave, in one order that replaces those before
it (`worker` applies it to its connections).
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
from .record import RunRecord

__all__ = ["LinkFaults"]


class Behaviour(TypedDict):
    """How a link behaves: seconds of delay, chance that a transmission is lost, whether nothing passes."""

    delay: float
    drop: float
    cut: bool


SOUND: Behaviour = {"delay": 0.0, "drop": 0.0, "cut": False}


class LinkFaults:
    """Of one run; used by the run's thread only, and never waits.

    `post(order, addresses, role, incarnation)` sends an order to an instance of a role.
    """

    def __init__(
        self, layout: Layout, members: Membership, record: RunRecord,
        post: Callable[[dict[str, Any], Iterable[str], str, int], None],
    ):  # fmt: skip
        self._layout, self._members, self._record, self._post = layout, members, record, post
        self._roles = [role.name for role in layout.roles]
        self._said: dict[tuple[str, str | None], Behaviour] = {}  # (role, peer); peer None: every other role
        self._numbers = count(1)  # of orders

    def cut(self, command: Cut) -> None:
        """Nothing passes; where it is about every other role, also not between the role and the client."""
        self._change(command, LinkCut, {"cut": True})

    def reconnect(self, command: Reconnect) -> None:
        """What was held passes now."""
        self._change(command, LinkReconnected, {"cut": False})

    def delay(self, command: Delay) -> None:
        """Messages arrive later, by `command.seconds`."""
        self._change(command, LinkDelayed, {"delay": command.seconds}, command.seconds)

    def drop(self, command: Drop) -> None:
        """Transmissions are lost with the chance `command.chance`, and repeated."""
        self._change(command, LinkLossy, {"drop": command.chance}, command.chance)

    def _change(
        self, command: Cut | Reconnect | Delay | Drop, event: type[LinkEvent], change: dict[str, Any], *more: float
    ) -> None:  # fmt: skip
        role, peer = command.role, command.peer
        for name in self._layout.on_node_of(role) if peer is None and "cut" in change else {role}:
            before = self._said.get((name, peer), SOUND)
            self._said[name, peer] = {**before, **change}  # type: ignore[typeddict-item]
        self._record.executed(command)
        self._record.event(event, role, peer, *more)
        self._tell([role, peer] if peer is not None else self._roles)
        if isinstance(command, Reconnect) and peer is None:  # instances that were cut off, and have been replaced
            for (name, incarnation), address in self._members.fenced.items():
                if name == role:
                    self._post(_order(next(self._numbers), {}, False), [address], role, incarnation)

    def _between(self, role: str, peer: str) -> Behaviour:
        """How the link between two roles behaves, by all that was said of it. Roles on one node have none."""
        if peer in self._layout.on_node_of(role):
            return SOUND
        said = [self._said.get(key, SOUND) for key in ((role, None), (peer, None), (role, peer), (peer, role))]
        return {
            "delay": sum(one["delay"] for one in said),
            "drop": 1.0 - math.prod(1.0 - one["drop"] for one in said),
            "cut": any(one["cut"] for one in said),
        }

    def _tell(self, roles: Iterable[str]) -> None:
        for role in roles:
            address = self._members.where.get(role)
            if address is not None:
                self._post(self.order_for(role), [address], role, self._members.incarnation[role])

    def order_for(self, role: str) -> dict[str, Any]:
        """How all links of a role behave: an order that replaces those with lower numbers."""
        links = {peer: self._between(role, peer) for peer in self._roles if peer != role}
        alone = self._said.get((role, None), SOUND)["cut"]
        return _order(next(self._numbers), {peer: how for peer, how in links.items() if how != SOUND}, alone)

    def mend(self, role: str) -> None:
        """An instance that was cut off from every other role is lost: the next one, which begins elsewhere, is not cut off."""
        said = self._said.get((role, None))
        if said is not None and said["cut"]:
            self._said[role, None] = {**said, "cut": False}
            self._tell([name for name in self._members.contact if name != role])


def _order(number: int, links: dict[str, Behaviour], alone: bool) -> dict[str, Any]:
    """For a role: how its links behave, and whether it is cut off from the client, too."""
    return {"do": "impair", "number": number, "links": links, "alone": alone}
