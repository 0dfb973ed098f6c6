"""After a SIGKILL of a command no process remains: each ends with its parent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from labkit.course.authoring.release import release
from labkit.course.bundle import write_release
from labkit.course.sandbox.confine import confinement_problem
from labkit.course.schema import parse
from tests.course import toy_reference as toy

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="there is no SIGKILL here")
LIMIT = 120  # seconds; only a broken test waits that long
LOOP = "# q1 (keep this line)\ndef scaled(x):\n    while True:\n        pass"


def until(condition):
    """The first true value of `condition()`."""
    deadline = time.monotonic() + LIMIT
    while not (found := condition()):
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)
    return found


def command(process):
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def family_with_a_loop(process):
    """All descendants of `process`, once a student's process has used half a second; else None."""
    family = psutil.Process(process.pid).children(recursive=True)
    try:
        nurseries = [each for each in family if "sandbox.fork_server" in command(each)]
        students = [child for server in nurseries for child in server.children()]
        busy = any(sum(student.cpu_times()[:2]) > 0.5 for student in students)
    except psutil.Error:
        return None
    return family if busy else None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grade", "check"])
def test_a_killed_command_leaves_no_process(tmp_path, name):
    if name == "grade" and confinement_problem():
        pytest.skip(confinement_problem())
    raw = toy.notebook()
    if name == "grade":  # the reference notebook is graded first: its processes are those of a submission
        solved = toy.find(raw, "q1")
        solved["source"] = solved["source"].replace('return V["scale"] * x', "while True: x = x")
        assert "while True" in solved["source"]
        words = ["grade", toy.write(tmp_path, raw, "toy.ipynb"), "--reference", tmp_path / "toy.ipynb"]
    else:
        notebook = release(parse(raw, "toy"), "first")
        outputs = {cell.id: [] for cell in parse(notebook, "toy").of_kind("test")}
        write_release(tmp_path, notebook, outputs, {})
        toy.write(tmp_path, toy.solve(notebook, q1=LOOP), "toy.ipynb")
        words = ["check", tmp_path / "toy.ipynb"]
    scratch = tmp_path / "t"
    scratch.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "labkit.cli", *map(str, words)], env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    family = []
    try:
        family = until(
            lambda: family_with_a_loop(process) or (process.poll() is not None and process.stdout.read().decode())
        )
        assert isinstance(family, list), family
        process.kill()
        process.wait()
        assert len(family) >= 4  # pytest, the kernel, the fork server, a student's process
        until(lambda: not any(running(each) for each in family))
    finally:
        process.kill()
        process.communicate()
        for each in family if isinstance(family, list) else ():
            if running(each):
                each.kill()


def running(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


CHILD = """
import sys
if sys.argv[2] == "watch": sys.platform = "another"
from labkit.course.sandbox.parent_death import end_with_parent
end_with_parent(int(sys.argv[1]))
print("ready", flush=True)
while True: pass
"""
PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid() + int(sys.argv[3])), sys.argv[2]],
                         stdout=subprocess.PIPE, text=True)
print(child.pid, child.stdout.readline().strip() or child.wait(), flush=True)
child.wait()
"""


def start(how, other=0):
    """(a process, its child's process id, the result of the child)"""
    root = str(Path(__file__).parents[3])
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD, how, str(other)], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))},
    )  # fmt: skip
    pid, line = parent.stdout.readline().split()
    return parent, int(pid), line


@pytest.mark.parametrize("how", ["signal", "watch"])
def test_a_process_ends_with_its_parent(how):
    parent, pid, line = start(how)
    child = psutil.Process(pid)
    try:
        assert line == "ready"
        parent.kill()
        parent.communicate()
        until(lambda: not running(child))
    finally:
        parent.kill()
        if running(child):
            child.kill()


@pytest.mark.parametrize("how", ["signal", "watch"])
def test_a_process_whose_parent_has_ended_already_ends(how):
    parent, _, line = start(how, other=1)  # as if the parent's id had been reused
    parent.communicate()
    assert line == str(-signal.SIGKILL)
