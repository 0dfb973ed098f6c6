"""Whole runs: the ledger balances for every kind of end, options change during a run, and what is invalid is refused."""

from dataclasses import dataclass
from operator import ge

import numpy as np
import pytest

import labkit as lk
from labkit.engines.commands import Cut, Inject, Join, Leave, Restart, SetOptions
from labkit.trace import query
from tests.contract.engines import over, slow_on_processes
from tests.contract.scripts import QUADRATIC
from tests.contract.statements import closed

pytestmark = pytest.mark.sample(2)

MOONS = lk.Problem("moons", hidden=(8,), batch_size=8, options={"samples": 100})  # 80 to train on
STRATEGIES = [lk.AsyncPS(), lk.Downpour(), lk.SyncPS(), lk.RingAllReduce()]
NAMES = ["async", "async, push then pull", "sync", "ring"]


def test_updates_beyond_the_budget_are_refused_and_counted(simulated):
    """Four equal workers, five updates: the rest of the second round arrives too late, or is still in flight."""
    run = simulated.wait(MOONS, lk.AsyncPS(), lk.Budget(updates=5), workers=4, time=0.01)
    entries = closed(run)
    assert entries["applied"] == 5
    rest = entries["dropped"].get("after the end", 0) + entries["in_flight"]
    assert rest == entries["computed"] - 5
    assert entries["computed"] == 8
    assert rest == 3


@over("strategy", {kind.__name__: kind for kind in (lk.AsyncPS, lk.SyncPS, lk.RingAllReduce)}, slow=["AsyncPS"])
def test_a_loss_that_stops_being_finite(engine, strategy):
    problem = lk.Problem(
        "quadratic", batch_size=4, options={"samples": 64, "dimension": 3, "curvature": 1e6, "noise": 1.0}
    )
    run = engine.wait(problem, strategy(learning_rate=10.0), lk.Budget(updates=100_000), workers=2)
    assert run.stopped_by == "diverged"
    why = run.trace.ending["why"]
    assert "learning_rate 10" in why
    assert f"update {run.trace.ending['update']}" in why
    assert run.trace.ending["update"] > 0
    assert run.summary()["loss"] is None
    assert len(run.trace.column("applies", "version")) > 0
    closed(run)


@dataclass(frozen=True)
class Breaks(lk.AsyncPS):
    """A worker whose third gradient fails."""

    async def worker(self, ctx, model):
        weights = await lk.pull(ctx)
        for batch in ctx.batches():
            gradient = await ctx.compute(model.gradient, weights, batch)
            if ctx.name == "worker-1" and gradient.step == 2:
                raise ZeroDivisionError("of my own making")
            weights = await lk.push_pull(ctx, gradient)


@slow_on_processes
def test_the_ledger_closes_after_an_error(engine):
    run = engine.train(MOONS, Breaks(), lk.Budget(updates=10**6), workers=2, time=0.005)
    with pytest.raises(lk.RoleError, match="of my own making"):
        run.wait()
    entries = closed(run)
    assert entries["in_flight"] >= 1  # the gradient that its worker still had


class Finishes(lk.AsyncPS):
    """Workers that return after five gradients each."""

    async def worker(self, ctx, model):
        weights = await lk.pull(ctx)
        for _, batch in zip(range(5), ctx.batches()):
            weights = await lk.push_pull(ctx, await ctx.compute(model.gradient, weights, batch))


@slow_on_processes
def test_all_workers_have_returned(engine):
    run = engine.wait(MOONS, Finishes(), lk.Budget(updates=10**6), workers=3)
    assert run.stopped_by == "finished"
    assert closed(run)["applied"] == run.summary()["updates"] == 15
    assert run.result().parameters is not None


@dataclass(frozen=True)
class Halt(lk.Message):
    """server -> worker: cancel the current work."""


class GivesUp(lk.AsyncPS):
    """The server cancels every worker's first gradient."""

    messages = (*lk.AsyncPS.messages, Halt)

    async def server(self, ctx, shard):
        async for request in ctx.inbox(lk.Push, lk.Pull):
            if isinstance(request, lk.Push):
                await ctx.compute(shard.apply, request, self.learning_rate)
            ctx.send(request.sender, shard.weights())
            if isinstance(request, lk.Pull):
                ctx.send(request.sender, Halt())

    async def worker(self, ctx, model):
        weights, first = await lk.pull(ctx), True
        for batch in ctx.batches():
            gradient = await ctx.compute(model.gradient, weights, batch, unless=Halt)
            if first:
                assert gradient is None
                assert (await ctx.recv(Halt, timeout=0)).sender == "server-0"  # it can still be read
                first = False
                continue
            assert gradient.step >= 1
            weights = await lk.push_pull(ctx, gradient)


