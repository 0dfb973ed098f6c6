"""Optimizers: how a shard applies a gradient.

All formulas are elementwise. Therefore shards that apply their parts separately give the same result, bit for bit, as
one shard with the whole vector. `apply` changes `params` and `state` in place, but never the gradient. `step` counts
the updates of this state from 1. Keys of `state` that begin with "_" are work space, which is not saved, and allocated
when missing. A step that is too large overflows to inf without a warning; the loss is then not finite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike

from ..errors import BadInput
from ..options import HasOptions, option
from .named_objects import make_by_name
from .objective import Array

State = dict[str, Array]


class Optimizer(Protocol):
    """The interface of optimizers, which is also their base class.

    In formulas w is the parameters, g the gradient, and r the learning rate.
    """

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
            Arrays of shape (size,), by name.
        """

    def apply(self, params: Array, gradient: Array, learning_rate: float, state: State, step: int) -> None:
        """Take one step: update the parameters and the state in place.

        Parameters
        ----------
        params : ndarray, shape (size,)
            The parameters. They are changed.
        gradient : ndarray, shape (size,)
            The gradient, of the same dtype. It is not changed.
        learning_rate : float
            The length of the step.
        state : dict of str to ndarray
            The state. It is changed.
        step : int
            The number of this update, counted from 1.
        """


def _zeros(size: int, dtype: DTypeLike, *names: str) -> State:
    return {**{name: np.zeros(size, dtype) for name in names}, "_scratch": np.empty(size, dtype)}


