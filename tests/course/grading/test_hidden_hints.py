"""The hint for a failed hidden test has the instructor's text only, and none that the submitted code can choose."""

import pytest

from labkit.course.grading.nbval_run import CellResult, RunResult
from labkit.course.grading.scores import score_questions
from labkit.course.schema import parse
from labkit.course.testing import CheckFailed, SubmissionFailed, UnexpectedValue, expect
from tests.course import toy_reference as toy

HIDDEN, SEEN = 4, 2  # lines of the first test's cell, T1
SILENT = "a hidden check did not pass"
THEIRS = "The run failed: ValueError: I was asked for 17 workers"


def hint(error, message, line):
    traceback = f"{'-' * 20}\n{error.__name__}    Traceback (most recent call last)\nCell In[3], line {line}\n"
    result = CellResult(False, error.__name__, message, traceback)
    marks = score_questions(parse(toy.notebook(), "toy"), RunResult({"q1-test": result}), {}, {})
    return marks[0].tests[0].hint


def test_the_toy_notebook_has_the_expected_hidden_lines():
    lines = toy.T1.split("\n")
    assert "BEGIN HIDDEN" in lines[HIDDEN - 1]
    assert "raise" not in lines[SEEN - 2]


@pytest.mark.parametrize(
    ("error", "message", "shown"),
    [
        (CheckFailed, "the sign is lost: did you square?", "the sign is lost: did you square?"),
        (SubmissionFailed, THEIRS, SILENT),
        (UnexpectedValue, "loss 17 where 4 was expected", SILENT),
        (UnexpectedValue, "loss 17 where 4 was expected: a sum?", f"{SILENT}: a sum?"),
        (ValueError, THEIRS, SILENT),
    ],
)
def test_a_hidden_check_shows_only_the_text_of_the_instructor(error, message, shown):
    assert hint(error, message, HIDDEN + 1) == shown


@pytest.mark.parametrize("error", [CheckFailed, SubmissionFailed, UnexpectedValue])
def test_the_error_of_a_visible_check_is_shown(error):
    assert hint(error, THEIRS, SEEN) == THEIRS


def test_expect_raises_the_text_that_hints_are_taken_from():
    with pytest.raises(UnexpectedValue, match=r"^gate 3 where 2 was expected: off by one\?$"):
        expect("gate", 3, 2, {3: "off by one?"})
