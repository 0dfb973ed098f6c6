"""Collectives: every member of a group calls the same function, and all get the same answer.

Rings, chunked: each member sends 2(N-1)/N of the vector for an all-reduce, whatever N is (Patarasuk and Yuan,
"Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009). Sums are added up along the ring, each
chunk once, so all members end with the same bits. Arithmetic is done in place on `values`; a timing-only vector (zero
strides) only travels.
"""

from __future__ import annotations

import numpy as np

from .context import Context
from .layout import shard_slices
from .messages import Chunk

__all__ = ["all_gather", "all_reduce", "barrier", "broadcast", "reduce_scatter"]


async def all_reduce(ctx: Context, values: np.ndarray, group: str = "worker") -> np.ndarray:
    """The sum of everybody's `values` (flat), in place, in 2(N-1) steps."""
    await reduce_scatter(ctx, values, group)
    await all_gather(ctx, values, group)
    return values


async def reduce_scatter(ctx: Context, values: np.ndarray, group: str = "worker") -> slice:
    """Afterwards chunk r of `values` holds, on member r, the sum of everybody's chunk r. Returns that slice."""
    members = ctx.peers(group)
    n, rank = len(members), members.index(ctx.name)
    left, right = members[rank - 1], members[(rank + 1) % n]
    chunks = shard_slices(len(values), n)
    real = values.strides != (0,)
    for k in range(n - 1):
        ctx.send(right, Chunk(values[chunks[(rank - 1 - k) % n]], k, (rank - 1 - k) % n))
        arrived = await ctx.recv(Chunk, sender=left)
        if real:
            mine = values[chunks[arrived.part]]
            np.add(arrived.values, mine, out=mine)
    return chunks[rank]


async def all_gather(ctx: Context, values: np.ndarray, group: str = "worker") -> np.ndarray:
    """Member r brings chunk r of `values`; afterwards everybody has all chunks, in place."""
    members = ctx.peers(group)
    n, rank = len(members), members.index(ctx.name)
    left, right = members[rank - 1], members[(rank + 1) % n]
    chunks = shard_slices(len(values), n)
    real = values.strides != (0,)
    for k in range(n - 1):
        ctx.send(right, Chunk(values[chunks[(rank - k) % n]], n + k, (rank - k) % n))
        arrived = await ctx.recv(Chunk, sender=left)
        if real:
            values[chunks[arrived.part]] = arrived.values
    return values


async def broadcast(ctx: Context, values: np.ndarray, root: str, group: str = "worker") -> np.ndarray:
    """Everybody ends with the root's `values`, in place, in log2 N steps down a binomial tree."""
    members = ctx.peers(group)
    n = len(members)
    rank = (members.index(ctx.name) - members.index(root)) % n  # the root is 0
    first = members.index(root)
    span = 1
    while span < n:
        if rank < span and rank + span < n:
            ctx.send(members[(first + rank + span) % n], Chunk(values, span, 0))
        elif span <= rank < 2 * span:
            arrived = await ctx.recv(Chunk, sender=members[(first + rank - span) % n])
            if values.strides != (0,):
                np.copyto(values, arrived.values)
        span *= 2
    return values


async def barrier(ctx: Context, group: str = "worker") -> None:
    """Nobody goes on before everybody has come (dissemination barrier: log2 N steps)."""
    members = ctx.peers(group)
    n, rank = len(members), members.index(ctx.name)
    span = 1
    while span < n:
        ctx.send(members[(rank + span) % n], Chunk(np.empty(0), span, 0))
        await ctx.recv(Chunk, sender=members[(rank - span) % n])
        span *= 2
