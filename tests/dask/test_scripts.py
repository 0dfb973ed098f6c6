"""Ends of programs (exit, error, signal, fork): none of their processes remains."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import textwrap

import psutil
import pytest

import labkit as lk
from tests.dask.helpers import MOONS, another_client, nothing_left, path_of_labkit

pytestmark = [pytest.mark.slow, pytest.mark.processes]

HEAD = """
import labkit as lk

def start(cluster=None, budget=None):
    cluster = cluster or lk.DaskCluster(workers=1)
    return lk.train(lk.Problem("moons", hidden=(8,)), lk.AsyncPS(), cluster, budget or lk.Budget(updates=10**9))
"""
MAIN = """
if __name__ == "__main__":
"""


class Program:
    """A script in a separate process group, and its descendants."""

    def __init__(self, folder, body, *, guarded=True, head=HEAD):
        script = folder / "script.py"
        body = textwrap.dedent(body).strip("\n")
        script.write_text(head + (MAIN + textwrap.indent(body, "    ") if guarded else "\n" + body) + "\n")
        self.marker = f"LABKIT_TEST_{os.getpid()}_{folder.name}"
        env = {**path_of_labkit(), self.marker: "1", "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(script)], env=env, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.children = []

    def until(self, word):
        """Read until the script prints `word`; then list its processes."""
        for line in self.process.stdout:
            if word in line:
                break
        else:
            raise AssertionError(self.process.stderr.read())
        self.children = psutil.Process(self.process.pid).children(recursive=True)
        return self

    def end(self):
        """Wait until it and all of its processes have ended: (exit code, standard output, standard error)."""
        out, err = self.process.communicate()
        psutil.wait_procs({*self.children, *self.marked()})
        return self.process.returncode, out, err

    def marked(self):
        """The processes that have inherited the mark."""
        for process in psutil.process_iter():
            try:
                if self.marker in process.environ():
                    yield process
            except (psutil.Error, OSError):
                continue


def test_the_ledger_balances_after_ctrl_c_in_a_with_block(tmp_path):
    """Ctrl-C in a terminal reaches the whole group."""
    program = Program(tmp_path, """
        with lk.DaskCluster(workers=1) as cluster:
            run = start(cluster)
            wait = run.engine.wait
            run.engine.wait = lambda timeout: (print("up", flush=True), wait(timeout))  # said when it is being waited for
            try:
                run.wait()
            except KeyboardInterrupt:
                print(run.stopped_by, run.summary().book["closes"], flush=True)
        raise KeyboardInterrupt
    """).until("up")  # fmt: skip
    os.killpg(program.process.pid, signal.SIGINT)
    code, out, err = program.end()
    assert (code != 0, out.split()) == (True, ["interrupted", "True"])
    assert err.count("Traceback (most recent call last)") == 1, err
    assert err.strip().endswith("KeyboardInterrupt"), err


def test_interrupted_while_starting(tmp_path):
    program = Program(tmp_path, """
        from labkit.engines.dask.cluster.nannies import Nanny
        begin = Nanny.__init__

        def announced(nanny, *arguments, **options):
            print("up", flush=True)
            begin(nanny, *arguments, **options)

        Nanny.__init__ = announced
        start().wait()
    """).until("up")  # fmt: skip
    os.killpg(program.process.pid, signal.SIGINT)
    code, _, err = program.end()
    assert code != 0
    assert err.count("Traceback (most recent call last)") <= 2, err


# What the processes of a killed program are doing: a role is frozen or cut off, a run is paused, a cluster has no run, a process
# never gives another thread the interpreter lock.
STATES = """
    frozen = start(lk.DaskCluster(workers=2))
    frozen.freeze("worker-1").cut("worker-0")
    paused = start(lk.DaskCluster(workers=1, pace=1000.0)).pause()
    idle = lk.DaskCluster(workers=1).open()
    os.mkfifo(fifo)
    busy = idle.client.submit(compute, fifo)
    open(fifo).close()
    print("up", flush=True)
    signal.pause()
