"""Communication of workers with parameter servers: `pull`, `push`, `push_pull`, `post` and `NewestWeights`, for any number of
shards. Requests to a server that is restarted before it has answered are retransmitted.

In `push_pull`, a push and the following pull are one operation at each shard: the reply to the push is the shard's newest
weights. With several shards, the weights of an asynchronous pull may have a different version on each shard (a torn read). They
are returned with the version of each shard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .context import Context
from .gradient import Gradient, Parameters
from .messages import Ack, Joined, Left, Message, Pull, Weights

WEIGHTS = (Weights, Joined)


async def pull(ctx: Context, kind: type[Weights] = Weights) -> Parameters | Weights:
    """Fetch the weights of every shard.

    If a server is restarted before it has answered, the request is retransmitted.

    Parameters
    ----------
    ctx : Context
        The worker's interface to the engine.
    kind : type, default: Weights
        The kind of message of the replies.

    Returns
    -------
    Parameters or Weights
        The whole flat parameter vector, with the version of each shard. The versions may differ (a torn read).

    See Also
    --------
    push_pull : Sends a gradient with the request.
    NewestWeights : For servers that send weights without a request.

    Examples
    --------
    >>> class OneStep(lk.AsyncPS):
    ...     async def worker(self, ctx, model):
    ...         weights = await lk.pull(ctx)
    ...         print(weights.values.size, weights.read)
    >>> run = lk.train("moons", OneStep(), lk.SimulatedCluster(workers=1, servers=2), lk.Budget(seconds=1)).wait()
    642 ((0, 0), (0, 0))
    """
    servers = ctx.peers("server")
    if len(servers) == 1:
        return await _request(ctx, servers[0], Pull(), kind)
    for server in servers:
        ctx.send(server, Pull())
    return _assemble(await replies(ctx, servers, lambda shard: Pull(), kind))


def post(ctx: Context, gradient: Gradient) -> None:
    """Send a gradient to every shard, without waiting for an answer.

    Parameters
    ----------
    ctx : Context
        The worker's interface to the engine.
    gradient : Gradient
        The gradient, as `model.gradient` has returned it.

    See Also
    --------
    push : Waits until the gradient is applied.
    NewestWeights : Receives the weights that the servers send.

    Examples
    --------
    >>> class TwoGradients(lk.KBatchAsync):
    ...     async def worker(self, ctx, model):
    ...         weights = await lk.pull(ctx)
    ...         for batch, _ in zip(ctx.batches(), range(2)):
    ...             lk.post(ctx, await ctx.compute(model.gradient, weights, batch))
    >>> run = lk.train("moons", TwoGradients(K=2), lk.SimulatedCluster(workers=1), lk.Budget(updates=1)).wait()
    >>> run.summary()["updates"], run.summary()["gradients"]
    (1, 2)
    """
    for shard, server in enumerate(ctx.peers("server")):
        ctx.send(server, gradient.push(shard))


async def push(ctx: Context, gradient: Gradient) -> None:
    """Send a gradient to every shard and wait until all have acknowledged it.

    If a server is restarted before it has answered, the push is retransmitted. It is applied only once.

    Parameters
    ----------
    ctx : Context
        The worker's interface to the engine.
    gradient : Gradient
        The gradient, as `model.gradient` has returned it.

    See Also
    --------
    push_pull : Also receives the weights.
    Downpour : The strategy that uses it.

    Examples
    --------
    >>> class OneStep(lk.Downpour):
    ...     async def worker(self, ctx, model):
    ...         weights = await lk.pull(ctx)
    ...         await lk.push(ctx, await ctx.compute(model.gradient, weights, next(ctx.batches())))
    ...         print((await lk.pull(ctx)).version)
    >>> run = lk.train("moons", OneStep(), lk.SimulatedCluster(workers=1), lk.Budget(seconds=1)).wait()
    1
    """
    await replies(ctx, ctx.peers("server"), _send_pushes(ctx, gradient).__getitem__, Ack)


async def push_pull(ctx: Context, gradient: Gradient, kind: type[Weights] = Weights) -> Parameters | Weights:
    """Send a gradient to every shard and wait for the replies, which contain the weights.

    If a server is restarted before it has answered, the push is retransmitted. It is applied only once.

    Parameters
    ----------
    ctx : Context
        The worker's interface to the engine.
    gradient : Gradient
        The gradient, as `model.gradient` has returned it.
    kind : type, default: Weights
        The kind of message of the replies.

    Returns
    -------
    Parameters or Weights
        The whole flat parameter vector, with the version of each shard. The versions may differ (a torn read).

    See Also
    --------
    pull : Requests the first weights.

    Examples
    --------
    >>> class ThreeSteps(lk.AsyncPS):
    ...     async def worker(self, ctx, model):
    ...         weights = await lk.pull(ctx)
    ...         for batch, _ in zip(ctx.batches(), range(3)):
    ...             gradient = await ctx.compute(model.gradient, weights, batch)
    ...             weights = await lk.push_pull(ctx, gradient)
    ...             print(weights.version, f"at {ctx.now:.2f} s")
    >>> run = lk.train("moons", ThreeSteps(), lk.SimulatedCluster(workers=1), lk.Budget(seconds=1)).wait()
    1 at 0.01 s
    2 at 0.02 s
    3 at 0.03 s
    """
    servers = ctx.peers("server")
    if len(servers) == 1:
        return await _request(ctx, servers[0], gradient.push(0), kind)
    return _assemble(await replies(ctx, ctx.peers("server"), _send_pushes(ctx, gradient).__getitem__, kind))


async def _request(ctx: Context, server: str, request: Message, kind: type[Weights]) -> Weights:
    """Send a request to a single server and wait for the reply: the fast path of `replies`. The weights in the reply have all
    attributes of `Parameters`.
    """
    ctx.send(server, request)
    kinds = WEIGHTS if kind is Weights else (kind, Joined)
    while True:
        message: Any = await ctx.recv(*kinds)
        if message.__class__ is not Joined:
            return message  # type: ignore[no-any-return]
        if message.name == server:
            ctx.send(server, request)


def _send_pushes(ctx: Context, gradient: Gradient) -> list[Any]:
    """Send the pushes of `gradient`, and return them. A retransmission sends the same push, because compressing it again would
    change the compressor's memory.
    """
    pushes = []
    for shard, server in enumerate(ctx.peers("server")):
        pushes.append(gradient.push(shard))
        ctx.send(server, pushes[shard])
    return pushes


async def replies(
    ctx: Context, servers: Sequence[str], request: Callable[[int], Any], kind: type[Message] = Weights
) -> list[Any]:  # fmt: skip
    """Wait for the replies of all servers, and return them in the order of the servers.

    If a server is restarted before it has answered, `request(shard)` is sent to it again. A push that the server had received
    before is applied only once.
    """
    kinds = (kind, Joined)
    arrived: list[Any] = [None] * len(servers)
    missing = len(servers)
    while missing:
        message = await ctx.recv(*kinds)
        if message.__class__ is Joined:
            if message.name in servers and arrived[servers.index(message.name)] is None:
                ctx.send(message.name, request(servers.index(message.name)))
            continue
        shard = 0 if len(servers) == 1 else servers.index(message.sender)
        missing -= arrived[shard] is None
        arrived[shard] = message
    return arrived


class NewestWeights:
    """Receives weights from servers that send every version to all workers without a request.

    A worker that was busy during several versions gets the newest version. With several shards, it waits until it has the same
    version of all shards. This version arrives, because every shard sends every version.

    After the loss of a role, the versions of the shards may differ permanently, because a shard was restored, or because only
    some shards have received the last push of a worker. In that case newer weights of any shard are sufficient.

    Parameters
    ----------
    ctx : Context
        The worker's interface to the engine.

    See Also
    --------
    pull : For servers that answer requests.
    BackupWorkers : A strategy that uses it.

    Examples
    --------
    worker-0 is slow, and is given the newest weights when it has finished its gradient.

    >>> class Late(lk.BackupWorkers):
    ...     async def worker(self, ctx, model):
    ...         newest = lk.NewestWeights(ctx)
    ...         weights = await newest.pull()
    ...         for batch in ctx.batches():
    ...             lk.post(ctx, await ctx.compute(model.gradient, weights, batch))
    ...             weights = await newest.weights()
    ...             if ctx.name == "worker-0":
    ...                 print(f"version {weights.version} at {ctx.now:.3f} s")
    >>> slow = lk.SimulatedCluster(workers=3, slow={"worker-0": 4.5})
    >>> run = lk.train("moons", Late(), slow, lk.Budget(seconds=0.1)).wait()
    version 4 at 0.045 s
    version 8 at 0.090 s
    """

    def __init__(self, ctx: Context):
        self._ctx, self._shards = ctx, len(ctx.peers("server"))
        self._parts: dict[int, Weights] = {}
        self._returned: dict[int, tuple[int, int]] = {}
        self._versions_differ = ctx.incarnation > 0

    async def pull(self) -> Parameters | Weights:
        """Request the initial weights and wait for them.

        Returns
        -------
        Parameters or Weights
            The whole flat parameter vector, with the version of each shard.
        """
        for server in self._ctx.peers("server"):
            self._ctx.send(server, Pull())
        return await self.weights()

    async def weights(self, wait: bool = True) -> Parameters | Weights:
        """Wait for weights that are newer than those returned last.

        Of several versions that have arrived, the newest is returned.

        Parameters
        ----------
        wait : bool, default: True
            False: if no newer weights have arrived, the same weights are returned again. They are also returned again if only a
            duplicate reply arrives.

        Returns
        -------
        Parameters or Weights
            The whole flat parameter vector, with the version of each shard.
        """
        received = False
        while True:
            timeout = None if self._incomplete() or (wait and not received and not self._has_newer()) else 0
            arrived: Any = await self._ctx.recv(Weights, Left, Joined, timeout=timeout)
            if arrived is None:
                break
            if arrived.__class__ is Weights:
                self._versions_differ = self._versions_differ or arrived.generation > 0
                self._parts[arrived.shard], received = arrived, True
                continue
            self._versions_differ = self._versions_differ or not arrived.name.startswith("chief")
            if arrived.__class__ is Joined and arrived.name in self._ctx.peers("server"):
                self._ctx.send(arrived.name, Pull())
        parts = [self._parts[shard] for shard in range(self._shards)]
        self._returned = {part.shard: (part.generation, part.version) for part in parts}
        return _assemble(parts)

    def _incomplete(self) -> bool:
        """Return whether more parts will arrive: a part is missing, or the newest parts are of different versions."""
        if len(self._parts) < self._shards:
            return True
        return not self._versions_differ and len({part.version for part in self._parts.values()}) > 1

    def _has_newer(self) -> bool:
        return any(self._returned.get(s) != (part.generation, part.version) for s, part in self._parts.items())


def _assemble(parts: Sequence[Weights]) -> Parameters | Weights:
    """Return the weights of all shards as one vector, with the version of each shard."""
    if len(parts) == 1:
        return parts[0]
    read = tuple((w.generation, w.version) for w in parts)
    clocks = tuple(clock for w in parts for clock in w.clocks)
    if parts[0].values.strides == (0,):
        size = sum(len(w.values) for w in parts)
        return Parameters(np.broadcast_to(parts[0].values[:1], (size,)), read, clocks)
    return Parameters(np.concatenate([w.values for w in parts]), read, clocks)
