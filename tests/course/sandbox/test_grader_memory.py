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
import resource, sys
from tests.course.attacks import put
from tests.course.sharing import SharedAnswers, solution
from labkit import course
from labkit.course.sandbox.processes import ForkServer
ATTACKS = {
    "of all workers": put(worker="kept = []", after="while True:\\n    kept.append(gradient)\\n    gradient = gradient.of_all_workers(np.zeros(3 << 20), 1)"),
    "text": put(worker="while True: ctx.save({'a': '\\U0001F600' * 200_000})"),
    "states": put(worker="while True: ctx.save({'a': np.zeros(1 << 20)})"),
}
with ForkServer(True) as server:
    course.trial(SharedAnswers([solution(put(), X="strategy")], server).defined("q")["X"], workers=8, updates=8)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    made = SharedAnswers([solution(ATTACKS[sys.argv[1]], X="strategy")], server).defined("q")["X"]
    assert not course.trial(made, workers=8, updates=50).ok
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@pytest.mark.parametrize("attack", ["of all workers", "text", "states"])
def test_the_graders_memory_is_bounded(attack):
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", PLAY, attack], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": root}
    )
    assert not done.returncode, done.stderr
    assert int(done.stdout) < 600  # MB more than for honest roles: 256 held, and a frame or two in the making
