"""Local SGD: every worker trains alone for H steps, then all workers average their parameters.

    worker: forever: H times: g <- gradient of the loss on the next mini-batch at w;  w <- w - rate * g
                     w <- mean of all workers' w     (all-reduce)

Local SGD communicates H times less than synchronous SGD. Stragglers matter less, because H steps take the maximum over the
workers of the time of H steps, not the sum of H maxima. H = 1 is synchronous SGD. The price is that replicas drift apart
between two averages. (If the losses of all workers have the same constant Hessian, the drift does not affect the mean.)
Post-local SGD averages after each of the first `post_local` steps, and then after every H steps. Every worker has a separate
optimizer state, which is not averaged.

Stich, "Local SGD converges fast and communicates little", ICLR 2019; Lin et al., "Don't use large mini-batches, use
local SGD", ICLR 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..options import option
from ..roles.collectives import all_reduce
from ..roles.context import Context
from ..roles.gradient import Model
from ..roles.messages import Chunk, Message
from ..roles.replica import Replica
from .base import MixedReplicas


@dataclass(frozen=True, kw_only=True)
class LocalSGD(MixedReplicas):
    """Every worker takes H steps alone, then the replicas of all workers are averaged.

    See Also
    --------
    RingAllReduce : Adds up the gradients in every step.
    EASGD : An elastic force instead of an average.

    Examples
    --------
    The workers communicate in every H-th step only.

    >>> for H in (1, 4):
    ...     run = lk.train("moons", lk.LocalSGD(H=H), lk.SimulatedCluster(workers=4), lk.Budget(updates=100)).wait()
    ...     print(f"H = {H}: {run.summary()['bytes_sent']['worker']['training']:,} bytes")
    H = 1: 1,526,036 bytes
    H = 4: 370,436 bytes
    """

    H: int = option(4, low=1, high=100_000, help="steps that a worker makes alone between two averages")
    post_local: int = option(
        0, low=0, high=10**9, help="steps at the start that are averaged one by one (post-local SGD)"
    )
    algorithm: str = option("ring", choices=("ring", "halving-doubling"), help="how the average is made")

    messages: ClassVar[tuple[type[Message], ...]] = (Chunk,)
    summary: ClassVar[str] = "no server: workers take H local steps, then average their parameters"
    description: ClassVar[str] = "workers take local steps and average their parameters periodically."

    async def worker(self, ctx: Context, model: Model, replica: Replica) -> None:
        """Train locally, and average with all workers every H steps."""
        workers = ctx.peers("worker")
        for step, batch in enumerate(ctx.batches(), 1):
            gradient = await ctx.compute(model.gradient, replica.weights(), batch)
            await ctx.compute(replica.apply, gradient, self.learning_rate)
            if step <= self.post_local or step % self.H == 0:
                total = await all_reduce(ctx, replica.copy(), algorithm=self.algorithm)
                made = replica.clock_of((ctx.name,)) * len(workers)  # all have made the same steps
                replica.assign(replica.mean_of(total, len(workers)), workers, made)
