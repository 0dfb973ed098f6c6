"""Synchronous parameter server: wait for everybody, take one step.

    server: forever: receive g_1 ... g_N, one from each worker;  w <- w - rate * mean(g);  send w to all
    worker: forever: receive w;  g <- gradient of the loss on the next mini-batch at w;  send g

N workers with batches of b are one process with a batch of N*b: the same mathematics, no staleness. The price is
waiting: a step takes as long as its slowest worker. Gradients are averaged (`reduce="sum"` is the textbook's other
rule), and added in the order of the workers, so the sum does not depend on who arrived first. A worker that is
lost is waited for (`on_loss="wait"`), or a step is the mean of those that are there (`on_loss="continue"`).

Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014; Chen et al., "Revisiting
distributed synchronous SGD", 2016.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..knobs import knob
from ..roles.context import Context
from ..roles.gates import Round
from ..roles.messages import Joined, Left, Pull, Push
from ..roles.servers import pull, push_pull
from .base import ServerStrategy

__all__ = ["SyncPS"]


@dataclass(frozen=True, kw_only=True)
class SyncPS(ServerStrategy):
    """Wait for a gradient of every worker, then take one step. No staleness; the slowest sets the pace."""

    reduce: str = knob("mean", choices=("mean", "sum"), help="average the workers' gradients, or add them up")

    summary: ClassVar[str] = "parameter server, everybody waits for the slowest; no staleness"
    in_words: ClassVar[str] = "synchronous: everybody waits for the slowest."

    def mean_staleness(self, workers: int) -> float | None:
        """All take the same step together."""
        return 0.0

    def one_update(self) -> str:
        """One of every worker makes a step."""
        return f"the {self.reduce} of one gradient of every worker"

    async def server(self, ctx: Context, shard: Any) -> None:
        """Collect one gradient of every worker, take one step, answer all."""
        step = Round(shard)
        async for request in ctx.inbox(Push, Pull, Left, Joined):
            if isinstance(request, Pull) or (isinstance(request, Push) and not step.take(request)):
                ctx.send(request, shard.weights())
            for push in step.begin_again(ctx.peers("server")) if isinstance(request, Joined) else ():
                ctx.send(push, shard.weights())
            if step.complete(ctx.peers("worker")):
                pushes = step.pushes()
                await ctx.compute(shard.apply, pushes, self.learning_rate, self.reduce)
                for push in pushes:
                    ctx.send(push, shard.weights())  # all move on together

    async def worker(self, ctx: Context, model: Any) -> None:
        """Compute on the weights that came, send the gradient, get newer weights."""
        weights = await pull(ctx)
        for batch in ctx.batches():
            gradient = await ctx.compute(model.gradient, weights, batch)
            weights = await push_pull(ctx, gradient)
