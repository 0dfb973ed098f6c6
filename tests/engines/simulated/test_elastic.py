"""Workers that join and leave in virtual time, and the end of a run whose last worker has left."""

import pytest

import labkit as lk
from labkit.engines.commands import Join, Leave
from tests.engines.simulated.test_frozen import fault_times
from tests.engines.simulated.test_recovery import BACK, applied, closed, events, started


def elastic(strategy=None, workers=3, most=3, **more):
    return started(strategy or lk.AsyncPS(), workers, max_workers=most, **more)


# leaving ---------------------------------------------------------------------------------------------------------------


def test_a_frozen_worker_that_leaves_is_not_lost_and_joins_again():
    run = (
        elastic(heartbeat_timeout=1.0)
        .advance(0.505)
        .freeze("worker-2")
        .advance(0.1)
        .execute(Leave("worker-2"))
        .advance(2.0)
    )
    assert fault_times(run) == [("frozen", 0.505)]
    run.execute(Join("worker-2")).advance(0.1)
    assert applied(run, 2.605, 2.705, "worker-2") == 10
    run.thaw("worker-2").advance(1.0)
    assert fault_times(run) == [("frozen", 0.505)]
    closed(run)


@pytest.mark.parametrize("reconnected", [False, True])
def test_an_isolated_worker_that_leaves_is_not_lost_and_joins_again(reconnected):
    run = (
        elastic(heartbeat_timeout=1.0)
        .advance(0.505)
        .cut("worker-2")
        .advance(0.1)
        .execute(Leave("worker-2"))
        .advance(2.0)
    )
    assert fault_times(run) == []
    assert applied(run, 0.505, 2.605, "worker-2") == 0
    if reconnected:  # its earlier messages arrive then
        run.reconnect("worker-2").advance(0.0)
        assert applied(run, 0.505, 2.605, "worker-2") == 1
    run.execute(Join("worker-2"))
    run.advance(0.1)
    assert applied(run, 2.605, 2.705, "worker-2") == 10
    assert applied(run, 0.505, 2.605, "worker-2") == 1  # once, before what its next instance sends
    run.advance(2.0)
    assert fault_times(run) == []
    assert closed(run)["lost"] == 0


def test_a_leaving_worker_is_not_awaited_behind_a_cut_link():
    """Both servers and worker-2 hold messages for each other."""
    run = elastic(lk.SyncPS(), budget=lk.Budget(updates=200), servers=2).advance(0.5).cut("worker-2").advance(0.2)
    run.execute(Leave("worker-2")).advance(0.2)
    assert run.summary()["updates"] > 60
    run.kill("worker-0", restart=False).advance(0.1)
    assert [m.awaited for m in events(run, "waits")] == ["worker-0, which was killed"]
    run.restart("worker-0").wait()
    assert run.stopped_by == "updates"
    closed(run)


def test_a_lost_worker_can_leave_and_is_not_restarted():
    run = elastic().advance(0.505).kill("worker-2").advance(0.1).execute(Leave("worker-2")).advance(2.0)
    assert not events(run, "restarted")
    assert [(m.name, m.time) for m in events(run, "left")][-1] == ("worker-2", 605_000_000)
    assert [type(entry.command).__name__ for entry in run.engine.commands] == ["Kill", "Leave"]
    run.execute(Join("worker-2")).advance(0.1)
    assert applied(run, 2.605, 2.705, "worker-2") == 10
    closed(run)


@pytest.mark.parametrize("strategy", [lk.SyncPS(), lk.RingAllReduce(), lk.SyncPS(on_loss="continue")])
def test_the_others_continue_when_a_lost_worker_leaves(strategy):
    run = elastic(strategy).advance(0.505).kill("worker-2", restart=False).advance(0.5)
    before = run.summary()["updates"]
    assert before == (100 if strategy.on_loss == "continue" else 50)
    run.execute(Leave("worker-2")).advance(0.5)
    assert run.summary()["updates"] >= before + 49
    run.execute(Join("worker-2")).advance(0.5)
    assert applied(run, 1.505, 2.005, "worker-2") >= 48 or not strategy.uses_servers
    closed(run)


