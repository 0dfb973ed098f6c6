"""`run.kill` sends SIGKILL only where it is allowed, and only to the process of the role."""

import threading

import pytest
from distributed import Client, LocalCluster

import labkit as lk
from labkit.engines.commands import COMMANDS, Executed, Restart, Stop, Thaw
from labkit.engines.dask import processes
from tests.dask.helpers import another_client, closes, endless, events, further, process_of, whole


def test_processes_of_others_are_killed_only_where_it_is_allowed(cluster):
    with another_client(cluster) as client:
        run = endless(lk.DaskCluster(client, workers=1))
        signals = {lk.Kill, Restart, lk.Freeze, Thaw}
        assert run.engine.supported_commands == set(COMMANDS.values()) - signals
        with pytest.raises(lk.BadInput, match=r"labkit did not start these processes.*may_kill=True"):
            run.kill("worker-0")
        for command in (Restart("worker-0"), lk.Freeze("worker-0"), Thaw("worker-0")):
            with pytest.raises(
                lk.BadInput, match=rf"{command.word}\('worker-0'\): labkit did not start these processes"
            ):
                run.execute(command)
        further(run).stop()
        assert run.engine.commands == [Executed(Stop("user", run.engine.commands[0].at))]
        assert not events(run, "killed")

        allowed = lk.DaskCluster(client, workers=1, may_kill=True, pace=0.005)
        run = endless(allowed)
        assert run.engine.supported_commands == set(COMMANDS.values())
        process = process_of(run, "server-0")
        run.kill("server-0")
        assert run.wait_for("lost", "server-0").reason == "was killed"
        process.wait()
        run.wait_for("restarted", "server-0")  # its nanny has started another one, or it has moved
        further(whole(run)).stop()
        closes(run)


@pytest.mark.slow
@pytest.mark.processes
def test_the_process_of_the_client_is_not_killed():
    options = {"n_workers": 3, "threads_per_worker": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(**options, protocol="tcp://", silence_logs=50) as local, Client(local) as client:
        run = endless(lk.DaskCluster(client, workers=1, may_kill=True))
        with pytest.raises(lk.BadInput, match="worker-0 runs in this process"):
            run.kill("worker-0")
        further(run).stop()
        assert run.stopped_by == "user"


def test_a_reused_process_number_is_not_killed():
    boot, pid, start = processes.this_process()
    processes.end_process((boot, pid, start - 1.0))
    processes.end_process((boot, 2**22 + 1, start))
    assert processes.this_process() == (boot, pid, start)
    assert threading.main_thread().is_alive()
