"""The optimizer of one flat vector of parameters, with its state (momenta, running squares)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..formats import ArrayForm
from ..nn import decay_weights
from ..nn.optimizers import Optimizer, State


class OptimizerState:
    """`optimizer` with its state for `size` parameters of `dtype`. `weight_decay` is decoupled from the gradient. `name`: of the
    state in a checkpoint.
    """

    __slots__ = ("_apply", "_decay", "_name", "_state")

    def __init__(
        self, optimizer: Optimizer, size: int, dtype: np.dtype, weight_decay: float = 0.0, name: str = "optimizer"
    ):  # fmt: skip
        self._apply, self._decay, self._name = optimizer.apply, weight_decay, name
        self._state = optimizer.state(size, dtype)

    def step(self, values: np.ndarray, gradient: np.ndarray, rate: float, update: int) -> None:
        """Apply update number `update`, counted from 1, to `values` in place."""
        if self._decay:
            decay_weights(values, rate, self._decay)
        self._apply(values, gradient, rate, self._state, update)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the state, copied, as entries of a checkpoint."""
        return saved_state(self._name, self._state)

    def form(self) -> dict[str, ArrayForm]:
        return state_form(self._name, self._state)

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        load_state(self._name, self._state, arrays)


def saved_state(name: str, state: State) -> dict[str, np.ndarray]:
    """Return copies of the arrays in `state` as "name:key"; work space (keys that begin with "_") is omitted."""
    return {f"{name}:{key}": value.copy() for key, value in state.items() if not key.startswith("_")}


def state_form(name: str, state: State) -> dict[str, ArrayForm]:
    saved = {f"{name}:{key}": value for key, value in state.items() if not key.startswith("_")}
    return {key: ArrayForm(value.dtype, value.shape, finite=True) for key, value in saved.items()}


def load_state(name: str, into: State, arrays: Mapping[str, np.ndarray]) -> None:
    for key, value in arrays.items():
        if key.startswith(f"{name}:"):
            into[key.partition(":")[2]] = np.array(value)
