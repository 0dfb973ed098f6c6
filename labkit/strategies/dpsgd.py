"""Decentralised parallel SGD: no server and no global sum; each worker averages with its neighbours.

    worker i: forever: send x_i to the neighbours;  g <- gradient of the loss on the next mini-batch at x_i
                       receive their x_j;  x_i <- sum over j of W_ij x_j - rate * g

The matrix W is doubly stochastic (Metropolis weights on the graph), so the mean of all replicas moves by the mean gradient, as
in synchronous SGD. A gradient reaches the replicas of other workers in several steps, from neighbour to neighbour. In each step
a worker sends its model to every neighbour while it computes, so a step has one latency, independent of the number of workers.
A slow worker delays its neighbours, which delay their neighbours, and so on. The model is the mean of the replicas.

Lian et al., "Can decentralized algorithms outperform centralized algorithms?", NIPS 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..options import option
from ..roles.context import Context
from ..roles.gradient import Model
from ..roles.graphs import GRAPHS, metropolis, neighbours
from ..roles.messages import Message, Mix
from ..roles.replica import Replica
from .base import MixedReplicas


@dataclass(frozen=True, kw_only=True)
class DPSGD(MixedReplicas):
    """In every step, a worker averages its parameters with those of its neighbours.

    See Also
    --------
    ADPSGD : Does not wait for neighbours that compute.
    RingAllReduce : Sums the gradients of all workers in every step.

    Examples
    --------
    For any number of workers, a step has one latency. Here it is 10 ms, and passes while the gradients are computed (10 ms).

    >>> for workers in (4, 16):
    ...     cluster = lk.SimulatedCluster(workers=workers, latency=0.01)
    ...     print(lk.train("moons", lk.DPSGD(), cluster, lk.Budget(updates=20)).wait().summary()["seconds"])
    0.2
    0.2
    """

    graph: str = option("ring", choices=GRAPHS, help="which workers are neighbours")

    messages: ClassVar[tuple[type[Message], ...]] = (Mix,)
    summary: ClassVar[str] = "gossip: every step each worker averages with its neighbours"
    description: ClassVar[str] = "gossip: each worker averages with its neighbours, and waits for them."

    async def worker(self, ctx: Context, model: Model, replica: Replica) -> None:
        """Send the parameters to the neighbours, compute a gradient, average with the neighbours' parameters, take a step."""
        workers = ctx.peers("worker")
        graph, me = neighbours(self.graph, len(workers)), workers.index(ctx.name)
        partners, weights = [workers[i] for i in graph[me]], metropolis(graph, me)
        for batch in ctx.batches():
            here = Mix(replica.values, replica.clock_of(workers))
            for partner in partners:
                ctx.send(partner, here)
            gradient = await ctx.compute(model.gradient, replica.weights(), batch)  # at x_i as it was sent
            received = [await ctx.recv(Mix, sender=partner) for partner in partners]
            clock = [max(steps) for steps in zip(here.clock, *(other.clock for other in received))]
            replica.assign(replica.weighted_mean([other.values for other in received], weights), workers, clock)
            await ctx.compute(replica.apply, gradient, self.learning_rate)
