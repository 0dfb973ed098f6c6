"""Downpour SGD: asynchronous workers that push and fetch only every few steps.

    server: forever: receive a sum of gradients from any worker;  w <- w - rate * sum;  acknowledge
                     receive a request from any worker;  send w to it
    worker: x <- fetch w;  for t = 1, 2, 3 ...:
                g <- gradient of the loss on the next mini-batch at x;  x <- x - rate * g;  sum <- sum + g
                if n_push divides t:   push sum;  sum <- 0
                if n_fetch divides t:  x <- fetch w

Per step, a worker sends 1/n_push of a model and receives 1/n_fetch of a model. The price is more staleness: a worker steps on
local weights, which do not receive the gradients of other workers for n_fetch steps. With n_push = n_fetch = 1 the only
difference to `AsyncPS` is that a push and the following fetch are two operations. Gradients of other workers may be applied
between them.

Dean et al., "Large scale distributed deep networks", NIPS 2012, algorithm 7.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..options import option
from ..roles.context import Context
from ..roles.gradient import Model
from ..roles.local_weights import Local
from ..roles.messages import Ack, Message, Pull, Push
from ..roles.servers import pull, push
from ..roles.shard import Shard
from .base import AsynchronousServer


@dataclass(frozen=True, kw_only=True)
class Downpour(AsynchronousServer):
    """Workers step on local weights, push the sum of `n_push` gradients, and fetch after `n_fetch` steps.

    See Also
    --------
    AsyncPS : Pushes and fetches in every step.
    LocalSGD : Averages replicas instead of adding up gradients.

    Examples
    --------
    With n_push = n_fetch = 5 a gradient costs a fifth of the bytes.

    >>> for n in (1, 5):
    ...     strategy = lk.Downpour(n_push=n, n_fetch=n)
    ...     summary = lk.train("moons", strategy, lk.SimulatedCluster(workers=4), lk.Budget(seconds=1)).wait().summary()
    ...     print(f"{summary['bytes_sent']['worker']['training'] / summary['gradients']:,.0f} bytes sent per gradient")
    2,568 bytes sent per gradient
    514 bytes sent per gradient
    """

    n_push: int = option(1, low=1, high=10_000, help="steps of a worker between two pushes")
    n_fetch: int = option(1, low=1, high=10_000, help="steps of a worker between two fetches")

    messages: ClassVar[tuple[type[Message], ...]] = (*AsynchronousServer.messages, Ack)
    summary: ClassVar[str] = "asynchronous; workers push and fetch only every few steps"
    description: ClassVar[str] = "asynchronous, with a push and a fetch every few steps."

    def one_update(self) -> str:
        """Return the definition of an update: the gradients of one push."""
        return super().one_update() if self.n_push == 1 else f"the sum of {self.n_push} gradients of one worker"

    async def server(self, ctx: Context, shard: Shard) -> None:
        """Apply each push and acknowledge it; answer each fetch with the weights."""
        async for request in ctx.inbox(Push, Pull):
            if isinstance(request, Push):
                await ctx.compute(shard.apply, request, self.learning_rate)
                ctx.send(request, Ack(request.step))
            else:
                ctx.send(request, shard.weights())

    async def worker(self, ctx: Context, model: Model) -> None:
        """Step on local weights; push the sum of `n_push` gradients, fetch after `n_fetch` steps."""
        weights = Local(await pull(ctx), self)
        for step, batch in enumerate(ctx.batches(), 1):
            gradient = await ctx.compute(model.gradient, weights, batch)
            if self.n_fetch > 1:  # otherwise, newer weights replace the local weights before they are used
                await ctx.compute(weights.step, gradient)
            weights.add(gradient)
            if step % self.n_push == 0:
                await push(ctx, weights.gradients())
            if step % self.n_fetch == 0:
                weights.reset(await pull(ctx))
