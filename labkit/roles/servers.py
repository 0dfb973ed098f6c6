"""What workers say to parameter servers: `pull`, `push` and `push_pull`, over any number of shards.

A push and the pull that follows are one operation at each shard: the reply to a push is the shard's newest weights.
With several shards an asynchronous pull may be a torn read (shards at different versions); it carries the vector of
versions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .context import Context
from .gradient import Gradient, Parameters
from .messages import Ack, Pull, Weights

__all__ = ["pull", "push", "push_pull"]

PULL = Pull()


async def pull(ctx: Context) -> Parameters | Weights:
    """Fetch the weights of every shard."""
    servers = ctx.peers("server")
    for server in servers:
        ctx.send(server, PULL)
    return await _weights(ctx, len(servers))


async def push(ctx: Context, gradient: Gradient) -> None:
    """Send `gradient` to every shard and wait until all have acknowledged it."""
    servers = ctx.peers("server")
    for shard, server in enumerate(servers):
        ctx.send(server, gradient.push(shard))
    for _ in servers:
        await ctx.recv(Ack)


async def push_pull(ctx: Context, gradient: Gradient) -> Parameters | Weights:
    """Send `gradient` to every shard and wait for the weights that each answers with."""
    servers = ctx.peers("server")
    for shard, server in enumerate(servers):
        ctx.send(server, gradient.push(shard))
    return await _weights(ctx, len(servers))


async def _weights(ctx: Context, shards: int) -> Parameters | Weights:
    if shards == 1:
        return await ctx.recv(Weights)  # of a shard that holds the whole model: they have all that `Parameters` have
    parts: list[Any] = [None] * shards
    for _ in range(shards):
        weights = await ctx.recv(Weights)
        parts[weights.shard] = weights
    read = tuple((w.generation, w.version) for w in parts)
    if parts[0].values.strides == (0,):
        size = sum(len(w.values) for w in parts)
        return Parameters(np.broadcast_to(parts[0].values[:1], (size,)), read)
    return Parameters(np.concatenate([w.values for w in parts]), read)
