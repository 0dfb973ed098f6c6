"""A shard that owns rows of a table: answers pulls of rows, and sends the chief the rows needed for evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from ...nn import EmbeddingBag, NullObjective, SparseParameters
from ...nn.index_sets import Boxes
from ...trace.recorder import Recorder
from ..messages import Snapshot
from ..shard import Shard
from ..staleness_correction import staleness_correction
from .row_parameters import RowParameters
from .rows import RowPull, RowPush, Rows


class RowShard(Shard):
    """The rows that a placement assigns to one server. `values`: its slice of the dense part, possibly of size 0.

    `held_out`: the rows of the shard that occur in held-out samples. A snapshot contains these rows. A final snapshot, or a
    snapshot after the budget is used up, contains all rows that were accessed.
    """

    pushes: ClassVar[dict[str, type]] = {"RowPush": RowPush}
    parameters: RowParameters
    held_out: np.ndarray = np.empty(0, np.int64)

    @classmethod
    def make(
        cls, *, spec: Any, plan: Any, objective: Any, recorder: Recorder, clock: Callable[[], int],
        watcher: Callable[[Any], None], strategy: Any, held: np.ndarray | None = None,
    ) -> Self:  # fmt: skip
        """Return the shard of role `spec` in a run of `plan`. `spec.part`: the slice of the dense part; `held`: the rows of
        held-out samples.
        """
        network = getattr(objective, "network", None) or objective
        values = Boxes.of(spec.part).take(plan.start(_dense_part(objective)))
        parameters = RowParameters(
            spec.shard, values, network.bag, objective.dtype, plan.seed, strategy.optimizer, recorder.counters,
            correction=staleness_correction(strategy), timing_only=isinstance(objective, NullObjective),
        )  # fmt: skip
        shard = cls.of_role(parameters, spec, plan, recorder, clock, watcher, strategy)
        recorder.hottest = parameters.table.hottest
        if held is not None:
            shard.held_out = held
        return shard

    def rows(self, pull: RowPull) -> Rows:
        """Return the reply to `pull`: the present values of its rows, then the slice of the dense part."""
        return Rows(self.parameters.read(pull), self.index, self.generation, self.version)

    def snapshot(self, final: bool, shown: bool) -> Snapshot:
        """Return a snapshot for the chief, with the rows that an evaluation needs, or with all rows that were accessed."""
        if not shown:
            return super().snapshot(final, shown)
        if self.parameters.timing_only:
            return Snapshot(self.values, self.index, self.version, self.samples, final, self.held_out)
        ids = self.parameters.table.touched() if final or self.finished else self.held_out
        return Snapshot(self.parameters.peek(ids), self.index, self.version, self.samples, final, ids)

    def shows_all(self, snapshot: Snapshot) -> bool:
        if snapshot.final or self.finished or self.parameters.timing_only:
            return True
        return not len(np.setdiff1d(self.parameters.table.touched(), self.held_out, assume_unique=True))


@dataclass(frozen=True)
class Assembly:
    """Assembles the model from the snapshots of row shards, followed by the snapshot of a replica of the dense part if there is
    one.
    """

    bag: EmbeddingBag
    seed: int
    null: bool = False

    def __call__(self, snapshots: Sequence[Snapshot]) -> Any:
        """Return the model as `SparseParameters`; in a timing-only run (`null`), as an array without memory."""
        if self.null:
            return np.broadcast_to(np.float32(0), (self.bag.size,))
        ids, rows, dense = [], [], []
        for snapshot in snapshots:
            own = np.empty(0, np.int64) if snapshot.ids is None else snapshot.ids
            end = len(own) * self.bag.columns
            ids.append(own)
            rows.append(snapshot.values[:end].reshape(-1, self.bag.columns))
            dense.append(snapshot.values[end:])
        return SparseParameters.of(self.bag, self.seed, *(np.concatenate(parts) for parts in (ids, rows, dense)))


def dense_replica(*, objective: Any, **more: Any) -> Shard:
    """Return a worker's replica of the whole dense part."""
    return Shard.make(objective=_dense_part(objective), **more)


def _dense_part(objective: Any) -> Any:
    """Return the dense layers of a recommender; in a timing-only run, a `NullObjective` of their size."""
    if isinstance(objective, NullObjective):
        return NullObjective(objective.network.tower.size, dtype=str(objective.dtype))
    return objective.tower
