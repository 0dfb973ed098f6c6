"""Control of runs on processes: stop, step, options, several calls and several runs at the same time."""

import threading

import pytest

import labkit as lk
from labkit.engines.commands import Cut, Pause, SetOptions
from tests.dask.helpers import (
    closes,
    endless,
    events,
    further,
    labkit_threads,
    nothing_left,
    released,
    together,
    updates,
    usable,
    whole,
)  # fmt: skip


def test_a_stop_from_many_threads_ends_a_wait_and_the_run_has_a_result(cluster, started):
    run = started()
    with pytest.raises(TimeoutError, match="goes on"):
        run.wait(0.0)
    further(run)
    together(*[run.stop] * 5, run.wait)
    assert run.stop() is run
    assert run.stopped_by == "user"
    assert run.summary()["accuracy"] is not None
    assert run.result().predict([[0.0, 0.0]]).shape == (1,)
    closes(run)
    released(run)
    nothing_left(cluster.client)


def test_leaving_the_block_stops_a_paused_run(cluster):
    with endless(cluster) as run:
        further(run).pause()
    assert run.stopped_by == "user"
    closes(run)


@pytest.mark.parametrize("strategy", [lk.RingAllReduce(), lk.TensorParallel()], ids=["a replica", "all of a model"])
def test_a_run_with_a_single_worker_is_evaluated_and_ends(cluster, started, strategy):
    run = started(strategy, lk.Budget(updates=20), on=cluster.resized(workers=1)).wait()
    assert run.stopped_by == "updates"
    assert run.summary()["accuracy"] is not None
    closes(run)


def test_steps_at_once_are_one_after_the_other_and_each_is_one_update_of_every_shard(cluster, started):
    on = cluster.resized(servers=2, pace=0.002, server_time=0.002)
    for strategy, kind in ((lk.AsyncPS(), "server"), (lk.RingAllReduce(), "worker")):
        run = further(started(strategy, on=on if strategy.uses_servers else cluster.resized(pace=0.002))).step()
        shards = run.trace.role_ids(kind)
        versions = [run.trace.counters[shard].version for shard in shards]
        together(run.step, run.step, run.step)
        assert [run.trace.counters[shard].version for shard in shards] == [version + 3 for version in versions]
        assert run.engine.paused
        further(run.resume()).stop()
        closes(run)


def test_the_last_step_reports_the_end_of_the_run(cluster, started):
    run = started(lk.SyncPS(), budget=lk.Budget(updates=6)).pause()
    steps = 0
    while run.engine.step():
        steps += 1
        assert steps <= 6
    assert run.stopped_by == "updates"
    assert updates(run) == 6


def test_a_stop_ends_steps_that_would_never_end(cluster, started):
    """One shard gets no gradient for a long time, so the other waits at its goal."""
    run = further(started(lk.SyncPS(), on=cluster.resized(pace=0.05)))
    run.slow("worker-0", 1000)
    together(run.step, run.step, run.stop)
    assert run.stopped_by == "user"
    closes(run)


def verbs(run):
    return {
        "pause": run.pause, "resume": run.resume, "step": run.step, "set": lambda: run.set(learning_rate=0.02),
        "slow": lambda: run.slow("worker-0", 2.0),
    }  # fmt: skip


def ends_in_order(run):
    assert run.stopped_by == "user"
    assert run.trace.ending["why"] == ""  # the chief has answered: it was not blocked
    assert run.summary()["accuracy"] is not None
    assert all(event.time <= run.trace.ending["time"] for event in run.trace.events)
    closes(run)
    assert labkit_threads() == []


def test_all_commands_at_the_time_of_a_stop_let_the_run_stop_in_order(cluster, started):
    run = further(started(on=cluster.resized(pace=0.002)))
    together(*verbs(run).values(), run.stop, run.stop)
    ends_in_order(run)


