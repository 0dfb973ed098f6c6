"""labkit on one page: two strategies with a parameter server, and the simulator that runs them in virtual time.

    python docs/one_page_labkit.py

The names are those of labkit, and the methods of `AsyncPS` and `SyncPS` are labkit's, word for word. With the same strategy,
costs and seed, labkit makes the same updates at the same nanoseconds: `tests/results/test_one_page.py` compares them.
`docs/concepts/one_page.md` explains this file. It needs only NumPy.
"""

from __future__ import annotations

import types
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple

import numpy as np

NANO = 10**9  # time is counted in whole nanoseconds: sums of floats would depend on their order


# 1. effects: what a role can await. Only these two functions yield to the event loop -----------------------------------

COMPUTE, RECV = "compute", "recv"


@types.coroutine
def compute(ctx, fn, *args):
    """Run `fn(*args)`, which takes time, and return its result."""
    return (yield (COMPUTE, fn, args))


@types.coroutine
def recv(ctx, *kinds):
    """Return the next message of some kinds, in order of arrival."""
    return (yield (RECV, kinds))


# 2. messages ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Message:
    sender: str = ""  # set by `ctx.send`


class Pull(Message):
    """A worker asks for the weights."""


@dataclass(frozen=True)
class Weights(Message):
    values: np.ndarray
    version: int  # the number of updates that they contain


@dataclass(frozen=True)
class Push(Message):
    values: np.ndarray  # the gradient
    version: int  # that of the weights on which it was computed
    step: int  # the worker's number of this gradient
    complete: bool = True  # False: mini-batches of an accumulated gradient are still to be added


# 3. strategies: one coroutine per kind of role ------------------------------------------------------------------------


@dataclass(frozen=True)
class AsyncPS:
    """Apply each gradient the moment it arrives. No worker waits; the price is staleness."""

    learning_rate: float = 0.1
    accumulate: int = 1  # mini-batches over which a worker averages its gradient

    async def server(self, ctx, shard):
        """Apply each gradient, and answer its worker."""
        async for request in ctx.inbox(Push, Pull):
            if isinstance(request, Push):
                await ctx.compute(shard.apply, request, self.learning_rate)
            ctx.send(request, shard.weights())

    async def worker(self, ctx, model):
        """Compute on the weights received, send the gradient, receive newer weights."""
        weights = await pull(ctx)
        for batch in ctx.batches():
            gradient = await ctx.compute(model.gradient, weights, batch, self.accumulate)
            if gradient.complete:
                weights = await push_pull(ctx, gradient)


@dataclass(frozen=True)
class SyncPS(AsyncPS):
    """Wait for a gradient of every worker, then take one step. No staleness; the slowest worker sets the pace."""

    reduce: str = "mean"

    async def server(self, ctx, shard):
        """Collect one gradient of every worker, take one step, send the weights to all workers."""
        while True:
            pushes = await all_pushes(ctx, shard)
            await ctx.compute(shard.apply, pushes, self.learning_rate, self.reduce)
            for push in pushes:
                ctx.send(push, shard.weights())


async def pull(ctx):
    """Ask the server for the weights."""
    ctx.send("server-0", Pull())
    return await ctx.recv(Weights)


async def push_pull(ctx, gradient):
    """Send a gradient; the answer is the newest weights."""
    ctx.send("server-0", gradient)
    return await ctx.recv(Weights)


async def all_pushes(ctx, shard):
    """Receive a gradient of every worker. They are returned in the order of the workers, so that their sum does not depend on
    the order of arrival.
    """
    pushes = {}
    async for request in ctx.inbox(Push, Pull):
        if isinstance(request, Pull):
            ctx.send(request, shard.weights())
        else:
            pushes[request.sender] = request
            if len(pushes) == len(ctx.peers("worker")):
                return [pushes[worker] for worker in ctx.peers("worker")]


# 4. what roles compute: gradients at the workers, updates at the server -----------------------------------------------


class LeastSquares:
    """Fit `y = X w` to noisy samples."""

    def __init__(self, seed: int = 0, samples: int = 500, dimension: int = 10, batch_size: int = 16):
        rng = np.random.default_rng(seed)
        self.X, self.batch_size = rng.normal(size=(samples, dimension)), batch_size
        self.y = self.X @ rng.normal(size=dimension) + 0.1 * rng.normal(size=samples)
        self.initial = np.zeros(dimension)

    def batches(self, rng: np.random.Generator) -> Iterator[np.ndarray]:
        while True:
            yield rng.integers(len(self.y), size=self.batch_size)

    def gradient(self, w: np.ndarray, batch: np.ndarray) -> np.ndarray:
        return self.X[batch].T @ (self.X[batch] @ w - self.y[batch]) / len(batch)

    def loss(self, w: np.ndarray) -> float:
        return float(np.mean((self.X @ w - self.y) ** 2) / 2)


