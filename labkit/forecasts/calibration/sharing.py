"""How much roles that share cores slow each other: fitted, because no counter contains it.

Runs with more roles than cores are simulated with different values of these constants, until they are as fast as the measured
ones. The simulation contains everything else that was measured, so what is left is the effect of sharing:

- `Costs.cold`, the relative additional time of work after another role has used the core, from asynchronous runs with two
  networks: if two networks do not fit into a core's cache together, it is larger;
- `Costs.latency`, the part of the time of a message in which no core is busy. With cores that have nothing else to do, it cannot
  be told from processor time. A collective operation shows it: its roles exchange many messages, and other roles use the cores
  meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...engines.costs import Costs, WorkCost
from ...engines.simulated import SimulatedCluster
from ...problem import Problem
from ...strategies import Strategy
from ..steady_state import timing_only
from .probes import probe_sharing

GRADIENTS = 400  # of a simulated run
STEPS = 9  # of the interpolation, at most
SHARES = (0.0, 0.3, 0.6, 0.9)  # of the time of receiving that may be latency
SAME = 0.03  # relative difference of rates that is within the variation between random draws
CLOSE = 0.005  # relative difference of times at which the interpolation ends
MOST = 4.0  # the largest relative additional time


@dataclass(frozen=True)
class Sharing:
    """A measured run at full speed with more roles than cores. `workers`: their number. `rate`: gradients per second.
    `gradient`: the time of a gradient of its network.
    """

    problem: Problem
    strategy: Strategy
    workers: int
    rate: float
    gradient: WorkCost

    @property
    def size(self) -> int:
        """Bytes of the parameters of the network."""
        objective = self.problem.objective()
        return objective.size * np.dtype(objective.dtype).itemsize


def fit_sharing(costs: Costs, small: Sharing, collective: Sharing, large: Sharing) -> Costs:
    """Return the costs with `cold` and `latency` for which the runs are as fast as measured, as far as possible.

    The time of a message between two idle cores stays the same.
    """
    # (share of the fixed time of receiving that is latency, rate of the collective run)
    tried: list[tuple[float, float]] = []
    for share in SHARES:
        made = _with_latency(costs, share)
        made = replace(made, cold=[(0, _cold(made, small))])
        tried.append((share, simulated_rate(made, collective)))
        if tried[-1][1] >= collective.rate * (1 - SAME):
            break
    made = _with_latency(costs, _interpolated(tried, collective.rate))
    found = {run.size: _cold(made, run) for run in (large, small)}  # of equal sizes, as of a quadratic, the first run
    return replace(made, cold=sorted(found.items()))


def _with_latency(costs: Costs, share: float) -> Costs:
    latency = share * costs.receive.fixed
    return replace(costs, receive=replace(costs.receive, fixed=costs.receive.fixed - latency), latency=latency)


def _interpolated(tried: list[tuple[float, float]], rate: float) -> float:
    """Return the share for which the rate is `rate`, between the last two that were tried."""
    (share, found) = tried[-1]
    if len(tried) == 1 or found <= rate:
        return share
    before, less = tried[-2]
    return before + (share - before) * (rate - less) / (found - less)


# Relative to the work: with an additional time that does not depend on the work, the errors with eight workers were larger.
def _cold(costs: Costs, run: Sharing) -> float:
    """Return the relative additional time for which a simulated run is as fast as the measured one, from 0 to `MOST`.

    The time per gradient is nearly a linear function of it, so few simulations are needed.
    """

    def time(x: float) -> float:
        return 1 / simulated_rate(replace(costs, cold=[(0, x)] if x else ()), run)

    low, high, wanted = 0.0, MOST, 1 / run.rate
    fast, slow = time(low), time(high)
    if fast >= wanted or slow <= wanted:
        return low if fast >= wanted else high
    for _ in range(STEPS):
        x = low + (high - low) * (wanted - fast) / (slow - fast)
        found = time(x)
        if abs(found / wanted - 1) <= CLOSE:
            break
        if found < wanted:
            low, fast = x, found
        else:
            high, slow = x, found
    return x


def simulated_rate(costs: Costs, run: Sharing) -> float:
    """Return the gradients per second of the simulated run, measured as those of the real one."""
    cluster = SimulatedCluster(workers=run.workers, compute=None, costs=replace(costs, gradient=run.gradient))
    seconds = GRADIENTS / run.rate
    return probe_sharing(timing_only(run.problem), cluster, seconds, run.workers, run.strategy)[0]
