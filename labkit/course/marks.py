"""Marks: what a submission earned, question by question, and what may be said of it to whom.

Its law: a test cell's points are earned whole or not at all, and nbval alone decides. A hint to the student is the text
that the test itself raised for students (`course.Wrong`), or, where students have the whole test, what happened; of a
hidden test nothing else is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .. import errors
from .blocks import HIDDEN, has_block, released
from .lms import Student
from .schema import Assignment, Cell
from .validation import CellResult, Outcome

__all__ = ["QuestionMark", "Result", "TestMark", "mark_questions", "number", "unearned"]

WRONG, FAILED, UNEXPECTED = "Wrong", "Failed", "Unexpected"  # classes of labkit.course.trial
EXPECTED = " was expected: "  # what stands before a hint
LONGEST_HINT = 600
_ENDED = re.compile(r"-+\n\w+ +Traceback \(most recent call last\)\nCell In\[\d+\], line (\d+)")  # IPython's


@dataclass(frozen=True)
class TestMark:
    """One test cell. `hint` is for the student, `detail` for the instructor only."""

    __test__ = False  # not for pytest

    id: str
    points: float
    passed: bool
    hint: str = ""
    detail: str = ""


@dataclass(frozen=True)
class QuestionMark:
    """One question: its tests, and what is graded by hand."""

    question: str
    tests: tuple[TestMark, ...]
    by_hand: float = 0.0
    """Points of its explain cells."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """The texts of its explain cells by grade_id; "" if there is no answer."""
    helped: bool = False
    """Whether this was earned with the reference's answers to the other questions."""

    @property
    def points(self) -> float:
        """Points of its tests."""
        return sum(test.points for test in self.tests)

    @property
    def earned(self) -> float:
        """Points of the tests that passed."""
        return sum(test.points for test in self.tests if test.passed)

    @property
    def ok(self) -> bool:
        """Whether all its tests passed."""
        return all(test.passed for test in self.tests)

    @property
    def hints(self) -> list[str]:
        """What may be said to the student, once each."""
        return list(dict.fromkeys(test.hint for test in self.tests if test.hint))


@dataclass(frozen=True)
class Result:
    """What became of one submission. With a `problem`, nothing was earned and this is why."""

    student: Student
    path: str
    questions: tuple[QuestionMark, ...]
    notes: tuple[str, ...] = ()
    problem: str = ""
    broken: bool = False
    """Whether the machine may be the reason of the problem: a batch that is continued grades it again."""

    @property
    def earned(self) -> float:
        """Points of all tests that passed."""
        return sum(question.earned for question in self.questions)

    @property
    def points(self) -> float:
        """Points of all tests."""
        return sum(question.points for question in self.questions)

    def as_json(self) -> dict[str, Any]:
        """Everything, with what only the instructor may see."""
        return {
            "student": asdict(self.student), "path": self.path, "earned": self.earned, "points": self.points,
            "problem": self.problem, "broken": self.broken, "notes": list(self.notes),
            "questions": [{**asdict(q), "earned": q.earned, "points": q.points} for q in self.questions],
        }  # fmt: skip


def number(points: float) -> str:
    """Points as people write them: 3, 2.5."""
    return f"{points:.2f}".rstrip("0").rstrip(".")


def unearned(base: Assignment) -> tuple[QuestionMark, ...]:
    """Every question with nothing earned."""
    return mark_questions(base, Outcome({}), {}, {}, "")


def mark_questions(
    base: Assignment,
    outcome: Outcome,
    outputs: Mapping[str, Any],
    explained: Mapping[str, str],
    silent: str | None = None,
    helped: bool = False,
) -> tuple[QuestionMark, ...]:
    """The marks of one run. `silent`: the hint where a test was not run at all (None: say so). `helped`: the submission's
    code could call correct answers, so hints have no text that it chose.
    """
    marks = []
    for question in base.questions():
        cells = [cell for cell in base.cells if cell.question == question]
        own = [outcome.cells[c.id] for c in cells if c.kind == "solution" and c.id in outcome.cells]
        tests = [
            _mark(c, outcome.cells.get(c.id), own, outputs.get(c.id, ()), silent, helped)
            for c in cells
            if c.kind == "test"
        ]
        asked = [cell for cell in cells if cell.kind == "explain"]
        answers = {cell.id: _answer(cell, explained) for cell in asked}
        marks.append(QuestionMark(question, tuple(tests), sum(cell.points for cell in asked), answers))
    return tuple(marks)


def _answer(cell: Cell, explained: Mapping[str, str]) -> str:
    """What a student wrote into an explain cell; empty if it is as it was given out."""
    text = explained.get(cell.id, "").strip()
    return "" if text == released(cell.source, "explain").strip() else text


def _mark(
    cell: Cell,
    result: CellResult | None,
    own: Iterable[CellResult],
    expected: Sequence[Mapping[str, Any]],
    silent: str | None,
    helped: bool,
) -> TestMark:
    if result is None:
        return TestMark(cell.id, cell.points, False, "it was not run" if silent is None else silent)
    if result.passed:
        return TestMark(cell.id, cell.points, True)
    detail = f"{result.error}: {result.message}\n{result.detail}".strip()
    hint = next((failed.message for failed in own if not failed.passed), "") or _hint(cell, result, expected, helped)
    return TestMark(cell.id, cell.points, False, _short(hint), detail)


def _hint(cell: Cell, result: CellResult, expected: Sequence[Mapping[str, Any]], helped: bool) -> str:
    """What a student may read of a test that failed. Text of their own code only of a line that they have, and only of code
    that could not call a correct answer.
    """
    if result.error == WRONG:
        return result.message or "a check does not hold"
    seen = _is_seen(cell, result)
    if not seen or helped:
        hint = result.message.partition(EXPECTED)[2] if result.error == UNEXPECTED else ""
        which = "a check that you do not have" if seen is False else "a check"
        return f"{which} did not pass{': ' if hint else ''}{hint}"
    if result.error in (FAILED, UNEXPECTED):
        return result.message
    if result.error == "NbCellError":
        return f"it printed {_printed(result.outputs)!r} where {_printed(expected)!r} was expected"
    if result.error in errors.__all__ and result.message:
        return result.message  # labkit's own errors are sentences
    return f"{result.error}: {result.message}" if result.message else f"a check does not hold ({result.error})"


def _is_seen(cell: Cell, result: CellResult) -> bool | None:
    """Whether students have the line of the test at which it ended; None if that line is not known."""
    if not has_block(cell.source, HIDDEN):
        return True
    if not released(cell.source, "test"):
        return False
    found = _ENDED.match(result.detail)  # at its start, where nothing is a student's
    line = result.line or (int(found[1]) if found else 0)
    lines = cell.source.split("\n")[:line]
    return [HIDDEN[1], *(at.strip() for at in lines if at.strip() in HIDDEN)][-1] == HIDDEN[1] if line else None


def _printed(outputs: Sequence[Mapping[str, Any]]) -> str:
    """What a cell printed, in one string."""
    texts = []
    for output in outputs:
        text = output.get("text") if output.get("name") == "stdout" else output.get("data", {}).get("text/plain")
        texts.append("".join(text) if isinstance(text, list) else text or "")
    return _short("".join(texts).strip(), 200)


def _short(text: str, longest: int = LONGEST_HINT) -> str:
    return text if len(text) <= longest else f"{text[: longest - 4]} ..."