def _scratch(params: Array, gradient: Array, state: State) -> Array:
    """Return work space with the shape and dtype of params, which is kept in the state."""
    if params.shape != gradient.shape:
        raise BadInput(f"A gradient of shape {gradient.shape} does not fit parameters of shape {params.shape}.")
    scratch = state.get("_scratch")
    if scratch is None or scratch.shape != params.shape:
        scratch = state["_scratch"] = np.empty_like(params)
    return scratch


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent: w -= r g  (Robbins and Monro 1951).

    See Also
    --------
    Momentum : Keeps a velocity.

    Examples
    --------
    >>> weights, gradient = np.array([1.0, 2.0]), np.array([0.5, -0.5])
    >>> optimizer = lk.SGD()
    >>> state = optimizer.state(2, weights.dtype)
    >>> for step in (1, 2):
    ...     optimizer.apply(weights, gradient, 0.1, state, step)
    >>> weights
    array([0.9, 2.1])
    """

    def state(self, size: int, dtype: DTypeLike) -> State:
        return _zeros(size, dtype)

    def apply(self, params: Array, gradient: Array, learning_rate: float, state: State, step: int) -> None:
        scratch = _scratch(params, gradient, state)
        with np.errstate(over="ignore", invalid="ignore"):
            np.multiply(gradient, float(learning_rate), out=scratch)
            params -= scratch


@dataclass(frozen=True)
class Momentum(HasOptions, Optimizer):
    """Momentum: v = m v + g;  w -= r v  (Polyak 1964).

    The rate is not inside v, so it may change between updates. A momentum below 0 is allowed, because it can cancel the implicit
    momentum of asynchrony (Mitliagkas et al. 2016).

    See Also
    --------
    Nesterov : Applies the momentum to the gradient, too.

    Examples
    --------
    >>> weights, gradient = np.array([1.0, 2.0]), np.array([0.5, -0.5])
    >>> optimizer = lk.Momentum(0.9)
    >>> state = optimizer.state(2, weights.dtype)
    >>> for step in (1, 2):
    ...     optimizer.apply(weights, gradient, 0.1, state, step)
    >>> weights
    array([0.855, 2.145])
    """

    momentum: float = option(0.9, low=-0.99, high=0.9999, help="share of the velocity that is kept")

    def state(self, size: int, dtype: DTypeLike) -> State:
        return _zeros(size, dtype, "velocity")

    def apply(self, params: Array, gradient: Array, learning_rate: float, state: State, step: int) -> None:
        scratch, velocity = _scratch(params, gradient, state), state["velocity"]
        with np.errstate(over="ignore", invalid="ignore"):
            velocity *= self.momentum
            velocity += gradient
            np.multiply(velocity, float(learning_rate), out=scratch)
            params -= scratch


@dataclass(frozen=True)
class Nesterov(HasOptions, Optimizer):
    """Nesterov momentum: v = m v + g;  w -= r (g + m v).

    Nesterov's accelerated gradient (1983) as a momentum rule (Sutskever et al. 2013), written for the looked-ahead
    parameters (Bengio et al. 2013, "Advances in optimizing recurrent networks"), so that g is computed at w.

    See Also
    --------
    Momentum : The rule of Polyak.

    Examples
    --------
    >>> weights, gradient = np.array([1.0, 2.0]), np.array([0.5, -0.5])
    >>> optimizer = lk.Nesterov(0.9)
    >>> state = optimizer.state(2, weights.dtype)
    >>> for step in (1, 2):
    ...     optimizer.apply(weights, gradient, 0.1, state, step)
    >>> weights
    array([0.7695, 2.2305])
    """

    momentum: float = option(0.9, low=-0.99, high=0.9999, help="share of the velocity that is kept")

    def state(self, size: int, dtype: DTypeLike) -> State:
        return _zeros(size, dtype, "velocity")

    def apply(self, params: Array, gradient: Array, learning_rate: float, state: State, step: int) -> None:
        scratch, velocity = _scratch(params, gradient, state), state["velocity"]
        with np.errstate(over="ignore", invalid="ignore"):
            velocity *= self.momentum
            velocity += gradient
            np.multiply(velocity, self.momentum, out=scratch)
            scratch += gradient
            scratch *= float(learning_rate)
            params -= scratch


@dataclass(frozen=True)
class Adagrad(HasOptions, Optimizer):
    """Adagrad: s += g^2;  w -= r g / (sqrt(s) + epsilon)  (Duchi, Hazan and Singer 2011; used by DistBelief).

    See Also
    --------
    Adam : Forgets old squares.
    SparsePS : Uses Adagrad by default.

    Examples
    --------
    >>> weights, gradient = np.array([1.0, 2.0]), np.array([0.5, -0.5])
    >>> optimizer = lk.Adagrad()
    >>> state = optimizer.state(2, weights.dtype)
    >>> for step in (1, 2):
    ...     optimizer.apply(weights, gradient, 0.1, state, step)
    >>> weights
    array([0.82928932, 2.17071068])
    """

    epsilon: float = option(1e-8, low=1e-16, high=1.0, log=True, help="keeps the division finite")

    def state(self, size: int, dtype: DTypeLike) -> State:
        return _zeros(size, dtype, "squares")

    def apply(self, params: Array, gradient: Array, learning_rate: float, state: State, step: int) -> None:
        scratch, squares = _scratch(params, gradient, state), state["squares"]
        with np.errstate(over="ignore", invalid="ignore"):
            np.multiply(gradient, gradient, out=scratch)
            squares += scratch
            np.sqrt(squares, out=scratch)
            scratch += self.epsilon
            np.divide(gradient, scratch, out=scratch)
            scratch *= float(learning_rate)
            params -= scratch


@dataclass(frozen=True)
class Adam(HasOptions, Optimizer):
    """Adam (Kingma and Ba 2015, algorithm 1).

    m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  w -= r (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon), where
    t is the step.

    See Also
    --------
    Adagrad : Keeps the sum of all squares.

    Examples
    --------
    >>> weights, gradient = np.array([1.0, 2.0]), np.array([0.5, -0.5])
    >>> optimizer = lk.Adam()
    >>> state = optimizer.state(2, weights.dtype)
    >>> for step in (1, 2):
    ...     optimizer.apply(weights, gradient, 0.1, state, step)
    >>> weights
    array([0.8, 2.2])
    """

    beta1: float = option(0.9, low=0.0, high=0.9999, help="share of the mean gradient that is kept")
    beta2: float = option(0.999, low=0.0, high=0.999999, help="share of the mean square that is kept")
    epsilon: float = option(1e-8, low=1e-16, high=1.0, log=True, help="keeps the division finite")

    def state(self, size: int, dtype: DTypeLike) -> State:
        return _zeros(size, dtype, "mean", "square")

    def apply(self, params: Array, gradient: Array, learning_rate: float, state: State, step: int) -> None:
        if step < 1:
            raise BadInput(f"Adam: step={step}; steps count from 1.")
        scratch, mean, square = _scratch(params, gradient, state), state["mean"], state["square"]
        with np.errstate(over="ignore", invalid="ignore"):
            np.multiply(gradient, 1 - self.beta1, out=scratch)
            mean *= self.beta1
            mean += scratch
            np.multiply(gradient, gradient, out=scratch)
            scratch *= 1 - self.beta2
            square *= self.beta2
            square += scratch
            np.divide(square, 1 - self.beta2**step, out=scratch)
            np.sqrt(scratch, out=scratch)
            scratch += self.epsilon
            np.divide(mean, scratch, out=scratch)
            scratch *= float(learning_rate) / (1 - self.beta1**step)
            params -= scratch


OPTIMIZERS: dict[str, type] = {"sgd": SGD, "momentum": Momentum, "nesterov": Nesterov, "adagrad": Adagrad, "adam": Adam}


def optimizer_by_name(name: str) -> Optimizer:
    """Make an optimizer from text: `"adam"`, or with its options in order, `"momentum:0.95"`.

    Raises `BadInput`, with the nearest allowed name, if the name is unknown, and if a value is not allowed.
    """
    made: Optimizer = make_by_name("optimizer", name, OPTIMIZERS)
    return made
