"""A quadratic bowl: an objective whose gradient, minimum and convergence have closed forms.

For a sample x_i, f_i(w) = 1/2 (w - x_i)^T C (w - x_i) with C = diag(curvature). Over a batch with mean m the gradient
is C (w - m); the minimum over all data is w* = their mean. With SGD every coordinate is a scalar linear recurrence in a
= rate x curvature, so theorems about staleness and implicit momentum are stated, and tested, on it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import BadInput, shown
from .layout import ParameterLayout
from .objective import Array, check_rows, check_vector

__all__ = ["Quadratic"]


class Quadratic:
    """An `Objective` with d parameters in one layer, "quadratic".

    curvature: shape (d,), positive. start: one number for all or shape (d,); the seed does not matter.
    x: shape (batch, d); y is ignored. Raises `BadInput` for a curvature that is not positive and finite.
    """

    def __init__(self, curvature: Any, start: Any = 1.0, dtype: str = "float64") -> None:
        if str(dtype) not in ("float32", "float64"):
            raise BadInput(f"Quadratic: dtype={shown(dtype)} is not allowed; float32 or float64.")
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.curvature = np.array(curvature, self.dtype)
        if self.curvature.ndim != 1 or not self.curvature.size:
            raise BadInput(f"Quadratic: curvature has shape (d,) with d at least 1, not {self.curvature.shape}.")
        if not (np.isfinite(self.curvature).all() and (self.curvature > 0).all()):
            raise BadInput("Quadratic: every curvature must be a positive, finite number.")
        self.size = self.curvature.size
        self.layout = ParameterLayout({"quadratic.weight": (self.size,)})
        begin = np.array(start, self.dtype)
        if begin.shape not in ((), (self.size,)) or not np.isfinite(begin).all():
            raise BadInput(
                f"Quadratic: start is one finite number or {self.size}, not an array of shape {begin.shape}."
            )
        self._start = np.array(np.broadcast_to(begin, (self.size,)))

    def start(self, seed: int) -> Array:
        """A copy of the given start, shape (d,), for any seed."""
        return self._start.copy()

    def gradient(self, params: Array, x: Array, y: Array, out: Array) -> float:
        """Mean loss of the rows of x; C (w - mean x) goes to `out`."""
        check_vector("params", params, self.size, self.dtype)
        check_vector("out", out, self.size, self.dtype)
        away = params - check_rows(x, self.size, self.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            np.mean(away, axis=0, out=out)
            out *= self.curvature
            away *= away
            return float(np.dot(away, self.curvature).sum()) / (2 * len(away))

    def evaluate(self, params: Array, x: Array, y: Array) -> tuple[float, float | None]:
        """(mean loss, None)."""
        return self.gradient(params, x, y, np.empty_like(params)), None

    def minimum(self, x: Array) -> Array:
        """The parameters with the least mean loss over the rows of x: the mean of the rows, shape (d,)."""
        return check_rows(x, self.size, self.dtype).mean(axis=0)

    def scores(self, params: Array, x: Array) -> Array:
        """Always `BadInput`."""
        raise BadInput("A quadratic has parameters to find but nothing to predict.")

    predict = predict_proba = scores
