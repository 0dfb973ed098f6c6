"""Tasks of one role on both engines: computing and communicating at once, errors, timeouts, cancellation, tags, deadlocks."""

import contextlib
from dataclasses import dataclass

import numpy as np
import pytest

import labkit as lk
from labkit.trace import query
from labkit.trace.overlap import BackwardPieces, communicating_since, overlap
from labkit.trace.schema import COMPUTE
from tests.contract.engines import slow_on_processes
from tests.contract.scripts import QUADRATIC, Letter, OneAfterTheOther, Other, Script
from tests.contract.statements import closed

LIMIT = lk.Budget(updates=10**6)


@dataclass(frozen=True)
class AnswersDuringWork(Script):
    """Rank 0 computes; a task of it answers meanwhile. On processes work is served while its pace passes."""

    async def play(self, ctx, rank):
        if rank == 0:
            order = []

            async def answer():
                for _ in range(2):
                    ctx.send(letter := await ctx.recv(Letter), Letter(letter.number + 1))
                    order.append(letter.number)

            async with ctx.tasks() as tasks:
                tasks.start(answer())
                assert await ctx.compute(lambda: 5, cost=100) == 5
                order.append("computed")
            assert order == [1, 2, "computed"]
        else:
            for number in (1, 2):
                ctx.send(ctx.peers("worker")[0], Letter(number))
                assert (await ctx.recv(Letter)).number == number + 1


@dataclass(frozen=True)
class ReceivesFirst(Script):
    """A message that is there when work is about to begin is received by another task before the work is done."""

    async def play(self, ctx, rank):
        if rank:
            for kind in (Letter, Other):
                ctx.send(ctx.peers("worker")[0], kind(1))
            return
        await ctx.recv(Other)  # on the same link, after the letter
        order = []

        async def receive():
            order.append((await ctx.recv(Letter)).number)

        async with ctx.tasks() as tasks:
            tasks.start(receive())
            await ctx.compute(order.append, "computed")
        assert order == [1, "computed"]


@dataclass(frozen=True)
class Errors(Script):
    """The first error ends all tasks, and the role goes on after it has caught the error."""

    async def play(self, ctx, rank):
        ended = []

        def broken():
            raise ValueError("broken")

        async def waits(name, *kinds):
            try:
                await ctx.recv(*kinds)
            finally:
                ended.append(name)

        async def nested():
            async with ctx.tasks() as tasks:
                tasks.start(waits("innermost", Letter))
                await waits("inner", Letter)

        async def fails():
            await ctx.sleep(0.01)
            await ctx.compute(broken)

        async def outer():
            async with ctx.tasks() as tasks:
                tasks.start(waits("outer", Letter))
                tasks.start(nested())
                tasks.start(fails())

        with pytest.raises(ValueError, match="broken"):
            await outer()
        assert ended == ["inner", "innermost", "outer"]
        assert await ctx.compute(lambda: 1) == 1


@dataclass(frozen=True)
class Timeouts(Script):
    """Timeouts and sleeps of tasks end in their order, each at its own time."""

    async def play(self, ctx, rank):
        order = []

        async def timeout(seconds):
            assert await ctx.recv(Letter, timeout=seconds) is None
            order.append(seconds)

        async def sleep(seconds):
            await ctx.sleep(seconds)
            order.append(seconds)

        began = ctx.now
        async with ctx.tasks() as tasks:
            for seconds in (0.3, 0.1, 0.0):
                tasks.start(timeout(seconds))
            for seconds in (0.2, -1.0):
                tasks.start(sleep(seconds))
        assert sorted(order[:2]) == [-1.0, 0.0]
        assert order[2:] == [0.1, 0.2, 0.3]
        assert ctx.now - began > 0.299


@dataclass(frozen=True)
class Unless(Script):
    """`unless` cancels the work of its task only; the message stays in the inbox."""

    async def play(self, ctx, rank):
        if rank:
            await ctx.recv(Other)
            ctx.send(ctx.peers("worker")[0], Letter(1))
            return
        results = []

        async def work(number, **options):
            results.append(await ctx.compute(lambda: number, cost=30, **options))

        async with ctx.tasks() as tasks:
            tasks.start(work(1, unless=Letter))
            tasks.start(work(2))
            ctx.send(ctx.peers("worker")[1], Other(1))
        assert results == [None, 2]
        assert (await ctx.recv(Letter)).number == 1


