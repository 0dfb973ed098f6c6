"""The specification of a cluster: declares every option of a cluster once, for both engines.

`SimulatedCluster` and `DaskCluster` take their options, defaults, ranges and help from `ClusterSpec`, and each has a `spec`
that holds its values. A spec refers to no process and no connection: it can be compared, changed with `dataclasses.replace`,
and written as JSON (`labkit.spec`). Both engines import this module; it imports neither.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..errors import BadInput, shown
from ..options import Converted, Option, as_number, check_option, check_options, option, options_of
from .costs import Costs, costs_as_plain, costs_as_text, costs_from_text
from .distributions import (
    DISTRIBUTIONS,
    Deterministic,
    Distribution,
    as_distribution,
    distribution_as_text,
    distribution_by_name,
)
from .machine_limits import DEFAULT_WORKERS, default_local_workers

ENGINES = ("simulated", "dask")
GRADIENT = Deterministic(0.01)  # default time of a gradient in virtual time
ONLY = {
    "simulated": ("latency", "bandwidth", "cores", "restart_after", "checkpoint_time", "evaluation_time", "costs"),
    "dask": ("scheduler", "place", "dashboard", "may_kill"),
}  # options of one engine only
OWNERS = {"simulated": "SimulatedCluster", "dask": "DaskCluster"}
PACE = {"simulated": "compute", "dask": "pace"}  # {engine: the name of the option for the time of a gradient}


def check_factor(factor: Any) -> float:
    """Return a slowdown factor as a float. Raises `BadInput` if it is not a number from 0.001 to 1000."""
    number = as_number(factor)
    if number is None or not 0.001 <= number <= 1000:
        raise BadInput(f"factor={shown(factor)}: how many times slower is a number from 0.001 to 1000.")
    return float(number)


def check_slow(slow: Any) -> dict[str, float]:
    """Return a checked copy of {role: slowdown factor}; None means no role. The role names are checked later, when the strategy
    is known.
    """
    if not isinstance(slow, Mapping | None):
        raise BadInput(f"slow={shown(slow)}: say who is how many times slower, as slow={{'worker-1': 4.0}}.")
    return {role: check_factor(factor) for role, factor in ({} if slow is None else slow).items()}


def slow_with(slow: Mapping[str, float], workers: int) -> dict[str, float]:
    return {
        role: factor for role, factor in slow.items()
        if not isinstance(role, str) or not re.fullmatch(r"worker-\d+", role) or int(role.rpartition("-")[2]) < workers
    }  # fmt: skip


def slow_from_text(text: str) -> dict[str, float]:
    """Convert `"worker-2:5,worker-1:2"` to `{"worker-2": 5.0, "worker-1": 2.0}`. "none" and "" mean no role."""
    slow = {}
    for part in text.split(",") if text not in ("", "none") else ():
        role, _, factor = part.strip().rpartition(":")
        try:
            slow[role] = float(factor)
        except ValueError:
            role = ""
        if not role or not 0.001 <= slow[role] <= 1000:
            raise BadInput(f"slow={part}: give ROLE:FACTOR with a factor from 0.001 to 1000, as worker-2:5.")
    return slow


def slow_as_text(slow: Mapping[str, float]) -> str:
    return ",".join(f"{role}:{factor!r}" for role, factor in slow.items()) or "none"


@dataclass(frozen=True)
class ClusterSpec:
    """The options of a cluster: engine, number of nodes, speeds, and recovery from faults.

    `compute` is called `pace` by `DaskCluster`, where None means full speed; in virtual time None means 10 ms per gradient.
    Options that the engine does not have keep their values, so that `replace(spec, engine=...)` can be undone.

    Raises `BadInput`, with the name of the cluster class of the engine, if an option is not allowed.
    """

    engine: str = option("simulated", choices=ENGINES, help="simulated: virtual time, exact; dask: real processes")
    workers: int = option(DEFAULT_WORKERS, low=1, high=100_000, help="workers that compute gradients")
    servers: int | None = option(
        None, low=0, high=100_000, help="servers that own the parameters; none: what the strategy needs"
    )
    compute: Converted[Distribution | None, float | str] = option(
        None, unit="s", names=DISTRIBUTIONS, read=distribution_by_name, write=distribution_as_text,
        help="time of one gradient: deterministic:0.01, lognormal:0.01:0.5 (mean, sigma), ...",
    )  # fmt: skip
    server_time: Converted[Distribution | None, float | str] = option(
        None,
        unit="s",
        names=DISTRIBUTIONS,
        read=distribution_by_name,
        write=distribution_as_text,
        help="time of one piece of server work",
    )
    latency: float = option(0.0, low=0.0, high=1e3, unit="s", help="time of every message from node to node")
    bandwidth: Converted[float, str] = option(
        math.inf, low=1.0, high=math.inf, unit="bytes/s", help="what every node can send, and receive"
    )
    slow: Converted[dict[str, float], Mapping[str, float] | None] = option(
        factory=dict,
        read=slow_from_text,
        write=slow_as_text,
        help="roles that are slower, each by a factor: worker-2:5",
    )
    cores: int = option(1, low=1, high=1024, help="cores of every node; roles on one node queue for them")
    record: bool = option(True, help="record what happens; False: counters only")
    replicas: int = option(0, low=0, high=1, help="backups of every server; with one, losing a server loses no update")
    max_workers: int | None = option(
        None,
        low=1,
        high=100_000,
        help="workers that there may be at a time, if they join and leave; none: as many as workers",
    )
    heartbeat_timeout: float = option(
        5.0, low=1e-3, high=1e6, unit="s", help="silence after which a role counts as lost"
    )
    restart_after: float | None = option(
        0.8, low=0.0, high=1e9, unit="s", help="time until a lost role is back; none: it does not come back by itself"
    )
    checkpoint_every: float | None = option(
        None, low=1e-6, high=1e9, unit="s",
        help="time between two checkpoints of a shard; none: 1 s, but at most 5% of its time",
    )  # fmt: skip
    checkpoint_time: float = option(0.0, low=0.0, high=1e6, unit="s", help="time to save a checkpoint")
    evaluation_time: float = option(0.0, low=0.0, high=1e6, unit="s", help="time of one evaluation, on the chief")
    costs: Costs | None = option(
        None,
        read=costs_from_text,
        write=costs_as_text,
        help="costs of processes, as measured by lk.calibrate; none: no costs",
    )
    scheduler: str | None = option(
        None, help="address of a running scheduler, tcp://host:8786; none: processes of labkit's own"
    )
    place: str | Mapping[str, str] | None = option(
        None, help='who plays where: "spread", "pack", or hosts by role or kind; none: least used workers'
    )
    dashboard: bool = option(False, help="Dask's dashboard for processes of labkit's own")
    may_kill: bool = option(False, help="faults may end processes that labkit did not start")

    def __post_init__(self) -> None:
        engine = check_option("ClusterSpec", options_of(ClusterSpec)["engine"], self.engine)
        distribution = as_distribution(PACE[engine], self.compute)
        object.__setattr__(self, "compute", distribution)
        object.__setattr__(self, "server_time", as_distribution("server_time", self.server_time))
        object.__setattr__(self, "slow", check_slow(self.slow))
        if self.place is not None:
            from .dask.cluster.placement import check_rule

            object.__setattr__(self, "place", check_rule(self.place))
        if not isinstance(self.costs, Costs | None):
            raise BadInput(f"costs={shown(self.costs)} is not allowed; give lk.Costs, as lk.calibrate(...).costs.")
        check_options(self, OWNERS[engine])

    @property
    def virtual_time(self) -> bool:
        return self.engine == "simulated"

    @property
    def paced(self) -> bool:
        """Whether the time of a gradient is drawn from a distribution."""
        return (self.virtual_time and self.costs is None) or self.compute is not None

    def widened(self) -> ClusterSpec:
        """Return the spec with `max_workers` workers from the start."""
        return self if self.max_workers is None else replace(self, workers=self.max_workers, max_workers=None)

    def describe(self) -> dict[str, Any]:
        """Return the options of this engine as plain values, for the header of a trace: distributions as text, infinity as
        None.
        """
        found: dict[str, Any] = {"engine": self.engine}
        for name in cluster_options(self.engine):
            if name == "costs":
                found |= {} if self.costs is None else {"costs": costs_as_plain(self.costs)}
            elif name not in _NOT_DESCRIBED:
                found[PACE[self.engine] if name == "compute" else name] = _plain(getattr(self, name))
        return found


_NOT_DESCRIBED = ("engine", "record", "scheduler", "place", "dashboard", "may_kill")


def cluster_options(engine: str) -> dict[str, Option]:
    other = {name for owner, names in ONLY.items() if owner != engine for name in names}
    return {name: k for name, k in options_of(ClusterSpec).items() if name not in other}


def default_workers(engine: str, scheduler: Any = None) -> int:
    """Return the default number of workers: 4; fewer for processes on this machine if it is a small container."""
    return default_local_workers() if engine == "dask" and scheduler is None else DEFAULT_WORKERS


def _plain(value: Any) -> Any:
    if isinstance(value, Distribution):
        return value.describe()
    if isinstance(value, float) and math.isinf(value):
        return None
    return dict(value) if isinstance(value, dict) else value
