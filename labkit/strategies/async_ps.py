"""Asynchronous parameter server: apply each gradient the moment it arrives.

    server: forever: receive g from any worker;  w <- w - rate * g;  send w back to that worker
    worker: forever: receive w;  g <- gradient of the loss on the next mini-batch at w;  send g

Nobody waits for anybody else, so a slow worker costs only its own share. The price is staleness: by the time a
gradient arrives, the others have moved the weights on, N-1 times on average, whoever is slow. Each gradient is applied
at the full rate (a synchronous server averages N of them into one step).

Dean et al., "Large scale distributed deep networks" (Downpour SGD), NIPS 2012; Li et al., "Scaling distributed machine
learning with the parameter server", OSDI 2014.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..knobs import knob
from ..roles.context import Context
from ..roles.messages import Ack, Message, Pull, Push, Weights
from ..roles.servers import pull, push, push_pull
from .base import Strategy

__all__ = ["AsyncPS"]


@dataclass(frozen=True)
class AsyncPS(Strategy):
    """Apply each gradient the moment it arrives. Nobody waits; the price is staleness."""

    learning_rate: float = knob(0.1, low=1e-6, high=10.0, log=True, live=True, help="length of a step")
    fused: bool = knob(True, help="the reply to a push is the newest weights; False: an acknowledgement, then a pull")

    messages: ClassVar[tuple[type[Message], ...]] = (Push, Pull, Weights, Ack)
    summary: ClassVar[str] = "parameter server, nobody waits; gradients are stale"

    def mean_staleness(self, workers: int) -> float | None:
        """N - 1: each of the others moves the weights on once, whoever is slow, if push and pull are one operation."""
        return workers - 1.0 if self.fused else None

    async def server(self, ctx: Context, shard: Any) -> None:
        """Whoever comes first is served first."""
        async for request in ctx.inbox(Push, Pull):
            if isinstance(request, Push):
                await ctx.compute(shard.apply, request, self.learning_rate)
            if self.fused or isinstance(request, Pull):
                ctx.send(request.sender, shard.weights())  # only the sender moves on
            else:
                ctx.send(request.sender, Ack(request.step))

    async def worker(self, ctx: Context, model: Any) -> None:
        """Compute on the weights that came, send the gradient, get newer weights."""
        weights = await pull(ctx)
        for batch in ctx.batches():
            gradient = await ctx.compute(model.gradient, weights, batch)
            if self.fused:
                weights = await push_pull(ctx, gradient)
            else:
                await push(ctx, gradient)
                weights = await pull(ctx)
