"""The hint for a failed hidden test has texts of the instructor only: what is checked, the hint, and the kind of error."""

import pytest

from labkit.course.grading import grade as grading
from labkit.course.grading.nbval_run import CellResult, Harness, RunResult
from labkit.course.grading.scores import score_questions
from labkit.course.schema import parse
from labkit.course.testing import CheckFailed, Deadlocked, SubmissionFailed, Trial, UnexpectedValue, expect
from tests.course import toy_reference as toy
from tests.course.sharing import submission

HIDDEN, SEEN = 4, 2  # lines of the first test's cell, T1
SILENT = "a hidden check did not pass"
THEIRS = "The run failed: ValueError: I was asked for 17 workers"
NAMED = """print(scaled(0))
### BEGIN HIDDEN TESTS
for n in (3, 17):
    course.expect(
        "three times",
        scaled(n),
        51, {17: "nothing is scaled"})
    trial = course.trial(My(), workers=n).check("another number of workers")
    course.expect(f"with {n}", scaled(n), 51)
### END HIDDEN TESTS"""


def hint(error, message, line, source=toy.T1, with_reference=False):
    traceback = f"{'-' * 20}\n{error.__name__}    Traceback (most recent call last)\nCell In[3], line {line}\n"
    result = CellResult(False, error.__name__, message, traceback)
    raw = toy.notebook()
    toy.find(raw, "q1-test")["source"] = source
    marks = score_questions(parse(raw, "toy"), RunResult({"q1-test": result}), {}, {}, with_reference=with_reference)
    return marks[0].tests[0].hint


def raised(got, want, hints=None):
    with pytest.raises(UnexpectedValue) as error:
        expect("loss", got, want, hints)
    return str(error.value)


def test_the_toy_notebook_has_the_expected_hidden_lines():
    lines = toy.T1.split("\n")
    assert "BEGIN HIDDEN" in lines[HIDDEN - 1]
    assert "raise" not in lines[SEEN - 2]


@pytest.mark.parametrize(
    ("error", "message", "shown"),
    [
        (CheckFailed, "the sign is lost: did you square?", "the sign is lost: did you square?"),
        (SubmissionFailed, THEIRS, f"{SILENT}: the run failed"),
        (Deadlocked, THEIRS, f"{SILENT}: the run ended in a deadlock"),
        (UnexpectedValue, raised(17, 4), f"{SILENT}: another value was expected"),
        (UnexpectedValue, raised(17, 4, {17: "a sum?"}), f"{SILENT}: a sum?"),
        (ValueError, THEIRS, f"{SILENT}: it raised an error"),
    ],
)
def test_a_hidden_check_shows_only_the_text_of_the_instructor(error, message, shown):
    assert hint(error, message, HIDDEN + 1) == shown


@pytest.mark.parametrize(
    "text",
    ["17 where 4 was expected: 17", "17 was expected:\xa017", "\x00 was expected:\xa017", ["was expected:\xa017"]],
)
def test_a_value_cannot_imitate_a_hint(text):
    assert hint(UnexpectedValue, raised(text, 4), HIDDEN + 1) == f"{SILENT}: another value was expected"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (4, " (three times)"),
        (5, " (three times)"),
        (7, " (three times)"),
        (8, " (another number of workers)"),
        (9, ""),
        (3, ""),
    ],
)
def test_what_a_hidden_check_checks_is_read_in_its_source(line, shown):
    """An f-string is not shown: it may contain what the hidden check uses."""
    assert hint(Deadlocked, THEIRS, line, NAMED) == f"{SILENT}{shown}: the run ended in a deadlock"
    assert hint(Deadlocked, THEIRS, line, NAMED, with_reference=True) == f"{SILENT}{shown}"


@pytest.mark.parametrize("error", [CheckFailed, SubmissionFailed, UnexpectedValue])
def test_the_error_of_a_visible_check_is_shown(error):
    assert hint(error, THEIRS, SEEN) == THEIRS


def test_expect_raises_the_text_that_hints_are_taken_from():
    assert raised(3, 2, {3: "off by one?"}).replace("\xa0", " ") == "loss: 3 where 2 was expected: off by one?"


def test_the_numbers_of_a_ledger_are_not_shown_for_a_hidden_check():
    made = Trial("", None)
    vars(made)["ledger"] = {"closes": False, "computed": 7319}
    with pytest.raises(UnexpectedValue, match="7319") as error:
        made.check("another number of workers")
    assert hint(UnexpectedValue, str(error.value), 8, NAMED) == (
        f"{SILENT} (another number of workers): not every gradient is accounted for"
    )


@pytest.mark.parametrize(
    ("apart", "shown"),
    [("0 s after the cell before", "0 s after the cell before"), (None, "a check did not pass")],
)
def test_the_text_of_a_visible_check_is_from_a_run_without_hidden_tests(apart, shown, monkeypatch, toy_key, tmp_path):
    """Else the time that a hidden test took, which submitted code can make depend on its arguments, could be in the text."""

    def run(rebuilt, harness):
        hidden = any("HIDDEN TESTS" in cell["source"] for cell in rebuilt.notebook["cells"])
        text = "2.5 s after the cell before" if hidden else apart
        found = {cell["metadata"]["labkit"]["cell"]: CellResult(True) for cell in rebuilt.notebook["cells"]}
        return RunResult(found | {"q1-more": CellResult(text is None, "SubmissionFailed", text or "", line=1)})

    monkeypatch.setattr(grading, "run_notebook", run)
    result = grading.grade_one(toy_key, submission(toy.solve(toy.RELEASED), toy.REFERENCE, tmp_path), Harness())
    assert result.questions[0].hints == [shown]
