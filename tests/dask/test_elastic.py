"""Elastic membership: workers join and leave a run, by request and with the Dask workers of a cluster."""

import logging

import pytest
from distributed import Client, LocalCluster

import labkit as lk
from labkit.engines.commands import Leave
from tests.dask.helpers import MOONS, closes, computed, computes, events, further

WORKERS = ("worker-0", "worker-1", "worker-2", "worker-3")


@pytest.fixture
def wide(cluster):
    """Two workers of up to four, that take 10 ms for a gradient."""
    return cluster.resized(workers=2, pace=0.01, max_workers=4)


def about(run, *kinds):
    return [event.name for event in events(run, *kinds)]


def there(run, *names):
    """Wait until exactly these workers take part; the run."""
    run.wait_for(lambda run: run.engine.members.peers()["worker"] == run.engine.present == names)
    return run


def ends_well(run, lost=0):
    run.stop()
    assert run.trace.ending["lost"] == []
    assert run.trace.ending["lost_instances"] == []
    assert not about(run, "lost", "fenced", "warning")
    entries = closes(run)
    assert entries["lost"] <= lost
    return entries


@pytest.mark.parametrize(
    "strategy",
    [
        lk.AsyncPS(),
        *(pytest.param(one(on_loss="wait"), marks=pytest.mark.slow) for one in (lk.RingAllReduce, lk.ADPSGD)),
    ],
    ids=lambda s: s.name,
)
def test_workers_join_and_leave(wide, started, strategy):
    problem = lk.Problem("moons", hidden=(8,), partition="even", batch_size=50)  # samples follow the workers
    run = there(further(started(strategy, on=wide, problem=problem), 10), *WORKERS[:2])
    with pytest.raises(lk.BadInput, match="it is not present"):
        run.freeze("worker-3")
    with pytest.raises(lk.BadInput, match="only workers of a cluster with max_workers"):
        run.execute(Leave("server-0" if strategy.uses_servers else "chief"))
    there(run.scale(4), *WORKERS)
    for role in WORKERS[2:]:
        computes(run, role, 1, 5)
    there(further(run.scale(1), 10), "worker-0")
    there(run.scale(2), *WORKERS[:2])
    computes(run, "worker-1", run.engine.members.incarnation["worker-1"])
    moved = list(WORKERS[1:]) + (["replica-1", "replica-2", "replica-3"] if isinstance(strategy, lk.ADPSGD) else [])
    assert sorted(about(run, "joined")) == sorted(about(run, "left")) == sorted(moved)
    # gradients that only a replica which has left has applied
    ends_well(run, lost=100 if isinstance(strategy, lk.ADPSGD) else 0)


def test_a_leaving_worker_discards_the_gradient_in_progress(cluster, started):
    run = there(further(started(on=cluster.resized(workers=2, pace=0.02, max_workers=4)), 3), *WORKERS[:2])
    run.slow("worker-1", 1000)

    def computes_the_slow_one(run, seen=[(0, 0)]):  # noqa: B006 - the last number of its gradients, and that of all updates then
        number, update = computed(run, "worker-1"), run.summary()["updates"]
        if number != seen[0][0]:
            seen[0] = number, update
        return update > seen[0][1] + 20

    run.wait_for(computes_the_slow_one)
    there(run.scale(1), "worker-0")
    assert ends_well(run)["dropped"]["cancelled"] == 1


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


def test_a_deadlock_is_noticed_while_workers_are_outside(wide, started):
    run = further(started(Stall(), on=wide), 20).scale(1)
    with pytest.raises(lk.Deadlock, match="worker-0 waits for Weights"):
        run.wait()
    assert run.stopped_by == "deadlock"


# clusters that change size --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def theirs():
    """A Dask cluster of four Dask workers, and a client."""
    quiet = {"dashboard_address": None, "silence_logs": logging.CRITICAL}
    with LocalCluster(n_workers=4, threads_per_worker=1, **quiet) as made, Client(made, set_as_default=False) as client:
        yield made, client


@pytest.mark.slow
@pytest.mark.processes
def test_workers_join_and_leave_with_their_dask_workers(theirs, started):
    """By `scale`; by retirement, when required roles move; and by adaptation, which retires none with a role."""
    made, client = theirs
    run = started(on=lk.DaskCluster(client, workers=2, pace=0.01, max_workers=3))
    there(further(run, 10), *WORKERS[:2])
    made.scale(5)
    computes(there(run, *WORKERS[:3]), "worker-2", 1, 5)
    made.scale(4)  # closes the youngest
    there(run, *WORKERS[:2])
    made.scale(6)
    computes(there(further(run, 10), *WORKERS[:3]), "worker-2", 2)
    assert about(run, "left", "joined") == ["worker-2"] * 3
    where = run.engine.members.where
    client.retire_workers([where["worker-1"], where["server-0"]])
    run.wait_for("left", "worker-1")
    assert "rolled back" not in str(run.wait_for("restarted", "server-0"))  # it has saved its state before it left
    adaptive = made.adapt(minimum=5, maximum=6, interval="100ms", wait_count=2)
    there(further(run, 20), *WORKERS[:3])
    adaptive.stop()
    used, scheduler = set(run.engine.members.where.values()), made.scheduler
    assert all(scheduler.workers[address].long_running for address in used)
    assert len(used) == 5
    assert scheduler.adaptive_target() <= len(
        scheduler.workers
    )  # no further worker is requested, and none of these is closed
    assert not used & set(scheduler.workers_to_close())
    run.stop()
    assert closes(run)["rolled_back"] == 0
    assert [event.reason for event in events(run, "lost")] == ["was retired by Dask"]


@pytest.mark.parametrize("strategy", [lk.RingAllReduce(), lk.LocalSGD(), lk.ADPSGD()], ids=lambda s: s.name)
def test_a_worker_that_never_joins_is_not_counted(cluster, strategy):
    run = lk.train(MOONS, strategy, cluster.resized(workers=2, max_workers=3, pace=0.01), lk.Budget(updates=20)).wait()
    assert (run.stopped_by, run.summary()["updates"], run.summary()["workers"]) == ("updates", 20, 2)
    entries = closes(run)
    assert entries["applied"] + entries["partly_applied"] == entries["applied"] == 40
