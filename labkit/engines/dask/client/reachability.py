"""Which roles of a run cannot reach each other, although the client reaches both: ports or routes between their hosts are closed.

Roles report the peers that their messages do not reach. A pair counts if both roles still report after `UNREACHED_S` seconds:
a lost peer is a matter of recovery. A link that is cut by a fault holds its messages, so no connection of it is reported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ....formatting import listed
from ...lifecycle import State
from ..timeouts import UNREACHED_S
from .membership import Membership

PORTS = (
    "Every role listens on a port that its system chooses (Linux: net.ipv4.ip_local_port_range): let the hosts of the Dask "
    "workers connect to each other on these TCP ports, or place the roles on hosts that can"
)
MOST = 4  # roles that are named per host
HEARD_S = 2.0  # busy roles send a heartbeat every half second
GATHER_S = 1.0  # roles report one after the other, and are named together

Pair = tuple[str, int, str, int]  # (role, incarnation, peer, its incarnation)


class Reachability:
    """The pairs of present roles of which one cannot reach the other. No I/O; times are arguments, in seconds."""

    def __init__(self, members: Membership):
        self._members = members
        self._heard: dict[str, float] = {}
        self._why: dict[Pair, str] = {}  # from the newest reports
        self._told: dict[Pair, float] = {}  # {pair that `news` has named: when}
        self._since: float | None = None  # time of the first pair that it has not named

    def heard(self, role: str, now: float) -> None:
        """Record a sign of life of a present role."""
        self._heard[role] = now

    def report(self, role: str, incarnation: int, unanswered: Mapping[str, Any], now: float) -> None:
        """Add the report of a present role. `unanswered`: see `Report`."""
        why = {
            (role, incarnation, peer, number): reason
            for peer, (number, seconds, reason) in unanswered.items()
            if seconds >= UNREACHED_S
        }
        if why or self._why:
            self._why = {pair: reason for pair, reason in self._why.items() if pair[:2] != (role, incarnation)} | why

    def news(self, now: float) -> list[str]:
        """Return sentences about pairs that are new, and about pairs that reach each other again."""
        if not (self._why or self._told):
            return []
        found = []
        self._told = {pair: at for pair, at in self._told.items() if self._is_present(pair)}
        again = dict.fromkeys(self._told.keys() - self._why.keys(), "")
        if again:
            self._told = {pair: at for pair, at in self._told.items() if pair not in again}
            found.append(f"{_text(again, self._members, 'can reach')} again.")
        new = {pair: why for pair, why in self._why.items() if pair not in self._told and self._counts(pair, now)}
        self._since = None if not new else now if self._since is None else self._since
        if self._since is not None and now - self._since >= GATHER_S:
            self._told |= dict.fromkeys(new, now)
            found.append(f"{_text(new, self._members)}. {PORTS}.")
        return found

    def text(self, now: float, role: str | None = None, seconds: float = 0.0) -> str:
        """Return which roles cannot reach each other; "" if all can. `role`: only its pairs.

        `seconds`: only pairs that `news` has named at least so long ago.
        """
        return _text({
            pair: self._why[pair]
            for pair, at in self._told.items()
            if pair in self._why and now - at >= seconds and role in (None, pair[0], pair[2]) and self._counts(pair, now)
        }, self._members)  # fmt: skip

    def _counts(self, pair: Pair, now: float) -> bool:
        """Whether the client reaches both roles."""
        return self._is_present(pair) and all(
            now - self._heard.get(role, -math.inf) < HEARD_S for role in (pair[0], pair[2])
        )

    def _is_present(self, pair: Pair) -> bool:
        state, numbers = self._members.state, self._members.incarnation
        role, incarnation, peer, number = pair
        return (numbers[role], numbers[peer]) == (incarnation, number) and state[role] is state[peer] is State.RUNNING


def _text(pairs: Mapping[Pair, str], members: Membership, verb: str = "cannot reach") -> str:
    """Return a clause per pair of hosts: "worker-0 and worker-1 on 10.0.0.1 cannot reach server-0 on 10.0.0.2 (no answer)"."""
    grouped: dict[tuple[str, str], tuple[list[str], list[str], str]] = {}
    for (role, _, peer, _), why in sorted(pairs.items()):
        hosts = members.contact[role][0], members.contact[peer][0]
        here, there, _ = grouped.setdefault(hosts, ([], [], f" ({why})" if why else ""))
        here.append(role)
        there.append(peer)
    clauses = (
        f"{_names(here)} on {host} {verb} {_names(there)} on {other}{why}"
        for (host, other), (here, there, why) in grouped.items()
    )
    return "; ".join(clauses)


def _names(roles: list[str]) -> str:
    names = sorted(set(roles))
    return listed(names if len(names) <= MOST else [*names[:MOST], f"{len(names) - MOST} more"])
