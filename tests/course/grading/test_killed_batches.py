"""After a SIGKILL of a command no process remains: each ends with its parent."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from labkit.course.authoring.release import release
from labkit.course.bundle import write_release
from labkit.course.sandbox.confine import confinement_problem
from labkit.course.schema import parse
from tests.course import toy_reference as toy
from tests.course.sharing import alive, wait_for_ends

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="there is no SIGKILL here")
LOOP = "# q1 (keep this line)\ndef scaled(x):\n    while True:\n        pass"


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
        [sys.executable, "-m", "labkit", *map(str, words)], env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    family = None
    try:
        while not family:  # a confined process can report nothing, so its processor time is looked at
            try:
                process.wait(0.02)
            except subprocess.TimeoutExpired:
                family = family_with_a_loop(process)
            else:
                pytest.fail(process.stdout.read().decode())
        process.kill()
        process.wait()
        assert len(family) >= 4  # pytest, the kernel, the fork server, a student's process
        wait_for_ends([each.pid for each in family])
    finally:
        process.kill()
        process.communicate()
        for each in family or ():
            if alive(each.pid):
                each.kill()


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
    try:
        assert line == "ready"
        parent.kill()
        parent.communicate()
        wait_for_ends([pid])
    finally:
        parent.kill()
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("how", ["signal", "watch"])
def test_a_process_whose_parent_has_ended_already_ends(how):
    parent, _, line = start(how, other=1)  # as if the parent's id had been reused
    parent.communicate()
    assert line == str(-signal.SIGKILL)
