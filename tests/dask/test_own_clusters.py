"""Processes that labkit starts: progress, loss of all of them, and the end of the cluster."""

import threading

import psutil
import pytest

import labkit as lk
from tests.dask.helpers import MOONS, addresses, closes, endless, further, labkit_threads, progress, usable
from tests.dask.test_existing_clusters import all_at_once


@pytest.mark.slow
@pytest.mark.processes
def test_the_life_of_a_cluster():
    """It starts, grows, loses its client, one of its processes and all of them, and is closed during a run."""
    cluster = lk.DaskCluster(workers=1, pace=0.002)
    assert (progress(cluster), cluster.is_open, cluster.dashboard_link) == ((0, 3), False, None)
    seen, open_or_not = [], threading.Thread(target=cluster.open)
    open_or_not.start()
    while open_or_not.is_alive():
        seen.append((*progress(cluster), cluster.is_open))
    open_or_not.join()
    assert (progress(cluster), cluster.is_open, cluster.dashboard_link) == ((3, 3), True, None)
    counts = [up for up, _, _ in seen]
    assert counts == sorted(counts)
    assert 0 in counts  # it did not wait for the start
    assert {wanted for _, wanted, _ in seen} == {3}
    assert not [up for up, _, there in seen if there and up < 3]
    view = cluster.resized(workers=2)
    assert progress(view) == (3, 4)
    assert progress(view.open()) == (4, 4)
    assert progress(cluster) == (3, 3)

    before = addresses(cluster.client)
    all_at_once(endless(cluster), cluster.client.close)
    usable(cluster)
    assert addresses(cluster.client) == before  # the processes are reused

    processes = cluster.client.cluster  # one that Dask has given up is started again
    processes.sync(processes.workers.pop(next(iter(processes.workers))).close)
    usable(view)

    all_at_once(endless(cluster), cluster.client.cluster.close)
    usable(cluster)
    assert cluster.is_open

    cluster.client.restart()  # during no run; in the next one, roles are restarted
    run = endless(cluster)
    cluster.client.restart()
    for role in run.trace.roles:
        run.wait_for("restarted", role)
    further(run)
    cluster.close()
    assert run.stopped_by == "closed"
    closes(run)
    assert run.summary()["accuracy"] is not None
    cluster.close()
    with pytest.raises(lk.ClusterError, match="has been closed"):
        lk.train(MOONS, lk.AsyncPS(), cluster)
    assert (progress(cluster)[0], cluster.is_open, cluster.dashboard_link) == (0, False, None)
    assert labkit_threads() == []


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.skipif(not hasattr(psutil.Process, "num_fds"), reason="counts file descriptors")
def test_clusters_leave_nothing():
    def once():
        children = set(psutil.Process().children(recursive=True))
        with lk.DaskCluster(workers=1) as cluster:
            usable(cluster)
            processes = [psutil.Process(pid) for pid in cluster.client.run(lambda: __import__("os").getpid()).values()]
        psutil.wait_procs(processes)
        return set(psutil.Process().children(recursive=True)) - children

    once()
    process = psutil.Process()
    before = process.num_fds(), process.num_threads()
    assert not once()
    assert not once()
    assert process.num_fds() <= before[0] + 3
    assert process.num_threads() <= before[1] + 3


def test_there_is_no_dashboard_by_default_and_one_that_cannot_be_had_is_refused(cluster):
    import importlib.util

    assert cluster.is_open
    assert cluster.dashboard_link is None
    with pytest.raises(lk.BadInput, match="a scheduler that runs has its own"):
        lk.DaskCluster("tcp://127.0.0.1:1", dashboard=True)
    if importlib.util.find_spec("bokeh") is None:
        with pytest.raises(lk.BadInput, match="needs bokeh; install with"):
            lk.DaskCluster(dashboard=True)
