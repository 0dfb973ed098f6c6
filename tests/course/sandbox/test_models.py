"""A student's model is checked and trained in grading as in a notebook, and no attack of the corpus earns anything."""

import copy
import gc
import re

import numpy as np
import pytest

import labkit as lk
from labkit import course
from labkit.course.authoring.release import release
from labkit.course.grading import grade as grading
from labkit.course.grading.grade import GradingKey
from labkit.course.grading.nbval_run import Harness
from labkit.course.grading.rebuild import rebuild, solutions_as_answers
from labkit.course.sandbox.confine import confinement_problem
from labkit.course.sandbox.processes import ForkServer
from labkit.course.schema import parse
from labkit.course.testing import BEFORE_HINT, UnexpectedValue
from labkit.course.variants import with_variant
from labkit.errors import LabkitError
from tests.course import toy_reference as toy
from tests.course.attacks.models import ATTACKS, RIGHT, put
from tests.course.sharing import GIVEN, below, run_cell, run_here, shared_answers, solution, submission

pytestmark = pytest.mark.skipif(
    bool(confinement_problem()), reason=f"submitted code is confined on Linux only: {confinement_problem()}"
)


def problem_of(model, seed=0):
    return lk.Problem("moons", model=model, batch_size=16, dtype="float64", seed=seed, options={"samples": 200})


def graded(make):
    """What a hidden test does; (the mark, the reason)."""
    try:
        problem = problem_of(make(), seed=3)
        course.check_model(problem, seed=11)
        trial = course.trial(lk.SyncPS(), workers=2, updates=30, problem=problem, seed=3).check()
        if trial.accuracy < 0.7:
            raise course.CheckFailed(f"the accuracy is {trial.accuracy:.0%}")
    except (LabkitError, course.CheckFailed) as error:
        return False, str(error)
    return True, ""


def try_model(server, source):
    with shared_answers([solution(source, X="class")], server) as answers:
        return graded(lambda: answers.defined("q")["X"]())


def try_here(source):
    names = {"__name__": "__main__", "np": np, "lk": lk}
    exec("from dataclasses import dataclass\n" + source, names)
    return graded(names["X"])


@pytest.fixture(scope="module")
def patient_server():
    with ForkServer(True, 60) as made:
        yield made


@pytest.fixture(scope="module")
def short_server():
    with ForkServer(True, 1) as made:
        yield made


def test_a_right_model_passes_in_grading_and_in_a_notebook(patient_server):
    assert try_here(RIGHT) == try_model(patient_server, RIGHT) == (True, "")


def check_attacks(attacks, patient_server, short_server):
    failed = []
    for attack in attacks:
        server = short_server if attack.why == "processor time" else patient_server
        earned, why = try_model(server, attack.source)
        wrong = {
            "it got the points": earned,
            f"the reason is {why[:300]!r}": not re.search(attack.why, why, re.DOTALL) or len(why) >= 1500,
            "a process is left": below(server.process.pid),
        }
        failed += [f"{attack.name}: {what}" for what, is_so in wrong.items() if is_so]
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize(
    "quick", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["some of them", "all others"]
)
def test_attacks_with_models_get_no_points(patient_server, short_server, quick):
    check_attacks([a for i, a in enumerate(ATTACKS) if (i % 8 == 6) == quick], patient_server, short_server)
    assert try_model(patient_server, RIGHT) == (True, "")


MISTAKES = {
    "the gradient is a sum": put(after="for values in g.values(): values *= len(x)"),
    "an array is replaced": RIGHT.replace('g["b.weight"][...] =', 'g["b.weight"] ='),
    "the sign is wrong": put(after="g['a.weight'] *= -1"),
    "another loss": put(after="for values in g.values(): values *= 2\nloss *= 2"),
    "a batch is centred": put(scores="x = x - x.mean(axis=0)"),
    "initial values of a counter": put(top="COUNT = [1]", init="COUNT[0] += 1\nrng = np.random.default_rng(COUNT)"),
    "an error": put(scores="x = x[:, :1]"),
}  # fmt: skip


def test_a_mistake_has_the_same_sentence_in_a_notebook_and_in_grading(patient_server):
    wrong = []
    for name, source in MISTAKES.items():
        here, there = try_here(source)[1], try_model(patient_server, source)[1]
        where = r" on \d+ rows of \d+ numbers.*| \(cell q, line.*"  # of an error
        if not here or re.sub(where, "", here) != re.sub(where, "", there):
            wrong.append(f"{name}: {here!r}, in grading {there!r}")
    assert not wrong, "\n".join(wrong)


def test_a_hint_has_no_words_of_the_model(patient_server):
    """Of a hidden check only what follows `BEFORE_HINT` is shown."""
    name = "a.secret was expected:\xa0secret"
    source = put(after=f"g['{name}'][...] = 7").replace("a.weight", name)
    with shared_answers([solution(source, X="class")], patient_server) as answers:
        made = answers.defined("q")["X"]
        with pytest.raises(UnexpectedValue, match="secret") as caught:
            course.check_model(problem_of(made()))
    assert "secret" not in str(caught.value).partition(BEFORE_HINT)[2]


