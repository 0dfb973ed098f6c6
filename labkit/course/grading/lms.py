"""Student identities from the names that Moodle and Canvas give to submitted files.

Moodle (assignment, "Download all submissions") writes `Ada Lovelace_12345_assignsubmission_file_/x.ipynb` or, with all
files in one folder, `Ada Lovelace_12345_assignsubmission_file_x.ipynb`. The number is the number of the participant,
who is "Participant 12345" in the column Identifier of the grading worksheet. Moodle replaces `_` in the full name, so
the first number was written by Moodle.

Canvas writes `lovelaceada_LATE_123_456_x.ipynb`: the sortable name, LATE if the submission was late, the user's id
(column ID), the file's id, which increases with the time of the upload, and the file's name. Canvas removes `_number_`
from names, so the first two numbers were written by Canvas.

Only the first part of a path is used. Its rest, and every further part of the path, is chosen by the student.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from .plain_text import shown_text

_NUMBER = "(?:0|[1-9][0-9]{0,18})"
PATTERNS = {
    "moodle": re.compile(rf"(?P<name>[^_]+)_(?P<id>{_NUMBER})_assignsubmission_(?:file|onlinetext)(?:_.*)?", re.DOTALL),
    "canvas": re.compile(
        rf"(?P<name>.+?)_(?P<late>(?i:late)_)?(?P<id>{_NUMBER}|anon_[A-Za-z0-9]+)_(?P<file>{_NUMBER})_(?P<rest>.+)", re.DOTALL
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Student:
    """A student: name, the platform's id if there is one, and the platform."""

    name: str
    id: str = ""
    platform: str = ""
    """"moodle", "canvas", or empty."""
    late: bool = False
    key: str = ""
    """The identity of a student without an id."""
    upload: int = field(default=0, compare=False)
    """Canvas's number of the file, which increases with the time of the upload; 0 on other platforms."""

    @property
    def identity(self) -> tuple[str, str] | None:
        """A value that is equal in two submissions if they are one student's; None if the path gives no identity."""
        if self.id:
            return self.platform, self.id
        return ("", self.key) if self.key else None


def student_of(part: str, platform: str) -> Student | None:
    """Return the student in a name written by the platform; None if the name does not have the platform's pattern."""
    found = PATTERNS[platform].fullmatch(part)
    if found is None:
        return None
    more = found.groupdict()
    late, upload = more.get("late") is not None, int(more.get("file") or 0)
    return Student(display_name(found["name"]), found["id"], platform, late, upload=upload)


def plain_student(part: str, key: str) -> Student:
    """Return the student of a folder or file without a platform. The student is shown by its name and identified by `key`."""
    path = PurePosixPath(part)
    name = path.stem if path.suffix.lower() in (".ipynb", ".zip") else part
    return Student(display_name(name), key=key)


def platform_of_names(parts: Collection[str]) -> tuple[str, int]:
    """Return (the platform whose pattern all of these names have, or "", the largest number of names that have one pattern).

    The pattern must fit all names, because a student can choose a file name that looks like a platform's.
    """
    counts = {name: sum(pattern.fullmatch(part) is not None for part in parts) for name, pattern in PATTERNS.items()}
    best = max(counts, key=lambda name: counts[name])
    return (best if parts and counts[best] == len(parts) else ""), counts[best]


def display_name(name: str) -> str:
    """Return a name as it is shown and compared: NFC, stripped, at most 200 characters, without characters that are not shown.

    Of a name that has no other characters, their codes are returned.
    """
    shown = shown_text(unicodedata.normalize("NFC", name)).strip()
    return (shown or ascii(name)[1:-1])[:200]
