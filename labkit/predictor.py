"""The trained model: predictions from samples that are not standardised."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from . import nn
from .description import Description, HasDescription
from .errors import BadInput, shown
from .formats import ArrayForm, Mismatch, check
from .options import as_number, as_numbers
from .problem import Problem

__all__ = ["Predictor", "load"]


class Predictor(HasDescription):
    """A trained model: a network and its parameters.

    It takes samples as they are in the data set, and standardises them. `Run.result` and `lk.load` make it.

    Parameters
    ----------
    problem : Problem or None
        The problem, which determines the other arguments; None if they are given.
    parameters : ndarray or SparseParameters
        The flat vector of all parameters, or `SparseParameters` if an embedding table is too large for one.
    network : Network or Recommender, optional
        The network.
    mean, scale : ndarray, optional
        The mean and the standard deviation of each feature, float64 of shape (d,).
    about : dict, optional
        A description of the problem in plain values.
    accuracy : float, optional
        The accuracy on held-out data, from 0 to 1.

    Examples
    --------
    >>> cluster, budget = lk.SimulatedCluster(workers=4), lk.Budget(updates=50)
    >>> run = lk.train("digits", lk.SyncPS(), cluster, budget).wait()
    >>> model = run.result()
    >>> samples = np.zeros((3, 64))  # three empty pictures
    >>> model.predict(samples).shape, model.predict_proba(samples).shape
    ((3,), (3, 10))
    >>> path = model.save("digits.npz")
    >>> bool((lk.load(path).predict(samples) == model.predict(samples)).all())
    True
    """

    def __init__(
        self,
        problem: Problem | None,
        parameters: np.ndarray | nn.SparseParameters,
        *,
        network: nn.Network | nn.Recommender | None = None,
        mean: np.ndarray | None = None,
        scale: np.ndarray | None = None,
        about: dict[str, Any] | None = None,
        accuracy: float | None = None,
    ):
        self.parameters: Any = parameters
        self.network: Any = network if network is not None else problem.objective()  # type: ignore[union-attr]
        dataset = problem.dataset if problem is not None else None
        self.mean: Any = mean if dataset is None else dataset.mean
        self.scale: Any = scale if dataset is None else dataset.scale
        self.about = problem.describe() if problem is not None else about or {}
        if accuracy is not None and math.isfinite(accuracy):
            self.about["accuracy"] = accuracy

    def __repr__(self) -> str:
        return f"<Predictor of {self.about.get('data', 'a model')}, {len(self.parameters):,} parameters>"

    def _described(self) -> Description:
        rows = [("network", nn.network_text(self.network)), ("size", nn.size_text(self.network))]
        if (accuracy := as_number(self.about.get("accuracy"))) is not None:  # a file may contain anything
            rows.append(("accuracy", f"{accuracy:.1%} held out"))
        rows.append(("input", f"{nn.input_text(self.network)}, as in the data set; predict standardises them"))
        return Description(f"Predictor of {self.about.get('data', 'a model')}", tuple(rows))

    def _prepared(self, x: ArrayLike) -> np.ndarray:
        """Return the network's input: standardised samples, or unchanged ids."""
        if isinstance(self.network, nn.Recommender):
            x = as_numbers("predict: x", x)
            return x[None] if x.shape == (self.network.bag.fields,) else x
        return self._standardise(x)

    def _standardise(self, x: ArrayLike) -> np.ndarray:
        given = as_numbers("predict: x", x)
        with np.errstate(over="ignore"):  # values that overflow become infinite and are rejected below
            x = given.astype(self.network.dtype)
        features = len(self.mean)
        if x.shape == (features,) or (x.ndim == 2 and x.size == features and x.shape[-1] != features):
            x = x[None]
        flat = x.reshape(len(x), math.prod(x.shape[1:])) if x.ndim > 1 else x
        if flat.ndim != 2 or flat.shape[1] != features:
            raise BadInput(
                f"predict: samples of shape {x.shape}; this model takes (n, {features}), or images that flatten to it."
            )
        if not np.isfinite(flat).all():
            row, column = map(int, np.argwhere(~np.isfinite(flat))[0])
            value = given.reshape(flat.shape)[row, column]
            if np.isfinite(value):
                raise BadInput(f"predict: sample {row} holds {value:g}; {self._largest()}.")
            raise BadInput(f"predict: sample {row} holds a number that is not finite.")
        with np.errstate(over="ignore", invalid="ignore"):
            standardised = ((flat - self.mean) / self.scale).astype(self.network.dtype, copy=False)
        self._check_finite(standardised, "is too far from the training data to be standardised")
        return standardised

    def _largest(self) -> str:
        return f"numbers of this model are {self.network.dtype}, at most {np.finfo(self.network.dtype).max:g}"

    def _check_finite(self, values: np.ndarray, wrong: str) -> None:
        """Raise `BadInput`, which names the first sample whose row of `values` is not finite, if there is one."""
        finite = np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
        if not finite.all():
            raise BadInput(f"predict: sample {int(finite.argmin())} {wrong}; {self._largest()}.")

    def _scores(self, x: ArrayLike) -> np.ndarray:
        """Return the values of the network's output layer. Raises `BadInput` if they overflow for a sample.

        If the parameters are not finite, as after a run that diverged, no error is raised: predictions are NaN, or class 0.
        """
        x = self._prepared(x)
        with np.errstate(over="ignore", invalid="ignore"):
            scores: np.ndarray = self.network.scores(self.parameters, x)
        if x.dtype.kind == "f" and np.isfinite(self.parameters).all():  # ids cannot overflow
            self._check_finite(scores, "makes the network's output infinite")
        return scores

    def predict(self, x: ArrayLike) -> np.ndarray:
        """Predict classes, or, for a regression, values.

        Parameters
        ----------
        x : array_like
            Samples that are not standardised, of shape (n, features) or (n, height, width); for the held-out samples of a data
            set, `dataset.raw(dataset.x_test)`. For clicks: ids, of shape (n, fields).

        Returns
        -------
        ndarray
            The classes, int64 of shape (n,); or values, of shape (n, k).

        Raises
        ------
        BadInput
            If a number is not finite, a number or the network's output overflows the network's dtype, or `x` has a wrong shape
            or is not numeric.
        """
        scores = self._scores(x)
        return self.network.loss.predict(scores)

    def predict_proba(self, x: ArrayLike) -> np.ndarray:
        """Predict the probabilities of the classes.

        Parameters
        ----------
        x : array_like
            Samples, as for `predict`.

        Returns
        -------
        ndarray
            The probabilities, of shape (n, classes).

        Raises
        ------
        BadInput
            As `predict`, and for a regression.
        """
        scores = self._scores(x)
        return self.network.loss.probabilities(scores)

    def save(self, path: str | Path) -> Path:
        """Write the model to a file, from which `lk.load` reads it.

        Parameters
        ----------
        path : str or path-like
            The file (.npz, without pickle).

        Returns
        -------
        Path
            The path.
        """
        arrays = {"mean": np.asarray(self.mean), "scale": np.asarray(self.scale)}
        nn.save_model(path, self.network, self.parameters, self.about, arrays=arrays)
        return Path(path)


def load(path: str | Path) -> Predictor:
    """Load a model that `Predictor.save` wrote.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    Predictor
        The model.

    Raises
    ------
    BadInput
        If there is no such file, or if it is not a model.

    Examples
    --------
    >>> cluster, budget = lk.SimulatedCluster(workers=2), lk.Budget(updates=50)
    >>> run = lk.train("moons", lk.SyncPS(), cluster, budget).wait()
    >>> lk.load(run.result().save("moons.npz")).predict([[0.0, 1.0]]).shape
    (1,)
    """
    network, parameters, about = nn.load_model(path)
    arrays = about.pop("arrays")
    form = ArrayForm("f", None if isinstance(network, nn.Recommender) else (network.inputs,), finite=True)
    try:
        check({f"array.{name}": values for name, values in arrays.items()}, {"array.mean": form, "array.scale": form})
    except Mismatch as error:
        raise BadInput(f"{shown(str(path))} is damaged or not a labkit model: {error}.") from None
    return Predictor(None, parameters, network=network, mean=arrays["mean"], scale=arrays["scale"], about=about)