def test_what_hidden_tests_call_a_model_with_is_not_known_in_visible_ones(patient_server):
    source = put(top="SEEN = []", scores="SEEN.append(x[0, 0])\nraise ValueError(f'seen: {SEEN}')")
    cell = """model = X()
p = {"a.weight": np.ones((2, 4)), "b.weight": np.ones((4, 2))}
def seen(number):
    try: model.scores(p, np.full((1, 2), number))
    except lk.BadInput as error: print(str(error).partition("seen: ")[2].partition("]")[0])
seen(1.0)
### BEGIN HIDDEN TESTS
seen(666.0)
course.trial(lk.SyncPS(), workers=2, updates=2, problem=problem_of(model))
### END HIDDEN TESTS
seen(2.0)
"""
    with shared_answers([solution(source, X="class")], patient_server) as answers:
        names = {"np": np, "lk": lk, "course": course, "problem_of": problem_of} | answers.defined("q")
        result = run_cell({"id": "c", "source": cell, "outputs": []}, names)
        printed = result.outputs[0]["text"].replace("np.float64", "").split("\n")
    assert [line.count("666") for line in printed] == [0, 1, 0, 0]
    assert [line.count(",") for line in printed] == [0, 0, 1, 0]  # it remembers the visible call


@pytest.mark.slow
def test_the_processes_of_a_model_end_with_it(patient_server):
    with shared_answers([solution(RIGHT, X="class")], patient_server) as answers:
        made = answers.defined("q")["X"]
        for _ in range(4):
            problem_of(made()).objective().start(0)
            gc.collect()
        assert len(below(patient_server.process.pid)) == 1
    assert not below(patient_server.process.pid)


# from the file to the mark --------------------------------------------------------------------------------------------

SOLUTION = RIGHT.strip().replace("        h = np.tanh", "        ### BEGIN SOLUTION\n        h = np.tanh", 1).replace(
    "        return loss", "        return loss\n        ### END SOLUTION"
)  # fmt: skip
CHECKED = """problem = lk.Problem("moons", model=X(), batch_size=16, dtype="float64", options={"samples": 200})
course.check_model(problem)"""
TRAINED = """### BEGIN HIDDEN TESTS
course.check_model(problem, seed=5)
run = course.trial(lk.SyncPS(), workers=2, updates=40, problem=problem).check("a run of 40 updates")
course.expect("more than 70% are right", run.accuracy > 0.7, True)
### END HIDDEN TESTS"""
REFERENCE = with_variant(
    parse(
        toy.notebook(
            [
                toy.code(GIVEN["source"], toy.nbgrader("imports", "locked"), given=True),
                toy.code("from labkit import course", toy.nbgrader("for-tests", "locked")),
                toy.solution("q1", f"# q1 (keep this line)\n{SOLUTION}"),
                toy.test("q1-check", "q1", 2, CHECKED),
                toy.test("q1-run", "q1", 3, TRAINED),
            ],
            variants={},
        ),
        "a model",
    ),
    None,
)
LATER = put(top="COUNT = [0]", after="COUNT[0] += 1\nif COUNT[0] > 60: g['a.weight'][...] *= -1")
SUBMITTED = {  # {name: (answer, points, what the hint says)}
    "right": (RIGHT, 5.0, None),
    "a sign": (put(after="g['b.weight'] *= -1"), 0.0, r"gradient is wrong at b.weight.*derivative of the loss that it returns"),
    "unsolved": (None, 0.0, "your code"),
    "wrong after the check": (LATER, 2.0, r"a hidden check did not pass \(a run of 40 updates\): the run .*failed"),
}  # fmt: skip


@pytest.mark.slow
def test_models_are_graded(tmp_path, server, here):
    answers = solutions_as_answers(REFERENCE)
    cells = run_here(rebuild(REFERENCE, answers, None), server).cells
    assert {name: cell.message for name, cell in cells.items() if not cell.passed} == {}
    key = GradingKey(REFERENCE, {"q1-check": cells["q1-check"].outputs}, answers, "first")
    released, handed = release(REFERENCE, "first"), []
    for name, (source, _, _) in SUBMITTED.items():
        raw = copy.deepcopy(released)
        if source is not None:
            toy.find(raw, "q1")["source"] = f"# q1 (keep this line)\n{source}"
        handed.append(submission(raw, REFERENCE, tmp_path, name))
    wrong = []
    for result in grading.grade_all(key, handed, Harness(), 2):
        _, points, says = SUBMITTED[result.student.name]
        hints = [hint for score in result.questions for hint in score.hints]
        if result.earned != points or (says and not any(re.search(says, hint) for hint in hints)):
            wrong.append((result.student.name, result.earned, hints, result.problem))
    assert not wrong
