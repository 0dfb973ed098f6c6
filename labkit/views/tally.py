"""How much has come by when: gradients or samples applied, or bytes sent, all together and sender by sender.

From the rows of the trace, each of which says how much and when; or, where a run was too fast to report all rows, from
what its roles have said now and then that they had applied. A gradient that several servers apply, each its part,
counts once. Between two moments the amount is taken to grow evenly.
"""

from __future__ import annotations

import numpy as np

from ..trace.trace import Trace
from ..trace.vocabulary import EVERYONE, TRAINING
from .ordered import Ordered

__all__ = ["AMOUNTS", "Tally", "grown"]

AMOUNTS = ("gradients", "samples", "bytes")


def grown(when: np.ndarray, total: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The amount at times `x`, if it was `total[i]` at `when[i]` (in order; of equal times the last counts) and 0 at 0."""
    after = np.searchsorted(when, x, side="right")
    before, following = after - 1, np.minimum(after, len(when) - 1)
    start = np.where(after > 0, when[before], 0)
    low = np.where(after > 0, total[before], 0.0)
    end = when[following]
    high = total[np.searchsorted(when, end, side="right") - 1]
    way = np.clip((x - start) / np.maximum(end - start, 1), 0.0, 1.0)
    return np.where(after < len(when), low + (high - low) * way, total[-1])


class Tally:
    """Follows the trace that it is asked about; `of`: one of `AMOUNTS`. What it keeps is a shortcut and no state."""

    def __init__(self, of: str = "gradients"):
        self.of = of
        self._rows = Ordered(*(("messages", "sent") if of == "bytes" else ("applies", "time")))
        self._amount = self._total = np.empty(0)
        self._sender = np.empty(0, np.int64)

    def course(self, trace: Trace, t: int, sender: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(times in ns, amounts by then) up to `t` ns, of all or of one sender. Both empty: not known."""
        if self._left_out(trace):
            return self._reported(trace, t, EVERYONE if sender is None else sender)
        self._follow(trace)
        count = int(self._rows.times.searchsorted(t, side="right"))
        when = self._rows.times[:count]
        if sender is None:
            return when, self._total[:count]
        who, amount = self._sender[:count], self._amount[:count]
        mine = np.flatnonzero((who == sender) | (who == EVERYONE))
        shared = np.where(who[mine] == EVERYONE, amount[mine] / max(1, len(trace.role_ids("worker"))), amount[mine])
        return when[mine], np.cumsum(shared)

    def by_worker(self, trace: Trace, edges: np.ndarray) -> np.ndarray | None:
        """What came from each worker by each of the times `edges` (ns, in order), shape (workers, edges), from what was
        known at the last of them. Work under way counts as far as it is done, if it lasts as long as the last did.
        """
        workers = np.array(trace.role_ids("worker"))
        if not len(workers):
            return None
        if self._left_out(trace):
            told = [self._reported(trace, int(edges[-1]), worker) for worker in workers.tolist()]
            return np.array([grown(*one, edges) if len(one[0]) else np.zeros(len(edges)) for one in told])
        self._follow(trace)
        count = int(self._rows.times.searchsorted(edges[-1], side="right"))
        when, who, amount = self._rows.times[:count], self._sender[:count], self._amount[:count]
        common = who == EVERYONE
        if common.any():
            all_of_it = grown(when[common], np.cumsum(amount[common]) / len(workers), edges)
            return np.repeat(all_of_it[None, :], len(workers), axis=0)
        place = np.full(len(trace.roles) + 1, -1)  # nobody's place is the last one's
        place[workers] = np.arange(len(workers))
        mine = np.flatnonzero((place[who] >= 0) & (amount > 0))
        order = mine[np.argsort(place[who[mine]], kind="stable")]  # worker by worker, each in order of time
        return _rows_by_worker(place[who[order]], when[order], amount[order], len(workers), edges)

    def _follow(self, trace: Trace) -> None:
        data = self._rows.follow(trace)
        first, count = self._rows.sorted_from, len(self._rows.times)
        if first == count == len(self._amount):
            return
        new = data[self._rows.rows[first:]]
        amount, sender = self._amounts(trace, new)
        self._amount = np.r_[self._amount[:first], amount]
        self._sender = np.r_[self._sender[:first], sender]
        before = self._total[first - 1] if first else 0.0
        self._total = np.r_[self._total[:first], before + np.cumsum(amount)]

    def _amounts(self, trace: Trace, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        columns = trace.tables[self._rows.table].columns
        sender = rows[:, columns.index("sender")]
        if self.of == "bytes":
            trained = rows[:, columns.index("category")] == TRAINING
            return np.where(trained, rows[:, columns.index("bytes")], 0).astype(float), sender
        owners = [trace.roles.index(name) for name in trace.header["layout"]["observed"]]
        amount = rows[:, columns.index("count" if self.of == "gradients" else "samples")]
        return np.where(np.isin(rows[:, 0], owners), amount / _copies(trace), 0.0), sender

    def _left_out(self, trace: Trace) -> bool:
        table = trace.tables[self._rows.table]
        missing = table.spilled or not len(table)
        return bool(table.skipped) or (bool(missing) and len(trace.tables["progress"]) > 0)

    def _reported(self, trace: Trace, t: int, sender: int) -> tuple[np.ndarray, np.ndarray]:
        owners = [trace.roles.index(name) for name in trace.header["layout"]["observed"]]
        role, time, who, count = trace.column("progress", "role", "time", "sender", "gradients")
        seen = (who == sender) & (time <= t)
        curves = [(time[seen & (role == owner)], count[seen & (role == owner)]) for owner in owners]
        if self.of == "bytes" or not all(len(when) for when, _ in curves):
            return np.empty(0), np.empty(0)
        when = np.unique(np.concatenate([when for when, _ in curves]))
        each = trace.header["problem"]["batch_size"] if self.of == "samples" else 1
        return when, np.sum([grown(x, y, when) for x, y in curves], axis=0) * each / _copies(trace)


def _copies(trace: Trace) -> int:
    """How many of the roles that are looked at book the same gradient."""
    layout = trace.header["layout"]
    return 1 if layout.get("copies") == "own" else len(layout["observed"])


def _rows_by_worker(
    place: np.ndarray, when: np.ndarray, amount: np.ndarray, workers: int, edges: np.ndarray
) -> np.ndarray:
    """`grown` for all workers at once: every worker's times are laid on a stretch of their own of one long axis."""
    last = np.searchsorted(place, np.arange(workers), side="right") - 1  # each worker's newest, if it has any
    has = (last >= 0) & (place[np.maximum(last, 0)] == np.arange(workers)) if len(place) else np.zeros(workers, bool)
    who = np.flatnonzero(has)
    newest = last[who]
    earlier = np.where((newest > 0) & (place[newest - 1] == who), when[newest - 1], 0)
    coming = when[newest] + np.maximum(when[newest] - earlier, 1)  # when the next one is due
    place = np.r_[place, who, np.arange(workers)]
    when = np.r_[when, coming, np.full(workers, -1)]
    amount = np.r_[amount, amount[newest], np.zeros(workers)]
    order = np.lexsort((when, place))
    long = float(max(when.max(), edges[-1]) + 2)
    total = np.cumsum(amount[order])
    axis = place[order] * long + when[order]
    starts = np.searchsorted(place[order], np.arange(workers), side="left")
    base = total[starts]  # at 0 of each worker, before anything of its own
    found = np.interp((np.arange(workers)[:, None] * long + edges[None, :]).ravel(), axis, total)
    return found.reshape(workers, len(edges)) - base[:, None]
