"""Student identities from the names that Moodle and Canvas write: one part of a path, and never a part below it.

Moodle (assignment, "Download all submissions"): `Ada Lovelace_12345_assignsubmission_file_/x.ipynb`, or all files in one
folder, `Ada Lovelace_12345_assignsubmission_file_x.ipynb`. The number is the participant's, "Participant 12345" in the grading
worksheet's column Identifier; Moodle replaces `_` in the full name, so the first number is the platform's.

Canvas: `lovelaceada_LATE_123_456_x.ipynb`: the sortable name, LATE if it was, the user's id (column ID), the file's id,
which grows with the time of the upload, and the file's name. Canvas removes `_number_` from names, so the first two
numbers are the platform's.

What follows these beginnings, and every part of the path below, is chosen by the student and says nothing here.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import PurePosixPath

__all__ = ["PATTERNS", "Student", "platform_of_names", "plain_student", "student_of"]

_NUMBER = "(?:0|[1-9][0-9]{0,18})"
PATTERNS = {
    "moodle": re.compile(rf"(?P<name>[^_]+)_(?P<id>{_NUMBER})_assignsubmission_(?:file|onlinetext)(?:_.*)?", re.DOTALL),
    "canvas": re.compile(
        rf"(?P<name>.+?)_(?P<late>(?i:late)_)?(?P<id>{_NUMBER}|anon_[A-Za-z0-9]+)_(?P<file>{_NUMBER})_(?P<rest>.+)", re.DOTALL
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Student:
    """Who handed in: a name to show, the platform's id if there is one, and the platform."""

    name: str
    id: str = ""
    platform: str = ""
    """"moodle", "canvas", or empty."""
    late: bool = False
    key: str = ""
    """What two attempts of one student share where there is no id."""
    upload: int = field(default=0, compare=False)
    """Canvas's number of the file, which grows with the time of the upload; 0 elsewhere."""

    @property
    def identity(self) -> tuple[str, str] | None:
        """What is the same in two submissions of one student; None where the path does not tell."""
        if self.id:
            return self.platform, self.id
        return ("", self.key) if self.key else None


def student_of(part: str, platform: str) -> Student | None:
    """The student whom the platform names in this part of a path; None if the platform did not write it."""
    found = PATTERNS[platform].fullmatch(part)
    if found is None:
        return None
    more = found.groupdict()
    late, upload = more.get("late") is not None, int(more.get("file") or 0)
    return Student(shown(found["name"]), found["id"], platform, late, upload=upload)


def plain_student(part: str, key: str) -> Student:
    """The student of a folder or file that no platform has named: its own name."""
    path = PurePosixPath(part)
    name = path.stem if path.suffix.lower() in (".ipynb", ".zip") else part
    return Student(shown(name), key=key)


def platform_of_names(parts: Collection[str]) -> tuple[str, int]:
    """(the platform that wrote all of these names, or "", how many of them look like the one that fits best).

    All or none: where names of one folder are chosen by different hands, one that looks like a platform's proves nothing.
    """
    counts = {name: sum(pattern.fullmatch(part) is not None for part in parts) for name, pattern in PATTERNS.items()}
    best = max(counts, key=lambda name: counts[name])
    return (best if parts and counts[best] == len(parts) else ""), counts[best]


def shown(name: str) -> str:
    """A name as it is shown and compared: composed characters, no space at its ends, at most 200 characters."""
    return unicodedata.normalize("NFC", name).strip()[:200]