class Model:
    """What a worker computes."""

    def __init__(self, problem: Any, name: str, record: Callable[..., None]):
        self.problem, self.name, self.record, self.steps = problem, name, record, count()
        self.parts: list[np.ndarray] = []  # of the gradient that is being accumulated

    def gradient(self, weights: Weights, batch: Any, accumulate: int) -> Push:
        self.parts.append(self.problem.gradient(weights.values, batch))
        if len(self.parts) < accumulate:
            return Push(self.parts[-1], weights.version, -1, complete=False)
        push = Push(sum(self.parts) / accumulate, weights.version, next(self.steps))
        self.parts.clear()
        self.record("computed", self.name, push.step)
        return push


class Shard:
    """The server's parameters, and their version: the number of updates."""

    def __init__(self, initial: np.ndarray, record: Callable[..., None]):
        self.values, self.version, self.record = initial.copy(), 0, record

    def weights(self) -> Weights:
        return Weights(self.values.copy(), self.version)

    def apply(self, gradients: Push | list[Push], learning_rate: float, reduce: str = "mean") -> None:
        pushes = gradients if isinstance(gradients, list) else [gradients]
        total = sum(push.values for push in pushes)
        self.values -= learning_rate * (total / len(pushes) if reduce == "mean" else total)
        for push in pushes:
            self.record("applied", push.sender, push.step, self.version - push.version)
        self.version += 1


# 5. the event loop: the next event has the smallest (time, sequence number) ------------------------------------------


class EventLoop:
    """Virtual time, in ns, and the calls that are scheduled."""

    def __init__(self):
        self.now, self.heap, self.sequence = 0, [], count()

    def at(self, time: int, fn: Callable, *args: Any) -> None:
        """Schedule the call `fn(*args)`. Calls at one time happen in the order in which they were scheduled."""
        heappush(self.heap, (time, next(self.sequence), fn, args))

    def run(self, until: Callable[[], bool]) -> None:
        while not until():
            if not self.heap:
                raise RuntimeError("deadlock: every role waits for a message, and none is in flight")
            self.now, _, fn, args = heappop(self.heap)
            fn(*args)


class Role:
    """A coroutine in virtual time, and the messages that have arrived for it."""

    coroutine: Any

    def __init__(self, loop: EventLoop, duration: Callable[[], int]):
        self.loop, self.duration = loop, duration  # of its next work, ns
        self.inbox: deque[Message] = deque()
        self.waiting: tuple[type, ...] = ()  # kinds of message

    def drive(self, value: Any = None) -> None:
        """Resume the coroutine with the result of its last effect, and perform the next effects until one takes time."""
        while True:
            tag, *request = self.coroutine.send(value)
            if tag is COMPUTE:
                fn, args = request
                self.loop.at(self.loop.now + self.duration(), self.work_done, fn, args)
                return
            (self.waiting,) = request
            if (value := self.take()) is None:
                return

    def work_done(self, fn: Callable, args: tuple) -> None:
        self.drive(fn(*args))

    def deliver(self, message: Message) -> None:
        self.inbox.append(message)
        if (taken := self.take()) is not None:
            self.loop.at(self.loop.now, self.drive, taken)

    def take(self) -> Message | None:
        """Remove the first message for which the role waits from the inbox, and return it."""
        for i, message in enumerate(self.inbox):
            if isinstance(message, self.waiting):
                del self.inbox[i]
                self.waiting = ()
                return message
        return None


# 6. a run -------------------------------------------------------------------------------------------------------------


@dataclass
class Context:
    """`ctx`: all that a role knows of the rest of the run."""

    name: str
    loop: EventLoop
    roles: dict[str, Role]
    latency: int
    batches: Callable[[], Iterator]

    compute, recv = compute, recv

    async def inbox(self, *kinds):
        while True:
            yield await self.recv(*kinds)

    def send(self, to: str | Message, message: Message) -> None:
        """Send a message to a role, or as the answer to a message. The sender does not wait."""
        target = self.roles[to if isinstance(to, str) else to.sender]
        self.loop.at(self.loop.now + self.latency, target.deliver, replace(message, sender=self.name))

    def peers(self, kind: str) -> list[str]:
        return [name for name in self.roles if name.startswith(kind)]


