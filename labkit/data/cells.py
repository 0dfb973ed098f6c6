"""What a cell of a table is. One rule for CSV files, for their headers, and for labels given as an array of text.

    missing   one of `MISSING`, whatever the case of its letters
    a number  ASCII digits with sign, point and exponent, finite; True and False count as 1 and 0
    a word    anything else

Labels are class ids if all of them are whole numbers, written with digits. Otherwise they are words, and the ids are given to the
words in sorted order, or in the order in which the class names are given.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

import numpy as np

from ..errors import BadInput, nearest, shown

# What pandas reads as missing (with "none", "-nan" and the codes of spreadsheets), "?" of the UCI repository, "." of SAS.
MISSING: tuple[str, ...] = (
    "", "?", ".", "na", "n/a", "nan", "-nan", "null", "none", "<na>", "nat", "#n/a", "#n/a n/a", "#na", "1.#ind", "-1.#ind",
    "1.#qnan", "-1.#qnan",
)  # fmt: skip
# float() also reads "1_000", "nan" and "infinity"
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
TRUTH = {"true": 1.0, "false": 0.0}


class Cells:
    """The rule. `missing`: texts that mean that a value is missing."""

    def __init__(self, missing: Sequence[str] = MISSING):
        if not isinstance(missing, (list, tuple, set, frozenset)) or not all(isinstance(text, str) for text in missing):
            raise BadInput(f"missing={shown(missing)} is not allowed; it is a list of texts, as ['', 'NA'].")
        self._missing = frozenset(text.strip().lower() for text in missing)

    def missing(self, cell: str) -> bool:
        """Return whether the cell means that the value is missing. An empty cell always does."""
        return not cell or cell.lower() in self._missing

    def number(self, cell: str) -> float | None:
        """Return the number in the cell; None if it is missing, or a word."""
        if self.missing(cell):
            return None
        if NUMBER.fullmatch(cell) is None:
            return TRUTH.get(cell.lower())
        value = float(cell)
        return value if math.isfinite(value) else None

    def word(self, cell: str) -> bool:
        return not self.missing(cell) and self.number(cell) is None


def label_ids(
    cells: Sequence[str], names: tuple[str, ...], rule: Cells, place: Callable[[int], str], what: str
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return class ids (n,) int64, and the class names; no names if all labels are whole numbers and `names` is empty.

    `names`: the classes, if they are known. `place(i)`: where cell i is, for messages; `what`: the name of all of them. Raises
    `BadInput` if a label is missing, is none of `names`, or is a number that is no label.
    """
    for i, cell in enumerate(cells):
        if rule.missing(cell):
            raise BadInput(
                f"{place(i)} is {f'{cell!r}, which means missing' if cell else 'empty'}; it must be a label: leave the sample "
                f"out{f', or give missing=() if {cell!r} is the name of a class' if cell else ''}."
            )
    if names:
        known = {name: i for i, name in enumerate(names)}
        for i, cell in enumerate(cells):
            if cell not in known:
                raise nearest("class", cell, names, f"It is at {place(i)}.")
        return np.array([known[cell] for cell in cells], dtype=np.int64), names
    values = [None if cell.lower() in TRUTH else rule.number(cell) for cell in cells]
    if any(value is None for value in values):
        words, ids = np.unique(np.array(cells), return_inverse=True)
        if len(words) < 2:
            raise BadInput(
                f"{what} is {shown(str(words[0]))} everywhere: there is only one class. A classification needs two; if others "
                "exist, name all of them (classes=...)."
            )
        return ids.reshape(-1).astype(np.int64), tuple(str(word) for word in words)
    for i, value in enumerate(values):
        if value is None or not (0 <= value < 2**53 and value == int(value)):
            raise BadInput(
                f"{place(i)}: {shown(cells[i])} is no label; labels are words or whole numbers from 0 on (for a regression: "
                "regression=True)."
            )
    return np.array(values, dtype=np.int64), ()
