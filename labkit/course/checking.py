"""What a student runs before handing in: the same way as grading, with the tests that students see.

Its law: the base is the bundle, never the student's file; what passes here passes on the same tests when graded. It reads
the file on disk, so it says how old that is: what is on the screen and not saved is not checked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath

from ..errors import BadInput
from .grading import Key, grade_single
from .intake import Submission
from .lms import plain_student
from .marks import Result
from .reading import Answers, Reader
from .release import Bundle, find_bundle, read_bundle
from .sandbox.confine import can_confine
from .sessions import last_busy
from .validation import Harness

__all__ = ["Checked", "Opened", "age_of", "check", "read"]

JUST_NOW = 15.0  # seconds between a save and a check that are one action
_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


@dataclass(frozen=True)
class Checked:
    """What became of each question, and what to say besides."""

    result: Result
    title: str
    saved: str
    """How long ago the file was saved, in words."""
    warnings: tuple[str, ...]
    unseen: Mapping[str, float]
    """Points by question of tests that students do not get."""
    partly: frozenset[str]
    """Questions with a test that goes on, where students do not see it, when it is graded."""


@dataclass(frozen=True)
class Opened:
    """A student's notebook and the bundle that belongs to it, both read."""

    path: Path
    saved: float
    """When the file was saved, seconds since 1970."""
    ran: str
    """When a cell last ran (ISO 8601), "" if the file does not say."""
    answers: Answers
    bundle: Bundle


def read(notebook: Path, bundle: Path | None) -> Opened:
    """Read a student's notebook (in a limited process, as when it is graded) and its bundle.

    Raises:
        BadInput: there is no notebook or no bundle, or it cannot be read.
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
            (answers,), _ = reader.answers(stream.fileno(), known.base)
    except OSError as why:
        raise BadInput(f"{notebook} cannot be read: {why.strerror or why}.") from None
    return Opened(notebook, saved, about.ran, answers, known)


def check(opened: Opened, harness: Harness) -> Checked:
    """Check a student's notebook."""
    notebook, saved, known = opened.path, opened.saved, opened.bundle
    found = opened.answers
    student = plain_student(notebook.name, notebook.name)
    submission = Submission(notebook.name, student, found.taken, found.problem, variant=found.variant)
    result = grade_single(Key(known.base, known.outputs, variant=known.base.digest), submission, harness)
    warnings = [
        *age_of(notebook, opened.ran, saved, time.time(), os.environ, last_busy(notebook)),
        *_unanswered(result),
    ]
    if can_confine():
        warnings.append("here your code ran like any program of yours; when it is graded, it may only compute")
    unseen = {question: row["hidden"] for question, row in known.points.items() if row["hidden"]}
    partly = frozenset(question for question, row in known.points.items() if row["partly"])
    return Checked(result, known.base.title, _ago(time.time() - saved), tuple(warnings), unseen, partly)


def age_of(
    notebook: Path, last_run: str, saved: float, now: float, environment: Mapping[str, str], busy: float = 0.0
) -> list[str]:
    """Why the file may not be what is on the screen. Times are seconds since 1970.

    Known are: when it was saved; when its cells last ran, if JupyterLab notes that; whether this runs inside the
    notebook's own kernel, which then runs right now; and when that kernel was last busy, if a Jupyter server runs here.
    What was typed and not saved leaves no trace.
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
        told = f"its kernel was busy {_ago(now - busy)}, and the file was saved {_ago(now - saved)}"
        warnings.append(f"{told}: if anything has changed since, save it (Ctrl+S) and check again")
    return warnings


def _ago(seconds: float) -> str:
    """A duration in its largest unit."""
    for unit, size in _UNITS:
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' * (count > 1)} ago"
    return "just now"


def _unanswered(result: Result) -> list[str]:
    return [
        f"{mark.question} is graded by hand, and its answer is empty"
        for mark in result.questions
        if any(not text for text in mark.answers.values())
    ]
