"""The simulated cluster: distributions of durations in place of machines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ...errors import BadInput, shown
from ...options import options_of, same_option
from ..base import Cluster, VirtualTimeEngine
from ..cluster_spec import GRADIENT, ClusterSpec
from ..commands import Command, Executed
from ..plan import Plan
from ..storage.store import Store

__all__ = ["SimulatedCluster"]


@dataclass(frozen=True)
class SimulatedCluster(Cluster):
    """A simulated cluster: runs a strategy in virtual time. Runs are exactly repeatable. Up to 100,000 workers are allowed;
    runs with 10,000 workers have been measured.

    - `compute`: distribution of the time of one gradient. `server_time`: distribution of the time of one operation of a server
      (None: no time). `slow`: {role: factor}.
    - `latency` (s) and `bandwidth` (bytes/s) of every node. `cores`: the cores of every node; roles on one node queue for them.
    - `servers`: None: as many as the strategy needs. `record=False`: only counters are recorded. `spec`: all these values.
    - `evaluation_time`: seconds for which an evaluation keeps the chief busy. As on a cluster of processes, the chief then
      waits nineteen times as long while training continues, so a run may end that much later than its budget's seconds. With
      `Strategy(chief_works=True)` worker 0 queues for the cores of the same node.
    - `replicas=1`: every server has a backup on a separate node, which stores each update before the update is acknowledged.
    - `max_workers`: the maximum number of workers. Workers that are not present at the start can join (`run.scale(workers=6)`).
    - `patience`: a role that is silent for this time (s) is declared lost. `restart_after`: a lost role is restarted after this
      time (s; None: not automatically).
    - `checkpoint_every`: seconds between two checkpoints of a shard (None: every second, but for at most 5% of its time).
      `checkpoint_time`: seconds that saving takes.
    """

    workers: int = same_option(ClusterSpec, "workers")
    servers: int | None = same_option(ClusterSpec, "servers")
    compute: Any = same_option(ClusterSpec, "compute", default=GRADIENT)
    server_time: Any = same_option(ClusterSpec, "server_time")
    latency: float = same_option(ClusterSpec, "latency")
    bandwidth: float = same_option(ClusterSpec, "bandwidth")
    slow: dict[str, float] = same_option(ClusterSpec, "slow")
    cores: int = same_option(ClusterSpec, "cores")
    record: bool = same_option(ClusterSpec, "record")
    replicas: int = same_option(ClusterSpec, "replicas")
    max_workers: int | None = same_option(ClusterSpec, "max_workers")
    patience: float = same_option(ClusterSpec, "patience")
    restart_after: float | None = same_option(ClusterSpec, "restart_after")
    checkpoint_every: float | None = same_option(ClusterSpec, "checkpoint_every")
    checkpoint_time: float = same_option(ClusterSpec, "checkpoint_time")
    evaluation_time: float = same_option(ClusterSpec, "evaluation_time")
    spec: ClusterSpec = field(init=False, repr=False, compare=False)

    engine = "simulated"
    virtual_time = True

    def __post_init__(self) -> None:
        spec = ClusterSpec("simulated", **{name: getattr(self, name) for name in options_of(self)})
        if spec.compute is None:  # also where it was given as text, "" or "none"
            raise BadInput(
                f"compute={shown(self.compute)}: virtual time needs a distribution for gradients, as lk.Deterministic(0.01)."
            )
        for name in options_of(self):
            object.__setattr__(self, name, getattr(spec, name))
        object.__setattr__(self, "spec", spec)

    @classmethod
    def of(cls, spec: ClusterSpec) -> SimulatedCluster:
        """Return the cluster with the values of `spec`, which may be for another engine; options of other engines are
        ignored.
        """
        return cls(**{name: getattr(spec, name) for name in options_of(cls)} | {"compute": spec.compute or GRADIENT})

    def with_spec(self, spec: ClusterSpec) -> SimulatedCluster:
        """Return a cluster with the options of `spec`. Equivalent to `of`, because there are no processes to share."""
        return SimulatedCluster.of(spec)

    def start(
        self, plan: Plan, commands: Iterable[Command | Executed] = (), checkpoint: object = None, resume: Store | None = None
    ) -> VirtualTimeEngine:  # fmt: skip
        """Start a run, which is at time zero. `resume` is not used, because the log of an earlier run is repeated."""
        from .run import SimulatedRun

        return SimulatedRun(plan, self, commands, checkpoint)

    def close(self) -> None:
        """Does nothing: there are no processes."""
