"""Collectives: all members of a group call the same function, and all get the same result.

There are two all-reduce algorithms. For a vector of M bytes, each of the N members sends 2(N-1)/N M bytes, in chunks. The times
are given for a latency a and b seconds per byte:

| all-reduce | steps | time |
|---|---|---|
| `ring` | 2(N-1), each to the right neighbour | 2(N-1) a + 2(N-1)/N M b |
| `halving_doubling`, N = 2^k | 2k, with the members 1, 2, 4 ... places away | 2k a + 2(N-1)/N M b |
| the same, N = P + m, m < P = 2^k | 2k + 2: m members send their vector and receive the sum | (2k+2) a + (2(P-1)/P + 2) M b |

Each chunk is summed on one member and then distributed, so the results of all members have identical bits. The functions change
`values` in place. Timing-only vectors (zero strides) are sent without arithmetic. `reduce_scatter` and `all_gather` use the
ring.

Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009 (the ring);
Rabenseifner, "Optimization of collective reduction operations", 2004, and Thakur, Rabenseifner and Gropp,
"Optimization of collective communication operations in MPICH", 2005 (halving and doubling).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from ..errors import nearest
from .compressor import Compressor
from .context import Context
from .layout import shard_slices
from .messages import Chunk


async def all_reduce(
    ctx: Context,
    values: np.ndarray,
    group: str = "worker",
    algorithm: str = "ring",
    compressor: Compressor | None = None,
    tag: int | None = None,
) -> np.ndarray:
    """Replace the values of every member by the sum of all members' values, in place.

    Parameters
    ----------
    ctx : Context
        The member's interface to the engine.
    values : ndarray, shape (n,)
        The vector of this member. It is overwritten.
    group : str, default: 'worker'
        The kind or group of roles that are the members.
    algorithm : {'ring', 'halving-doubling'}, default: 'ring'
        The algorithm. The number of bytes is the same; halving and doubling takes fewer steps.
    compressor : Compressor, optional
        Messages are compressed by its linear codec, and the result is the sum of the compressed values.
    tag : int, optional
        Sends chunks with the tags from `tag` to `tag` + 2N - 1, and receives no others, so that several collectives of a role's
        tasks can run at once, with tags 2N apart. None: any chunks, for one collective at a time.

    Returns
    -------
    ndarray, shape (n,)
        The argument `values`. The results of all members have identical bits.

    Raises
    ------
    BadInput
        If the algorithm is unknown.

    See Also
    --------
    reduce_scatter, all_gather : The two halves of a ring all-reduce.
    RingAllReduce, HalvingDoubling : The strategies that use it.

    Examples
    --------
    >>> class Example(lk.RingAllReduce):
    ...     async def worker(self, ctx, model, replica):
    ...         print(ctx.name, await lk.all_reduce(ctx, np.array([1.0, 2.0, 3.0])))
    >>> run = lk.train("moons", Example(), lk.SimulatedCluster(workers=3), lk.Budget(seconds=1)).wait()
    worker-1 [3. 6. 9.]
    worker-2 [3. 6. 9.]
    worker-0 [3. 6. 9.]
    """
    if algorithm not in ALL_REDUCE:
        raise nearest("all-reduce", algorithm, ALL_REDUCE)
    if compressor is None:
        await ALL_REDUCE[algorithm](ctx, values, group, tag)
        return values
    for vector in compressor.sum_over_workers(values, len(ctx.peers(group))):
        await ALL_REDUCE[algorithm](ctx, vector, group, tag)
    return values


async def ring(ctx: Context, values: np.ndarray, group: str, tag: int | None) -> None:
    """Sum `values` by a reduce-scatter (N-1 steps) and an all-gather (N-1 steps)."""
    await reduce_scatter(ctx, values, group, tag)
    await all_gather(ctx, values, group, tag)


async def halving_doubling(ctx: Context, values: np.ndarray, group: str, tag: int | None) -> None:
    """Sum `values` by a reduce-scatter (recursive halving) and an all-gather (recursive doubling) among 2^k members.

    With 2^k + m members, every second of the first 2m members first sends its vector to its right neighbour, and finally
    receives the sum from it. These neighbours start late. They are therefore the last in the order of the 2^k members; in
    other orders, their messages are delayed by those of other members, and the time is up to a quarter longer.
    """
    members = ctx.peers(group)
    n, rank = len(members), members.index(ctx.name)
    folded, first = 2 * (n - (1 << n.bit_length() - 1)), tag or 0
    if rank < folded and rank % 2 == 0:
        ctx.send(members[rank + 1], Chunk(values, first, 0))
        arrived = await ctx.recv(Chunk, sender=members[rank + 1], tag=tag)
        _put(values, arrived.values)
        return
    if rank < folded:
        arrived = await ctx.recv(Chunk, sender=members[rank - 1], tag=tag)
        _add(values, arrived.values)
    await _halve_and_double(ctx, values, members[folded:] + members[1:folded:2], tag)
    if rank < folded:
        ctx.send(members[rank - 1], Chunk(values, first, 0))


async def _halve_and_double(ctx: Context, values: np.ndarray, members: tuple[str, ...], tag: int | None) -> None:
    """Halving and doubling among 2^k `members`. This member computes, or has, the sum of the chunks low .. low + size - 1."""
    n, rank = len(members), members.index(ctx.name)
    edges = [part.start for part in shard_slices(len(values), n)] + [len(values)]
    size, low, first = n, 0, tag or 0
    while size > 1:  # reduce-scatter: keep the half with the member's chunk, send the other half to the partner
        size //= 2
        partner, give = members[rank ^ size], (low if rank & size else low + size)
        low = give ^ size
        ctx.send(partner, Chunk(values[edges[give] : edges[give + size]], first + size, give))
        arrived = await ctx.recv(Chunk, sender=partner, tag=None if tag is None else tag + size)
        _add(values[edges[low] : edges[low + size]], arrived.values)
    while size < n:  # all-gather: twice as many chunks after every exchange
        partner, other = members[rank ^ size], low ^ size
        ctx.send(partner, Chunk(values[edges[low] : edges[low + size]], first + size, low))
        arrived = await ctx.recv(Chunk, sender=partner, tag=None if tag is None else tag + size)
        _put(values[edges[other] : edges[other + size]], arrived.values)
        size, low = 2 * size, min(low, other)


# Arrays of a timing-only run have zero strides, and no memory that could be written.
def _add(values: np.ndarray, arrived: np.ndarray) -> None:
    if values.strides != (0,):
        np.add(arrived, values, out=values)


def _put(values: np.ndarray, arrived: np.ndarray) -> None:
    if values.strides != (0,):
        np.copyto(values, arrived)


ALL_REDUCE: dict[str, Callable[[Context, np.ndarray, str, int | None], Awaitable[Any]]] = {
    "ring": ring, "halving-doubling": halving_doubling,
}  # fmt: skip


async def reduce_scatter(ctx: Context, values: np.ndarray, group: str = "worker", tag: int | None = None) -> slice:
    """Sum chunk r of all members' values on member r, in place.

    Parameters
    ----------
    ctx : Context
        The member's interface to the engine.
    values : ndarray, shape (n,)
        The vector of this member. It is overwritten: its own chunk by the sum, the others by partial sums.
    group : str, default: 'worker'
        The kind or group of roles that are the members.
    tag : int, optional
        As in `all_reduce`.

    Returns
    -------
    slice
        This member's chunk.

    See Also
    --------
    all_gather : Distributes the chunks.

    Examples
    --------
    >>> class Example(lk.RingAllReduce):
    ...     async def worker(self, ctx, model, replica):
    ...         values = np.array([1.0, 2.0, 3.0])
    ...         chunk = await lk.reduce_scatter(ctx, values)
    ...         print(ctx.name, chunk, values[chunk])
    >>> run = lk.train("moons", Example(), lk.SimulatedCluster(workers=3), lk.Budget(seconds=1)).wait()
    worker-2 slice(2, 3, None) [9.]
    worker-0 slice(0, 1, None) [3.]
    worker-1 slice(1, 2, None) [6.]
    """
    members = ctx.peers(group)
    n, rank = len(members), members.index(ctx.name)
    left, right = members[rank - 1], members[(rank + 1) % n]
    chunks = shard_slices(len(values), n)
    first = tag or 0
    for k in range(n - 1):
        ctx.send(right, Chunk(values[chunks[(rank - 1 - k) % n]], first + k, (rank - 1 - k) % n))
        arrived = await ctx.recv(Chunk, sender=left, tag=None if tag is None else tag + k)
        _add(values[chunks[arrived.part]], arrived.values)
    return chunks[rank]


async def all_gather(ctx: Context, values: np.ndarray, group: str = "worker", tag: int | None = None) -> np.ndarray:
    """Distribute chunk r of the values of member r to all members, in place.

    Parameters
    ----------
    ctx : Context
        The member's interface to the engine.
    values : ndarray, shape (n,)
        The vector of this member. Its own chunk is sent; the others are overwritten.
    group : str, default: 'worker'
        The kind or group of roles that are the members.
    tag : int, optional
        As in `all_reduce`.

    Returns
    -------
    ndarray, shape (n,)
        The argument `values`.

    See Also
    --------
    reduce_scatter : Sums the chunks.

    Examples
    --------
    >>> class Example(lk.RingAllReduce):
    ...     async def worker(self, ctx, model, replica):
    ...         values, rank = np.zeros(3), ctx.peers("worker").index(ctx.name)
    ...         values[rank] = rank + 1
    ...         print(ctx.name, await lk.all_gather(ctx, values))
    >>> run = lk.train("moons", Example(), lk.SimulatedCluster(workers=3), lk.Budget(seconds=1)).wait()
    worker-2 [1. 2. 3.]
    worker-0 [1. 2. 3.]
    worker-1 [1. 2. 3.]
    """
    members = ctx.peers(group)
    n, rank = len(members), members.index(ctx.name)
    left, right = members[rank - 1], members[(rank + 1) % n]
    chunks = shard_slices(len(values), n)
    first = n + (tag or 0)
    for k in range(n - 1):
        ctx.send(right, Chunk(values[chunks[(rank - k) % n]], first + k, (rank - k) % n))
        arrived = await ctx.recv(Chunk, sender=left, tag=None if tag is None else first + k)
        _put(values[chunks[arrived.part]], arrived.values)
    return values


async def broadcast(ctx: Context, values: np.ndarray, root: str, group: str = "worker") -> np.ndarray:
    """Distribute the root's values to all members, in place: log2 N steps of a binomial tree.

    Parameters
    ----------
    ctx : Context
        The member's interface to the engine.
    values : ndarray
        The values of the root. Those of the other members are overwritten.
    root : str
        The name of the member whose values are sent.
    group : str, default: 'worker'
        The kind or group of roles that are the members.

    Returns
    -------
    ndarray
        The argument `values`.

    See Also
    --------
    all_gather : Every member sends a chunk.

    Examples
    --------
    >>> class Example(lk.RingAllReduce):
    ...     async def worker(self, ctx, model, replica):
    ...         values = np.full(2, float(ctx.peers("worker").index(ctx.name)))
    ...         print(ctx.name, await lk.broadcast(ctx, values, root="worker-2"))
    >>> run = lk.train("moons", Example(), lk.SimulatedCluster(workers=3), lk.Budget(seconds=1)).wait()
    worker-2 [2. 2.]
    worker-0 [2. 2.]
    worker-1 [2. 2.]
    """
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
            _put(values, arrived.values)
        span *= 2
    return values


async def barrier(ctx: Context, group: str = "worker") -> None:
    """Wait until all members have called this function (dissemination barrier: log2 N steps).

    Parameters
    ----------
    ctx : Context
        The member's interface to the engine.
    group : str, default: 'worker'
        The kind or group of roles that are the members.

    See Also
    --------
    all_reduce : Also exchanges values.

    Examples
    --------
    >>> class Example(lk.RingAllReduce):
    ...     async def worker(self, ctx, model, replica):
    ...         await ctx.sleep(ctx.peers("worker").index(ctx.name))
    ...         await lk.barrier(ctx)
    ...         print(ctx.name, ctx.now)
    >>> run = lk.train("moons", Example(), lk.SimulatedCluster(workers=3), lk.Budget(seconds=9)).wait()
    worker-0 2.0
    worker-1 2.0
    worker-2 2.0
    """
    members = ctx.peers(group)
    n, rank = len(members), members.index(ctx.name)
    span = 1
    while span < n:
        ctx.send(members[(rank + span) % n], Chunk(np.empty(0), span, 0))
        await ctx.recv(Chunk, sender=members[(rank - span) % n])
        span *= 2
