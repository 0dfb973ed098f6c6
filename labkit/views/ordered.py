"""All rows of a table in order of time, for sums up to a moment in a trace that grows.

Roles report one after the other, so rows come almost in order: only the newest have to be sorted again. What is kept
is a shortcut and no state: the same trace gives the same answers, whatever was asked before.
"""

from __future__ import annotations

import numpy as np

from ..trace.trace import Trace

__all__ = ["Ordered"]


class Ordered:
    """Follows one table of whatever trace it is asked about. `by`: the column that says when, in ns.

    After `follow`, `times` and `rows` are the times, in order, and the numbers of the rows that they belong to; rows of
    one time stay in the order in which they came. `sorted_from`: the first place that the last `follow` changed.
    """

    def __init__(self, table: str, by: str):
        self.table, self.by = table, by
        self.times, self.rows = np.empty(0, np.int64), np.empty(0, np.int32)
        self.sorted_from = 0
        self._trace: Trace | None = None
        self._spilled = self._count = 0
        self._times, self._rows = self.times, self.rows

    def follow(self, trace: Trace) -> np.ndarray:
        """Take in what is new; all rows of the table, shape (rows, columns), in the order in which they came."""
        with trace.lock:
            table = trace.tables[self.table]
            data, spilled, column = table.rows(), table.spilled, table.columns.index(self.by)
        if trace is not self._trace or spilled != self._spilled or len(data) < self._count:
            self._trace, self._spilled, self._count = trace, spilled, 0
        self.sorted_from = self._count
        if len(data) > self._count:
            self._take_in(data[self._count :, column].astype(np.int64))
        self.times, self.rows = self._times[: self._count], self._rows[: self._count]
        return data

    def _take_in(self, new: np.ndarray) -> None:
        old, count = self._count, self._count + len(new)
        if count > len(self._times):
            more = max(count // 2, 64)
            self._times = np.concatenate([self._times[:old], np.empty(len(new) + more, np.int64)])
            self._rows = np.concatenate([self._rows[:old], np.empty(len(new) + more, np.int32)])
        first = int(np.searchsorted(self._times[:old], new.min(), side="right"))
        self._times[old:count], self._rows[old:count] = new, np.arange(old, count)
        order = np.argsort(self._times[first:count], kind="stable")
        self._times[first:count] = self._times[first:count][order]
        self._rows[first:count] = self._rows[first:count][order]
        self._count, self.sorted_from = count, first
