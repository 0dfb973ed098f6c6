"""A quadratic function: an objective whose gradient, minimum and convergence have closed forms.

For a sample x_i, f_i(w) = 1/2 (w - x_i)^T C (w - x_i) with C = diag(curvature). For a batch with mean m the gradient is
C (w - m). The minimum over all data is at the mean of the data. With SGD every coordinate follows a scalar linear
recurrence with the coefficient a = rate x curvature. Therefore theorems about staleness and implicit momentum are
stated for quadratic functions, and tested with this objective.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import BadInput, shown
from ..formatting import count_text
from .layout import ParameterLayout
from .objective import Array, check_rows, check_vector


class QuadraticObjective:
    """An `Objective` with d parameters in one layer, "quadratic".

    curvature: shape (d,), positive. start: the initial parameters, one number for all or shape (d,); they do not depend
    on the seed. x: shape (batch, d); y is ignored. Raises `BadInput` unless the curvature is positive and finite.
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
        self.stages = ()
        self.stochastic = False
        self.architecture = f"quadratic function of {count_text(self.size, 'dimension')}"
        begin = np.array(start, self.dtype)
        if begin.shape not in ((), (self.size,)) or not np.isfinite(begin).all():
            raise BadInput(
                f"Quadratic: start is one finite number or {self.size}, not an array of shape {begin.shape}."
            )
        self._start = np.array(np.broadcast_to(begin, (self.size,)))

    def start(self, seed: int) -> Array:
        """Return a copy of the given start, shape (d,), for any seed."""
        return self._start.copy()

    def gradient(self, params: Array, x: Array, y: Array, out: Array) -> float:
        """Return the mean loss of the rows of x, and write C (w - mean x) to `out`."""
        check_vector("params", params, self.size, self.dtype)
        check_vector("out", out, self.size, self.dtype)
        away = params - check_rows(x, self.size, self.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            np.mean(away, axis=0, out=out)
            out *= self.curvature
            away *= away
            return float(np.dot(away, self.curvature).sum()) / (2 * len(away))

    def evaluate(self, params: Array, x: Array, y: Array) -> tuple[float, float | None]:
        return self.gradient(params, x, y, np.empty_like(params)), None

    def minimum(self, x: Array) -> Array:
        """Return the parameters with the least mean loss over the rows of x, which are the mean of the rows, shape (d,)."""
        return check_rows(x, self.size, self.dtype).mean(axis=0)

    def scores(self, params: Array, x: Array) -> Array:
        """Raise `BadInput`: a quadratic predicts nothing."""
        raise BadInput("A quadratic has parameters to find but nothing to predict.")

    predict = predict_proba = scores
