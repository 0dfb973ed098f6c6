"""Control of a run: stop, pause, step, set an option, slow a role, and two runs at once."""

import threading
import time

import pytest

import labkit as lk
from tests.dask.helpers import closes, eventually, labkit_threads, moving, passed, plugins, updates, usable

pytestmark = pytest.mark.sample(3)


@pytest.mark.parametrize(
    "strategy", [lk.AsyncPS(), lk.Downpour(), lk.SyncPS(), lk.RingAllReduce()],
    ids=["async", "push, then pull", "sync", "ring"],
)  # fmt: skip
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_ledger_closes_at_full_speed(cluster, started, strategy, workers):
    servers = 2 if strategy.uses_servers else None
    run = started(strategy, lk.Budget(updates=60), on=cluster.resized(workers=workers, servers=servers)).wait(180)
    entries = closes(run)
    if isinstance(strategy, lk.AsynchronousServer):  # at the budget's end two shards may have had room for different gradients
        assert updates(run) == 60
        assert entries["applied"] <= 60 <= entries["applied"] + entries["partly_applied"]
    else:
        assert entries["applied"] == 60 * workers
    assert run.stopped_by == "updates"


def test_stop_ends_a_run_with_a_result(cluster, started):
    run = moving(started())
    assert run.stop() is run
    assert run.stopped_by == "user"
    assert run.stop().stopped_by == "user"
    run.wait(0)
    assert run.summary()["accuracy"] is not None
    assert run.result().predict([[0.0, 0.0]]).shape == (1,)
    closes(run)
    assert labkit_threads() == []
    assert plugins(cluster.client) == {}


@pytest.mark.parametrize("strategy", [lk.RingAllReduce(), lk.TensorParallel()], ids=["a replica", "all of a model"])
def test_a_run_with_a_single_worker_is_evaluated_and_ends(cluster, started, strategy):
    run = started(strategy, lk.Budget(seconds=0.2), on=cluster.resized(workers=1)).wait(180)
    assert run.stopped_by == "seconds"
    assert run.summary()["accuracy"] is not None
    closes(run)


def test_stop_while_paused(started):
    run = moving(started()).pause()
    run.stop()
    assert run.stopped_by == "user"
    closes(run)


def test_stop_from_another_thread_ends_a_wait(started):
    run = moving(started())
    stopper = threading.Thread(target=run.stop)
    stopper.start()
    run.wait(180)
    stopper.join(180)
    assert run.stopped_by == "user"
    closes(run)


