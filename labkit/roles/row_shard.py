"""A shard that owns rows of a table, and perhaps a slice of the dense part. A row is made when it is first asked for.

Law: what is kept is what was touched. A row that nobody has pulled is not there: (seed, row) tell how it starts, so a
table of 10,000,000 rows costs a server what its used rows cost. The same holds for what the optimizer remembers: it is
made with the row, and moves only in steps that have a gradient for the row ("lazy"). With SGD and Adagrad that is the
dense rule to the last bit, since a gradient of 0 changes nothing; optimizers with a memory that fades (momentum, Adam)
go on moving rows without a gradient, so for them lazy would be another rule, and they are refused.

Booking (staleness, once-only, the budget, the ledger) is the `Shard`'s own: only the step itself is different.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from ..errors import RoleError
from ..nn import EmbeddingBag, NullObjective, SparseParameters
from .messages import Snapshot
from .rows import RowPull, RowPush, Rows
from .shard import Shard

__all__ = ["HOTTEST", "Assembly", "RowShard", "dense_replica"]

HOTTEST = 32  # rows that a server reports, those pulled most


class RowShard(Shard):
    """The rows that a placement gives to one server. `values`: its slice of the dense part, perhaps of size 0.

    `held`: the rows of the held-out samples that it owns: a look of the chief is answered with these. When nothing more
    may be applied, or the run ends, all rows that were touched are shown.
    """

    pushes: ClassVar[dict[str, type]] = {"RowPush": RowPush}
    bag: EmbeddingBag

    @classmethod
    def make(cls, *, held: np.ndarray | None = None, objective: Any, plan: Any, **more: Any) -> Self:  # type: ignore[override]
        """See `Shard.make`; `spec.part` is the slice of the dense part."""
        shard = super().make(objective=_dense_part(objective), plan=plan, **more)
        network = getattr(objective, "network", None) or objective
        shard._open(network.bag, objective.dtype, plan.seed, held, isinstance(objective, NullObjective))
        return shard

    def _open(self, bag: EmbeddingBag, dtype: np.dtype, seed: int, held: np.ndarray | None, null: bool) -> None:
        self.bag, self.dtype, self.seed = bag, dtype, seed
        self.held = np.empty(0, np.int64) if held is None else held
        self.counts_only = null  # not to be seen from `values`, which may be empty
        self._slots: dict[int, int] = {}  # row -> its place in the arrays below, which have room for more
        self._ids, self._pulls, self._pushes = (np.zeros(0, np.int64) for _ in range(3))
        self._rows = np.zeros((0, bag.columns), dtype)
        state = self.optimizer.state(0, dtype)
        self._memory = {name: self._rows.copy() for name in state if not name.startswith("_")}
        self._given: dict[str, np.ndarray] = {}  # what each reader was given last, if stale gradients are compensated
        if self.correction is not None and self.correction.compensation is not None:
            self.correction.state = self.correction.compensation.state(len(self.values), dtype)
            self._memory |= {f"of gradients: {name}": self._rows.copy() for name in self.correction.state}
        self.recorder.hottest = self.hottest

    # what strategies call ---------------------------------------------------------------------------------------------

    def rows(self, pull: RowPull) -> Rows:
        """The answer to `pull`: its rows as they are now, then the slice of the dense part."""
        slots = self._places(pull.ids)
        np.add.at(self._pulls, slots, 1)
        self.recorder.counters.row_pulls += len(slots)
        if self.counts_only:
            size = len(slots) * self.bag.columns + len(self.values)
            return Rows(np.broadcast_to(self.dtype.type(0), (size,)), self.index, self.generation, self.version)
        values = np.concatenate([self._rows[slots].reshape(-1), self.values])
        if self.correction is not None and self.correction.compensation is not None:
            self._given[pull.sender] = values
        return Rows(values, self.index, self.generation, self.version)

    def snapshot(self, final: bool, shown: bool) -> Snapshot:
        """See `Shard.snapshot`: with the rows that evaluation needs, or all that were touched."""
        if not shown:
            return super().snapshot(final, shown)
        if self.counts_only:
            return Snapshot(self.values, self.index, self.version, self.samples, final, self.held)
        ids = np.sort(self._ids[: len(self._slots)]) if final or self._full else self.held
        known = [self._slots.get(i, -1) for i in ids.tolist()]
        rows = self._rows[known] if self._slots else np.empty((len(ids), self.bag.columns), self.dtype)
        new = np.array(known, np.int64) < 0
        rows[new] = self.bag.start(self.seed, ids[new], self.dtype)
        values = np.concatenate([rows.reshape(-1), self.values])
        return Snapshot(values, self.index, self.version, self.samples, final, ids)

    def hottest(self) -> list[list[int]]:
        """[row, pulls, pushes] of the rows pulled most, at most `HOTTEST` of them; of equally many pulls the lowest rows."""
        used = len(self._slots)
        pulls, most = self._pulls[:used], np.arange(used)
        if used > HOTTEST:
            least = np.partition(pulls, used - HOTTEST)[used - HOTTEST]
            more, ties = np.flatnonzero(pulls > least), np.flatnonzero(pulls == least)
            room = HOTTEST - len(more)  # which of the ties a partition takes differs from processor to processor
            most = np.concatenate([more, ties[np.argpartition(self._ids[ties], room - 1)[:room]]])
        most = most[np.lexsort((self._ids[most], -pulls[most]))]
        return np.column_stack([self._ids[most], pulls[most], self._pushes[most]]).tolist()

    def arrays(self) -> dict[str, np.ndarray]:
        """See `Shard.arrays`; and the rows that were touched."""
        used = len(self._slots)
        rows = {"ids": self._ids, "pulls": self._pulls, "pushes": self._pushes, "rows": self._rows}
        kept = {name: array[:used].copy() for name, array in rows.items()}
        return super().arrays() | kept | {f"memory:{name}": m[:used].copy() for name, m in self._memory.items()}

    def take_arrays(self, state: Mapping[str, Any]) -> None:
        """The other way round."""
        super().take_arrays(state)
        self._ids, self._pulls, self._pushes, self._rows = (
            np.array(state[n]) for n in ("ids", "pulls", "pushes", "rows")
        )
        self._memory = {name: np.array(state[f"memory:{name}"]) for name in self._memory}
        self._slots = {row: place for place, row in enumerate(self._ids.tolist())}
        self.recorder.counters.rows = len(self._ids)

    # what it means ----------------------------------------------------------------------------------------------------

    def _step(self, gradients: Sequence[Any], rate: float, reduce: str) -> None:
        ids, total, dense = self._summed(gradients)
        if reduce == "mean" and len(gradients) > 1:
            np.divide(total, len(gradients), out=total)
            np.divide(dense, len(gradients), out=dense)
        slots = self._places(ids)
        rows = self._rows[slots].reshape(-1)
        memory = {name: kept[slots].reshape(-1) for name, kept in self._memory.items()}
        self.optimizer.apply(rows, total.reshape(-1), rate, memory, self.version + 1)
        self._rows[slots] = rows.reshape(total.shape)
        for name, kept in self._memory.items():
            kept[slots] = memory[name].reshape(total.shape)
        if len(dense):
            self.optimizer.apply(self._values, dense, rate, self.state, self.version + 1)

    def _part_of(self, gradient: Any) -> np.ndarray:
        """All of a push: the rows in it, then the slice of the dense part."""
        ids, values = gradient.ids, gradient.values
        due = len(ids) * self.bag.columns + len(self.values)
        if values.shape != (due,):
            raise RoleError(f"{len(ids)} ids with {values.shape} values, and {due} belong to them")
        if len(ids) and not 0 <= ids.min() <= ids.max() < self.bag.rows:
            raise RoleError(f"rows {ids.min()} to {ids.max()}, and the table has rows 0 to {self.bag.rows - 1}")
        return np.asarray(values)

    def _summed(self, gradients: Sequence[Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(ids that occur, each once; the sum of their gradients; that of the dense slice), added in the order given."""
        ids, places = np.unique(np.concatenate([g.ids for g in gradients]), return_inverse=True)
        total = np.zeros((len(ids), self.bag.columns), self.dtype)
        dense = np.zeros(len(self.values), self.dtype)
        start = 0
        for g in gradients:
            own = len(g.ids) * self.bag.columns
            values = g.values if self.correction is None else self._corrected(g)
            rows = values[:own].reshape(-1, self.bag.columns)
            np.add.at(total, places[start : start + len(g.ids)], rows)
            dense += values[own:]
            start += len(g.ids)
        return ids, total, dense

    def _corrected(self, gradient: Any) -> np.ndarray:
        """See `Shard._corrected`. The weights as they were read are those that its sender was given last."""
        correction, values = self.correction, gradient.values
        then = self._given.pop(gradient.sender, None)
        assert correction is not None
        if gradient.generation != self.generation:
            return values
        if then is not None and len(then) == len(values):
            slots = self._places(gradient.ids)
            kept = {name: self._memory[f"of gradients: {name}"] for name in correction.state}
            state = {n: np.concatenate([kept[n][slots].reshape(-1), dense]) for n, dense in correction.state.items()}
            now = np.concatenate([self._rows[slots].reshape(-1), self.values])
            values = correction.compensation.compensate(values, now, then, state)
            own = len(slots) * self.bag.columns
            for name, both in state.items():
                kept[name][slots], correction.state[name][:] = both[:own].reshape(-1, self.bag.columns), both[own:]
        return correction.slowed(values, self.version - gradient.version)

    def _book(self, gradients: Sequence[Any]) -> None:
        for g in gradients:
            slots = self._places(g.ids)
            np.add.at(self._pushes, slots, 1)
            self.recorder.counters.row_pushes += len(slots)
        super()._book(gradients)

    def _places(self, ids: np.ndarray) -> np.ndarray:
        """Where the rows `ids` are kept; those never asked for before are made."""
        find = self._slots.get
        slots = np.array([find(i, -1) for i in ids.tolist()], np.int64)
        new = slots < 0
        if new.any():
            self._add(np.unique(ids[new]))
            slots[new] = [self._slots[i] for i in ids[new].tolist()]
        return slots

    def _add(self, ids: np.ndarray) -> None:
        if ids[0] < 0 or ids[-1] >= self.bag.rows:
            raise RoleError(f"shard {self.index} was asked for row {ids[0] if ids[0] < 0 else ids[-1]}; the table has "
                            f"rows 0 to {self.bag.rows - 1}.")  # fmt: skip
        used = len(self._slots)
        end = used + len(ids)
        if end > len(self._ids):
            self._make_room(max(2 * len(self._ids), end))
        self._slots.update(zip(ids.tolist(), range(used, end)))
        self._ids[used:end] = ids
        self.recorder.counters.rows = end
        if not self.counts_only:
            self._rows[used:end] = self.bag.start(self.seed, ids, self.dtype)

    def _make_room(self, rows: int) -> None:
        self._ids, self._pulls, self._pushes = (_longer(a, rows) for a in (self._ids, self._pulls, self._pushes))
        if not self.counts_only:
            self._rows = _longer(self._rows, rows)
            self._memory = {name: _longer(kept, rows) for name, kept in self._memory.items()}


