"""A lost process ends the run with an error that names the role, and everything else goes on."""

import os
import signal
import time

import pytest
from dask_help import closes, eventually, labkit_threads, moving, pid_of, plugins, usable

import labkit as lk

pytestmark = pytest.mark.dask


@pytest.mark.parametrize("role", ["worker-1", "server-0", "chief"])
def test_a_killed_process_ends_the_run(cluster, started, role):
    run = moving(started(on=cluster.resized(pace=0.005)))
    os.kill(pid_of(run, role), signal.SIGKILL)
    with pytest.raises(lk.ClusterError, match=f"process of {role} ended unexpectedly"):
        run.wait(15)
    assert run.stopped_by == "error"
    assert run.trace.ending["lost"] == [role]
    book = closes(run)
    assert book["computed"] > 0
    assert book["applied"] > 0
    assert role in str(run.summary())
    assert labkit_threads() == []
    usable(cluster)
    eventually(lambda: not plugins(cluster.client))


def test_a_killed_shard_of_two_loses_what_was_on_its_way(cluster, started):
    run = moving(started(on=cluster.resized(servers=2, pace=0.002)), 50)
    os.kill(pid_of(run, "server-1"), signal.SIGKILL)
    with pytest.raises(lk.ClusterError, match="server-1"):
        run.wait(15)
    closes(run)


def test_a_killed_neighbour_in_a_ring(cluster, started):
    run = moving(started(lk.RingAllReduce(), on=cluster.resized(workers=3, pace=0.002)), 20)
    os.kill(pid_of(run, "worker-1"), signal.SIGKILL)
    with pytest.raises(lk.ClusterError, match="worker-1"):
        run.wait(15)
    closes(run)


@pytest.mark.slow
def test_a_frozen_process_is_noticed_and_does_no_harm_when_it_thaws(cluster, started):
    run = moving(started(on=cluster.resized(pace=0.005)))
    frozen = pid_of(run, "worker-0")
    began = time.monotonic()
    os.kill(frozen, signal.SIGSTOP)
    try:
        with pytest.raises(lk.ClusterError, match=r"worker-0 did not answer for 8 s \(frozen, or cut off\)"):
            run.wait(15)
        assert 7 < time.monotonic() - began < 15
        closes(run)
        usable(cluster)
        following = moving(started(on=cluster.resized(pace=0.005)))
    finally:
        os.kill(frozen, signal.SIGCONT)
    moving(following, 50)
    following.stop()
    closes(following)
    eventually(lambda: not plugins(cluster.client))
    threads = cluster.client.run(lambda: [t.name for t in __import__("threading").enumerate()])
    assert not [name for names in threads.values() for name in names if "labkit" in name]
    assert eventually(lambda: not any(cluster._backend.usage.values()))


@pytest.mark.slow
def test_a_process_that_dask_has_given_up_is_started_again():
    """Dask does so with one that is away 15 s after it, or its forerunner, was lost: it may be starting just then."""
    with lk.DaskCluster(workers=2) as small:
        processes = small.open()._backend._cluster
        name = next(iter(processes.workers))
        processes.sync(processes.workers.pop(name).close)
        usable(small)
