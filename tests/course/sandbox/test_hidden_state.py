# ruff: noqa: E501  (a line of a submission stays a line)
"""Functions of an answer keep nothing of a hidden test until a visible test, whose errors are on the student's page."""

import numpy as np
import pytest

from labkit import course
from labkit.course.grading.nbval_run import Harness, run_notebook
from labkit.course.grading.rebuild import rebuild, solutions_as_answers
from labkit.course.sandbox.confine import confinement_problem
from labkit.course.schema import parse
from labkit.course.variants import with_variant
from tests.course import toy_reference as toy
from tests.course.sharing import run_cell, shared_answers, solution

pytestmark = pytest.mark.skipif(
    bool(confinement_problem()), reason=f"submitted code is confined on Linux only: {confinement_problem()}"
)

SECRET = 0.7319046
# where a function keeps its argument: (before, on a call of `keep(x)`, what `told()` raises)
PLACES = {
    "a list": ("SEEN = []", "SEEN.append(x)", "SEEN"),
    "a global name": ("SEEN = None", "global SEEN; SEEN = x", "SEEN"),
    "a default argument": ("def kept(x=None, SEEN=[]):\n    SEEN.append(x)\n    return SEEN", "kept(x)", "kept()"),
    "an attribute of the function": ("", "keep.seen = x", "keep.seen"),
    "a class": ("class Kept:\n    seen = []", "Kept.seen.append(x)", "Kept.seen"),
    "a module": ("", "np.seen = x", "np.seen"),
    "the built-in names": ("import builtins", "builtins.seen = x", "builtins.seen"),
    "the list of modules": ("import sys", "sys.modules['seen'] = x", "sys.modules['seen']"),
    "the environment": ("import os", "os.environ['SEEN'] = str(x)", "os.environ['SEEN']"),
    "a cache": ("import functools\n@functools.cache\ndef kept(): return []", "kept().append(x)", "kept()"),
    "a generator": ("def g():\n    seen = []\n    while True:\n        seen.append((yield seen))\nG = g(); next(G)", "G.send(x)", "next(G)"),
    "the state of random numbers": ("", "np.random.seed(int(x * 1e7))", "np.random.get_state()[1][0] / 1e7"),
    "an exception": ("ERROR = ValueError()", "ERROR.args = (x,)", "ERROR"),
    "the text of a file": ("import linecache", "linecache.cache['seen'] = (1, None, [str(x)], 'seen')", "linecache.cache['seen']"),
}  # fmt: skip
VISIBLE = "told()"
# how a test calls it
HIDDEN = {
    "a line": "### BEGIN HIDDEN TESTS\nkeep(SECRET)\n### END HIDDEN TESTS",
    "a line between visible ones": "x = 1\n### BEGIN HIDDEN TESTS\nx = SECRET\nkeep(x)\n### END HIDDEN TESTS\nx = 2",
    "two regions": "### BEGIN HIDDEN TESTS\npass\n### END HIDDEN TESTS\nkeep(1)\n### BEGIN HIDDEN TESTS\nkeep(SECRET)\n### END HIDDEN TESTS",
    "a region in a loop": "for x in (SECRET, SECRET):\n    ### BEGIN HIDDEN TESTS\n    keep(x)\n    ### END HIDDEN TESTS\n    pass",
    "a function of a hidden region": "### BEGIN HIDDEN TESTS\ndef again():\n    keep(SECRET)\n### END HIDDEN TESTS\nagain()",
    "a visible function, called in a hidden region": "def again(x):\n    return keep(x)\n### BEGIN HIDDEN TESTS\nagain(SECRET)\n### END HIDDEN TESTS",
    "a comprehension": "### BEGIN HIDDEN TESTS\n[keep(x) for x in [SECRET]]\n### END HIDDEN TESTS",
    "a function of labkit": "### BEGIN HIDDEN TESTS\ncourse.central_differences(keep, np.array([SECRET]))\n### END HIDDEN TESTS",
    "built-in functions": "### BEGIN HIDDEN TESTS\nsorted([SECRET], key=keep)\nlist(map(keep, [SECRET]))\n### END HIDDEN TESTS",
    "a hidden check that fails": "### BEGIN HIDDEN TESTS\nkeep(SECRET)\nraise ValueError\n### END HIDDEN TESTS",
}  # fmt: skip


def told(server, place, test):
    """The error of a visible test after a hidden one, and what it is if the same test is visible."""
    before, keep, what = PLACES[place]
    source = f"{before}\ndef keep(x):\n    {keep}\n    return 0.0\ndef told():\n    raise RuntimeError(repr({what}))\n"
    errors = []
    for hidden in (True, False):
        text = HIDDEN[test] if hidden else HIDDEN[test].replace("HIDDEN TESTS", "")
        with shared_answers([solution(source, keep="function", told="function")], server) as answers:
            names = {**answers.defined("q"), "SECRET": SECRET, "course": course, "np": np}
            for number, cell in enumerate((VISIBLE, text, VISIBLE)):
                result = run_cell(
                    {"source": cell, "id": f"<{place}, {test}, {number}, {hidden}>", "outputs": []}, names
                )
        errors.append(result.message)
    return errors


@pytest.mark.parametrize("place", PLACES)
def test_a_function_keeps_nothing_of_a_hidden_test(place, server):
    after_hidden, after_visible = told(server, place, "a line")
    assert str(SECRET)[:6] not in after_hidden
    assert str(SECRET)[:6] in after_visible  # as in a notebook: visible tests share one process


@pytest.mark.parametrize("test", HIDDEN)
def test_a_call_is_hidden_wherever_it_comes_from(test, server):
    after_hidden, after_visible = told(server, "a list", test)
    assert str(SECRET)[:6] not in after_hidden
    assert str(SECRET)[:6] in after_visible


def test_hidden_tests_share_a_process_as_visible_tests_do(server):
    source = "seen = []\ndef count():\n    seen.append(1)\n    return len(seen)"
    with shared_answers([solution(source, count="function")], server) as answers:
        names = answers.defined("q")
        for number, (line, want) in enumerate(
            (("visible", 1), ("hidden", 1), ("visible", 2), ("hidden", 2), ("hidden", 3))
        ):
            text = f"found = count()\n# {line}"
            text = f"### BEGIN HIDDEN TESTS\n{text}\n### END HIDDEN TESTS" if line == "hidden" else text
            run_cell({"source": text, "id": f"<shared {number}>", "outputs": []}, names)
            assert names["found"] == want


@pytest.mark.slow
def test_a_kernel_runs_hidden_tests_in_a_process_of_their_own():
    """The same with IPython, which tells the lines of its cells in its own way."""
    q1 = "# q1 (keep this line)\nSEEN = []\ndef scaled(x):\n    SEEN.append(x)\n    return x if len(SEEN) < 9 else SEEN"
    raw = toy.notebook()
    toy.find(raw, "q1-test")["source"] = "### BEGIN HIDDEN TESTS\nscaled(7319046)\n### END HIDDEN TESTS\nscaled(1)"
    toy.find(raw, "q1-more")["source"] = "raise ValueError([scaled(i) for i in range(9)])"
    reference = with_variant(parse(raw, "m"), None)
    answers = solutions_as_answers(reference)
    answers = type(answers)({**answers.solutions, "q1": q1}, variant=answers.variant)
    found = run_notebook(rebuild(reference, answers, None), Harness())
    assert not found.broken
    assert found.cells["q1-test"].passed
    assert "[1, 0, 1, 2" in found.cells["q1-more"].message
    assert "7319046" not in found.cells["q1-more"].message
