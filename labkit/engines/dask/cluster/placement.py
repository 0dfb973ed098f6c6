"""Placement of the nodes of a layout on Dask workers, and the check that the checkpoint folder is reachable from them.

All functions are pure. A Dask worker runs at most one node of a run. By default the least used Dask workers are chosen. A
placement rule is one of

- "spread": first, servers are placed on different hosts; then each other node is placed on the host with the fewest nodes of
  this run. A backup is not placed on the host of its server, if possible.
- "pack": the run uses as few hosts as possible.
- {"server-0": "10.0.0.2", "worker": "10.0.0.3"}: a role, or all roles of a kind, are placed on a host, or on the Dask worker
  with that address. The entry of a role overrides that of its kind. Nodes without an entry are placed on the remaining Dask
  workers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ....errors import BadInput, nearest, shown
from ....formatting import count_text
from ....roles.layout import RoleSpec

PlacementRule = str | Mapping[str, str] | None
POLICIES = ("spread", "pack")
ALLOWED = (
    'place="spread", place="pack", or places by role or kind, as place={"server-0": "10.0.0.2", "worker": "10.0.0.3"}'
)


def host_of(address: str) -> str:
    """Return the host of a Dask worker's address: `10.0.0.2` of `tcp://10.0.0.2:34567`, and of `inproc://10.0.0.2/77/3`."""
    scheme, _, plain = address.rpartition("://")
    if scheme == "inproc":  # a thread of a process: host, process, number
        return plain.partition("/")[0]
    return plain.rpartition(":")[0].strip("[]") if ":" in plain else plain


def check_rule(rule: Any) -> PlacementRule:
    """Return the rule itself. Raises `BadInput` if it is not valid."""
    if rule is None or (isinstance(rule, str) and rule in POLICIES):
        return rule
    if isinstance(rule, str):
        raise nearest("place", rule, POLICIES)
    if isinstance(rule, Mapping) and all(isinstance(one, str) and one for pair in rule.items() for one in pair):
        return dict(rule)
    raise BadInput(f"place={shown(rule)} is not allowed; give {ALLOWED}.")


def nodes_text(roles: Iterable[RoleSpec]) -> str:
    """Return what the nodes of these roles are, by the first role on each: "8 workers + 2 servers + 1 chief"."""
    first: dict[str, str] = {}
    for role in roles:
        first.setdefault(role.node, role.kind)
    kinds = Counter(first.values())
    return " + ".join(count_text(number, kind) for kind, number in sorted(kinds.items(), key=lambda item: -item[1]))


def place(
    nodes: Sequence[str], roles: Sequence[RoleSpec], addresses: Sequence[str], usage: Mapping[str, int], rule: PlacementRule
) -> dict[str, str]:  # fmt: skip
    """Place all nodes. Returns {node: address}, in the order of the nodes.

    `addresses`: the available Dask workers; among equally used Dask workers the first is chosen. `usage`: number of
    roles on each Dask worker.

    Raises `BadInput` if there are too few Dask workers, or the rule names unknown roles or places. The text of the
    error lists the available places.
    """
    if len(addresses) < len(nodes):
        raise BadInput(f"This run has {len(nodes)} nodes (one Dask worker each) and there are {len(addresses)}.")
    roles_of = _roles_of(roles)
    requested = _requested_places(nodes, roles_of, addresses, rule)
    placed: dict[str, str] = {}
    for node in sorted(nodes, key=lambda node: _rank(node, roles_of[node], requested.get(node), rule)):
        free = [address for address in addresses if address not in placed.values()]
        if node in requested:
            free = [address for address in free if requested[node] in (address, host_of(address))]
            if not free:
                raise _too_few_workers(node, requested, addresses)
        placed[node] = _best_address(node, roles_of, free, placed, usage, rule)
    return {node: placed[node] for node in nodes}


def next_worker(
    node: str, roles: Sequence[RoleSpec], free: Collection[str], placed: Mapping[str, str], usage: Mapping[str, int],
    rule: PlacementRule,
) -> str | None:  # fmt: skip
    """Return the new address of a node whose process was lost, or None if no Dask worker is `free`.

    `placed`: {node: address} of the run's other nodes. The rule is followed if possible; if the host that it names is
    gone, the node is placed elsewhere.
    """
    there = sorted(free)
    if not there:
        return None
    roles_of = _roles_of(roles)
    requested = _requested_place(roles_of[node], rule)
    kept = [address for address in there if {address, host_of(address)} & {requested, host_of(requested or "")}]
    return _best_address(node, roles_of, kept or there, placed, usage, rule)


