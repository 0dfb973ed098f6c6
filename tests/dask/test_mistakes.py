"""Misbehaving roles in real time: waiting is distinguished from computing, and the roles always end."""

import contextlib
import logging
import sys
import threading
import time
from dataclasses import dataclass
from typing import ClassVar

import pytest

import labkit as lk
from labkit.engines.commands import Cut, Pause, SetOptions
from labkit.engines.dask.client.recovery_events import InternalError
from tests.dask.helpers import closes, eventually, labkit_threads, moving, passed, plugins, updates

pytestmark = pytest.mark.sample(2)

FOR_EVER = lk.Budget(seconds=60)


@dataclass(frozen=True)
class Word(lk.Message):
    value: int = 0


class Play(lk.AsyncPS):
    """Servers wait for pushes; the test defines the workers."""

    messages: ClassVar = (*lk.AsyncPS.messages, Word)

    async def worker(self, ctx, model):
        await self.play(ctx, int(ctx.name.split("-")[1]))


class NoReply(lk.AsyncPS):
    """The most common mistake: no answer is sent."""

    async def server(self, ctx, shard):
        async for request in ctx.inbox(lk.Push, lk.Pull):
            if isinstance(request, lk.Pull):
                ctx.send(request.sender, shard.weights())
            else:
                await ctx.compute(shard.apply, request, self.learning_rate)


class SkewedNoReply(NoReply):
    """Worker 1 returns; the others wait without end."""

    async def worker(self, ctx, model):
        if ctx.name == "worker-1":
            return
        await super().worker(ctx, model)


class FarewellNoReply(Play):
    """Sends a message to a role that has returned, and waits for the answer."""

    async def play(self, ctx, rank):
        if rank == 0:
            ctx.send("worker-1", Word())
            await ctx.recv(Word)


@pytest.mark.parametrize("budget", [FOR_EVER, lk.Budget(updates=100), lk.Budget(accuracy=1.0)], ids=["s", "n", "acc"])
@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (NoReply(), "server-0 waits for Push or Pull; worker-0 waits for Weights; worker-1 waits for Weights"),
        (SkewedNoReply(), "server-0 waits for Push or Pull; worker-0 waits for Weights"),
        (FarewellNoReply(), "server-0 waits for Push or Pull; worker-0 waits for Word"),
    ],
    ids=["all", "one has returned", "written to one that has returned"],
)  # fmt: skip
def test_a_deadlock_is_reported_soon(started, strategy, message, budget):
    run = started(strategy, budget)
    with pytest.raises(lk.Deadlock, match="Is a reply missing"):
        run.wait(180)
    assert run.stopped_by == "deadlock"
    text = run.trace.ending["why"]
    for part in message.split("; "):
        assert part in text
    closes(run)


class Sleeps(Play):
    async def play(self, ctx, rank):
        if rank == 0:
            await ctx.sleep(1.2)
            ctx.send("worker-1", Word())
        else:
            await ctx.recv(Word)


class Polls(Play):
    async def play(self, ctx, rank):
        if rank == 0:
            assert await ctx.recv(Word, timeout=1.2) is None
            ctx.send("worker-1", Word())
        else:
            await ctx.recv(Word)


def busy(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))


class Computes(Play):
    async def play(self, ctx, rank):
        if rank == 0:
            await ctx.compute(busy, 1.2)
            ctx.send("worker-1", Word())
        else:
            await ctx.recv(Word)


class HandsOnThenComputes(Play):
    """0 wakes 1, which has been idle for long; 1 wakes 0 and computes on: message counts agree all the time."""

    async def play(self, ctx, rank):
        if rank == 0:
            await ctx.compute(busy, 0.7)
            ctx.send("worker-1", Word())
            await ctx.recv(Word)
            await ctx.recv(Word)
        else:
            await ctx.recv(Word)
            ctx.send("worker-0", Word())
            await ctx.compute(busy, 1.5)
            ctx.send("worker-0", Word())


