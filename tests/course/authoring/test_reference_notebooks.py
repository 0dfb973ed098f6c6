"""The reference notebooks: full points for right answers in every tested variant, and none for unchanged answers.

Each reference notebook runs once with nbval. Variants are graded by the same code with the rebuilt cells run in
this process, which saves a kernel each.
"""

import json
import tempfile
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path

import pytest

from labkit.course.authoring import assign as assigning
from labkit.course.authoring.release import points_by_question, release
from labkit.course.grading import grade as grading
from labkit.course.grading.nbval_run import Harness, run_notebook
from labkit.course.grading.rebuild import rebuild, solutions_as_answers
from labkit.course.schema import parse
from labkit.course.variants import digest
from tests.course.sharing import run_here, submission
from tests.course.wrong_answers import WRONG

REFERENCES = sorted((Path(__file__).parents[1] / "reference_notebooks").glob("*.ipynb"))
ASSIGNMENTS = Path(__file__).parents[3] / "notebooks" / "assignments"
SEEDS = ("monday", "tuesday")
HARNESS = Harness()

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def courses(server):
    """Courses by the number of the reference notebook: the reference is run once for each."""
    return cache(lambda name: Course.of(name, server))


@dataclass
class Course:
    """A reference notebook with its choices, its grading key, and the students' version."""

    reference: object
    key: object
    released: dict

    @classmethod
    def of(cls, name, server, seed=None):
        reference = assigning.read_reference(next(p for p in REFERENCES if p.stem.startswith(name)), seed)
        answers = solutions_as_answers(reference)
        outcome = run_here(rebuild(reference, answers, None), server)
        assert {name: cell.message for name, cell in outcome.cells.items() if not cell.passed} == {}
        outputs = {cell.id: outcome.cells[cell.id].outputs for cell in reference.of_kind("test")}
        key = grading.GradingKey(reference, outputs, answers, digest(reference, seed))
        return cls(reference, key, release(reference, digest(reference, seed)))

    def grade(self, answers):
        """Points by question. `answers`: grade_id -> source; the reference notebook's V is a helper cell of the student's."""
        cells = [dict(cell) for cell in self.released["cells"]]
        for cell in cells:
            cell["source"] = answers.get(cell["metadata"].get("nbgrader", {}).get("grade_id"), cell["source"])
        helper = {
            "cell_type": "code",
            "metadata": {},
            "source": solutions_as_answers(self.reference).variant + "  # mine",
        }
        raw = {**self.released, "cells": [helper, *cells]}
        with tempfile.TemporaryDirectory() as folder:
            return grading.grade_one(self.key, submission(raw, self.reference, folder), HARNESS)

    def right(self):
        return solutions_as_answers(self.reference)


def earned(result):
    return {score.question: score.earned for score in result.questions if score.tests}


def full(reference):
    return {question: row["points"] for question, row in points_by_question(reference).items() if row["points"]}


def test_every_reference_notebook_has_typical_wrong_answers():
    assert [path.name[:2] for path in REFERENCES] == sorted(WRONG)


@pytest.mark.sample(slow=3)
@pytest.mark.parametrize("path", REFERENCES, ids=lambda path: path.stem)
def test_a_reference_notebook_passes_its_tests_with_nbval(path, courses):
    """nbval compares the outputs with those of another run."""
    course = courses(path.stem[:2])
    outcome = run_notebook(rebuild(course.reference, course.right(), course.key.outputs), HARNESS)
    assert not outcome.broken
    assert {name: cell.message for name, cell in outcome.cells.items() if not cell.passed} == {}


@pytest.mark.parametrize("path", REFERENCES, ids=lambda path: path.stem)
def test_the_release_of_a_reference_notebook_is_the_assignment(path, courses, server):
    """The answers pass the visible tests with the same outputs, and notebook and bundle are those of `notebooks/assignments`."""
    course = courses(path.stem[:2])
    base = parse(course.released, "released")
    visible = run_here(rebuild(base, course.right(), None), server)
    assert {name: cell.message for name, cell in visible.cells.items() if not cell.passed} == {}
    outputs = {cell.id: visible.cells[cell.id].outputs for cell in base.of_kind("test")}
    stored = json.loads((ASSIGNMENTS / path.with_suffix(".bundle.json").name).read_text())
    assert stored["outputs"] == outputs
    assert stored["notebook"] == course.released
    assert json.loads((ASSIGNMENTS / path.name).read_text()) == stored["notebook"]