def test_many_threads_stop_at_once(started):
    run = moving(started())
    threads = [threading.Thread(target=run.stop) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    assert not any(thread.is_alive() for thread in threads)
    assert run.stopped_by == "user"


def test_leaving_the_block_stops(cluster):
    with lk.train(lk.Problem("moons", hidden=(8,)), lk.AsyncPS(), cluster, lk.Budget(seconds=60)) as run:
        moving(run)
    assert run.stopped_by == "user"
    closes(run)


def test_wait_has_a_limit_and_the_run_goes_on(started):
    run = started()
    with pytest.raises(TimeoutError, match="goes on"):
        run.wait(0.01)
    moving(run)


def test_engine_time_stands_still_in_a_pause(started):
    run = moving(started()).pause()
    at, wall = run.engine.seconds, time.monotonic()
    passed(0.4)  # every role has reported since
    before = updates(run)
    passed(0.4)
    assert run.engine.seconds == at
    assert updates(run) == before
    run.resume()
    moving(run).stop()
    spent = time.monotonic() - wall
    assert at < run.summary()["seconds"] < at + spent - 0.4
    closes(run)
    for role in range(len(run.trace.roles)):  # no role's time ran backwards
        start, end, who = run.trace.column("spans", "start", "end", "role")
        mine = who == role
        assert (start[mine][1:] >= end[mine][:-1]).all()


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("server_time", [None, 0.01])
def test_a_step_is_one_update_of_every_shard(cluster, started, servers, server_time):
    run = moving(started(on=cluster.resized(servers=servers, pace=0.002, server_time=server_time)))
    servers = run.trace.role_ids("server")
    run.step()
    versions = [run.trace.counters[role].version for role in servers]
    for more in range(1, 4):
        run.step()
        assert [run.trace.counters[role].version for role in servers] == [v + more for v in versions]
    assert run.engine.pauses.paused
    run.resume()
    moving(run).stop()
    closes(run)


def test_a_step_of_a_ring_is_one_round(cluster, started):
    run = moving(started(lk.RingAllReduce(), on=cluster.resized(pace=0.002))).step()
    first = [run.trace.counters[role].version for role in run.trace.role_ids("worker")]
    run.step()
    assert [run.trace.counters[role].version for role in run.trace.role_ids("worker")] == [v + 1 for v in first]
    run.stop()
    closes(run)


def test_the_last_step_reports_the_end_of_the_run(cluster, started):
    run = started(budget=lk.Budget(updates=100), on=cluster.resized(pace=0.001))
    moving(run).pause()
    steps = 0
    while run.engine.step():
        steps += 1
        assert steps <= 100
    assert run.stopped_by == "updates"
    assert run.summary()["updates"] == 100


def test_a_live_option_changes_and_others_are_refused(cluster, started):
    run = moving(started(lk.AsyncPS(learning_rate=1e-6), on=cluster.resized(pace=0.001)))
    run.set(learning_rate=0.5)
    norms = lambda: run.trace.column("evaluations", "loss").tolist()  # noqa: E731
    first = eventually(norms)[0]
    eventually(lambda: norms()[-1] < 0.9 * first)
    with pytest.raises(lk.BadInput, match="optimizer cannot change during a run"):
        run.set(optimizer="adam")
    with pytest.raises(lk.BadInput, match="learning_rate"):
        run.set(learning_rate=1e9)
    run.stop()
    assert [str(m) for m in run.trace.events if m.kind == "set"] == ["learning_rate = 0.5"]


@pytest.mark.slow
def test_slow_takes_effect_and_is_undone(cluster, started):
    run = moving(started(on=cluster.resized(pace=0.03)), 30)

    def shares():
        counters = run.trace.counters
        return [counters[role].computed if role in counters else 0 for role in run.trace.role_ids("worker")]

    def gained(count):
        before = shares()
        eventually(lambda: shares()[1] - before[1] >= count)
        return (shares()[0] - before[0]) / (shares()[1] - before[1])

    run.slow("worker-0", 10)
    shares_now = shares()
    eventually(lambda: shares()[1] > shares_now[1] + 20)
    assert gained(60) < 0.4
    run.slow("worker-0", 1)
    now = shares()[1]
    eventually(lambda: shares()[1] > now + 20)
    assert gained(60) > 0.6
    with pytest.raises(lk.BadInput, match="worker-9"):
        run.slow("worker-9", 2)
    with pytest.raises(lk.BadInput, match="factor=0"):
        run.slow("worker-0", 0)


def test_a_fault_comes_at_its_engine_time_pauses_apart(cluster, started):
    fault = lk.Slow("worker-0", 7, at=0.4, until=0.6)
    run = started(on=cluster.resized(pace=0.002), faults=[fault])
    run.pause()
    passed(0.6)
    assert not [m for m in run.trace.events if m.kind == "slowed"]
    run.resume()
    events = eventually(lambda: len(m := [m for m in run.trace.events if m.kind == "slowed"]) == 2 and m)
    assert [m.factor for m in events] == [7, 1]
    assert events[0].time >= 0.4e9


def test_two_runs_side_by_side(cluster, started):
    one = started(budget=lk.Budget(updates=400), on=cluster.resized(pace=0.001))
    two = started(lk.SyncPS(), lk.Budget(updates=150), on=cluster.resized(pace=0.001))
    other = started(lk.RingAllReduce(), on=cluster.resized(pace=0.001))
    for run in (one, two):
        run.wait(180)
        assert run.stopped_by == "updates"
        closes(run)
    assert not other.done
    moving(other).stop()
    closes(other)
    assert not any(cluster._connection.usage.values())


def test_two_threads_start_runs_on_one_cluster(cluster):
    ended = []

    def train():
        run = lk.train(lk.Problem("moons", hidden=(8,)), lk.AsyncPS(), cluster, lk.Budget(updates=100)).wait(180)
        ended.append((run.stopped_by, closes(run)["applied"]))

    threads = [threading.Thread(target=train) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    assert ended == [("updates", 100)] * 3


def test_an_error_in_one_run_leaves_the_other(cluster, started):
    class Broken(lk.AsyncPS):
        async def worker(self, ctx, model):
            raise ZeroDivisionError("here")
            await ctx.sleep(1)

    good = moving(started())
    with pytest.raises(lk.RoleError, match="ZeroDivisionError: here"):
        started(Broken()).wait(180)
    moving(good).stop()
    closes(good)


def test_ordinary_tasks_run_beside_a_run(cluster, started):
    run = moving(started(on=cluster.resized(pace=0.001)))
    futures = cluster.client.map(lambda x: x * x, range(40), pure=False)
    assert cluster.client.gather(futures) == [x * x for x in range(40)]
    moving(run).stop()
    closes(run)


def test_a_run_ends_even_if_its_cluster_resources_cannot_be_released(started, cluster, monkeypatch):
    run = moving(started())
    close = run.engine.supervisor.close

    def fails():
        close()
        raise OSError("the connection is gone")

    monkeypatch.setattr(run.engine.supervisor, "close", fails)
    run.stop()
    run.wait(180)
    assert run.stopped_by == "user"
    closes(run)
    usable(cluster)
