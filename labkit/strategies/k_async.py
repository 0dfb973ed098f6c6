"""K-async and K-batch-async: a step is made of K gradients, stale or not; nobody gives anything up.

    server: forever: receive g from anybody;  when K have come: w <- w - rate * mean(g);  send w
    worker: forever: receive w;  g <- gradient of the loss on the next mini-batch at w;  send g

K-async answers those whose gradients made the step, when it is made: they are K different workers, and the others go on
with the weights that they have. K-batch-async answers at once with the weights as they are, so nobody ever waits. K = 1
is the asynchronous server, whose worker it is (`base.py`); a larger K makes fewer, less noisy and less stale steps:
(P-1)/K updates on average for K-batch-async, P workers.

Dutta et al., "Slow and stale gradients can win the race", AISTATS 2018; K-batch-async is the n-softsync of Gupta, Zhang
and Wang, "Model accuracy and runtime tradeoff in distributed deep learning", ICDM 2016.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import BadInput
from ..knobs import knob
from ..roles.context import Context
from ..roles.layout import Layout
from ..roles.messages import Joined, Left, Pull, Push
from ..roles.standard_layouts import server_layout
from .base import AsynchronousServer

__all__ = ["KAsync", "KBatchAsync"]


@dataclass(frozen=True, kw_only=True)
class KAsync(AsynchronousServer):
    """A step is the mean of K workers' gradients, stale or not; those K get the new weights, the others go on."""

    K: int = knob(2, low=1, high=100_000, help="gradients that make a step")

    summary: ClassVar[str] = "a step is the next K workers' gradients; the others go on, and are stale"
    in_words: ClassVar[str] = "asynchronous, K workers' gradients a step."
    at_once: ClassVar[bool] = False  # whether a push is answered before the step is made

    def layout(self, problem: Any, cluster: Any) -> Layout:
        """Servers, workers and a chief. K workers that wait for each other must be there."""
        if cluster.workers < self.K and not self.at_once:
            raise BadInput(f"KAsync(K={self.K}) with workers={cluster.workers}: K is at most {cluster.workers} here.")
        if 1 < self.K < cluster.workers and (cluster.servers or 1) > 2 and not self.at_once:
            raise BadInput(
                f"KAsync(K={self.K}) with servers={cluster.servers}: at most 2 servers, since each chooses its own K "
                "workers, and from 3 on they can all wait for each other; KBatchAsync never waits."
            )
        return server_layout(self, problem, cluster)

    def one_update(self) -> str:
        """K make a step."""
        return f"the mean of {self.K} gradients"

    async def server(self, ctx: Context, shard: Any) -> None:
        """Collect K gradients, apply their mean."""
        pushes: list[Push] = []
        async for request in ctx.inbox(Push, Pull, Left, Joined):
            if isinstance(request, Pull):
                ctx.send(request, shard.weights())
            if isinstance(request, Push):
                pushes.append(request)
            served = pushes if not self.at_once else [request] if isinstance(request, Push) else []
            there = self.K if self.at_once else min(self.K, len(ctx.peers("worker")))
            if pushes and (len(pushes) >= there or isinstance(request, Joined)):  # who is new finds nobody waiting
                await ctx.compute(shard.apply, pushes, self.learning_rate)
                pushes = []
            if self.at_once or not pushes:
                for push in served:
                    ctx.send(push, shard.weights())


@dataclass(frozen=True, kw_only=True)
class KBatchAsync(KAsync):
    """A step is the mean of the next K mini-batches' gradients; nobody ever waits."""

    summary: ClassVar[str] = "a step is the next K mini-batches' gradients; nobody waits"
    in_words: ClassVar[str] = "asynchronous, K mini-batches' gradients a step."
    at_once: ClassVar[bool] = True
