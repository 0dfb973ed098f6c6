"""Strategies of a user: with type annotations, and with options and plain fields."""

# pyright: strict

from dataclasses import dataclass, replace
from typing import assert_type

import labkit as lk
from labkit.roles.gradient import Model
from labkit.roles.shard import Shard


@dataclass(frozen=True)
class EverySecond(lk.Strategy):
    """Applies one of `every` gradients of each worker."""

    every: int = lk.option(2, low=1, high=100, live=True, help="gradients of which one is applied")
    why: str = lk.option("late", choices=("late", "unused"))
    limit: float | None = lk.option(None, low=0.0)
    rates: dict[str, float] = lk.option(factory=dict[str, float])
    plain: float = 0.5

    messages = (lk.Push, lk.Pull, lk.Weights)

    async def server(self, ctx: lk.Context, shard: Shard) -> None:
        async for request in ctx.inbox(lk.Push, lk.Pull):
            if isinstance(request, lk.Push):
                assert_type(request, lk.Push)
                if request.step % self.every:
                    shard.drop(request, self.why)
                else:
                    await ctx.compute(shard.apply, request, self.learning_rate)
            ctx.send(request.sender, shard.weights())

    async def worker(self, ctx: lk.Context, model: Model) -> None:
        weights = await lk.pull(ctx)
        for batch in ctx.batches():
            gradient = await ctx.compute(model.gradient, weights, batch)
            assert_type(gradient, lk.Gradient)
            newer = await ctx.recv(lk.Weights, timeout=0.0)
            assert_type(newer, lk.Weights | None)
            await ctx.sleep(0.01)
            weights = await lk.push_pull(ctx, gradient)


@dataclass(frozen=True, kw_only=True)
class Limited(lk.AsyncPS):
    """An asynchronous server with an option of its own."""

    limit: int = lk.option(3)


strategy = EverySecond(3, "unused", learning_rate=0.1, optimizer=lk.Adam())
assert_type(strategy.limit, float | None)
assert_type(replace(strategy, learning_rate=0.2), EverySecond)
lk.train("digits", Limited(limit=4, learning_rate=0.1), lk.SimulatedCluster(workers=2), lk.Budget(updates=10)).wait()
