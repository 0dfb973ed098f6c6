"""A batch: mistakes cost the points of their question, and submissions that cannot be run have a problem.

Rebuilt notebooks run in this process, and those of `WITH_NBVAL` with nbval.
"""

import copy
import os
import tempfile
import threading
from dataclasses import replace

import psutil
import pytest

from labkit.course.grading import grade as grading
from labkit.course.grading.nbval_run import Harness, Interrupted, run_notebook
from labkit.course.grading.rebuild import Rebuilt, rebuild, solutions_as_answers
from labkit.course.schema import parse
from tests.course import sharing
from tests.course import toy_reference as toy

REFERENCE, RELEASED = toy.REFERENCE, toy.RELEASED
NUMPY = """# q2 (keep this line)
import numpy as np
def both(x, y):
    return np.float64(helper(x) + helper(y))"""


def solved(**sources):
    return toy.solve(RELEASED, **sources)


def submission(raw, name="ada", base=REFERENCE):
    with tempfile.TemporaryDirectory() as folder:
        return sharing.submission(raw, base, folder, name)


def with_cells(raw, at, *made):
    """Cells put before the one at this place."""
    raw = copy.deepcopy(raw)
    raw["cells"][at:at] = made
    return raw


WRONG_Q1, WRONG_SIGN = (toy.RIGHT["q1"].replace("2 *", other) for other in ("3 *", "-2 *"))
WRONG_Q3 = "# q3 (keep this line)\nanswer = 8"
BATCH = {
    # honest
    "right": solved(),
    "helper cell, numpy's scalar, exploring": with_cells(
        solved(q2=NUMPY),
        3,
        toy.code("def helper(x):\n    return scaled(x)"),
        toy.code("%matplotlib inline\nplt.plot([1])"),
    ),
    # mistakes
    "untouched": RELEASED,
    "wrong q1": solved(q1=WRONG_Q1),
    "syntax": solved(q1="# q1 (keep this line)\ndef scaled(x:"),
    "deleted": {
        **solved(),
        "cells": [c for c in solved()["cells"] if c["metadata"].get("nbgrader", {}).get("grade_id") != "q2"],
    },
    "wrong q3": solved(q3=WRONG_Q3),
    "wrong sign, wrong q3": solved(q1=WRONG_SIGN, q3=WRONG_Q3),
    # not to be raised
    "edited tests": with_cells(solved(q3="answer = 8"), 0, toy.test("q3-test", "q3", 1, "print(7)")),
    "calls a later reference": solved(
        q1="# q1 (keep this line)\ndef scaled(x):\n    return both(x, 0)", q2=toy.RIGHT["q2"]
    ),
    "another variant": {**solved(), "metadata": {"labkit": {**RELEASED["metadata"]["labkit"], "variant": "abc"}}},
}


EXPECTED = {
    **{name: [4, 3, 1] for name in list(BATCH)[:2]},
    "untouched": [0, 0, 0],
    "wrong q1": [1, 3, 1],  # q2 depends on q1 and is graded with the reference's q1, too
    "syntax": [0, 3, 1],
    "deleted": [4, 0, 1],
    "wrong q3": [4, 3, 0],
    "wrong sign, wrong q3": [1, 3, 0],
    "edited tests": [4, 3, 0],
    "calls a later reference": [0, 3, 1],
}
WITH_NBVAL = (
    "helper cell, numpy's scalar, exploring",
    "untouched",
    "wrong q1",
    "wrong sign, wrong q3",
    "another variant",
)


def points(result):
    return [score.earned for score in result.questions if score.tests]


def run_batch(key, names):
    """Results by name."""
    seen = []
    batch = [submission(BATCH[name], name) for name in names]
    found = grading.grade_all(key, batch, Harness(), 2, lambda i, result: seen.append((i, result)))
    assert sorted(seen, key=lambda row: row[0]) == list(enumerate(found))
    assert [result.student.name for result in found] == list(names)
    return {result.student.name: result for result in found}


