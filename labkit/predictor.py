"""The trained model, ready for use: raw samples in, answers out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from . import nn
from .errors import BadInput
from .knobs import as_numbers
from .problem import Problem

__all__ = ["Predictor", "load"]


class Predictor:
    """Parameters and the network they belong to. Takes samples as the data set has them and standardises them itself.

    `parameters`: the flat vector, or, of a table too long to write out, `SparseParameters`.
    """

    def __init__(
        self,
        problem: Problem | None,
        parameters: Any,
        *,
        network: Any = None,
        mean: Any = None,
        scale: Any = None,
        about: dict[str, Any] | None = None,
    ):
        self.parameters = parameters
        self.network = network if network is not None else problem.objective()  # type: ignore[union-attr]
        dataset = problem.dataset if problem is not None else None
        self.mean = mean if dataset is None else dataset.mean
        self.scale = scale if dataset is None else dataset.scale
        self.about = problem.describe() if problem is not None else about or {}

    def __repr__(self) -> str:
        return f"<Predictor of {self.about.get('data', 'a model')}, {len(self.parameters):,} parameters>"

    def _prepared(self, x: Any) -> np.ndarray:
        """Samples as the network takes them: standardised, or ids as they are."""
        if isinstance(self.network, nn.Recommender):
            x = as_numbers("predict: x", x)
            return x[None] if x.shape == (self.network.bag.fields,) else x
        return self._standardise(x)

    def _standardise(self, x: Any) -> np.ndarray:
        x = as_numbers("predict: x", x).astype(self.network.dtype)
        features = len(self.mean)
        if x.shape == (features,) or (x.ndim == 2 and x.size == features and x.shape[-1] != features):
            x = x[None]
        flat = x.reshape(len(x), math.prod(x.shape[1:])) if x.ndim > 1 else x
        if flat.ndim != 2 or flat.shape[1] != features:
            raise BadInput(
                f"predict: samples of shape {x.shape}; this model takes (n, {features}), or images that flatten to it."
            )
        if not np.isfinite(flat).all():
            row = int(np.flatnonzero(~np.isfinite(flat).all(axis=1))[0])
            raise BadInput(f"predict: sample {row} holds a number that is not finite.")
        return ((flat - self.mean) / self.scale).astype(self.network.dtype, copy=False)

    def predict(self, x: Any) -> np.ndarray:
        """Class ids, shape (n,), or predicted values for a regression.

        `x`: (n, features) or (n, height, width), as the data come, not standardised: of a data set's own held-out part
        that is `dataset.raw(dataset.x_test)`. Of clicks: (n, fields) ids.
        """
        return self.network.predict(self.parameters, self._prepared(x))

    def predict_proba(self, x: Any) -> np.ndarray:
        """Probabilities of the classes, shape (n, classes)."""
        return self.network.predict_proba(self.parameters, self._prepared(x))

    def save(self, path: str | Path) -> Path:
        """Write the model to `path` (.npz, no pickle); `lk.load` reads it."""
        arrays = {"mean": np.asarray(self.mean), "scale": np.asarray(self.scale)}
        nn.save_model(path, self.network, self.parameters, self.about, arrays=arrays)
        return Path(path)


def load(path: str | Path) -> Predictor:
    """A model that `Predictor.save` wrote."""
    network, parameters, about = nn.load_model(path)
    arrays = about.pop("arrays")
    return Predictor(None, parameters, network=network, mean=arrays["mean"], scale=arrays["scale"], about=about)
