"""A model of which only some rows were ever touched: those rows, the dense part, and the seed that all others start from.

`SparseParameters` stand for the whole flat vector [table | dense part], exactly. A row that is in `ids` has the
values kept here; every other row has the value it started with, which (seed, row) tell. So what 10,000,000 rows mean is
known from the few thousand that moved. Where the table is small `plain` writes the vector out, and everything that takes
a vector takes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import BadInput
from .embedding import EmbeddingBag
from .objective import Array

__all__ = ["PLAIN_BYTES", "SparseParameters", "find_rows"]

PLAIN_BYTES = 64_000_000  # a vector of at most so many bytes is written out where somebody wants one


def find_rows(known: Array, ids: Array) -> tuple[Array, Array]:
    """(place of each of `ids` in `known`, whether it is there); `known` is sorted, each id once."""
    if not len(known):
        return np.zeros(len(ids), np.intp), np.zeros(len(ids), bool)
    place = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    return place, known[place] == ids


@dataclass(frozen=True, eq=False)
class SparseParameters:
    """Rows `ids` of the table of `bag` as they are now, the others as they started from `seed`, and the dense part.

    ids: (k,) int64, sorted, each once. values: flat, (k * columns + dense size,), the rows in the order of `ids` and
    behind them the dense part.
    """

    bag: EmbeddingBag
    ids: Array
    values: Array
    seed: int

    @property
    def rows(self) -> Array:
        """The rows that are known, shape (k, columns): a view."""
        return self.values[: len(self.ids) * self.bag.columns].reshape(-1, self.bag.columns)

    @property
    def dense(self) -> Array:
        """The dense part, flat: a view."""
        return self.values[len(self.ids) * self.bag.columns :]

    def __len__(self) -> int:
        """How many numbers are kept."""
        return len(self.values)

    def table(self, ids: Array) -> Array:
        """The rows `ids` (shape (k,), any order), new memory of shape (k, columns)."""
        place, known = find_rows(self.ids, ids)
        rows = np.empty((len(ids), self.bag.columns), self.values.dtype)
        rows[known] = self.rows[place[known]]
        rows[~known] = self.bag.start(self.seed, ids[~known], self.values.dtype)
        return rows

    def updated(self, newer: SparseParameters) -> SparseParameters:
        """These parameters, but for the rows and the dense part of `newer`."""
        others = ~find_rows(newer.ids, self.ids)[1]
        return SparseParameters.of(
            self.bag, self.seed, np.concatenate([self.ids[others], newer.ids]),
            np.concatenate([self.rows[others], newer.rows]), newer.dense,
        )  # fmt: skip

    def plain(self) -> Any:
        """The whole vector, if it has at most `PLAIN_BYTES` bytes; else these parameters themselves."""
        if (self.bag.size + len(self.dense)) * self.values.itemsize > PLAIN_BYTES:
            return self
        table = self.bag.start(self.seed, np.arange(self.bag.rows), self.values.dtype)
        table[self.ids] = self.rows
        return np.concatenate([table.reshape(-1), self.dense])

    def fingerprint(self) -> str:
        """SHA-256 of ids and values."""
        return hashlib.sha256(self.ids.tobytes() + np.ascontiguousarray(self.values).tobytes()).hexdigest()

    # as plain values, for files ---------------------------------------------------------------------------------------

    def to_state(self) -> dict[str, Any]:
        """Arrays and plain numbers; `from_state` is the inverse."""
        bag = {"rows": self.bag.rows, "columns": self.bag.columns, "fields": self.bag.fields}
        return {"ids": self.ids, "values": self.values, "seed": self.seed, **bag, "combine": self.bag.combine}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> SparseParameters:
        """What `to_state` returned. `BadInput` if the arrays do not fit each other."""
        rows, columns, fields = (int(state[name]) for name in ("rows", "columns", "fields"))
        bag = EmbeddingBag(rows, columns, fields, str(state["combine"]))
        return cls(bag, state["ids"], state["values"], int(state["seed"])).checked()

    def checked(self) -> SparseParameters:
        """These parameters, if their arrays fit each other; else `BadInput`."""
        ids, values, bag = self.ids, self.values, self.bag
        fits = ids.ndim == values.ndim == 1 and ids.dtype == np.int64 and len(values) >= len(ids) * bag.columns
        if not fits or (len(ids) and not (ids[0] >= 0 and ids[-1] < bag.rows and (np.diff(ids) > 0).all())):
            raise BadInput("The rows of an embedding table and their numbers do not fit each other.")
        return self

    @classmethod
    def of(cls, bag: EmbeddingBag, seed: int, ids: Array, rows: Array, dense: Array) -> SparseParameters:
        """ids: (k,) in any order, each once; rows: (k, columns); dense: flat."""
        order = np.argsort(ids, kind="stable")
        return cls(bag, ids[order], np.concatenate([rows[order].reshape(-1), dense]), seed)
