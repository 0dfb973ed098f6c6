"""A process is lost permanently, or no process is left: the run reports it in time, and other work continues."""

import os
import signal
import threading

import pytest
from distributed import Client, LocalCluster

import labkit as lk
from tests.dask.helpers import closes, eventually, moving, pid_of, plugins, usable


@pytest.mark.slow
def test_the_ledger_balances_when_a_run_ends_while_one_of_two_shards_is_lost(cluster, started):
    run = moving(started(on=cluster.resized(servers=2, pace=0.002)), 50)
    run.kill("server-1", restart=False)
    eventually(lambda: any(m.kind == "waits" for m in run.trace.events))
    stopping = threading.Thread(target=run.stop)  # it does not wait for the lost shard
    stopping.start()
    stopping.join(180)
    assert not stopping.is_alive()
    assert run.trace.ending["lost"] == ["server-1"]
    closes(run)


@pytest.mark.slow
def test_a_frozen_process_does_not_affect_later_runs(cluster, started):
    run = moving(started(on=cluster.resized(pace=0.005, patience=1.0)))
    frozen = pid_of(run, "worker-0")
    os.kill(frozen, signal.SIGSTOP)
    try:
        eventually(lambda: run.engine.members.incarnation["worker-0"] == 1)
        eventually(lambda: run.engine.members.whole, 180)
        moving(run).stop()
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
    assert eventually(lambda: not any(cluster._connection.usage.values()))


@pytest.mark.slow
def test_all_processes_are_lost_and_none_is_added():
    """Workers without nannies, of which none is replaced."""
    options = {"n_workers": 3, "threads_per_worker": 1, "dashboard_address": None, "silence_logs": 50}
    with LocalCluster(**options) as local, Client(local, set_as_default=False) as client:
        client.run(__import__, "labkit.engines.dask.worker.task")
        run = moving(lk.train(lk.Problem("moons", hidden=(8,)), lk.AsyncPS(), lk.DaskCluster(client, workers=1)))
        local.scale(0)
        with pytest.raises(lk.ClusterError, match=r"worker-0 was retired by Dask.*no Dask worker is left"):
            run.wait(180)
        assert run.trace.ending["lost"] == ["chief", "server-0", "worker-0"]
        closes(run)


@pytest.mark.slow
def test_a_process_that_dask_has_given_up_is_started_again():
    """Dask removes a worker that is absent 15 s after it or its predecessor was lost, even if it is just starting."""
    with lk.DaskCluster(workers=2) as small:
        processes = small.open().client.cluster
        name = next(iter(processes.workers))
        processes.sync(processes.workers.pop(name).close)
        usable(small)
