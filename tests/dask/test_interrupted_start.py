"""Ctrl-C at any instant of the first start of a program, and then the same statements again: they work."""

import os
import signal
import subprocess
import sys

import dask
import pytest

import labkit as lk
from tests.dask.helpers import MOONS, labkit_threads, path_of_labkit, usable

pytestmark = [pytest.mark.slow, pytest.mark.processes]

# Ctrl-C before the module with this number is imported. Most are imported by NumPy, Dask, pandas and cryptography, whose compiled
# modules cannot be imported again.
PROGRAM = """
import os, signal, sys

class CtrlC:
    def __init__(self, number):
        self.left = number

    def find_spec(self, name, path, target=None):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)

def start(**budget):
    import labkit as lk

    cluster = lk.DaskCluster(workers=1)
    return lk.train(lk.Problem("moons", hidden=(8,)), lk.AsyncPS(), cluster, lk.Budget(**budget))

if __name__ == "__main__":
    ctrl_c = CtrlC(int(sys.argv[1]))
    sys.meta_path.insert(0, ctrl_c)
    try:
        start(updates=10**9)
        print("not interrupted: there are", -ctrl_c.left, "modules more")
    except KeyboardInterrupt:
        print("interrupted", start(updates=20).wait().summary()["updates"])
"""
MODULES = [10, 50, 100, 300, 500, 700, 900, 1100, 1300]  # of 1400


@pytest.mark.sample(slow=3)
@pytest.mark.parametrize("number", MODULES)
def test_an_interrupted_import(number, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(script), str(number)], env=path_of_labkit(), capture_output=True, text=True, check=False
    )
    assert done.stdout == "interrupted 20\n", done.stderr


class CtrlC:
    """Ctrl-C when `number` functions of labkit have been called for the first time. `called`: their count."""

    def __init__(self, number):
        self.number, self._called = number, set()
        self._folder = os.path.dirname(lk.__file__)

    @property
    def called(self):
        return len(self._called)

    def profile(self, frame, event, argument):
        code = frame.f_code
        if event == "call" and code not in self._called and code.co_filename.startswith(self._folder):
            self._called.add(code)
            if self.called == self.number:
                signal.raise_signal(signal.SIGINT)

    def __enter__(self):
        sys.setprofile(self.profile)
        return self

    def __exit__(self, *error):
        sys.setprofile(None)


def test_an_interrupted_start():
    """At five instants each: the start of a cluster and a run, and of a run on a cluster that is open."""

    def start(cluster, number):
        with CtrlC(number) as ctrl_c:
            run = lk.train(MOONS, lk.AsyncPS(), cluster, lk.Budget(updates=10**9))
        run.stop()
        return ctrl_c.called

    before = (
        dask.config.get("distributed"),
        signal.getsignal(signal.SIGINT),
        signal.pthread_sigmask(signal.SIG_BLOCK, ()),
    )
    lk.DaskCluster(workers=1).open().close()  # what is called only in the first start of the program does not count
    with lk.DaskCluster(workers=1) as cluster:
        functions = [start(cluster, 0), start(cluster, 0)]
    for number in range(1, 6):
        with lk.DaskCluster(workers=1) as cluster:
            for count in functions:
                with pytest.raises(KeyboardInterrupt):
                    start(cluster, count * number // 8)
                assert not any(usable(cluster).engine.connection.usage.values())
                assert cluster.runs == set()
        assert labkit_threads() == []
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        assert (dask.config.get("distributed"), signal.getsignal(signal.SIGINT), mask) == before
