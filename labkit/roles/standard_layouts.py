"""The standard layouts: parameter servers with workers, and workers with replicas of the model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import BadInput
from ..problem import Problem
from ..trace.header import Replication
from .compressor import check_codec
from .layout import ClusterShape, Layout, RoleSpec, mean_of_replicas, shard_slices
from .replica import Replica

if TYPE_CHECKING:
    from ..strategies import Strategy


def server_layout(strategy: Strategy, problem: Problem, cluster: ClusterShape, store: Any = None) -> Layout:
    """Return a layout of parameter servers, workers, and a chief, with one node per role and shards of equal size.

    `store`: the factory of a server's shard, if it is not a `Shard`.
    """
    servers = 1 if cluster.servers is None else cluster.servers
    size = problem.objective().size
    if servers < 1:
        raise BadInput(
            f"{strategy.name} keeps its parameters on servers and was given servers={servers}; it needs at least 1."
        )
    if servers > size:
        raise BadInput(f"servers={servers}: the model has {size} parameters, so at most {size} servers.")
    check_codec(strategy, servers)
    parts = shard_slices(size, servers)
    workers, chief = worker_specs(strategy, cluster.workers), RoleSpec("chief", "chief", 0, "chief")
    owners = [
        RoleSpec(f"server-{i}", "server", i, f"server-{i}", shard=i, part=parts[i], store=store) for i in range(servers)
    ]
    return Layout((*owners, *workers, chief), tuple(r.name for r in owners), parts)


def worker_specs(strategy: Strategy, workers: int, **more: Any) -> list[RoleSpec]:
    """Return the roles of workers that compute, each with a share of the data. Worker 0 is on the chief's node if the
    strategy's option `chief_works` is set.
    """
    nodes = ["chief" if strategy.chief_works and i == 0 else f"worker-{i}" for i in range(workers)]
    return [RoleSpec(f"worker-{i}", "worker", i, nodes[i], computes=True, data=i, **more) for i in range(workers)]


def replica_layout(
    strategy: Strategy, problem: Problem, cluster: ClusterShape, replication: Replication = "synchronized"
) -> Layout:
    """Return a layout without servers, in which every worker holds a replica of the whole model.

    `replication`: "synchronized" if all replicas take the same steps, and the chief evaluates the first replica; "local" if
    each replica steps independently, and the chief evaluates their mean.
    """
    refuse_servers(strategy, cluster)
    whole, local = slice(0, problem.objective().size), replication == "local"
    workers, store = worker_specs(strategy, cluster.workers), Replica.make if local else None
    replicas = [replace(w, shard=w.index, part=whole, store=store) for w in workers]
    observed = tuple(w.name for w in replicas) if local else ("worker-0",)
    return Layout(
        (*replicas, RoleSpec("chief", "chief", 0, "chief")), observed, (whole,), replication=replication,
        assemble=mean_of_replicas if local else None,
    )  # fmt: skip


def refuse_servers(strategy: Strategy, cluster: ClusterShape) -> None:
    if cluster.servers:
        raise BadInput(
            f"{strategy.name} has no servers and was given servers={cluster.servers}; leave servers out, or 0."
        )
