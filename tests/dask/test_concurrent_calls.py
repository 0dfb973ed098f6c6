"""Concurrent calls on one run, and clusters that disappear: every call returns, and the run reports why it ended."""

import contextlib
import importlib.util
import threading

import pytest
from distributed import Client, LocalCluster

import labkit as lk
from tests.dask.helpers import closes, eventually, labkit_threads, moving, updates, usable
from tests.dask.test_existing_clusters import scheduler_and_workers

pytestmark = pytest.mark.sample(2)
MOONS = lk.Problem("moons", hidden=(8,))
VERBS = {
    "pause": lambda run: run.pause(), "resume": lambda run: run.resume(), "step": lambda run: run.step(),
    "set": lambda run: run.set(learning_rate=0.02), "slow": lambda run: run.slow("worker-0", 2.0),
    "kill": lambda run: run.kill("worker-0"), "stop": lambda run: run.stop(),
}  # fmt: skip
HANG_S = 10.0  # seconds after which a call counts as hanging


def together(*works):
    """Call these at the same moment, each on a separate thread; fails if one does not return."""
    start, errors = threading.Barrier(len(works)), []

    def do(work):
        start.wait(180)
        try:
            work()
        except lk.LabkitError:
            pass  # refused, because the other one was first
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=do, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert not [thread for thread in threads if thread.is_alive()]
    assert errors == []


# two clicks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", ["stop", "pause", "resume", "step", "set", "slow"])
def test_any_command_concurrent_with_a_stop_lets_the_run_stop_in_order(cluster, started, other):
    run = moving(started(on=cluster.resized(pace=0.002)))
    together(lambda: VERBS[other](run), run.stop)
    assert run.stopped_by == "user"
    assert run.trace.ending["why"] == ""  # the chief has answered: it was not blocked
    assert run.summary()["accuracy"] is not None
    assert all(event.time <= run.trace.ending["time"] for event in run.trace.events)
    closes(run)
    assert labkit_threads() == []


def test_a_stop_in_the_middle_of_a_step_that_would_never_end(cluster, started):
    """One shard gets no gradient for a minute, so the other waits at its goal."""
    run = moving(started(lk.SyncPS(), on=cluster.resized(pace=0.002)))
    run.slow("worker-0", 1000)
    together(run.step, run.step, run.stop)
    assert run.stopped_by == "user"
    closes(run)


def test_a_resume_ends_the_wait_for_a_step(cluster, started):
    run = moving(started(lk.SyncPS(), on=cluster.resized(pace=0.002))).pause()
    run.slow("worker-0", 1000)
    stepper = threading.Thread(target=run.step, daemon=True)
    stepper.start()
    eventually(lambda: run.engine.pauses.stepping)
    run.resume()
    stepper.join(HANG_S)
    assert not stepper.is_alive()
    assert not run.engine.pauses.paused
    run.slow("worker-0", 1)
    run.stop()
    closes(run)


def test_two_steps_at_once_are_two_steps(cluster, started):
    run = moving(started(lk.SyncPS(), on=cluster.resized(pace=0.002))).step()
    before = updates(run)
    together(run.step, run.step, run.step)
    assert updates(run) == before + 3
    run.stop()
    closes(run)


def test_a_step_that_takes_too_long_pauses_where_it_is(cluster, started):
    run = moving(started(lk.SyncPS(), on=cluster.resized(pace=0.002))).pause()
    run.slow("worker-0", 1000)
    run.step(timeout=0.1)
    assert run.engine.pauses.paused
    run.slow("worker-0", 1)
    run.resume()
    moving(run).stop()
    closes(run)


@pytest.mark.parametrize("other", ["stop", "kill", "pause", "step", "set"])
def test_any_command_concurrent_with_a_kill_lets_the_run_continue_or_stop(cluster, started, other):
    run = moving(started(on=cluster.resized(pace=0.002)))
    together(lambda: VERBS[other](run), lambda: run.kill("worker-0"))
    if other != "stop":
        eventually(lambda: run.engine.members.incarnation["worker-0"] > 0 and run.engine.members.whole, 180)
        moving(run.resume()).stop()
    run.wait(180)
    assert run.stopped_by == "user"
    assert all(event.time <= run.trace.ending["time"] for event in run.trace.events)
    closes(run)
    assert labkit_threads() == []


def test_only_a_simulated_run_can_be_moved_by_hand_and_repeated(cluster, started):
    run = started(on=cluster.resized(pace=0.002))
    with pytest.raises(lk.BadInput, match="only a simulated run can"):
        run.fork()
    with pytest.raises(lk.BadInput, match="time on a real cluster passes by itself"):
        run.advance(1.0, timeout=0.1)