def test_unless_discards_work_and_accounts_for_it(engine):
    run = engine.wait(MOONS, GivesUp(), lk.Budget(updates=10), workers=2, time=0.05)
    entries = closed(run)
    assert entries["dropped"].pop("cancelled") == 2
    assert entries["applied"] == 10
    assert set(entries["dropped"]) <= {"after the end"}


class Skips(lk.AsyncPS):
    """A worker that discards every second gradient, and a server that ignores every third push."""

    async def server(self, ctx, shard):
        seen = 0
        async for request in ctx.inbox(lk.Push, lk.Pull):
            if isinstance(request, lk.Push):
                seen += 1
                if seen % 3:
                    await ctx.compute(shard.apply, request, self.learning_rate)
                elif seen % 2:
                    shard.drop(request, "late")
            ctx.send(request.sender, shard.weights())

    async def worker(self, ctx, model):
        weights = await lk.pull(ctx)
        for batch in ctx.batches():
            gradient = await ctx.compute(model.gradient, weights, batch)
            if gradient.step % 2:
                weights = await lk.push_pull(ctx, gradient)


def test_gradients_dropped_by_a_strategy_are_counted(simulated):
    run = simulated.wait(MOONS, Skips(), lk.Budget(updates=40), workers=1)
    entries = closed(run)
    assert entries["applied"] == 40
    # 59 pushes, of steps 1, 3, 5 ..., make 40 updates; the 3rd, 9th ... are dropped, the 6th, 12th ... are forgotten
    dropped = (entries["dropped"]["unused"], entries["dropped"]["late"], entries["dropped"]["ignored"])
    assert dropped == (59, 10, 9)


def test_a_duplicate_push_is_answered_and_not_applied(simulated):
    """A duplicate push is answered, not applied."""

    class Twice(lk.AsyncPS):
        async def worker(self, ctx, model):
            weights = await lk.pull(ctx)
            for batch in ctx.batches():
                gradient = await ctx.compute(model.gradient, weights, batch)
                await lk.push_pull(ctx, gradient)
                weights = await lk.push_pull(ctx, gradient)

    run = simulated.wait(MOONS, Twice(), lk.Budget(updates=10), workers=1)
    entries = closed(run)
    assert entries["applied"] == 10
    assert run.trace.counters[0].duplicates >= 9
    assert query.staleness(run.trace)["histogram"] == {"0": 10}


@slow_on_processes
def test_changes_of_options_and_speed_are_recorded_as_events(engine):
    class NotesRate(lk.AsyncPS):
        async def server(self, ctx, shard):
            async for request in ctx.inbox(lk.Push, lk.Pull):
                if isinstance(request, lk.Push):
                    rate = self.learning_rate
                    if await ctx.compute(shard.apply, request, rate):
                        ctx.note("rate", rate=rate)
                ctx.send(request.sender, shard.weights())

    mine = NotesRate(learning_rate=0.1)
    run = engine.train(QUADRATIC, mine, lk.Budget(updates=300), workers=2, time=0.01)
    run.step()
    run.set(learning_rate=0.02)
    run.slow("worker-1", 5)
    run.resume()
    run.wait()
    events = run.trace.events
    assert [(m.kind, str(m)) for m in events if m.kind in ("set", "slowed")] == [
        ("set", "learning_rate = 0.02"),
        ("slowed", "worker-1 computes 5x slower"),
    ]
    rates = [m.numbers["rate"] for m in events if m.kind == "note"]
    assert len(rates) == 300
    assert set(rates) == {0.1, 0.02}
    assert rates == sorted(rates, reverse=True)  # it changed once, between two updates
    assert mine.learning_rate == 0.1  # the engine has a copy
    phase, role, start, end, step = run.trace.column("spans", "phase", "role", "start", "end", "step")
    rows = [(phase == 0) & (role == run.trace.roles.index(f"worker-{i}")) for i in (0, 1)]
    work = [(end - start)[which] for which in rows]
    assert all(np.array_equal(step[which], np.arange(which.sum())) for which in rows)  # the gradients finished before
    assert np.median(work[0]) < 0.03e9 < 0.045e9 < np.median(work[1])


