"""Elastic membership: workers join and leave a run, by request and with the Dask workers of a cluster."""

import logging

import pytest
from distributed import Client, LocalCluster

import labkit as lk
from labkit.engines.commands import Leave
from tests.dask.helpers import closes, computed, eventually, moving


@pytest.fixture
def wide(cluster):
    """Two workers of up to four, that take 10 ms for a gradient."""
    return cluster.resized(workers=2, pace=0.01, max_workers=4)


def about(run, *kinds):
    return [m.name for m in run.trace.events if m.kind in kinds]


def there(run, *names):
    """Wait until exactly these workers take part."""
    eventually(lambda: run.engine.members.peers()["worker"] == run.engine.present == names, 180)
    return run


def ends_well(run, lost=0):
    run.stop()
    assert run.trace.ending["lost"] == []
    assert run.trace.ending["lost_lives"] == []
    assert not about(run, "lost", "fenced", "warning")
    entries = closes(run)
    assert entries["lost"] <= lost
    return entries


STRATEGIES = [lk.AsyncPS(), lk.SyncPS(), lk.LocalSGD(), lk.RingAllReduce(on_loss="wait")]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: s.name)
def test_workers_join_and_leave(wide, started, strategy):
    run = there(moving(started(strategy, on=wide), 10), "worker-0", "worker-1")
    run.scale(4)
    there(run, "worker-0", "worker-1", "worker-2", "worker-3")
    for role in ("worker-2", "worker-3"):
        eventually(lambda role=role: computed(run, role, 1) > 5)
    run.scale(1)
    there(moving(run, 10), "worker-0")
    run.scale(2)
    there(run, "worker-0", "worker-1")
    incarnation = run.engine.members.incarnation
    eventually(lambda: incarnation["worker-1"] and computed(run, "worker-1", incarnation["worker-1"]))
    assert sorted(about(run, "joined")) == ["worker-1", "worker-2", "worker-3"]
    assert sorted(about(run, "left")) == ["worker-1", "worker-2", "worker-3"]
    # with periodic averaging, a leaving replica loses what was not averaged
    ends_well(run, lost=30 if strategy.name == "LocalSGD" else 0)


def test_a_leaving_worker_discards_the_gradient_in_progress(cluster, started):
    run = there(moving(started(on=cluster.resized(workers=2, pace=0.2, max_workers=4)), 3), "worker-0", "worker-1")
    for instance in range(1, 11):  # the request may come between two gradients
        there(run.scale(1) or run, "worker-0")
        if lk.ledger(run.trace)["dropped"].get("cancelled"):
            break
        there(run.scale(2) or run, "worker-0", "worker-1")
        eventually(lambda instance=instance: computed(run, "worker-1", instance))
    assert ends_well(run)["dropped"]["cancelled"] > 0


def test_samples_are_distributed_to_the_present_workers(wide, started):
    problem = lk.Problem("moons", hidden=(8,), partition="even", batch_size=50)
    run = moving(started(on=wide, problem=problem), 10)
    run.scale(4)
    there(run, "worker-0", "worker-1", "worker-2", "worker-3")
    moving(run, 60)
    ends_well(run)


def test_leaving_and_joining_workers_may_be_killed(wide, started):
    run = moving(started(on=wide), 10)
    run.scale(3)
    there(run, "worker-0", "worker-1", "worker-2")
    run.kill("worker-2", restart=False)
    eventually(lambda: "worker-2" in about(run, "lost"))
    run.scale(2)
    eventually(lambda: "worker-2" in run.engine.members.outside)
    moving(run, 10)
    run.scale(3)
    there(run, "worker-0", "worker-1", "worker-2")
    eventually(lambda: computed(run, "worker-2", 2) > 0)
    run.stop()
    closes(run)
    assert run.trace.ending["lost"] == []


class Finish(lk.AsyncPS):
    """Workers that compute five gradients, or as many as they can if they are the last, and return."""

    async def worker(self, ctx, model):
        weights = await lk.pull(ctx)
        for _, batch in zip(range(10**6 if ctx.name == "worker-1" else 5), ctx.batches()):
            weights = await lk.push_pull(ctx, await ctx.compute(model.gradient, weights, batch))


def test_a_run_ends_when_all_have_returned_but_one_that_was_killed_for_good(started):
    with lk.DaskCluster(workers=2, pace=0.01) as own:
        run = moving(started(Finish(), on=own), 20)
        run.kill("worker-1", restart=False)
        run.wait(180)
    assert run.stopped_by == "finished"
    closes(run)


