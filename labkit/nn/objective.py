"""The interface between strategies and models: initial parameters, gradient, evaluation, prediction.

Parameters and gradients are flat vectors of shape `(size,)` and dtype `dtype`. An objective keeps no parameters: the
same call with the same arguments always returns the same result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import BadInput
from .layout import ParameterLayout

Array = NDArray[Any]


class Objective(Protocol):
    """A function of the parameters, averaged over a batch: x of shape (batch, inputs), y as the objective defines it."""

    size: int
    dtype: np.dtype[Any]
    layout: ParameterLayout

    def start(self, seed: int) -> Array:
        """Return a new vector of initial parameters, shape (size,), which depends on `seed` only."""

    def gradient(self, params: Array, x: Array, y: Array, out: Array) -> float:
        """Return the mean loss over the batch, and overwrite `out`, shape (size,), with its gradient."""

    def evaluate(self, params: Array, x: Array, y: Array) -> tuple[float, float | None]:
        """Return mean loss and accuracy (0 to 1); the accuracy is None if there are no classes."""

    def scores(self, params: Array, x: Array) -> Array:
        """Return the outputs of the model, shape (n, outputs), which the loss converts to labels, values or probabilities."""

    def predict(self, params: Array, x: Array) -> Array:
        """Return class labels, shape (n,), int64; or the values of a regression, shape (n, outputs)."""

    def predict_proba(self, params: Array, x: Array) -> Array:
        """Return the probabilities of the classes, shape (n, classes). Raises `BadInput` if there are no classes."""


class ObjectiveStage(Protocol):
    """Consecutive layers of an objective, whose parameters are `slice` of the whole flat vector.

    `multiply_adds`: multiplications with addition of one forward per sample; a backward needs twice as many.
    """

    size: int
    slice: slice
    multiply_adds: int

    def forward(self, params: Array, x: Array) -> tuple[Array, Any]:
        """Return (y, saved) for x of shape (batch, inputs) and the stage's parameters, shape (size,)."""

    def backward(self, params: Array, saved: Any, dy: Array, out: Array, dx: bool = True) -> Array:
        """Return the derivative with respect to x, if `dx`; overwrite `out`, shape (size,), with that of the parameters."""


class StagedObjective(Objective, Protocol):
    """An objective whose gradient can be computed in stages: forward from the first block to the last, then the loss, then
    backward from the last block to the first.

    Stages that together have all blocks compute the same bits as `gradient`, whether they are on several machines (pipelines) or
    on one (gradients that are sent while the backward pass goes on).
    """

    loss: Any
    multiply_adds: int

    @property
    def blocks(self) -> Sequence[Any]:
        """The smallest stages."""

    def stage(self, start: int, stop: int) -> ObjectiveStage:
        """Return blocks `start` to `stop` - 1 as a stage, without the loss."""


def single_stages(objective: Any) -> tuple[ObjectiveStage, ...]:
    """Return the blocks of an objective as stages, in forward order; () if its gradient is computed in one piece.

    For a timing-only objective these are the blocks of the network that it represents, if there is one.
    """
    staged: StagedObjective | None = objective.network if isinstance(objective, NullObjective) else objective
    if not hasattr(staged, "stage"):
        return ()
    assert staged is not None
    return tuple(staged.stage(i, i + 1) for i in range(len(staged.blocks)))


def check_vector(what: str, vector: Array, size: int, dtype: np.dtype[Any]) -> None:
    """Raise `BadInput` unless `vector` is contiguous and has this size and dtype; others would be copied in every call."""
    if vector.shape != (size,) or vector.dtype != dtype:
        raise BadInput(
            f"{what}: a {dtype} vector of shape ({size},) is needed, not {vector.dtype} of shape {vector.shape}."
        )
    if size > 1 and not vector.flags.c_contiguous:
        raise BadInput(f"{what}: the vector must be contiguous in memory; its strides are {vector.strides}.")


def check_rows(x: Array, columns: int, dtype: np.dtype[Any]) -> Array:
    """Return x as an array of `dtype`, which is copied only if the dtype differs.

    Raises `BadInput` unless its shape is (batch, columns), with at least one row.
    """
    x = np.asarray(x, dtype)
    if x.ndim != 2 or x.shape[1] != columns or not len(x):
        raise BadInput(f"x: shape (batch, {columns}) with at least one row is needed, not {x.shape}.")
    return x


class NullObjective:
    """A model without memory, for runs in which only time and bytes count ("timing-only").

    The parameters have the right shape and `nbytes`, but zero strides, which means that all elements are the same zero
    in memory. The gradient is not computed (the loss is nan), and nothing can be predicted.
    """

    def __init__(
        self, size: int, layout: ParameterLayout | None = None, dtype: str = "float32", network: Any = None
    ) -> None:
        self.network = network  # the represented network: only its structure is used, nothing is computed with it
        self.layout = ParameterLayout({"null": (size,)}) if layout is None else layout
        if self.layout.size != size:
            raise BadInput(f"NullObjective: size={size}, but its layout describes {self.layout.size} parameters.")
        self.size = size
        self.dtype: np.dtype[Any] = np.dtype(dtype)

    def start(self, seed: int) -> Array:
        """Return a read-only vector of shape (size,) with zero strides."""
        return np.broadcast_to(self.dtype.type(0), (self.size,))

    def gradient(self, params: Array, x: Array, y: Array, out: Array) -> float:
        """Return nan; nothing is read or written."""
        return math.nan

    def evaluate(self, params: Array, x: Array, y: Array) -> tuple[float, float | None]:
        return math.nan, None

    def scores(self, params: Array, x: Array) -> Array:
        """Raise `BadInput`: a timing-only run cannot predict."""
        raise BadInput("A timing-only run has no model: it cannot predict.")

    predict = predict_proba = scores