@dataclass(frozen=True)
class Tags(Script):
    """Two collectives at once, which the members begin in different orders, are told apart by their tags."""

    async def play(self, ctx, rank):
        sums = {}

        async def add(tag):
            await ctx.sleep(0.01 * (rank if tag else 2 - rank))
            sums[tag] = await lk.all_reduce(ctx, np.full(5, 10.0**tag * (rank + 1)), tag=100 * tag)

        async with ctx.tasks() as tasks:
            tasks.start(add(0))
            tasks.start(add(1))
        assert {tag: set(values) for tag, values in sums.items()} == {0: {6.0}, 1: {60.0}}
        ctx.send(ctx.peers("worker")[rank - 1], lk.Chunk(np.zeros(1), 3, 0))
        ctx.send(ctx.peers("worker")[rank - 1], lk.Chunk(np.zeros(1), 4, 0))
        assert (await ctx.recv(lk.Chunk, tag=4)).tag == 4  # without tasks, too
        assert await ctx.recv(lk.Chunk, tag=4, timeout=0.01) is None
        assert (await ctx.recv(lk.Chunk, tag=3)).tag == 3


SCRIPTS = ((AnswersDuringWork(), 2), (ReceivesFirst(), 2), (Errors(), 2), (Timeouts(), 1), (Unless(), 2), (Tags(), 3))


@pytest.mark.parametrize("engine", ["simulated", "dask"], indirect=True)
def test_tasks_compute_and_communicate(engine):
    run = engine.wait(QUADRATIC, OneAfterTheOther(scripts=SCRIPTS), LIMIT, workers=3, time=0.005)
    assert run.stopped_by == "finished"


@pytest.mark.parametrize("cores", [1, 8])
def test_tasks_compute_and_communicate_on_simulated_hosts(simulated, cores):
    costs = lk.Costs(lk.WorkCost(1e-4), send=lk.Linear(2e-5), receive=lk.Linear(3e-5), latency=1e-5, cores=cores)
    run = simulated.wait(QUADRATIC, OneAfterTheOther(scripts=SCRIPTS), LIMIT, workers=3, time=0.005, costs=costs)
    assert run.stopped_by == "finished"


@dataclass(frozen=True)
class Lonely(Script):
    """Two workers whose tasks wait for each other's messages."""

    async def play(self, ctx, rank):
        async with ctx.tasks() as tasks:
            tasks.start(ctx.recv(Letter))
            tasks.start(ctx.recv(Other))


@dataclass(frozen=True)
class Unfilled(Script):
    """A task that waits for a queue that nobody fills."""

    async def play(self, ctx, rank):
        async with ctx.tasks() as tasks:
            tasks.start(tasks.queue().get(), name="reader")


@dataclass(frozen=True)
class Foreign(Script):
    """A task that awaits something that is not an effect."""

    async def play(self, ctx, rank):
        import asyncio

        async with ctx.tasks() as tasks:
            tasks.start(ctx.recv(Letter))
            tasks.start(asyncio.sleep(0))


@pytest.mark.parametrize("engine", ["simulated", "dask"], indirect=True)
@pytest.mark.parametrize(
    ("script", "error", "text"),
    [
        (Lonely(), lk.Deadlock, "worker-0 waits for Letter or Other"),
        (Unfilled(), lk.RoleError, "reader waits for a queue"),
        (Foreign(), lk.RoleError, "awaited .*asyncio"),
    ],
    ids=["deadlock", "queue", "foreign"],
)
def test_tasks_that_cannot_go_on_end_the_run(engine, script, error, text):
    with pytest.raises(error, match=text):
        engine.wait(QUADRATIC, script, LIMIT, workers=2)


@dataclass(frozen=True)
class Exact(Script):
    """Rank 0 computes for 20 ms and waits for 30 ms; of its two tasks, one waits for 50 ms. Then it sleeps for 40 ms."""

    async def play(self, ctx, rank):
        async with ctx.tasks() as tasks:
            if rank:
                await ctx.sleep(0.05)
                ctx.send(ctx.peers("worker")[0], Letter(1))
            else:
                tasks.start(ctx.recv(Letter))
                await ctx.compute(int, cost=2)
        await ctx.sleep(0.04)


def test_a_role_waits_only_while_none_of_its_tasks_computes(simulated):
    run = simulated.wait(QUADRATIC, Exact(), LIMIT, workers=2)
    spent = query.phases(run.trace)["worker"]
    assert spent == pytest.approx({"compute": 0.02, "wait": 0.03, "sleep": 0.04 + 0.05 + 0.04})


# a strategy with tasks ------------------------------------------------------------------------------------------------

DEEP = lk.Problem("moons", hidden=(12, 10, 8), batch_size=8, dtype="float64", options={"samples": 200})


