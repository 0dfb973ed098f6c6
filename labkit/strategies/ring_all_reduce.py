"""Ring all-reduce: no server; the workers add up their gradients among themselves.

    worker r: forever: g <- gradient on the next mini-batch at w
                       N-1 times: send a chunk of g to the right, add the chunk from the left    (reduce-scatter)
                       N-1 times: send a finished chunk to the right, take one from the left     (all-gather)
                       w <- w - rate * g / N

Every worker holds a replica of the weights and takes the same step, so the replicas stay bitwise equal. Each worker sends
2(N-1)/N of the model per step, which is nearly independent of the number of workers, so no link is a bottleneck like that of a
single server. The price is waiting for stragglers, as with a synchronous server, and 2(N-1) messages one after the other. With
a linear `codec` (Float16, PowerSGD), the compressed gradients are summed, which have fewer bytes. With `accumulate=k`, g is the
mean gradient of k mini-batches, so there is one all-reduce for k times as many samples.

Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009; Sergeev and Del
Balso, "Horovod", 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..nn.codecs import Codec, linear_codec
from ..options import Converted, option, same_option
from ..problem import Problem
from ..roles.collectives import all_reduce
from ..roles.context import Context
from ..roles.gradient import Model
from ..roles.layout import ClusterShape, Layout
from ..roles.messages import Chunk, Message
from ..roles.shard import Shard
from ..roles.standard_layouts import replica_layout
from .base import AccumulatedGradients, ServerStrategy


@dataclass(frozen=True, kw_only=True)
class RingAllReduce(AccumulatedGradients):
    """No server: workers add up their gradients around a ring, and all take the same step.

    See Also
    --------
    HalvingDoubling : As many bytes, in fewer steps.
    SyncPS : The same step with a server.
    FSDP : Divides also the parameters and the optimizer state over the workers.

    Examples
    --------
    In every step each of N workers sends 2(N-1)/N of the model.

    >>> problem = lk.Problem("moons")
    >>> run = lk.train(problem, lk.RingAllReduce(), lk.SimulatedCluster(workers=4), lk.Budget(updates=100)).wait()
    >>> sent = run.summary()["bytes_sent"]["worker"]["training"]
    >>> model = problem.objective().start(seed=0).nbytes
    >>> sent / (100 * 4 * model)
    1.5

    Gradient accumulation: the step of 4 mini-batches of 8 samples is that of one batch of 32, for one all-reduce.

    >>> for size, k in ((32, 1), (8, 4)):
    ...     problem = lk.Problem("moons", batch_size=size)
    ...     strategy, cluster = lk.RingAllReduce(accumulate=k), lk.SimulatedCluster(workers=4, latency=0.002)
    ...     summary = lk.train(problem, strategy, cluster, lk.Budget(updates=50)).wait().summary()
    ...     print(f"loss {summary['loss']:.4f}, {summary['seconds'] / 50 * 1000:.0f} ms a step")
    loss 0.2568, 22 ms a step
    loss 0.2568, 52 ms a step
    """

    reduce: str = option(
        "mean", choices=("mean", "sum"), help="average the workers' gradients, or add them up (the linear scaling rule)"
    )
    codec: Converted[Codec | None, str] = same_option(
        ServerStrategy, "codec", help="compress messages, linear codecs only: float16, power-sgd:2"
    )

    messages: ClassVar[tuple[type[Message], ...]] = (Chunk,)
    uses_servers: ClassVar[bool] = False
    algorithm: ClassVar[str] = "ring"
    summary: ClassVar[str] = "no server: workers sum gradients around a ring; no staleness"
    description: ClassVar[str] = "a ring without a server: all wait for the slowest."

    def __post_init__(self) -> None:
        super().__post_init__()
        linear_codec(self.name, self.codec)  # rejects a codec whose messages cannot be added up

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
        """Compute a gradient, sum it over all workers, take a step."""
        for batch in ctx.batches():
            gradient = await ctx.compute(model.gradient, replica.weights(), batch, self.accumulate)
            if gradient.complete:
                total = await all_reduce(ctx, gradient.values, algorithm=self.algorithm, compressor=gradient.compressor)
                gradient.of_all_workers(total, len(ctx.peers("worker")), self.reduce)
                await ctx.compute(replica.apply, gradient, self.learning_rate)
