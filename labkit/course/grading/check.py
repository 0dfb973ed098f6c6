"""`labkit check`: runs the visible tests on a student's notebook in the same way as grading.

The tests come from the bundle, never from the student's file, so an answer that passes them in `check` passes them in
grading. `check` reads the saved file and reports its age, because unsaved changes are not checked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath

from ...errors import BadInput
from ..bundle import Bundle, find_bundle, read_bundle
from ..sandbox.confine import confinement_problem
from .grade import GradingKey, grade_single
from .jupyter_servers import last_activity
from .lms import plain_student
from .nbval_run import Harness
from .reader import Reader, ReadNotebook
from .scores import Result
from .submissions import Submission

JUST_NOW = 15.0  # seconds after a save in which the file counts as current
_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


@dataclass(frozen=True)
class CheckResult:
    result: Result
    title: str
    saved: str
    """The age of the file, as text."""
    warnings: tuple[str, ...]
    unseen: Mapping[str, float]
    """By question, the points of hidden tests."""
    partly: frozenset[str]
    """Questions with a test that has a hidden part."""


@dataclass(frozen=True)
class StudentNotebook:
    path: Path
    saved: float
    """When the file was saved, seconds since 1970."""
    ran: str
    """When a cell last ran (ISO 8601); "" if that is not recorded."""
    content: ReadNotebook
    bundle: Bundle


def open_notebook(notebook: Path, bundle: Path | None) -> StudentNotebook:
    """Read a student's notebook (in a reader process, as in grading) and its bundle. Raises `BadInput` if one of them is
    missing or cannot be read.
    """
    reader = Reader()
    try:
        with notebook.open("rb") as stream:
            saved = os.fstat(stream.fileno()).st_mtime
            try:
                about = reader.about(stream.fileno())
            except BadInput as why:
                raise BadInput(f"{notebook}: {why}.") from None
            known = read_bundle(find_bundle(notebook, about.assignment, bundle))
            (content,), _ = reader.read(stream.fileno(), known.base)
    except OSError as why:
        raise BadInput(f"{notebook} cannot be read: {why.strerror or why}.") from None
    return StudentNotebook(notebook, saved, about.ran, content, known)


def check(opened: StudentNotebook, harness: Harness) -> CheckResult:
    notebook, saved, known = opened.path, opened.saved, opened.bundle
    found = opened.content
    student = plain_student(notebook.name, notebook.name)
    submission = Submission(notebook.name, student, found.answers, found.problem, variant=found.variant)
    result = grade_single(GradingKey(known.base, known.outputs, variant=known.base.digest), submission, harness)
    warnings = [
        *unsaved_warnings(notebook, opened.ran, saved, time.time(), os.environ, last_activity(notebook)),
        *_unanswered(result),
    ]
    if confinement_problem():
        warnings.append("here your code ran without restrictions; in grading it can only compute")
    unseen = {question: row["hidden"] for question, row in known.points.items() if row["hidden"]}
    partly = frozenset(question for question, row in known.points.items() if row["partly"])
    return CheckResult(result, known.base.title, _ago(time.time() - saved), tuple(warnings), unseen, partly)


def unsaved_warnings(
    notebook: Path, last_run: str, saved: float, now: float, environment: Mapping[str, str], busy: float = 0.0
) -> list[str]:
    """Return reasons why the file may differ from the notebook in the browser. Times are seconds since 1970.

    `last_run`: when the notebook's cells last ran (ISO 8601), if JupyterLab records that; else "". `environment`: shows whether
    this process was started by the notebook's kernel. `busy`: the last activity of the notebook's kernel, if a Jupyter server
    on this computer runs it; else 0.
    """
    warnings = []
    try:
        ran = datetime.fromisoformat(last_run).timestamp()
    except ValueError:
        ran = 0.0
    if ran > saved + JUST_NOW:
        warnings.append("a cell ran after the file was saved: save it (Ctrl+S) and check again")
    session = environment.get("JPY_SESSION_NAME", "")
    if PurePosixPath(session).name == notebook.name and now - saved > JUST_NOW:
        warnings.append(f"the notebook runs and was last saved {_ago(now - saved)}: save it (Ctrl+S) and check again")
    if not warnings and busy > saved + JUST_NOW:
        times = f"its kernel was busy {_ago(now - busy)}, and the file was saved {_ago(now - saved)}"
        warnings.append(f"{times}: if anything has changed since, save it (Ctrl+S) and check again")
    return warnings


def _ago(seconds: float) -> str:
    """Return a duration as text, in its largest unit: `3 minutes ago`."""
    for unit, size in _UNITS:
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' * (count > 1)} ago"
    return "just now"


def _unanswered(result: Result) -> list[str]:
    return [
        f"{score.question} is graded by hand, and its answer is empty"
        for score in result.questions
        if any(not text for text in score.answers.values())
    ]
