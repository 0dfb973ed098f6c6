"""Clusters that labkit did not start, and addresses that lead nowhere."""

import contextlib
import importlib.util
import os
import signal
import socket
import threading

import pytest

import labkit as lk
from labkit.engines.dask.cluster import backends
from tests.dask.helpers import (
    MOONS,
    addresses,
    another_client,
    closes,
    endless,
    free_port,
    labkit_threads,
    nothing_left,
    plugins,
    progress,
    scheduler_and_workers,
    together,
    usable,
)  # fmt: skip


@pytest.fixture
def client(cluster):
    """Another client of the shared scheduler, whose processes are not its own."""
    with another_client(cluster) as made:
        yield made


# addresses that lead nowhere ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def refused(pattern, kind=lk.ClusterError):
    threads = set(threading.enumerate())
    with pytest.raises(kind, match=pattern):
        yield
    for thread in set(threading.enumerate()) - threads:
        if "Dask" not in thread.name:
            thread.join()


@pytest.mark.parametrize("address", ["nonsense", "", "tcp://", "http://x"])
def test_an_address_without_a_scheduler_is_refused(address):
    with refused("No Dask scheduler answers|give no argument, a scheduler's address", lk.LabkitError):
        lk.DaskCluster(address).open()


@pytest.mark.parametrize("target", [4, 3.5, object(), b"tcp://x:1"])
def test_a_target_that_is_no_cluster_is_refused(target):
    with pytest.raises(lk.BadInput, match="scheduler"):
        lk.DaskCluster(target)


@pytest.mark.slow
def test_what_is_no_scheduler_is_refused(cluster, monkeypatch):
    """There is no such host; nothing listens; a listener never answers; it is another server; it is a Dask worker."""
    monkeypatch.setattr(backends, "REACH_S", 0.5)

    def chatter():
        with contextlib.suppress(OSError):
            while True:
                peer, _ = other.accept()
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                peer.close()

    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as other:
        threading.Thread(target=chatter, daemon=True).start()
        ports = [free_port(), silent.getsockname()[1], other.getsockname()[1]]
        wrong = [
            "tcp://no-such-host.invalid:1",
            *(f"tcp://127.0.0.1:{port}" for port in ports),
            addresses(cluster.client)[0],
        ]
        found = {}

        def opened(address):
            with pytest.raises(lk.ClusterError) as error:
                lk.DaskCluster(address).open()
            found[address] = str(error.value)

        together(*(lambda address=address: opened(address) for address in wrong))
        other.shutdown(socket.SHUT_RDWR)
    assert found.keys() == set(wrong)
    assert all(f"No Dask scheduler answers at '{address}" in text for address, text in found.items()), found


# given clusters ----------------------------------------------------------------------------------------------------


def test_a_given_client_stays_open_with_its_subscriptions(client):
    received, arrived = [], threading.Event()

    def receive(event):
        received.append(event[1])
        if event[1] == "still there?":
            arrived.set()

    client.subscribe_topic("all", receive)
    with lk.DaskCluster(client, workers=2) as given:
        assert (progress(given), given.is_open) == ((0, 4), False)
        usable(given)
        assert (progress(given), given.is_open) == ((4, 4), True)
        assert given.dashboard_link is None or importlib.util.find_spec("bokeh")
    assert client.status == "running"
    client.log_event("all", "still there?")
    arrived.wait()
    with pytest.raises(lk.ClusterError, match="has been closed"):
        given.open()


def test_two_clusters_share_a_client_and_wait_for_ordinary_tasks(client):
    begun, go_on = (f"{what} of the tests" for what in ("begun", "go on"))

    def task(number):
        from distributed import Event

        Event(begun).set()
        Event(go_on).wait()
        return number

    from distributed import Event

    tasks = client.map(task, range(len(addresses(client))), pure=False)  # one on each
    Event(begun, client=client).wait()
    runs = []

    def train():
        runs.append(lk.train(MOONS, lk.AsyncPS(), lk.DaskCluster(client, workers=1), lk.Budget(updates=50)))

    starting = [threading.Thread(target=train) for _ in range(2)]
    for thread in starting:
        thread.start()
    Event(go_on, client=client).set()
    for thread in starting:
        thread.join()
    assert client.gather(tasks) == list(range(len(tasks)))
    assert len(runs) == 2
    for run in runs:
        assert run.wait().stopped_by == "updates"
        closes(run)


def test_too_few_workers(client):
    count = len(addresses(client))
    why = rf"This run has {count + 2} nodes .* and the cluster has {count} Dask workers; start more.*wait_for_workers"
    with pytest.raises(lk.BadInput, match=why):
        lk.train(MOONS, lk.AsyncPS(), lk.DaskCluster(client, workers=count), lk.Budget(updates=5))


