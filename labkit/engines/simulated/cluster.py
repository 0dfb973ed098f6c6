"""A cluster that exists on paper: laws of time instead of machines."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import BadInput
from ...knobs import check_knobs, knob
from ..laws import Deterministic, Law, as_law
from ..parts import check_slow

__all__ = ["SimulatedCluster"]


@dataclass(frozen=True)
class SimulatedCluster:
    """Runs a strategy in virtual time: exact and repeatable. 100,000 workers are allowed, 10,000 are measured.

    `compute`: law of the time of one gradient. `server_time`: of one piece of server work (None: none). `latency` in
    seconds, `bandwidth` in bytes a second, of every node. `slow`: {role: factor}. `servers=None`: what the strategy
    needs. `cores`: of every node; roles on one node queue for them. `record=False`: counters only.

    `evaluation_time`: seconds for which an evaluation keeps the chief busy. As on a cluster of processes, the chief then rests
    nineteen times as long, training goes on meanwhile, and a run may end that much later than its budget's seconds. With
    `Strategy(chief_works=True)` worker 0 queues for the cores of the same node.

    `replicas=1`: every server has a backup, on a node of its own, that holds each application before it is answered.

    `max_workers`: so many may be there at a time; who is not there at the start can join (`run.scale(workers=6)`).

    Faults: a role that is silent for `patience` seconds is given up; one that is lost comes back `restart_after` seconds
    later (None: never by itself). Shards are saved every `checkpoint_every` seconds (None: every second, but at most 5% of
    their time), which takes `checkpoint_time`.
    """

    workers: int = knob(4, low=1, high=100_000)
    servers: int | None = knob(None, low=0, high=100_000)
    compute: Any = field(default=Deterministic(0.01))
    server_time: Any = None
    latency: float = knob(0.0, low=0.0, high=1e3)
    bandwidth: float = knob(math.inf, low=1.0, high=math.inf)
    slow: dict[str, float] = field(default_factory=dict)
    cores: int = knob(1, low=1, high=1024)
    record: bool = knob(True)
    replicas: int = knob(0, low=0, high=1)
    max_workers: int | None = knob(None, low=1, high=100_000)
    patience: float = knob(5.0, low=0.001, high=1e6)
    restart_after: float | None = knob(0.8, low=0.0, high=1e9)
    checkpoint_every: float | None = knob(None, low=1e-6, high=1e9)
    checkpoint_time: float = knob(0.0, low=0.0, high=1e6)
    evaluation_time: float = knob(0.0, low=0.0, high=1e6)

    engine = "simulated"
    paced = True

    def __post_init__(self) -> None:
        check_knobs(self)
        law = as_law("compute", self.compute)
        if law is None:
            raise BadInput("compute=None: virtual time needs a law for gradients, as lk.Deterministic(0.01).")
        object.__setattr__(self, "compute", law)
        object.__setattr__(self, "server_time", as_law("server_time", self.server_time))
        object.__setattr__(self, "slow", check_slow(self.slow))

    def describe(self) -> dict[str, Any]:
        """Plain values, for the header of a trace."""
        server: Law | None = self.server_time
        return {
            "engine": self.engine,
            "workers": self.workers,
            "servers": self.servers,
            "compute": self.compute.describe(),
            "server_time": server.describe() if server else None,
            "latency": self.latency,
            "bandwidth": None if math.isinf(self.bandwidth) else self.bandwidth,
            "slow": dict(self.slow),
            "cores": self.cores,
            "replicas": self.replicas,
            "max_workers": self.max_workers,
            "patience": self.patience,
            "restart_after": self.restart_after,
            "checkpoint_every": self.checkpoint_every,
            "checkpoint_time": self.checkpoint_time,
            "evaluation_time": self.evaluation_time,
        }

    def widened(self) -> SimulatedCluster:
        """With all workers that there may be."""
        return self if self.max_workers is None else replace(self, workers=self.max_workers, max_workers=None)

    def start(self, plan: Any, **options: Any) -> Any:
        """A run of `plan`, standing at time zero."""
        from .engine import SimulatedRun

        return SimulatedRun(plan, self, **options)

    def close(self) -> None:
        """Nothing to close: there are no processes."""

    def __enter__(self) -> SimulatedCluster:
        return self

    def __exit__(self, *exc: object) -> None:
        pass
