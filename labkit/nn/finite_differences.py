"""Central differences: derivatives of a loss computed from its values alone, to check a gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["central_differences"]


def central_differences(
    objective: Any, parameters: np.ndarray, x: np.ndarray, y: np.ndarray, indices: Sequence[int] | np.ndarray, h: float
) -> np.ndarray:
    """Return approximations of some derivatives of the loss, from two values of the loss for each.

    The derivative with respect to parameter i is approximated by (f(w + h e_i) - f(w - h e_i)) / 2h. The truncation error
    is proportional to h², and the rounding error to 1/h.

    Parameters
    ----------
    objective : Objective
        The network and its loss, as returned by ``Problem.objective()``.
    parameters : ndarray, shape (n,)
        The parameters at which the derivatives are taken. float64; with float32 the rounding error is larger than the
        derivatives.
    x, y : ndarray
        The samples over which the loss is averaged, in the format of the data set.
    indices : sequence of int
        The parameters with respect to which the derivatives are taken.
    h : float
        The change of a parameter in each direction.

    Returns
    -------
    ndarray, shape (len(indices),)
        The derivatives, in the order of `indices`.

    Examples
    --------
    >>> import numpy as np
    >>> import labkit as lk
    >>> from labkit.nn.finite_differences import central_differences
    >>> bowl = lk.Problem("quadratic")  # f(w) = w²/2, whose derivative at 3 is 3
    >>> data, w = bowl.dataset, np.array([3.0])
    >>> central_differences(bowl.objective(), w, data.x_train, data.y_train, [0], h=0.01).round(6)
    array([3.])
    """
    found, shifted = np.empty(len(indices)), np.array(parameters)
    for k, i in enumerate(indices):
        sides = []
        for step in (h, -h):
            shifted[i] = parameters[i] + step
            sides.append(objective.evaluate(shifted, x, y)[0])
        shifted[i] = parameters[i]
        found[k] = (sides[0] - sides[1]) / (2 * h)
    return found
