"""Delay compensation: a first-order estimate of the gradient at the current weights, from a stale gradient.

A gradient g was computed at weights w_then and is applied at w_now. By Taylor's theorem the gradient at w_now is
g + H (w_now - w_then) + ..., with H the Hessian. DC-ASGD approximates H by the diagonal matrix strength * g * g,
because the outer product of the gradient with itself is an estimate of the Hessian of a likelihood. The server must
keep the weights that each worker has read.

Zheng et al., "Asynchronous stochastic gradient descent with delay compensation", ICML 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike

from ..options import HasOptions, option
from .named_objects import make_by_name
from .objective import Array
from .optimizers import State


class Compensation(Protocol):
    """The interface of delay compensations. All arrays have shape (size,)."""

    def state(self, size: int, dtype: DTypeLike) -> State: ...

    def compensate(self, gradient: Array, now: Array, then: Array, state: State) -> Array:
        """Return, in new memory, an estimate of the gradient at the weights `now`, from the `gradient` at the weights `then`."""


@dataclass(frozen=True)
class DelayCompensation(HasOptions):
    """DC-ASGD with a constant strength. The compensated gradient is g + strength g g (w_now - w_then).

    The server keeps the weights that each worker has read.

    See Also
    --------
    AdaptiveCompensation : The strength depends on the mean square of the gradients.
    AsyncPS : Has the option compensation.

    Notes
    -----
    Zheng et al., "Asynchronous stochastic gradient descent with delay compensation", ICML 2017.

    Examples
    --------
    >>> compensation = lk.DelayCompensation(strength=0.5)
    >>> gradient, now, then = np.array([2.0]), np.array([1.0]), np.array([0.9])
    >>> compensation.compensate(gradient, now, then, compensation.state(1, float))
    array([2.2])
    >>> lk.AsyncPS(compensation=compensation).compensation
    DelayCompensation(strength=0.5)
    """

    strength: float = option(0.04, low=0.0, high=1e6, help="how much of g g is taken for the curvature")

    def state(self, size: int, dtype: DTypeLike) -> State:
        """Return the initial value of the state that is kept between updates.

        Parameters
        ----------
        size : int
            The number of parameters.
        dtype : dtype
            Their type.

        Returns
        -------
        dict of str to ndarray
            Arrays of shape (size,), by name; empty if the strength is constant.
        """
        return {}

    def curvature(self, gradient: Array, state: State) -> Array:
        """Return the diagonal approximation of the Hessian.

        Parameters
        ----------
        gradient : ndarray, shape (size,)
            The gradient.
        state : dict of str to ndarray
            The state. It is changed.

        Returns
        -------
        ndarray, shape (size,)
            The diagonal, in new memory.
        """
        return self.strength * np.square(gradient)

    def compensate(self, gradient: Array, now: Array, then: Array, state: State) -> Array:
        """Return an estimate of the gradient at the present weights. Overflow raises no warning.

        Parameters
        ----------
        gradient : ndarray, shape (size,)
            The gradient at the weights `then`.
        now : ndarray, shape (size,)
            The present weights.
        then : ndarray, shape (size,)
            The weights on which the gradient was computed.
        state : dict of str to ndarray
            The state. It is changed.

        Returns
        -------
        ndarray, shape (size,)
            The estimate, in new memory.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            change = self.curvature(gradient, state)
            change *= now - then
            change += gradient
        return change


@dataclass(frozen=True)
class AdaptiveCompensation(DelayCompensation):
    """DC-ASGD with an adaptive strength, which is divided by the root of a running mean of g g.

    So the correction is smaller where gradients are large.

    See Also
    --------
    DelayCompensation : The strength is constant.

    Notes
    -----
    Zheng et al., "Asynchronous stochastic gradient descent with delay compensation", ICML 2017.

    Examples
    --------
    >>> compensation = lk.AdaptiveCompensation(strength=1.0, decay=0.0)
    >>> gradient, now, then = np.array([2.0]), np.array([1.0]), np.array([0.9])
    >>> compensation.compensate(gradient, now, then, compensation.state(1, float)).round(3)
    array([2.2])
    """

    strength: float = option(2.0, low=0.0, high=1e6, help="of the compensation, before it is divided by the root")
    decay: float = option(0.95, low=0.0, high=0.999999, help="share of the running mean that is kept")
    epsilon: float = option(1e-7, low=1e-16, high=1.0, log=True, help="keeps the division finite")

    def state(self, size: int, dtype: DTypeLike) -> State:
        """Return the initial running mean of g g, which is 0."""
        return {"mean_square": np.zeros(size, dtype)}

    def curvature(self, gradient: Array, state: State) -> Array:
        """Return strength g g / sqrt(mean of g g + epsilon); the running mean includes this gradient."""
        mean, square = state["mean_square"], np.square(gradient)
        mean *= self.decay
        mean += (1 - self.decay) * square
        square *= self.strength
        square /= np.sqrt(mean + self.epsilon)
        return square


COMPENSATIONS: dict[str, type] = {"constant": DelayCompensation, "adaptive": AdaptiveCompensation}


def compensation_by_name(name: str) -> Compensation | None:
    """Make a compensation from text, with options in order: `"constant"`, `"adaptive:2.0"`. `"none"` gives None.

    Raises `BadInput`, with the nearest allowed name, if the name is unknown.
    """
    if name.strip().lower() in ("", "none"):
        return None
    made: Compensation = make_by_name("delay compensation", name, COMPENSATIONS)
    return made