def test_a_mistake_costs_the_points_of_its_own_question_only(toy_key, here):
    graded = run_batch(toy_key, EXPECTED)
    assert {name: points(result) for name, result in graded.items()} == EXPECTED
    assert not any(result.problem for result in graded.values())


@pytest.fixture(scope="module")
def graded(toy_key):
    return run_batch(toy_key, WITH_NBVAL)


@pytest.mark.slow
class TestWithNbval:
    def test_points_are_those_without_nbval(self, graded):
        expected = EXPECTED | {"another variant": [4, 3, 1]}
        assert {name: points(result) for name, result in graded.items()} == {name: expected[name] for name in graded}

    def test_scores_with_reference_answers_are_flagged(self, graded):
        assert [mark.with_reference for mark in graded["wrong q1"].questions] == [False, True, False, False]
        assert not any(mark.with_reference for mark in graded["helper cell, numpy's scalar, exploring"].questions)

    def test_hints_come_from_the_tests(self, graded):
        wrong = graded["wrong sign, wrong q3"].questions
        assert wrong[0].hints == ["the sign is lost: did you square?"]
        assert wrong[2].hints == ["it printed '8' where '7' was expected"]

    def test_the_error_in_the_visible_part_is_the_hint(self, graded):
        (hint,) = graded["untouched"].questions[0].hints
        assert hint.startswith("NotImplementedError: your code (cell q1, line 4")

    def test_a_hidden_test_shows_only_the_kind_of_its_error(self, graded):
        mark = graded["wrong q1"].questions[0]
        assert mark.hints == ["a hidden check did not pass: it raised an error"]
        assert "secret" in mark.tests[0].detail  # it is shown to the instructor
        assert "\x1b" not in mark.tests[0].detail

    def test_another_variant_is_noted(self, graded):
        assert any("released as variant 'abc'" in note for note in graded["another variant"].notes)

    def test_all_stored_outputs_are_compared_and_nothing_remains(self, toy_key, tmp_path, monkeypatch):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        before = {process.pid for process in psutil.Process().children(recursive=True)}
        changed = copy.deepcopy(dict(toy_key.outputs))
        for name in ("q1-test", "q3-test"):
            changed[name][0]["text"] = "other\n"
        key = replace(toy_key, outputs=changed, reference_answers=None)
        result = grading.grade_one(key, submission(solved()), Harness())
        assert [t.id for mark in result.questions for t in mark.tests if not t.passed] == ["q1-test", "q3-test"]
        # the program's lock
        assert [path.name for path in tmp_path.rglob("*") if path.is_file()] in ([], [".labkit-temporary"])
        assert {process.pid for process in psutil.Process().children(recursive=True)} <= before


