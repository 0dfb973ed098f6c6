"""Control of a run by its user: Ctrl-C, timeouts, buffers that are flushed during the run."""

import signal
import sys

import pytest

import labkit as lk
from labkit.engines.simulated import run as simulated
from labkit.trace.ledger import ledger
from tests.engines.simulated.test_time import MOONS, RANDOM, TIMING, contents

ENDLESS = lk.Budget(updates=10**9)


def ctrl_c():
    signal.raise_signal(signal.SIGINT)


class InARole(lk.AsyncPS):
    async def worker(self, ctx, model):
        weights = await lk.pull(ctx)
        for batch in ctx.batches():
            gradient = await ctx.compute(model.gradient, weights, batch)
            if gradient.step == 30:
                ctrl_c()
            weights = await lk.push_pull(ctx, gradient)


class InWork(lk.AsyncPS):
    async def server(self, ctx, shard):
        async for request in ctx.inbox(lk.Push, lk.Pull):
            if isinstance(request, lk.Push):
                await ctx.compute(shard.apply, request, self.learning_rate)
                if shard.version == 30:
                    await ctx.compute(ctrl_c)
            ctx.send(request.sender, shard.weights())


class InAnEvaluation(lk.AsyncPS):
    async def chief(self, ctx, evaluator):
        evaluate, seen = evaluator.evaluate, []

        def evaluate_too(snapshot):
            seen.append(snapshot)
            if len(seen) == 3:
                ctrl_c()
            return evaluate(snapshot)

        evaluator.evaluate = evaluate_too
        await super().chief(ctx, evaluator)


@pytest.mark.parametrize("strategy", [InARole(), InWork(), InAnEvaluation()], ids=lambda s: s.name)
def test_ctrl_c_waits_for_the_end_of_the_event(strategy):
    before = signal.getsignal(signal.SIGINT)
    run = lk.train(MOONS, strategy, lk.SimulatedCluster(workers=3, **RANDOM), ENDLESS)
    with pytest.raises(KeyboardInterrupt):
        run.wait()
    assert signal.getsignal(signal.SIGINT) is before
    assert run.stopped_by == run.trace.ending["stopped_by"] == "interrupted"
    assert ledger(run.trace)["closes"]
    assert run.trace.ending["update"] == run.summary()["updates"]  # with a last evaluation


class HangsOn(lk.AsyncPS):
    async def worker(self, ctx, model):
        await lk.pull(ctx)
        while True:
            ctrl_c()


def test_a_second_ctrl_c_does_not_wait():
    run = lk.train(MOONS, HangsOn(), lk.SimulatedCluster(workers=3), ENDLESS)
    with pytest.raises(KeyboardInterrupt):
        run.wait()
    run.stop()
    assert run.stopped_by == "interrupted"
    assert run.trace.ending["why"] == "in the middle of an event, so there is no last evaluation"


def test_a_user_defined_signal_handler_is_kept():
    received = []
    before = signal.signal(signal.SIGINT, lambda *_: received.append(run.engine.seconds))
    try:
        run = lk.train(TIMING, InARole(), lk.SimulatedCluster(workers=1), lk.Budget(updates=50))
        run.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    assert (received, run.stopped_by) == ([0.31], "updates")


def test_an_interrupted_move_goes_on_where_it_stood():
    run = lk.train(TIMING, InARole(), lk.SimulatedCluster(workers=1), lk.Budget(updates=50))
    with pytest.raises(KeyboardInterrupt):
        run.advance(1.0)
    assert not run.done
    assert run.wait().summary()["updates"] == 50


class Exits(lk.AsyncPS):
    async def worker(self, ctx, model):
        await lk.pull(ctx)
        try:
            await ctx.sleep(1)
        finally:  # also at its shutdown
            sys.exit(3)


def test_a_role_that_exits_while_it_is_closed_is_let_go():
    with lk.train(TIMING, Exits(), lk.SimulatedCluster(workers=2), lk.Budget(seconds=0.5)) as run:
        run.wait()
    assert run.stopped_by == "seconds"


def test_wait_with_a_timeout_of_zero_advances_nothing():
    run = lk.train(TIMING, lk.AsyncPS(), lk.SimulatedCluster(), ENDLESS)
    with pytest.raises(TimeoutError, match=r"The run is not over after 0 s; it goes on\."):
        run.wait(timeout=0)
    assert run.engine.seconds == 0
    run.stop()


def test_buffers_are_emptied_on_the_way_and_nothing_else_changes(monkeypatch):
    flush, found = simulated.SimulatedRun.flush, []

    def flush_too(run):
        found[-1].append(max(role.recorder.rows_waiting() for role in run.roles.values()))
        flush(run)

    def made():
        found.append([])
        run = lk.train(TIMING, lk.AsyncPS(), lk.SimulatedCluster(workers=3, **RANDOM), lk.Budget(updates=2000)).wait()
        spans = run.trace.tables["spans"].rows()
        by_role = [spans[spans[:, 0] == role].tobytes() for role in range(len(run.trace.roles))]
        return contents(run.trace, in_order=False), by_role

    monkeypatch.setattr(simulated.SimulatedRun, "flush", flush_too)
    whole = made()
    monkeypatch.setattr(simulated, "FLUSH", 1000)
    assert made() == whole
    assert max(found[1]) < max(found[0]) / 4


def test_server_work_takes_no_draws_from_gradients():
    """Replicas draw both: a gradient's times are the same with server work of any distribution, and without."""

    def gradients(server_time):
        cluster = lk.SimulatedCluster(workers=2, compute=lk.distributions.Exponential(0.01), server_time=server_time)
        trace = lk.train(TIMING, lk.RingAllReduce(), cluster, lk.Budget(updates=30)).wait().trace
        phase, role, start, end = trace.column("spans", "phase", "role", "start", "end")
        return (end - start)[(phase == 0) & (role == 0)][:30].tolist()

    assert gradients(None) == gradients(lk.distributions.Exponential(0.002))
