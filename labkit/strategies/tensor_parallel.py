"""Tensor parallelism: every layer is split over all workers, which work on the same mini-batch at the same time.

    worker r: forever: for each pair of layers:              z_r <- f(x A_r) B_r;            z <- all-reduce(z_r)
                       for each pair of layers, in reverse:  dx_r <- df/dx of it, times dz;  dx <- all-reduce(dx_r)
                       w_r <- w_r - rate * g_r

Of each pair of layers, worker r has some columns of the first matrix, A_r, and the rows of the second matrix with the same
numbers, B_r. The products of the parts sum to the product of the whole matrices, so one all-reduce forward and one backward per
pair are sufficient. (The dx of the first pair is not needed; it is summed as if an embedding preceded the pair.) No worker
holds the whole model, and there are no stages that wait for each other. The price: the activations of the whole mini-batch are
communicated during the computation, 2(N-1)/N of them in every all-reduce, which requires fast links.

The arithmetic is in `nn/split.py`, the pass in `roles/model_parallel/tensor_parallel.py`.

Shoeybi et al., "Megatron-LM: training multi-billion parameter language models using model parallelism", 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..problem import Problem
from ..roles.context import Context
from ..roles.layout import ClusterShape, Layout
from ..roles.messages import Chunk, Message
from ..roles.model_parallel.model_part import clip_by_global_norm, model_parallel_layout
from ..roles.model_parallel.tensor_parallel import TensorRank, tensor_parallel_parts, tensor_pass
from ..roles.shard import Shard
from ..roles.standard_layouts import refuse_servers
from .base import Strategy


@dataclass(frozen=True, kw_only=True)
class TensorParallel(Strategy):
    """Every layer is split over the workers, which sum their partial products twice for each pair of layers.

    See Also
    --------
    Pipeline : Divides the layers among the workers, but no layer.
    Hybrid : Replicas of a split model.

    Examples
    --------
    The workers divide the work on one mini-batch, so the model is that of one process, up to rounding.

    >>> for workers in (1, 4):
    ...     cluster = lk.SimulatedCluster(workers=workers)
    ...     summary = lk.train("moons", lk.TensorParallel(), cluster, lk.Budget(updates=50)).wait().summary()
    ...     print(f"{summary['seconds']:.3f} s, loss {summary['loss']:.4f}")
    0.500 s, loss 0.2570
    0.125 s, loss 0.2570
    """

    messages: ClassVar[tuple[type[Message], ...]] = (Chunk,)
    uses_servers: ClassVar[bool] = False
    summary: ClassVar[str] = "every layer is split over the workers; activations are summed by all-reduce"
    description: ClassVar[str] = "tensor parallel: every layer is split over the workers."

    def one_update(self) -> str:
        """Return the definition of an update."""
        return "one gradient of one mini-batch, every worker's part of it"

    def mean_staleness(self, workers: int) -> float | None:
        """Return 0, because all workers take each step together."""
        return 0.0

    def layout(self, problem: Problem, cluster: ClusterShape) -> Layout:
        """Assign rank r to worker r. A rank has columns and rows of every pair of layers."""
        refuse_servers(self, cluster)
        return model_parallel_layout(self, *tensor_parallel_parts(self, problem, cluster.workers))

    async def worker(self, ctx: Context, rank: TensorRank, shard: Shard) -> None:
        """Process each mini-batch together with the other workers, then take a step on this worker's part."""
        for batch in ctx.batches():
            gradient = await tensor_pass(ctx, rank, shard.weights(), batch)
            await clip_by_global_norm(ctx, gradient, self.clip_norm, "worker")
            await ctx.compute(shard.apply, gradient, self.learning_rate)