@pytest.mark.processes
@pytest.mark.parametrize("path", REFERENCES, ids=lambda path: path.stem)
def test_cells_for_the_live_cluster_run_with_the_answers(path):
    reference = assigning.read_reference(path, None)
    names = {"__name__": "notebook"}
    live = 0
    for cell in reference.cells:
        if cell.kind in ("variant", "given", "locked", "solution", "live"):
            source = cell.source.replace("lk.Budget(seconds=5)", "lk.Budget(seconds=1)")
            exec(compile(source, f"<{cell.number}>", "exec"), names)
            live += source != cell.source
    assert live


@pytest.mark.sample(0, slow=1)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", [path.stem for path in REFERENCES])
def test_correct_answers_get_full_points_in_a_drawn_variant(name, seed, server):
    course = Course.of(name, server, seed)  # raises if the reference does not get full marks
    visible = run_here(rebuild(parse(course.released, "released"), course.right(), None), server)
    assert {name: cell.message for name, cell in visible.cells.items() if not cell.passed} == {}


@pytest.mark.parametrize("path", REFERENCES, ids=lambda path: path.stem)
def test_variants_are_used_in_solutions_tests_and_texts(path):
    reference = parse(json.loads(path.read_text()), path.name)
    choices = [len(variant) for variant in reference.variants.values()]
    assert len(choices) >= 2
    assert prod(choices) >= 4
    written = "".join(cell.source for cell in reference.of_kind("solution", "test"))
    assert all(f'V["{key}"]' in written for key in reference.variants)
    texts = "".join(cell.source for cell in reference.of_kind("text"))
    assert all(f"{{{{{key}}}}}" in texts for key in reference.variants)  # and the hint is shown to the student


@pytest.mark.parametrize("name", [path.stem for path in REFERENCES])
def test_unsolved_questions_get_no_points(name, here, courses):
    course = courses(name[:2])
    result = course.grade({})
    assert not result.problem
    assert set(earned(result).values()) == {0}
    last = course.reference.of_kind("solution")[-1]
    only = course.grade({last.id: last.source})  # graded with the reference's answers to the questions before it
    expected = dict.fromkeys(full(course.reference), 0) | {last.question: full(course.reference)[last.question]}
    assert earned(only) == expected


PULL_AFTER_PUSH = (  # the server answers pulls, and keeps those that come before the step is made
    ("pushes, workers = [],", "asked, begun, pushes, workers = [], False, [],"),
    ("ctx.send(request.sender, shard.weights())\n                continue", "asked.append(request.sender)"),
    ("pushes.append(request)", "else:\n                pushes.append(request)"),
    ("            if len(pushes) ==",
     "            if not begun and len(asked) == workers:\n                begun = True\n"
     "                while asked:\n                    ctx.send(asked.pop(), shard.weights())\n"
     "            if len(asked) == workers and len(pushes) =="),
    ('for worker in ctx.peers("worker"):\n                    ctx.send(worker, shard',
     "while asked:\n                    ctx.send(asked.pop(), shard"),
    ("weights = await lk.push_pull(ctx, gradient)", "lk.post(ctx, gradient)\n                weights = await lk.pull(ctx)"),
)  # fmt: skip
NUMPY_NUMBERS = (
    ("self.learning_rate * factor", "np.float64(self.learning_rate) * factor"),
    ("    return found", "    return [np.int64(s) for s in found]"),
)
HONEST = [
    pytest.param("02", PULL_AFTER_PUSH, id="pull-after-push"),
    pytest.param("02", (("pushes, rate,", "pushes[::-1], rate,"),), id="added-in-another-order"),
    pytest.param("03", NUMPY_NUMBERS, id="numbers-of-numpy"),
    pytest.param("05", (("(rank - side * turn) % n", "(rank + 2 - side * turn) % n"),), id="ring-begins-elsewhere"),
]


@pytest.mark.parametrize(("name", "changes"), HONEST)
def test_alternative_correct_answers_get_full_points(name, changes, here, courses):
    course = courses(name)
    answers = dict(course.right().solutions)
    for old, new in changes:
        assert any(old in source for source in answers.values()), old
        answers = {cell: source.replace(old, new) for cell, source in answers.items()}
    result = course.grade(answers)
    assert earned(result) == full(course.reference), [mark.hints for mark in result.questions]
