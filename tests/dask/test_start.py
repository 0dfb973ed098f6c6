"""Starts with processes that are slow, killed or stopped at each stage: a slow one is waited for, a lost one is replaced."""

import asyncio
import os
import queue
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Listener
from types import SimpleNamespace

import dask
import psutil
import pytest
from distributed.nanny import WorkerProcess

import labkit as lk
from labkit.engines.dask.client import supervisor
from labkit.engines.dask.cluster import dask_connection, nannies
from labkit.engines.dask.cluster.dask_connection import DaskConnection
from labkit.engines.dask.cluster.nannies import ProcessTable
from tests.dask.helpers import closes, usable

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere there is no fork server")
pytestmark = pytest.mark.processes
MOONS = lk.Problem("moons", hidden=(8,))

# A preload script of Dask workers. A process that is held is slow: it runs, but does not go on before it is released.
HOOKS = """
import os
from multiprocessing.connection import Client

def hold(stage):
    with Client({address!r}, authkey=b"labkit") as test:
        test.send((stage, os.getpid()))
        while not test.poll(0.02):
            pass

if "imported" not in globals():  # Dask executes this file twice
    imported = hold("import")

def dask_setup(worker):
    hold("connect")
"""


class Held(lk.AsyncPS):
    """A strategy whose roles are held when they start."""

    def __setstate__(self, state):
        self.__dict__.update(state)
        if "start_hooks" in sys.modules:
            sys.modules["start_hooks"].hold("role")


@pytest.fixture
def hold(tmp_path):
    """Hold each process that starts, in the stages import, connect and role, until `decide(stage, pid)` returns."""
    held = SimpleNamespace(decide=lambda stage, pid: None, processes=[])

    def serve(process):
        with process, suppress(EOFError):
            stage, pid = process.recv()
            with suppress(psutil.NoSuchProcess):
                held.processes.append((stage, psutil.Process(pid)))
            held.decide(stage, pid)

    def accept():
        with suppress(OSError):  # the listener is closed
            while True:
                threading.Thread(target=serve, args=(listener.accept(),), daemon=True).start()

    with Listener(("127.0.0.1", 0), backlog=16, authkey=b"labkit") as listener:
        hooks = tmp_path / "start_hooks.py"
        hooks.write_text(HOOKS.format(address=listener.address))
        threading.Thread(target=accept, daemon=True).start()
        with dask.config.set({"distributed.worker.preload": [str(hooks)]}):
            yield held


@pytest.fixture
def until(monkeypatch):
    """Wait until a condition on the progress of a start holds. It is evaluated after each change."""
    changes = queue.SimpleQueue()

    def observed(original):
        return lambda *arguments, **more: changes.put(original(*arguments, **more))

    for where, name in ((ProcessTable, "reached"), (ProcessTable, "add_worker"), (DaskConnection, "run_starts")):
        monkeypatch.setattr(where, name, observed(getattr(where, name)))

    def wait(condition):
        while not condition():
            changes.get()

    return wait


@pytest.fixture
def gate(monkeypatch):
    """An event, which is set: while it is not, no process starts."""
    original, opened = WorkerProcess.start, threading.Event()
    opened.set()

    async def start(self):
        await asyncio.to_thread(opened.wait)
        return await original(self)

    monkeypatch.setattr(WorkerProcess, "start", start)
    yield opened
    opened.set()


@pytest.fixture
def in_thread():
    with ThreadPoolExecutor() as pool:
        yield pool.submit


def all_gone(held):
    psutil.wait_procs([process for _, process in held.processes])


def pids(cluster):
    return {nanny.pid for nanny in cluster.client.cluster.workers.values()}


def notes(run):
    return [str(event) for event in run.trace.events if event.kind in ("note", "lost", "warning")]


# slow processes ---------------------------------------------------------------------------------------------------------


@linux
def test_a_start_waits_for_slow_processes_and_names_the_stage(hold, until, gate, in_thread):
    released = {stage: threading.Event() for stage in ("import", "connect", "role")}
    hold.decide = lambda stage, pid: released[stage].wait()
    gate.clear()
    with lk.DaskCluster(workers=1) as cluster:
        assert str(cluster.progress()) == "0 of 3 processes requested"
        start = in_thread(lk.train, MOONS, Held(), cluster, lk.Budget(updates=50))
        for text, release in {
            "3 of 3 processes requested": gate, "3 of 3 processes alive": released["import"],
            "3 of 3 processes imported": released["connect"], "0 of 3 roles up": released["role"],
        }.items():  # fmt: skip
            until(lambda text=text: str(cluster.progress()) == text)
            assert not start.done()
            assert not cluster.progress().up or cluster.is_open
            release.set()
        run = start.result()
        run.wait()
        assert (run.stopped_by, notes(run)) == ("updates", [])
        by_stage = [{process.pid for when, process in hold.processes if when == stage} for stage in released]
        assert by_stage == [pids(cluster)] * 3  # none was started again
        assert str(cluster.progress()) == "3 of 3 processes connected"


