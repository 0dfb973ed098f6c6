"""Synchronous parameter server: wait for all workers, take one step.

    server: forever: receive g_1 ... g_N, one from each worker;  w <- w - rate * mean(g);  send w to all
    worker: forever: receive w;  g <- gradient of the loss on the next mini-batch at w;  send g

N workers with batches of b samples are equivalent to one process with batches of N*b samples, and no gradient is stale. The
price is waiting: a step takes as long as its slowest worker. Gradients are averaged, or summed with `reduce="sum"`, in the
order of the workers, so that the result does not depend on the order of arrival. A sum takes a step N times as long. That is
the linear scaling rule, with which N workers learn about as much per sample as one, if the rate increases slowly at the start
(`schedule="warmup:50"`). Weight decay is not scaled. With the partition `GlobalBatch`, the batch of a step does not grow with
N, and the mean is right. If a worker is lost, the other workers wait until it is restarted (`on_loss="wait"`), or a step is the
mean of the gradients of the remaining workers (`on_loss="continue"`).

With `accumulate=k`, a worker sends the mean gradient of k mini-batches. A step is that of batches of k*b samples, which need not
fit into memory at once, and there is 1/k of the communication per sample. The price is k times fewer steps per sample.

Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014; Chen et al., "Revisiting
distributed synchronous SGD", 2016; Goyal et al., "Accurate, large minibatch SGD", 2017 (linear scaling).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..options import option
from ..roles.context import Context
from ..roles.gates import all_pushes
from ..roles.gradient import Model
from ..roles.servers import pull, push_pull
from ..roles.shard import Shard
from .base import AccumulatedGradients, ServerStrategy


@dataclass(frozen=True, kw_only=True)
class SyncPS(ServerStrategy, AccumulatedGradients):
    """Wait for a gradient of every worker, then take one step. No staleness; the slowest worker sets the pace.

    See Also
    --------
    AsyncPS : Does not wait; gradients are stale.
    BackupWorkers : Does not wait for the last workers.
    RingAllReduce : The same step without a server.

    Examples
    --------
    A worker that is 10 times slower makes every step 10 times slower. No gradient is stale.

    >>> slow = lk.SimulatedCluster(workers=4, slow={"worker-1": 10})
    >>> run = lk.train("moons", lk.SyncPS(), slow, lk.Budget(seconds=2)).wait()
    >>> summary = run.summary()
    >>> summary["updates_per_second"], summary["staleness"]["max"]  # 100 updates without the straggler
    (10.0, 0)
    """

    reduce: str = option(
        "mean", choices=("mean", "sum"), help="average the workers' gradients, or add them up (the linear scaling rule)"
    )

    summary: ClassVar[str] = "parameter server, all wait for the slowest; no staleness"
    description: ClassVar[str] = "synchronous: all wait for the slowest."

    def mean_staleness(self, workers: int) -> float | None:
        """Return 0, because all workers take each step together."""
        return 0.0

    def one_update(self) -> str:
        """Return the definition of an update: one gradient of every worker, averaged or summed."""
        return f"the {self.reduce} of one gradient of every worker{self.gradient_text}"

    async def server(self, ctx: Context, shard: Shard) -> None:
        """Collect one gradient of every worker, take one step, send the weights to all workers."""
        while True:
            pushes = await all_pushes(ctx, shard)
            await ctx.compute(shard.apply, pushes, self.learning_rate, self.reduce)
            for push in pushes:
                ctx.send(push, shard.weights())

    async def worker(self, ctx: Context, model: Model) -> None:
        """Compute on the weights received, send the gradient, receive newer weights."""
        weights = await pull(ctx)
        for batch in ctx.batches():
            gradient = await ctx.compute(model.gradient, weights, batch, self.accumulate)
            if gradient.complete:
                weights = await push_pull(ctx, gradient)
