"""Asynchronous decentralised parallel SGD: gossip in which no replica waits for another's gradient.

    worker i:  forever: x <- x_i;  g <- gradient of the loss on the next mini-batch at x;  give g to replica i
    replica i: g arrives: choose a neighbour j;  x_i, x_j <- (x_i + x_j) / 2;  x_i <- x_i - rate * g

The replica of a worker is a separate role on the same node. It answers neighbours while the worker computes, so a slow worker
delays no other worker. Replicas that wait for each other's answer would deadlock. The workers are therefore divided into two
sides, and edges within a side are omitted: the replicas of one side send requests, and the replicas of the other side only
answer.

The model is the mean of the replicas. A worker receives new weights when its gradient has been applied. If its replica is
averaged while the worker computes, the gradient is stale, although this is not counted as staleness, because averaging is not
an update of the replica.

Lian et al., "Asynchronous decentralized parallel stochastic gradient descent", ICML 2018.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..options import option
from ..problem import Problem
from ..roles.chief import snapshots_of_replicas
from ..roles.context import Context
from ..roles.evaluator import Evaluator
from ..roles.gradient import Model
from ..roles.graphs import GRAPHS, neighbours, two_colouring
from ..roles.layout import ClusterShape, Layout, RoleSpec
from ..roles.messages import Message, Mix, Pull, Push, Snapshot, Weights
from ..roles.replica import Replica
from .base import MixedReplicas


@dataclass(frozen=True, kw_only=True)
class ADPSGD(MixedReplicas):
    """After every gradient a replica averages with one neighbour; no replica waits for another's gradient.

    See Also
    --------
    DPSGD : Averages with all neighbours in every step, and waits for them.
    AsyncPS : Asynchronous with a server.

    Examples
    --------
    A worker that is 10 times slower does not delay its neighbours.

    >>> slow = lk.SimulatedCluster(workers=4, slow={"worker-1": 10})
    >>> for strategy in (lk.ADPSGD(), lk.DPSGD()):
    ...     summary = lk.train("moons", strategy, slow, lk.Budget(seconds=2)).wait().summary()
    ...     print(f"{strategy.name}: {summary['gradients_per_second']:.0f} gradients per second")
    ADPSGD: 309 gradients per second
    DPSGD: 40 gradients per second
    """

    graph: str = option("ring", choices=GRAPHS, help="which workers are neighbours")

    messages: ClassVar[tuple[type[Message], ...]] = (Push, Pull, Weights, Mix)
    summary: ClassVar[str] = "gossip without waiting: after a gradient, average with one neighbour"
    description: ClassVar[str] = "asynchronous gossip: no replica waits for another's gradient."

    def one_update(self) -> str:
        """Return the definition of an update: one step of every replica.

        A budget of updates gives all replicas the same limit.
        """
        return "one step of every replica; give a budget of seconds to see how fast the fast ones are"

    def layout(self, problem: Problem, cluster: ClusterShape) -> Layout:
        """Put each worker and its replica on one node. The chief evaluates the mean of the replicas."""
        plan = super().layout(problem, cluster)
        workers = [replace(r, shard=None, part=None, store=None) for r in plan.roles if r.kind == "worker"]
        replicas = [
            replace(r, name=f"replica-{r.index}", kind="replica", computes=False, data=None)
            for r in plan.roles
            if r.kind == "worker"
        ]
        chief = RoleSpec("chief", "chief", 0, "chief")
        return replace(plan, roles=(*workers, *replicas, chief), observed=tuple(r.name for r in replicas))

    async def snapshots(self, ctx: Context, evaluator: Evaluator) -> tuple[Snapshot, ...]:
        """Request snapshots of all replicas when one of them reaches the next multiple of `eval_every`."""
        return await snapshots_of_replicas(ctx, evaluator)

    async def worker(self, ctx: Context, model: Model) -> None:
        """Compute on the replica's weights, send the gradient to the replica, receive its newer weights."""
        own_replica = f"replica-{ctx.name.rpartition('-')[2]}"
        ctx.send(own_replica, Pull())
        for batch in ctx.batches():
            weights = await ctx.recv(Weights)
            gradient = await ctx.compute(model.gradient, weights, batch)
            ctx.send(own_replica, gradient.push(0))

    async def replica(self, ctx: Context, replica: Replica) -> None:
        """Answer neighbours at once. When a gradient arrives, average with a neighbour, then apply it.

        Only the replicas of one side send requests to neighbours.
        """
        workers, replicas = ctx.peers("worker"), ctx.peers("replica")
        me, colour = replicas.index(ctx.name), two_colouring(self.graph, len(replicas))
        partners = [replicas[i] for i in neighbours(self.graph, len(replicas))[me] if colour[i] != colour[me]]
        async for request in ctx.inbox(Push, Pull, Mix):
            if isinstance(request, Mix):
                self._average(replica, workers, request)
                ctx.send(request.sender, Mix(replica.values, replica.clock_of(workers)))
                continue
            if isinstance(request, Push):
                replica.count_step()
                if colour[me] == 0 and partners:
                    partner = partners[ctx.rng.integers(len(partners))]
                    ctx.send(partner, Mix(replica.values, replica.clock_of(workers)))
                    answer = await ctx.recv(Mix, sender=partner)
                    replica.assign(answer.values, workers, answer.clock)
                await ctx.compute(replica.apply, request, self.learning_rate)
            ctx.send(request.sender, replica.weights())

    @staticmethod
    def _average(replica: Replica, workers: tuple[str, ...], other: Mix) -> None:
        """Replace the replica by the mean of it and the other replica."""
        clock = [max(steps) for steps in zip(replica.clock_of(workers), other.clock)]
        replica.assign(replica.weighted_mean([other.values], (0.5, 0.5)), workers, clock)
