"""Gates of parameter servers: which gradients are combined into a step, and when a worker may start its next iteration.

    all_pushes     one gradient of every worker, computed on the present weights      SyncPS
    first_pushes   the first gradients of different workers, on the present weights   BackupWorkers, KSync
    next_pushes    the next gradients, several of one worker included, on the same    KBatchSync
    Accumulator    the next K gradients, stale or not                                 KAsync, KBatchAsync
    Gate           answers a worker when it is at most s iterations ahead             SSP

The gates also handle workers that are lost, are restarted, or join, so a strategy needs no code for these cases. They receive,
answer and drop pushes; they do not apply gradients.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from .context import Context
from .messages import Joined, Left, Message, Pull, Push
from .shard import Shard

P = TypeVar("P", bound=Message)


# gradients of the present version -------------------------------------------------------------------------------------


async def all_pushes(ctx: Context, shard: Shard) -> list[Push]:
    """Receive one push of every worker, all computed on the shard's present version.

    Until all have arrived, the server replies immediately with its weights to two kinds of request:

    - a pull from a worker that starts;
    - a push computed on an older version, because its worker was absent in between. This push is dropped as "late".

    If a restarted worker pushes again, its first push is dropped. Workers that leave, or are lost and not waited for, are not
    required. For workers that join when there are several servers, see `Round.restart`.

    Parameters
    ----------
    ctx : Context
        The server's interface to the engine.
    shard : Shard
        The server's shard.

    Returns
    -------
    list of Push
        The pushes, in the order of the workers, so that their sum does not depend on the order of arrival.

    See Also
    --------
    first_pushes : Does not wait for the last workers.
    Round : The same as an object, for servers that handle other messages in the meantime.

    Examples
    --------
    >>> class Noting(lk.SyncPS):
    ...     async def server(self, ctx, shard):
    ...         while True:
    ...             pushes = await lk.all_pushes(ctx, shard)
    ...             print([push.sender for push in pushes], f"at {ctx.now:.2f} s")
    ...             await ctx.compute(shard.apply, pushes, self.learning_rate)
    ...             for push in pushes:
    ...                 ctx.send(push, shard.weights())
    >>> run = lk.train("moons", Noting(), lk.SimulatedCluster(workers=3), lk.Budget(updates=2)).wait()
    ['worker-0', 'worker-1', 'worker-2'] at 0.01 s
    ['worker-0', 'worker-1', 'worker-2'] at 0.02 s
    """
    step = Round[Push](shard)
    async for request in ctx.inbox(Push, Pull, Left, Joined):
        if isinstance(request, Push):
            if not step.add(request):
                ctx.send(request, shard.weights())
        elif isinstance(request, Pull):
            ctx.send(request, shard.weights())
        elif isinstance(request, Joined):
            for push in step.restart(ctx.peers("server")):
                ctx.send(push, shard.weights())
        if step.complete(ctx.peers("worker")):
            break
    return step.pushes()


async def first_pushes(ctx: Context, shard: Shard, count: int) -> list[Push]:
    """Receive the first pushes of different workers that were computed on the shard's present version.

    Pushes of an older version are dropped as "late". If a restarted worker pushes again, its first push is dropped. Pulls are
    answered in the meantime.

    Parameters
    ----------
    ctx : Context
        The server's interface to the engine.
    shard : Shard
        The server's shard.
    count : int
        The number of pushes. If there are fewer workers, one push of each is sufficient.

    Returns
    -------
    list of Push
        The pushes, in the order of the workers.

    See Also
    --------
    all_pushes : Waits for all workers.
    next_pushes : Accepts several pushes of one worker.

    Examples
    --------
    >>> class FirstTwo(lk.KSync):
    ...     async def server(self, ctx, shard):
    ...         pushes = await lk.first_pushes(ctx, shard, 2)
    ...         print([push.sender for push in pushes], f"at {ctx.now:.2f} s")
    ...         await ctx.compute(shard.apply, pushes, self.learning_rate)
    >>> slow = lk.SimulatedCluster(workers=3, slow={"worker-0": 5})
    >>> run = lk.train("moons", FirstTwo(), slow, lk.Budget(updates=1)).wait()
    ['worker-1', 'worker-2'] at 0.01 s
    """
    pushes: dict[str, Push] = {}
    while len(pushes) < min(count, max(1, len(ctx.peers("worker")))):
        push = await _receive_current_push(ctx, shard)
        if push is not None:
            before = pushes.pop(push.sender, None)
            if before is not None:
                shard.drop(before, "late")
            pushes[push.sender] = push
    return in_worker_order(shard, pushes.values())


async def next_pushes(ctx: Context, shard: Shard, count: int) -> list[Push]:
    """Receive the next pushes that were computed on the shard's present version, of any workers.

    Pushes of an older version are dropped as "late". Pulls are answered in the meantime.

    Parameters
    ----------
    ctx : Context
        The server's interface to the engine.
    shard : Shard
        The server's shard.
    count : int
        The number of pushes. Several may be of one worker.

    Returns
    -------
    list of Push
        The pushes, in the order of the workers.

    See Also
    --------
    first_pushes : Accepts one push of each worker.
    Accumulator : Accepts pushes of any version.

    Examples
    --------
    >>> class NextThree(lk.KBatchSync):
    ...     async def server(self, ctx, shard):
    ...         pushes = await lk.next_pushes(ctx, shard, 3)
    ...         print([push.sender for push in pushes], f"at {ctx.now:.2f} s")
    ...         await ctx.compute(shard.apply, pushes, self.learning_rate)
    >>> slow = lk.SimulatedCluster(workers=3, slow={"worker-0": 5})
    >>> run = lk.train("moons", NextThree(K=3), slow, lk.Budget(updates=1)).wait()
    ['worker-1', 'worker-1', 'worker-2'] at 0.02 s
    """
    pushes: list[Push] = []
    while len(pushes) < count:
        push = await _receive_current_push(ctx, shard)
        if push is not None:
            pushes.append(push)
    return in_worker_order(shard, pushes)


async def _receive_current_push(ctx: Context, shard: Shard) -> Push | None:
    """Receive one message. Returns it if it is a push that was computed on the present version, else None."""
    request = await ctx.recv(Push, Pull, Left, Joined)
    if isinstance(request, Pull):
        ctx.send(request, shard.weights())
    elif isinstance(request, Push):
        if shard.fresh(request):
            return request
        shard.drop(request, "late")
    return None


class Round(Generic[P]):
    """Collects one push of every worker, all computed on the present version of a shard.

    Parameters
    ----------
    shard : Shard
        The shard to which the pushes will be applied.

    Attributes
    ----------
    received : dict
        The push of each worker from which one has arrived, by the name of the worker.

    See Also
    --------
    all_pushes : Receives the pushes, too.

    Examples
    --------
    >>> class Noting(lk.SyncPS):
    ...     async def server(self, ctx, shard):
    ...         step = lk.Round(shard)
    ...         async for request in ctx.inbox(lk.Push, lk.Pull):
    ...             if isinstance(request, lk.Pull):
    ...                 ctx.send(request, shard.weights())
    ...             elif step.add(request):
    ...                 print(f"{len(step.received)} of 3 pushes")
    ...             if step.complete(ctx.peers("worker")):
    ...                 await ctx.compute(shard.apply, step.pushes(), self.learning_rate)
    >>> run = lk.train("moons", Noting(), lk.SimulatedCluster(workers=3), lk.Budget(updates=1)).wait()
    1 of 3 pushes
    2 of 3 pushes
    3 of 3 pushes
    """

    def __init__(self, shard: Shard):
        self._shard = shard
        self.received: dict[str, P] = {}

    def add(self, push: P) -> bool:
        """Add a push. If it was computed on an older version, it is dropped as "late" instead.

        Parameters
        ----------
        push : Push
            A push of a worker.

        Returns
        -------
        bool
            False if the push was dropped.
        """
        if not self._shard.fresh(push):
            self._shard.drop(push, "late")
            return False
        before = self.received.get(push.sender)
        if before is not None:  # from the worker's previous incarnation
            self._shard.drop(before, "late")
        self.received[push.sender] = push
        return True

    def complete(self, workers: Sequence[str]) -> bool:
        """Return whether there is a push of each worker, and at least one.

        Parameters
        ----------
        workers : sequence of str
            The names of the workers that take part.

        Returns
        -------
        bool
            Whether the round is complete.
        """
        return len(self.received) >= max(1, len(workers)) and all(worker in self.received for worker in workers)

    def restart(self, servers: Sequence[str]) -> list[P]:
        """Restart the round because a worker has joined. With one server, this is not necessary, and nothing is done.

        With several servers, the round may be complete at one server and not at another, and workers that wait for different
        servers would deadlock. Therefore all pushes are dropped as "late" and returned. The caller answers them, so that the
        next pushes belong to the same round on all servers.

        Parameters
        ----------
        servers : sequence of str
            The names of all servers.

        Returns
        -------
        list of Push
            The dropped pushes.
        """
        if len(servers) < 2:
            return []
        dropped = self.pushes()
        for push in dropped:
            self._shard.drop(push, "late")
        return dropped

    def pushes(self) -> list[P]:
        """Return all pushes, in the order of the workers, and start the next round.

        Returns
        -------
        list of Push
            The pushes of the round.
        """
        pushes, self.received = in_worker_order(self._shard, self.received.values()), {}
        return pushes


def in_worker_order(shard: Shard, pushes: Iterable[P]) -> list[P]:
    """Return `pushes` in the order of their senders, so that their sum does not depend on the order of arrival."""
    return sorted(pushes, key=lambda push: shard.role_ids[push.sender])


# gradients of any version ---------------------------------------------------------------------------------------------


class Accumulator:
    """Collects pushes, stale or not, until there are enough for a step (like TensorFlow's conditional accumulator).

    See Also
    --------
    next_pushes : Accepts only pushes of the present version.

    Examples
    --------
    >>> accumulator = lk.Accumulator()
    >>> first, second = (lk.Push(np.zeros(2), step, generation=0, version=0) for step in (0, 1))
    >>> accumulator.add(first, needed=2)
    []
    >>> [push.step for push in accumulator.add(second, needed=2)]
    [0, 1]
    """

    def __init__(self) -> None:
        self._pushes: list[Push] = []

    def add(self, request: Message, needed: int) -> list[Push]:
        """Add a request if it is a push, and return the pushes of the next step if there are enough.

        Parameters
        ----------
        request : Message
            A message to the server. Messages that are not pushes are not added.
        needed : int
            The number of pushes of a step.

        Returns
        -------
        list of Push
            All collected pushes, in order of arrival, if there are at least `needed`, or if `request` says that a worker has
            joined; otherwise an empty list.
        """
        if isinstance(request, Push):
            self._pushes.append(request)
        if not self._pushes or (len(self._pushes) < needed and not isinstance(request, Joined)):
            return []
        pushes, self._pushes = self._pushes, []
        return pushes


class Gate:
    """Lets a worker start an iteration only if it is at most `slack` iterations ahead of the slowest worker.

    Workers that leave, or are lost and not waited for, are ignored. A worker that joins starts with the clock of the slowest.

    Parameters
    ----------
    ctx : Context
        The server's interface to the engine.

    Attributes
    ----------
    clocks : dict
        The number of completed iterations of each worker, by its name.
    slowest : int
        The minimum of `clocks`.

    See Also
    --------
    SSP : The strategy that uses it.

    Examples
    --------
    >>> class Bounded(lk.SSP):
    ...     async def server(self, ctx, shard):
    ...         gate = lk.Gate(ctx)
    ...         async for request in ctx.inbox(lk.Push, lk.Pull):
    ...             if isinstance(request, lk.Push):
    ...                 await ctx.compute(shard.apply, request, self.learning_rate)
    ...             for admitted in gate.admit(request, self.s):
    ...                 ctx.send(admitted, shard.weights())
    ...             if shard.version == 6:
    ...                 print(gate.clocks)
    >>> slow = lk.SimulatedCluster(workers=2, slow={"worker-0": 10})
    >>> run = lk.train("moons", Bounded(s=4), slow, lk.Budget(updates=6)).wait()
    {'worker-0': 1, 'worker-1': 5}
    """

    def __init__(self, ctx: Context):
        self._ctx = ctx
        self.clocks = dict.fromkeys(ctx.peers("worker"), 0)
        self.slowest = 0
        # {clock: number of workers at it}, to find the minimum without a search
        self._workers_at = {0: len(self.clocks)}
        self._waiting: dict[int, list[Message]] = {}  # {clock: requests of workers that wait for their next iteration}

    def admit(self, request: Message, slack: int) -> list[Message]:
        """Process a request, and return the requests that may be answered now.

        A push completes an iteration of its sender and requests weights for the next iteration; a pull only requests weights.
        `Left` and `Joined` change the set of workers.

        Parameters
        ----------
        request : Message
            A message to the server.
        slack : int
            The number of iterations that a worker may be ahead of the slowest.

        Returns
        -------
        list of Message
            The pushes and pulls to answer, those of the slowest worker first.
        """
        if isinstance(request, (Left, Joined)):
            self._update_members(self._ctx.peers("worker"))
        else:
            if isinstance(request, Push):
                self._count_iteration(request.sender)
            self._waiting.setdefault(self.clocks.get(request.sender, self.slowest), []).append(request)
        ready = []
        for clock in sorted(self._waiting):
            if clock - self.slowest <= slack:
                ready += self._waiting.pop(clock)
        return ready

    def _count_iteration(self, worker: str) -> None:
        clock = self.clocks.get(worker)
        if clock is None:  # it has left in the meantime
            return
        self.clocks[worker] = clock + 1
        self._workers_at[clock] -= 1
        self._workers_at[clock + 1] = self._workers_at.get(clock + 1, 0) + 1
        self._advance()

    def _advance(self) -> None:
        while self.clocks and not self._workers_at[self.slowest]:
            del self._workers_at[self.slowest]
            self.slowest += 1
            self._workers_at.setdefault(self.slowest, 0)

    def _update_members(self, workers: Sequence[str]) -> None:
        present = set(workers)
        for gone in [worker for worker in self.clocks if worker not in present]:
            self._workers_at[self.clocks.pop(gone)] -= 1
        for new in [worker for worker in workers if worker not in self.clocks]:
            self.clocks[new] = self.slowest
            self._workers_at[self.slowest] = self._workers_at.get(self.slowest, 0) + 1
        self._advance()
