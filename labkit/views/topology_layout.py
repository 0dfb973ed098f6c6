"""Layout of the roles of a run in the topology panel: servers and their backups above, workers below.

Workers form a ring if there are no servers. The stages of a pipeline, and the parts of each replica, form rows. With more
than 24 workers, neighbours are grouped into one node, but up to four workers that are slowed or do not run have separate
nodes. Coordinates are pixels from the lower left corner.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..formatting import short
from ..trace.role_states import conditions, slowed
from ..trace.trace import Trace

MOST, TOGETHER = {"server": 8, "worker": 24}, {"server": 6, "worker": 8}  # nodes; groups, if there are more roles
MOST_SLOWED = 4
SERVES = ("server", "backup")  # kinds of roles in the upper row


@dataclass(frozen=True)
class Node:
    """One node: its roles, the number of machines it represents, its name, and its appearance.

    `condition`: one of `trace.role_states.CONDITIONS` if the node represents one machine with a role that does not run,
    otherwise "".
    """

    roles: tuple[int, ...]
    count: int
    name: str
    server: bool
    slow: bool
    condition: str = ""

    @property
    def many(self) -> bool:
        """Whether the node represents several machines."""
        return self.count > 1


def nodes_of(trace: Trace, t: int) -> tuple[list[Node], list[list[Node]]]:
    """Return (servers, rows of workers) at `t` ns.

    Roles on one machine are one node. The chief is left out, because it only evaluates.
    """
    highlighted = _Highlighted(set(slowed(trace, t)), conditions(trace, t))
    servers = _grouped(trace, _machines(trace, True), highlighted, "server")
    if len(servers) == 1 and not servers[0].many:
        servers = [replace(servers[0], name="server")]
    workers = _machines(trace, False)
    if len(workers) > MOST["worker"]:
        return servers, [_grouped(trace, workers, highlighted, "worker")]
    return servers, [[_node(trace, [machine], highlighted, False) for machine in row] for row in _rows(trace, workers)]


@dataclass(frozen=True)
class _Highlighted:
    slow: set[int]
    conditions: dict[int, str]

    def __contains__(self, role: int) -> bool:
        return role in self.slow or role in self.conditions


def _machines(trace: Trace, servers: bool) -> list[tuple[int, ...]]:
    """Return the roles on each machine, workers first.

    `servers`: whether to return the machines of servers and backups (each server followed by its backup), or those of all
    other roles except the chief.
    """
    found: dict[str, list[int]] = {}
    for role, kind in enumerate(trace.kinds):
        if kind != "chief" and (kind in SERVES) == servers:
            found.setdefault(trace.nodes[role], []).append(role)
    made = [tuple(sorted(roles, key=lambda r: (trace.kinds[r] != "worker", r))) for roles in found.values()]
    if not servers or "backup" not in trace.kinds:
        return made
    backs = {role: trace.roles[role].replace("backup", "server") for role in trace.role_ids("backup")}
    beside = {role: trace.roles.index(name) for role, name in backs.items() if name in trace.roles}
    return sorted(made, key=lambda machine: (beside.get(machine[0], machine[0]), machine[0]))


def _rows(trace: Trace, workers: list[tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
    """Return one row for each replica of a split model. Otherwise return a single row."""
    of = {trace.roles[role]: machine for machine in workers for role in machine}
    groups = trace.header.layout.groups.items()
    rows = [[of[name] for name in members] for group, members in groups if group.startswith("replica-")]
    return rows if sorted(machine for row in rows for machine in row) == sorted(workers) else [workers]


def _node(trace: Trace, machines: list[tuple[int, ...]], highlighted: _Highlighted, server: bool) -> Node:
    roles = tuple(role for machine in machines for role in machine)
    first, last = short(trace.roles[machines[0][0]]), short(trace.roles[machines[-1][0]])
    name = first if len(machines) == 1 else f"{first}–{last.lstrip('abcdefghijklmnopqrstuvwxyz-')}"
    how = (
        [highlighted.conditions[role] for role in roles if role in highlighted.conditions] if len(machines) == 1 else []
    )
    return Node(
        roles, len(machines), name, server, any(role in highlighted.slow for role in roles), how[0] if how else ""
    )


def _grouped(trace: Trace, machines: list[tuple[int, ...]], highlighted: _Highlighted, kind: str) -> list[Node]:
    if len(machines) <= MOST[kind]:
        return [_node(trace, [machine], highlighted, kind == "server") for machine in machines]
    alone = [machine for machine in machines if any(role in highlighted for role in machine)][:MOST_SLOWED]
    rest = [machine for machine in machines if machine not in alone]
    edges = np.linspace(0, len(rest), TOGETHER[kind] + 1).astype(int)
    groups = [rest[a:b] for a, b in zip(edges, edges[1:])] + [[machine] for machine in alone]
    return [_node(trace, group, highlighted, kind == "server") for group in groups if group]


def place_nodes(
    trace: Trace, servers: list[Node], rows: list[list[Node]], wide: float, high: float
) -> dict[Node, tuple[float, float]]:
    """Return the position of each node on an area of `wide` x `high` pixels."""
    if not servers and len(rows) == 1 and len(rows[0]) > 2 and "Activation" not in trace.header.messages:
        return _ring(rows[0], wide, high)
    levels = ([servers] if servers else []) + rows
    found: dict[Node, tuple[float, float]] = {}
    for k, level in enumerate(levels):
        y = high * (1 - (k + 0.5) / len(levels)) if len(levels) > 2 else high * (0.5, 0.77 - 0.53 * k)[len(levels) - 1]
        step = min(wide / len(level), 130.0)
        for i, node in enumerate(level):
            found[node] = (wide / 2 + (i - (len(level) - 1) / 2) * step, y)
    return found


def _ring(row: list[Node], wide: float, high: float) -> dict[Node, tuple[float, float]]:
    """Return the positions on an ellipse, clockwise from the top, with equal arc lengths between neighbours."""
    tall = high / 2 - (30 if any(node.many for node in row) else 16)  # room for names below
    broad = min(wide / 2 - 30, 2.6 * tall)
    angle = np.linspace(0, 2 * math.pi, 721)
    x, y = broad * np.sin(angle), tall * np.cos(angle)
    way = np.r_[0.0, np.cumsum(np.hypot(np.diff(x), np.diff(y)))]
    at = np.interp(np.arange(len(row)) / len(row) * way[-1], way, angle)
    return {node: (wide / 2 + broad * math.sin(a), high / 2 + tall * math.cos(a)) for node, a in zip(row, at.tolist())}
