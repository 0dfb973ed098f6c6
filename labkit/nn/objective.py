"""The interface between strategies and models: initial parameters, gradient, evaluation, prediction.

Parameters and gradients are flat vectors of shape `(size,)` and dtype `dtype`. An objective keeps no parameters: the
same call with the same arguments always returns the same result.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import BadInput
from ..formatting import bytes_text, count_text
from .layout import ParameterLayout

if TYPE_CHECKING:
    from .losses import Loss

Array = NDArray[Any]


class ObjectiveStage(Protocol):
    """A part of an objective, whose parameters are `slice` of the whole flat vector. Stages take and return a row per sample.

    `inputs`, `outputs`: columns of x and of y. `multiply_adds`: multiplications with addition of one forward per sample; a
    backward needs twice as many.
    """

    size: int
    slice: slice
    inputs: int
    outputs: int
    multiply_adds: int

    def forward(self, params: Array, x: Array) -> tuple[Array, Any]:
        """Return (y, saved) for x of shape (batch, inputs) and the stage's parameters, shape (size,)."""

    def backward(self, params: Array, saved: Any, dy: Array, out: Array, dx: bool = True) -> Array:
        """Return the derivative with respect to x, if `dx`; overwrite `out`, shape (size,), with that of the parameters."""

    def input_gradient(self, params: Array, saved: Any, dy: Array, dx: bool = True) -> tuple[Array, Any]:
        """Return (the derivative with respect to x, what `parameter_gradient` needs): the first half of `backward`."""

    def parameter_gradient(self, saved: Any, dys: Any, out: Array) -> None:
        """Overwrite `out` with the derivative with respect to the parameters: the second half of `backward`."""


class Objective(Protocol):
    """A function of the parameters, averaged over a batch: x of shape (batch, inputs), y as the objective defines it.

    `stages`: the smallest parts whose gradients can be computed separately: forward from the first to the last, then `loss`,
    then backward from the last to the first. They compute the same bits as `gradient`, whether they are on several machines
    (pipelines) or on one (gradients that are sent while the backward pass goes on). If empty, there is one piece.

    `stochastic`: whether `gradient` has another argument, the random stream from which it draws, as for dropout.
    """

    size: int
    dtype: np.dtype[Any]
    layout: ParameterLayout
    stochastic: bool

    @property
    def stages(self) -> Sequence[ObjectiveStage]:
        """The stages, in forward order, which together have all parameters; or ()."""

    @property
    def architecture(self) -> str:
        """The architecture as text: `64-128-10, relu, cross-entropy`."""

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


class ScoredObjective(ABC):
    """An objective whose evaluations and predictions follow from its scores and its `loss`.

    `inputs`: columns of x. `outputs`: columns of the scores. `takes_ids`: whether x contains ids, which are not standardised.
    """

    inputs: int
    outputs: int
    loss: Loss
    takes_ids = False
    stochastic = False

    @abstractmethod
    def scores(self, params: Any, x: Array) -> Array:
        """Return the outputs of the model, shape (n, outputs), before softmax; not finite where they overflow."""

    def evaluate(self, params: Any, x: Array, y: Array) -> tuple[float, float | None]:
        scores = self.scores(params, x)
        with np.errstate(over="ignore", invalid="ignore"):
            return self.loss.evaluate(scores, self.loss.check(y, len(scores), self.outputs))

    def predict(self, params: Any, x: Array) -> Array:
        """Return labels, shape (n,), int64; for a regression values, shape (n, outputs)."""
        return self.loss.predict(self.scores(params, x))

    def predict_proba(self, params: Any, x: Array) -> Array:
        """Return probabilities, shape (n, outputs); rows add up to 1. Raises `BadInput` for a regression."""
        return self.loss.probabilities(self.scores(params, x))


class StageSequence:
    """Consecutive stages as one `ObjectiveStage`."""

    def __init__(self, stages: Sequence[ObjectiveStage]) -> None:
        self.stages = tuple(stages)
        first, last = self.stages[0], self.stages[-1]
        self.slice = slice(first.slice.start, last.slice.stop)
        self.size = self.slice.stop - self.slice.start
        self.inputs, self.outputs = first.inputs, last.outputs
        self.multiply_adds = sum(stage.multiply_adds for stage in self.stages)
        begin = self.slice.start
        self._own = [slice(stage.slice.start - begin, stage.slice.stop - begin) for stage in self.stages]

    def forward(self, params: Array, x: Array) -> tuple[Array, list[Any]]:
        saved = []
        for stage, own in zip(self.stages, self._own):
            x, kept = stage.forward(params[own], x)
            saved.append(kept)
        return x, saved

    def backward(self, params: Array, saved: list[Any], dy: Array, out: Array, dx: bool = True) -> Array:
        for i in reversed(range(len(self.stages))):
            own = self._own[i]
            dy = self.stages[i].backward(params[own], saved[i], dy, out[own], dx or i > 0)
        return dy

    def input_gradient(self, params: Array, saved: list[Any], dy: Array, dx: bool = True) -> tuple[Array, list[Any]]:
        dys: list[Any] = []
        for i in reversed(range(len(self.stages))):
            dy, kept = self.stages[i].input_gradient(params[self._own[i]], saved[i], dy, dx or i > 0)
            dys.insert(0, kept)
        return dy, dys

    def parameter_gradient(self, saved: list[Any], dys: list[Any], out: Array) -> None:
        for stage, own, kept, dy in zip(self.stages, self._own, saved, dys):
            stage.parameter_gradient(kept, dy, out[own])


def represented(objective: Any) -> Any:
    """Return the model that a timing-only objective represents (None, if it is only a size); another objective itself."""
    return objective.network if isinstance(objective, NullObjective) else objective


def size_text(objective: Objective) -> str:
    """Return the number of parameters, and their size: `9,610 parameters, 38.4 kB as float32`."""
    size = bytes_text(objective.size * objective.dtype.itemsize)
    return f"{count_text(objective.size, 'parameter')}, {size} as {objective.dtype}"


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
        self.architecture = type(self).__name__ if network is None else network.architecture
        self.stochastic = False  # no random number is drawn
        self.layout = ParameterLayout({"null": (size,)}) if layout is None else layout
        if self.layout.size != size:
            raise BadInput(f"NullObjective: size={size}, but its layout describes {self.layout.size} parameters.")
        self.size = size
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.stages: Sequence[ObjectiveStage] = () if network is None else network.stages  # only their sizes are used

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
