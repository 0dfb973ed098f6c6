"""A replica of the whole model that steps independently and is averaged with others from time to time.

Averaging changes parameters without a gradient, so it is not an update, but it propagates other workers' gradients. A replica
therefore has a vector clock, the last gradient of each worker that its parameters contain; when replicas are averaged, their
clocks are merged. A gradient counts as applied once any replica contains it.

Elastic averaging mixes a worker's weights with a centre in the same way: each contains the gradients of the other after two
exchanges. Workers and the centre's shards are restarted individually, so their clocks refer to role instances, and every shard
has a separate clock.
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
    """A worker's replica of the whole model.

    A snapshot for the chief is taken right after a step, before the replica is averaged again, so that the mean of replicas at
    the same step is meaningful. `_final_values`: the parameters after the last step that the budget allows.
    """

    parameters: DenseParameters
    _final_values: np.ndarray | None = None

    def count_step(self) -> None:
        """Count a mini-batch that another role, the worker, has computed for this replica."""
        self.recorder.counters.steps += 1

    def request(self, at: int) -> bool:
        """As `Shard.request`, but never due at once: the parameters may have been averaged since the last step."""
        if self.finished or not self.version:
            return super().request(at)
        self._snapshot_at = at if self.eval_every else NEVER
        return False

    def snapshot(self, final: bool, shown: bool) -> Snapshot:
        """As `Shard.snapshot`; once the budget is used up, of the parameters after the last step."""
        made = super().snapshot(final, shown)
        return made if self._final_values is None or not shown else replace(made, values=self._final_values)

    def apply(self, gradients: Any, learning_rate: float, reduce: str = "mean") -> bool:
        """As `Shard.apply`; the parameters after the last step that the budget allows are copied for snapshots."""
        applied = super().apply(gradients, learning_rate, reduce)
        if applied and self.finished:
            self._final_values = self.copy()
        return applied

    def copy(self) -> np.ndarray:
        """A copy of the parameters, shape (size,)."""
        return self.values if self.parameters.timing_only else self.values.copy()

    def clock_of(self, workers: Sequence[str]) -> tuple[int, ...]:
        """For each worker, the last step whose gradient the parameters contain; -1 for none."""
        return self.log.vector_clock(workers)

    def assign(self, values: np.ndarray, workers: Sequence[str], clock: Sequence[int]) -> None:
        """Replace the parameters by `values`, shape (size,), an average that contains the workers' gradients up to `clock`."""
        if values.shape != self.values.shape:
            raise RoleError(f"A replica of {len(self.values)} parameters cannot take values of shape {values.shape}.")
        self.parameters.assign(values)
        self.log.merge(workers, clock)

    def mean_of(self, total: np.ndarray, replicas: int) -> np.ndarray:
        """Divide `total`, the sum of the parameters of `replicas` replicas, by their number, in place."""
        return total if self.parameters.timing_only else np.divide(total, replicas, out=total)

    def weighted_mean(self, others: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
        """weights[0] x these parameters + weights[1] x others[0] + ...: a new array, shape (size,)."""
        if self.parameters.timing_only:
            return self.values
        total: np.ndarray = self.values * self.values.dtype.type(weights[0])
        for other, weight in zip(others, weights[1:]):
            total += other * other.dtype.type(weight)
        return total


class Centre(Shard):
    """A shard of the centre variable of elastic averaging.

    For every worker instance it contains all gradients up to some step: a position contains all those of its sender, and those
    of other instances that it received with weights of the centre. No gradient before that step is missing, even if some were
    dropped or rolled back by a restore.
    """

    pushes: ClassVar[dict[str, type]] = {"Position": Position}
    cumulative: ClassVar[bool] = True
    parameters: DenseParameters

    def weights(self) -> CentreWeights:
        """As `Shard.weights`, with the gradients that they contain."""
        return CentreWeights(self.values, self.index, self.generation, self.version, self.log.all_steps())

    def elastic_step(self, position: Position, share: float) -> bool:
        """Move towards the parameters in `position`: z += share (x - z). This applies the gradients contained in x: it counts as
        an update, and is refused when the budget is used up.
        """
        admitted = self._admitted((position,))
        if not admitted:
            return False
        self.parameters.move_towards(admitted[0].values, share)
        self.log.merge_position(position)
        self._applied(admitted)
        return True
