"""The hosts of a cluster, and views of the cluster on which worker and server are on one host or on two."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...engines.base import Cluster
from ...engines.dask import DaskCluster
from ...engines.machine_limits import MAX_PROCESSES, free_memory, process_capacity, usable_cpus


@dataclass(frozen=True)
class Hosts:
    """The hosts of a cluster.

    `cores`: the cores of each host. `count`: their number. `names`: the host on which worker and server are measured, and one to
    which messages are measured; empty if probes are placed as usual. `nodes`: how many roles can be placed on the first of them;
    None: any number. `speeds`: the speed of each host relative to the measured one. `pinned`: whether roles that compute are
    pinned to cores. `doubts`: what is not as the simulation assumes, or cannot be measured.
    """

    cores: int
    count: int = 1
    names: tuple[str, ...] = ()
    nodes: int | None = None
    speeds: tuple[float, ...] = (1.0,)
    pinned: bool = True
    doubts: tuple[str, ...] = ()

    @classmethod
    def of(cls, cluster: Cluster) -> Hosts:
        """Return the hosts of a cluster. Starts it, or connects to it, and measures the speeds of several hosts.

        Raises `ClusterError` if the cluster cannot be started or reached.
        """
        costs = cluster.spec.costs
        if costs is not None:
            return cls(
                costs.cores, costs.hosts, speeds=tuple(s / costs.speeds[0] for s in costs.speeds), pinned=costs.pinned
            )
        if not isinstance(cluster, DaskCluster):
            return cls(max(1, int(usable_cpus())))
        if cluster.starts_processes:
            room = cluster.progress().up + process_capacity(free_memory())
            return cls(max(1, int(usable_cpus())), nodes=min(room, MAX_PROCESSES))
        cluster.open(2)
        rows = cluster.resources(speeds=True).rows
        workers = Counter(row.host for row in rows)
        cores: Mapping[str, float] = {row.host: row.cores or row.threads for row in rows}
        speeds = {host: statistics.median(row.speed or 0.0 for row in rows if row.host == host) for host in workers}
        # most Dask workers first: two are needed on the measured host
        order = [host for host, _ in workers.most_common()]
        doubts = []
        if len(set(cores.values())) > 1:
            doubts.append(
                f"the hosts have different numbers of cores, {min(cores.values()):g} to {max(cores.values()):g}"
            )
        if workers[order[0]] < 2:
            doubts.append("each host has one Dask worker, so messages within a host were not measured")
        base = speeds[order[0]]
        relative = tuple(round(speeds[host] / base, 3) if base else 1.0 for host in order)
        least, names = max(1, int(min(cores.values()))), tuple(order[:2])
        return cls(least, len(order), names, workers[order[0]], relative, False, tuple(doubts))

    def within(self, cluster: Cluster) -> Cluster:
        """Return a view of the cluster on which worker and server are on the same host."""
        costs = cluster.spec.costs
        if costs is not None:
            return cluster.with_spec(replace(cluster.spec, costs=replace(costs, hosts=1)))
        if not self.names:
            return cluster
        if self.nodes is not None and self.nodes < 2:
            return cluster
        return _placed(cluster, {"worker": self.names[0], "server": self.names[0]})

    def fits(self, workers: int) -> bool:
        """Return whether a server, the chief and this many workers can be placed on one host."""
        return self.nodes is None or self.nodes >= workers + 2

    def between(self, cluster: Cluster) -> Cluster | None:
        """Return a view of the cluster on which worker and server are on two hosts; None if there is only one host."""
        if self.count < 2:
            return None
        if cluster.spec.costs is not None:
            return cluster
        return _placed(cluster, {"server": self.names[0], "worker": self.names[1]})


def _placed(cluster: Cluster, place: dict[str, str]) -> Cluster:
    return cluster.with_spec(replace(cluster.spec, place=place))
