"""The protocol of a model in NumPy: what a user writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import BadInput, shown
from ..options import HasOptions, option

Array = NDArray[Any]
Arrays = Mapping[str, Array]  # parameters, or gradients, by their names


@dataclass(frozen=True)
class DataShape:
    """The shape of a data set. `features`: columns of x. `outputs`: columns of the scores. `classes`: None for a regression.
    `sample_shape`: the shape of one sample, as (height, width, 3), whose numbers a row of x has; (), if it is a row.
    """

    features: int
    outputs: int
    classes: int | None
    sample_shape: tuple[int, ...] = ()

    @property
    def image_shape(self) -> tuple[int, int] | None:
        """(height, width), if a row of x is an image in shades of grey; else None."""
        return (self.sample_shape[0], self.sample_shape[1]) if len(self.sample_shape) == 2 else None

    @classmethod
    def of(cls, dataset: Any) -> DataShape:
        """Return the shape of a data set."""
        return cls(dataset.features, dataset.outputs, dataset.classes, tuple(dataset.sample_shape))


@dataclass(frozen=True, kw_only=True)
class NumpyStage(HasOptions):
    """A part of a model that can be computed separately, on another machine or before the other parts are done.

    A subclass has `forward` and `backward`. Together the stages of a model have all its arrays.

    Parameters
    ----------
    layers : tuple of str
        The layers whose arrays the stage has: ``"conv"`` has the arrays ``"conv.weight"`` and ``"conv.bias"``.
    outputs : int
        The columns of what `forward` returns; for the last stage, the outputs of the data set.
    multiply_adds : int or None, default: None
        The multiplications with addition of one sample, by which stages are divided among workers. By default the number of its
        parameters, as of a dense layer.

    Raises
    ------
    BadInput
        If a value is not allowed.

    See Also
    --------
    NumpyModel : The model, whose `stages` returns them.

    Examples
    --------
    >>> class Dense(lk.NumpyStage):
    ...     def forward(self, p, x):
    ...         return x @ p["dense.weight"], x
    ...
    ...     def backward(self, p, saved, dy, g, dx):
    ...         g["dense.weight"][...] = saved.T @ dy
    ...         return dy @ p["dense.weight"].T if dx else None
    >>> stage = Dense(layers=("dense",), outputs=10)
    >>> y, saved = stage.forward({"dense.weight": np.ones((64, 10))}, np.ones((2, 64)))
    >>> y.shape
    (2, 10)
    """

    layers: tuple[str, ...]
    outputs: int = dataclasses.field(metadata=option(low=1, high=10**9).metadata)
    multiply_adds: int | None = option(None, low=1, high=10**18)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.layers, tuple) or not all(isinstance(layer, str) and layer for layer in self.layers):
            raise BadInput(f"{type(self).__name__}: layers={shown(self.layers)}; give names, as ('conv', 'output').")

    def forward(self, p: Arrays, x: Array) -> tuple[Array, Any]:
        """Compute the outputs of the stage.

        Parameters
        ----------
        p : mapping of str to ndarray
            The arrays of the stage's layers, read-only.
        x : ndarray, shape (n, columns)
            The samples, or what the previous stage returned. Read-only.

        Returns
        -------
        y : ndarray, shape (n, outputs)
            The outputs; of the last stage, the scores.
        saved : object
            Whatever `backward` needs.
        """
        raise NotImplementedError

    def backward(self, p: Arrays, saved: Any, dy: Array, g: Arrays, dx: bool) -> Array | None:
        """Compute the gradients of the stage's arrays, and the derivative of the loss with respect to x.

        Parameters
        ----------
        p : mapping of str to ndarray
            The arrays of the stage's layers, read-only.
        saved : object
            What `forward` returned.
        dy : ndarray, shape (n, outputs)
            The derivative of the loss with respect to y. Read-only.
        g : mapping of str to ndarray
            The arrays to which the gradients are written, as ``g[name][...] = ...``.
        dx : bool
            Whether the derivative with respect to x is needed: not of the first stage.

        Returns
        -------
        ndarray, shape (n, columns), or None
            The derivative with respect to x, if it is needed.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class NumpyModel(HasOptions):
    """A model of your own, written in NumPy: named arrays, their initial values, scores and gradient.

    A subclass is a frozen dataclass, whose fields are the options of the model. It has `shapes` and `init`; and either `scores`
    and `gradient`, or `stages`. It keeps no state: the same call returns the same values.

    See Also
    --------
    Problem : Takes the model: ``lk.Problem("digits", model=Linear())``.
    check_model : Checks a model, above all its gradient.
    NumpyStage : A part of a model, for strategies that divide a model.

    Notes
    -----
    x has a row per sample, (n, features); ``x.reshape(len(x), *shape)`` restores samples of another shape. y has labels, int64 of
    shape (n,), or the values of a regression, (n, outputs). All numbers have the dtype of the problem, float32 or float64. The
    scores of a classification are the inputs of a softmax, and its loss on held-out data is cross-entropy; that of a regression
    is half of the squared error. Another loss is defined by `evaluate`.

    With ``stochastic = True`` in the class, `gradient` has another argument, a NumPy generator, from which a model with dropout
    draws. Runs stay reproducible.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Linear(lk.NumpyModel):
    ...     scale: float = 0.1
    ...
    ...     def shapes(self, data):
    ...         return {"linear.weight": (data.features, data.outputs)}
    ...
    ...     def init(self, p, rng):
    ...         p["linear.weight"][...] = self.scale * rng.normal(size=p["linear.weight"].shape)
    ...
    ...     def scores(self, p, x):
    ...         return x @ p["linear.weight"]
    ...
    ...     def gradient(self, p, x, y, g):
    ...         scores = self.scores(p, x)
    ...         e = np.exp(scores - scores.max(axis=1, keepdims=True))
    ...         probability = e / e.sum(axis=1, keepdims=True)
    ...         right = probability[np.arange(len(y)), y]
    ...         g["linear.weight"][...] = x.T @ (probability - np.eye(scores.shape[1])[y]) / len(y)
    ...         return -np.log(right).mean()
    >>> problem = lk.Problem("digits", model=Linear(), dtype="float64")
    >>> run = lk.train(problem, lk.AsyncPS(), lk.SimulatedCluster(workers=4), lk.Budget(updates=400)).wait()
    >>> run.summary()["accuracy"] > 0.9
    True
    """

    stochastic = False
    _is_checked_at_start = True  # by `check.check_at_start`; False if its code is elsewhere

    @property
    def _title(self) -> str:
        """The name in messages."""
        return type(self).__name__

    def _identity(self) -> tuple[str, dict[str, Any]]:
        """Return the name and the options, which identify the model, as plain values."""
        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        plain = {k: v if isinstance(v, int | float | str | bool | None) else shown(v) for k, v in options.items()}
        return type(self).__name__, plain

    def _code(self, data: DataShape, dtype: str) -> Any:
        """Return the object whose methods compute, for data of a shape: this one."""
        return self

    def shapes(self, data: DataShape) -> Mapping[str, tuple[int, ...]]:
        """Return the shapes of the arrays.

        Parameters
        ----------
        data : DataShape
            The shape of the data set: `features`, `outputs`, `classes` (None for a regression), `sample_shape` and
            `image_shape`.

        Returns
        -------
        mapping of str to tuple of int
            The shapes by name, in the order of the forward pass. A name is ``"layer.part"``, as ``"conv.weight"``.
        """
        raise NotImplementedError

    def init(self, p: Arrays, rng: np.random.Generator) -> None:
        """Write the initial values to all arrays of `p`, as ``p[name][...] = ...``.

        Parameters
        ----------
        p : mapping of str to ndarray
            The arrays.
        rng : numpy.random.Generator
            The random stream to draw from, made from the seed of the problem.
        """
        raise NotImplementedError

    def scores(self, p: Arrays, x: Array) -> Array:
        """Return the outputs of the model.

        Parameters
        ----------
        p : mapping of str to ndarray
            The parameters, read-only.
        x : ndarray, shape (n, features)
            The samples, read-only.

        Returns
        -------
        ndarray, shape (n, outputs)
            The outputs, of a classification before softmax.
        """
        raise NotImplementedError

    def gradient(self, p: Arrays, x: Array, y: Array, g: Arrays) -> float:
        """Return the mean loss over the samples, and write its gradient to all arrays of `g`, as ``g[name][...] = ...``.

        Parameters
        ----------
        p : mapping of str to ndarray
            The parameters, read-only.
        x : ndarray, shape (n, features)
            The samples, read-only.
        y : ndarray
            The labels or values of the samples, read-only.
        g : mapping of str to ndarray
            The arrays of the gradient.

        Returns
        -------
        float
            The mean loss.
        """
        raise NotImplementedError

    def evaluate(self, p: Arrays, x: Array, y: Array) -> tuple[float, float | None] | None:
        """Return the mean loss and the accuracy on held-out samples, of a model with a loss of its own.

        Parameters
        ----------
        p : mapping of str to ndarray
            The parameters, read-only.
        x : ndarray, shape (n, features)
            The samples, read-only.
        y : ndarray
            The labels or values of the samples, read-only.

        Returns
        -------
        (float, float or None) or None
            The loss, and the accuracy from 0 to 1, or None if there is none. Instead of both None: the loss of the data set is
            computed from the scores.
        """
        return None

    def stages(self, data: DataShape) -> Sequence[NumpyStage]:
        """Return the stages of the model, instead of `scores` and `gradient`.

        Parameters
        ----------
        data : DataShape
            The shape of the data set.

        Returns
        -------
        sequence of NumpyStage
            The stages in forward order.
        """
        return ()


def check_fields(model: NumpyModel) -> None:
    """Raise `BadInput` if the model has attributes that are not among its options, and are thus no part of its identity."""
    extra = sorted(vars(model).keys() - {field.name for field in dataclasses.fields(model)})
    if extra:
        kind = type(model).__name__
        raise BadInput(
            f"{kind} has {', '.join(extra)}, not declared as options of the model. Declare them as fields of a dataclass: "
            f"@dataclass(frozen=True) above `class {kind}`, and `{extra[0]}: ... = ...` in it instead of __init__."
        )


def short_names(models: Iterable[NumpyModel]) -> list[str]:
    """Return the title of each model, with the options in which models of the same title differ: "CNN, channels=8"."""
    made = [(model._title, model._identity()[1]) for model in models]
    found = []
    for title, options in made:
        alike = [other for name, other in made if name == title]
        differ = [name for name in options if any(other.get(name) != options[name] for other in alike)]
        found.append(", ".join([title, *(f"{name}={options[name]}" for name in differ)]))
    return found