@slow_on_processes
def test_faults_come_at_their_time(engine):
    faults = [lk.Slow("worker-0", 4, at=0.1, until=0.3), lk.Slow("worker-0", 3, at=0.2, until=0.4)]
    shape = {"workers": 2, "time": 0.01, "slow": {"worker-0": 2.0}}
    run = engine.train(QUADRATIC, lk.AsyncPS(), lk.Budget(updates=10**6), faults=faults, **shape)

    def slowed():
        return [event for event in run.trace.events if event.kind == "slowed"]

    run.wait_for(lambda run: len(slowed()) == 5)
    run.stop()
    assert [event.factor for event in slowed()] == [2, 2 * 4, 2 * 4 * 3, 2 * 3, 2]
    times, due = [event.time / 1e9 for event in slowed()], [0.0, 0.1, 0.2, 0.3, 0.4]
    assert times == due if engine.simulated else all(map(ge, times, due))


INVALID_COMMANDS = [
    (lk.Slow("worker-7", 2.0), "no role 'worker-7'"),
    (lk.Freeze("worker-0", until=3.0), "is two commands"),
    (Cut("worker-0", "worker-0"), "nothing lies between"),
    (Restart("worker-0"), r"restart\('worker-0'\): it is "),
    (Join("worker-1"), r"join\('worker-1'\): only workers of a cluster with max_workers"),
    (Leave("server-0"), r"leave\('server-0'\): only workers of a cluster with max_workers"),
    (SetOptions({"learning_rat": 1.0}), "Did you mean 'learning_rate'"),
    (Inject((lk.Partition("worker-0"),)), "partition: the engine of this run cannot do that"),
    (lk.Preempt(0.1), "preempt: the engine of this run cannot do that"),
    ("kill:worker-0", "is not a command"),
]


def test_invalid_changes_are_refused_and_have_no_effect(engine):
    run = engine.train(QUADRATIC, lk.AsyncPS(), lk.Budget(updates=10**6), workers=2, time=0.01)
    for change, message in (
        (
            lambda: run.set(chief_works=True),
            r"AsyncPS\.chief_works cannot change during a run; what can: learning_rate",
        ),
        (lambda: run.set(learning_rat=0.1), "AsyncPS has no setting .learning_rat.* Did you mean 'learning_rate'"),
        (lambda: run.set(learning_rate=-1), "learning_rate=-1 is not allowed; learning_rate is a number from"),
        (lambda: run.set(learning_rate="fast"), "learning_rate='fast' is not allowed"),
        (lambda: run.slow("worker-7", 2), "no role 'worker-7'"),
        (lambda: run.slow("worker-0", 0), r"factor=0 is not allowed; factor is a number from 0\.001 to 1,000"),
        (lambda: run.kill("worker-7"), r"no role 'worker-7'.* Did you mean 'worker-[01]'"),
        (lambda: run.restart("worker-7"), r"no role 'worker-7'"),
        (lambda: run.restart("worker-0"), r"restart\('worker-0'\): it is "),
        *((lambda command=command: run.execute(command), message) for command, message in INVALID_COMMANDS),
    ):
        with pytest.raises(lk.BadInput, match=message):
            change()
    refused_at = run.summary()["updates"]
    run.wait_for(lambda run: run.summary()["updates"] > refused_at + 5)
    assert run.engine.commands == []
    assert run.stop().stopped_by == "user"
    assert not [m for m in run.trace.events if m.kind in ("set", "slowed", "killed", "restarted")]
    events = list(run.trace.events)
    for change in (
        lambda: run.set(learning_rate=0.5), lambda: run.slow("worker-0", 2), lambda: run.kill("worker-0"),
        lambda: run.restart("worker-0"), lambda: run.execute(lk.Kill("worker-0")),
    ):  # fmt: skip
        with pytest.raises(lk.BadInput, match=r"^The run is over \(stopped by user\): nothing can be changed any more"):
            change()
    run.pause().resume().step().stop()
    assert (run.trace.events, run.stopped_by) == (events, "user")
    closed(run)


@pytest.mark.parametrize(
    ("strategy", "shape", "message"),
    [
        (lk.RingAllReduce(), {"servers": 2}, "RingAllReduce has no servers and was given servers=2"),
        (
            lk.AsyncPS(),
            {"servers": 0},
            "AsyncPS keeps its parameters on servers and was given servers=0; it needs at least 1",
        ),
        (lk.SyncPS(), {"servers": 6}, "the model has 5 parameters, so at most 5 servers"),
        (lk.AsyncPS(), {"workers": 0}, "workers=0 is not allowed; workers is a whole number from 1"),
        (lk.AsyncPS(), {"workers": 65}, "64 training samples for 65 workers"),
        (lk.AsyncPS(), {"workers": 2.5}, r"workers=2\.5"),
    ],
)
def test_impossible_shapes_are_refused_before_anything_starts(simulated, strategy, shape, message):
    with pytest.raises(lk.BadInput, match=message):
        simulated.train(QUADRATIC, strategy, lk.Budget(updates=5), **{"workers": 2, **shape})
