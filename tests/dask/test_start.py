"""Lost or slow processes during the start of a cluster or a run, and during restarts: it continues or reports the reason."""

import os
import signal
import sys
import threading

import dask
import distributed
import psutil
import pytest

import labkit as lk
from labkit.engines.dask.client.supervisor import Supervisor
from tests.dask.helpers import closes, eventually, moving, passed, usable

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere there is no fork server")


def workers_of_this_process(but=()):
    """The processes that were forked by the fork server, of all clusters here."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        try:
            if process.ppid() != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                found.add(process)
        except psutil.NoSuchProcess:
            pass
    return found - set(but)


def pids(cluster):
    return {nanny.pid for nanny in cluster.client.cluster.workers.values()}


def in_thread(work):
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@pytest.fixture
def early():
    """Call a function as soon as there are new processes, in any state."""
    before = workers_of_this_process()

    def as_soon_as_there_are(count, act):
        def work():
            eventually(lambda: len(workers_of_this_process(before)) >= count)
            act(workers_of_this_process(before))

        return in_thread(work)

    as_soon_as_there_are.left = lambda: workers_of_this_process(before)
    return as_soon_as_there_are


# a cluster that starts ------------------------------------------------------------------------------------------------


@linux
def test_a_process_that_is_killed_while_it_starts_is_started_again(early):
    with lk.DaskCluster(workers=1) as cluster:
        killer = early(1, lambda found: min(found, key=lambda p: p.pid).kill())
        cluster.open()
        killer.join()
        usable(cluster)
    assert not early.left()


@linux
def test_a_cluster_closed_during_its_start_raises_an_error_and_leaves_nothing(early):
    cluster = lk.DaskCluster(workers=2)
    closer = early(1, lambda found: (cluster.close(), cluster.close()))
    with pytest.raises(lk.ClusterError, match="closed while its processes were starting"):
        cluster.open()
    closer.join()
    cluster.close()
    eventually(lambda: not early.left())


@linux
def test_ctrl_c_ends_a_start_and_leaves_nothing(early):
    cluster = lk.DaskCluster(workers=2)
    main, before = threading.main_thread().ident, signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        interrupter = early(1, lambda found: signal.pthread_kill(main, signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            cluster.open()
        interrupter.join()
    finally:
        signal.signal(signal.SIGINT, before)
    eventually(lambda: not early.left())
    cluster.close()


@linux
def test_a_lost_process_is_restarted_by_forking_for_any_reason_that_dask_gives(cluster):
    """On an idle cluster, where only the nanny can start it."""
    cluster.open()
    before = pids(cluster)
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "10ms"}):
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        made = cluster.client.cluster
        eventually(lambda: len(pids(cluster) - {victim, None}) == len(before))
        eventually(lambda: len(made.scheduler.workers) == len(before))
        passed(0.1)
    assert len({psutil.Process(pid).ppid() for pid in pids(cluster)}) == 1
    usable(cluster)


# a run that starts ----------------------------------------------------------------------------------------------------


@pytest.fixture
def at_the_first_role(monkeypatch):
    """Call a function on the process of the first role that is submitted, before it reports that it listens."""

    def at(act):
        original, done = Supervisor.submit, []

        def submit(self, role, *arguments, **more):
            if not done:
                done.append(role)
                address = self.where[role]
                act(self.client.run(os.getpid, workers=[address])[address])
            return original(self, role, *arguments, **more)

        monkeypatch.setattr(Supervisor, "submit", submit)
        return done

    return at


def test_a_run_is_started_over_when_a_process_is_killed_before_it_begins(cluster, started, at_the_first_role):
    (role,) = at_the_first_role(lambda pid: os.kill(pid, signal.SIGKILL)) or [None]
    run = started(on=cluster, budget=lk.Budget(updates=50))
    run.wait(180)
    assert run.stopped_by == "updates"
    assert any("ended while the run was starting. The start was retried" in str(m) for m in run.trace.events), role
    closes(run)
    eventually(lambda: not any(cluster._connection.usage.values()))


@pytest.mark.slow
def test_a_run_waits_for_a_process_that_is_slow_to_start_its_role(cluster, started, at_the_first_role):
    """Stopped for 8 s, as on a busy machine."""

    def stop(pid):
        os.kill(pid, signal.SIGSTOP)
        in_thread(lambda: (passed(8.0), os.kill(pid, signal.SIGCONT)))

    at_the_first_role(stop)
    run = started(on=cluster, budget=lk.Budget(updates=50))
    run.wait(180)
    assert not [m for m in run.trace.events if m.kind in ("note", "lost")]
    closes(run)


@pytest.mark.slow
def test_a_process_that_does_not_answer_is_not_used(cluster, started, at_the_first_role):
    frozen = []
    at_the_first_role(lambda pid: (frozen.append(pid), os.kill(pid, signal.SIGSTOP)))
    try:
        run = started(on=cluster, budget=lk.Budget(updates=50))
        run.wait(180)
        assert any("gave no sign of life for 10 s" in str(m) for m in run.trace.events)
        closes(run)
    finally:
        os.kill(frozen[0], signal.SIGCONT)


# all at once ----------------------------------------------------------------------------------------------------------


def test_all_processes_are_killed_from_outside_and_the_run_goes_on(started):
    with lk.DaskCluster(workers=2, pace=0.01, patience=60.0) as own:
        run = moving(started(on=own.open(), budget=lk.Budget(updates=200)), 40)
        for pid in pids(own):
            os.kill(pid, signal.SIGKILL)
        run.wait(180)
        assert run.stopped_by == "updates"
        assert len(run.trace.ending["lost_lives"]) == 4
        closes(run)


@pytest.mark.slow
def test_a_run_waits_for_processes_of_its_own_that_are_slow_to_come_back(started, monkeypatch):
    original = distributed.Nanny.instantiate

    async def slow(self):
        await __import__("asyncio").sleep(18.0)
        return await original(self)

    with lk.DaskCluster(workers=1, pace=0.01, patience=60.0) as own:
        run = moving(started(on=own.open(), budget=lk.Budget(updates=200)), 40)
        monkeypatch.setattr(distributed.Nanny, "instantiate", slow)
        for pid in pids(own):
            os.kill(pid, signal.SIGKILL)
        run.wait(180)
        assert run.stopped_by == "updates"
        closes(run)


@linux
def test_closing_during_a_restart_ends_all_processes_in_order(started, early, capsys):
    own = lk.DaskCluster(workers=2, pace=0.01).open()
    run = moving(started(on=own), 20)
    for pid in pids(own):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: any(m.kind == "lost" for m in run.trace.events))
    own.close()
    own.close()
    assert run.done
    assert not early.left()
    assert "did not close" not in capsys.readouterr().err
