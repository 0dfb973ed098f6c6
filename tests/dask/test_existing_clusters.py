"""Clusters that labkit did not start, clusters that go away, and addresses that lead nowhere."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from distributed import Client, LocalCluster

import labkit as lk
from tests.dask.helpers import closes, eventually, labkit_threads, moving, plugins, usable

pytestmark = pytest.mark.sample(2)
MOONS = lk.Problem("moons", hidden=(8,))
ROOT = str(Path(lk.__file__).parent.parent)


def processes(*arguments, **more):
    env = {**os.environ, "PYTHONPATH": ROOT}
    return subprocess.Popen(
        [sys.executable, "-m", "distributed.cli." + arguments[0], *arguments[1:]], env=env,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more,
    )  # fmt: skip


@contextlib.contextmanager
def scheduler_and_workers(folder, workers, preload=None):
    """`dask scheduler` and `dask worker` processes, as a user would start them: (address, processes)."""
    file = folder / "scheduler.json"
    started = [processes("dask_scheduler", "--scheduler-file", str(file), "--port", "0", "--dashboard-address", ":0",
                         "--host", "127.0.0.1")]  # fmt: skip
    options = ["--preload", str(preload)] if preload else []
    try:
        eventually(file.exists, 180)
        for _ in range(workers):
            started.append(processes("dask_worker", "--scheduler-file", str(file), "--no-nanny", "--nthreads", "1",
                                     "--no-dashboard", "--local-directory", str(folder), *options))  # fmt: skip
        with Client(scheduler_file=str(file), set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=180)
            yield client.scheduler.address, started
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """The address of a scheduler with four workers, one thread each."""
    with scheduler_and_workers(tmp_path_factory.mktemp("dask"), 4) as (address, _):
        yield address


# addresses that lead nowhere ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def refused(pattern, kind=lk.ClusterError):
    threads = set(threading.enumerate())
    with pytest.raises(kind, match=pattern):
        yield
    eventually(lambda: not [t for t in set(threading.enumerate()) - threads if t.is_alive() and "Dask" not in t.name])


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.mark.slow
def test_an_address_without_a_listener_is_refused():
    with refused("No Dask scheduler answers at 'tcp://127.0.0.1:.*within"):
        lk.train(MOONS, lk.AsyncPS(), lk.DaskCluster(f"tcp://127.0.0.1:{free_port()}"), lk.Budget(updates=5))


@pytest.mark.slow
def test_a_listener_that_never_answers_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as listener, refused("No Dask scheduler answers"):
        lk.DaskCluster(f"tcp://127.0.0.1:{listener.getsockname()[1]}").open()


@pytest.mark.slow
def test_a_listener_that_is_no_scheduler_is_refused():
    def chatter():
        with contextlib.suppress(OSError):
            while True:
                peer, _ = listener.accept()
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                peer.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=chatter, daemon=True).start()
        with refused("No Dask scheduler answers"):
            lk.DaskCluster(f"tcp://127.0.0.1:{listener.getsockname()[1]}").open()
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.slow
def test_a_dask_worker_is_no_scheduler(cluster):
    worker = next(iter(cluster.client.scheduler_info(n_workers=-1)["workers"]))
    with refused("No Dask scheduler answers"):
        lk.DaskCluster(worker).open()


@pytest.mark.parametrize("address", ["nonsense", "", "tcp://", "http://x", "tcp://no-such-host.invalid:1"])
def test_an_address_without_a_scheduler_is_refused(address):
    with refused("No Dask scheduler answers|give no argument, a scheduler's address", lk.LabkitError):
        lk.DaskCluster(address).open()


@pytest.mark.parametrize("target", [4, 3.5, object(), b"tcp://x:1"])
def test_a_target_that_is_no_cluster_is_refused(target):
    with pytest.raises(lk.BadInput, match="scheduler"):
        lk.DaskCluster(target)


# given clusters ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_given_scheduler(elsewhere):
    with lk.DaskCluster(elsewhere, workers=2) as cluster:
        usable(cluster)
        usable(cluster)
        assert plugins(cluster.client) == {}
    with lk.DaskCluster(elsewhere, workers=2) as again:
        usable(again)


def test_a_given_client_stays_open(elsewhere):
    with Client(elsewhere, set_as_default=False) as client:
        with lk.DaskCluster(client, workers=2) as cluster:
            usable(cluster)
        assert client.status == "running"
        assert client.submit(sum, [1, 2]).result(180) == 3
        with pytest.raises(lk.ClusterError, match="has been closed"):
            cluster.open()


def test_two_clusters_share_a_client(elsewhere):
    with Client(elsewhere, set_as_default=False) as client:
        one, two = lk.DaskCluster(client, workers=1), lk.DaskCluster(client, workers=1)
        runs = [lk.train(MOONS, lk.AsyncPS(), c, lk.Budget(updates=200)) for c in (one, two)]
        for run in runs:
            assert run.wait(180).stopped_by == "updates"
            closes(run)


def test_the_users_own_subscriptions_survive(elsewhere):
    received = []
    with Client(elsewhere, set_as_default=False) as client:
        client.subscribe_topic("all", received.append)
        usable(lk.DaskCluster(client, workers=1))
        received.clear()
        client.log_event("all", "still there?")
        eventually(lambda: any(message == "still there?" for _, message in received))


def test_too_few_workers(elsewhere):
    with pytest.raises(lk.BadInput, match=r"This run has 6 nodes .* and the cluster has 4 Dask workers; start more"):
        lk.train(MOONS, lk.AsyncPS(), lk.DaskCluster(elsewhere, workers=4), lk.Budget(updates=5))


def test_a_busy_worker_does_not_stop_ordinary_tasks_and_waits_its_turn(elsewhere):
    with Client(elsewhere, set_as_default=False) as client:
        slow = client.map(lambda i: time.sleep(0.5) or i, range(4), pure=False)  # one on each
        usable(lk.DaskCluster(client, workers=2))
        assert client.gather(slow) == [0, 1, 2, 3]


def test_a_closed_client_is_refused(elsewhere):
    client = Client(elsewhere, set_as_default=False)
    client.close()
    with pytest.raises(lk.ClusterError, match="The given Client has been closed"):
        lk.DaskCluster(client, workers=1).open()


WITHOUT = """
import sys

