"""A replica of the whole model that steps by itself and is mixed with others now and then.

Mixing moves parameters without a gradient, so it is no update; but it brings other workers' gradients along. A replica
therefore knows, worker by worker, the last gradient that its parameters hold (its clock), and when it is mixed the
clocks are joined. A gradient counts as applied once any replica holds it.

Elastic averaging mixes a worker's weights with a centre in the same way: what either of them holds the other holds after two
exchanges. As workers and the centre's shards are restarted one by one, their clocks name lives, and every shard has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from ..errors import RoleError
from .messages import CentreWeights, Position, Snapshot
from .shard import NEVER, Shard

__all__ = ["Centre", "Replica"]


class Replica(Shard):
    """The whole model, as one worker has it.

    What the chief is shown is how it was right after a step, before it was mixed again: only so do replicas that are at
    the same step have a mean that means something. `_end`: how it was after the last step that the budget allows.
    """

    _end: np.ndarray | None = None

    def trains(self) -> None:
        """A worker that is another role has made a mini-batch's gradient for this replica: what is sent now is training."""
        self.recorder.counters.steps += 1

    def look(self, at: int) -> bool:
        """As `Shard.look`; but the step that is over may have been mixed since, so that a later one is shown."""
        if self._full or not self.version:
            return super().look(at)
        self._wanted = at if self.eval_every else NEVER
        return False

    def snapshot(self, final: bool, shown: bool) -> Snapshot:
        """As `Shard.snapshot`, of the end once the end is reached."""
        made = super().snapshot(final, shown)
        return made if self._end is None or not shown else replace(made, values=self._end)

    def _book(self, gradients: Sequence[Any]) -> None:
        super()._book(gradients)
        if self._full:
            self._end = self.copy()

    def copy(self) -> np.ndarray:
        """The parameters as they are now, shape (size,), the caller's own."""
        return self.values if self.counts_only else self.values.copy()

    def clock_of(self, workers: Sequence[str]) -> tuple[int, ...]:
        """The last step of each worker whose gradient these parameters hold; -1 for none."""
        applied = self.recorder.counters.applied
        return tuple(applied.get(self._life(worker), (0, -1))[1] for worker in workers)

    def _life(self, worker: str) -> int:
        """The number of a worker's present life: replicas are restarted together."""
        return self.role_ids[worker] + self.recorder.incarnation * len(self.role_ids)

    def become(self, values: np.ndarray, workers: Sequence[str], clock: Sequence[int]) -> None:
        """Take over `values`, shape (size,), a mixture of parameters that hold the workers' gradients up to `clock`."""
        if values.shape != self.values.shape:
            raise RoleError(f"A replica of {len(self.values)} parameters cannot become {values.shape}.")
        if not self.counts_only:
            np.copyto(self._values, values)
        applied = self.recorder.counters.applied
        for worker, step in zip(workers, clock):
            life = self._life(worker)
            count, last = applied.get(life, (0, -1))
            if step > last:
                applied[life] = [count + step - last, step]

    def share_of(self, total: np.ndarray, replicas: int) -> np.ndarray:
        """The mean, in place, when `total` is the sum of the parameters of so many replicas."""
        return total if self.counts_only else np.divide(total, replicas, out=total)

    def mixed(self, others: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
        """weights[0] x these parameters + weights[1] x others[0] + ...: shape (size,), new memory."""
        if self.counts_only:
            return self.values
        total: np.ndarray = self.values * self.values.dtype.type(weights[0])
        for other, weight in zip(others, weights[1:]):
            total += other * other.dtype.type(weight)
        return total


class Centre(Shard):
    """A shard that parameters are pulled towards, and that is pulled towards them.

    It holds, of every life of a worker, all gradients up to some step: a position holds all those of its own life, and of other
    lives what centres have told it. So no gradient before that step is missing, whatever was dropped or lost by a restore.
    """

    pushes: ClassVar[dict[str, type]] = {"Position": Position}

    def weights(self) -> CentreWeights:
        """As `Shard.weights`, and which gradients they hold."""
        applied = self.recorder.counters.applied
        clock = tuple(number for life, (_, last) in applied.items() for number in (life, last))
        return CentreWeights(self.values, self.index, self.generation, self.version, clock)

    def attract(self, position: Any, share: float) -> bool:
        """Move by `share` of the way to the parameters in `position`: z += share (x - z). It is the application of the
        gradients that brought x there: it counts as an update, and is refused when the budget is used up.
        """
        fresh = self._admitted((position,))
        if not fresh:
            return False
        if not self.counts_only:
            pull = self._part_of(position) - self.values
            pull *= pull.dtype.type(share)
            self._values += pull
        self._join(position)
        self._book(fresh)
        return True

    def _join(self, position: Any) -> None:
        """Hold what `position` holds besides the gradients that it is pushed for, which are about to be booked."""
        counters, recorder = self.recorder.counters, self.recorder
        applied, clock = counters.applied, position.clock
        own = self.role_ids[position.sender] + position.incarnation * recorder.roles
        held = {life: step for life, step in zip(clock[::2], clock[1::2]) if life != own}
        before = position.step - position.count
        for life, step in held.items():
            count, last = applied.get(life, (0, -1))
            if step > last:
                counters.gradients += step + 1 - count
                applied[life] = [step + 1, step]
        count = applied.get(own, (0, -1))[0]
        if count != before + 1:
            counters.gradients += before + 1 - count
            applied[own] = [before + 1, before]

    def _skipped(self, g: Any, key: tuple[str, int], sender: int, now: int) -> None:
        """Nothing is skipped: the position holds it."""
        self._dropped.pop(key, None)