"""
COMPUTE = """
import os, re, signal

def compute(fifo):
    open(fifo, "w").close()
    re.match("(a+)+b", "a" * 64)
"""


@pytest.mark.parametrize("stopped", [False, True], ids=["as they are", "stopped by a signal"])
def test_no_process_survives_a_killed_program(tmp_path, stopped):
    """Whatever its processes are doing: the events are their ends, which the kernel reports."""
    program = Program(
        tmp_path, f"fifo = {str(tmp_path / 'fifo')!r}\n" + textwrap.dedent(STATES), head=HEAD + COMPUTE
    ).until("up")
    workers = [child for child in program.children if child.ppid() != program.process.pid]
    assert len(workers) >= 10  # more if the frozen role and the one that is cut off were restarted meanwhile
    if stopped:
        for worker in workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.suspend()
    program.process.kill()
    program.end()


def test_a_script_without_a_main_guard_is_refused(tmp_path):
    code, _, err = Program(tmp_path, "start().wait()\n", guarded=False).end()
    assert code == 1
    last = err.strip().splitlines()[-1]
    assert 'script.py:8: a script that starts processes must do so under `if __name__ == "__main__":`' in last
    assert err.count("Traceback") == 1


# {how a program ends: (its statements, exit code, last line on standard error)}. It closes nothing.
ENDS = {
    "normally, with a run that is over": ("run = start(budget=lk.Budget(updates=50)).wait()", 0, ""),
    "by SystemExit": ("run = start(); raise SystemExit(7)", 7, ""),
    "by an error": ("run = start(); raise ValueError('mine')", 1, "ValueError: mine"),
    "by Ctrl-C": ("run = start(); signal.raise_signal(signal.SIGINT)", -signal.SIGINT, "KeyboardInterrupt"),
    "with a closed cluster, and one on another": (
        "a, b = both(); b.close(); run = start(lk.DaskCluster(a.client, workers=1, may_kill=True))",
        0,
        "",
    ),
    "with clusters that were collected": ("both(); gc.collect(); sys.exit(len(children()))", 0, ""),
    "with a cluster of Dask": ("run = start(lk.DaskCluster(of_dask(), workers=1))", 0, ""),
    "with a lab": ("lab = lk.Lab('moons', lk.AsyncPS(), lk.DaskCluster(workers=1)).run()", 0, ""),
}
OPEN = """
import gc, psutil, signal, sys

def children():
    return [p for p in psutil.Process().children(recursive=True) if "spawn_main" in " ".join(p.cmdline())]

def both():
    a, b = lk.DaskCluster(workers=1).open(), lk.DaskCluster(workers=1).open()
    start(a), start(b)
    return a, b

def of_dask():
    from distributed import Client, LocalCluster
    return Client(LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address="127.0.0.1:0"))
