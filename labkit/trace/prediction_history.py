"""History of predictions: the class that the model predicts for a few held-out samples and for every cell of a grid.

An entry is two numbers and two byte strings, with one byte for each predicted class. Memory is bounded: every 2^k-th
entry and the newest entry are kept. When more than `MAX_ENTRIES` entries are kept, k increases by one. The entries always
cover the whole run, with a resolution that decreases as the run gets longer. The choice of entries does not depend on how
they were batched, so equal runs keep equal entries.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..formats import ArrayForm, Arrays, Mismatch

MAX_ENTRIES = 400
NO_ANSWER = 255  # in place of a class, if the output of the model is not finite
MEMBERS = ("looks.when", "looks.samples", "looks.grid")


class PredictedClasses(NamedTuple):
    """Predictions of the model of `update` at `time` (ns).

    `samples`: one byte per held-out sample. `grid`: one byte per cell, row by row, in order of increasing y.
    """

    time: int
    update: int
    samples: bytes
    grid: bytes


class PredictionHistory:
    """The predictions of a run, in order of time. `thinned`: number of entries dropped to bound memory."""

    def __init__(self, most: int = MAX_ENTRIES):
        self.most = most
        self.thinned = 0
        self._added, self._stride = 0, 1
        self._kept: list[PredictedClasses] = []

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[PredictedClasses]:
        return iter(tuple(self._kept))

    def add(self, time: int, update: int, samples: bytes, grid: bytes) -> None:
        if self._added and (self._added - 1) % self._stride:
            self._kept.pop()  # this entry was kept only because it was the newest
        self._kept.append(PredictedClasses(time, update, samples, grid))
        if len(self._kept) > self.most:
            newest = [] if self._added % (2 * self._stride) == 0 else self._kept[-1:]
            regular = self._kept if self._added % self._stride == 0 else self._kept[:-1]
            self._stride, self._kept = 2 * self._stride, regular[::2] + newest
        self._added += 1
        self.thinned = self._added - len(self._kept)

    def at(self, t: int) -> PredictedClasses | None:
        """Return the newest entry at or before `t` (ns), or None before the first entry."""
        kept = self._kept
        found = bisect_right(kept, t, key=lambda entry: entry.time)
        return kept[found - 1] if found else None

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all entries as arrays for a file, or {} if there are none.

        The arrays are (time, update), int64 of shape (entries, 2), and the predictions, uint8 of shapes (entries,
        samples) and (entries, cells).
        """
        if not self._kept:
            return {}
        when = np.array([(entry.time, entry.update) for entry in self._kept], dtype=np.int64)
        samples, grid = (
            np.frombuffer(b"".join(rows), np.uint8).reshape(len(self._kept), -1)
            for rows in ([entry.samples for entry in self._kept], [entry.grid for entry in self._kept])
        )
        return dict(zip(MEMBERS, (when, samples, grid)))

    @classmethod
    def of(cls, file: Arrays, thinned: int = 0) -> PredictionHistory:
        """Restore a history from a file with the output of `arrays`; it is empty if the arrays are missing.

        Raises `Mismatch` if they have another form.
        """
        history = cls()
        history.thinned = thinned
        if MEMBERS[0] not in file.declared:
            return history
        when = file.read(MEMBERS[0], ArrayForm(np.int64, (None, 2)))
        samples, grid = (file.read(name, ArrayForm(np.uint8, (len(when), None))) for name in MEMBERS[1:])
        if len(when) > history.most:
            raise Mismatch(f"{MEMBERS[0]} has {len(when)} rows, not at most {history.most}")
        rows = zip(when.tolist(), samples, grid)
        history._kept = [
            PredictedClasses(time, update, classes.tobytes(), cells.tobytes())
            for (time, update), classes, cells in rows
        ]
        return history
