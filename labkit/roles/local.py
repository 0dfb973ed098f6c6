"""A worker's own weights, on which it steps by itself between two exchanges with the servers.

Downpour SGD adds up the gradients of several steps and pushes their sum; elastic averaging pushes the weights
themselves. Both need weights that change without a server, and both push several gradients at once.

Weights that are pulled towards a centre hold gradients of other workers, too: those that the centre's weights held. A position
therefore says which ones (its clocks, one for each shard, because shards may hold different ones). A centre that was
restored gets them back with it, and knows that it has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ..nn import decay_weights
from ..nn.optimizers import State
from .gradient import Gradient
from .messages import Position, Weights
from .part import Part, Work

__all__ = ["Local", "Moved"]


class Moved(Gradient):
    """Weights (flat, parameter size), pushed in the place of the gradients that `moved` them here. `clocks`: of each shard,
    which gradients of other lives its part of the weights holds, {life: last step}.
    """

    __slots__ = ("clocks",)

    def __init__(self, values: np.ndarray, moved: Gradient, clocks: Sequence[Mapping[int, int]]):
        super().__init__(values, moved.step, moved.read, moved.samples, moved.parts, moved.loss, moved.count)
        self.clocks = tuple(tuple(number for entry in clock.items() for number in entry) for clock in clocks)

    def push(self, shard: int) -> Position:
        """The message for the centre's `shard`."""
        values = self.values if len(self.parts) == 1 else self.values[self.parts[shard]]
        generation, version = self.read[shard]
        return Position(values, self.step, generation, version, self.count, self.samples, self.clocks[shard])


class Local(Part):
    """Weights (shape (size,)) that a worker moves itself, with the strategy's optimizer and schedule.

    The schedule counts the worker's own steps. `values` and `read` are what a gradient is computed on.
    """

    work: ClassVar[Work] = "server"

    def __init__(self, weights: Weights | Any, strategy: Any):
        self.strategy, self.steps = strategy, 0
        self.take(weights)
        self._real = self.values.strides != (0,)
        self._state: State = {}
        self._sum: Gradient | None = None
        self._force: Any = None  # of the spring, for the next step

    def take(self, weights: Weights | Any) -> None:
        """Continue from the weights of the servers."""
        real = weights.values.strides != (0,)
        self.values, self.read = weights.values.copy() if real else weights.values, weights.read
        self._clocks: list[dict[int, int]] = [{} for _ in weights.clocks]
        self._join(weights.clocks)

    def step(self, gradient: Gradient) -> None:
        """One step of the optimizer, and of the spring if the weights are tied to a centre."""
        strategy = self.strategy
        rate = strategy.learning_rate * strategy.schedule(self.steps)
        self.steps += 1
        if self._real:
            if not self._state:
                self._state = strategy.optimizer.state(len(self.values), self.values.dtype)
            decay_weights(self.values, rate, strategy.weight_decay)
            strategy.optimizer.apply(self.values, gradient.values, rate, self._state, self.steps)
            if self._force is not None:
                self.values -= self._force
                self._force = None

    def add(self, gradient: Gradient) -> None:
        """Add `gradient` to the sum that is pushed next."""
        self._sum = gradient if self._sum is None else self._sum.plus(gradient)

    def gradients(self) -> Gradient:
        """The sum of the gradients since the last time, as one with a `count`: Downpour's push."""
        assert self._sum is not None
        total, self._sum = self._sum, None
        return total

    def position(self) -> Moved:
        """The weights themselves, standing for the gradients that brought them here: elastic averaging's push."""
        return Moved(self.values, self.gradients(), self._clocks)

    def tie(self, centre: Weights | Any, share: float) -> None:
        """A spring pulls the weights towards the servers' by `share` of the way, together with the next step:
        x <- x - rate g(x) - share (x - z), with x as it is now. The servers' weights count as read from now on, and what
        they hold is held by every later position, as a step lies between.
        """
        self.read = centre.read
        self._join(centre.clocks)
        if self._real:
            self._force = self.values - centre.values
            self._force *= self._force.dtype.type(share)

    def _join(self, clocks: Sequence[Sequence[int]]) -> None:
        """For each shard: the weights also hold the gradients in `clocks`."""
        for mine, clock in zip(self._clocks, clocks, strict=True):
            for life, step in zip(clock[::2], clock[1::2]):
                if step > mine.get(life, -1):
                    mine[life] = step
