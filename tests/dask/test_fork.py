"""A program that forks during a run: the child exits at once; the run and its processes remain with the parent."""

import os
import subprocess
import sys
import textwrap

import pytest

from tests.dask.test_existing_clusters import ROOT

SCRIPT = """
import atexit, multiprocessing, os, sys, threading, time
import psutil
import labkit as lk
from tests.dask.helpers import eventually, moving

def leaves(fork, code):
    pid = fork()
    if pid == 0:
        return True
    status = eventually(lambda: [s for p, s in [os.waitpid(pid, os.WNOHANG)] if p], 180)  # the child is not stuck
    assert os.waitstatus_to_exitcode(status[0]) == code, status
    return False

def by_exit():
    "The child runs all handlers that are run when Python exits."
    if leaves(os.fork, 7):
        sys.exit(7)

def by_return(run):
    "The same after the child has looked at what it has, and drops it."
    if leaves(os.fork, 5):
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

def target():
    pass

def by_multiprocessing():
    child = multiprocessing.get_context("fork").Process(target=target)
    child.start()
    child.join(180)
    assert child.exitcode == 0, child.exitcode

if __name__ == "__main__":
    parent = os.getpid()
    cluster = lk.DaskCluster(workers=2, pace=0.01)
    run = lk.train(lk.Problem("moons", hidden=(8,)), lk.AsyncPS(), cluster, lk.Budget(seconds=200))
    moving(run)
    folder = run.engine.folder
    helpers = set(psutil.Process().children(recursive=True))
    by_exit()
    by_return(run)
    by_multiprocessing()
    moving(run, 20)
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
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    env = {**os.environ, "PYTHONPATH": ROOT}
    ended = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=180)
    assert (ended.returncode, ended.stdout.strip()) == (0, "the parent is through"), ended.stderr[-3000:]
    assert "Traceback" not in ended.stderr