@pytest.mark.slow
def test_all_commands_at_the_time_of_a_kill_let_the_run_continue(cluster, started):
    run = further(started(on=cluster.resized(pace=0.002)))
    together(*verbs(run).values(), lambda: run.kill("worker-0"), lambda: run.kill("worker-0"))
    run.resume()  # the restart may follow a pause
    run.wait_for("restarted", "worker-0")
    further(whole(run)).stop()
    ends_in_order(run)


def test_a_command_while_the_run_is_ended_is_answered_and_has_no_effect(cluster, started):
    run = further(started())
    closing, answered = threading.Event(), threading.Event()
    close = run.engine.record.close

    def close_slowly():
        close()
        closing.set()
        answered.wait()

    run.engine.record.close = close_slowly
    stopping = threading.Thread(target=run.stop)
    stopping.start()
    closing.wait()
    log = list(run.engine.commands)
    commands = (
        lk.Slow("worker-0", 3.0),
        Pause(),
        lk.Kill("worker-0"),
        Cut("worker-0"),
        SetOptions({"learning_rate": 0.1}),
    )
    calls = [threading.Thread(target=run.engine.execute, args=(command,)) for command in commands]
    calls.append(threading.Thread(target=run.engine.step))
    for call in calls:
        call.start()
    answered.set()
    for thread in (*calls, stopping):
        thread.join()
    assert run.engine.commands == log
    assert run.stopped_by == "user"
    closes(run)


def test_a_run_ends_even_if_its_cluster_resources_cannot_be_released(started, cluster, monkeypatch):
    run = further(started())
    close = run.engine.supervisor.close

    def fails():
        close()
        raise OSError("the connection is gone")

    monkeypatch.setattr(run.engine.supervisor, "close", fails)
    run.stop()
    run.wait()
    assert run.stopped_by == "user"
    closes(run)
    usable(cluster)


# several runs on one cluster ------------------------------------------------------------------------------------------


class Broken(lk.AsyncPS):
    async def worker(self, ctx, model):
        raise ZeroDivisionError("here")
        await ctx.sleep(1)


def test_runs_and_ordinary_tasks_do_not_affect_each_other(cluster, started):
    """Two runs are started by two threads, another one has an error, and one starts while another one stops."""
    other = further(started(lk.RingAllReduce(), on=cluster.resized(pace=0.001)))
    following = []

    def train(strategy):
        following.append(started(strategy, lk.Budget(updates=100)))

    together(other.stop, lambda: train(lk.AsyncPS()), lambda: train(lk.SyncPS()))
    futures = cluster.client.map(lambda x: x * x, range(40), pure=False)
    with pytest.raises(lk.RoleError, match="ZeroDivisionError: here"):
        started(Broken()).wait()
    assert cluster.client.gather(futures) == [x * x for x in range(40)]
    assert other.stopped_by == "user"
    for run in following:
        assert run.wait().stopped_by == "updates"
        closes(run)
    assert len(following) == 2
    closes(other)
    released(other)


def test_only_a_simulated_run_can_be_moved_by_hand_and_repeated(started):
    run = started()
    with pytest.raises(lk.BadInput, match="only a simulated run can"):
        run.fork()
    with pytest.raises(lk.BadInput, match="time on a real cluster passes by itself"):
        run.advance(1.0, timeout=0.1)


# options --------------------------------------------------------------------------------------------------------------


def test_a_live_option_changes_and_others_are_refused(cluster, started):
    run = further(started(lk.AsyncPS(learning_rate=1e-6), on=cluster.resized(pace=0.001)))
    run.set(learning_rate=0.5)
    losses = lambda run: run.trace.column("evaluations", "loss").tolist()  # noqa: E731
    first = run.wait_for(losses)[0]
    run.wait_for(lambda run: losses(run)[-1] < 0.9 * first)
    with pytest.raises(lk.BadInput, match="optimizer cannot change during a run"):
        run.set(optimizer="adam")
    with pytest.raises(lk.BadInput, match="learning_rate"):
        run.set(learning_rate=1e9)
    run.stop()
    assert [str(event) for event in events(run, "set")] == ["learning_rate = 0.5"]