@pytest.mark.slow
class TestRuns:
    """The process that nbval runs in. No submitted code is run here."""

    @pytest.fixture
    def harness(self, tmp_path):
        (tmp_path / "answers_of_nothing.py").write_text(
            "class RemoteAnswers:\n    open = classmethod(lambda cls, path: cls())\n"
        )
        return Harness(answers_module="answers_of_nothing", paths=(str(tmp_path),))

    def run(self, harness, *sources):
        """A notebook with these locked cells."""
        cells = [toy.code(source, toy.nbgrader(f"c{i}", "locked")) for i, source in enumerate(sources)]
        base = parse(toy.notebook(cells), "m")
        return run_notebook(rebuild(base, solutions_as_answers(base), {}, harness.answers_module), harness)

    def test_user_configuration_is_not_read(self, harness, tmp_path, monkeypatch):
        trap = tmp_path / "trap"
        trap.mkdir()
        (trap / "conftest.py").write_text("raise SystemExit('trap')")
        (trap / "pytest.ini").write_text("[pytest]\naddopts = --trap")
        (trap / "sitecustomize.py").write_text("import os; os._exit(3)")
        startup = trap / "ipython" / "profile_default" / "startup"
        startup.mkdir(parents=True)
        (startup / "0.py").write_text("trapped = True")
        monkeypatch.chdir(trap)
        for name, value in {
            "PYTEST_ADDOPTS": "--trap",
            "PYTHONPATH": str(trap),
            "IPYTHONDIR": str(trap / "ipython"),
        }.items():
            monkeypatch.setenv(name, value)
        outcome = self.run(
            harness,
            "import os, sys\nassert 'trapped' not in globals()",
            "assert sorted(os.listdir()) == ['rebuilt.ipynb', 'sources.json']",
            "assert '' not in sys.path and os.getcwd() not in sys.path",
            "assert os.environ['PYTHONHASHSEED'] == '0'",
        )
        assert not outcome.broken
        assert all(cell.passed for cell in outcome.cells.values()), outcome

    def test_the_wall_time_limit_is_a_broken_run(self, harness):
        outcome = self.run(replace(harness, wall_seconds=0.5), "import threading\nthreading.Event().wait()")
        assert outcome.broken == "it was ended after 0.5 s"

    def test_a_cell_timeout_is_a_broken_run(self, harness):
        assert (
            "Timeout" in self.run(replace(harness, cell_seconds=1), "import threading\nthreading.Event().wait()").broken
        )

    def test_a_sandbox_that_does_not_start_is_a_broken_run(self, harness):
        assert "the sandbox did not start" in self.run(replace(harness, answers_module="nothing_like_it")).broken

    def test_stderr_is_not_compared(self, harness):
        cells = [
            toy.solution("q1", toy.Q3.replace("q3", "q1")),
            toy.test("t", "q1", 1, "import sys\nprint('x', file=sys.stderr)\nprint(7)"),
        ]
        base = parse(toy.notebook(cells), "m")
        outputs = {
            "t": [
                {"output_type": "stream", "name": "stderr", "text": "y"},
                {"output_type": "stream", "name": "stdout", "text": "7\n"},
            ]
        }
        made = rebuild(base, solutions_as_answers(base), outputs, harness.answers_module)
        cells = [cell for cell in made.notebook["cells"] if cell["metadata"]["labkit"]["kind"] != "solution"]
        assert run_notebook(Rebuilt({**made.notebook, "cells": cells}, made.sources), harness).cells["t"].passed

    def test_a_broken_run_is_repeated_alone_and_then_gets_no_points(self, harness):
        cells = [toy.solution("q1", toy.Q3.replace("q3", "q1")), toy.test("t", "q1", 1, "import os\nos._exit(0)")]
        base = parse(toy.notebook(cells), "m")
        raw = toy.notebook([toy.solution("q1", "# q1 (keep this line)\nanswer = 7")])
        (result,) = grading.grade_all(grading.GradingKey(base, {}), [submission(raw, base=base)], harness, 2)
        assert "broke twice" in result.problem
        assert "Kernel died" in result.problem
        assert result.earned == 0

    def test_an_interrupted_batch_ends_all_processes(self, harness, tmp_path):
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        told = (
            f"stream = open({str(fifo)!r}, 'w')\nprint(os.getpid(), file=stream, flush=True)\nthreading.Event().wait()"
        )
        test = toy.test("t", "q1", 1, f"import os, threading\n{told}")
        base = parse(toy.notebook([toy.solution("q1", toy.Q3.replace("q3", "q1")), test]), "m")
        raw = toy.notebook([toy.solution("q1", "# q1 (keep this line)\nanswer = 7")])
        kernels = []

        def stop_when_running():
            with fifo.open() as lines:
                kernels.extend(int(lines.readline()) for _ in range(2))
                kernels.extend(psutil.Process(pid).ppid() for pid in list(kernels))
            harness.stop.set()

        thread = threading.Thread(target=stop_when_running)
        thread.start()
        with pytest.raises(Interrupted):
            grading.grade_all(grading.GradingKey(base, {}), [submission(raw, base=base)] * 3, harness, 2)
        thread.join()
        assert len(kernels) == 4
        sharing.wait_for_ends(kernels)