class Stall(lk.AsyncPS):
    """Workers that compute five gradients, and then wait for a message that the server never sends."""

    async def worker(self, ctx, model):
        weights = await lk.pull(ctx)
        for _, batch in zip(range(5), ctx.batches()):
            weights = await lk.push_pull(ctx, await ctx.compute(model.gradient, weights, batch))
        if ctx.name != "worker-1":  # this one continues until it leaves
            await ctx.recv(lk.Weights)
        for batch in ctx.batches():
            weights = await lk.push_pull(ctx, await ctx.compute(model.gradient, weights, batch))


@pytest.mark.parametrize("leaves", [False, True], ids=["not there yet", "left"])
def test_a_deadlock_is_noticed_while_a_worker_is_outside(wide, started, leaves):
    run = started(Stall(), on=wide if leaves else wide.resized(workers=1))
    if leaves:
        moving(run, 20)
        run.scale(1)
    with pytest.raises(lk.Deadlock, match="worker-0 waits for Weights"):
        run.wait(180)
    assert run.stopped_by == "deadlock"


def test_faults_of_an_absent_worker_are_reported(wide, started):
    run = moving(started(on=wide), 5)
    with pytest.raises(lk.BadInput, match="it is not present"):
        run.freeze("worker-3")
    with pytest.raises(lk.BadInput, match="only workers of a cluster with max_workers"):
        run.execute(Leave("server-0"))
    run.stop()


# clusters that change size --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def theirs():
    """A Dask cluster of four Dask workers, and a client."""
    quiet = {"dashboard_address": None, "silence_logs": logging.CRITICAL}
    with LocalCluster(n_workers=4, threads_per_worker=1, **quiet) as made, Client(made, set_as_default=False) as client:
        yield made, client


@pytest.fixture
def four(theirs):
    """Wait until it has four again."""
    made, client = theirs
    made.scale(4)
    eventually(lambda: len(made.scheduler.workers) == 4, 180)
    return made, client


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [lk.AsyncPS(), lk.LocalSGD()], ids=lambda s: s.name)
def test_workers_join_and_leave_with_their_dask_workers(four, started, strategy):
    made, client = four
    nodes = 4 if strategy.name == "AsyncPS" else 3
    made.scale(nodes)
    eventually(lambda: len(made.scheduler.workers) == nodes, 180)
    run = started(strategy, on=lk.DaskCluster(client, workers=2, pace=0.01, max_workers=3))
    there(moving(run, 10), "worker-0", "worker-1")
    made.scale(nodes + 1)
    there(run, "worker-0", "worker-1", "worker-2")
    eventually(lambda: computed(run, "worker-2", 1) > 5)
    made.scale(nodes)  # closes the youngest
    there(run, "worker-0", "worker-1")
    moving(run, 10)
    made.scale(nodes + 1)
    there(run, "worker-0", "worker-1", "worker-2")
    eventually(lambda: computed(run, "worker-2", run.engine.members.incarnation["worker-2"]) > 0, 180)
    assert about(run, "left", "joined") == ["worker-2"] * 3
    ends_well(run, lost=30 if strategy.name == "LocalSGD" else 0)


@pytest.mark.slow
def test_dask_adapt_adds_workers_and_retires_none_with_a_role(four, started):
    made, client = four
    scheduler = made.scheduler
    run = started(on=lk.DaskCluster(client, workers=2, pace=0.01, max_workers=3))
    there(moving(run, 10), "worker-0", "worker-1")
    adaptive = made.adapt(minimum=5, maximum=6, interval="100ms", wait_count=2)
    there(run, "worker-0", "worker-1", "worker-2")
    adaptive.stop()
    assert all(worker.long_running for worker in scheduler.workers.values())
    assert scheduler.adaptive_target() == 5  # no further worker is requested, and none may be closed
    assert scheduler.workers_to_close() == []
    ends_well(run)


@pytest.mark.slow
def test_a_retired_dask_worker_leaves_and_the_required_roles_on_it_move(four, started):
    made, client = four
    made.scale(6)
    eventually(lambda: len(made.scheduler.workers) == 6, 180)
    run = started(on=lk.DaskCluster(client, workers=2, pace=0.01, max_workers=3))
    there(moving(run, 10), "worker-0", "worker-1")
    where = run.engine.supervisor.where
    client.retire_workers([where["worker-1"], where["server-0"]])
    eventually(lambda: about(run, "left") == ["worker-1"])
    eventually(lambda: about(run, "restarted") == ["server-0"], 180)
    text = next(str(m) for m in run.trace.events if m.kind == "restarted")
    assert "rolled back" not in text  # it has saved its state before it left
    moving(run, 20).stop()
    entries = closes(run)
    assert entries["rolled_back"] == 0
    assert [m.reason for m in run.trace.events if m.kind == "lost"] == ["was retired by Dask"]
