"""The inputs of an advice: the timing-only problem, the simulated cluster, and the sizes and times that formulas name.

M  bytes of the parameters        N, S  workers, servers        a  latency of a message
c  seconds of one gradient        s  seconds of one piece of server work (an update)
m = M / bandwidth: seconds for which a link is occupied by the whole model
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...data import recipe_of
from ...engines.distributions import Deterministic, Distribution, as_distribution
from ...engines.simulated import SimulatedCluster
from ...errors import BadInput, shown
from ...nn import NullObjective, Recommender
from ...problem import Problem
from ..steady_state import timing_only

if TYPE_CHECKING:
    from ..calibration import Calibration

# Between two processes of one machine: half of the round trip that `python -m benchmarks --only round-trip` measures.
DASK_LATENCY = 30e-6  # seconds; measured with messages of 40 KB
DASK_BANDWIDTH = 5e9  # bytes per second; measured with messages of 10 MB
DRAWS = 50  # mini-batches drawn to estimate the number of distinct ids


@dataclass(frozen=True)
class Inputs:
    """The inputs of an advice.

    problem: the timing-only problem. cluster: the cluster on which strategies are simulated. memory: bytes that a node has for
    the model; None means unlimited. density: the share of the parameters that a mini-batch's gradient touches.
    """

    problem: Problem
    cluster: SimulatedCluster
    objective: NullObjective
    memory: float | None
    density: float

    @property
    def n(self) -> int:
        """N, the number of workers."""
        return self.cluster.workers

    @property
    def servers(self) -> int:
        """S, the number of servers; 1 if the cluster does not define it."""
        return self.cluster.servers or 1

    @property
    def itemsize(self) -> int:
        """The bytes of a parameter."""
        return int(self.objective.dtype.itemsize)

    @property
    def model(self) -> int:
        """M, the bytes of the parameters."""
        return self.objective.size * self.itemsize

    @property
    def a(self) -> float:
        """The latency of a message in seconds."""
        return self.cluster.latency

    @property
    def constant(self) -> bool:
        """Whether gradients and updates take constant times."""
        times = (self.cluster.compute, self.cluster.server_time)
        return self.cluster.costs is None and all(isinstance(each, Deterministic | None) for each in times)

    @property
    def m(self) -> float:
        """The seconds for which the whole model occupies a link."""
        return self.transfer_seconds(self.model)

    def transfer_seconds(self, count: float) -> float:
        """Return the seconds for which `count` bytes occupy a link."""
        return 0.0 if math.isinf(self.cluster.bandwidth) else count / self.cluster.bandwidth


def gather_inputs(
    problem: Problem, cluster: Any, memory: float | None = None, latency: float | None = None, bandwidth: float | None = None,
    compute: Any = None, calibration: Calibration | None = None,
) -> Inputs:  # fmt: skip
    """Return the inputs for a problem on a cluster. Arguments that are not None override the cluster's values.

    Raises `BadInput` if an argument is invalid.
    """
    if memory is not None and not 0 < memory < math.inf:
        raise BadInput(f"memory={shown(memory)}: give bytes, greater than 0.")
    timing = timing_only(problem)
    objective = timing.objective()
    assert isinstance(objective, NullObjective)
    simulated = _simulated(problem, cluster, latency, bandwidth, as_distribution("compute", compute), calibration)
    return Inputs(timing, simulated, objective, memory, _density(problem, objective))


def _simulated(
    problem: Problem, cluster: Any, latency: float | None, bandwidth: float | None, compute: Distribution | None,
    calibration: Calibration | None,
) -> SimulatedCluster:  # fmt: skip
    """Return the cluster to simulate: the cluster with the arguments in place of its values.

    For a cluster of processes without a calibration, the values are its pace, and defaults for one machine.
    """
    given: dict[str, Any] = {"latency": latency, "bandwidth": bandwidth, "compute": compute}
    if calibration is not None:
        simulated = calibration.simulated(cluster.spec)
    elif isinstance(cluster, SimulatedCluster):
        simulated = cluster
    else:
        pace = compute or cluster.pace or _timed_gradient(problem)
        simulated = replace(
            SimulatedCluster.of(cluster.spec), compute=pace, latency=DASK_LATENCY, bandwidth=DASK_BANDWIDTH
        )
    return replace(simulated, record=True, **{name: value for name, value in given.items() if value is not None})


def _timed_gradient(problem: Problem) -> Distribution:
    """Measure the time of one gradient on this machine: the shortest of five."""
    if problem.timing_only:
        raise BadInput("A timing-only problem has no gradients to time: give compute=, as compute=0.01.")
    objective, data = problem.objective(), problem.dataset
    data = data.gathered() if hasattr(data, "gathered") else data
    rows = np.arange(problem.batch_size) % len(data.x_train)
    x, y, params = data.x_train[rows], data.y_train[rows], objective.start(problem.seed)
    out, durations = np.empty_like(params), []
    for _ in range(5):
        began = time.perf_counter()
        objective.gradient(params, x, y, out)
        durations.append(time.perf_counter() - began)
    return Deterministic(min(durations))


def _density(problem: Problem, objective: NullObjective) -> float:
    """Return the share of the parameters that a mini-batch's gradient touches: below 1 with an embedding table, of which it
    touches the rows of its distinct ids. They are counted in mini-batches drawn with a fixed seed.
    """
    network = objective.network
    if not isinstance(network, Recommender):
        return 1.0
    rng = np.random.default_rng(0)
    if isinstance(problem.data, str):
        recipe: Any = recipe_of(problem.data, problem.options)
        batches = [recipe.draw(rng, problem.batch_size) for _ in range(DRAWS)]
    else:
        x = problem.dataset.x_train
        batches = [x[rng.integers(0, len(x), problem.batch_size)] for _ in range(DRAWS)]
    used = float(np.mean([len(np.unique(ids)) for ids in batches]))
    return (used * network.bag.columns + network.tower.size) / objective.size
