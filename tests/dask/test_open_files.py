"""Starting a cluster of processes in a process with a low limit of open files."""

import os
import subprocess
import sys
import textwrap

import psutil
import pytest

from tests.dask.helpers import path_of_labkit

resource = pytest.importorskip("resource")
pytestmark = [pytest.mark.slow, pytest.mark.processes]
MARK = "LABKIT_TEST_FEW_FILES"  # in the environment of every process of that program
PROGRAM = """
    import resource

    import labkit as lk

    if __name__ == "__main__":
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        problem = lk.Problem("moons", hidden=(4,))
        lk.train(problem, lk.AsyncPS(), lk.DaskCluster(workers=4), lk.Budget(updates=5)).wait()
"""


def marked(value):
    """The processes that have inherited the mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == value:
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_sixty_four_open_files_are_refused_by_name_and_leave_no_process(tmp_path):
    script, value = tmp_path / "few.py", f"{os.getpid()}-{tmp_path.name}"
    script.write_text(textwrap.dedent(PROGRAM))
    env = {**path_of_labkit(), MARK: value}
    reported = subprocess.run([sys.executable, script], capture_output=True, text=True, env=env)
    assert reported.returncode == 1
    assert (
        reported.stderr.strip()
        .splitlines()[-1]
        .startswith("labkit.errors.BadInput: The limit of open files is 64 here, and starting 6 processes takes about")
    )
    assert "ulimit -n" in reported.stderr
    psutil.wait_procs(marked(value))
