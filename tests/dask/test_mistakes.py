"""Misbehaving roles in real time: waiting is distinguished from computing, and the roles always end."""

import contextlib
import logging
import os
import sys
import threading
import time
from dataclasses import dataclass
from typing import ClassVar

import pytest

import labkit as lk
from labkit.engines.dask.client import shutdown
from labkit.engines.dask.client.recovery_events import InternalError
from tests.dask.helpers import addresses, closes, further, nothing_left, released, usable


@dataclass(frozen=True)
class Word(lk.Message):
    value: int = 0


class Play(lk.AsyncPS):
    """Servers wait for pushes; the test defines the workers."""

    messages: ClassVar = (*lk.AsyncPS.messages, Word)

    async def worker(self, ctx, model):
        await self.play(ctx, int(ctx.name.split("-")[1]))


# deadlocks ------------------------------------------------------------------------------------------------------------


class NoReply(lk.AsyncPS):
    """The most common mistake: no answer is sent."""

    async def server(self, ctx, shard):
        async for request in ctx.inbox(lk.Push, lk.Pull):
            if isinstance(request, lk.Pull):
                ctx.send(request.sender, shard.weights())
            else:
                await ctx.compute(shard.apply, request, self.learning_rate)


class FarewellNoReply(Play):
    """Sends a message to a role that has returned, and waits for the answer."""

    async def play(self, ctx, rank):
        if rank == 0:
            ctx.send("worker-1", Word())
            await ctx.recv(Word)


@pytest.mark.parametrize(
    ("strategy", "budget", "awaited"),
    [
        (NoReply(), lk.Budget(updates=100), ["worker-0 waits for Weights", "worker-1 waits for Weights"]),
        (FarewellNoReply(), lk.Budget(accuracy=1.0), ["worker-0 waits for Word"]),
    ],
    ids=["all wait", "written to one that has returned"],
)  # fmt: skip
def test_a_deadlock_is_reported(started, strategy, budget, awaited):
    run = started(strategy, budget)
    with pytest.raises(lk.Deadlock, match="Is a reply missing"):
        run.wait()
    assert run.stopped_by == "deadlock"
    assert all(part in run.trace.ending["why"] for part in ["server-0 waits for Push or Pull", *awaited])
    closes(run)


def busy(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))


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


class ChiefComputesAndWaits(Play):
    """A custom chief that computes while the others wait; then one polls for a message, and one sleeps."""

    async def chief(self, ctx, evaluator):
        await ctx.compute(busy, 1.2)
        ctx.send("worker-0", Word())
        while not evaluator.stop_requested:
            await ctx.recv(lk.Weights, timeout=0.1)

    async def play(self, ctx, rank):
        await ctx.recv(Word)
        if rank == 0:
            assert await ctx.recv(Word, timeout=1.2) is None
            await ctx.sleep(1.2)
            ctx.send("worker-1", Word())


@pytest.mark.parametrize(
    "strategy",
    [HandsOnThenComputes(), pytest.param(ChiefComputesAndWaits(), marks=pytest.mark.slow)],
    ids=lambda s: s.name,
)
def test_a_long_wait_is_no_deadlock(started, strategy):
    run = started(strategy).wait()
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
    run = started(PingPong())
    for _ in range(5):
        run.pause()
        evaluations = iter(range(20))
        run.wait_for(lambda run, left=evaluations: next(left) == 19)  # so many reports arrive during the pause
        run.resume()
    run.stop()
    assert run.stopped_by == "user"


# roles that do not end --------------------------------------------------------------------------------------------------


class Exits(lk.AsyncPS):
    async def worker(self, ctx, model):
        await lk.pull(ctx)
        sys.exit("enough")


def test_exit_ends_the_role_and_not_the_process(cluster, started):
    before = addresses(cluster.client)
    with pytest.raises(lk.RoleError, match=r"worker-[01] failed at step 0: SystemExit: enough"):
        started(Exits()).wait()
    assert addresses(cluster.client) == before


