"""Backup workers: start b workers more than a step needs, and do not wait for the last b workers.

    server: forever: receive g from the first N of N + b workers, computed on the present w;  late ones are dropped
                     w <- w - rate * mean(g);  send w to all N + b
    worker: forever: receive w;  g <- gradient of the loss on the next mini-batch at w;  send g
                     newer w arrives before g is done: give g up and begin again at once

No gradient is stale, and a step takes as long as the N-th fastest of N + b workers, not as the slowest. With exponential times
of mean 1, the mean time of a step is H_(N+b) - H_b; it is H_(N+b) if the server waits for all N + b workers (H_n = 1 + 1/2 +
... + 1/n). The price is the lost work of b workers; also, the samples of workers that are always late are hardly ever used. On
Dask a worker cannot be interrupted while it computes. It receives the newer weights when it has finished, so it is also late
for the next step. (A paced worker receives them at once.)

Chen et al., "Revisiting distributed synchronous SGD", 2016.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..errors import BadInput
from ..options import option
from ..problem import Problem
from ..roles.context import Context
from ..roles.gates import first_pushes
from ..roles.gradient import Model
from ..roles.layout import ClusterShape, Layout
from ..roles.messages import Weights
from ..roles.servers import NewestWeights, post
from ..roles.shard import Shard
from .base import ServerStrategy


@dataclass(frozen=True, kw_only=True)
class BackupWorkers(ServerStrategy):
    """Synchronous steps that do not wait for the last b workers. No gradient is stale; the work of these workers is lost.

    See Also
    --------
    KSync : The same rule with K = N - b.
    SyncPS : Waits for all workers.

    Examples
    --------
    One backup worker hides one straggler. Its gradients are cancelled.

    >>> slow = lk.SimulatedCluster(workers=4, slow={"worker-1": 10})
    >>> run = lk.train("moons", lk.BackupWorkers(b=1), slow, lk.Budget(seconds=2)).wait()
    >>> summary = run.summary()
    >>> summary["updates_per_second"], summary["ledger"]["dropped"]
    (100.0, {'cancelled': 200})
    """

    b: int = option(1, low=0, high=100_000, help="workers that a step does not wait for")
    give_up: bool = option(True, help="a late worker begins again at once; False: it finishes its gradient first")

    summary: ClassVar[str] = "synchronous server that does not wait for the last b workers"
    description: ClassVar[str] = "synchronous, but the last workers are not waited for."

    def mean_staleness(self, workers: int) -> float | None:
        """Return 0, because only gradients of the present version are applied."""
        return 0.0

    def one_update(self) -> str:
        """Return the definition of an update: the mean of the first gradients of different workers."""
        return f"the mean of one gradient of all workers but the last {self.b}"

    def layout(self, problem: Problem, cluster: ClusterShape) -> Layout:
        """Return servers, workers and a chief. Raises `BadInput` if `b` is not less than the number of workers."""
        if self.b >= cluster.workers:
            raise BadInput(
                f"BackupWorkers(b={self.b}) with workers={cluster.workers}: b is at most {cluster.workers - 1} here."
            )
        return super().layout(problem, cluster)

    async def server(self, ctx: Context, shard: Shard) -> None:
        """Collect the first gradients of the step, apply their mean, send the weights to all workers."""
        needed = max(1, len(ctx.peers("worker")) - self.b)
        while True:
            pushes = await first_pushes(ctx, shard, needed)
            await ctx.compute(shard.apply, pushes, self.learning_rate)
            for worker in ctx.peers("worker"):
                ctx.send(worker, shard.weights())

    async def worker(self, ctx: Context, model: Model) -> None:
        """Compute on the newest weights; begin again when newer ones arrive."""
        newest = NewestWeights(ctx)
        weights = await newest.pull()
        for batch in ctx.batches():
            gradient = await ctx.compute(model.gradient, weights, batch, unless=Weights if self.give_up else None)
            if gradient is not None:
                post(ctx, gradient)
            weights = await newest.weights()