@pytest.mark.parametrize("wait", [-1, float("inf"), float("nan"), "long", True])
def test_a_time_to_wait_that_is_none_is_refused(client, wait):
    with pytest.raises(lk.BadInput, match="give the seconds to wait for Dask workers"):
        lk.DaskCluster(client, workers=2).open(wait=wait)


def test_dask_workers_that_arrive_later_are_awaited(cluster, client):
    count, seen = len(addresses(client)), []

    def arrived(progress):
        seen.append(str(progress))
        if len(seen) == 1:
            threading.Thread(target=cluster.resized(workers=count).open, name="arrive").start()

    made = lk.DaskCluster(client, workers=1)
    made.open(count + 1, wait=60, on_progress=arrived)
    assert seen[0] == f"{count} of {count + 1} processes connected"
    assert seen[-1] == f"{count + 1} of {count + 1} processes connected"
    assert len(addresses(client)) > count


def test_a_client_closed_by_other_code(cluster, client):
    run = endless(lk.DaskCluster(client, workers=2))
    client.close()
    with pytest.raises(lk.ClusterError, match="connection to the Dask scheduler is gone"):
        run.wait()
    closes(run)
    assert labkit_threads() == []
    nothing_left(cluster.client)
    with pytest.raises(lk.ClusterError, match="The given Client has been closed"):
        lk.DaskCluster(client, workers=1).open()


# started by others -----------------------------------------------------------------------------------------------------

WITHOUT = """
import sys

class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "labkit":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Nowhere())
for name in [name for name in sys.modules if name.split(".")[0] == "labkit"]:  # of the fork server
    del sys.modules[name]
"""
OTHER = """
import importlib.metadata as metadata

version = metadata.version
metadata.version = lambda name: "0.0.9" if name == "labkit-distributed" else version(name)
"""
PYTHON = """
import platform

platform.python_version_tuple = lambda: ("3", "10", "13")
"""


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize(
    ("preload", "pattern"),
    [(WITHOUT, "Dask worker at tcp://.* has no labkit; install labkit-distributed"),
     (OTHER, "has labkit 0.0.9 and this process has .*; they must be equal"),
     (PYTHON, r"has CPython 3.10 and this process has CPython 3.*; they must be equal")],
    ids=["without labkit", "with another one", "with another Python"],
)  # fmt: skip
def test_dask_workers_without_these_versions_are_refused(tmp_path, preload, pattern):
    (tmp_path / "preload.py").write_text(preload)
    with (
        scheduler_and_workers(tmp_path, 1, tmp_path / "preload.py") as (address, _),
        lk.DaskCluster(address, workers=1, servers=0) as cluster,
        pytest.raises(lk.ClusterError, match=pattern),
    ):
        cluster.open(1)


@pytest.mark.slow
@pytest.mark.processes
def test_a_scheduler_by_its_address_with_a_frozen_worker_and_its_end(tmp_path):
    """A Dask worker that is frozen is skipped. At last, the scheduler is killed."""
    with scheduler_and_workers(tmp_path, 4) as (address, processes), lk.DaskCluster(address, workers=2) as cluster:
        with lk.DaskCluster(address, workers=1) as other:
            usable(other)
            assert plugins(other.client) == {}
        os.kill(processes[1].pid, signal.SIGSTOP)
        with pytest.raises(lk.ClusterError, match="has 3 Dask workers that answer; 1 more do not answer"):
            cluster.open()
        usable(cluster.resized(workers=1))
        os.kill(processes[1].pid, signal.SIGCONT)
        cluster.open()
        run = endless(cluster)
        all_at_once(run, processes[0].kill)
        with pytest.raises(lk.ClusterError):  # and does not wait for lost processes
            cluster.open()


def all_at_once(run, outside):
    """The cluster is closed while several threads call every method repeatedly, until the run is over."""
    verbs = [run.pause, run.resume, run.step, lambda: run.set(learning_rate=0.02), lambda: run.slow("worker-0", 2.0)]

    def clicks(verb):
        while not run.done:
            verb()

    def takes_away():
        with contextlib.suppress(Exception):  # Dask may raise an error for a request sent meanwhile
            outside()

    together(takes_away, *(lambda verb=verb: clicks(verb) for verb in verbs))
    with pytest.raises(lk.ClusterError):
        run.wait()
    assert run.stopped_by == "error"
    assert run.trace.ending["why"]
    closes(run)
    assert labkit_threads() == []
    for act in (lambda: run.set(learning_rate=0.1), lambda: run.slow("worker-0", 2.0), lambda: run.kill("worker-0")):
        with pytest.raises(lk.BadInput, match="The run is over"):
            act()
    together(run.pause, run.resume, run.step, run.stop)