@pytest.mark.parametrize("strategy", [lk.AsyncPS(), lk.RingAllReduce()], ids=lambda s: s.name)
def test_a_worker_that_is_outside_is_brought_in_by_join_only(strategy):
    run = elastic(strategy, 2).advance(0.5).kill("worker-2").advance(2.0)
    assert run.engine.present == ("worker-0", "worker-1")
    with pytest.raises(lk.BadInput, match=r"restart\('worker-2'\): it takes no part in this run; let it join"):
        run.restart("worker-2")
    run.advance(1.0)
    assert run.engine.present == ("worker-0", "worker-1")
    run.execute(Join("worker-2")).advance(0.1)
    assert run.engine.present == ("worker-0", "worker-1", "worker-2")
    closed(run)


def test_a_worker_that_has_left_is_not_restarted_with_its_node():
    run = elastic(lk.AsyncPS(chief_works=True)).advance(0.5).execute(Leave("worker-0")).kill("chief").advance(2.0)
    assert run.engine.present == ("worker-1", "worker-2")
    assert [m.name for m in events(run, "restarted")] == ["chief"]
    closed(run)


class Reads(lk.AsyncPS):
    async def worker(self, ctx, model):
        weights = await lk.pull(ctx)
        ctx.note("first")
        for batch in ctx.batches():
            weights = await lk.push_pull(ctx, await ctx.compute(model.gradient, weights, batch))


@pytest.mark.parametrize("join", [0.0, 0.05, 0.15])
def test_a_worker_that_joins_again_gets_no_message_for_its_predecessor(join):
    """A message takes 0.1 s. Weights are in flight to worker-2 when it leaves; its next instance requests new ones."""
    run = elastic(Reads(), latency=0.1).advance(1.2).execute(Leave("worker-2")).advance(join).execute(Join("worker-2"))
    run.advance(1.0)
    me = run.trace.roles.index("worker-2")
    assert [m.time / 1e9 for m in events(run, "note") if m.recorder == me] == pytest.approx([0.2, 1.2 + join + 0.2])
    closed(run)


# the end ---------------------------------------------------------------------------------------------------------------


class Finite(lk.AsyncPS):
    """Worker i computes 10 + 40 i gradients, and returns."""

    async def worker(self, ctx, model):
        weights = await lk.pull(ctx)
        for batch in ctx.batches():
            weights = await lk.push_pull(ctx, gradient := await ctx.compute(model.gradient, weights, batch))
            if gradient.step + 1 == 10 + 40 * int(ctx.name[-1]):
                return


def test_a_run_is_finished_when_the_last_worker_that_computes_leaves():
    run = elastic(Finite(), 2, 2).advance(0.305)
    assert not run.done
    run.execute(Leave("worker-1")).wait()
    assert (run.stopped_by, run.engine.seconds, run.summary()["updates"]) == ("finished", 0.305, 10 + 30)
    closed(run)


@pytest.mark.parametrize("why", ["killed", "never restarted", "frozen"])
def test_a_run_is_finished_when_the_last_worker_that_computes_is_lost_for_good(why):
    cluster = {"heartbeat_timeout": 0.2} | ({"restart_after": None} if why != "killed" else {})
    run = started(Finite(on_loss="continue"), 2, **cluster).advance(0.305)
    if why == "frozen":
        run.freeze("worker-1").wait()
    else:
        run.kill("worker-1", restart=why == "never restarted").wait()
    at = 0.505 if why == "frozen" else 0.305
    assert (run.stopped_by, run.engine.seconds, run.summary()["updates"]) == ("finished", pytest.approx(at), 10 + 30)
    closed(run)


def test_a_run_is_not_finished_while_a_worker_will_be_back():
    run = started(Finite(on_loss="continue"), 2).advance(0.305).kill("worker-1").wait()
    assert (run.stopped_by, run.engine.seconds) == ("finished", pytest.approx(0.305 + BACK + 0.5))
    closed(run)


def test_a_run_that_waits_for_its_last_worker_is_not_finished():
    run = started(Finite(on_loss="wait"), 2).advance(0.305).kill("worker-1", restart=False)
    run.advance(5.0)
    assert [m.awaited for m in events(run, "waits")] == ["worker-1, which was killed"]
    run.restart("worker-1").wait()
    assert run.stopped_by == "finished"
    closed(run)
