"""Bucketed all-reduce: gradients are summed over the workers while the backward pass still computes.

    worker r: forever: forward pass on the next mini-batch at w
                       task 1: for each layer, from the last to the first: g_layer <- backward pass
                               when the layers of a bucket are done: hand the bucket over to task 2
                       task 2: for each bucket, in this order: sum it over all workers by a ring all-reduce
                       w <- w - rate * g / N

A worker has two tasks: one computes, the other communicates. The gradient of the last layer is known first, so its sum is made
while the gradients of the other layers are computed. Only the all-reduce of the last bucket cannot be hidden. Layers are
collected in buckets of `bucket_size` bytes, because every all-reduce takes 2(N-1) latencies: small buckets begin early but pay
many latencies, and one bucket for the whole model is `RingAllReduce`. The workers sum all buckets in the same order, in one
stream.

A replica applies one gradient per step, after all buckets. With `accumulate=k`, the gradients of k mini-batches are averaged, and
only the backward pass of the last one overlaps with all-reduces. With `clip_norm`, the sum is clipped, because its norm is known
only at the end. There is no `codec`.

Li et al., "PyTorch distributed: experiences on accelerating data parallel training", VLDB 2020, sections 3.2 and 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..options import option, same_option
from ..problem import Problem
from ..roles.collectives import all_reduce
from ..roles.context import Context
from ..roles.gradient import Model
from ..roles.layerwise import FORWARD_COST, LayerwiseModel
from ..roles.layout import ClusterShape, Layout
from ..roles.messages import Chunk, Message
from ..roles.shard import Shard
from ..roles.standard_layouts import replica_layout
from ..roles.tasks import TaskQueue
from .base import AccumulatedGradients
from .ring_all_reduce import RingAllReduce


@dataclass(frozen=True, kw_only=True)
class BucketedAllReduce(AccumulatedGradients):
    """No server: workers sum the gradients of the last layers while they compute those of the first, as DDP does.

    See Also
    --------
    RingAllReduce : The same step, in which communication begins after the whole gradient.

    Examples
    --------
    A network with five equal layers, on a link on which the all-reduce of the model takes about as long as its gradient.

    >>> problem = lk.Problem("digits", hidden=(64, 64, 64, 64))
    >>> cluster = lk.SimulatedCluster(workers=4, bandwidth=10e6)
    >>> for strategy in (lk.RingAllReduce(), lk.BucketedAllReduce()):
    ...     summary = lk.train(problem, strategy, cluster, lk.Budget(updates=20)).wait().summary()
    ...     print(f"{strategy.name}: {summary['seconds'] / 20 * 1000:.1f} ms a step")
    RingAllReduce: 20.4 ms a step
    BucketedAllReduce: 15.9 ms a step
    """

    bucket_size: int | None = option(
        None, low=1, high=10**12, help="bytes of gradients that are summed together; None: a quarter of the model"
    )
    reduce: str = same_option(RingAllReduce, "reduce")

    messages: ClassVar[tuple[type[Message], ...]] = (Chunk,)
    uses_servers: ClassVar[bool] = False
    summary: ClassVar[str] = "no server: workers sum buckets of layers during the backward pass; no staleness"
    description: ClassVar[str] = "a ring that sums during the backward pass: all wait for the slowest."

    def one_update(self) -> str:
        """Return the definition of an update: one gradient of every worker, averaged or summed."""
        return f"the {self.reduce} of one gradient of every worker{self.gradient_text}"

    def mean_staleness(self, workers: int) -> float | None:
        """Return 0, because all workers take each step together."""
        return 0.0

    def layout(self, problem: Problem, cluster: ClusterShape) -> Layout:
        """Return workers with a replica of the whole model each, and a chief, which evaluates the first replica."""
        return replica_layout(self, problem, cluster)

    async def worker(self, ctx: Context, model: Model, replica: Shard) -> None:
        """Compute a gradient layer by layer, sum its buckets over all workers meanwhile, take a step."""
        layers = LayerwiseModel(model)
        buckets = layers.buckets(self.bucket_size)
        for batch in ctx.batches():
            gradient = await ctx.compute(layers.forward, replica.weights(), batch, self.accumulate, cost=FORWARD_COST)
            async with ctx.tasks() as tasks:
                ready = tasks.queue()
                if gradient.complete:
                    tasks.start(sum_buckets(ctx, gradient.values, ready, len(buckets)))
                for bucket in buckets:
                    for piece in bucket.pieces:
                        await ctx.compute(layers.backward, piece, cost=piece.cost)
                    ready.put(bucket.part)
            if gradient.complete:
                gradient.of_all_workers(gradient.values, len(ctx.peers("worker")), self.reduce)
                await ctx.compute(replica.apply, layers.clip(gradient), self.learning_rate)


async def sum_buckets(ctx: Context, values: np.ndarray, ready: TaskQueue, count: int) -> None:
    """Sum `count` buckets of `values` over all workers, in place and one after the other. `ready`: the slices of the buckets, as
    soon as they are computed.
    """
    tags = 2 * len(ctx.peers("worker"))  # of one all-reduce
    for number in range(count):
        bucket = await ready.get()
        with ctx.communication(number):  # in the trace
            await all_reduce(ctx, values[bucket], tag=number * tags)