def test_a_run_starts_while_another_stops(cluster, started):
    first = moving(started(on=cluster.resized(pace=0.002)))
    following = []
    together(first.stop, lambda: following.append(started(budget=lk.Budget(updates=50))))
    assert first.stopped_by == "user"
    closes(first)
    assert following[0].wait(180).stopped_by == "updates"
    closes(following[0])
    assert not any(cluster._connection.usage.values())


# from outside ---------------------------------------------------------------------------------------------------------


def all_at_once(run, outside):
    """The cluster is closed while several threads call every method repeatedly, until the run is over."""

    def clicks(verb):
        while not run.done:
            VERBS[verb](run)

    def takes_away():
        with contextlib.suppress(Exception):  # Dask may raise an error for a request sent meanwhile
            outside()

    taker = threading.Thread(target=takes_away, daemon=True)
    taker.start()
    together(*(lambda verb=verb: clicks(verb) for verb in VERBS if verb not in ("stop", "kill")), run.stop)
    with contextlib.suppress(lk.ClusterError):  # the stop may have been first
        run.wait(HANG_S)
    assert run.stopped_by in ("error", "user")
    assert run.trace.ending["why"] or run.stopped_by == "user"
    closes(run)
    assert labkit_threads() == []
    for act in (run.set, run.slow, run.kill):
        with pytest.raises(lk.BadInput, match="The run is over"):
            act(*([] if act == run.set else ["worker-0"]), **({"learning_rate": 0.1} if act == run.set else {}), **(
                {"factor": 2.0} if act == run.slow else {}))  # fmt: skip
    together(run.pause, run.resume, run.step, run.stop)
    taker.join(180)


OURS = {
    "client.shutdown": lambda client: client.shutdown(), "client.close": lambda client: client.close(),
    "cluster.close": lambda client: client.cluster.close(),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("how", OURS)
def test_the_processes_of_labkit_are_started_again_after_their_loss(how):
    with lk.DaskCluster(workers=1, pace=0.002) as cluster:
        run = moving(lk.train(MOONS, lk.AsyncPS(), cluster.open(), lk.Budget(seconds=60)))
        client = cluster.client
        all_at_once(run, lambda: OURS[how](client))
        eventually(lambda: not cluster.is_open)
        usable(cluster)
        assert cluster.is_open


@pytest.mark.slow
@pytest.mark.parametrize("how", ["shutdown", "close"])
def test_an_existing_cluster_disappears_during_a_run(how):
    options = {"n_workers": 3, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    with LocalCluster(**options) as local, Client(local, set_as_default=False) as client:
        client.run(__import__, "labkit.engines.dask.worker.task")  # which can take long if all processes share one core
        cluster = lk.DaskCluster(client, workers=1, pace=0.002, may_kill=True)
        run = moving(lk.train(MOONS, lk.AsyncPS(), cluster, lk.Budget(seconds=60)))
        all_at_once(run, {"shutdown": client.shutdown, "close": local.close}[how])
        eventually(lambda: not cluster.is_open)
        with pytest.raises(lk.ClusterError):
            cluster.open()


@pytest.mark.slow
def test_the_scheduler_is_killed(tmp_path):
    with scheduler_and_workers(tmp_path, 3) as (address, started), lk.DaskCluster(address, workers=1) as cluster:
        run = moving(lk.train(MOONS, lk.AsyncPS(), cluster.open(), lk.Budget(seconds=60)))
        all_at_once(run, started[0].kill)
        eventually(lambda: not cluster.is_open)
        with pytest.raises(lk.ClusterError):  # and does not wait for lost processes
            cluster.open()


# the dashboard -------------------------------------------------------------------------------------------------------


def test_there_is_no_dashboard_by_default(cluster):
    assert cluster.is_open
    assert cluster.dashboard_link is None
    assert lk.DaskCluster(cluster.client, workers=2).open().dashboard_link is None or importlib.util.find_spec("bokeh")


def test_a_dashboard_that_cannot_be_had_is_refused():
    with pytest.raises(lk.BadInput, match="a scheduler that runs has its own"):
        lk.DaskCluster("tcp://127.0.0.1:1", dashboard=True)
    if importlib.util.find_spec("bokeh") is None:
        with pytest.raises(lk.BadInput, match="needs bokeh, which is not installed"):
            lk.DaskCluster(dashboard=True)
