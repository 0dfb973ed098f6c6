"""The scores of a submission by question, with hints for the student and details for the instructor.

A test cell earns all of its points or none; nbval decides which. The hint is the text of the test's own
`course.CheckFailed`, or the error if the failing line of the test is released. Of another failed check that is hidden, a
student is shown which property it checks (a literal string in its source), the instructor's hint, and the kind of error.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ... import errors
from ..regions import HIDDEN, has_region, released
from ..schema import Assignment, Cell
from .lms import Student
from .nbval_run import CellResult, RunResult

# classes of labkit.course.testing
CHECK_FAILED, FAILED, DEADLOCKED, UNEXPECTED = "CheckFailed", "SubmissionFailed", "Deadlocked", "UnexpectedValue"
# what a student is told of an error in a hidden check, whose text the submitted code may have chosen
_HIDDEN = {
    FAILED: "the run failed",
    DEADLOCKED: "the run ended in a deadlock",
    UNEXPECTED: "another value was expected",
}
BEFORE_HINT = " was expected:\xa0"  # labkit.course.testing.BEFORE_HINT
MAX_HINT_LENGTH = 600
_NAMED = ("expect", "expect_close", "check")  # functions whose first argument says what is checked
_ENDED = re.compile(r"-+\n\w+ +Traceback \(most recent call last\)\nCell In\[\d+\], line (\d+)")  # IPython's


@dataclass(frozen=True)
class TestScore:
    """The score of one test cell. `hint` is for the student; `detail` is for the instructor only."""

    __test__ = False  # tells pytest that this class is not a test

    id: str
    points: float
    passed: bool
    hint: str = ""
    detail: str = ""


@dataclass(frozen=True)
class QuestionScore:
    question: str
    tests: tuple[TestScore, ...]
    by_hand: float = 0.0
    """Points of its explain cells."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """The texts of its explain cells by grade_id; "" if there is no answer."""
    with_reference: bool = False
    """Whether the points were earned with the reference's answers to the questions before it."""

    @property
    def points(self) -> float:
        return sum(test.points for test in self.tests)

    @property
    def earned(self) -> float:
        """Of the tests that passed."""
        return sum(test.points for test in self.tests if test.passed)

    @property
    def ok(self) -> bool:
        return all(test.passed for test in self.tests)

    @property
    def hints(self) -> list[str]:
        """For the student, without duplicates."""
        return list(dict.fromkeys(test.hint for test in self.tests if test.hint))


@dataclass(frozen=True)
class Result:
    """The result of one submission. `problem`: why the submission could not be graded and has no points, or ""."""

    student: Student
    path: str
    questions: tuple[QuestionScore, ...]
    notes: tuple[str, ...] = ()
    problem: str = ""
    broken: bool = False
    """Whether the machine may be the cause of the problem, so that a continued batch grades it again."""

    @property
    def earned(self) -> float:
        """Of the tests that passed."""
        return sum(question.earned for question in self.questions)

    @property
    def points(self) -> float:
        return sum(question.points for question in self.questions)

    def as_json(self) -> dict[str, Any]:
        """Return all data, including data that only the instructor may see."""
        return {
            "student": asdict(self.student), "path": self.path, "earned": self.earned, "points": self.points,
            "problem": self.problem, "broken": self.broken, "notes": list(self.notes),
            "questions": [{**asdict(q), "earned": q.earned, "points": q.points} for q in self.questions],
        }  # fmt: skip


def format_points(points: float) -> str:
    """Return points as text with at most two decimals: 3, 2.5."""
    return f"{points:.2f}".rstrip("0").rstrip(".")


def zero_scores(base: Assignment) -> tuple[QuestionScore, ...]:
    return score_questions(base, RunResult({}), {}, {}, "")


def score_questions(
    base: Assignment,
    outcome: RunResult,
    outputs: Mapping[str, Any],
    explained: Mapping[str, str],
    no_run_hint: str | None = None,
    with_reference: bool = False,
    shown: RunResult | None = None,
) -> tuple[QuestionScore, ...]:
    """Compute the scores of one run.

    `explained`: the texts of the explain cells. `no_run_hint`: the hint for a test that was not run; None: "it was not run".
    `with_reference`: whether the submitted code could call correct answers. Then hints contain no text that the submitted code
    can determine. `shown`: the results of a run without hidden tests, for the hints; None: `outcome`.
    """
    scores, shown = [], shown or outcome
    for question in base.questions():
        cells = [cell for cell in base.cells if cell.question == question]
        own = [shown.cells[c.id] for c in cells if c.kind == "solution" and c.id in shown.cells]
        tests = [
            _test_score(
                c,
                outcome.cells.get(c.id),
                shown.cells.get(c.id),
                own,
                outputs.get(c.id, ()),
                no_run_hint,
                with_reference,
            )
            for c in cells
            if c.kind == "test"
        ]
        explain = [cell for cell in cells if cell.kind == "explain"]
        answers = {cell.id: _answer(cell, explained) for cell in explain}
        scores.append(QuestionScore(question, tuple(tests), sum(cell.points for cell in explain), answers))
    return tuple(scores)


