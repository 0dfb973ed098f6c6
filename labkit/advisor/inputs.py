"""The inputs of a forecast: sizes of the model and the cluster, a link's latency and bandwidth, distributions of times.

    M  bytes of the parameters        N, S  workers, servers        b  mini-batch of one worker
    c  seconds of one gradient        s  seconds of one piece of server work (an update)
    a  latency of a message           m = M / bandwidth: seconds for which a link is occupied by the whole model

The network model is the simulator's: cut-through and full duplex; a message occupies the egress of the sender and the
ingress of the receiver for bytes / bandwidth each.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..data import recipe_of
from ..engines.costs import Costs
from ..engines.distributions import Deterministic, Distribution, as_distribution
from ..engines.simulated import SimulatedCluster
from ..errors import BadInput, shown
from ..nn import NullObjective, Recommender
from .order_statistics import OrderStatistics

# Between two processes of one machine: half of the round trip that `python -m benchmarks --only round-trip` measures.
DASK_LATENCY = 30e-6  # seconds; measured with messages of 40 KB
DASK_BANDWIDTH = 5e9  # bytes per second; measured with messages of 10 MB
DRAWS = 50  # mini-batches drawn to estimate the number of distinct ids


@dataclass(frozen=True)
class EmbeddingTable:
    """An embedding table.

    rows: the number of rows. row_bytes: bytes of a row. used: the expected number of distinct rows in a mini-batch.
    dense: bytes of the layers after the table.
    """

    rows: int
    row_bytes: int
    used: float
    dense: int


@dataclass(frozen=True)
class CostInputs:
    """The inputs of all formulas, with the symbols of the module `labkit.advisor.inputs`.

    memory: bytes that a node has for the model; None means unlimited. density: the share of the parameters that a
    mini-batch's gradient touches. table: None for a model without an embedding. costs: measured costs of processes, from which
    the times of the cluster were made; None without measurements.
    """

    problem: Any
    cluster: SimulatedCluster
    objective: Any
    memory: float | None
    density: float
    table: EmbeddingTable | None
    costs: Costs | None = None

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
        return int(np.dtype(self.objective.dtype).itemsize)

    @property
    def model(self) -> int:
        """M, the bytes of the parameters."""
        return int(self.objective.size) * self.itemsize

    @property
    def a(self) -> float:
        """The latency of a message in seconds."""
        return self.cluster.latency

    def transfer_seconds(self, count: float) -> float:
        """Return the seconds for which `count` bytes occupy a link."""
        return 0.0 if math.isinf(self.cluster.bandwidth) else count / self.cluster.bandwidth

    @property
    def m(self) -> float:
        """The seconds for which the whole model occupies a link."""
        return self.transfer_seconds(self.model)

    @cached_property
    def c(self) -> OrderStatistics:
        """The distribution of one gradient's time, with its order statistics."""
        return OrderStatistics(self.compute)

    @property
    def compute(self) -> Distribution:
        """The distribution of one gradient's time."""
        assert self.cluster.compute is not None  # set by `gather_inputs` for a cluster without one
        return self.cluster.compute

    @cached_property
    def s(self) -> float:
        """The mean seconds of one piece of server work."""
        return 0.0 if self.cluster.server_time is None else OrderStatistics(self.cluster.server_time).mean

    @property
    def network(self) -> Any:
        """The model; for a timing-only run the network that it represents, or None."""
        return self.objective.network if isinstance(self.objective, NullObjective) else self.objective


def gather_inputs(
    problem: Any, cluster: Any, memory: float | None, density: float | None, latency: float | None,
    bandwidth: float | None, compute: Any, costs: Costs | None = None,
) -> CostInputs:  # fmt: skip
    """Return the inputs for a problem on a cluster. Arguments that are not None override the cluster's values. `costs`: measured
    costs of processes; None: those of a simulated cluster, if it has any.

    Raises `BadInput` if an argument is invalid.
    """
    for name, value in (("memory", memory), ("density", density)):
        if value is not None and not 0 < value < math.inf:
            raise BadInput(f"{name}={shown(value)}: give {'bytes' if name == 'memory' else 'a share'}, greater than 0.")
    if density is not None and density > 1:
        raise BadInput(f"density={shown(density)}: the share of the parameters that a batch touches is at most 1.")
    objective = problem.objective()
    table = _table(problem, objective, density)
    if density is None:
        density = 1.0 if table is None else (table.used * table.row_bytes + table.dense) / _bytes(objective)
    if costs is None and isinstance(cluster, SimulatedCluster):
        costs = cluster.costs
    if costs is None:
        simulated = _as_simulated(problem, cluster, latency, bandwidth, compute)
    else:
        simulated = _with_costs(problem, cluster, costs, latency, bandwidth, compute)
    return CostInputs(problem, simulated, objective, memory, density, table, costs)


