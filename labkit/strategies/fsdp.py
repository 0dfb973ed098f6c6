"""Fully sharded data parallel: every worker has separate data, and 1/N of the parameters and optimizer state of every layer.

    worker r: forever: for each layer:              w <- all-gather(w_r);  x <- f(w, x);         forget w
                       for each layer, in reverse:  w <- all-gather(w_r);  g, dx <- its backward;  forget w
                                                    g_r <- reduce-scatter(g) / N;                  forget g
                       w_r <- w_r - rate * g_r

The results are bitwise equal to those of data parallelism with a ring all-reduce. The memory for parameters, gradients and
optimizer state is divided by N; in addition, one layer at a time is gathered. The price is communication: FSDP moves 3(N-1)/N
of the model per step, an all-reduce 2(N-1)/N, because FSDP gathers the weights a second time for the backward pass. Gradients
are not accumulated over mini-batches: without a reduce-scatter for each, every worker would have to store a whole gradient.

Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models", 2020 (stage 3); Zhao et
al., "PyTorch FSDP: experiences on scaling fully sharded data parallel", 2023.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from ..errors import BadInput
from ..nn.index_sets import Boxes
from ..problem import Problem
from ..roles.collectives import all_gather, reduce_scatter
from ..roles.context import Context
from ..roles.layout import ClusterShape, Layout, shard_slices
from ..roles.messages import Chunk, Message
from ..roles.model_parallel.model_part import model_parallel_layout
from ..roles.model_parallel.partitioning import stages_of
from ..roles.model_parallel.schedules import BACKWARD, FORWARD, Work
from ..roles.model_parallel.stages import ShardedLayers
from ..roles.shard import Shard
from ..roles.standard_layouts import refuse_servers
from .base import Strategy


@dataclass(frozen=True, kw_only=True)
class FSDP(Strategy):
    """Each worker stores 1/N of every layer and of its optimizer state; whole layers are gathered when they are needed.

    See Also
    --------
    RingAllReduce : Every worker stores the whole model; fewer bytes are sent.
    Hybrid : Replicas of a split model.

    Examples
    --------
    In every step each of N workers sends 3(N-1)/N of the model, one and a half times as much as in an all-reduce.

    >>> problem = lk.Problem("moons")
    >>> run = lk.train(problem, lk.FSDP(), lk.SimulatedCluster(workers=4), lk.Budget(updates=100)).wait()
    >>> sent = run.summary()["bytes_sent"]["worker"]["training"]
    >>> model = problem.objective().start(seed=0).nbytes
    >>> print(f"{sent / (100 * 4 * model):.2f}")
    2.25
    """

    messages: ClassVar[tuple[type[Message], ...]] = (Chunk,)
    uses_servers: ClassVar[bool] = False
    summary: ClassVar[str] = "data parallel; each worker stores 1/N of the parameters and of the optimizer state"
    description: ClassVar[str] = "fully sharded: every worker has 1/N of everything."

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clip_norm is not None:
            raise BadInput(
                f"FSDP: clip_norm={self.clip_norm:g} needs the length of a worker's whole gradient, and each layer's "
                "is added up and forgotten before the next one's is known; allowed: None, or use RingAllReduce."
            )

    def one_update(self) -> str:
        """Return the definition of an update."""
        return "the mean of one gradient of every worker"

    def mean_staleness(self, workers: int) -> float | None:
        """Return 0, because all workers take each step together."""
        return 0.0

    def layout(self, problem: Problem, cluster: ClusterShape) -> Layout:
        """Assign to worker r chunk r of every layer and share r of the data."""
        refuse_servers(self, cluster)
        n, stages = cluster.workers, stages_of(problem.objective(), self.name)
        layers = [(stage.slice.start, shard_slices(stage.size, n)) for stage in stages]
        parts = [Boxes((at, 1, own[r].stop, own[r].start, own[r].stop) for at, own in layers) for r in range(n)]
        return model_parallel_layout(self, parts, [partial(ShardedLayers, n)] * n, own_data=True)

    async def worker(self, ctx: Context, layers: ShardedLayers, shard: Shard) -> None:
        """Gather and compute each layer, forward and backward; then step on the worker's chunks.

        In the backward pass, the gradient of each layer is reduce-scattered.
        """
        n = len(ctx.peers("worker"))
        for batch in ctx.batches():
            layers.begin(batch)
            mine = shard.weights()
            values: np.ndarray | None = batch.x
            for work in [Work(FORWARD, 0, i) for i in range(len(layers.chunks))]:
                whole = await all_gather(ctx, layers.gather_buffer(work.chunk, mine.values))
                values = await ctx.compute(layers.forward, whole, work, values, cost=layers.cost(work))
            values = None  # backward begins with the loss
            for work in [Work(BACKWARD, 0, i) for i in reversed(range(len(layers.chunks)))]:
                whole = await all_gather(ctx, layers.gather_buffer(work.chunk, mine.values))
                out = layers.gather_buffer(work.chunk)
                values = await ctx.compute(layers.backward, whole, work, values, out, cost=layers.cost(work))
                await reduce_scatter(ctx, out)
                layers.store_chunk(work.chunk, out)
            gradient = layers.gradient(mine)
            gradient.of_all_workers(gradient.values, n)
            await ctx.compute(shard.apply, gradient, self.learning_rate)
