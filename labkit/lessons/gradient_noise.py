"""The noise of mini-batch gradients, and the gradient noise scale.

The gradient of a mini-batch of b samples estimates the gradient G of all samples. Its mean squared error is tr(S)/b, where
tr(S) is the variance of the gradients of single samples, summed over all parameters. The gradient noise scale
B = tr(S)/|G|² is the batch size at which error and gradient are equally long (McCandlish, Kaplan, Amodei et al., "An
empirical model of large-batch training", 2018).
"""

from __future__ import annotations

import numpy as np

from ..nn.objective import Objective
from ..trace.gradient_noise import signal_and_noise


def batch_gradients(
    objective: Objective,
    parameters: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    batch_size: int,
    count: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return the gradients of mini-batches that are drawn at random with replacement.

    Parameters
    ----------
    objective : Objective
        The network and its loss, as returned by ``Problem.objective()``.
    parameters : ndarray, shape (n,)
        The parameters at which the gradients are computed.
    x, y : ndarray
        The samples, in the format of the data set.
    batch_size : int
        The number of samples of a mini-batch.
    count : int
        The number of mini-batches.
    rng : numpy.random.Generator
        The source of the draws.

    Returns
    -------
    ndarray, shape (count, n)
        One gradient per mini-batch.

    Examples
    --------
    >>> problem = lk.Problem("digits", hidden=(8,))
    >>> x, y = problem.dataset.x_train, problem.dataset.y_train
    >>> network, rng = problem.objective(), np.random.default_rng(0)
    >>> start = network.start(problem.seed)
    >>> lk.lessons.batch_gradients(network, start, x, y, batch_size=4, count=10, rng=rng).shape
    (10, 610)
    """
    gradients = np.empty((count, len(parameters)), parameters.dtype)
    for out in gradients:
        rows = rng.integers(len(x), size=batch_size)
        objective.gradient(parameters, x[rows], y[rows], out)
    return gradients


def noise_scale(small: np.ndarray, large: np.ndarray, b: int, B: int) -> float:
    """Return an estimate of the gradient noise scale, in samples, from gradients of two batch sizes.

    The gradient of all samples is not needed: the mean squared length of the gradients of batches of b samples is
    ``|G|² + tr(S)/b``, so two batch sizes give two equations for ``|G|²`` and ``tr(S)`` (McCandlish et al., 2018, appendix A).

    Parameters
    ----------
    small, large : ndarray, shape (count, n)
        Gradients of mini-batches of `b` samples and of `B` samples, as returned by `batch_gradients`.
    b, B : int
        The two batch sizes, b < B.

    Returns
    -------
    float
        The scale ``tr(S)/|G|²``. The estimate is noisy; with few gradients it can be negative.

    Examples
    --------
    Gradients of length 5 with b = 1 and of length 4 with B = 2: ``25 = |G|² + tr(S)`` and ``16 = |G|² + tr(S)/2`` give
    ``tr(S) = 18`` and ``|G|² = 7``.

    >>> small, large = np.array([[3.0, 4.0], [4.0, 3.0]]), np.array([[4.0, 0.0], [0.0, 4.0]])
    >>> round(lk.lessons.noise_scale(small, large, 1, 2), 3)
    2.571
    """
    square, large_square = (float(np.mean(np.einsum("ij,ij->i", each, each))) for each in (small, large))
    signal, noise = signal_and_noise(square, large_square, b, B)
    return noise / signal
