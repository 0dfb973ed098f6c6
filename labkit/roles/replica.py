"""A replica of the whole model that steps independently and is averaged with others from time to time.

Averaging changes parameters without a gradient, so it is not an update; but it brings other workers' gradients along. A replica
therefore has a vector clock, the last gradient of each worker that its parameters hold, and when replicas are mixed their
clocks are merged. A gradient counts as applied once any replica holds it.

Elastic averaging mixes a worker's weights with a centre in the same way: each holds the gradients of the other after two
exchanges. Workers and the centre's shards are restarted one by one, so their clocks name role instances, and every shard
has a clock of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from ..errors import RoleError
from .dense_parameters import DenseParameters
from .messages import CentreWeights, Position, Snapshot
from .shard import NEVER, Shard

__all__ = ["Centre", "Replica"]


class Replica(Shard):
    """The whole model, as one worker has it.

    A snapshot for the chief is taken right after a step, before the replica is averaged again: then replicas at the same step
    have a meaningful mean. `_end`: the parameters after the last step that the budget allows.
    """

    parameters: DenseParameters
    _end: np.ndarray | None = None

    def trains(self) -> None:
        """Count a mini-batch that another role, the worker, has computed for this replica."""
        self.recorder.counters.steps += 1

    def request(self, at: int) -> bool:
        """As `Shard.request`; but the parameters may have been averaged since the last step, so a later step is shown."""
        if self.finished or not self.version:
            return super().request(at)
        self._wanted = at if self.eval_every else NEVER
        return False

    def snapshot(self, final: bool, shown: bool) -> Snapshot:
        """As `Shard.snapshot`, of the end once the end is reached."""
        made = super().snapshot(final, shown)
        return made if self._end is None or not shown else replace(made, values=self._end)

    def apply(self, gradients: Any, learning_rate: float, reduce: str = "mean") -> bool:
        """As `Shard.apply`; the last step that the budget allows is kept to be shown."""
        applied = super().apply(gradients, learning_rate, reduce)
        if applied and self.finished:
            self._end = self.copy()
        return applied

    def copy(self) -> np.ndarray:
        """The parameters as they are now, shape (size,), the caller's own."""
        return self.values if self.parameters.timing_only else self.values.copy()

    def clock_of(self, workers: Sequence[str]) -> tuple[int, ...]:
        """The last step of each worker whose gradient these parameters hold; -1 for none."""
        return self.log.vector_clock(workers)

    def become(self, values: np.ndarray, workers: Sequence[str], clock: Sequence[int]) -> None:
        """Overwrite the parameters with `values`, shape (size,), an average that holds the workers' gradients up to `clock`."""
        if values.shape != self.values.shape:
            raise RoleError(f"A replica of {len(self.values)} parameters cannot become {values.shape}.")
        self.parameters.assign(values)
        self.log.merge(workers, clock)

    def share_of(self, total: np.ndarray, replicas: int) -> np.ndarray:
        """The mean, in place, when `total` is the sum of the parameters of so many replicas."""
        return total if self.parameters.timing_only else np.divide(total, replicas, out=total)

    def mixed(self, others: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
        """weights[0] x these parameters + weights[1] x others[0] + ...: shape (size,), new memory."""
        if self.parameters.timing_only:
            return self.values
        total: np.ndarray = self.values * self.values.dtype.type(weights[0])
        for other, weight in zip(others, weights[1:]):
            total += other * other.dtype.type(weight)
        return total


class Centre(Shard):
    """A shard that parameters are pulled towards, and that is pulled towards them.

    It holds of every instance of a worker all gradients up to some step: a position holds all those of its own instance, and
    of others those that the weights of centres held. So no gradient before that step is missing, whatever was dropped or
    lost by a restore.
    """

    pushes: ClassVar[dict[str, type]] = {"Position": Position}
    cumulative: ClassVar[bool] = True
    parameters: DenseParameters

    def weights(self) -> CentreWeights:
        """As `Shard.weights`, and which gradients they hold."""
        return CentreWeights(self.values, self.index, self.generation, self.version, self.log.all_steps())

    def attract(self, position: Position, share: float) -> bool:
        """Move by `share` of the way to the parameters in `position`: z += share (x - z). It is the application of the
        gradients that brought x there: it counts as an update, and is refused when the budget is used up.
        """
        admitted = self._admitted((position,))
        if not admitted:
            return False
        self.parameters.move_towards(admitted[0].values, share)
        self.log.join(position)
        self._applied(admitted)
        return True
