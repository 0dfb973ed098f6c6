"""The simulated cluster: distributions of durations in place of machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...errors import BadInput, shown
from ...options import Converted, HasOptions, options_of, same_option
from ..base import Cluster, VirtualTimeEngine
from ..cluster_spec import GRADIENT, ClusterSpec
from ..commands import Command, Executed
from ..costs import Costs
from ..distributions import Distribution
from ..plan import Plan
from ..storage.store import Store


@dataclass(frozen=True)
class SimulatedCluster(HasOptions, Cluster):
    """A simulated cluster, which runs a strategy in virtual time.

    Runs are exactly repeatable: the same arguments give the same trace, bit for bit, on processors of one kind. Runs with 10,000
    workers have been measured.

    Attributes
    ----------
    spec : ClusterSpec
        All these options.

    See Also
    --------
    DaskCluster : Runs the same strategies in processes.
    Deterministic, Exponential, LogNormal, Pareto : Distributions, for `compute` and `server_time`.

    Notes
    -----
    With `evaluation_time` the chief is busy during an evaluation. As on a cluster of processes, it then waits nineteen times as
    long while training continues, so a run may end that much later than its budget's seconds. With `Strategy(chief_works=True)`
    worker 0 queues for the cores of the same node.

    With `replicas=1` every server has a backup on a separate node, which stores each update before the update is acknowledged.

    With `costs` roles are processes that share the cores of hosts, and messages and waiting take processor time. `compute` is
    then the pace of gradients, and None means full speed, as on a `DaskCluster`. Latency and bandwidth are those between hosts.

    With `max_workers` workers that are not present at the start can join: `run.scale(workers=6)`.

    Examples
    --------
    Four workers, of which one is five times slower, and links of 1 ms and 1 MB/s:

    >>> slow = {"worker-2": 5}
    >>> cluster = lk.SimulatedCluster(workers=4, slow=slow, latency=1e-3, bandwidth=1e6)
    >>> run = lk.train("digits", lk.SyncPS(), cluster, lk.Budget(updates=10)).wait()
    >>> print(f"{run.summary()['seconds']:.3f} s")
    2.427 s
    """

    workers: int = same_option(ClusterSpec, "workers")
    servers: int | None = same_option(ClusterSpec, "servers")
    compute: Converted[Distribution | None, float | str] = same_option(ClusterSpec, "compute", default=GRADIENT)
    server_time: Converted[Distribution | None, float | str] = same_option(ClusterSpec, "server_time")
    latency: float = same_option(ClusterSpec, "latency")
    bandwidth: Converted[float, str] = same_option(ClusterSpec, "bandwidth")
    slow: Converted[dict[str, float], Mapping[str, float] | None] = same_option(ClusterSpec, "slow")
    cores: int = same_option(ClusterSpec, "cores")
    record: bool = same_option(ClusterSpec, "record")
    replicas: int = same_option(ClusterSpec, "replicas")
    max_workers: int | None = same_option(ClusterSpec, "max_workers")
    heartbeat_timeout: float = same_option(ClusterSpec, "heartbeat_timeout")
    restart_after: float | None = same_option(ClusterSpec, "restart_after")
    checkpoint_every: float | None = same_option(ClusterSpec, "checkpoint_every")
    checkpoint_time: float = same_option(ClusterSpec, "checkpoint_time")
    evaluation_time: float = same_option(ClusterSpec, "evaluation_time")
    costs: Costs | None = same_option(ClusterSpec, "costs")
    spec: ClusterSpec = field(init=False, repr=False, compare=False)

    engine = "simulated"
    virtual_time = True

    def __post_init__(self) -> None:
        spec = ClusterSpec("simulated", **{name: getattr(self, name) for name in options_of(self)})
        if spec.compute is None and spec.costs is None:  # also where it was given as text, "" or "none"
            raise BadInput(
                f"compute={shown(self.compute)}: virtual time needs a distribution for gradients, "
                "as lk.distributions.Deterministic(0.01)."
            )
        for name in options_of(self):
            object.__setattr__(self, name, getattr(spec, name))
        object.__setattr__(self, "spec", spec)

    @classmethod
    def of(cls, spec: ClusterSpec) -> SimulatedCluster:
        """Return the cluster with the values of a specification.

        Parameters
        ----------
        spec : ClusterSpec
            The specification, which may be for another engine; options of other engines are ignored.

        Returns
        -------
        SimulatedCluster
            The cluster.
        """
        compute = GRADIENT if spec.compute is None and spec.costs is None else spec.compute
        return cls(**{name: getattr(spec, name) for name in options_of(cls)} | {"compute": compute})

    def with_spec(self, spec: ClusterSpec) -> SimulatedCluster:
        return SimulatedCluster.of(spec)

    def start(
        self, plan: Plan, commands: Iterable[Command | Executed] = (), checkpoint: object = None, resume: Store | None = None
    ) -> VirtualTimeEngine:  # fmt: skip
        from .run import SimulatedRun

        return SimulatedRun(plan, self, commands, checkpoint)

    def close(self) -> None: ...
