"""Ends of programs (exit, error, signal): none of their processes remains."""

import os
import signal
import subprocess
import sys
import textwrap

import psutil
import pytest
from distributed import Client

import labkit as lk
from tests.dask.helpers import eventually, plugins
from tests.dask.test_existing_clusters import ROOT, scheduler_and_workers

pytestmark = pytest.mark.slow

HEAD = """
import labkit as lk

def start(cluster=None, budget=None):
    cluster = cluster or lk.DaskCluster(workers=1)
    return lk.train(lk.Problem("moons", hidden=(8,)), lk.AsyncPS(), cluster, budget or lk.Budget(seconds=60))
"""
MAIN = """
if __name__ == "__main__":
"""


class Program:
    """A script in a separate process group, and its descendants."""

    def __init__(self, folder, body, *, guarded=True, arguments=()):
        script = folder / "script.py"
        body = textwrap.dedent(body).strip("\n")
        script.write_text(HEAD + (MAIN + textwrap.indent(body, "    ") if guarded else "\n" + body) + "\n")
        self.marker = f"LABKIT_TEST_{os.getpid()}_{folder.name}"
        env = {**os.environ, "PYTHONPATH": ROOT, self.marker: "1", "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(script), *arguments], env=env, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.children: set[psutil.Process] = set()

    def until(self, word):
        """Read until the script prints `word`; then list its processes."""
        for line in self.process.stdout:
            if word in line:
                break
        else:
            raise AssertionError(self.process.stderr.read())
        self.children = set(psutil.Process(self.process.pid).children(recursive=True))
        assert self.children
        return self

    def end(self, limit=15.0):
        """(exit code, standard output, standard error)"""
        out, err = self.process.communicate(timeout=limit)
        return self.process.returncode, out, err

    def no_process_is_left(self, limit=10.0):
        eventually(lambda: not any(self._alive(p) for p in self.children | set(self._marked())), limit)

    def _marked(self):
        for process in psutil.process_iter():
            try:
                if self.marker in process.environ():
                    yield process
            except (psutil.Error, OSError):
                continue

    @staticmethod
    def _alive(process):
        try:
            return process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


def test_ctrl_c_stops_the_run_of_a_script(tmp_path):
    """Ctrl-C in a terminal reaches the whole group."""
    program = Program(tmp_path, """
        run = start()
        print("up", flush=True)
        run.wait()
    """).until("up")  # fmt: skip
    os.killpg(program.process.pid, signal.SIGINT)
    code, _, err = program.end()
    assert code != 0
    assert err.count("Traceback (most recent call last)") <= 1, err
    assert err.strip().endswith("KeyboardInterrupt"), err
    assert len(err.splitlines()) < 25, err
    program.no_process_is_left()


def test_the_ledger_balances_after_an_interrupt_in_a_with_block(tmp_path):
    program = Program(tmp_path, """
        with lk.DaskCluster(workers=1) as cluster:
            run = start(cluster)
            wait = run.engine.wait
            run.engine.wait = lambda timeout: (print("up", flush=True), wait(timeout))  # said when it is being waited for
            try:
                run.wait()
            except KeyboardInterrupt:
                print(run.stopped_by, run.summary().book["closes"], flush=True)
    """).until("up")  # fmt: skip
    os.killpg(program.process.pid, signal.SIGINT)
    code, out, err = program.end()
    assert (code, out.split(), err) == (0, ["interrupted", "True"], "")
    program.no_process_is_left()


def test_interrupted_while_starting(tmp_path):
    program = Program(tmp_path, """
        print("up", flush=True)
        start().wait()
    """)  # fmt: skip
    program.process.stdout.readline()
    eventually(lambda: len(list(program._marked())) >= 2)
    os.killpg(program.process.pid, signal.SIGINT)
    code, _, err = program.end(20)
    assert code != 0
    assert err.count("Traceback (most recent call last)") <= 2, err
    program.no_process_is_left()


def test_a_killed_script_leaves_no_process(tmp_path):
    program = Program(tmp_path, """
        run = start()
        print("up", flush=True)
        run.wait()
    """).until("up")  # fmt: skip
    program.process.kill()
    program.end()
    program.no_process_is_left(15)


def test_a_script_without_a_main_guard_is_refused(tmp_path):
    program = Program(tmp_path, "start().wait()\n", guarded=False)
    code, _, err = program.end()
    assert code == 1
    last = err.strip().splitlines()[-1]
    assert 'script.py:8: a script that starts processes must do so under `if __name__ == "__main__":`' in last
    assert err.count("Traceback") == 1
    program.no_process_is_left()


@pytest.mark.parametrize("waits", [True, False], ids=["after the run", "during the run"])
def test_the_end_of_the_program_closes(tmp_path, waits):
    program = Program(tmp_path, f"""
        run = start(budget=lk.Budget({"updates=50" if waits else "seconds=60"}))
        {"run.wait()" if waits else ""}
        print("up", flush=True)
    """).until("up")  # fmt: skip
    code, _, err = program.end()
    assert (code, err) == (0, "")
    program.no_process_is_left()


def test_an_error_in_the_program_closes(tmp_path):
    program = Program(tmp_path, """
        run = start()
        print("up", flush=True)
        raise SystemExit(7)
    """).until("up")  # fmt: skip
    code, _, err = program.end()
    assert (code, err) == (7, "")
    program.no_process_is_left()


def test_forgetting_a_cluster_closes_it(tmp_path):
    program = Program(tmp_path, """
        import gc, psutil
        run = start(budget=lk.Budget(updates=50)).wait()
        print("up", flush=True)
        del run
        gc.collect()
        left = [p for p in psutil.Process().children(recursive=True) if "spawn_main" in " ".join(p.cmdline())]
        print("left", len(left), flush=True)
    """).until("up")  # fmt: skip
    code, out, err = program.end()
    assert (code, out.split(), err) == (0, ["left", "0"], "")
    program.no_process_is_left()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_script_ends_its_roles_on_an_existing_cluster(tmp_path, how):
    """The roles run in processes that continue: the roles end without a request."""
    with scheduler_and_workers(tmp_path, 3) as (address, _), Client(address, set_as_default=False) as client:
        program = Program(tmp_path, f"""
            run = start(lk.DaskCluster("{address}", workers=1))
            print("up", flush=True)
            run.wait()
        """)  # fmt: skip
        for line in program.process.stdout:
            if "up" in line:
                break
        assert len(plugins(client)) == 3
        program.process.send_signal(how)
        program.end()
        eventually(lambda: not plugins(client), 180)
        threads = client.run(lambda: [t.name for t in __import__("threading").enumerate()])
        assert threads
        lk.train(lk.Problem("moons"), lk.AsyncPS(), lk.DaskCluster(client, workers=1), lk.Budget(updates=20)).wait(180)
        eventually(lambda: client.run(lambda dask_worker: len(dask_worker.state.tasks)) and not any(
            client.run(lambda dask_worker: len(dask_worker.state.tasks)).values()))  # fmt: skip
