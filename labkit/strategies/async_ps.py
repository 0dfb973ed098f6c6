"""Asynchronous parameter server: apply each gradient the moment it arrives.

    server: forever: receive g from any worker;  w <- w - rate * g;  send w back to that worker
    worker: forever: receive w;  g <- gradient of the loss on the next mini-batch at w;  send g

No worker waits for another, so a straggler reduces the throughput only by its share. The price is staleness: before the
gradient of a worker arrives, the other workers have changed the weights, N-1 times on average, even if one of the workers is
slow. Each gradient is applied at the full rate; a synchronous server averages N gradients into one step.

Dean et al., "Large scale distributed deep networks", NIPS 2012; Li et al., "Scaling distributed machine learning with the
parameter server", OSDI 2014.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..roles.context import Context
from ..roles.gradient import Model
from ..roles.messages import Pull, Push
from ..roles.servers import pull, push_pull
from ..roles.shard import Shard
from .base import AccumulatedGradients, AsynchronousServer


@dataclass(frozen=True, kw_only=True)
class AsyncPS(AsynchronousServer, AccumulatedGradients):
    """Apply each gradient the moment it arrives. No worker waits; the price is staleness.

    See Also
    --------
    SyncPS : Waits for all workers; no gradient is stale.
    SSP : Bounds the lead of fast workers.
    Downpour : Pushes and fetches only every few steps.

    Examples
    --------
    With N equally fast workers, a gradient is N - 1 updates old when it is applied.

    >>> run = lk.train("moons", lk.AsyncPS(), lk.SimulatedCluster(workers=4), lk.Budget(updates=500)).wait()
    >>> print(f"mean staleness {run.summary()['staleness']['mean']:.2f}")
    mean staleness 2.99

    A worker that is 10 times slower reduces the throughput only by its own share.

    >>> slow = lk.SimulatedCluster(workers=4, slow={"worker-1": 10})
    >>> run = lk.train("moons", lk.AsyncPS(), slow, lk.Budget(seconds=2)).wait()
    >>> run.summary()["updates_per_second"]  # 400 without the straggler
    310.0
    """

    summary: ClassVar[str] = "parameter server without waiting; gradients are stale"
    description: ClassVar[str] = "asynchronous: no worker waits."

    def mean_staleness(self, workers: int) -> float | None:
        """Return N - 1: each other worker changes the weights once, on average, between a worker's read and its next push."""
        return workers - 1.0

    async def server(self, ctx: Context, shard: Shard) -> None:
        """Apply each gradient, and answer its worker."""
        async for request in ctx.inbox(Push, Pull):
            if isinstance(request, Push):
                await ctx.compute(shard.apply, request, self.learning_rate)
            ctx.send(request, shard.weights())

    async def worker(self, ctx: Context, model: Model) -> None:
        """Compute on the weights received, send the gradient, receive newer weights."""
        weights = await pull(ctx)
        for batch in ctx.batches():
            gradient = await ctx.compute(model.gradient, weights, batch, self.accumulate)
            if gradient.complete:
                weights = await push_pull(ctx, gradient)