class Clings(Play):
    """One ignores every cancellation, also `GeneratorExit`; the other one sends and waits when it is cancelled."""

    async def play(self, ctx, rank):
        while rank == 0:
            with contextlib.suppress(BaseException):
                await ctx.recv(Word)
        try:
            await ctx.sleep(1000)
        finally:
            ctx.send("server-0", Word())
            await ctx.sleep(1)


def test_roles_that_ignore_their_cancellation_are_ended(cluster, started):
    run = started(Clings(), lk.Budget(seconds=0.2)).wait()
    assert run.stopped_by == "seconds"
    closes(run)
    nothing_left(cluster.client)


def until_there_is(path, role):
    open(f"{path} of {role}", "w").close()
    while not os.path.exists(path):
        os.sched_yield()


@dataclass(frozen=True)
class Occupied(lk.AsyncPS):
    """Every worker computes, without interruption, until there is a file."""

    path: str = ""

    async def worker(self, ctx, model):
        weights = await lk.pull(ctx)
        for batch in ctx.batches():
            gradient = await ctx.compute(model.gradient, weights, batch)
            await ctx.compute(until_there_is, self.path, ctx.name)
            weights = await lk.push_pull(ctx, gradient)


def test_the_end_waits_for_work_that_cannot_be_interrupted(cluster, started, tmp_path):
    run = started(Occupied(path=str(tmp_path / "end")))
    run.wait_for(lambda run: len(os.listdir(tmp_path)) == 2)  # both compute
    stopping = threading.Thread(target=run.stop)
    stopping.start()
    run.wait_for(lambda run: run.engine.record.closed)
    (tmp_path / "end").touch()
    stopping.join()
    assert run.stopped_by == "user"
    assert run.trace.ending["lost"] == []
    entries = closes(run)
    assert entries["computed"] >= 2
    assert entries["lost"] == 0


@pytest.mark.slow
def test_work_that_does_not_end_counts_as_lost(cluster, started, tmp_path, monkeypatch):
    """The other roles may be late, too, on a busy machine: the limit is short."""
    monkeypatch.setattr(shutdown, "SHUTDOWN_S", 1.0)
    run = started(Occupied(path=str(tmp_path / "end")))
    run.wait_for(lambda run: len(os.listdir(tmp_path)) == 2)  # both compute
    run.stop()
    assert run.stopped_by == "user"
    assert {"worker-0", "worker-1"} <= set(run.trace.ending["lost"])
    closes(run)
    assert run.summary()["accuracy"] is not None
    (tmp_path / "end").touch()
    nothing_left(cluster.client)


# mistakes at the start, and in labkit itself ------------------------------------------------------------------------------


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
    nothing_left(cluster.client)
    released(usable(cluster))


@pytest.mark.parametrize("where", ["in its thread", "elsewhere"])
def test_a_mistake_inside_labkit_ends_the_run_and_is_logged(cluster, started, monkeypatch, caplog, where):
    run = further(started())
    with caplog.at_level(logging.ERROR, "labkit.engines.dask.client"):
        if where == "elsewhere":
            run.engine.supervisor.queue.put(InternalError(ZeroDivisionError("planted")))
        else:
            monkeypatch.setattr(run.engine.pauses, "check_deadline", lambda now: 1 / 0)
        with pytest.raises(lk.ClusterError, match="The supervisor failed: ZeroDivisionError"):
            run.wait()
    assert "because of an internal error of labkit" in caplog.text
    assert run.stopped_by == "error"
    released(run)
    nothing_left(cluster.client)


def test_unknown_names_are_refused_before_anything_starts(cluster):
    for on, faults in ((cluster.resized(slow={"worker-7": 2.0}), ()), (cluster, [lk.Slow("worker-7")])):
        with pytest.raises(lk.BadInput, match="worker-7"):
            lk.train(lk.Problem("moons"), lk.AsyncPS(), on, faults=faults)
    assert cluster.runs == set()
