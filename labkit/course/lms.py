"""Who handed a file in, as its path says: the names that Moodle and Canvas give to downloaded submissions.

Its law: an identity is what the learning platform wrote (`Ada Lovelace_12345_assignsubmission_file_/x.ipynb`,
`lovelaceada_LATE_123_456_x.ipynb`); without one, a file is its path, and two files are never taken for one person's.

Moodle: the number is the participant's, "Participant 12345" in the grading worksheet's column Identifier; files are in a
folder each, or all in one with the same beginning. Canvas: the sortable name without spaces and signs, LATE if it was, the
user's id (column ID), the file's id, the file's name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

__all__ = ["Student", "student_of"]

_MOODLE = re.compile(r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_(?:file|onlinetext)(?:_.*)?", re.DOTALL)
_CANVAS = re.compile(r"(?P<name>[^_]+?)_(?P<late>LATE_)?(?P<id>\d+|anon_\w+?)_(?P<file>\d+)_(?P<rest>.+)", re.DOTALL)


@dataclass(frozen=True)
class Student:
    """Who handed in: a name to show, the platform's id if there is one, and the platform."""

    name: str
    id: str = ""
    platform: str = ""
    """"moodle", "canvas", or empty."""
    late: bool = False

    @property
    def identity(self) -> tuple[str, str] | None:
        """What is the same in two submissions of one person; None where the path does not tell."""
        return (self.platform, self.id) if self.id else None


def student_of(path: PurePosixPath, assignment: str) -> Student:
    """The student of a file; `path` is relative to what was given on the command line."""
    for part in reversed(path.parts):
        if moodle := _MOODLE.fullmatch(part):
            return Student(moodle["name"].strip(), moodle["id"], "moodle")
    for part in reversed(path.parts):
        if canvas := _CANVAS.fullmatch(part):
            return Student(canvas["name"], canvas["id"], "canvas", canvas["late"] is not None)
    # nbgrader's and many others' layout: one folder a student, the file has the assignment's name
    names = [part for part in path.parts[:-1] if part != assignment]
    own = path.stem != assignment and not path.stem.startswith(f"{assignment}-Copy")
    return Student(path.stem if own or not names else names[-1])