class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "labkit":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Nowhere())
"""
OTHER = """
import importlib.metadata as metadata

version = metadata.version
metadata.version = lambda name: "0.0.9" if name == "labkit-distributed" else version(name)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preload", "pattern"),
    [(WITHOUT, "Dask worker at tcp://.* has no labkit; install labkit-distributed"),
     (OTHER, "has labkit 0.0.9 and this process has .*; they must be equal")],
    ids=["without labkit", "with another one"],
)  # fmt: skip
def test_dask_workers_without_this_version_of_labkit_are_refused(tmp_path, preload, pattern):
    (tmp_path / "preload.py").write_text(preload)
    with (
        scheduler_and_workers(tmp_path, 2, tmp_path / "preload.py") as (address, _),
        lk.DaskCluster(address, workers=1, servers=0) as cluster,
        pytest.raises(lk.ClusterError, match=pattern),
    ):
        cluster.open()


@pytest.mark.slow
def test_a_frozen_worker_of_an_existing_cluster_is_skipped(tmp_path):
    with scheduler_and_workers(tmp_path, 4) as (address, started), lk.DaskCluster(address, workers=1) as cluster:
        cluster.resized(workers=2).open()  # all Dask workers have answered
        started[1].send_signal(signal.SIGSTOP)
        usable(cluster)
        with pytest.raises(lk.ClusterError, match="has 3 Dask workers that answer; 1 more do not answer"):
            cluster.resized(workers=2).open()


@pytest.mark.slow
def test_a_worker_that_was_frozen_before_its_first_answer_is_skipped(tmp_path):
    with scheduler_and_workers(tmp_path, 3) as (address, started), lk.DaskCluster(address, workers=1) as cluster:
        started[1].send_signal(signal.SIGSTOP)
        with pytest.raises(lk.ClusterError, match="has 2 Dask workers that answer; 1 more do not answer"):
            cluster.open()


# clusters that go away ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def ends_with_an_error(cluster, pattern="connection to the Dask scheduler is gone"):
    run = moving(lk.train(MOONS, lk.AsyncPS(), cluster, lk.Budget(seconds=60)))
    yield run
    with pytest.raises(lk.ClusterError, match=pattern):
        run.wait(180)
    closes(run)
    assert labkit_threads() == []


def test_a_client_closed_by_other_code(elsewhere):
    client = Client(elsewhere, set_as_default=False)
    with ends_with_an_error(lk.DaskCluster(client, workers=2)):
        client.close()
    with Client(elsewhere, set_as_default=False) as observer:
        eventually(lambda: not plugins(observer))


@pytest.mark.slow
def test_a_closed_client_is_replaced_and_the_processes_are_reused():
    with lk.DaskCluster(workers=1) as cluster:
        before = set(cluster.open().client.scheduler_info(n_workers=-1)["workers"])
        with ends_with_an_error(cluster):
            cluster.client.close()
        usable(cluster)
        assert set(cluster.client.scheduler_info(n_workers=-1)["workers"]) == before


@pytest.mark.slow
def test_processes_closed_by_other_code():
    with lk.DaskCluster(workers=1) as cluster:
        cluster.open()
        with ends_with_an_error(cluster, "gone|process of"):
            cluster.client.cluster.close()
        usable(cluster)


@pytest.mark.slow
def test_close_ends_the_runs_first():
    cluster = lk.DaskCluster(workers=1)
    run = moving(lk.train(MOONS, lk.AsyncPS(), cluster, lk.Budget(seconds=60)))
    children = psutil.Process().children(recursive=True)
    cluster.close()
    assert run.stopped_by == "closed"
    closes(run)
    assert run.summary()["accuracy"] is not None
    cluster.close()
    with pytest.raises(lk.ClusterError, match="has been closed"):
        lk.train(MOONS, lk.AsyncPS(), cluster)
    assert labkit_threads() == []
    started_here = [c for c in children if "spawn_main" in " ".join(c.cmdline() if c.is_running() else [])]
    assert len(started_here) < len(children)


@pytest.mark.slow
def test_a_killed_scheduler(tmp_path):
    with (
        scheduler_and_workers(tmp_path, 3) as (address, started),
        lk.DaskCluster(address, workers=1) as cluster,
        ends_with_an_error(cluster),
    ):
        started[0].kill()


@pytest.mark.slow
def test_a_restarted_cluster():
    with (
        LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=None, silence_logs=50) as local,
        Client(local, set_as_default=False) as client,
    ):
        run = moving(
            lk.train(lk.Problem("moons", hidden=(8,)), lk.AsyncPS(), lk.DaskCluster(client, workers=1, pace=0.005))
        )
        client.restart()
        eventually(lambda: min(run.engine.members.incarnation.values()) > 0 and run.engine.members.whole, 180)
        moving(run).stop()
        closes(run)
        usable(lk.DaskCluster(client, workers=1))
