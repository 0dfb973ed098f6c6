"""The rows of one stretch of time, out of millions, without looking at all of them.

Rows come almost in order of time. So it is enough to know of every block of rows its earliest and its latest time: a
stretch touches few blocks. That is a shortcut and no state: the same trace gives the same answers, whatever was asked
before, and it costs a few bytes a block, however long one watches.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..trace.trace import Trace

__all__ = ["Blocks"]

SIZE = 1024  # rows


class Blocks:
    """Follows one table of whatever trace it is asked about. `by`: the column that says when, in ns; `since`: that which
    says when it began, of rows that last.

    What it hands out are rows, shape (n, columns), in order of time; rows of one time in the order in which they came.
    """

    def __init__(self, table: str, by: str, since: str | None = None):
        self.table, self.by, self.since = table, by, since or by
        self._trace: Trace | None = None
        self._spilled = self._count = 0
        self._begins = self._ends = np.empty(0)  # of each block: the earliest `since`, the latest `by`
        self._first = np.empty(0)  # the earliest `by`

    def between(self, trace: Trace, first: int, last: int) -> np.ndarray:
        """Those with a time in [first, last]."""
        data, column, _ = self._follow(trace)
        rows = self._rows((self._ends >= first) & (self._first <= last))
        time = data[rows, column]
        return self._in_order(data, rows[(time >= first) & (time <= last)], column)

    def touching(self, trace: Trace, first: int, last: int) -> np.ndarray:
        """Those that had begun before `last` and were not over before `first`."""
        data, column, since = self._follow(trace)
        rows = self._rows((self._ends >= first) & (self._begins < last))
        kept = (data[rows, column] >= first) & (data[rows, since] < last)
        return self._in_order(data, rows[kept], column)

    def until(self, trace: Trace, times: Iterable[int]) -> list[int]:
        """How many have a time before or at each of `times`."""
        data, column, _ = self._follow(trace)
        sizes = np.full(len(self._ends), SIZE)
        sizes[-1:] = self._count - SIZE * (len(self._ends) - 1)
        found = []
        for t in times:
            cut = self._rows((self._ends > t) & (self._first <= t))
            found.append(int(sizes[self._ends <= t].sum() + np.count_nonzero(data[cut, column] <= t)))
        return found

    def newest(self, trace: Trace, t: int, most: int) -> np.ndarray:
        """Of those up to `t` about the last so many, by whole blocks."""
        data, column, _ = self._follow(trace)
        return self._some(data, column, t, np.argsort(-np.minimum(self._ends, t), kind="stable"), most)

    def oldest(self, trace: Trace, t: int, most: int) -> np.ndarray:
        """Of those up to `t` about the first so many, by whole blocks."""
        data, column, _ = self._follow(trace)
        return self._some(data, column, t, np.argsort(self._first, kind="stable"), most)

    def _some(self, data: np.ndarray, column: int, t: int, blocks: np.ndarray, most: int) -> np.ndarray:
        blocks = blocks[self._first[blocks] <= t][: -(-most // SIZE) + 1]
        chosen = np.zeros(len(self._first), dtype=bool)
        chosen[blocks] = True
        rows = self._rows(chosen)
        return self._in_order(data, rows[data[rows, column] <= t], column)

    def _rows(self, blocks: np.ndarray) -> np.ndarray:
        rows = (np.flatnonzero(blocks)[:, None] * SIZE + np.arange(SIZE)).ravel()
        return rows[rows < self._count]

    @staticmethod
    def _in_order(data: np.ndarray, rows: np.ndarray, column: int) -> np.ndarray:
        found = data[rows]
        return found[np.argsort(found[:, column], kind="stable")]

    def _follow(self, trace: Trace) -> tuple[np.ndarray, int, int]:
        """Take in what is new; (all rows, where `by` is, where `since` is)."""
        with trace.lock:
            table = trace.tables[self.table]
            data, spilled = table.rows(), table.spilled
            column, since = table.columns.index(self.by), table.columns.index(self.since)
        if trace is not self._trace or spilled != self._spilled or len(data) < self._count:
            self._trace, self._spilled, self._count = trace, spilled, 0
        if len(data) > self._count or not self._count:
            full = self._count // SIZE  # the last block may have been a part of one
            new, starts = data[full * SIZE :], np.arange(0, len(data) - full * SIZE, SIZE)
            for name, which, best in (
                ("_begins", since, np.minimum), ("_first", column, np.minimum), ("_ends", column, np.maximum)
            ):  # fmt: skip
                values = best.reduceat(new[:, which], starts) if len(new) else np.empty(0)
                setattr(self, name, np.r_[getattr(self, name)[:full], values])
            self._count = len(data)
        return data, column, since
