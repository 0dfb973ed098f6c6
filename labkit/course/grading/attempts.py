"""The policy of a batch for students with several attempts: which of their notebooks are graded.

Attempts are ordered by data of the platform: by Canvas's number of the uploaded file, else by the time of the file in
the platform's zip (in a folder, by the time of the file, which unpacking preserves). File names, and times inside a
student's zip, are not used. Of notebooks with equal times, the notebook with the name of the assignment comes first;
the others are ordered by the number of folders in the path, then alphabetically.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...errors import BadInput

MAX_GRADED = 10  # the most attempts of one student that are graded


@dataclass(frozen=True)
class AttemptPolicy:
    """Which attempts are graded. `kind`: "last", "first" or "best". With "best" the best of the last `most` attempts counts."""

    kind: str = "last"
    most: int = 1

    @classmethod
    def parse(cls, text: str) -> AttemptPolicy:
        """Read `last`, `first` or `best-of-N`. Raises `BadInput` if the text is something else."""
        if text in ("last", "first"):
            return cls(text)
        found = re.fullmatch(r"best-of-([1-9][0-9]?)", text, re.ASCII)
        if found and int(found[1]) <= MAX_GRADED:
            return cls("best", int(found[1]))
        raise BadInput(f"attempts are {text!r}; allowed: last, first, best-of-N with N from 1 to {MAX_GRADED}.")

    def __str__(self) -> str:
        return f"best-of-{self.most}" if self.kind == "best" else self.kind

    @property
    def sentence(self) -> str:
        if self.kind == "best":
            return f"the best of the last {self.most} counts" if self.most > 1 else "the last one counts"
        return f"the {self.kind} one counts"


LAST = AttemptPolicy()