class ChiefComputes(Play):
    """A custom chief that computes while the others wait."""

    async def chief(self, ctx, evaluator):
        await ctx.compute(busy, 1.2)
        ctx.send("worker-0", Word())
        ctx.send("worker-1", Word())
        while not evaluator.stop_requested:
            await ctx.recv(lk.Weights, timeout=0.1)

    async def play(self, ctx, rank):
        await ctx.recv(Word)


class Paced(Play):
    async def play(self, ctx, rank):
        if rank == 0:
            await ctx.compute(busy, 0.01)
            ctx.send("worker-1", Word())
        else:
            await ctx.recv(Word)


@pytest.mark.parametrize(
    "strategy", [Sleeps(), Polls(), Computes(), HandsOnThenComputes(), ChiefComputes(), Paced()], ids=lambda s: s.name
)
def test_a_long_wait_is_no_deadlock(cluster, started, strategy):
    pace = 1.2 if isinstance(strategy, Paced) else None
    run = started(strategy, FOR_EVER, on=cluster.resized(pace=pace)).wait(180)
    assert run.stopped_by == "finished"
    closes(run)


class PingPong(Play):
    async def play(self, ctx, rank):
        for _ in range(10**9):
            if rank == 0:
                ctx.send("worker-1", Word())
            await ctx.recv(Word)
            if rank == 1:
                ctx.send("worker-0", Word())


@pytest.mark.slow
def test_a_pause_is_no_deadlock_and_neither_is_what_follows(started):
    run = started(PingPong(), FOR_EVER)
    for _ in range(25):
        run.pause()
        passed(0.15)
        run.resume()
        passed(0.02)
    run.stop()
    assert run.stopped_by == "user"


class Exits(lk.AsyncPS):
    async def worker(self, ctx, model):
        await lk.pull(ctx)
        sys.exit("enough")


class ExitsInWork(lk.AsyncPS):
    async def worker(self, ctx, model):
        await ctx.compute(sys.exit, "enough")


@pytest.mark.parametrize("strategy", [Exits(), ExitsInWork()], ids=lambda s: s.name)
def test_exit_ends_the_role_and_not_the_process(cluster, started, strategy):
    before = set(cluster.client.scheduler_info(n_workers=-1)["workers"])
    with pytest.raises(lk.RoleError, match=r"worker-[01] failed at step 0: SystemExit: enough"):
        started(strategy).wait(180)
    assert set(cluster.client.scheduler_info(n_workers=-1)["workers"]) >= before


class Clings(Play):
    """Ignores every cancellation, also `GeneratorExit`."""

    async def play(self, ctx, rank):
        while True:
            with contextlib.suppress(BaseException):
                await ctx.recv(Word)


class SpeaksLast(Play):
    async def play(self, ctx, rank):
        try:
            await ctx.sleep(1000)
        finally:
            ctx.send("server-0", Word())
            await ctx.sleep(1)


@pytest.mark.parametrize("strategy", [Clings(), SpeaksLast()], ids=lambda s: s.name)
def test_a_role_that_ignores_its_cancellation_is_ended(cluster, started, strategy):
    run = started(strategy, lk.Budget(seconds=0.2)).wait(180)
    assert run.stopped_by == "seconds"
    closes(run)
    eventually(lambda: not plugins(cluster.client))


class LongWork(lk.AsyncPS):
    async def worker(self, ctx, model):
        weights = await lk.pull(ctx)
        for batch in ctx.batches():
            gradient = await ctx.compute(model.gradient, weights, batch)
            await ctx.compute(busy, 3)
            weights = await lk.push_pull(ctx, gradient)


@pytest.mark.slow
def test_the_end_waits_for_work_that_cannot_be_interrupted(cluster, started):
    run = started(LongWork(), lk.Budget(seconds=0.5)).wait(180)
    assert run.stopped_by == "seconds"
    assert run.trace.ending["lost"] == []
    assert closes(run)["in_flight"] == 2


class Sleepless(Play):
    """Loops without awaiting an effect: only the time limit stops it."""

    async def play(self, ctx, rank):
        await ctx.compute(busy, 20 if rank == 0 else 0.1)
        await ctx.recv(Word)


