"""Runs whose workers come and go: which of them are there at the start, and how the data are dealt to those who are.

A layout is made for the most workers that there may be; those beyond the first are away until they join. At each epoch a
worker is dealt its part of all samples by who takes part then, so nobody's samples are left out for longer than an
epoch. (Where all share the data there is nothing to deal.)
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

__all__ = ["Elastic", "check_elastic", "elastic_of"]


@dataclass(frozen=True)
class Elastic:
    """`absent`: roles that are not there at the start. `partition` deals the samples, by their labels if `labelled`."""

    absent: tuple[str, ...]
    partition: Any
    labelled: bool
    seed: int

    def dealer(self, name: str, y: np.ndarray, present: Callable[[], Sequence[str]]) -> Callable[[], np.ndarray] | None:
        """What gives worker `name` its samples of the next epoch: int64 indices. y: (n,) or (n, k), of all samples."""
        if self.partition.shares_all:
            return None

        def deal() -> np.ndarray:
            members = present()
            place = members.index(name) if name in members else 0
            dealt: list[np.ndarray] = self.partition.split(y if self.labelled else len(y), len(members) or 1, self.seed)
            return dealt[place]

        return deal


def elastic_of(strategy: Any, problem: Any, cluster: ClusterSpec, layout: Layout, seed: int) -> Elastic | None:
    """None if the workers stay; `BadInput` if they may not change with this strategy or these data."""
    if cluster.max_workers is None:
        return None
    if cluster.max_workers < cluster.workers:
        raise BadInput(f"max_workers={cluster.max_workers} with workers={cluster.workers}: it is at least as many.")
    if restarts_as_group(layout) and not whole_replicas(layout):
        raise BadInput(
            f"max_workers={cluster.max_workers}: {strategy.name} cuts the model to a fixed number of workers; strategies with "
            "servers, RingAllReduce, HalvingDoubling, LocalSGD and DPSGD can change theirs."
        )
    lazy = not problem.timing_only and hasattr(problem.dataset, "shares")
    if lazy and not problem.partition.shares_all:
        raise BadInput(
            f"max_workers={cluster.max_workers}: Dask arrays cannot be dealt again during a run; partition='shared' can."
        )
    absent = tuple(f"worker-{i}" for i in range(cluster.workers, cluster.max_workers))
    labelled = not problem.timing_only and problem.dataset.classes is not None
    return Elastic(absent, problem.partition, labelled, seed)


def check_elastic(command: Any, plan: Any) -> None:
    """`BadInput` unless the role of a `Join` or `Leave` is a worker that may come and go."""
    kinds = {role.name: role.kind for role in plan.layout.roles}
    if plan.elastic is None or kinds[command.role] != "worker":
        raise BadInput(
            f"{command.word}({shown(command.role)}): only workers of a cluster with max_workers can come and go."
        )
