"""The layout of a run: its roles, their nodes, and their parts of the model and of the data.

A layout is a value that is computed from a problem and the shape of a cluster before the run starts. Engines execute it, and
views draw it. If the shape of the cluster is not possible, an error is raised when the layout is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from ..nn.index_sets import Box, Boxes
from ..trace.header import RecordedLayout, RecordedRole, Replication
from .messages import Snapshot

Snapshots = tuple[Snapshot, ...]


class ClusterShape(Protocol):
    """The properties of a cluster on which a layout may depend.

    - `workers`, `servers`: their numbers; `servers` is None if the number is not given.
    - `record`: whether events are recorded. `paced`: whether the time of a gradient is drawn from a distribution.
    """

    @property
    def workers(self) -> int: ...

    @property
    def servers(self) -> int | None: ...

    @property
    def record(self) -> bool: ...

    @property
    def paced(self) -> bool: ...


@dataclass(frozen=True)
class RoleSpec:
    """One role of a layout.

    Parameters
    ----------
    name : str
        The name of the role, as "worker-0".
    kind : str
        The name of the strategy's method that implements the role.
    index : int
        The number of the role within its kind.
    node : str
        The node. Roles with the same node share a process (and its cores).
    computes : bool, default: False
        Whether the role has a model.
    shard : int, optional
        The number of the role's shard.
    part : slice or Boxes, optional
        The part of the parameters that the shard owns.
    data : int, optional
        The number of the role's share of the data. Roles with the same number draw the same batches.
    model : callable, optional
        Makes the model, by the call `model(objective=, recorder=, clock=, strategy=)`. It is picklable. None: a `Model` of the
        whole network.
    store : callable, optional
        Makes the shard, by the call `store(spec=, plan=, objective=, recorder=, clock=, watcher=, strategy=)`. It is picklable.
        None: a `Shard`.
    backs : int, optional
        For a backup, the index (in the layout) of the role whose shard it replicates.

    See Also
    --------
    Layout : All roles of a run.

    Examples
    --------
    >>> lk.RoleSpec("chief", kind="chief", index=0, node="chief").computes
    False
    """

    name: str
    kind: str
    index: int
    node: str
    computes: bool = False
    shard: int | None = None
    part: slice | Boxes | None = None
    data: int | None = None
    model: Callable[..., Any] | None = None
    store: Callable[..., Any] | None = None
    backs: int | None = None


@dataclass(frozen=True)
class Layout:
    """All roles of a run, with their nodes, their parts of the model and their shares of the data.

    Parameters
    ----------
    roles : tuple of RoleSpec
        The roles, in the order of their numbers in the trace.
    observed : tuple of str
        The roles whose shards make up the model that the chief evaluates.
    parts : tuple of slice
        For each shard, the slice that workers push to it.
    replication : {'', 'synchronized', 'local'}, default: ''
        How the shards are related. "": parts of one model, to which workers push their gradients. "synchronized": all shards step
        together, and each records one gradient of all workers per step (replicas of a model, or the parts of a model whose
        workers own the weights). "local": replicas that step independently and are averaged from time to time.
    groups : mapping of str to tuple of str, default: {}
        Named sets of roles (stages, replicas).
    assemble : callable, optional
        Computes the model to evaluate from the snapshots of the observed shards, which are in the order of the shards. None: each
        snapshot is inserted at its part.
    positions : bool, default: False
        Whether workers push weights, not gradients. These contain every gradient that was applied to them. A shard that contains
        a worker's gradient of some step therefore also contains all earlier gradients of this worker, even if it had dropped one.

    See Also
    --------
    Strategy.layout : Returns the layout for a problem and a cluster.

    Examples
    --------
    >>> problem, cluster = lk.Problem("moons"), lk.SimulatedCluster(workers=2, servers=2)
    >>> layout = lk.AsyncPS().layout(problem, cluster.spec)
    >>> [role.name for role in layout.roles]
    ['server-0', 'server-1', 'worker-0', 'worker-1', 'chief']
    >>> layout.parts
    (slice(0, 321, None), slice(321, 642, None))
    """

    roles: tuple[RoleSpec, ...]
    observed: tuple[str, ...]
    parts: tuple[slice, ...]
    replication: Replication = ""
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    assemble: Callable[[Snapshots], Any] | None = None
    positions: bool = False

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes, in order of first use."""
        return tuple(dict.fromkeys(role.node for role in self.roles))

    def backup_of(self, role: str) -> str | None:
        """Return the backup of a role.

        Parameters
        ----------
        role : str
            The name of the role.

        Returns
        -------
        str or None
            The name of its backup; None if it has none.
        """
        return self._backups.get(role)

    @cached_property
    def _backups(self) -> dict[str, str]:
        """{role: its backup}, cached because it is used by every role."""
        return {self.roles[spec.backs].name: spec.name for spec in self.roles if spec.backs is not None}

    def roles_on_node(self, role: str) -> set[str]:
        """Return the names of all roles on the node of a role. They share a process.

        Parameters
        ----------
        role : str
            The name of the role.

        Returns
        -------
        set of str
            The names, including `role`.
        """
        nodes = {spec.name: spec.node for spec in self.roles}
        return {name for name, node in nodes.items() if node == nodes[role]}

    @cached_property
    def shares(self) -> int:
        """The number of shares into which the data is divided."""
        return len({role.data for role in self.roles if role.data is not None})

    @property
    def replicated(self) -> bool:
        """Whether a gradient counts as applied only when every shard has applied it."""
        return bool(self.replication)

    def assemble_model(self, snapshots: Snapshots) -> Any:
        """Return the model assembled from the snapshots of the observed shards.

        Parameters
        ----------
        snapshots : tuple of Snapshot
            The snapshots, in the order of the shards.

        Returns
        -------
        ndarray or SparseParameters
            The parameters of the model.
        """
        if self.assemble is not None:
            return self.assemble(snapshots)
        if len(snapshots) == 1 or snapshots[0].values.strides == (0,):
            return snapshots[0].values  # the whole model, or any array of a timing-only run
        parts = {role.shard: role.part for role in self.roles if role.shard is not None}
        whole = np.empty(sum(len(s.values) for s in snapshots), snapshots[0].values.dtype)
        for snapshot in snapshots:
            part = parts[snapshot.shard]
            assert part is not None
            Boxes.of(part).put(whole, snapshot.values)
        return whole

    def peers(self) -> dict[str, tuple[str, ...]]:
        """Return the names of all roles, by kind and by group.

        Returns
        -------
        dict of str to tuple of str
            The names, in order.
        """
        kinds: dict[str, list[str]] = {}
        for role in self.roles:
            kinds.setdefault(role.kind, []).append(role.name)
        return {kind: tuple(names) for kind, names in kinds.items()} | dict(self.groups)

    def recorded(self) -> RecordedLayout:
        """Return the layout as it is in the header of a trace.

        Returns
        -------
        RecordedLayout
            The roles, their relations and their groups.
        """
        roles = (
            RecordedRole(name=r.name, kind=r.kind, node=r.node, shard=r.shard, part=_recorded_part(r.part), data=r.data)
            for r in self.roles
        )
        return RecordedLayout(
            roles=tuple(roles), observed=self.observed, replication=self.replication, positions=self.positions,
            groups=self.groups,
        )  # fmt: skip


def _recorded_part(part: slice | Boxes | None) -> tuple[int, int] | tuple[Box, ...] | None:
    if isinstance(part, slice):
        return int(part.start), int(part.stop)
    return None if part is None else part.boxes


def mean_of_replicas(snapshots: Snapshots) -> np.ndarray:
    """Return the mean of the parameters of local replicas, which is the evaluated model."""
    total = snapshots[0].values.copy()
    for snapshot in snapshots[1:]:
        total += snapshot.values
    return np.divide(total, len(snapshots), out=total)


def shard_slices(size: int, shards: int) -> tuple[slice, ...]:
    """Divide `size` parameters into `shards` contiguous slices whose lengths differ by at most one."""
    edges = [size * i // shards for i in range(shards + 1)]
    return tuple(slice(a, b) for a, b in zip(edges, edges[1:]))
