"""Hybrid parallelism: replicas of a split model. The workers of a replica share the model; the replicas share the data.

    worker (i, k), part k of replica i:
        forever: g_k <- its part of the gradient, from one pass of replica i's next mini-batch (pipeline or tensor)
                 between = "all-reduce": add up g_k over all parts k;  w_k <- w_k - rate * mean(g_k)
                 between = "server":     send g_k to server k, which waits for all replicas' and steps;  receive w_k

A model that is too big for one machine is split over a few nearby machines; the remaining machines hold replicas of it. The
shape "RxP" means R replicas of P parts. The results are those of R data-parallel workers with separate batches. Between
replicas, each worker exchanges only the gradient of its part, 1/P of the model.

Narayanan et al., "Efficient large-scale language model training on GPU clusters using Megatron-LM", 2021; for servers
between replicas that are split, Dean et al., "Large scale distributed deep networks", 2012.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..data import Batch
from ..errors import BadInput
from ..options import option
from ..problem import Problem
from ..roles.collectives import ALL_REDUCE, all_reduce
from ..roles.context import Context
from ..roles.gates import first_pushes
from ..roles.gradient import Gradient
from ..roles.layout import ClusterShape, Layout
from ..roles.messages import Chunk, Message, Pull, Push, Weights
from ..roles.model_parallel.model_part import clip_by_global_norm, mean_of_pushes, model_parallel_layout
from ..roles.model_parallel.partitioning import pipeline_parts, replicas_and_parts
from ..roles.model_parallel.schedules import SCHEDULES
from ..roles.model_parallel.stages import Activation, Delta, pipeline_pass
from ..roles.model_parallel.tensor_parallel import tensor_parallel_parts, tensor_pass
from ..roles.shard import Shard
from ..roles.standard_layouts import refuse_servers
from .base import Strategy


@dataclass(frozen=True, kw_only=True)
class Hybrid(Strategy):
    """Replicas of a split model with separate data. Equal parts of the replicas agree by all-reduce or by a server.

    See Also
    --------
    Pipeline : One replica, split into stages.
    TensorParallel : One replica, in which every layer is split.
    FSDP : Data parallelism with divided parameters.

    Examples
    --------
    Two replicas of two stages: an update uses two gradients, one of each replica.

    >>> cluster = lk.SimulatedCluster(workers=4)
    >>> run = lk.train("digits", lk.Hybrid(shape="2x2"), cluster, lk.Budget(updates=20)).wait()
    >>> run.summary()["updates"], run.summary()["gradients"]
    (20, 40)
    >>> run.trace.header.layout.groups
    {'replica-0': ('worker-0', 'worker-1'), 'replica-1': ('worker-2', 'worker-3'),
     'part-0': ('worker-0', 'worker-2'), 'part-1': ('worker-1', 'worker-3')}
    """

    shape: str = option("2x2", help="replicas x parts of each, as 2x2")
    split: str = option("pipeline", choices=("pipeline", "tensor"), help="how a replica is split into its parts")
    between: str = option("all-reduce", choices=("all-reduce", "server"), help="how equal parts of replicas agree")
    algorithm: str = option("ring", choices=tuple(ALL_REDUCE), help="the all-reduce between replicas")
    micro_batches: int = option(4, low=1, high=100_000, help="pieces that flow through a pipeline's stages")
    order: str = option("1f1b", choices=("1f1b", "gpipe", "zb-h1"), help="the schedule of a pipeline's stages")

    messages: ClassVar[tuple[type[Message], ...]] = (Activation, Delta, Chunk, Push, Pull, Weights)
    uses_servers: ClassVar[bool] = False
    summary: ClassVar[str] = "data-parallel replicas of a partitioned model: 2x2 is 2 replicas of 2 parts"
    description: ClassVar[str] = "hybrid: replicas of a split model."

    def one_update(self) -> str:
        """Return the definition of an update."""
        return "the mean of one gradient of every replica"

    def mean_staleness(self, workers: int) -> float | None:
        """Return 0, because all workers take each step together."""
        return 0.0

    def layout(self, problem: Problem, cluster: ClusterShape) -> Layout:
        """Assign part k of replica i to worker i x P + k, and part k to server k, if there are servers."""
        replicas, pieces = replicas_and_parts(self.name, self.shape, cluster.workers)
        served = self.between == "server"
        if not served:
            refuse_servers(self, cluster)
        elif cluster.servers not in (None, pieces):
            raise BadInput(f"Hybrid has a server for each part, {pieces}, not {cluster.servers}; leave servers out.")
        if self.split == "pipeline":
            made = pipeline_parts(self, problem, pieces, self.order, micro_batches=self.micro_batches)
        else:
            made = tensor_parallel_parts(self, problem, pieces)
        return model_parallel_layout(self, *made, replicas=replicas, served=served)

    async def server(self, ctx: Context, shard: Shard) -> None:
        """Collect one push of each replica, take one step, send the weights to all replicas."""
        workers = ctx.peers(f"part-{shard.index}")
        while True:
            pushes = await first_pushes(ctx, shard, len(workers))
            await ctx.compute(shard.apply, mean_of_pushes(pushes), self.learning_rate)
            for worker in workers:
                ctx.send(worker, shard.weights())

    async def worker(self, ctx: Context, piece: Any, shard: Shard | None = None) -> None:
        """Process one mini-batch with the other parts of the replica, then step together with the other replicas.

        The workers that have the same part agree on its gradient.
        """
        mine, server = f"part-{piece.index}", f"server-{piece.index}"
        if shard is None:
            ctx.send(server, Pull())
        weights = shard.weights() if shard is not None else await ctx.recv(Weights)
        for batch in ctx.batches():
            gradient = await self._one_pass(ctx, piece, weights, batch)
            await clip_by_global_norm(ctx, gradient, self.clip_norm, piece.group)
            if shard is None:
                ctx.send(server, gradient.push(0))
                weights = await ctx.recv(Weights)
            else:
                total = await all_reduce(ctx, gradient.values, mine, self.algorithm)
                await ctx.compute(shard.apply, gradient.of_all_workers(total, len(ctx.peers(mine))), self.learning_rate)
                weights = shard.weights()

    async def _one_pass(self, ctx: Context, piece: Any, weights: Weights, batch: Batch) -> Gradient:
        """Compute this part of the gradient of the replica's mini-batch."""
        if self.split == "tensor":
            return await tensor_pass(ctx, piece, weights, batch)
        order = SCHEDULES[self.order](len(ctx.peers(piece.group)), self.micro_batches, piece.index)
        return await pipeline_pass(ctx, piece, weights, batch, order)