@pytest.mark.slow
def test_a_run_waits_for_processes_of_its_own_that_are_slow_to_come_back(started, gate):
    with lk.DaskCluster(workers=1, pace=0.01, heartbeat_timeout=60.0) as own:
        run = started(on=own.open(), budget=lk.Budget(updates=200))
        run.wait_for(lambda run: run.summary()["updates"] >= 40)
        gate.clear()
        for pid in pids(own):
            os.kill(pid, signal.SIGKILL)
        for role in ("worker-0", "server-0", "chief"):
            run.wait_for("lost", role)
        gate.set()
        run.wait()
        assert (run.stopped_by, len(run.trace.ending["lost_instances"])) == ("updates", 3)
        closes(run)


# lost processes ---------------------------------------------------------------------------------------------------------


@linux
def test_a_process_that_is_killed_at_any_stage_is_replaced(hold):
    killed = {}

    def decide(stage, pid):
        if killed.setdefault(stage, pid) == pid:
            os.kill(pid, signal.SIGKILL)

    hold.decide = decide
    with lk.DaskCluster(workers=1) as cluster:
        run = lk.train(MOONS, Held(), cluster, lk.Budget(updates=50)).wait()
        assert run.stopped_by == "updates"
        assert any("ended while the run was starting (signal 9, SIGKILL" in note for note in notes(run))
        closes(run)
        assert killed.keys() == {"import", "connect", "role"}
        assert not pids(cluster) & set(killed.values())
    all_gone(hold)


@pytest.mark.slow
@linux
def test_a_process_that_gives_no_sign_of_life_is_lost_and_the_error_names_its_stage(hold, monkeypatch):
    monkeypatch.setattr(nannies, "SILENT_S", 1.0)
    hold.decide = lambda stage, pid: os.kill(pid, signal.SIGSTOP)
    cluster = lk.DaskCluster()
    with pytest.raises(lk.ClusterError, match=r"process \d+: alive, not imported, no sign of life for 1 s"):
        cluster.open(1)
    assert {stage for stage, _ in hold.processes} == {"import"}
    all_gone(hold)


@pytest.mark.slow
@linux
def test_a_process_that_is_stopped_before_its_role_is_up_is_not_used(hold, monkeypatch):
    for module in (supervisor, dask_connection):
        monkeypatch.setattr(module, "SILENT_S", 3.0)
        monkeypatch.setattr(module, "ANSWER_S", 1.0)
    stopped = []

    def decide(stage, pid):
        if stage == "role" and not stopped:
            stopped.append(pid)
            os.kill(pid, signal.SIGSTOP)

    hold.decide = decide
    with lk.DaskCluster(workers=1) as cluster:
        run = lk.train(MOONS, Held(), cluster, lk.Budget(updates=50)).wait()
        assert any("connected, not up, no sign of life for 3 s. The start was retried" in note for note in notes(run))
        assert (run.stopped_by, len(pids(cluster))) == ("updates", 4)
        closes(run)
        os.kill(stopped[0], signal.SIGCONT)


@linux
def test_a_lost_process_is_restarted_by_forking_for_any_reason_that_dask_gives(cluster, until):
    """On an idle cluster, where only the nanny can start it."""
    before = pids(cluster.open())
    victim = min(before)
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "10ms"}):
        os.kill(victim, signal.SIGKILL)
        scheduler = cluster.client.cluster.scheduler
        until(lambda: len(pids(cluster) - {victim, None}) == len(scheduler.workers) == len(before))
        usable(cluster)
    assert len({psutil.Process(pid).ppid() for pid in pids(cluster)}) == 1


# starts that are ended --------------------------------------------------------------------------------------------------


@linux
def test_a_cluster_closed_during_its_start_raises_an_error_and_leaves_nothing(hold):
    cluster = lk.DaskCluster(workers=2)
    hold.decide = lambda stage, pid: (cluster.close(), cluster.close())
    with pytest.raises(lk.ClusterError, match="closed while its processes were starting"):
        cluster.open()
    cluster.close()
    all_gone(hold)


@pytest.mark.slow
@linux
def test_ctrl_c_ends_a_start_and_leaves_nothing(hold):
    cluster, main, sent = lk.DaskCluster(workers=2), threading.main_thread().ident, []

    def decide(stage, pid):
        if not sent:
            sent.append(signal.pthread_kill(main, signal.SIGINT))

    hold.decide = decide
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            cluster.open()
    finally:
        signal.signal(signal.SIGINT, before)
    all_gone(hold)
    cluster.close()


@pytest.mark.slow
@linux
def test_closing_during_a_restart_ends_all_processes_in_order(started, hold, capsys):
    own = lk.DaskCluster(workers=2, pace=0.01).open()
    run = started(on=own)
    run.wait_for(lambda run: run.summary()["updates"] >= 20)
    for pid in pids(own):
        os.kill(pid, signal.SIGKILL)
    run.wait_for("lost", "server-0")
    own.close()
    own.close()
    assert run.done
    all_gone(hold)
    assert "did not close" not in capsys.readouterr().err