def check_checkpoint_location(where: Any, hosts: Collection[str]) -> None:
    """Raise `BadInput` if roles on several `hosts` would save their checkpoints in a folder of one of them.

    `where`: the `checkpoint` of `train`. None or a path means a folder of this machine; False disables checkpoints; a
    URL (with `://`) is assumed to be reachable from all hosts.
    """
    count = len(set(hosts))
    if where is False or count < 2 or "://" in str(where):
        return
    given = "" if where is None or where is True else f", and {shown(str(where))} is a folder of one machine"
    raise BadInput(
        f"Roles run on {count} hosts{given}: a checkpoint folder must be reachable from all of them; give "
        "checkpoint='s3://bucket/run' or 'file:///shared/run', or checkpoint=False."
    )


def _roles_of(roles: Sequence[RoleSpec]) -> dict[str, list[RoleSpec]]:
    roles_of: dict[str, list[RoleSpec]] = defaultdict(list)
    for role in roles:
        roles_of[role.node].append(role)
    return roles_of


def _requested_place(roles: Sequence[RoleSpec], rule: PlacementRule) -> str | None:
    """Return the requested place of the node with these roles, or None. Raises `BadInput` if two places are requested."""
    if not isinstance(rule, Mapping):
        return None
    found = {role.name: rule.get(role.name, rule.get(role.kind)) for role in roles}
    named = {name: where for name, where in found.items() if where is not None}
    if len(set(named.values())) > 1:
        both = ", ".join(f"{name} on {where}" for name, where in named.items())
        raise BadInput(f"place: {both}; these roles share a node, so they have one place.")
    return next(iter(named.values()), None)


def _requested_places(
    nodes: Sequence[str], roles_of: Mapping[str, Sequence[RoleSpec]], addresses: Sequence[str], rule: PlacementRule
) -> dict[str, str]:  # fmt: skip
    """Return {node: host or address} of the nodes with a requested place.

    Raises `BadInput` if the rule names unknown roles or places.
    """
    if not isinstance(rule, Mapping):
        return {}
    names = {name for roles in roles_of.values() for role in roles for name in (role.name, role.kind)}
    for name, where in rule.items():
        if name not in names:
            raise nearest("role or kind of roles", name, names)
        if where not in addresses and where not in map(host_of, addresses):
            raise BadInput(
                f"place: {shown(name)} is to be on {shown(where)}, where no Dask worker is. {_available_hosts(addresses)}"
            )
    found = {node: _requested_place(roles_of[node], rule) for node in nodes}
    return {node: where for node, where in found.items() if where is not None}


def _rank(node: str, roles: Sequence[RoleSpec], requested: str | None, rule: PlacementRule) -> int:
    """Return the rank of a node. Nodes are placed by rank: nodes with an address, with a host, servers, backups, all others."""
    if requested is not None:
        return 0 if "://" in requested else 1
    kinds = {role.kind for role in roles} if rule == "spread" else set()
    return 2 if "server" in kinds else 3 if "backup" in kinds else 4


def _best_address(
    node: str, roles_of: Mapping[str, Sequence[RoleSpec]], free: Sequence[str], placed: Mapping[str, str],
    usage: Mapping[str, int], rule: PlacementRule,
) -> str:  # fmt: skip
    """Return the best of the free addresses, and the first of them if several are equal."""
    mine = Counter(host_of(address) for address in placed.values())
    room = Counter(host_of(address) for address in free)
    there = Counter((r.kind, host_of(address)) for other, address in placed.items() for r in roles_of[other])
    numbers = {(r.kind, r.index, host_of(address)) for other, address in placed.items() for r in roles_of[other]}
    serves = any(role.kind == "server" for role in roles_of[node])

    def key(address: str) -> tuple[int, ...]:
        host, used = host_of(address), usage.get(address, 0)
        if rule == "pack":
            return -mine[host], -room[host], used
        if rule == "spread":
            beside = any(("server", r.index, host) in numbers for r in roles_of[node] if r.kind == "backup")
            return int(beside), there["server", host] if serves else 0, mine[host], used
        return (used,)

    return min(free, key=key)


def _too_few_workers(node: str, requested: Mapping[str, str], addresses: Sequence[str]) -> BadInput:
    where = requested[node]
    many = sum(other == where for other in requested.values())
    return BadInput(
        f"place: {node} is to be on {where}, as {many} of this run's nodes are, and each needs a Dask worker of its own "
        f"there. {_available_hosts(addresses)}"
    )


def _available_hosts(addresses: Sequence[str]) -> str:
    hosts = Counter(host_of(address) for address in addresses)
    return f"There are Dask workers on {', '.join(f'{host} ({count})' for host, count in hosts.items())}."
