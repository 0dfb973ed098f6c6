"""Who has to wait for whom: the two waits that synchronous and half-synchronous servers are made of.

`Gate` lets a worker begin an iteration only if nobody is too far behind (stale synchronous parallel). `first` waits
for the first gradients of a round and drops those of rounds that are over (backup workers, K-sync).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .context import Context
from .messages import Joined, Left, Pull, Push

__all__ = ["Gate", "Round", "first", "in_order"]


class Gate:
    """The clocks of the workers, iterations completed, from 0. Iteration c may begin iff c - slowest clock <= slack.

    Who is lost and not waited for leaves the minimum; who joins begins with the slowest.
    """

    def __init__(self, workers: Sequence[str]):
        self.clocks = dict.fromkeys(workers, 0)
        self.slowest = 0
        self._at = {0: len(self.clocks)}  # {clock: how many workers have it}: the minimum costs no search
        self._waiting: dict[int, list[Any]] = {}  # {clock: requests of workers that want to begin their next iteration}

    def tick(self, worker: str) -> None:
        """`worker` has completed an iteration."""
        clock = self.clocks.get(worker)
        if clock is None:  # it has left, and this is its last word
            return
        self.clocks[worker] = clock + 1
        self._at[clock] -= 1
        self._at[clock + 1] = self._at.get(clock + 1, 0) + 1
        self._advance()

    def _advance(self) -> None:
        while self.clocks and not self._at[self.slowest]:
            del self._at[self.slowest]
            self.slowest += 1
            self._at.setdefault(self.slowest, 0)

    def admit(self, request: Any, slack: int) -> list[Any]:
        """The sender of `request` wants to begin its next iteration. Returns the requests of all who may begin now, the
        furthest behind first.
        """
        self._waiting.setdefault(self.clocks.get(request.sender, self.slowest), []).append(request)
        return self._ready(slack)

    def _ready(self, slack: int) -> list[Any]:
        ready = []
        for clock in sorted(self._waiting):
            if clock - self.slowest <= slack:
                ready += self._waiting.pop(clock)
        return ready

    def members(self, workers: Sequence[str], slack: int) -> list[Any]:
        """`workers` take part from now on. Returns the requests of all who may begin because of that."""
        there = set(workers)
        for gone in [worker for worker in self.clocks if worker not in there]:
            self._at[self.clocks.pop(gone)] -= 1
        for new in [worker for worker in workers if worker not in self.clocks]:
            self.clocks[new] = self.slowest
            self._at[self.slowest] = self._at.get(self.slowest, 0) + 1
        self._advance()
        return self._ready(slack)


class Round:
    """One gradient of every worker, all computed on the present version of `shard`."""

    def __init__(self, shard: Any):
        self._shard = shard
        self.taken: dict[str, Any] = {}  # worker -> its push

    def take(self, push: Any) -> bool:
        """Whether `push` belongs to this round; if not (its worker was away meanwhile) it is dropped as late."""
        if not self._shard.fresh(push):
            self._shard.drop(push, "late")
            return False
        before = self.taken.get(push.sender)
        if before is not None:  # of the same worker, before it was restarted
            self._shard.drop(before, "late")
        self.taken[push.sender] = push
        return True

    def complete(self, workers: Sequence[str]) -> bool:
        """Whether everybody who takes part has pushed."""
        return len(self.taken) >= max(1, len(workers)) and all(worker in self.taken for worker in workers)

    def begin_again(self, servers: Sequence[str]) -> list[Any]:
        """Somebody has joined. Where there are several servers, a round that is over at one may not be over at another, and
        workers that wait for different servers could wait for each other for ever: what has come is dropped as late.

        Returns those pushes, to be answered; so everybody's next gradient belongs to the same round everywhere.
        """
        if len(servers) < 2:
            return []
        given_up = self.pushes()
        for push in given_up:
            self._shard.drop(push, "late")
        return given_up

    def pushes(self) -> list[Any]:
        """All of them, in the order of their senders. The next round begins."""
        made, self.taken = in_order(self._shard, self.taken.values()), {}
        return made


async def first(ctx: Context, shard: Any, count: int, each_once: bool = True) -> list[Push]:
    """The first `count` gradients that were computed on the shard's present version, in the order of the workers; fewer
    if each worker has one and there are no longer as many.

    Those computed on an older one come too late and are dropped; of a worker that pushes twice, restarted in between, the
    first one is (`each_once`). Pulls are answered meanwhile.
    """
    pushes: list[Push] = []
    while len(pushes) < (min(count, max(1, len(ctx.peers("worker")))) if each_once else count):
        request = await ctx.recv(Push, Pull, Left, Joined)
        if isinstance(request, Pull):
            ctx.send(request, shard.weights())
        elif isinstance(request, Push):
            if shard.fresh(request):
                for again in [p for p in pushes if each_once and p.sender == request.sender]:
                    pushes = [push for push in pushes if push is not again]
                    shard.drop(again, "late")
                pushes.append(request)
            else:
                shard.drop(request, "late")
    return in_order(shard, pushes)


def in_order(shard: Any, pushes: Iterable[Any]) -> list[Any]:
    """In the order of their senders, so that a sum does not depend on who arrived first."""
    return sorted(pushes, key=lambda push: shard.role_ids[push.sender])
