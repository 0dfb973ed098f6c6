"""K-async and K-batch-async: a step uses K gradients, stale or not, and no gradient is cancelled.

    server: forever: receive g from any worker;  when K have come: w <- w - rate * mean(g)
                     K-async: send w to the workers of those K.    K-batch-async: send w to the worker of each g at once
    worker: forever: receive w;  g <- gradient of the loss on the next mini-batch at w;  send g

In K-async each of the K workers waits until the step has been taken, so the K gradients come from different workers. The other
workers continue on the weights that they have. In K-batch-async no worker waits. K = 1 is the asynchronous server. With a
larger K, there are fewer steps, and they are less noisy and less stale. The mean staleness of K-batch-async with P workers is
(P-1)/K updates.

Dutta et al., "Slow and stale gradients can win the race", AISTATS 2018; K-batch-async is the n-softsync of Gupta, Zhang
and Wang, "Model accuracy and runtime tradeoff in distributed deep learning", ICDM 2016.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..errors import BadInput
from ..options import option, same_option
from ..problem import Problem
from ..roles.context import Context
from ..roles.gates import Accumulator
from ..roles.gradient import Model
from ..roles.layout import ClusterShape, Layout
from ..roles.messages import Joined, Left, Pull, Push
from ..roles.servers import pull, push_pull
from ..roles.shard import Shard
from .base import AccumulatedGradients, AsynchronousServer


@dataclass(frozen=True, kw_only=True)
class KAsync(AsynchronousServer, AccumulatedGradients):
    """A step is the mean of the gradients of K workers, stale or not, which get the new weights; the others continue.

    See Also
    --------
    KBatchAsync : Several of the K gradients may be of one worker, and no worker waits.
    KSync : Cancels the gradients of the other workers.
    AsyncPS : K = 1.

    Examples
    --------
    No gradient is cancelled, and the staleness is lower than that of `AsyncPS`, which is 3.

    >>> problem = lk.Problem("moons", timing_only=True)
    >>> cluster = lk.SimulatedCluster(workers=4, compute=lk.distributions.Exponential(1.0))
    >>> run = lk.train(problem, lk.KAsync(K=2), cluster, lk.Budget(updates=1000)).wait()
    >>> print(f"mean staleness {run.summary()['staleness']['mean']:.2f}", run.summary()["ledger"]["dropped"])
    mean staleness 1.00 {}
    """

    K: int = option(2, low=1, high=100_000, help="gradients that make a step")

    summary: ClassVar[str] = "a step uses the gradients of the next K workers; the others continue, and are stale"
    description: ClassVar[str] = "asynchronous, K workers' gradients a step."

    def one_update(self) -> str:
        """Return the definition of an update: the mean of K gradients."""
        return f"the mean of {self.K} gradients{self.gradient_text}"

    def layout(self, problem: Problem, cluster: ClusterShape) -> Layout:
        """Return servers, workers and a chief.

        Raises `BadInput` if there are fewer than K workers, or if servers could wait for each other forever.
        """
        if cluster.workers < self.K:
            raise BadInput(f"KAsync(K={self.K}) with workers={cluster.workers}: K is at most {cluster.workers} here.")
        if 1 < self.K < cluster.workers and (cluster.servers or 1) > 2:
            raise BadInput(
                f"KAsync(K={self.K}) with servers={cluster.servers}: at most 2 servers, since each chooses its own K "
                "workers, and from 3 on they can all wait for each other; KBatchAsync never waits."
            )
        return super().layout(problem, cluster)

    async def server(self, ctx: Context, shard: Shard) -> None:
        """Collect K gradients, apply their mean, send the weights to their workers.

        A worker that starts gets weights at once.
        """
        accumulator = Accumulator()
        async for request in ctx.inbox(Push, Pull, Left, Joined):
            if isinstance(request, Pull):
                ctx.send(request, shard.weights())
            pushes = accumulator.add(request, min(self.K, len(ctx.peers("worker"))))
            if pushes:
                await ctx.compute(shard.apply, pushes, self.learning_rate)
            for push in pushes:
                ctx.send(push, shard.weights())

    async def worker(self, ctx: Context, model: Model) -> None:
        """Compute on the weights received, send the gradient, receive newer weights."""
        weights = await pull(ctx)
        for batch in ctx.batches():
            gradient = await ctx.compute(model.gradient, weights, batch, self.accumulate)
            if gradient.complete:
                weights = await push_pull(ctx, gradient)


@dataclass(frozen=True, kw_only=True)
class KBatchAsync(AsynchronousServer, AccumulatedGradients):
    """A step is the mean of the next K mini-batches' gradients; no worker waits.

    See Also
    --------
    KAsync : The K gradients are of different workers.
    KBatchSync : Cancels gradients instead of applying stale ones.
    AsyncPS : K = 1.

    Examples
    --------
    With P workers the mean staleness is (P - 1) / K.

    >>> problem = lk.Problem("moons", timing_only=True)
    >>> cluster = lk.SimulatedCluster(workers=4, compute=lk.distributions.Exponential(1.0))
    >>> run = lk.train(problem, lk.KBatchAsync(K=2), cluster, lk.Budget(updates=1000)).wait()
    >>> print(f"mean staleness {run.summary()['staleness']['mean']:.2f}")
    mean staleness 1.50
    """

    K: int = same_option(KAsync, "K")

    summary: ClassVar[str] = "a step uses the gradients of the next K mini-batches; no worker waits"
    description: ClassVar[str] = "asynchronous, K mini-batches' gradients a step."

    def one_update(self) -> str:
        """Return the definition of an update: the mean of K gradients."""
        return f"the mean of {self.K} gradients{self.gradient_text}"

    async def server(self, ctx: Context, shard: Shard) -> None:
        """Collect K gradients and apply their mean. Every worker is answered at once, with the present weights."""
        accumulator = Accumulator()
        async for request in ctx.inbox(Push, Pull, Left, Joined):
            pushes = accumulator.add(request, self.K)
            if pushes:
                await ctx.compute(shard.apply, pushes, self.learning_rate)
            if isinstance(request, (Push, Pull)):
                ctx.send(request, shard.weights())

    async def worker(self, ctx: Context, model: Model) -> None:
        """Compute on the weights received, send the gradient, receive newer weights."""
        weights = await pull(ctx)
        for batch in ctx.batches():
            gradient = await ctx.compute(model.gradient, weights, batch, self.accumulate)
            if gradient.complete:
                weights = await push_pull(ctx, gradient)