@dataclass(frozen=True)
class Cluster:
    """Durations in place of machines, in seconds. `compute`: of a gradient; a function draws it from a random generator."""

    workers: int = 4
    compute: float | Callable[[np.random.Generator], float] = 0.1
    server_time: float = 0.0
    latency: float = 0.0
    slow: dict[str, float] = field(default_factory=dict)


class Row(NamedTuple):
    """A row of the trace: at `time` (ns) gradient number `step` of `worker` was computed or applied."""

    time: int
    what: str
    worker: str
    step: int
    staleness: int = 0


def train(
    problem: Any, strategy: AsyncPS, cluster: Cluster, updates: int, seed: int = 0
) -> tuple[list[Row], np.ndarray]:
    """Run a strategy in virtual time, until the server has made so many updates; return the trace and the parameters."""
    loop, trace, roles = EventLoop(), [], {}

    def record(*row: Any) -> None:
        trace.append(Row(loop.now, *row))

    def start(name: str, method: Callable, part: Any, duration: Callable[[], float], batches: Any = None) -> None:
        roles[name] = role = Role(loop, lambda: round(round(duration() * NANO) * cluster.slow.get(name, 1)))
        role.coroutine = method(Context(name, loop, roles, round(cluster.latency * NANO), batches), part)
        loop.at(0, role.drive)

    shard = Shard(problem.initial, record)
    start("server-0", strategy.server, shard, lambda: cluster.server_time)
    for i in range(cluster.workers):
        # a random stream for each worker and purpose, so that one more worker does not change those of the others
        keys = [(*b"worker", 0, i, purpose) for purpose in (1, 2)]
        order, times = (np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key)) for key in keys)
        draw = cluster.compute if callable(cluster.compute) else lambda rng: cluster.compute
        model = Model(problem, f"worker-{i}", record)
        start(model.name, strategy.worker, model, partial(draw, times), partial(problem.batches, order))

    loop.run(until=lambda: shard.version == updates)
    for role in roles.values():
        role.coroutine.close()
    return trace, shard.values


# 7. numbers: functions of the trace -----------------------------------------------------------------------------------


def staleness(trace: list[Row]) -> Counter[int]:
    """Return {staleness: number of gradients}."""
    return Counter(row.staleness for row in trace if row.what == "applied")


def mean_staleness(trace: list[Row]) -> float:
    """Return the mean staleness of the applied gradients."""
    return float(np.mean(list(staleness(trace).elements())))


def throughput(trace: list[Row]) -> float:
    """Return applied gradients per second."""
    return sum(row.what == "applied" for row in trace) / (trace[-1].time / NANO)


def ledger(trace: list[Row]) -> dict[str, int]:
    """Account for every gradient. `missing` is not 0 if one is applied twice, or without having been computed."""
    computed, applied = ([row[2:4] for row in trace if row.what == what] for what in ("computed", "applied"))
    in_flight = len(set(computed) - set(applied))
    missing = len(computed) - len(applied) - in_flight
    return {"computed": len(computed), "applied": len(applied), "in flight": in_flight, "missing": missing}


def report(trace: list[Row]) -> str:
    """Return the numbers as text, with a histogram of the staleness."""
    counts = staleness(trace)
    bars = [f"{value:5} {'#' * round(60 * counts[value] / counts.total())} {counts[value]}" for value in sorted(counts)]
    account = ", ".join(f"{number} {name}" for name, number in ledger(trace).items())
    return "\n".join(
        [f"{throughput(trace):.1f} gradients/s; {account}; mean staleness {mean_staleness(trace):.2f}", *bars]
    )


def main() -> None:
    """Train with both strategies on four workers of which one is slow."""
    problem = LeastSquares()
    cluster = Cluster(workers=4, compute=0.1, server_time=0.005, latency=0.01, slow={"worker-1": 2.5})
    for strategy, updates in (AsyncPS(learning_rate=0.05), 500), (SyncPS(learning_rate=0.2), 125):
        trace, parameters = train(problem, strategy, cluster, updates)
        print(f"{strategy}: loss {problem.loss(problem.initial):.2f} -> {problem.loss(parameters):.4f}")
        print(report(trace), end="\n\n")


if __name__ == "__main__":
    main()
