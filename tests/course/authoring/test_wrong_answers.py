"""Typical wrong answers lose the points of their part, and the hint names the misunderstanding; right answers pass in
every variant.
"""

import itertools
import json
import re
from dataclasses import replace

import pytest

from labkit.course.grading import grade as grading
from labkit.course.grading.grade import GradingKey
from labkit.course.grading.lms import Student
from labkit.course.grading.nbval_run import Harness
from labkit.course.grading.rebuild import rebuild, solutions_as_answers
from labkit.course.grading.submissions import Submission
from labkit.course.schema import parse
from labkit.course.variants import with_variant
from tests.course.mutants import REFERENCES, drawn, in_variant
from tests.course.sharing import run_plainly
from tests.course.wrong_answers import QUOTIENTS, WRONG, answer, by_quotients, wrong_in

ENOUGH = 10  # typical wrong answers to an assignment, at least


VARIANTS = [(name, number) for name in WRONG for number, _ in enumerate(drawn(name))]

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a softmax that overflows


@pytest.fixture
def graded(monkeypatch):
    """A function that grades other solutions of a reference notebook, which run in this process."""
    monkeypatch.setattr(grading, "run_notebook", lambda rebuilt, harness: run_plainly(rebuilt))

    def of(reference):
        right = solutions_as_answers(reference)
        cells = run_plainly(rebuild(reference, right, None)).cells
        outputs = {cell.id: cells[cell.id].outputs for cell in reference.of_kind("test")}
        key = GradingKey(reference, outputs, right, "first")
        return right.solutions, lambda solutions: grading.grade_one(
            key, Submission("ada", Student("ada"), replace(right, solutions=solutions)), Harness()
        )

    return of


@pytest.mark.sample(0, slow=1)
@pytest.mark.parametrize(("name", "number"), VARIANTS)
def test_wrong_answers_lose_their_points_and_the_hint_says_why(name, number, graded):
    reference, values = list(drawn(name))[number]
    right, grade = graded(reference)
    wrong, found = wrong_in(name, values), {}
    assert len(wrong) >= ENOUGH
    for what, cell, changes, lost, says in wrong:
        result = grade(answer(what, changes, right, cell))
        missing = {score.question: score.points - score.earned for score in result.questions if not score.ok}
        hints = next(score.hints for score in result.questions if score.question == cell)
        allowed = lost if isinstance(lost, tuple) else (lost,)
        if missing not in [{cell: points} for points in allowed] or not any(re.search(says, hint) for hint in hints):
            found[what] = missing, hints
    assert found == {}


OF_GRADIENTS = {"q1-weights", "q1-inputs", "q2-backward", "q3-slope", "q4-network"}


@pytest.mark.sample(1, slow=3)
@pytest.mark.parametrize("number", range(len(list(drawn("01")))))
@pytest.mark.parametrize("name", QUOTIENTS)
def test_numeric_derivatives_are_no_gradients(name, number, graded):
    reference, _ = list(drawn("01"))[number]
    right, grade = graded(reference)
    result = grade(by_quotients(name, right))
    failed = {test.id: test.hint for score in result.questions for test in score.tests if not test.passed}
    assert set(failed) == OF_GRADIENTS
    assert name != "complex" or all("quotient" in hint for hint in failed.values())


@pytest.mark.sample(0, slow=3)
@pytest.mark.parametrize("name", WRONG)
def test_right_answers_pass_in_every_variant(name):
    """A hint computes with the answer: it must neither fail nor find a misunderstanding in a right one."""
    notebook = json.loads(next(REFERENCES.glob(f"{name}*")).read_text())
    variants = parse(notebook, name).variants
    for choices in itertools.product(*([choice["value"] for choice in each] for each in variants.values())):
        values = dict(zip(variants, choices, strict=True))
        reference = with_variant(parse(in_variant(notebook, values), name), None)
        cells = run_plainly(rebuild(reference, solutions_as_answers(reference), None)).cells
        assert {cell: result.message for cell, result in cells.items() if not result.passed} == {}, values
