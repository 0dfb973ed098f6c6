"""The rows of a table in order of time, for pictures that look again and again at a trace that grows.

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
        self.times = self.rows = np.empty(0, np.int64)
        self.sorted_from = 0
        self._trace: Trace | None = None
        self._spilled = self._count = 0
        self._times = self._rows = np.empty(0, np.int64)

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
            room = np.empty((2, max(2 * count, 64)), np.int64)
            room[0, :old], room[1, :old] = self._times[:old], self._rows[:old]
            self._times, self._rows = room
        first = int(np.searchsorted(self._times[:old], new.min(), side="right"))
        self._times[old:count], self._rows[old:count] = new, np.arange(old, count)
        order = np.argsort(self._times[first:count], kind="stable")
        self._times[first:count] = self._times[first:count][order]
        self._rows[first:count] = self._rows[first:count][order]
        self._count, self.sorted_from = count, first

    def between(self, trace: Trace, first: int, last: int) -> np.ndarray:
        """The rows with a time in [first, last] ns, in order of time."""
        data = self.follow(trace)
        low, high = self.times.searchsorted(first, "left"), self.times.searchsorted(last, "right")
        return data[self.rows[low:high]]

    def touching(self, trace: Trace, first: int, last: int) -> np.ndarray:
        """Of a table that is ordered by `end` and has a `start`: the rows that were going on in [first, last] ns."""
        data = self.follow(trace)
        rows = self.rows[self.times.searchsorted(first, "left") :]
        return data[rows[data[rows, trace.tables[self.table].columns.index("start")] < last]]
