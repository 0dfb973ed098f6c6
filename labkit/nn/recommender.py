"""A click predictor: the sum of rows of an embedding table is the input of a small dense network with two outputs.

    ids x (batch, fields) -> bag of rows -> hidden layers -> click or not (softmax over 2 classes, cross-entropy)

The model's flat vector is [table | dense part]. As an `Objective` the model can be trained by every strategy, with
dense gradients whose entries are nearly all 0. The *compact* form computes the same on the U rows that a batch uses:
the vector is [U rows | dense part], and x contains indices of those rows. The cost of the compact form does not depend
on the total number of rows.

The architecture is typical of the models for which parameter servers were built (Cheng et al., "Wide & deep learning
for recommender systems", 2016; Naumov et al., "Deep learning recommendation model", 2019).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..errors import BadInput
from .embedding import EmbeddingBag, check_ids
from .layout import ParameterLayout
from .network import ROWS_AT_ONCE, Network
from .objective import Array, ScoredObjective, check_vector
from .rows import SparseParameters

DENSE_BYTES = 256_000_000  # the largest whole vector of a model that dense strategies accept


class Recommender(ScoredObjective):
    """An `Objective`. x: (batch, fields) ids; y: (batch,) labels 0 or 1.

    `bag`: the embedding table. `tower`: the dense layers and the loss, a `Network`. `start` returns and `gradient`
    takes the whole vector. `evaluate`, `predict` and `predict_proba` take the whole vector or `SparseParameters`.
    """

    takes_ids = True

    def __init__(
        self, rows: int, columns: int, fields: int, hidden: tuple[int, ...] = (), activation: str = "relu",
        dtype: str = "float32", combine: str = "sum",
    ) -> None:  # fmt: skip
        tower = Network.mlp(columns, hidden, 2, activation, "cross-entropy", dtype)
        self._set(EmbeddingBag(rows, columns, fields, combine), tower)

    @classmethod
    def of(cls, bag: EmbeddingBag, tower: Network) -> Recommender:
        """Make a recommender of these two parts. Raises `BadInput` if they do not fit."""
        if tower.inputs != bag.columns:
            raise BadInput(f"The table has {bag.columns} columns, but the dense layers take {tower.inputs} inputs.")
        made = cls.__new__(cls)
        made._set(bag, tower)
        return made

    def _set(self, bag: EmbeddingBag, tower: Network) -> None:
        self.bag, self.tower = bag, tower
        self.dtype: np.dtype[Any] = tower.dtype
        self.loss = tower.loss
        self.inputs, self.outputs = bag.fields, tower.outputs
        self.layout = ParameterLayout({"embedding.weight": bag.shapes["weight"], **tower.layout.shapes})
        self.size = self.layout.size
        self.stages = ()  # a table whose rows are scattered over servers has no place between two layers
        self.multiply_adds = bag.multiply_adds + tower.multiply_adds

    @property
    def architecture(self) -> str:
        """The table, and the dense layers behind it."""
        return f"embedding table {self.bag.rows:,} x {self.bag.columns}, then {self.tower.architecture}"

    def to_plain(self) -> dict[str, Any]:
        """Return the model as JSON values."""
        return {"embedding": dataclasses.asdict(self.bag), **self.tower.to_plain()}

    # the whole vector -------------------------------------------------------------------------------------------------

    def start(self, seed: int) -> Array:
        """Return initial parameters, shape (size,). Raises `BadInput` if they would take more than `DENSE_BYTES`."""
        self.check_dense()
        table = self.bag.start(seed, np.arange(self.bag.rows), self.dtype)
        return np.concatenate([table.reshape(-1), self.tower.start(seed)])

    def sparse_start(self, seed: int) -> SparseParameters:
        """Return the initial parameters as `SparseParameters` without stored rows."""
        return SparseParameters(self.bag, np.empty(0, np.int64), self.tower.start(seed), seed)

    def check_dense(self) -> None:
        """Raise `BadInput` if the whole vector is too large for dense strategies."""
        nbytes = self.size * self.dtype.itemsize
        if nbytes > DENSE_BYTES:
            raise BadInput(
                f"A table of {self.bag.rows:,} rows makes a model of {nbytes:,} bytes, and a dense strategy keeps and "
                f"sends all of them in every step; it is given at most {DENSE_BYTES:,}. Use SparsePS, which moves only "
                "the rows of a batch, or fewer rows."
            )

    def gradient(self, params: Array, x: Array, y: Array, out: Array) -> float:
        check_vector("params", params, self.size, self.dtype)
        check_vector("out", out, self.size, self.dtype)
        return self.compact_gradient(params, check_ids(x, self.bag.fields, self.bag.rows), y, out)

    # the rows of a batch ----------------------------------------------------------------------------------------------

    def compact_gradient(self, params: Array, x: Array, y: Array, out: Array) -> float:
        """Like `gradient`, on any number of rows: `params` and `out` are [rows | dense part], and x has indices of these rows."""
        table = len(params) - self.tower.size
        with np.errstate(over="ignore", invalid="ignore"):
            bags, saved = self.bag.forward(params[:table], x)
            scores, between = self.tower.forward(params[table:], bags)
            value = self.loss.gradient(scores, self.loss.check(y, len(x), 2), scores)
            dy = self.tower.backward(params[table:], between, scores, out[table:])
            self.bag.parameter_gradient(saved, dy, out[:table])
        return value

    # answers ----------------------------------------------------------------------------------------------------------

    def scores(self, params: Any, x: Array) -> Array:
        """Return the values of the tower's output layer. `params`: the whole vector, or `SparseParameters`."""
        x = check_ids(x, self.bag.fields, self.bag.rows)
        sparse = isinstance(params, SparseParameters)
        if not sparse:
            check_vector("params", params, self.size, self.dtype)
        dense = params.dense if sparse else params[self.bag.size :]
        scores = np.empty((len(x), 2), self.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            for i in range(0, len(x), ROWS_AT_ONCE):
                some, table = x[i : i + ROWS_AT_ONCE], params[: self.bag.size] if not sparse else None
                if table is None:
                    ids, places = np.unique(some, return_inverse=True)
                    some, table = places.reshape(some.shape), params.table(ids)
                scores[i : i + ROWS_AT_ONCE] = self.tower.forward(dense, self.bag.forward(table, some)[0])[0]
        return scores

    def __repr__(self) -> str:
        bag = self.bag
        return f"<Recommender {bag.rows:,} x {bag.columns} table, {bag.fields} ids a sample, then {self.tower!r}>"
