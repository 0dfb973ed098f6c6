"""Which notebooks of one student are graded: one policy for a batch.

Attempts are ordered by what the platform gives: Canvas's number of the uploaded file, else the time of the file in the
platform's zip (in a folder: the file's time, which unpacking takes from there). Names, and times inside a zip that a student
made, say nothing. Notebooks of one moment (two files at once, or several in a student's zip) are ordered by name: first the
one that is named as the assignment, then the one in the fewest folders, then by the alphabet.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import BadInput

__all__ = ["LAST", "MOST_GRADED", "AttemptPolicy"]

MOST_GRADED = 10  # attempts of one student


@dataclass(frozen=True)
class AttemptPolicy:
    """`kind` is "last", "first" or "best"; `most`: how many of the last attempts are graded, of which the best counts."""

    kind: str = "last"
    most: int = 1

    @classmethod
    def of(cls, text: str) -> AttemptPolicy:
        """Read `last`, `first` or `best-of-N`.

        Raises:
            BadInput: it is none of these.
        """
        if text in ("last", "first"):
            return cls(text)
        found = re.fullmatch(r"best-of-([1-9][0-9]?)", text, re.ASCII)
        if found and int(found[1]) <= MOST_GRADED:
            return cls("best", int(found[1]))
        raise BadInput(f"attempts are {text!r}; allowed: last, first, best-of-N with N from 1 to {MOST_GRADED}.")

    def __str__(self) -> str:
        return f"best-of-{self.most}" if self.kind == "best" else self.kind

    @property
    def sentence(self) -> str:
        """What a student reads of it."""
        if self.kind == "best":
            return f"the best of the last {self.most} counts" if self.most > 1 else "the last one counts"
        return f"the {self.kind} one counts"


LAST = AttemptPolicy()
