"""A replica of the whole model that steps independently and is averaged with others from time to time.

Averaging changes the parameters without a gradient, so it is not an update, but it adds gradients of other workers to a
replica. A replica therefore has a vector clock: for each worker, the number of its last gradient that the parameters contain.
When replicas are averaged, their clocks are merged. A gradient counts as applied as soon as one replica contains it.

Elastic averaging mixes the weights of a worker and of a centre in the same way: after two exchanges, the worker's weights
contain the gradients of the centre, and the centre those of the worker. Workers and the shards of the centre are restarted
individually. Their clocks therefore refer to role instances, and every shard has a separate clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from ..errors import RoleError
from ..formats import ArrayForm, check
from ..nn.optimizers import SGD, Optimizer
from .dense_parameters import DenseParameters
from .messages import CentreWeights, Position, Snapshot
from .optimizer_state import OptimizerState
from .shard import NEVER, Shard


class Replica(Shard):
    """A worker's replica of the whole model.

    A snapshot for the chief is taken immediately after a step, before the replica is averaged again, so that all snapshots are
    of the same point of a step. `_final_values`: the parameters after the last step that the budget allows.
    """

    parameters: DenseParameters
    _final_values: np.ndarray | None = None
    _outer: OuterOptimizer | None = None  # None: the average is the next model

    @classmethod
    def make(cls, *, strategy: Any, **given: Any) -> Self:
        replica = super().make(strategy=strategy, **given)
        outer = outer_optimizer(strategy)
        if outer is not None and not replica.parameters.timing_only:
            replica._outer = OuterOptimizer(outer, replica.copy())
        return replica

    def count_step(self) -> None:
        """Called for each mini-batch that another role, the worker, has computed for this replica."""
        self.recorder.counters.steps += 1

    def request(self, at: int) -> bool:
        """Request a snapshot, as `Shard.request`. Once a step was taken, the snapshot is not due before the next step, because
        the parameters may have been averaged since the last step.
        """
        if self.finished or not self.version:
            return super().request(at)
        self._snapshot_at = at if self.eval_every else NEVER
        return False

    def snapshot(self, final: bool, shown: bool) -> Snapshot:
        """Return a snapshot, as `Shard.snapshot`. Once the budget is used up, it has the parameters after the last step."""
        made = super().snapshot(final, shown)
        return made if self._final_values is None or not shown else replace(made, values=self._final_values)

    def apply(self, gradients: Any, learning_rate: float, reduce: str = "mean") -> bool:
        """Apply gradients, as `Shard.apply`. The parameters after the last step of the budget are copied for snapshots."""
        applied = super().apply(gradients, learning_rate, reduce)
        if applied and self.finished:
            self._final_values = self.copy()
        return applied

    def copy(self) -> np.ndarray:
        return self.values if self.parameters.timing_only else self.values.copy()

    def clock_of(self, workers: Sequence[str]) -> tuple[int, ...]:
        """Return, for each worker, the last step whose gradient the parameters contain; -1 if they contain none."""
        return self.log.vector_clock(workers)

    def assign(self, values: np.ndarray, workers: Sequence[str], clock: Sequence[int]) -> None:
        """Replace the parameters by the average `values`, shape (size,). It contains the workers' gradients up to `clock`."""
        if values.shape != self.values.shape:
            raise RoleError(f"A replica of {len(self.values)} parameters cannot take values of shape {values.shape}.")
        self.parameters.assign(values)
        self.log.merge(workers, clock)

    def mean_of(self, total: np.ndarray, replicas: int) -> np.ndarray:
        """Divide `total`, the sum of the parameters of `replicas` replicas, by their number, in place."""
        return total if self.parameters.timing_only else np.divide(total, replicas, out=total)

    def outer_step(self, mean: np.ndarray, rate: float) -> np.ndarray:
        """Return the model after an outer step at `rate`. `mean`, shape (size,): the average of all replicas."""
        return mean if self._outer is None else self._outer.step(mean, rate)

    def weighted_mean(self, others: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
        """Return weights[0] x these parameters + weights[1] x others[0] + ..., as a new array, shape (size,)."""
        if self.parameters.timing_only:
            return self.values
        total: np.ndarray = self.values * self.values.dtype.type(weights[0])
        for other, weight in zip(others, weights[1:]):
            total += other * other.dtype.type(weight)
        return total

    def to_state(self) -> dict[str, Any]:
        return super().to_state() | ({} if self._outer is None else self._outer.arrays())

    def check_state(self, state: Mapping[str, Any]) -> None:
        super().check_state(state)
        if self._outer is not None:
            check(state, self._outer.form())

    def restore(self, state: Mapping[str, Any] | None, same: bool = False) -> None:
        super().restore(state, same)
        if self._outer is not None and state is not None:
            self._outer.load(state, self.copy())


def outer_optimizer(strategy: Any) -> Optimizer | None:
    """Return the outer optimizer of a strategy. None if it has none, or if a step is x - 1 (x - mean), which is the mean."""
    outer: Optimizer | None = getattr(strategy, "outer", None)
    return None if outer == SGD() and strategy.outer_rate == 1.0 else outer


class OuterOptimizer:
    """Steps from one model x of all replicas to the next, with x - mean as the gradient. `values`: the first x, kept.

    Replicas have equal averages, so they take equal steps.
    """

    def __init__(self, optimizer: Optimizer, values: np.ndarray):
        self._values, self._steps = values, 0
        self._optimizer = OptimizerState(optimizer, len(values), values.dtype, name="outer")

    def step(self, mean: np.ndarray, rate: float) -> np.ndarray:
        self._steps += 1
        with np.errstate(over="ignore", invalid="ignore"):  # divergence is detected by the loss
            self._optimizer.step(self._values, self._values - mean, rate, self._steps)
        return self._values.copy()

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the state, copied, as entries of a checkpoint: without the parameters, which a restart averages."""
        return self._optimizer.arrays() | {"outer_steps": np.array([self._steps])}

    def form(self) -> dict[str, ArrayForm]:
        return self._optimizer.form() | {"outer_steps": ArrayForm(np.dtype(np.int64), (1,))}

    def load(self, arrays: Mapping[str, np.ndarray], values: np.ndarray) -> None:
        """Continue with the state in `arrays` from the average `values`, which is kept."""
        self._values, self._steps = values, int(arrays["outer_steps"][0])
        self._optimizer.load(arrays)


class Centre(Shard):
    """A shard of the centre variable of elastic averaging.

    For every role instance of a worker, the centre contains all gradients up to some step. No gradient before this step is
    missing, even if some pushes were dropped or rolled back by a restore, because a position contains all earlier gradients of
    its sender, and all gradients that the sender received with weights of the centre.
    """

    pushes: ClassVar[dict[str, type]] = {"Position": Position}
    cumulative: ClassVar[bool] = True
    parameters: DenseParameters

    def weights(self) -> CentreWeights:
        """Return the present weights, as `Shard.weights`, and the gradients that they contain."""
        return CentreWeights(self.values, self.index, self.generation, self.version, self.log.all_steps())

    def elastic_step(self, position: Position, share: float) -> bool:
        """Move the centre z towards the parameters x in `position`: z += share (x - z). Returns whether the step was taken.

        The step applies the gradients contained in x. It therefore counts as an update and is not taken once the budget is used
        up.
        """
        admitted = self._admitted((position,))
        if not admitted:
            return False
        self.parameters.move_towards(admitted[0].values, share)
        self.log.merge_position(position)
        self._applied(admitted)
        return True
