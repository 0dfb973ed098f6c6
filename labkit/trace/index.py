"""Indexes of the packed tables: cursors that follow a trace while it grows, so that a question costs what is new.

What an index keeps is a cache: it may be asked about any trace, and the answer depends on the trace only. Where old rows were
spilled, or the trace is another, it begins anew. An index is used by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .trace import Trace
from .vocabulary import TRAINING

__all__ = ["BlockIndex", "Growing", "Lookup", "Rows", "SortedRows", "Unread"]


class Rows:
    """Some rows of a table. `rows["start"]` is a column, shape (n,); `rows.columns("start", "end")` a list of them. Only the
    columns that are asked for are copied. `places`: which rows of `data`, None: all.
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
        """Several columns, in this order."""
        return [self[name] for name in names]

    def at(self, places: np.ndarray, *names: str) -> list[np.ndarray]:
        """These columns of the rows at `places`."""
        return [self[name][places] for name in names]

    def where(self, kept: np.ndarray) -> Rows:
        """The rows for which `kept` (booleans or places) holds."""
        if self._places is not None:
            return Rows(self._data, self.names, self._places[kept])
        return Rows(self._data, self.names, np.flatnonzero(kept) if kept.dtype == bool else kept)


class Unread:
    """How far one table has been read. `advance(trace)` returns (all rows kept, shape (n, columns); the place of the first
    unread one; whether the rows before it are where they were). Of another trace everything is unread.
    """

    def __init__(self, table: str):
        self.table = table
        self._trace: Trace | None = None
        self._read = self._spilled = 0

    def advance(self, trace: Trace) -> tuple[np.ndarray, int, bool]:
        """See the class."""
        with trace.lock:
            table = trace.tables[self.table]
            rows, spilled = table.rows(), table.spilled
        same = trace is self._trace and spilled == self._spilled and spilled + len(rows) >= self._read
        first = max(0, self._read - spilled) if trace is self._trace and spilled + len(rows) >= self._read else 0
        self._trace, self._spilled, self._read = trace, spilled, spilled + len(rows)
        return rows, first, same


