"""`run.kill` sends SIGKILL: in any state of the process, and only where it is allowed."""

import os
import signal
import threading

import pytest
from distributed import Client, LocalCluster

import labkit as lk
from labkit.engines.commands import COMMANDS, Executed, Restart, Stop, Thaw
from labkit.engines.dask import processes
from tests.dask.helpers import closes, eventually, labkit_threads, moving, pid_of, plugins, usable


def gone(pid):
    """Whether no process has this number any more."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def lost(run, role):
    """Wait until the loss of `role` has been noticed: the event."""
    return eventually(lambda: next((m for m in run.trace.events if m.kind == "lost" and m.name == role), None))


def test_a_killed_process_is_replaced_and_the_run_continues(cluster, started):
    run = moving(started(on=cluster.resized(pace=0.005)))
    pid = pid_of(run, "worker-1")
    run.kill("worker-1")
    assert lost(run, "worker-1").reason == "was killed"
    eventually(lambda: gone(pid))
    eventually(lambda: run.engine.members.whole, 180)
    moving(run).stop()
    closes(run)
    assert labkit_threads() == []
    usable(cluster)
    eventually(lambda: not plugins(cluster.client))


def test_a_frozen_process_can_be_killed(cluster, started):
    """No answer is needed: the signal goes to the process."""
    run = moving(started(on=cluster.resized(pace=0.005, patience=60.0)))
    os.kill(pid_of(run, "worker-0"), signal.SIGSTOP)
    run.kill("worker-0")
    assert lost(run, "worker-0").reason == "was killed"  # long before its silence would be noticed
    moving(run).stop()
    closes(run)


def test_all_roles_of_a_lost_process_are_restarted_together(cluster, started):
    run = moving(started(lk.SyncPS(chief_works=True), on=cluster.resized(pace=0.005)))
    run.kill("chief")
    lost(run, "chief")
    lost(run, "worker-0")
    eventually(lambda: run.engine.members.whole, 180)
    where = run.engine.members.where
    assert where["chief"] == where["worker-0"]
    moving(run).stop()
    assert run.trace.ending["lost"] == []
    closes(run)


def test_a_kill_at_its_engine_time(cluster, started):
    """Executed as a scheduled command, not on the calling thread."""
    run = started(on=cluster.resized(pace=0.005))
    run.inject(lk.Kill("server-0", at=max(0.0, 0.2 - run.engine.seconds)))
    lost(run, "server-0")
    run.stop()
    assert [m.time >= 2e8 for m in run.trace.events if m.kind == "killed"] == [True]


# processes of others --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_processes_of_others_are_killed_only_where_it_is_allowed():
    options = {"n_workers": 3, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    with LocalCluster(**options) as local, Client(local, set_as_default=False) as client:
        client.run(__import__, "labkit.engines.dask.worker.task")  # which can take long if all processes share one core
        asked = lk.DaskCluster(client, workers=1)
        run = moving(lk.train(lk.Problem("moons", hidden=(8,)), lk.AsyncPS(), asked, lk.Budget(seconds=60)))
        signals = {lk.Kill, Restart, lk.Freeze, Thaw}
        assert run.engine.supported_commands == set(COMMANDS.values()) - signals
        with pytest.raises(lk.BadInput, match=r"labkit did not start these processes.*may_kill=True"):
            run.kill("worker-0")
        for command in (Restart("worker-0"), lk.Freeze("worker-0"), Thaw("worker-0")):
            with pytest.raises(lk.BadInput, match=rf"{command.word}\('worker-0'\): labkit did not start these processes"):
                run.execute(command)
        moving(run).stop()
        assert run.engine.commands == [Executed(Stop("user", run.engine.commands[0].at))]
        assert not [m for m in run.trace.events if m.kind == "killed"]

        allowed = lk.DaskCluster(client, workers=1, may_kill=True).resized(pace=0.005)
        run = moving(lk.train(lk.Problem("moons", hidden=(8,)), lk.AsyncPS(), allowed, lk.Budget(seconds=60)))
        assert run.engine.supported_commands == set(COMMANDS.values())
        pid = pid_of(run, "server-0")
        run.kill("server-0")
        assert lost(run, "server-0").reason == "was killed"
        eventually(lambda: gone(pid))
        eventually(lambda: run.engine.members.whole, 180)  # its nanny has started another one
        moving(run).stop()
        closes(run)


@pytest.mark.slow
def test_the_process_of_the_client_is_not_killed():
    options = {"n_workers": 3, "threads_per_worker": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(**options, protocol="tcp://", silence_logs=50) as local, Client(local) as client:
        threads = lk.DaskCluster(client, workers=1, may_kill=True)
        run = moving(lk.train(lk.Problem("moons", hidden=(8,)), lk.AsyncPS(), threads, lk.Budget(seconds=60)))
        with pytest.raises(lk.BadInput, match="worker-0 runs in this process"):
            run.kill("worker-0")
        moving(run).stop()
        assert run.stopped_by == "user"


def test_a_reused_process_number_is_not_killed():
    boot, pid, start = processes.this_process()
    processes.end_process((boot, pid, start - 1.0))
    processes.end_process((boot, 2**22 + 1, start))
    assert processes.this_process() == (boot, pid, start)
    assert threading.main_thread().is_alive()
