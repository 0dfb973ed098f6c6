"""Stale synchronous parallel: a worker may be ahead of the slowest worker, but at most by s iterations.

    server: forever: receive g from any worker;  w <- w - rate * g;  clock(worker) += 1
                     send w to every worker that waits with  clock(worker) - slowest clock <= s
    worker: forever: receive w;  g <- gradient of the loss on the next mini-batch at w;  send g

The server delays its reply to a worker that is too far ahead; it applies every gradient when it arrives. At iteration i, the
weights of a worker contain all updates of every worker up to iteration i - s - 1, and possibly later updates. With s = 0 the
algorithm is synchronous (each gradient is applied at the full rate, so a step is the sum of the gradients, not their mean).
With an unbounded s it is asynchronous. A value in between compensates for short delays of a worker, but not for a permanent
straggler. Every shard has separate clocks.

Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server", NIPS 2013.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..options import option
from ..roles.context import Context
from ..roles.gates import Gate
from ..roles.gradient import Model
from ..roles.messages import Joined, Left, Pull, Push
from ..roles.servers import pull, push_pull
from ..roles.shard import Shard
from .base import AccumulatedGradients, AsynchronousServer


@dataclass(frozen=True, kw_only=True)
class SSP(AsynchronousServer, AccumulatedGradients):
    """A worker may be at most s iterations ahead of the slowest worker; it waits only if it is further ahead.

    See Also
    --------
    AsyncPS : No bound: a worker never waits.
    SyncPS : All workers wait for each other in every step.

    Examples
    --------
    While worker-1, which is 10 times slower, computes its 20 gradients, the other workers compute only s = 3 more.

    >>> slow = lk.SimulatedCluster(workers=4, slow={"worker-1": 10})
    >>> run = lk.train("moons", lk.SSP(s=3), slow, lk.Budget(seconds=2)).wait()
    >>> counters = run.trace.counters
    >>> {role: counters[i].computed for i, role in enumerate(run.trace.roles) if role.startswith("worker")}
    {'worker-0': 23, 'worker-1': 20, 'worker-2': 23, 'worker-3': 23}
    """

    s: int = option(3, low=0, high=1_000_000, live=True, help="iterations that a worker may be ahead of the slowest")

    summary: ClassVar[str] = "parameter server, no worker more than s iterations ahead of the slowest"
    description: ClassVar[str] = "bounded staleness: a worker waits when it is too far ahead of the slowest."

    async def server(self, ctx: Context, shard: Shard) -> None:
        """Apply each gradient; answer each worker when it may begin its next iteration."""
        gate = Gate(ctx)
        async for request in ctx.inbox(Push, Pull, Left, Joined):
            if isinstance(request, Push):
                await ctx.compute(shard.apply, request, self.learning_rate)
            for admitted in gate.admit(request, self.s):
                ctx.send(admitted, shard.weights())

    async def worker(self, ctx: Context, model: Model) -> None:
        """Compute on the weights received, send the gradient, receive newer weights."""
        weights = await pull(ctx)
        for batch in ctx.batches():
            gradient = await ctx.compute(model.gradient, weights, batch, self.accumulate)
            if gradient.complete:
                weights = await push_pull(ctx, gradient)
