"""A worker's own weights, on which it steps by itself between two talks with the servers.

Downpour SGD adds up the gradients of several steps and pushes their sum; elastic averaging pushes where its weights
have got to. Both need weights that move without a server, and both hand on several gradients at once.
"""

from __future__ import annotations

from typing import Any

from ..nn import decay_weights
from ..nn.optimizers import State
from .gradient import Gradient
from .messages import Weights

__all__ = ["Local"]


class Local:
    """Weights (shape (size,)) that a worker moves itself, with the strategy's optimizer and schedule.

    The schedule counts the worker's own steps. `values` and `read` are what a gradient is computed on.
    """

    work = "server"

    def __init__(self, weights: Weights | Any, strategy: Any):
        self.strategy, self.steps = strategy, 0
        self.take(weights)
        self._real = self.values.strides != (0,)
        self._state: State = {}
        self._sum: Gradient | None = None

    def take(self, weights: Weights | Any) -> None:
        """Go on from the servers' weights."""
        real = weights.values.strides != (0,)
        self.values, self.read = weights.values.copy() if real else weights.values, weights.read

    def step(self, gradient: Gradient) -> None:
        """One step of the optimizer."""
        strategy = self.strategy
        rate = strategy.learning_rate * strategy.schedule(self.steps)
        self.steps += 1
        if self._real:
            if not self._state:
                self._state = strategy.optimizer.state(len(self.values), self.values.dtype)
            decay_weights(self.values, rate, strategy.weight_decay)
            strategy.optimizer.apply(self.values, gradient.values, rate, self._state, self.steps)

    def add(self, gradient: Gradient) -> None:
        """The gradient is one more of those to be handed on."""
        self._sum = gradient if self._sum is None else self._sum.plus(gradient)

    def gradients(self) -> Gradient:
        """The sum of the gradients since the last time, as one with a `count`: Downpour's push."""
        assert self._sum is not None
        total, self._sum = self._sum, None
        return total

    def position(self) -> Gradient:
        """The weights themselves, standing for the gradients that brought them here: elastic averaging's push."""
        moved = self.gradients()
        moved.values = self.values
        return moved

    def towards(self, centre: Weights | Any, share: float) -> None:
        """Move by `share` of the way to the servers' weights, which have now been read: x -= share (x - z)."""
        self.read = centre.read
        if self._real:
            pull = self.values - centre.values
            pull *= pull.dtype.type(share)
            self.values -= pull
