"""A cluster that exists on paper: distributions of time instead of machines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ...errors import BadInput, shown
from ...knobs import knobs_of, same_knob
from ..base import Cluster, VirtualTimeEngine
from ..cluster_spec import GRADIENT, ClusterSpec
from ..commands import Command, Executed
from ..plan import Plan
from ..storage.store import Store

__all__ = ["SimulatedCluster"]


@dataclass(frozen=True)
class SimulatedCluster(Cluster):
    """Runs a strategy in virtual time: exact and repeatable. 100,000 workers are allowed, 10,000 are measured.

    `compute`: distribution of the time of one gradient. `server_time`: of one piece of server work (None: none). `latency` in
    seconds, `bandwidth` in bytes a second, of every node. `slow`: {role: factor}. `servers=None`: what the strategy
    needs. `cores`: of every node; roles on one node queue for them. `record=False`: counters only. `spec`: these values.

    `evaluation_time`: seconds for which an evaluation keeps the chief busy. As on a cluster of processes, the chief then rests
    nineteen times as long, training goes on meanwhile, and a run may end that much later than its budget's seconds. With
    `Strategy(chief_works=True)` worker 0 queues for the cores of the same node.

    `replicas=1`: every server has a backup, on a node of its own, that holds each application before it is answered.

    `max_workers`: so many may be there at a time; who is not there at the start can join (`run.scale(workers=6)`).

    Faults: a role that is silent for `patience` seconds is given up; one that is lost comes back `restart_after` seconds
    later (None: never by itself). Shards are saved every `checkpoint_every` seconds (None: every second, but at most 5% of
    their time), which takes `checkpoint_time`.
    """

    workers: int = same_knob(ClusterSpec, "workers")
    servers: int | None = same_knob(ClusterSpec, "servers")
    compute: Any = same_knob(ClusterSpec, "compute", default=GRADIENT)
    server_time: Any = same_knob(ClusterSpec, "server_time")
    latency: float = same_knob(ClusterSpec, "latency")
    bandwidth: float = same_knob(ClusterSpec, "bandwidth")
    slow: dict[str, float] = same_knob(ClusterSpec, "slow")
    cores: int = same_knob(ClusterSpec, "cores")
    record: bool = same_knob(ClusterSpec, "record")
    replicas: int = same_knob(ClusterSpec, "replicas")
    max_workers: int | None = same_knob(ClusterSpec, "max_workers")
    patience: float = same_knob(ClusterSpec, "patience")
    restart_after: float | None = same_knob(ClusterSpec, "restart_after")
    checkpoint_every: float | None = same_knob(ClusterSpec, "checkpoint_every")
    checkpoint_time: float = same_knob(ClusterSpec, "checkpoint_time")
    evaluation_time: float = same_knob(ClusterSpec, "evaluation_time")
    spec: ClusterSpec = field(init=False, repr=False, compare=False)

    engine = "simulated"
    virtual_time = True

    def __post_init__(self) -> None:
        spec = ClusterSpec("simulated", **{name: getattr(self, name) for name in knobs_of(self)})
        if spec.compute is None:  # also where it was given as text, "" or "none"
            raise BadInput(
                f"compute={shown(self.compute)}: virtual time needs a distribution for gradients, as lk.Deterministic(0.01)."
            )
        for name in knobs_of(self):
            object.__setattr__(self, name, getattr(spec, name))
        object.__setattr__(self, "spec", spec)

    @classmethod
    def of(cls, spec: ClusterSpec) -> SimulatedCluster:
        """The cluster with the values of `spec`, of whichever engine it is; what virtual time has no use for is left out."""
        return cls(**{name: getattr(spec, name) for name in knobs_of(cls)} | {"compute": spec.compute or GRADIENT})

    def with_spec(self, spec: ClusterSpec) -> SimulatedCluster:
        """A cluster with other values: the same as `of`, because there are no processes to share."""
        return SimulatedCluster.of(spec)

    def start(
        self, plan: Plan, commands: Iterable[Command | Executed] = (), checkpoint: object = None, resume: Store | None = None
    ) -> VirtualTimeEngine:  # fmt: skip
        """A run of `plan`, at time zero. `resume`: not used, because the log of an earlier run is repeated instead."""
        from .run import SimulatedRun

        return SimulatedRun(plan, self, commands, checkpoint)

    def close(self) -> None:
        """Nothing to close: there are no processes."""