def begun(engine, **options):
    """A run in which most of a step is spent in buckets, after three steps."""
    strategy = lk.BucketedAllReduce(bucket_size=1, eval_every=5, **options)
    run = engine.train(DEEP, strategy, lk.Budget(updates=10**6), workers=3, time=0.02)
    for _ in range(3):
        run.step()
    return run


def moves(run, count=5):
    before = run.summary()["updates"]
    run.wait_for(lambda run: run.summary()["updates"] >= before + count)


def ended(run):
    """Stop the run: its ledger closes, and every step has a gradient of each worker that took part."""
    run.stop()
    assert run.stopped_by == "user"
    closed(run)


@pytest.mark.parametrize("engine", ["simulated", "dask"], indirect=True)
def test_a_run_with_tasks_is_stepped_paused_and_frozen(engine):
    run = begun(engine)
    assert 2 <= run.summary()["updates"] <= 3  # a step ends when the first replica has taken it, as with a ring
    run.resume()
    moves(run)
    run.freeze("worker-1")
    run.thaw("worker-1")
    moves(run)
    run.pause()
    run.step()
    run.resume()
    moves(run)
    ended(run)


@pytest.mark.parametrize("engine", ["simulated", "dask"], indirect=True)
def test_communications_and_pieces_are_recorded_alike(engine):
    """Every worker has the pieces and the buckets of each of its steps, in order; hidden is the part of a bucket in which the
    worker computed, to the nanosecond.
    """
    strategy = lk.BucketedAllReduce(bucket_size=1, eval_every=5)
    network = {"latency": 0.002} if engine.simulated else {}
    trace = engine.wait(DEEP, strategy, lk.Budget(updates=4), workers=3, time=0.06, **network).trace
    spans = np.stack(trace.column("spans", "role", "start", "end", "phase"), axis=1)
    spans = spans[spans[:, 3] == COMPUTE]
    layers = BackwardPieces().layers(trace, *spans[:, :3].T)
    for worker in (trace.roles.index(f"worker-{k}") for k in range(3)):
        mine = spans[:, 0] == worker
        assert layers[mine][:15].tolist() == [-1, 3, 2, 1, 0] * 3  # the run ends when the first worker has taken four
        who, number, start, end, hidden = trace.column("communications", "role", "number", "start", "end", "hidden")
        own = who == worker
        assert number[own][:12].tolist() == [0, 1, 2, 3] * 3
        for begin, over, told in np.stack([start, end, hidden], axis=1)[own][:12].tolist():
            shared = np.minimum(spans[mine, 2], over) - np.maximum(spans[mine, 1], begin)
            assert told == np.maximum(shared, 0).sum()
            assert 0 <= told <= over - begin
    assert overlap(trace).hidden > 0


@dataclass(frozen=True)
class Communicates(Script):
    """Without tasks nothing is hidden; a communication that ends with an error is not recorded."""

    async def play(self, ctx, rank):
        other = ctx.peers("worker")[1 - rank]
        with ctx.communication(7):
            ctx.send(other, Letter(1))
            await ctx.recv(Letter)
        with contextlib.suppress(ZeroDivisionError), ctx.communication(8):
            await ctx.sleep(0.001)
            raise ZeroDivisionError
        with pytest.raises(lk.RoleError, match="give a whole number from 0"):
            ctx.communication(-1)


@slow_on_processes
def test_a_communication_without_tasks_is_exposed(engine):
    trace = engine.wait(QUADRATIC, Communicates(), LIMIT, workers=2).trace
    assert trace.column("communications", "number").tolist() == [7, 7]
    assert trace.column("communications", "hidden").tolist() == [0, 0]


def test_a_communication_in_progress_is_reported(simulated):
    """With layers of 12 ms, and 50 ms for a sum: in the middle of the first one, and after a kill."""
    run = simulated.train(DEEP, lk.BucketedAllReduce(bucket_size=1), LIMIT, workers=3, time=0.06, latency=0.0125)
    run.advance(0.04)
    assert [(role, number) for role, number, _ in communicating_since(run.trace, 10**12)] == [
        (run.trace.roles.index(f"worker-{k}"), 0) for k in range(3)
    ]
    run.kill("worker-1", restart=False).advance(0.001)
    at_end = communicating_since(run.trace, 10**12)
    assert run.trace.roles.index("worker-1") not in [role for role, _, _ in at_end]


@slow_on_processes
@pytest.mark.parametrize("on_loss", ["wait", "continue"])
def test_a_group_with_tasks_begins_again(engine, on_loss):
    run = begun(engine, on_loss=on_loss).resume()
    for victim in ("worker-1", "chief"):
        run.kill(victim)
        run.wait_for("restarted", victim)
        moves(run)
    assert run.wait_for("group restarted")
    ended(run)
