"""Local weights of a worker, on which it steps between two exchanges with the servers.

Downpour SGD accumulates the gradients of several steps and pushes their sum; elastic averaging pushes the weights themselves.
Both need weights that change without a server, and both push several gradients at once.

Weights that are pulled towards a centre also contain gradients of other workers, which were contained in the centre's weights.
A position therefore lists these gradients. (It has one clock per shard, because shards may contain different gradients.) A
centre that was restored receives these gradients with the next position, and can account for them.
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


class MovedWeights(Gradient):
    """Weights (flat, parameter size) that are pushed in place of the `gradients` that were applied to them. `clocks`: for each
    shard, the gradients of other role instances that its part of the weights contains, {role instance: last step}.
    """

    __slots__ = ("clocks",)

    def __init__(self, values: np.ndarray, gradients: Gradient, clocks: Sequence[Mapping[int, int]]):
        super().__init__(
            values, gradients.step, gradients.read, gradients.samples, gradients.parts, gradients.loss, gradients.count
        )  # fmt: skip
        self.clocks = tuple(tuple(number for entry in clock.items() for number in entry) for clock in clocks)

    def push(self, shard: int) -> Position:
        values = self.values if len(self.parts) == 1 else self.values[self.parts[shard]]
        generation, version = self.read[shard]
        return Position(values, self.step, generation, version, self.count, self.samples, self.clocks[shard])


class Local(Part):
    """Weights (shape (size,)) that a worker updates locally, with the strategy's optimizer and schedule.

    The schedule counts the worker's steps. Gradients are computed on `values`, whose versions are `read`.
    """

    work: ClassVar[Work] = "server"

    def __init__(self, weights: Weights | Any, strategy: Any):
        self.strategy, self.steps = strategy, 0
        self.reset(weights)
        self._has_values = self.values.strides != (0,)
        self._state: State = {}
        self._sum: Gradient | None = None
        self._force: Any = None  # of the spring, for the next step

    def reset(self, weights: Weights | Any) -> None:
        has_values = weights.values.strides != (0,)
        self.values, self.read = weights.values.copy() if has_values else weights.values, weights.read
        self._clocks: list[dict[int, int]] = [{} for _ in weights.clocks]
        self._merge_clocks(weights.clocks)

    def step(self, gradient: Gradient) -> None:
        """Take one step of the optimizer, and apply the elastic force if one is set."""
        strategy = self.strategy
        rate = strategy.learning_rate * strategy.schedule(self.steps)
        self.steps += 1
        if self._has_values:
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
        """Return the sum of the gradients since the last call, as one gradient with a `count`: Downpour's push."""
        assert self._sum is not None
        total, self._sum = self._sum, None
        return total

    def position(self) -> MovedWeights:
        """Return the weights, which elastic averaging pushes in place of the gradients since the last position."""
        return MovedWeights(self.values, self.gradients(), self._clocks)

    def set_elastic_force(self, centre: Weights | Any, share: float) -> None:
        """Set the force that pulls the weights x towards the servers' weights z. It is applied with the next step:
        x <- x - rate g(x) - share (x - z), where x are the present weights. From now on the version of z counts as read. Later
        positions contain the gradients in z, because the force is applied before the next position is pushed.
        """
        self.read = centre.read
        self._merge_clocks(centre.clocks)
        if self._has_values:
            self._force = self.values - centre.values
            self._force *= self._force.dtype.type(share)

    def _merge_clocks(self, clocks: Sequence[Sequence[int]]) -> None:
        """Record that the weights also contain the gradients in `clocks`, one clock per shard."""
        for mine, clock in zip(self._clocks, clocks, strict=True):
            for instance, step in zip(clock[::2], clock[1::2]):
                if step > mine.get(instance, -1):
                    mine[instance] = step
