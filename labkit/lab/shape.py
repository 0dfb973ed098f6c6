"""The shape of a cluster: how many, how fast, and how they recover; for virtual time and for processes alike."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

from ..engines.dask import DaskCluster
from ..engines.laws import Deterministic, Law
from ..engines.simulated import SimulatedCluster
from ..errors import BadInput
from ..knobs import knob

__all__ = ["ENGINES", "Shape"]

ENGINES = ("simulated", "dask")


@dataclass(frozen=True)
class Shape:
    """A cluster on paper: which engine, how many, how fast. `compute=None` is full speed, on Dask only."""

    engine: str = knob("simulated", choices=ENGINES, help="virtual time: exact; dask: real processes")
    workers: int = knob(4, low=1, high=100_000, help="who computes gradients")
    servers: int | None = knob(None, low=0, high=100_000, help="how many servers own the parameters")
    compute: Law | None = Deterministic(0.1)
    server_time: Law | None = None
    latency: float = knob(0.0, low=0.0, high=1e3, help="seconds from one node to another")
    bandwidth: float = knob(math.inf, low=1.0, high=math.inf, help="bytes a second of every node")
    slow: dict[str, float] = field(default_factory=dict)
    cores: int = knob(1, low=1, high=1024)
    replicas: int = knob(0, low=0, high=1, help="backups of every server: with one, a server that dies costs nothing")
    max_workers: int | None = knob(None, low=1, high=100_000)
    patience: float = knob(5.0, low=0.001, high=3600.0, help="seconds of silence until a role counts as lost")
    restart_after: float | None = knob(0.8, low=0.0, high=1e9)
    checkpoint_every: float | None = knob(
        None, low=1e-3, high=86_400.0, help="seconds between two checkpoints of a shard; auto: every second, at most 5%"
    )
    checkpoint_time: float = knob(0.0, low=0.0, high=1e6)
    evaluation_time: float = knob(0.0, low=0.0, high=1e6)

    @classmethod
    def of(cls, cluster: Any) -> Shape:
        """The shape of a cluster that somebody made."""
        names = {f.name for f in fields(cls)}
        found = {name: getattr(cluster, name) for name in names if hasattr(cluster, name)}
        if isinstance(cluster, DaskCluster):
            found["compute"] = cluster.pace
        return cls(**found)

    def cluster(self, dask: DaskCluster | None) -> Any:
        """A cluster of this shape; for the engine "dask" a view on the processes of `dask`."""
        if self.engine == "dask":
            if dask is None:
                raise BadInput("There is no cluster of processes: the engine dask needs one.")
            return dask.resized(
                workers=self.workers, servers=self.servers, pace=self.compute, server_time=self.server_time,
                slow=self.slow, replicas=self.replicas, max_workers=self.max_workers, patience=self.patience,
                checkpoint_every=self.checkpoint_every,
            )  # fmt: skip
        return SimulatedCluster(
            self.workers, self.servers, self.compute or Deterministic(0.1), self.server_time, self.latency,
            self.bandwidth, self.slow, self.cores, replicas=self.replicas, max_workers=self.max_workers,
            patience=self.patience, restart_after=self.restart_after, checkpoint_every=self.checkpoint_every,
            checkpoint_time=self.checkpoint_time, evaluation_time=self.evaluation_time,
        )  # fmt: skip