def _bytes(objective: Any) -> float:
    return float(objective.size) * np.dtype(objective.dtype).itemsize


def _as_simulated(problem: Any, cluster: Any, latency: Any, bandwidth: Any, compute: Any) -> SimulatedCluster:
    """Return a simulated cluster with the cluster's values and the arguments.

    For a cluster of processes the values are the arguments, its pace, and defaults for one machine.
    """
    simulated = isinstance(cluster, SimulatedCluster)
    distribution = (
        as_distribution("compute", compute)
        or (cluster.compute if simulated else cluster.pace)
        or _timed_gradient(problem)
    )
    return SimulatedCluster(
        workers=cluster.workers, servers=cluster.servers, compute=distribution, server_time=cluster.server_time,
        latency=(cluster.latency if simulated else DASK_LATENCY) if latency is None else latency,
        bandwidth=(cluster.bandwidth if simulated else DASK_BANDWIDTH) if bandwidth is None else bandwidth,
    )  # fmt: skip


def _with_costs(
    problem: Any, cluster: Any, costs: Costs, latency: Any, bandwidth: Any, compute: Any
) -> SimulatedCluster:  # fmt: skip
    """Return a simulated cluster whose times are measured costs.

    If there are more workers than cores, they share the cores, so processor time takes that many times longer, and what cold
    caches add: gradients, updates, and what does not depend on the size of a message at both ends, which is its latency. The
    bytes of a message do not take longer, because in the formulas one server transfers them alone. A pace is a lower limit of
    the time of a gradient.
    """
    simulated, objective = isinstance(cluster, SimulatedCluster), problem.objective()
    size, share = _bytes(objective), sharing(costs, cluster.workers)

    def shared(seconds: float) -> float:
        return seconds if share == 1.0 else share * seconds * (1 + costs.cold_factor(size))

    gradient: Distribution = Deterministic(shared(costs.gradient(objective.size, problem.batch_size)))
    pace = cluster.compute if simulated else cluster.pace
    if pace is not None and OrderStatistics(pace).mean > OrderStatistics(gradient).mean:
        gradient = pace
    update = Deterministic(shared(costs.update(size / max(1, cluster.servers or 1))))
    per_byte = costs.send.per_byte + costs.receive.per_byte
    if simulated and not math.isinf(cluster.bandwidth):
        per_byte += 1 / cluster.bandwidth
    fixed = shared(costs.send.fixed + costs.receive.fixed) + costs.latency + (cluster.latency if simulated else 0.0)
    return SimulatedCluster(
        workers=cluster.workers, servers=cluster.servers,
        compute=as_distribution("compute", compute) or gradient, server_time=cluster.server_time or update,
        latency=fixed if latency is None else latency,
        bandwidth=(1 / per_byte if per_byte else math.inf) if bandwidth is None else bandwidth,
    )  # fmt: skip


def sharing(costs: Costs, workers: int) -> float:
    """Return how many times longer processor time takes because workers share cores; at least 1."""
    return max(1.0, workers / (costs.cores * costs.hosts))


def _timed_gradient(problem: Any) -> Distribution:
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


def _table(problem: Any, objective: Any, density: float | None) -> EmbeddingTable | None:
    """Return the embedding table, with the expected number of distinct rows in a mini-batch; None without an embedding."""
    network = objective.network if isinstance(objective, NullObjective) else objective
    if not isinstance(network, Recommender):
        return None
    item = np.dtype(objective.dtype).itemsize
    rows, row_bytes = network.bag.rows, network.bag.columns * item
    used = density * rows if density is not None else _distinct_ids(problem)
    return EmbeddingTable(rows, row_bytes, used, network.tower.size * item)


def _distinct_ids(problem: Any) -> float:
    """Return the mean number of distinct ids in a mini-batch, over mini-batches drawn with a fixed seed."""
    rng = np.random.default_rng(0)
    if isinstance(problem.data, str):
        recipe: Any = recipe_of(problem.data, problem.options)
        batches = [recipe.draw(rng, problem.batch_size) for _ in range(DRAWS)]
    else:
        x = problem.dataset.x_train
        batches = [x[rng.integers(0, len(x), problem.batch_size)] for _ in range(DRAWS)]
    return float(np.mean([len(np.unique(ids)) for ids in batches]))
