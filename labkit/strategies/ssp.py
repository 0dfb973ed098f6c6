"""Stale synchronous parallel: run ahead, but not further than s iterations ahead of the slowest.

    server: forever: receive g from any worker;  w <- w - rate * g;  clock(worker) += 1
                     send w to every worker that waits with  clock(worker) - slowest clock <= s
    worker: forever: receive w;  g <- gradient of the loss on the next mini-batch at w;  send g

The gate delays the server's reply, never the push: gradients are applied as they come. At iteration i a worker sees
every worker's updates up to iteration i - s - 1, and possibly later ones. s = 0 is synchronous (each gradient at the full
rate: the sum, not the mean); an unbounded s is asynchronous. In between, s compensates for short delays of a worker, not
for a permanent straggler. Every shard has separate clocks.

Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server", NIPS 2013.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..options import option
from ..roles.context import Context
from ..roles.gates import Gate
from ..roles.messages import Joined, Left, Pull, Push
from ..roles.servers import pull, push_pull
from .base import AsynchronousServer

__all__ = ["SSP"]


@dataclass(frozen=True, kw_only=True)
class SSP(AsynchronousServer):
    """A worker may be at most s iterations ahead of the slowest; within that, no worker waits."""

    s: int = option(3, low=0, high=1_000_000, live=True, help="iterations that a worker may be ahead of the slowest")

    summary: ClassVar[str] = "parameter server, no worker more than s iterations ahead of the slowest"
    description: ClassVar[str] = "bounded staleness: a worker waits when it is too far ahead of the slowest."

    async def server(self, ctx: Context, shard: Any) -> None:
        """Apply each gradient; answer each worker when it may begin its next iteration."""
        gate = Gate(ctx)
        async for request in ctx.inbox(Push, Pull, Left, Joined):
            if isinstance(request, Push):
                await ctx.compute(shard.apply, request, self.learning_rate)
            for admitted in gate.admit(request, self.s):
                ctx.send(admitted, shard.weights())

    async def worker(self, ctx: Context, model: Any) -> None:
        """Compute on the weights received, send the gradient, receive newer weights."""
        weights = await pull(ctx)
        for batch in ctx.batches():
            gradient = await ctx.compute(model.gradient, weights, batch)
            weights = await push_pull(ctx, gradient)
