"""Who is there, on which node, with which part of the model and of the data: the plan of a run.

A layout is pure: it is made from a problem and a cluster's shape before anything starts. Engines execute it, views
draw it, impossible shapes are refused in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Layout", "RoleSpec", "shard_slices"]


@dataclass(frozen=True)
class RoleSpec:
    """One role. `kind` is the name of the strategy's method that plays it, `index` its number among its kind.

    `node`: roles with the same node share a process (and its cores). `computes`: it is given a model. `shard`, `part`:
    it is given a shard with this number, that owns this slice of the parameters. `data`: it has the share of the data
    with this number.
    """

    name: str
    kind: str
    index: int
    node: str
    computes: bool = False
    shard: int | None = None
    part: slice | None = None
    data: int | None = None


@dataclass(frozen=True)
class Layout:
    """All roles, in the order of their numbers in the trace. `groups`: named sets of roles (stages, replicas).

    `observed`: the roles whose shards together are the model that the chief evaluates. `parts[i]`: the slice of shard
    i as workers push to it. `replicated`: every shard is a copy of the whole model (so a gradient counts once all of
    them have it).
    """

    roles: tuple[RoleSpec, ...]
    observed: tuple[str, ...]
    parts: tuple[slice, ...]
    replicated: bool = False
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes, in order of first use."""
        return tuple(dict.fromkeys(role.node for role in self.roles))

    @property
    def shares(self) -> int:
        """Into how many shares the data is divided."""
        return sum(role.data is not None for role in self.roles)

    def peers(self) -> dict[str, tuple[str, ...]]:
        """The names of all roles, by kind and by group."""
        kinds: dict[str, list[str]] = {}
        for role in self.roles:
            kinds.setdefault(role.kind, []).append(role.name)
        return {kind: tuple(names) for kind, names in kinds.items()} | dict(self.groups)

    def describe(self) -> dict[str, Any]:
        """The layout in plain values, for the header of a trace."""
        roles = [
            {
                "name": r.name, "kind": r.kind, "node": r.node, "shard": r.shard,
                "part": None if r.part is None else [r.part.start, r.part.stop], "data": r.data,
            }
            for r in self.roles
        ]  # fmt: skip
        return {
            "roles": roles, "observed": list(self.observed), "replicated": self.replicated,
            "groups": {name: list(members) for name, members in self.groups.items()},
        }  # fmt: skip


def shard_slices(size: int, shards: int) -> tuple[slice, ...]:
    """`size` parameters in `shards` contiguous slices whose lengths differ by at most one."""
    edges = [size * i // shards for i in range(shards + 1)]
    return tuple(slice(a, b) for a, b in zip(edges, edges[1:]))
