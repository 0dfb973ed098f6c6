"""Indexes of the packed tables. They follow a growing trace, so that the cost of a query depends on the number of new
rows only.

The state of an index is a cache: an index accepts any trace, and the result of a query depends on the trace only. The
index is rebuilt if old rows were spilled, or if the trace is not that of the previous query. An index must be used by one
thread at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import DTypeLike

from .schema import TRAINING
from .trace import Trace


class SelectedRows:
    """Selected rows of a table. `rows["start"]` is a column, shape (n,), and `rows.columns("start", "end")` is a list of
    columns.

    Only the requested columns are copied. `places`: indices of the rows in `data`; None: all rows.
    """

    __slots__ = ("_data", "_places", "names")

    def __init__(self, data: np.ndarray, names: Sequence[str], places: np.ndarray | None = None):
        self._data, self.names, self._places = data, names, places

    def __len__(self) -> int:
        return len(self._data if self._places is None else self._places)

    def __getitem__(self, name: str) -> np.ndarray:
        column: np.ndarray = self._data[:, self.names.index(name)]
        return column if self._places is None else column[self._places]

    def columns(self, *names: str) -> list[np.ndarray]:
        return [self[name] for name in names]

    def at(self, places: np.ndarray, *names: str) -> list[np.ndarray]:
        return [self[name][places] for name in names]

    def where(self, kept: np.ndarray) -> SelectedRows:
        """Return the rows selected by a boolean mask or indices."""
        if self._places is not None:
            return SelectedRows(self._data, self.names, self._places[kept])
        return SelectedRows(self._data, self.names, np.flatnonzero(kept) if kept.dtype == bool else kept)


# Each query object has its own cursors and belongs to one panel. If the trace had them, figures in several threads would
# share them under a lock.
class Unread:
    """Read position in one table.

    When the trace is not that of the previous call, all rows are unread.
    """

    def __init__(self, table: str):
        self.table = table
        self._trace: Trace | None = None
        self._read = self._spilled = 0

    def advance(self, trace: Trace) -> tuple[np.ndarray, int, bool]:
        """Return (all rows that are kept, the index of the first unread row, whether the rows before it are unchanged).

        The rows have shape (n, columns). All of them are read afterwards.
        """
        with trace.lock:
            table = trace.tables[self.table]
            rows, spilled = table.rows(), table.spilled
        same = trace is self._trace and spilled == self._spilled and spilled + len(rows) >= self._read
        first = max(0, self._read - spilled) if trace is self._trace and spilled + len(rows) >= self._read else 0
        self._trace, self._spilled, self._read = trace, spilled, spilled + len(rows)
        return rows, first, same


class Growing:
    """An array that can grow at its end, and whose last entries can be replaced. The cost depends on the number of new
    entries.
    """

    __slots__ = ("_count", "_data")

    def __init__(self, dtype: DTypeLike):
        self._data, self._count = np.empty(0, dtype), 0

    @property
    def values(self) -> np.ndarray:
        return self._data[: self._count]

    def put(self, first: int, new: np.ndarray) -> None:
        """Write `new` at index `first`, and truncate the array after these entries."""
        end = first + len(new)
        if end > len(self._data):
            data = np.empty(max(end + end // 2, 64), self._data.dtype)
            data[:first] = self._data[:first]
            self._data = data
        self._data[first:end] = new
        self._count = end


class SortedRows:
    """All rows of a table, sorted by time, and updated incrementally while the trace grows. `by`: the column with the
    time (ns).

    After `follow`, `times` are the sorted times and `rows` the corresponding row numbers. Rows of equal time keep their
    order of arrival. `sorted_from`: the first index changed by the last `follow`. Roles report in turn, so rows are
    almost sorted, and only the newest rows are sorted again.
    """

    def __init__(self, table: str, by: str):
        self.table, self.by = table, by
        self.sorted_from = 0
        self._unread = Unread(table)
        self._times, self._rows = Growing(np.int64), Growing(np.int64)

    @property
    def times(self) -> np.ndarray:
        return self._times.values

    @property
    def rows(self) -> np.ndarray:
        return self._rows.values

    def follow(self, trace: Trace) -> SelectedRows:
        """Process new rows, and return all rows of the table in order of arrival."""
        data, first, same = self._unread.advance(trace)
        names = trace.tables[self.table].columns
        first = first if same else 0
        times = self._times.values[:first]
        self.sorted_from = first
        if len(data) > first:
            new = data[first:, names.index(self.by)].astype(np.int64)
            # Roles report in turn, so new rows are older than only a few of the known ones: what is before `place` keeps its
            # order.
            place = int(times.searchsorted(new.min(), side="right"))
            when = np.concatenate([times[place:], new])
            which = np.concatenate([self._rows.values[place:first], np.arange(first, len(data))])
            if (when[1:] < when[:-1]).any():
                order = np.argsort(when, kind="stable")
                when, which = when[order], which[order]
            self._times.put(place, when)
            self._rows.put(place, which)
            self.sorted_from = place
        elif not same:
            self._times.put(0, np.empty(0, np.int64))
            self._rows.put(0, np.empty(0, np.int64))
        return SelectedRows(data, names)


SIZE = 1024  # rows per block


class BlockIndex:
    """Min-max index: finds the rows of a time interval among millions without a full scan.

    `by`: the column with the time (ns). `since`: the column with the begin (ns), for rows that have a duration.

    Rows are almost sorted by time. The earliest and the latest time of each block of rows therefore identify the few
    blocks that an interval intersects. Rows are returned sorted by time; rows of equal time keep their order of arrival.
    """

    def __init__(self, table: str, by: str, since: str | None = None):
        self.table, self.by, self.since = table, by, since or by
        self._unread = Unread(table)
        self._begins, self._first, self._ends = (Growing(np.int64) for _ in range(3))  # of each block
        self._count = 0

    def between(self, trace: Trace, first: int, last: int) -> SelectedRows:
        """Return the rows with a time in [first, last] (both included)."""
        rows = self._follow(trace)
        near = self._rows((self._ends.values >= first) & (self._first.values <= last))
        time = rows[self.by][near]
        kept = (time >= first) & (time <= last)
        return self._in_order(rows, near[kept], time[kept])

    def touching(self, trace: Trace, first: int, last: int) -> SelectedRows:
        """Return the rows that began before `last` and ended at or after `first`."""
        rows = self._follow(trace)
        near = self._rows((self._ends.values >= first) & (self._begins.values < last))
        time = rows[self.by][near]
        kept = (time >= first) & (rows[self.since][near] < last)
        return self._in_order(rows, near[kept], time[kept])

    def until(self, trace: Trace, times: Iterable[int]) -> list[int]:
        """Return, for each of `times` (ns), the number of rows with a time at or before it."""
        rows = self._follow(trace)
        ends, begins = self._ends.values, self._first.values
        sizes = np.full(len(ends), SIZE)
        sizes[-1:] = self._count - SIZE * (len(ends) - 1)
        found = []
        for t in times:
            cut = self._rows((ends > t) & (begins <= t))
            found.append(int(sizes[ends <= t].sum() + np.count_nonzero(rows[self.by][cut] <= t)))
        return found

    def newest(self, trace: Trace, t: int, most: int) -> SelectedRows:
        """Return about the newest `most` rows with a time up to `t` (ns). Whole blocks are read, so the number is not
        exact.
        """
        rows = self._follow(trace)
        return self._some(rows, t, np.argsort(-np.minimum(self._ends.values, t), kind="stable"), most)

    def oldest(self, trace: Trace, t: int, most: int) -> SelectedRows:
        """Return about the oldest `most` rows with a time up to `t` (ns). Whole blocks are read, so the number is not
        exact.
        """
        rows = self._follow(trace)
        return self._some(rows, t, np.argsort(self._first.values, kind="stable"), most)

    def _some(self, rows: SelectedRows, t: int, blocks: np.ndarray, most: int) -> SelectedRows:
        blocks = blocks[self._first.values[blocks] <= t][: -(-most // SIZE) + 1]
        chosen = np.zeros(len(self._first.values), dtype=bool)
        chosen[blocks] = True
        near = self._rows(chosen)
        time = rows[self.by][near]
        return self._in_order(rows, near[time <= t], time[time <= t])

    def _rows(self, blocks: np.ndarray) -> np.ndarray:
        rows = (np.flatnonzero(blocks)[:, None] * SIZE + np.arange(SIZE)).ravel()
        return rows[rows < self._count]

    @staticmethod
    def _in_order(rows: SelectedRows, kept: np.ndarray, time: np.ndarray) -> SelectedRows:
        return rows.where(kept[np.argsort(time, kind="stable")] if (time[1:] < time[:-1]).any() else kept)

    def _follow(self, trace: Trace) -> SelectedRows:
        data, first, same = self._unread.advance(trace)
        rows = SelectedRows(data, trace.tables[self.table].columns)
        if not same or len(data) > first:
            full = first // SIZE if same else 0  # the last block may have been partial
            new, starts = SelectedRows(data[full * SIZE :], rows.names), np.arange(0, len(data) - full * SIZE, SIZE)
            for values, which, best in (
                (self._begins, self.since, np.minimum), (self._first, self.by, np.minimum), (self._ends, self.by, np.maximum)
            ):  # fmt: skip
                values.put(full, best.reduceat(new[which], starts) if len(new) else np.empty(0, np.int64))
            self._count = len(data)
        return rows


class Lookup:
    """Min-max indexes of the large tables of a trace, for the queries of one panel.

    `spans`: spans by end. `applies`: applications by time. `messages`: messages by time of arrival. `sent`: messages by
    send time. `communications`: communications by end.
    """

    def __init__(self) -> None:
        self.spans = BlockIndex("spans", "end", "start")
        self.applies = BlockIndex("applies", "time")
        self.messages = BlockIndex("messages", "received", "sent")
        self.communications = BlockIndex("communications", "end", "start")
        self.sent = BlockIndex("messages", "sent")
        self._unread = Unread("messages")
        self._training = np.empty(0)

    def training_bytes(self, trace: Trace) -> np.ndarray:
        """Return the payload bytes of training messages by sender, summed over the rows that are kept, shape (roles,)."""
        data, first, same = self._unread.advance(trace)
        new = SelectedRows(data if not same else data[first:], trace.tables["messages"].columns)
        if not same:
            self._training = np.zeros(len(trace.roles))
        if len(new):
            new = new.where(new["category"] == TRAINING)
            self._training = self._training + np.bincount(new["sender"], new["bytes"], len(trace.roles))
        return self._training
