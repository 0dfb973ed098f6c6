"""Who has to wait for whom: the two waits that synchronous and half-synchronous servers are made of.

`Gate` lets a worker begin an iteration only if nobody is too far behind (stale synchronous parallel). `first` waits
for the first gradients of a round and drops those of rounds that are over (backup workers, K-sync).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .context import Context
from .messages import Pull, Push

__all__ = ["Gate", "first"]


class Gate:
    """The clocks of the workers, iterations completed, from 0. Iteration c may begin iff c - slowest clock <= slack."""

    def __init__(self, workers: Sequence[str]):
        self.clocks = dict.fromkeys(workers, 0)
        self.slowest = 0
        self._at = {0: len(self.clocks)}  # {clock: how many workers have it}: the minimum costs no search
        self._waiting: dict[int, list[str]] = {}  # {clock: workers that want to begin their next iteration}

    def tick(self, worker: str) -> None:
        """`worker` has completed an iteration."""
        clock = self.clocks[worker]
        self.clocks[worker] = clock + 1
        self._at[clock] -= 1
        self._at[clock + 1] = self._at.get(clock + 1, 0) + 1
        while not self._at[self.slowest]:
            del self._at[self.slowest]
            self.slowest += 1

    def admit(self, worker: str, slack: int) -> list[str]:
        """`worker` wants to begin its next iteration. Returns all who may begin now, the furthest behind first."""
        self._waiting.setdefault(self.clocks[worker], []).append(worker)
        ready = []
        for clock in sorted(self._waiting):
            if clock - self.slowest <= slack:
                ready += self._waiting.pop(clock)
        return ready


async def first(ctx: Context, shard: Any, count: int) -> list[Push]:
    """The first `count` gradients that were computed on the shard's present version, in the order of the workers.

    Those computed on an older one come too late and are dropped. Pulls are answered meanwhile.
    """
    order = {name: i for i, name in enumerate(ctx.peers("worker"))}
    pushes: list[Push] = []
    while len(pushes) < count:
        request = await ctx.recv(Push, Pull)
        if isinstance(request, Pull):
            ctx.send(request.sender, shard.weights())
        elif request.version == shard.version:
            pushes.append(request)
        else:
            shard.drop(request, "late")
    return sorted(pushes, key=lambda push: order[push.sender])  # so the sum does not depend on who arrived first
