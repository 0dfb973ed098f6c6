"""Local SGD: every worker trains alone for H steps, then all workers average their parameters.

    worker: forever: H times: g <- gradient of the loss on the next mini-batch at w;  w <- w - rate * g
                     mean <- mean of all workers' w     (all-reduce)
                     x <- outer optimizer's step from x at outer_rate, with x - mean as gradient;  w <- x

Local SGD communicates H times less than synchronous SGD. Stragglers matter less, because H steps take the maximum over the
workers of the time of H steps, not the sum of H maxima. H = 1 is synchronous SGD. The price is that replicas drift apart
between two averages. (If the losses of all workers have the same constant Hessian, the drift does not affect the mean.)
Post-local SGD averages after each of the first `post_local` steps, and then after every H steps. Every worker has a separate
optimizer state, which is not averaged.

x, the model between two averages, is the same on all workers. With the default outer optimizer, SGD at the rate 1, x is the
mean. DiLoCo is `LocalSGD(H=500, optimizer="adam", outer="nesterov:0.9", outer_rate=0.7)`: with momentum, fewer averages reach the
same loss. An outer optimizer sends nothing more. It needs memory for x and for its state. The evaluated model is the mean of the
replicas after a local step, before an outer step.

Stich, "Local SGD converges fast and communicates little", ICLR 2019; Lin et al., "Don't use large mini-batches, use
local SGD", ICLR 2020; Douillard et al., "DiLoCo: distributed low-communication training of language models", 2023.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..nn import Optimizer
from ..options import Converted, option, same_option
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

    DiLoCo: the momentum of the outer steps makes more of each average.

    >>> for outer in ({}, {"outer": "nesterov:0.9", "outer_rate": 0.7}):
    ...     strategy = lk.LocalSGD(H=20, learning_rate=0.02, **outer)
    ...     run = lk.train("digits", strategy, lk.SimulatedCluster(workers=4), lk.Budget(updates=200)).wait()
    ...     print(f"{strategy.outer}: loss {run.summary()['loss']:.2f}")
    SGD(): loss 0.45
    Nesterov(momentum=0.9): loss 0.18
    """

    H: int = option(4, low=1, high=100_000, help="steps that a worker makes alone between two averages")
    post_local: int = option(
        0, low=0, high=10**9, help="steps at the start that are averaged one by one (post-local SGD)"
    )
    algorithm: str = option("ring", choices=("ring", "halving-doubling"), help="how the average is made")
    outer: Converted[Optimizer, str] = same_option(
        MixedReplicas,
        "optimizer",
        help="how the average becomes the next model; sgd at the outer rate 1: it is the average",
    )
    outer_rate: float = option(1.0, low=1e-6, high=10.0, log=True, help="length of a step from model to model")

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
                mean = replica.mean_of(total, len(workers))
                replica.assign(replica.outer_step(mean, self.outer_rate), workers, made)
