"""Parameters of a model with an embedding table: the updated rows, the dense part, and the seed of all other rows.

`SparseParameters` represent the whole flat vector [table | dense part] exactly. A row in `ids` has the stored values;
every other row has its initial value, a function of (seed, row). So a table of 10,000,000 rows is represented by the
few thousand rows that changed. If the table is small, `plain` returns the ordinary vector.
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

PLAIN_BYTES = 64_000_000  # the largest vector, in bytes, that `plain` makes dense


def find_rows(known: Array, ids: Array) -> tuple[Array, Array]:
    """Return (index in `known` of each of `ids`, whether `known` contains it). `known` is sorted and has each id once."""
    if not len(known):
        return np.zeros(len(ids), np.intp), np.zeros(len(ids), bool)
    place = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    return place, known[place] == ids


@dataclass(frozen=True, eq=False)
class SparseParameters:
    """The current values of the rows `ids` of an embedding table, the seed of all other rows, and the dense part.

    bag: the table's dimensions. ids: (k,) int64, sorted, each once. values: flat, (k * columns + dense size,), first
    the rows in the order of `ids`, then the dense part. seed: determines the values of the rows that are not in `ids`.
    """

    bag: EmbeddingBag
    ids: Array
    values: Array
    seed: int

    @property
    def rows(self) -> Array:
        """The stored rows, shape (k, columns): a view."""
        return self.values[: len(self.ids) * self.bag.columns].reshape(-1, self.bag.columns)

    @property
    def dense(self) -> Array:
        """The dense part, flat: a view."""
        return self.values[len(self.ids) * self.bag.columns :]

    def __len__(self) -> int:
        return len(self.values)

    def table(self, ids: Array) -> Array:
        """Return the rows `ids` (shape (k,), any order) as a new array of shape (k, columns)."""
        place, known = find_rows(self.ids, ids)
        rows = np.empty((len(ids), self.bag.columns), self.values.dtype)
        rows[known] = self.rows[place[known]]
        rows[~known] = self.bag.start(self.seed, ids[~known], self.values.dtype)
        return rows

    def updated(self, newer: SparseParameters) -> SparseParameters:
        """Return these parameters, with the rows and the dense part of `newer` in place of the present values."""
        others = ~find_rows(newer.ids, self.ids)[1]
        return SparseParameters.of(
            self.bag, self.seed, np.concatenate([self.ids[others], newer.ids]),
            np.concatenate([self.rows[others], newer.rows]), newer.dense,
        )  # fmt: skip

    def plain(self) -> Any:
        """Return the whole vector if it has at most `PLAIN_BYTES` bytes; else these parameters themselves."""
        if (self.bag.size + len(self.dense)) * self.values.itemsize > PLAIN_BYTES:
            return self
        table = self.bag.start(self.seed, np.arange(self.bag.rows), self.values.dtype)
        table[self.ids] = self.rows
        return np.concatenate([table.reshape(-1), self.dense])

    def fingerprint(self) -> str:
        """Return the SHA-256 digest of ids and values, in hexadecimal."""
        return hashlib.sha256(self.ids.tobytes() + np.ascontiguousarray(self.values).tobytes()).hexdigest()

    # as plain values, for files ---------------------------------------------------------------------------------------

    def to_state(self) -> dict[str, Any]:
        """Return the parameters as a dict of arrays, numbers and text, which `from_state` reads."""
        bag = {"rows": self.bag.rows, "columns": self.bag.columns, "fields": self.bag.fields}
        return {"ids": self.ids, "values": self.values, "seed": self.seed, **bag, "combine": self.bag.combine}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> SparseParameters:
        """Restore parameters from the dict that `to_state` returns. Raises `BadInput` if the arrays do not fit each other."""
        rows, columns, fields = (int(state[name]) for name in ("rows", "columns", "fields"))
        bag = EmbeddingBag(rows, columns, fields, str(state["combine"]))
        return cls(bag, state["ids"], state["values"], int(state["seed"])).checked()

    def checked(self) -> SparseParameters:
        """Return these parameters. Raises `BadInput` if their arrays do not fit each other."""
        ids, values, bag = self.ids, self.values, self.bag
        fits = ids.ndim == values.ndim == 1 and ids.dtype == np.int64 and len(values) >= len(ids) * bag.columns
        if not fits or (len(ids) and not (ids[0] >= 0 and ids[-1] < bag.rows and (np.diff(ids) > 0).all())):
            raise BadInput("The rows of an embedding table and their numbers do not fit each other.")
        return self

    @classmethod
    def of(cls, bag: EmbeddingBag, seed: int, ids: Array, rows: Array, dense: Array) -> SparseParameters:
        """Make parameters from ids (k,), in any order but each once, rows (k, columns), and the dense part (flat)."""
        order = np.argsort(ids, kind="stable")
        return cls(bag, ids[order], np.concatenate([rows[order].reshape(-1), dense]), seed)
