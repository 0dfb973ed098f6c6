"""Typical wrong answers lose the points of their part, and the hint names the misunderstanding; right answers pass in
every variant.
"""

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from labkit.course.authoring.assign import read_reference
from labkit.course.grading import grade as grading
from labkit.course.grading.grade import GradingKey
from labkit.course.grading.lms import Student
from labkit.course.grading.nbval_run import Harness
from labkit.course.grading.rebuild import rebuild, solutions_as_answers
from labkit.course.grading.submissions import Submission
from labkit.course.schema import parse
from labkit.course.variants import with_variant
from tests.course.mutants import in_variant
from tests.course.sharing import run_plainly
from tests.course.wrong_answers import WRONG, answer

REFERENCES = Path(__file__).parents[1] / "reference_notebooks"
ENOUGH = 10  # typical wrong answers to an assignment, at least


@pytest.mark.sample(1, slow=6)
@pytest.mark.parametrize("name", WRONG)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a softmax that overflows
def test_wrong_answers_lose_their_points_and_the_hint_says_why(name, monkeypatch):
    monkeypatch.setattr(grading, "run_notebook", lambda rebuilt, harness: run_plainly(rebuilt))
    reference = read_reference(next(REFERENCES.glob(f"{name}*")), None)
    right = solutions_as_answers(reference)
    cells = run_plainly(rebuild(reference, right, None)).cells
    key = GradingKey(reference, {cell.id: cells[cell.id].outputs for cell in reference.of_kind("test")}, right, "first")
    assert len(WRONG[name]) >= ENOUGH
    found = {}
    for what, cell, changes, lost, says in WRONG[name]:
        answers = replace(right, solutions=answer(what, changes, right.solutions, cell))
        result = grading.grade_one(key, Submission(what, Student(what), answers), Harness())
        missing = {score.question: score.points - score.earned for score in result.questions if not score.ok}
        hints = next(score.hints for score in result.questions if score.question == cell)
        if missing != {cell: lost} or not any(re.search(says, hint) for hint in hints):
            found[what] = missing, hints
    assert found == {}


@pytest.mark.sample(2, slow=6)
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
