"""Scalability laws of Amdahl, Gustafson and Gunther, and a fit of Gunther's law.

    N  workers                          X(N)  throughput of N workers, in any unit

    Amdahl       a fixed job, of which a part f cannot be divided:    1 / (f + (1 - f) / N)        never more than 1 / f
    Gustafson    a job that grows with N, of whose time f is serial:  f + (1 - f) N
    Gunther      X(N) / X(1) = N / (1 + p (N - 1) + k N (N - 1))
                 p: contention, waiting for exclusive resources;  k: coherence, pairwise synchronisation

Gunther's law is called the Universal Scalability Law. With p = k = 0 it is N; with k = 0 it is Amdahl's law with f = p.
With k > 0 the throughput has a maximum at N = sqrt((1 - p) / k).

Amdahl, "Validity of the single processor approach to achieving large scale computing capabilities", AFIPS 1967;
Gustafson, "Reevaluating Amdahl's law", Communications of the ACM 31 (5), 1988; Gunther, "Guerrilla capacity planning",
2007.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from ..errors import BadInput, shown


@overload
def amdahl(serial: float, workers: float) -> float: ...
@overload
def amdahl(serial: float, workers: Sequence[float] | np.ndarray) -> np.ndarray: ...
def amdahl(serial: float, workers: float | Sequence[float] | np.ndarray) -> Any:
    """Return the speed-up of a fixed job, of which a part cannot be divided (Amdahl 1967).

    Parameters
    ----------
    serial : float
        The part of the job that cannot be divided, from 0 to 1.
    workers : array_like
        The number of workers, or an array of numbers, at least 1.

    Returns
    -------
    float or ndarray
        The speed-up, float64 of the shape of `workers`: never more than 1 / `serial`.

    Raises
    ------
    BadInput
        If an argument is out of its limits.

    Examples
    --------
    >>> lk.lessons.amdahl(0.1, [1, 10, 100]).round(2)
    array([1.  , 5.26, 9.17])
    """
    n = _checked(serial, workers)
    return 1 / (serial + (1 - serial) / n)


@overload
def gustafson(serial: float, workers: float) -> float: ...
@overload
def gustafson(serial: float, workers: Sequence[float] | np.ndarray) -> np.ndarray: ...
def gustafson(serial: float, workers: float | Sequence[float] | np.ndarray) -> Any:
    """Return the scaled speed-up of a job that grows with the number of workers (Gustafson 1988).

    Parameters
    ----------
    serial : float
        The part of the time on all workers in which the work is not divided, from 0 to 1.
    workers : array_like
        The number of workers, or an array of numbers, at least 1.

    Returns
    -------
    float or ndarray
        The scaled speed-up, float64 of the shape of `workers`.

    Raises
    ------
    BadInput
        If an argument is out of its limits.

    Examples
    --------
    >>> lk.lessons.gustafson(0.1, 100)
    90.1
    """
    n = _checked(serial, workers)
    return serial + (1 - serial) * n


@dataclass(frozen=True)
class Scalability:
    """A Universal Scalability Law (Gunther 2007): the throughput of N workers, X(N).

    X(N) / X(1) = N / (1 + p (N - 1) + k N (N - 1)). Calling it returns the throughput of a number, or an array of numbers, of
    workers.

    Parameters
    ----------
    one : float
        X(1), the throughput of one worker, in any unit.
    contention : float
        The coefficient p of waiting for exclusive resources, at least 0.
    coherence : float
        The coefficient k of pairwise synchronisation, at least 0.

    Examples
    --------
    >>> law = lk.lessons.Scalability(one=100, contention=0.05, coherence=0.001)
    >>> law([1, 10, 100]).round()
    array([100., 649., 631.])
    >>> round(law.peak), round(law.ceiling)
    (31, 904)
    """

    one: float
    contention: float
    coherence: float

    @overload
    def __call__(self, workers: float) -> float: ...
    @overload
    def __call__(self, workers: Sequence[float] | np.ndarray) -> np.ndarray: ...
    def __call__(self, workers: float | Sequence[float] | np.ndarray) -> Any:
        """Return the throughput of `workers` workers, a number or an array, as float64 of the same shape."""
        n = np.asarray(workers, np.float64)
        return self.one * n / (1 + self.contention * (n - 1) + self.coherence * n * (n - 1))

    @property
    def peak(self) -> float:
        """The number of workers with the largest throughput, at least 1; infinity if the throughput always grows."""
        if self.coherence == 0:
            return math.inf
        return math.sqrt(max((1 - self.contention) / self.coherence, 1.0))

    @property
    def ceiling(self) -> float:
        """The largest throughput: at the peak, or the limit for N to infinity."""
        if self.coherence:
            return float(self(self.peak))
        return self.one / self.contention if self.contention else math.inf


def fit_scalability(throughput: Mapping[int, float]) -> Scalability:
    """Fit the Universal Scalability Law to measured throughputs.

    Parameters
    ----------
    throughput : mapping of int to float
        {workers: throughput}, of one worker and of more.

    Returns
    -------
    Scalability
        The law. The fit is exact for points that follow a law.

    Raises
    ------
    BadInput
        If `throughput` has fewer than two numbers of workers, does not include 1, or has a value that is not positive.

    Notes
    -----
    N X(1) / X(N) - 1 = p (N - 1) + k N (N - 1) is linear in p and k. Both are found by least squares with the
    constraint that neither is below 0 (so an efficiency above 1 counts as 1). Each equation is divided by N - 1, so
    that the largest N does not dominate.

    Examples
    --------
    >>> law = lk.lessons.fit_scalability({1: 100, 2: 190, 4: 340, 8: 560})
    >>> round(law.contention, 3), round(law.coherence, 4), round(law.peak)
    (0.051, 0.0013, 27)
    """
    if not isinstance(throughput, Mapping) or 1 not in throughput or len(throughput) < 2:
        raise BadInput(f"fit_scalability({shown(throughput)}): give {{workers: throughput}} of 1 and of more workers.")
    for workers, made in throughput.items():
        whole = not isinstance(workers, bool) and isinstance(workers, (int, np.integer)) and workers >= 1
        if not whole or not (math.isfinite(made) and made > 0):
            raise BadInput(
                f"fit_scalability: {shown(workers)}: {shown(made)} is not allowed; workers are whole, throughput is above 0."
            )
    several = sorted(set(throughput) - {1})
    n, x = np.array(several, np.float64), np.array([throughput[m] for m in several], np.float64)
    one = float(throughput[1])
    contention, coherence = _least_squares(n, (n * one / x - 1) / (n - 1))  # = p + k N
    return Scalability(one, contention, coherence)


def _least_squares(n: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Return (p, k), both >= 0, for which p + k n is nearest to y.

    Four fits are compared: both parameters 0, only p, only k, and both.
    """
    found = [(0.0, 0.0), (max(float(y.mean()), 0.0), 0.0), (0.0, max(float(n @ y / (n @ n)), 0.0))]
    if len(n) > 1:
        centred = n - n.mean()
        k = float(centred @ y / (centred @ centred))
        p = float(y.mean() - k * n.mean())
        if p >= 0 and k >= 0:
            found.append((p, k))
    return min(found, key=lambda pk: float(np.sum((pk[0] + pk[1] * n - y) ** 2)))


def _checked(serial: object, workers: object) -> Any:
    """Return the workers as float64. Raises `BadInput` if `serial` or `workers` is out of its limits."""
    if isinstance(serial, bool) or not isinstance(serial, (int, float)) or not 0 <= serial <= 1:
        raise BadInput(f"serial={shown(serial)}: the part that cannot be divided is a number from 0 to 1.")
    try:
        n = np.asarray(workers, np.float64)
    except (TypeError, ValueError):
        n = np.zeros(1)
    if not np.isfinite(n).all() or (n < 1).any():
        raise BadInput(f"workers={shown(workers)}: give a number of workers, at least 1, or an array of them.")
    return n if n.ndim else float(n)