@dataclass(frozen=True)
class Assembly:
    """Makes the model of the snapshots of row shards and, behind them, of a replica of the dense part, if there is one."""

    bag: EmbeddingBag
    seed: int
    null: bool = False

    def __call__(self, snapshots: Sequence[Snapshot]) -> Any:
        """`SparseParameters`; of a timing-only run (`null`) an array without memory."""
        if self.null:
            return np.broadcast_to(np.float32(0), (self.bag.size,))
        ids, rows, dense = [], [], []
        for snapshot in snapshots:
            own = np.empty(0, np.int64) if snapshot.ids is None else snapshot.ids
            end = len(own) * self.bag.columns
            ids.append(own)
            rows.append(snapshot.values[:end].reshape(-1, self.bag.columns))
            dense.append(snapshot.values[end:])
        return SparseParameters.of(self.bag, self.seed, *(np.concatenate(parts) for parts in (ids, rows, dense)))


def dense_replica(*, objective: Any, **more: Any) -> Shard:
    """A worker's replica of the dense part; `spec.part` is all of it."""
    return Shard.make(objective=_dense_part(objective), **more)


def _dense_part(objective: Any) -> Any:
    """The dense layers of a recommender, or what stands for them in a timing-only run."""
    if isinstance(objective, NullObjective):
        return NullObjective(objective.network.tower.size, dtype=str(objective.dtype))
    return objective.tower


def _longer(array: np.ndarray, rows: int) -> np.ndarray:
    """A copy with room for so many rows, 0 where it is new."""
    more = np.zeros((rows, *array.shape[1:]), array.dtype)
    more[: len(array)] = array
    return more