class Growing:
    """An array that grows at its end, and of which the last entries can be replaced, at the cost of what is new."""

    __slots__ = ("_count", "_data")

    def __init__(self, dtype: Any):
        self._data, self._count = np.empty(0, dtype), 0

    @property
    def values(self) -> np.ndarray:
        """All entries."""
        return self._data[: self._count]

    def put(self, first: int, new: np.ndarray) -> None:
        """`new` from place `first` on; what was behind it is gone."""
        end = first + len(new)
        if end > len(self._data):
            data = np.empty(max(end + end // 2, 64), self._data.dtype)
            data[:first] = self._data[:first]
            self._data = data
        self._data[first:end] = new
        self._count = end


class SortedRows:
    """All rows of a table in order of time, kept sorted while the trace grows. `by`: the column that is the time, ns.

    After `follow`, `times` and `rows` are the times in order and the numbers of the rows that they belong to; rows of one
    time stay in the order in which they came. `sorted_from`: the first place that the last `follow` changed. Roles report
    one after the other, so rows come almost in order, and only the newest have to be sorted again.
    """

    def __init__(self, table: str, by: str):
        self.table, self.by = table, by
        self.sorted_from = 0
        self._unread = Unread(table)
        self._times, self._rows = Growing(np.int64), Growing(np.int64)

    @property
    def times(self) -> np.ndarray:
        """Times in order, ns."""
        return self._times.values

    @property
    def rows(self) -> np.ndarray:
        """The numbers of the rows, in order of time."""
        return self._rows.values

    def follow(self, trace: Trace) -> Rows:
        """Take in what is new; all rows of the table in the order in which they came."""
        data, first, same = self._unread.advance(trace)
        names = trace.tables[self.table].columns
        first = first if same else 0
        times = self._times.values[:first]
        self.sorted_from = first
        if len(data) > first:
            new = data[first:, names.index(self.by)].astype(np.int64)
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
        return Rows(data, names)


SIZE = 1024  # rows of a block


class BlockIndex:
    """A min-max index: the rows of one stretch of time, out of millions, without looking at all of them. `by`: the column
    that is the time, ns; `since`: of rows that last, the column that says when they began.

    Rows come almost in order of time, so the earliest and the latest time of each block of rows say which few blocks a
    stretch touches. Rows are returned in order of time, those of one time in the order in which they came.
    """

    def __init__(self, table: str, by: str, since: str | None = None):
        self.table, self.by, self.since = table, by, since or by
        self._unread = Unread(table)
        self._begins, self._first, self._ends = (Growing(np.int64) for _ in range(3))  # of each block
        self._count = 0

    def between(self, trace: Trace, first: int, last: int) -> Rows:
        """Those with a time in [first, last]."""
        rows = self._follow(trace)
        near = self._rows((self._ends.values >= first) & (self._first.values <= last))
        time = rows[self.by][near]
        kept = (time >= first) & (time <= last)
        return self._in_order(rows, near[kept], time[kept])

    def touching(self, trace: Trace, first: int, last: int) -> Rows:
        """Those that had begun before `last` and were not over before `first`."""
        rows = self._follow(trace)
        near = self._rows((self._ends.values >= first) & (self._begins.values < last))
        time = rows[self.by][near]
        kept = (time >= first) & (rows[self.since][near] < last)
        return self._in_order(rows, near[kept], time[kept])

    def until(self, trace: Trace, times: Iterable[int]) -> list[int]:
        """How many have a time before or at each of `times`."""
        rows = self._follow(trace)
        ends, begins = self._ends.values, self._first.values
        sizes = np.full(len(ends), SIZE)
        sizes[-1:] = self._count - SIZE * (len(ends) - 1)
        found = []
        for t in times:
            cut = self._rows((ends > t) & (begins <= t))
            found.append(int(sizes[ends <= t].sum() + np.count_nonzero(rows[self.by][cut] <= t)))
        return found

    def newest(self, trace: Trace, t: int, most: int) -> Rows:
        """Of those up to `t` about the last `most`, by whole blocks."""
        rows = self._follow(trace)
        return self._some(rows, t, np.argsort(-np.minimum(self._ends.values, t), kind="stable"), most)

    def oldest(self, trace: Trace, t: int, most: int) -> Rows:
        """Of those up to `t` about the first `most`, by whole blocks."""
        rows = self._follow(trace)
        return self._some(rows, t, np.argsort(self._first.values, kind="stable"), most)

    def _some(self, rows: Rows, t: int, blocks: np.ndarray, most: int) -> Rows:
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
    def _in_order(rows: Rows, kept: np.ndarray, time: np.ndarray) -> Rows:
        return rows.where(kept[np.argsort(time, kind="stable")] if (time[1:] < time[:-1]).any() else kept)

    def _follow(self, trace: Trace) -> Rows:
        """Take in what is new; all rows."""
        data, first, same = self._unread.advance(trace)
        rows = Rows(data, trace.tables[self.table].columns)
        if not same or len(data) > first:
            full = first // SIZE if same else 0  # the last block may have been a part of one
            new, starts = Rows(data[full * SIZE :], rows.names), np.arange(0, len(data) - full * SIZE, SIZE)
            for values, which, best in (
                (self._begins, self.since, np.minimum), (self._first, self.by, np.minimum), (self._ends, self.by, np.maximum)
            ):  # fmt: skip
                values.put(full, best.reduceat(new[which], starts) if len(new) else np.empty(0, np.int64))
            self._count = len(data)
        return rows


class Lookup:
    """Min-max indexes of the three large tables of whatever trace is asked about, to be shared by what draws one figure.

    `spans` by their ends, `applies` by their time, `messages` by when they arrived, `sent` by when they were sent.
    """

    def __init__(self) -> None:
        self.spans = BlockIndex("spans", "end", "start")
        self.applies = BlockIndex("applies", "time")
        self.messages = BlockIndex("messages", "received", "sent")
        self.sent = BlockIndex("messages", "sent")
        self._unread = Unread("messages")
        self._training = np.empty(0)

    def training_bytes(self, trace: Trace) -> np.ndarray:
        """Payload bytes of training by sender in the rows that are kept, shape (roles,)."""
        data, first, same = self._unread.advance(trace)
        new = Rows(data if not same else data[first:], trace.tables["messages"].columns)
        if not same:
            self._training = np.zeros(len(trace.roles))
        if len(new):
            new = new.where(new["category"] == TRAINING)
            self._training = self._training + np.bincount(new["sender"], new["bytes"], len(trace.roles))
        return self._training
