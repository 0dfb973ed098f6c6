"""The parameters of a shard that owns rows of an embedding table and optionally a slice of the dense part of the model.

Rows are created on first access. Their initial values depend only on (seed, row), so a table of 10,000,000 rows needs memory
only for the rows that are used. The optimizer state of a row is created with the row and changes only in steps with a gradient
for the row ("lazy"). For SGD and Adagrad the results equal those of dense updates bit for bit, because a gradient of 0 changes
nothing. Optimizers with decaying state (momentum, Adam) also move rows without a gradient. Lazy updates would have other
results, so these optimizers are rejected (`row_layout`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import RoleError
from ...formats import ArrayForm, Mismatch, check
from ...nn import EmbeddingBag
from ...nn.optimizers import Optimizer
from ...trace.recorder import Counters
from ..optimizer_state import OptimizerState
from ..staleness_correction import StalenessCorrection
from .rows import RowPull, RowPush

HOTTEST = 32  # number of most-pulled rows that a server reports


class RowTable:
    """The rows of `bag` that were accessed: values, optimizer state, and the number of pulls and pushes of each.

    A row has a slot, an index into arrays with spare capacity. `memory`: the names of the optimizer's state arrays.
    `counters.rows` is kept equal to the number of rows. `timing_only`: only counts are stored.
    """

    def __init__(
        self, index: int, bag: EmbeddingBag, dtype: np.dtype, seed: int, memory: Sequence[str], counters: Counters,
        timing_only: bool,
    ):  # fmt: skip
        self._index, self._bag, self._dtype, self._seed = index, bag, dtype, seed
        self._counters, self._timing_only = counters, timing_only
        self._slots: dict[int, int] = {}  # row -> its slot
        self._ids, self._pulls, self._pushes = (np.zeros(0, np.int64) for _ in range(3))
        self._rows = np.zeros((0, bag.columns), dtype)
        self._memory = {name: self._rows.copy() for name in memory}

    def __len__(self) -> int:
        return len(self._slots)

    def slots(self, ids: np.ndarray) -> np.ndarray:
        """Return the slots of the rows `ids`; missing rows are created. Raises `RoleError` if an id is out of range."""
        find = self._slots.get
        slots = np.array([find(i, -1) for i in ids.tolist()], np.int64)
        new = slots < 0
        if new.any():
            self._add(np.unique(ids[new]))
            slots[new] = [self._slots[i] for i in ids[new].tolist()]
        return slots

    def _add(self, ids: np.ndarray) -> None:
        if ids[0] < 0 or ids[-1] >= self._bag.rows:
            raise RoleError(f"shard {self._index} was asked for row {ids[0] if ids[0] < 0 else ids[-1]}; the table has "
                            f"rows 0 to {self._bag.rows - 1}.")  # fmt: skip
        used = len(self._slots)
        end = used + len(ids)
        if end > len(self._ids):
            self._make_room(max(2 * len(self._ids), end))
        self._slots.update(zip(ids.tolist(), range(used, end)))
        self._ids[used:end] = ids
        self._counters.rows = end
        if not self._timing_only:
            self._rows[used:end] = self._bag.start(self._seed, ids, self._dtype)

    def _make_room(self, rows: int) -> None:
        self._ids, self._pulls, self._pushes = (_grown(a, rows) for a in (self._ids, self._pulls, self._pushes))
        if not self._timing_only:
            self._rows = _grown(self._rows, rows)
            self._memory = {name: _grown(kept, rows) for name, kept in self._memory.items()}

    def get(self, slots: np.ndarray) -> np.ndarray:
        """Return the values of the rows in `slots`, flat, copied."""
        return self._rows[slots].reshape(-1)

    def put(self, slots: np.ndarray, values: np.ndarray) -> None:
        """Set the values of the rows in `slots`, which must not repeat. `values`: flat, as returned by `get`."""
        self._rows[slots] = values.reshape(len(slots), self._bag.columns)

    def remembered(self, name: str, slots: np.ndarray) -> np.ndarray:
        """Return a copy of the state `name` of the rows in `slots`, flat."""
        return self._memory[name][slots].reshape(-1)

    def remember(self, name: str, slots: np.ndarray, values: np.ndarray) -> None:
        """Set the state `name` of the rows in `slots`, which must not repeat. `values`: flat, as returned by `remembered`."""
        self._memory[name][slots] = values.reshape(len(slots), self._bag.columns)

    def count_pulls(self, slots: np.ndarray) -> None:
        np.add.at(self._pulls, slots, 1)
        self._counters.row_pulls += len(slots)

    def count_pushes(self, slots: np.ndarray) -> None:
        np.add.at(self._pushes, slots, 1)
        self._counters.row_pushes += len(slots)

    def touched(self) -> np.ndarray:
        """Return the ids of all stored rows, ascending."""
        return np.sort(self._ids[: len(self._slots)])

    def peek(self, ids: np.ndarray) -> np.ndarray:
        """Return the present (or initial) values of rows, shape (k, columns). Missing rows are not created."""
        known = [self._slots.get(i, -1) for i in ids.tolist()]
        rows = self._rows[known] if self._slots else np.empty((len(ids), self._bag.columns), self._dtype)
        new = np.array(known, np.int64) < 0
        rows[new] = self._bag.start(self._seed, ids[new], self._dtype)
        return rows

    def hottest(self) -> list[list[int]]:
        """Return [row, pulls, pushes] of the rows with the most pulls, at most `HOTTEST`. Of rows with equally many pulls,
        those with lower numbers are preferred.
        """
        used = len(self._slots)
        pulls, most = self._pulls[:used], np.arange(used)
        if used > HOTTEST:
            least = np.partition(pulls, used - HOTTEST)[used - HOTTEST]
            more, ties = np.flatnonzero(pulls > least), np.flatnonzero(pulls == least)
            room = HOTTEST - len(more)  # np.partition resolves ties differently on different processors
            most = np.concatenate([more, ties[np.argpartition(self._ids[ties], room - 1)[:room]]])
        most = most[np.lexsort((self._ids[most], -pulls[most]))]
        return np.column_stack([self._ids[most], pulls[most], self._pushes[most]]).tolist()

    def arrays(self) -> dict[str, np.ndarray]:
        """Return copies of all stored rows, as entries of a checkpoint."""
        used = len(self._slots)
        rows = {"ids": self._ids, "pulls": self._pulls, "pushes": self._pushes, "rows": self._rows}
        kept = {name: array[:used].copy() for name, array in rows.items()}
        return kept | {f"memory:{name}": memory[:used].copy() for name, memory in self._memory.items()}

    def check(self, arrays: Mapping[str, Any]) -> None:
        """Raise `Mismatch` if these are not the result of `arrays()` of such a table."""
        check(arrays, {"ids": ArrayForm(np.int64, (None,))})
        ids = arrays["ids"]
        counts, rows = (
            ArrayForm(np.int64, ids.shape),
            ArrayForm(self._dtype, (len(ids), self._bag.columns), finite=True),
        )
        memory = {f"memory:{name}": rows for name in self._memory}
        check(arrays, {"pulls": counts, "pushes": counts, "rows": rows} | memory)
        if len(ids) and not (ids.min() >= 0 and ids.max() < self._bag.rows and len(np.unique(ids)) == len(ids)):
            raise Mismatch("ids are not different rows of the table")

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._ids, self._pulls, self._pushes, self._rows = (
            np.array(arrays[n]) for n in ("ids", "pulls", "pushes", "rows")
        )
        self._memory = {name: np.array(arrays[f"memory:{name}"]) for name in self._memory}
        self._slots = {row: slot for slot, row in enumerate(self._ids.tolist())}
        self._counters.rows = len(self._ids)


class RowParameters:
    """Rows of a table (`table`), and a slice of the dense part: `values`, flat, a read-only view, possibly of size 0.

    `timing_only`: nothing is computed, but rows are counted.
    """

    steps = True  # also in a timing-only run, because `step` counts rows

    def __init__(
        self, index: int, values: np.ndarray, bag: EmbeddingBag, dtype: np.dtype, seed: int, optimizer: Optimizer,
        counters: Counters, *, correction: StalenessCorrection | None = None, timing_only: bool = False,
    ):  # fmt: skip
        self.index, self.bag, self.dtype, self.correction = index, bag, dtype, correction
        self.timing_only, self.nbytes = timing_only, values.nbytes
        self._values = values
        self.values = values.view()
        self.values.flags.writeable = False
        self._rule = optimizer
        if not timing_only:
            self._optimizer = OptimizerState(optimizer, len(values), dtype)
        memory = [name for name in optimizer.state(0, dtype) if not name.startswith("_")]
        self._own = tuple(memory)
        self._given: dict[str, np.ndarray] = {}  # {reader: the values sent last}, if stale gradients are compensated
        if correction is not None and correction.compensation is not None:
            correction.state = correction.compensation.state(len(values), dtype)
            memory += [_learned(name) for name in correction.state]
        self.table = RowTable(index, bag, dtype, seed, memory, counters, timing_only)

    def part_of(self, push: RowPush) -> np.ndarray:
        """Return all values of a push: its rows, then the slice of the dense part. Raises `RoleError` if they do not fit."""
        ids, values = push.ids, push.values
        due = len(ids) * self.bag.columns + len(self._values)
        if values.shape != (due,):
            raise RoleError(f"{len(ids)} ids with {values.shape} values, and {due} belong to them")
        if len(ids) and not 0 <= ids.min() <= ids.max() < self.bag.rows:
            raise RoleError(f"rows {ids.min()} to {ids.max()}, and the table has rows 0 to {self.bag.rows - 1}")
        return np.asarray(values)

    def read(self, pull: RowPull) -> np.ndarray:
        """Return the values of the pulled rows, then the slice of the dense part: flat, a new array."""
        slots = self.table.slots(pull.ids)
        self.table.count_pulls(slots)
        if self.timing_only:
            return np.broadcast_to(self.dtype.type(0), (len(slots) * self.bag.columns + len(self._values),))
        values = np.concatenate([self.table.get(slots), self._values])
        if self.correction is not None and self.correction.compensation is not None:
            self._given[pull.sender] = values
        return values

    def peek(self, ids: np.ndarray) -> np.ndarray:
        """Return the values of the rows `ids`, followed by the slice of the dense part, as one new flat array. Missing rows are
        not created.
        """
        return np.concatenate([self.table.peek(ids).reshape(-1), self._values])

    def step(self, pushes: Sequence[RowPush], rate: float, reduce: str, version: int, generation: int) -> None:
        """Take one optimizer step, from `version` to the next version, with the "mean" or "sum" (`reduce`) of the pushes,
        which are added in the given order.
        """
        if not self.timing_only:
            self._move(pushes, rate, reduce, version, generation)
        for push in pushes:
            self.table.count_pushes(self.table.slots(push.ids))

    def _move(self, pushes: Sequence[RowPush], rate: float, reduce: str, version: int, generation: int) -> None:
        ids, total, dense = self._summed(pushes, version, generation)
        if reduce == "mean" and len(pushes) > 1:
            np.divide(total, len(pushes), out=total)
            np.divide(dense, len(pushes), out=dense)
        slots = self.table.slots(ids)
        rows = self.table.get(slots)
        memory = {name: self.table.remembered(name, slots) for name in self._own}
        self._rule.apply(rows, total.reshape(-1), rate, memory, version + 1)
        self.table.put(slots, rows)
        for name in self._own:
            self.table.remember(name, slots, memory[name])
        if len(dense):
            self._optimizer.step(self._values, dense, rate, version + 1)

    def _summed(
        self, pushes: Sequence[RowPush], version: int, generation: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (unique ids, the sum of their gradients, the sum for the dense slice), added in the given order."""
        ids, places = np.unique(np.concatenate([push.ids for push in pushes]), return_inverse=True)
        total = np.zeros((len(ids), self.bag.columns), self.dtype)
        dense = np.zeros(len(self._values), self.dtype)
        start = 0
        for push in pushes:
            own = len(push.ids) * self.bag.columns
            values = push.values if self.correction is None else self._corrected(push, version, generation)
            np.add.at(total, places[start : start + len(push.ids)], values[:own].reshape(-1, self.bag.columns))
            dense += values[own:]
            start += len(push.ids)
        return ids, total, dense

    def _corrected(self, push: RowPush, version: int, generation: int) -> np.ndarray:
        """Return the corrected gradient of a push. It was computed on the weights that were sent to its sender last."""
        correction, table, values = self.correction, self.table, push.values
        then = self._given.pop(push.sender, None)
        assert correction is not None
        if push.generation != generation:
            return values
        if then is not None and len(then) == len(values):
            slots = table.slots(push.ids)
            learned = correction.state
            state = {n: np.concatenate([table.remembered(_learned(n), slots), dense]) for n, dense in learned.items()}
            now = np.concatenate([table.get(slots), self._values])
            values = correction.compensation.compensate(values, now, then, state)
            own = len(slots) * self.bag.columns
            for name, both in state.items():
                table.remember(_learned(name), slots, both[:own])
                learned[name][:] = both[own:]
        return correction.slowed(values, version - push.version)

    def arrays(self) -> dict[str, np.ndarray]:
        """Values and states, copied, as entries of a checkpoint; {} in a timing-only run."""
        if self.timing_only:
            return {}
        learned = {} if self.correction is None else self.correction.arrays()
        return {"values": self._values.copy()} | self._optimizer.arrays() | learned | self.table.arrays()

    def check(self, arrays: Mapping[str, Any]) -> None:
        """Raise `Mismatch` if these are not the result of `arrays()` of such parameters."""
        if not self.timing_only:
            form = ArrayForm(self.dtype, self._values.shape, finite=True)
            learned = {} if self.correction is None else self.correction.form()
            check(arrays, {"values": form} | self._optimizer.form() | learned)
            self.table.check(arrays)

    def load(self, arrays: Mapping[str, Any]) -> None:
        if not self.timing_only:
            np.copyto(self._values, arrays["values"])
            self._optimizer.load(arrays)
            if self.correction is not None:
                self.correction.load(arrays)
            self.table.load(arrays)


def _learned(name: str) -> str:
    """Return the name in the row table of the compensation's state `name`."""
    return f"of gradients: {name}"


def _grown(array: np.ndarray, rows: int) -> np.ndarray:
    """Return a copy with capacity for `rows` rows, filled with zeros."""
    more = np.zeros((rows, *array.shape[1:]), array.dtype)
    more[: len(array)] = array
    return more
