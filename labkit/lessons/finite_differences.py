"""Central differences: derivatives of a function computed from its values alone, to check a gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np


def central_differences(
    f: Callable[[np.ndarray], float], x: np.ndarray, h: float = 1e-5, indices: Sequence[int] | None = None
) -> np.ndarray:
    """Return approximations of the derivatives of a function, from two of its values for each.

    The derivative with respect to number i is approximated by (f(x + h e_i) - f(x - h e_i)) / 2h. The truncation error is
    proportional to h², and the rounding error to 1/h.

    Parameters
    ----------
    f : callable
        A function of an array of the shape of `x`, for example the loss of a network. Each call gets a new array.
    x : ndarray
        The point at which the derivatives are taken, in float64. With float32 the rounding error is larger than most
        derivatives.
    h : float, optional
        The change of a number in each direction.
    indices : sequence of int, optional
        The numbers with respect to which derivatives are taken, as indices into ``x.ravel()``. By default all.

    Returns
    -------
    ndarray
        The derivatives: of the shape of `x`, or of shape ``(len(indices),)`` if `indices` are given.

    Examples
    --------
    >>> lk.lessons.central_differences(lambda w: w[0] ** 2 * w[1], np.array([3.0, 2.0]), h=0.01).round(6)
    array([12.,  9.])
    """
    places = range(np.size(x)) if indices is None else indices
    found = np.empty(len(places))
    for k, i in enumerate(places):
        up, down = np.array(x), np.array(x)
        up.flat[i] += h
        down.flat[i] -= h
        found[k] = (f(up) - f(down)) / (2 * h)
    return found.reshape(np.shape(x)) if indices is None else found