def _answer(cell: Cell, explained: Mapping[str, str]) -> str:
    """Return the student's text in an explain cell; empty if the cell is unchanged."""
    text = explained.get(cell.id, "").strip()
    return "" if text == released(cell.source, "explain").strip() else text


def _test_score(
    cell: Cell,
    result: CellResult | None,
    shown: CellResult | None,
    own: Iterable[CellResult],
    expected: Sequence[Mapping[str, Any]],
    no_run_hint: str | None,
    with_reference: bool,
) -> TestScore:
    if result is None:
        return TestScore(cell.id, cell.points, False, "it was not run" if no_run_hint is None else no_run_hint)
    if result.passed:
        return TestScore(cell.id, cell.points, True)
    detail = f"{result.error}: {result.message}\n{result.detail}".strip()
    hint = next((failed.message for failed in own if not failed.passed), "") or _hint(
        cell, result, shown or CellResult(True), expected, with_reference
    )
    return TestScore(cell.id, cell.points, False, _truncated(hint), detail)


def failed_with_text(base: Assignment, outcome: RunResult) -> list[Cell]:
    """Return the failed tests whose hint may have text of the submitted code."""

    def failed(cell: Cell) -> bool:
        return cell.id in outcome.cells and not outcome.cells[cell.id].passed

    undefined = {cell.question for cell in base.of_kind("solution") if failed(cell)}
    return [
        cell
        for cell in filter(failed, base.of_kind("test"))
        if cell.question in undefined or _is_released(cell, _line(cell, outcome.cells[cell.id])) is not False
    ]


def _hint(
    cell: Cell, result: CellResult, shown: CellResult, expected: Sequence[Mapping[str, Any]], with_reference: bool
) -> str:
    """Return the hint for a failed test.

    Text that the submitted code determines is shown only if it is that of `shown`, in which no hidden test ran, and the code
    could not call a correct answer.
    """
    line = _line(cell, result)
    released_line = _is_released(cell, line)
    if not shown.passed:
        result, released_line = shown, released_line if shown is result else True
    elif released_line:  # it passes if no hidden test has run before
        return "a check did not pass"
    if result.error == CHECK_FAILED:
        return result.message or "a check did not pass"
    if not released_line or with_reference:
        which = "a hidden check" if released_line is False else "a check"
        what = _what(cell, line)
        return f"{which} did not pass{f' ({what})' if what else ''}{_instructors_words(result, with_reference)}"
    if result.error in (FAILED, DEADLOCKED, UNEXPECTED):
        return result.message
    if result.error == "NbCellError":
        return f"it printed {_printed(result.outputs)!r} where {_printed(expected)!r} was expected"
    if result.error in errors.__all__ and result.message:
        return result.message  # the texts of labkit's errors are sentences
    return f"{result.error}: {result.message}" if result.message else f"a check did not pass ({result.error})"


def _instructors_words(result: CellResult, with_reference: bool) -> str:
    """Return what is known of an error without its text: the hint of the test, else the kind of error."""
    hint = result.message.partition(BEFORE_HINT)[2] if result.error == UNEXPECTED else ""
    kind = "" if with_reference else _HIDDEN.get(result.error, "it raised an error")
    return f": {hint or kind}" if hint or kind else ""


def _line(cell: Cell, result: CellResult) -> int:
    """Return the line of the test that raised the error; 0 if it is not known."""
    found = _ENDED.match(result.detail)  # at the start, before any text of a student
    return result.line or (int(found[1]) if found else 0)


def _is_released(cell: Cell, line: int) -> bool | None:
    """Whether this line of the test is released; None if the line is not known."""
    if not has_region(cell.source, HIDDEN):
        return True
    if not released(cell.source, "test"):
        return False
    lines = cell.source.split("\n")[:line]
    return [HIDDEN[1], *(at.strip() for at in lines if at.strip() in HIDDEN)][-1] == HIDDEN[1] if line else None


def _what(cell: Cell, line: int) -> str:
    """Return what the statement at this line checks: the literal string that is the first argument of `course.expect`,
    `course.expect_close` or `Trial.check` in it; "" if there is none.

    It is read in the source of the test, so submitted code cannot determine it.
    """
    statements = [node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.stmt)]
    at_line = [node for node in statements if node.lineno <= line <= (node.end_lineno or line)]
    innermost = max(at_line, key=lambda node: node.lineno, default=None)
    for node in () if innermost is None or hasattr(innermost, "body") else ast.walk(innermost):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.args
            and node.func.attr in _NAMED
        ):
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                return name.value
    return ""


def _printed(outputs: Sequence[Mapping[str, Any]]) -> str:
    texts = []
    for output in outputs:
        text = output.get("text") if output.get("name") == "stdout" else output.get("data", {}).get("text/plain")
        texts.append("".join(text) if isinstance(text, list) else text or "")
    return _truncated("".join(texts).strip(), 200)


def _truncated(text: str, longest: int = MAX_HINT_LENGTH) -> str:
    return text if len(text) <= longest else f"{text[: longest - 4]} ..."
