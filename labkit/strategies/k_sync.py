"""K-sync and K-batch-sync: a step is made of the first K gradients; everybody else gives up and begins again.

    server: forever: receive g_1 ... g_K, computed on the present w;  w <- w - rate * mean(g);  send w to all
    worker: K-sync: send one g for every w, then wait.    K-batch-sync: send one g after another until the next w comes

K-sync waits for K different workers (backup workers, counted from the other side); K-batch-sync for K mini-batches of
anyone, so the fast ones need not wait. With exponential times of mean 1 and P workers a step takes
H_P - H_(P-K), or K / P. No gradient is stale; a small K makes short steps of noisy gradients.

Dutta et al., "Slow and stale gradients can win the race", AISTATS 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import BadInput
from ..knobs import knob
from ..roles.context import Context
from ..roles.servers import NewestWeights, post
from .backup_workers import FirstOnes

__all__ = ["KBatchSync", "KSync"]


@dataclass(frozen=True, kw_only=True)
class KSync(FirstOnes):
    """A step is the mean of the first K workers' gradients; the others begin again."""

    K: int = knob(2, low=1, high=100_000, help="gradients that make a step")

    summary: ClassVar[str] = "a step is the first K workers' gradients; the others begin again"
    in_words: ClassVar[str] = "synchronous, with the first K workers only."

    def needed(self, workers: int) -> int:
        """K, however many there are."""
        return self.K

    def check(self, workers: int) -> None:
        """K of them must be there."""
        if workers < self.K:
            raise BadInput(f"{self.name}(K={self.K}) with workers={workers}: K is at most {workers} here.")

    def one_update(self) -> str:
        """The first K make a step."""
        return f"the mean of the first {self.K} gradients"


@dataclass(frozen=True, kw_only=True)
class KBatchSync(KSync):
    """A step is the mean of the first K mini-batches' gradients, several of one worker included."""

    summary: ClassVar[str] = "a step is the first K mini-batches' gradients, whoever computes them"
    in_words: ClassVar[str] = "synchronous, with the first K mini-batches only."
    each_once: ClassVar[bool] = False

    def check(self, workers: int) -> None:
        """One is enough."""

    async def worker(self, ctx: Context, model: Any) -> None:
        """One gradient after another on the same weights, until newer ones come; more than K of them nobody needs."""
        newest, sent = NewestWeights(ctx), 0
        weights = await newest.pull()
        for batch in ctx.batches():
            gradient = await ctx.compute(model.gradient, weights, batch, unless=self._interrupt)
            if gradient is not None:
                post(ctx, gradient)
                sent += 1
            before, weights = weights, await newest.weights(wait=gradient is None or sent == self.K)
            if weights.read != before.read:
                sent = 0
