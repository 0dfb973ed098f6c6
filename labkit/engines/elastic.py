"""Elastic membership: which workers are present at the start of a run, and how data are partitioned as workers join and leave.

The layout has `max_workers` workers. At the start, `workers` of them are present; the other workers are absent until they join.
At each epoch, a worker takes its part of all samples according to the current membership, so that no sample is unused for
longer than an epoch. (If all workers share the data, they are not partitioned.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import BadInput, shown
from ..roles.group_restart import restarts_as_group, whole_replicas
from ..roles.layout import Layout
from .cluster_spec import ClusterSpec


@dataclass(frozen=True)
class Elastic:
    """The membership of an elastic run. `absent`: the roles that are not present at the start. `partition` splits the samples,
    by their labels if `labelled`.
    """

    absent: tuple[str, ...]
    partition: Any
    labelled: bool
    seed: int

    def epoch_sampler(
        self, name: str, y: np.ndarray, present: Callable[[], Sequence[str]]
    ) -> Callable[[], np.ndarray] | None:
        """Return a function that returns the samples of worker `name` for the next epoch, as int64 indices; None if all are
        shared.

        y: (n,) or (n, k), of all samples. `present()`: the workers that take part now.
        """
        if self.partition.shares_all:
            return None

        def next_epoch() -> np.ndarray:
            members = present()
            place = members.index(name) if name in members else 0
            parts: list[np.ndarray] = self.partition.split(y if self.labelled else len(y), len(members) or 1, self.seed)
            return parts[place]

        return next_epoch


def elastic_of(strategy: Any, problem: Any, cluster: ClusterSpec, layout: Layout, seed: int) -> Elastic | None:
    """Return the elastic part of a plan; None without `max_workers`. Raises `BadInput` if strategy or data do not allow elastic
    workers.
    """
    if cluster.max_workers is None:
        return None
    if cluster.max_workers < cluster.workers:
        raise BadInput(f"max_workers={cluster.max_workers} with workers={cluster.workers}: it is at least as many.")
    if problem.partition.divides_batch:
        raise BadInput(
            f"max_workers={cluster.max_workers} with partition='global-batch': a batch is divided among a fixed number of "
            "workers; leave max_workers out, or use another partition."
        )
    if restarts_as_group(layout) and not whole_replicas(layout):
        raise BadInput(
            f"max_workers={cluster.max_workers}: {strategy.name} cuts the model to a fixed number of workers; strategies with "
            "servers, RingAllReduce, HalvingDoubling, BucketedAllReduce, LocalSGD, DPSGD and ADPSGD can change theirs."
        )
    lazy = not problem.timing_only and hasattr(problem.dataset, "shares")
    if lazy and not problem.partition.shares_all:
        raise BadInput(
            f"max_workers={cluster.max_workers}: Dask arrays cannot be partitioned again during a run; partition='shared' can."
        )
    late = [f"worker-{i}" for i in range(cluster.workers, cluster.max_workers)]
    absent = tuple(name for worker in late for name in moving_roles(layout, worker))
    labelled = not problem.timing_only and problem.dataset.classes is not None
    return Elastic(absent, problem.partition, labelled, seed)


def moving_roles(layout: Layout, worker: str) -> tuple[str, ...]:
    """Return the roles that join and leave together: `worker`, and the replica on its node if that is a separate role."""
    node = layout.roles_on_node(worker)
    owners = [
        role.name for role in layout.roles if role.name in node and role.shard is not None and role.name != worker
    ]
    return (worker, *(owners if whole_replicas(layout) else ()))


def check_elastic(command: Any, plan: Any) -> None:
    """Raise `BadInput` unless the role of a `Join` or `Leave` is a worker of an elastic run."""
    kinds = {role.name: role.kind for role in plan.layout.roles}
    if plan.elastic is None or kinds[command.role] != "worker":
        raise BadInput(
            f"{command.word}({shown(command.role)}): only workers of a cluster with max_workers can join and leave."
        )
