# ruff: noqa: E501  (a line of a submission stays a line)
"""The memory that hostile student processes can make the grader use is bounded."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.course.sandbox.confine import confinement_problem

pytestmark = pytest.mark.skipif(
    bool(confinement_problem()), reason=f"submitted code is confined on Linux only: {confinement_problem()}"
)

PLAY = """
import resource
from tests.course.attacks import put
from tests.course.sharing import shared_answers, solution
from labkit import course
from labkit.course.sandbox.processes import ForkServer
ATTACKS = {
    "of all workers": put(worker="kept = []", after="while True:\\n    kept.append(gradient)\\n    gradient = gradient.of_all_workers(np.zeros(3 << 20), 1)"),
    "text": put(worker="while True: ctx.save({'a': '\\U0001F600' * 200_000})"),
    "states": put(worker="while True: ctx.save({'a': np.zeros(1 << 20)})"),
}
with ForkServer(True) as server:
    course.trial(shared_answers([solution(put(), X="class")], server).defined("q")["X"], workers=8, updates=8)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name, source in ATTACKS.items():
        made = shared_answers([solution(source, X="class")], server).defined("q")["X"]
        assert not course.trial(made, workers=8, updates=50).ok, name
        used = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
        assert used < 600, (name, used)  # MB more than for honest roles: 256 held, and a frame or two in the making
"""


@pytest.mark.slow
def test_the_graders_memory_is_bounded():
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run([sys.executable, "-c", PLAY], capture_output=True, text=True, env=environment)
    assert not done.returncode, done.stderr
