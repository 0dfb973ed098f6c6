"""K-sync and K-batch-sync: a step uses the first K gradients; the other workers abandon their gradients and start again.

    server: forever: receive g_1 ... g_K, computed on the present w;  w <- w - rate * mean(g);  send w to all
    worker: K-sync: send one g for every w, then wait.    K-batch-sync: send one g after another until the next w comes

K-sync waits for K different workers, which is the same rule as `BackupWorkers` with b = P - K. K-batch-sync waits for K
mini-batches of any workers, so fast workers need not wait. With exponential times of mean 1 and P workers, the mean time of a
step is H_P - H_(P-K) for K-sync and K / P for K-batch-sync (H_n = 1 + 1/2 + ... + 1/n). No gradient is stale. With a small K,
steps take less time, but their gradients are noisier.

Dutta et al., "Slow and stale gradients can win the race", AISTATS 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..errors import BadInput
from ..options import option, same_option
from ..problem import Problem
from ..roles.context import Context
from ..roles.gates import first_pushes, next_pushes
from ..roles.gradient import Model
from ..roles.layout import ClusterShape, Layout
from ..roles.messages import Weights
from ..roles.servers import NewestWeights, post
from ..roles.shard import Shard
from .backup_workers import BackupWorkers
from .base import ServerStrategy


@dataclass(frozen=True, kw_only=True)
class KSync(ServerStrategy):
    """A step is the mean of the gradients of the first K workers; the others start again with the new weights.

    See Also
    --------
    KBatchSync : Several of the K gradients may be of one worker.
    KAsync : Gradients are not cancelled; they may be stale.
    BackupWorkers : The same rule, with the number of workers that are not waited for.

    Examples
    --------
    With exponential times of mean 1 s, a step that waits for 2 of 4 workers takes 1/4 + 1/3 = 0.58 s on average. A step that
    waits for all takes 2.08 s.

    >>> problem = lk.Problem("moons", timing_only=True)
    >>> cluster = lk.SimulatedCluster(workers=4, compute=lk.distributions.Exponential(1.0))
    >>> for K in (2, 4):
    ...     run = lk.train(problem, lk.KSync(K=K), cluster, lk.Budget(updates=1000)).wait()
    ...     print(f"{run.summary()['seconds'] / 1000:.2f} s")
    0.57 s
    2.06 s
    """

    K: int = option(2, low=1, high=100_000, help="gradients that make a step")
    give_up: bool = same_option(BackupWorkers, "give_up")

    summary: ClassVar[str] = "a step uses the gradients of the first K workers; the others abandon theirs"
    description: ClassVar[str] = "synchronous, with the first K workers only."

    def mean_staleness(self, workers: int) -> float | None:
        """Return 0, because only gradients of the present version are applied."""
        return 0.0

    def one_update(self) -> str:
        """Return the definition of an update: the mean of the first K gradients."""
        return f"the mean of the first {self.K} gradients"

    def layout(self, problem: Problem, cluster: ClusterShape) -> Layout:
        """Return servers, workers and a chief. Raises `BadInput` if there are fewer than K workers."""
        if cluster.workers < self.K:
            raise BadInput(f"KSync(K={self.K}) with workers={cluster.workers}: K is at most {cluster.workers} here.")
        return super().layout(problem, cluster)

    async def server(self, ctx: Context, shard: Shard) -> None:
        """Collect the first K workers' gradients, apply their mean, send the weights to all workers."""
        while True:
            pushes = await first_pushes(ctx, shard, self.K)
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


@dataclass(frozen=True, kw_only=True)
class KBatchSync(ServerStrategy):
    """A step is the mean of the gradients of the first K mini-batches; several of them may be of one worker.

    See Also
    --------
    KSync : The K gradients are of different workers.
    KBatchAsync : Gradients are not cancelled; they may be stale.

    Examples
    --------
    With exponential times of mean 1 s, a step of K = 4 gradients of 4 workers takes K / 4 = 1 s on average.

    >>> problem = lk.Problem("moons", timing_only=True)
    >>> cluster = lk.SimulatedCluster(workers=4, compute=lk.distributions.Exponential(1.0))
    >>> run = lk.train(problem, lk.KBatchSync(K=4), cluster, lk.Budget(updates=1000)).wait()
    >>> print(f"{run.summary()['seconds'] / 1000:.2f} s")
    1.03 s
    """

    K: int = same_option(KSync, "K")
    give_up: bool = same_option(BackupWorkers, "give_up")

    summary: ClassVar[str] = "a step uses the gradients of the first K mini-batches, of any workers"
    description: ClassVar[str] = "synchronous, with the first K mini-batches only."

    def mean_staleness(self, workers: int) -> float | None:
        """Return 0, because only gradients of the present version are applied."""
        return 0.0

    def one_update(self) -> str:
        """Return the definition of an update: the mean of the first K gradients."""
        return f"the mean of the first {self.K} gradients"

    async def server(self, ctx: Context, shard: Shard) -> None:
        """Collect the first K gradients, apply their mean, send the weights to all workers."""
        while True:
            pushes = await next_pushes(ctx, shard, self.K)
            await ctx.compute(shard.apply, pushes, self.learning_rate)
            for worker in ctx.peers("worker"):
                ctx.send(worker, shard.weights())

    async def worker(self, ctx: Context, model: Model) -> None:
        """Send one gradient after another on the same weights, at most K, until newer weights arrive."""
        newest, sent = NewestWeights(ctx), 0
        weights = await newest.pull()
        for batch in ctx.batches():
            gradient = await ctx.compute(model.gradient, weights, batch, unless=Weights if self.give_up else None)
            if gradient is not None:
                post(ctx, gradient)
                sent += 1
            before, weights = weights, await newest.weights(wait=gradient is None or sent == self.K)
            if weights.read != before.read:
                sent = 0
