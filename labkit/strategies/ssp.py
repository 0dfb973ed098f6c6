"""Stale synchronous parallel: run ahead, but not further than s iterations ahead of the slowest.

    server: forever: receive g from any worker;  w <- w - rate * g;  clock(worker) += 1
                     send w to every worker that waits with  clock(worker) - slowest clock <= s
    worker: forever: receive w;  g <- gradient of the loss on the next mini-batch at w;  send g

The gate is the server's deferred reply, never the push: gradients are applied as they come. At iteration i a worker
sees every worker's updates up to iteration i - s - 1, and whatever else has come. s = 0 is synchronous (each gradient
at the full rate: the sum, not the mean), s without end is asynchronous; in between, s makes up for a hiccup of one
worker, not for a worker that is always slow. Every shard keeps clocks of its own. (The worker is that of every
asynchronous server, and stands in `base.py`.)

Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server", NIPS 2013.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..knobs import knob
from ..roles.context import Context
from ..roles.gates import Gate
from ..roles.messages import Joined, Left, Pull, Push
from .base import AsynchronousServer

__all__ = ["SSP"]


@dataclass(frozen=True, kw_only=True)
class SSP(AsynchronousServer):
    """Nobody may be more than s iterations ahead of the slowest; within that, nobody waits."""

    s: int = knob(3, low=0, high=1_000_000, live=True, help="iterations that a worker may be ahead of the slowest")

    summary: ClassVar[str] = "parameter server, nobody more than s iterations ahead of the slowest"
    in_words: ClassVar[str] = "bounded staleness: nobody runs further ahead of the slowest than allowed."

    async def server(self, ctx: Context, shard: Any) -> None:
        """Apply at once; answer when the worker may begin its next iteration."""
        gate = Gate(ctx.peers("worker"))
        async for request in ctx.inbox(Push, Pull, Left, Joined):
            if isinstance(request, (Left, Joined)):
                ready = gate.members(ctx.peers("worker"), self.s)
            else:
                if isinstance(request, Push):
                    await ctx.compute(shard.apply, request, self.learning_rate)
                    gate.tick(request.sender)
                ready = gate.admit(request, self.s)
            for waiting in ready:
                ctx.send(waiting, shard.weights())
