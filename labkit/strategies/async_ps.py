"""Asynchronous parameter server: apply each gradient the moment it arrives.

    server: forever: receive g from any worker;  w <- w - rate * g;  send w back to that worker
    worker: forever: receive w;  g <- gradient of the loss on the next mini-batch at w;  send g

Nobody waits for anybody else, so a slow worker costs only its own share. The price is staleness: by the time a
gradient arrives, the others have moved the weights on, N-1 times on average, whoever is slow. Each gradient is applied
at the full rate (a synchronous server averages N of them into one step). To talk less often, a worker may push the sum
of `n_push` gradients, and fetch after `n_fetch` steps on weights of its own.

Dean et al., "Large scale distributed deep networks" (Downpour SGD), NIPS 2012; Li et al., "Scaling distributed machine
learning with the parameter server", OSDI 2014.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..knobs import knob
from ..roles.context import Context
from ..roles.local import Local
from ..roles.messages import Ack, Message, Pull, Push
from ..roles.servers import pull, push, push_pull
from .base import AsynchronousServer

__all__ = ["AsyncPS"]


@dataclass(frozen=True, kw_only=True)
class AsyncPS(AsynchronousServer):
    """Apply each gradient the moment it arrives. Nobody waits; the price is staleness."""

    fused: bool = knob(True, help="the reply to a push is the newest weights; False: an acknowledgement, then a pull")
    n_push: int = knob(1, low=1, high=10_000, help="steps that a worker makes by itself between two pushes (Downpour)")
    n_fetch: int = knob(1, low=1, high=10_000, help="steps that a worker makes by itself between two pulls (Downpour)")

    messages: ClassVar[tuple[type[Message], ...]] = (*AsynchronousServer.messages, Ack)
    summary: ClassVar[str] = "parameter server, nobody waits; gradients are stale"
    in_words: ClassVar[str] = "asynchronous: nobody waits."

    @property
    def one_operation(self) -> bool:
        """Whether a push and the pull that follows are one operation at the server."""
        return self.fused and self.n_push == self.n_fetch == 1

    def mean_staleness(self, workers: int) -> float | None:
        """N - 1: each of the others moves the weights on once, whoever is slow, if push and pull are one operation."""
        return workers - 1.0 if self.one_operation else None

    async def server(self, ctx: Context, shard: Any) -> None:
        """Whoever comes first is served first."""
        async for request in ctx.inbox(Push, Pull):
            if isinstance(request, Push):
                await ctx.compute(shard.apply, request, self.learning_rate)
            if self.one_operation or isinstance(request, Pull):
                ctx.send(request, shard.weights())  # only the sender moves on
            else:
                ctx.send(request, Ack(request.step))

    async def worker(self, ctx: Context, model: Any) -> None:
        """Compute on the weights that came, send the gradient, get newer weights."""
        weights = await pull(ctx)
        if not self.one_operation:
            return await self.downpour(ctx, model, Local(weights, self))
        for batch in ctx.batches():
            gradient = await ctx.compute(model.gradient, weights, batch)
            weights = await push_pull(ctx, gradient)

    async def downpour(self, ctx: Context, model: Any, weights: Local) -> None:
        """Step on weights of one's own; push the sum of `n_push` gradients, fetch after `n_fetch` steps."""
        for step, batch in enumerate(ctx.batches(), 1):
            gradient = await ctx.compute(model.gradient, weights, batch)
            if self.n_fetch > 1:  # else newer ones are fetched before these are used
                await ctx.compute(weights.step, gradient)
            weights.add(gradient)
            if step % self.n_push == 0:
                await push(ctx, weights.gradients())
            if step % self.n_fetch == 0:
                weights.take(await pull(ctx))
