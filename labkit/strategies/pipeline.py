"""Pipeline: the layers are cut into stages, and micro-batches flow through them.

    stage k: forever: cut the mini-batch into M micro-batches; in the schedule's order:
                 forward:  take x from stage k-1;  y <- f(w_k, x);  send y to stage k+1
                 backward: take dy from stage k+1; g_k <- g_k + dy df/dw_k;  send dy df/dx to stage k-1
             w_k <- w_k - rate * g_k                                       (all done: the pipeline is empty, a flush)

The results are those of one process, because stages determine only where a layer is computed. No worker holds the whole model.
Neighbouring stages send each other activations and their derivatives. The price is the bubble: stages are idle while the
pipeline fills and empties, which is (P-1)/(M+P-1) of the time with P equal stages.

`order` is the schedule of the stages. With "gpipe" a stage stores the activations of all M micro-batches, with "1f1b" those of
at most P-k. "interleaved" and "zb-h1" have a smaller bubble: "interleaved" gives each stage `chunks` pieces of the network, at
the cost of more messages; "zb-h1" defers the gradients of the weights, for which no other stage waits.

The orders are in `roles/model_parallel/schedules.py`, the computation of a stage in `roles/model_parallel/stages.py`.

Huang et al., "GPipe", NeurIPS 2019; Narayanan et al., "PipeDream", SOSP 2019 (1F1B), and "Efficient large-scale language
model training on GPU clusters using Megatron-LM", SC 2021 (interleaved); Qi et al., "Zero bubble pipeline parallelism",
ICLR 2024.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import BadInput
from ..options import option
from ..problem import Problem
from ..roles.context import Context
from ..roles.layout import ClusterShape, Layout
from ..roles.messages import Chunk, Message
from ..roles.model_parallel.model_part import clip_by_global_norm, model_parallel_layout
from ..roles.model_parallel.partitioning import pipeline_parts
from ..roles.model_parallel.schedules import SCHEDULES
from ..roles.model_parallel.stages import Activation, Delta, PipelineStage, pipeline_pass
from ..roles.shard import Shard
from ..roles.standard_layouts import refuse_servers
from .base import Strategy


@dataclass(frozen=True, kw_only=True)
class Pipeline(Strategy):
    """Each worker holds some layers, through which micro-batches flow forward and backward. The price is the bubble.

    See Also
    --------
    PipeDream : Never empties the pipeline; gradients are stale.
    TensorParallel : Divides every layer among the workers.
    Hybrid : Replicas of a split model.

    Examples
    --------
    The gradient of a mini-batch takes 0.1 s on one worker. With more micro-batches, the stages overlap more, and the bubble is
    smaller. Without a bubble, a step would take 0.032 s, the work of the largest stage.

    >>> problem = lk.Problem("digits", hidden=(64, 64, 64), timing_only=True)
    >>> cluster = lk.SimulatedCluster(workers=4, compute=0.1)
    >>> for m in (1, 4, 16):
    ...     run = lk.train(problem, lk.Pipeline(micro_batches=m), cluster, lk.Budget(updates=20)).wait()
    ...     print(f"{m} micro-batches: {run.summary()['seconds'] / 20:.3f} s")
    1 micro-batches: 0.100 s
    4 micro-batches: 0.048 s
    16 micro-batches: 0.036 s
    """

    micro_batches: int = option(4, low=1, high=100_000, help="pieces that flow through the stages one behind the other")
    order: str = option(
        "1f1b", choices=tuple(SCHEDULES), help="the stages' schedule: in which order each does its work"
    )
    chunks: int = option(2, low=1, high=1000, help="pieces of the network a stage has, if interleaved")
    stages: int | None = option(None, low=1, high=100_000, help="None: as many as workers")

    messages: ClassVar[tuple[type[Message], ...]] = (Activation, Delta, Chunk)
    uses_servers: ClassVar[bool] = False
    summary: ClassVar[str] = (
        "layers are split over the workers, micro-batches flow through them; the price is the bubble"
    )
    suggested_problem: ClassVar[dict[str, Any]] = {"hidden": (64, 64, 64)}
    description: ClassVar[str] = "pipeline: layers are split over the workers, micro-batches flow through."

    def one_update(self) -> str:
        """Return the definition of an update."""
        return "one gradient of one mini-batch, every stage's part of it"

    def mean_staleness(self, workers: int) -> float | None:
        """Return 0, because the pipeline is empty when the step is taken."""
        return 0.0

    def layout(self, problem: Problem, cluster: ClusterShape) -> Layout:
        """Assign stage k to worker k. A stage consists of neighbouring layers; all stages have about the same work."""
        refuse_servers(self, cluster)
        if self.stages not in (None, cluster.workers):
            raise BadInput(
                f"Pipeline(stages={self.stages}) with workers={cluster.workers}: a worker is a stage; allowed: "
                f"{cluster.workers} or None, or replicas of a pipeline, as Hybrid(shape='2x2')."
            )
        chunks = self.chunks if self.order == "interleaved" else 1
        parts = pipeline_parts(self, problem, cluster.workers, self.order, chunks, self.micro_batches)
        return model_parallel_layout(self, *parts)

    async def worker(self, ctx: Context, stage: PipelineStage, shard: Shard) -> None:
        """Process one mini-batch after another with the other stages, and take a step after each."""
        stages = len(ctx.peers("worker"))
        order = SCHEDULES[self.order](stages, self.micro_batches, stage.index, self.chunks)
        for batch in ctx.batches():
            gradient = await pipeline_pass(ctx, stage, shard.weights(), batch, order)
            await clip_by_global_norm(ctx, gradient, self.clip_norm, "worker")
            await ctx.compute(shard.apply, gradient, self.learning_rate)
