"""What workers say to parameter servers: `pull`, `push`, `push_pull` and `Newest`, over any number of shards.

A push and the pull that follows are one operation at each shard: the reply to a push is the shard's newest weights.
With several shards an asynchronous pull may be a torn read (shards at different versions); it carries the vector of
versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .context import Context
from .gradient import Gradient, Parameters
from .messages import Ack, Pull, Weights

__all__ = ["Newest", "post", "pull", "push", "push_pull"]

PULL = Pull()


async def pull(ctx: Context) -> Parameters | Weights:
    """Fetch the weights of every shard."""
    servers = ctx.peers("server")
    for server in servers:
        ctx.send(server, PULL)
    return await _weights(ctx, len(servers))


def post(ctx: Context, gradient: Gradient) -> None:
    """Send `gradient` to every shard, and wait for nothing."""
    for shard, server in enumerate(ctx.peers("server")):
        ctx.send(server, gradient.push(shard))


async def push(ctx: Context, gradient: Gradient) -> None:
    """Send `gradient` to every shard and wait until all have acknowledged it."""
    post(ctx, gradient)
    for _ in ctx.peers("server"):
        await ctx.recv(Ack)


async def push_pull(ctx: Context, gradient: Gradient) -> Parameters | Weights:
    """Send `gradient` to every shard and wait for the weights that each answers with."""
    servers = ctx.peers("server")
    for shard, server in enumerate(servers):
        ctx.send(server, gradient.push(shard))
    return await _weights(ctx, len(servers))


class Newest:
    """The newest weights, where servers send every version to everybody, asked for or not.

    A worker that was busy during several versions takes the last one. With several shards it waits until it has the
    same version of all, which will come, because every shard sends every version.
    """

    def __init__(self, ctx: Context):
        self._ctx, self._shards = ctx, len(ctx.peers("server"))
        self._parts: dict[int, Weights] = {}
        self._taken = -1

    async def pull(self) -> Parameters | Weights:
        """Ask for the first weights and wait for them."""
        for server in self._ctx.peers("server"):
            self._ctx.send(server, PULL)
        return await self.weights()

    async def weights(self, wait: bool = True) -> Parameters | Weights:
        """Weights newer than the last ones (`wait=False`: if they have come, else those again).

        All that have come by now are passed over but the newest.
        """
        while True:
            arrived = await self._ctx.recv(Weights, timeout=None if self._torn() or (wait and not self._new()) else 0)
            if arrived is None:
                break
            self._parts[arrived.shard] = arrived
        self._taken = self._parts[0].version
        return _together([self._parts[shard] for shard in range(self._shards)])

    def _torn(self) -> bool:
        """Whether the newest of the shards are of different versions: the missing ones will come."""
        return len(self._parts) < self._shards or len({part.version for part in self._parts.values()}) > 1

    def _new(self) -> bool:
        return self._parts[0].version > self._taken


async def _weights(ctx: Context, shards: int) -> Parameters | Weights:
    if shards == 1:
        return await ctx.recv(Weights)  # of a shard that holds the whole model: they have all that `Parameters` have
    parts: list[Any] = [None] * shards
    for _ in range(shards):
        weights = await ctx.recv(Weights)
        parts[weights.shard] = weights
    return _together(parts)


def _together(parts: Sequence[Weights]) -> Parameters | Weights:
    """The shards' weights as one vector, with the vector of their versions."""
    if len(parts) == 1:
        return parts[0]
    read = tuple((w.generation, w.version) for w in parts)
    if parts[0].values.strides == (0,):
        size = sum(len(w.values) for w in parts)
        return Parameters(np.broadcast_to(parts[0].values[:1], (size,)), read)
    return Parameters(np.concatenate([w.values for w in parts]), read)