@pytest.mark.slow
def test_work_longer_than_the_heartbeat_timeout_counts_as_lost(cluster, started):
    run = started(Sleepless(), lk.Budget(seconds=0.3)).wait(180)
    assert run.stopped_by == "seconds"
    assert run.trace.ending["lost"] == ["worker-0"]
    closes(run)
    assert run.summary()["accuracy"] is not None
    eventually(lambda: not plugins(cluster.client), 180)


def test_divergence_is_no_error(started):
    problem = lk.Problem("linear-regression")
    run = started(lk.AsyncPS(learning_rate=10.0), problem=problem).wait(180)
    assert run.stopped_by == "diverged"
    assert "learning_rate 10" in run.trace.ending["why"]
    assert f"at update {run.trace.ending['update']}" in run.trace.ending["why"]
    closes(run)


class Unpicklable(lk.AsyncPS):
    def __reduce__(self):
        raise TypeError("cannot be sent")


class Unwelcome(lk.AsyncPS):
    """A value that cannot be unpickled by the receiver."""

    def __reduce__(self):
        return (refuse, ())


def refuse():
    raise ValueError("not here")


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (Unpicklable(), "Unpicklable cannot be sent to other processes: TypeError: cannot be sent"),
        (Unwelcome(), "could not start: .*not here"),
    ],
    ids=["cannot be packed", "cannot be unpacked"],
)  # fmt: skip
def test_a_run_that_cannot_start_leaves_nothing(cluster, strategy, message):
    with pytest.raises(lk.LabkitError, match=message):
        lk.train(lk.Problem("moons"), strategy, cluster, lk.Budget(updates=5))
    assert labkit_threads() == []
    assert not any(cluster._connection.usage.values())
    eventually(lambda: not plugins(cluster.client))
    assert cluster.runs == set()


@pytest.mark.parametrize("where", ["in its thread", "elsewhere"])
def test_a_mistake_inside_labkit_ends_the_run_and_is_logged(cluster, started, monkeypatch, caplog, where):
    run = moving(started())
    with caplog.at_level(logging.ERROR, "labkit.engines.dask.client"):
        if where == "elsewhere":
            run.engine.supervisor.queue.put(InternalError(ZeroDivisionError("planted")))
        else:
            monkeypatch.setattr(run.engine.pauses, "check_deadline", lambda now: 1 / 0)
        with pytest.raises(lk.ClusterError, match="The supervisor failed: ZeroDivisionError"):
            run.wait(180)
    assert "because of an internal error of labkit" in caplog.text
    assert run.stopped_by == "error"
    assert labkit_threads() == []
    assert not any(cluster._connection.usage.values())
    eventually(lambda: not plugins(cluster.client))


def test_a_command_that_comes_when_the_run_is_being_ended_is_answered_and_has_no_effect(cluster, started):
    run = moving(started())
    stopping = threading.Thread(target=run.stop)
    stopping.start()
    eventually(lambda: run.engine.record.closed or run.done)
    log = list(run.engine.commands)
    options = SetOptions({"learning_rate": 0.1})
    for command in (lk.Slow("worker-0", 3.0), Pause(), lk.Kill("worker-0"), Cut("worker-0"), options):
        run.engine.execute(command)
    assert not run.engine.step()
    stopping.join(180)
    assert run.engine.commands == log
    assert run.stopped_by == "user"
    closes(run)


def test_unknown_names_are_refused_before_anything_starts(cluster):
    with pytest.raises(lk.BadInput, match="worker-7"):
        lk.train(lk.Problem("moons"), lk.AsyncPS(), cluster.resized(slow={"worker-7": 2.0}), FOR_EVER)
    with pytest.raises(lk.BadInput, match="worker-7"):
        lk.train(lk.Problem("moons"), lk.AsyncPS(), cluster, FOR_EVER, faults=[lk.Slow("worker-7")])
    assert not any(cluster._connection.usage.values())


def test_updates_are_counted_while_a_run_advances(started):
    run = moving(started())
    assert updates(run) >= 5