"""


@pytest.mark.sample(slow=4)
@pytest.mark.parametrize("way", ENDS)
def test_the_end_of_a_program_is_quiet_and_closes_its_clusters(tmp_path, way):
    body, expected, last = ENDS[way]
    code, out, err = Program(tmp_path, body, head=HEAD + OPEN).end()
    assert (code, out, err.strip().rpartition("\n")[2]) == (expected, "", last), err
    assert err.count("Traceback (most recent call last)") == bool(last), err
    assert "distributed" not in err


def test_a_killed_script_ends_its_roles_on_an_existing_cluster(tmp_path, cluster):
    """The roles run in processes that continue: the roles end without a request, and the process that was frozen is thawed."""
    with another_client(cluster) as client:
        program = Program(tmp_path, f"""
            import pickle
            from distributed import Client
            security = pickle.loads({pickle.dumps(client.security)!r})
            client = Client({client.scheduler.address!r}, security=security, set_as_default=False)
            run = start(lk.DaskCluster(client, workers=1, may_kill=True))
            run.freeze("worker-0")
            print("up", flush=True)
            run.wait()
        """).until("up")  # fmt: skip
        program.process.kill()
        program.process.wait()
        nothing_left(client)
        lk.train(MOONS, lk.AsyncPS(), lk.DaskCluster(client, workers=1), lk.Budget(updates=20)).wait()


def test_a_program_that_fails_while_a_sweep_waits_for_an_existing_cluster_ends_quietly(tmp_path, cluster):
    """The tasks end when Python starts no work on other threads any more."""
    with another_client(cluster) as client:
        program = Program(tmp_path, f"""
            import atexit, pickle, threading
            from distributed import Client
            security = pickle.loads({pickle.dumps(client.security)!r})
            client = Client({client.scheduler.address!r}, security=security, set_as_default=False)
            begun = threading.Event()

            def first(*result):
                if not begun.is_set():
                    client.loop.add_callback(threading.main_thread().join)  # until Python ends
                    begun.set()

            async def all_tasks_end():
                for state in list(client.futures.values()):
                    await state.wait()

            def sweep():
                alike = lk.SimulatedCluster(workers=2)
                lk.sweep("moons", "async-ps", alike, lk.Budget(updates=50), 20, client, on_result=first)

            threading.Thread(target=sweep, daemon=True).start()
            begun.wait()
            atexit.register(client.sync, all_tasks_end)
            raise ValueError("mine")
        """)  # fmt: skip
        code, _, err = program.end()
    assert (code, err.count("Traceback (most recent call last)"), err.strip().rpartition("\n")[2]) == (
        1,
        1,
        "ValueError: mine",
    ), err


# fork -----------------------------------------------------------------------------------------------------------------

FORKS = """
    import atexit, multiprocessing, os, sys
    import psutil

    def leaves(code):
        pid = os.fork()
        if pid == 0:
            return True
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == code, status
        return False

    def by_exit():
        "The child runs all handlers that are run when Python exits."
        if leaves(7):
            sys.exit(7)

    def by_return(run):
        "The same after the child has looked at what it has, and drops it."
        if leaves(5):
            assert run.done and isinstance(run.engine.error, lk.ClusterError)
            for refused in (run.wait, lambda: run.set(learning_rate=0.1), lambda: run.kill("worker-0"),
                            lambda: lk.train("moons", lk.AsyncPS(), cluster, lk.Budget(updates=1))):
                try:
                    refused()
                except lk.LabkitError as error:
                    assert str(parent) in str(error) or "is over" in str(error), error
                else:
                    os._exit(9)
            run.stop(), run.pause(), run.resume(), run.step(), run.summary(), cluster.close()
            atexit.register(lambda: os.path.isdir(folder) or os._exit(8))  # the run's states are still there
            sys.exit(5)

    def further(run, more):
        goal = run.summary()["updates"] + more
        run.wait_for(lambda run: run.summary()["updates"] >= goal)

    parent = os.getpid()
    cluster = lk.DaskCluster(workers=2, pace=0.01)
    run = start(cluster)
    further(run, 5)
    folder = run.engine.folder
    helpers = set(psutil.Process().children(recursive=True))
    by_exit()
    by_return(run)
    child = multiprocessing.get_context("fork").Process(target=os.getpid)
    child.start()
    child.join()
    assert child.exitcode == 0, child.exitcode
    further(run, 20)
    assert not [m for m in run.trace.events if m.kind in ("lost", "killed", "joined", "restarted")]
    assert helpers <= set(psutil.Process().children(recursive=True))  # no process was ended
    assert os.path.isdir(folder)
    run.stop()
    assert run.stopped_by == "user" and run.summary().book["closes"]
    cluster.close()
    print("the parent is through")
"""


@pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="this system does not fork")
def test_a_forked_child_exits_without_changing_the_run(tmp_path):
    """The run and its processes remain with the parent."""
    code, out, err = Program(tmp_path, FORKS).end()
    assert (code, out.strip()) == (0, "the parent is through"), err[-3000:]
    assert "Traceback" not in err
