"""Messages and computations of a worker of a sparse model: pulls rows, computes on them, and pushes their gradients.

    worker -> server   RowPull   the unique ids of this batch that the server owns                  8 bytes per row
    server -> worker   Rows      those rows, and the server's slice of the dense part               one row each
    worker -> server   RowPush   the same ids, and the gradient of each, repeated ids summed        8 bytes and one row each

A pull for a batch with U distinct ids therefore moves U (8 + row bytes), and so does a push, independent of the length of the
table. The gradient is computed on a compact table of these U rows, with renumbered ids. A worker never stores the whole table
or a gradient of the size of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...nn import clip_by_norm
from ...nn.objective import represented
from ...trace.recorder import Recorder
from ..context import Context
from ..gradient import Gradient, Model, Read, record_norms
from ..messages import Message
from ..servers import replies
from .placement import Placement


@dataclass(frozen=True)
class RowPull(Message):
    """worker -> server: request for rows that the server owns. ids: (k,) int64, unique."""

    ids: np.ndarray


@dataclass(frozen=True)
class Rows(Message):
    """server -> worker: the requested rows, in order, then the server's slice of the dense part. Flat.

    With several servers an asynchronous pull may be a torn read, so each reply contains the version of its part.
    """

    values: np.ndarray
    shard: int
    generation: int
    version: int
    reads: ClassVar[bool] = True
    header: ClassVar[tuple[str, ...]] = ("shard", "generation", "version")


@dataclass(frozen=True)
class RowPush(Message):
    """worker -> server: the gradient of rows `ids` ((k,) int64, unique), then that of the server's slice of the dense part.

    `values`: flat, of size k * columns + the size of the slice. The other fields are those of `Push`. A push may have no rows.
    It is sent nevertheless, because a synchronous server needs one push of every worker, and because a gradient counts as
    applied by a server only if the server has received a push.
    """

    ids: np.ndarray
    values: np.ndarray
    step: int
    generation: int
    version: int
    count: int = 1
    samples: int = 0
    carries: ClassVar[bool] = True
    header: ClassVar[tuple[str, ...]] = ("step", "generation", "version", "count", "samples")


class BatchRows:
    """The rows of one batch. ids: (U,) int64, unique, sorted. x: the batch's ids as indices into `ids`.

    `places[s]`: int64 indices of those `ids` that server s owns. `columns`: length of a row; `dense`: size of the dense part.
    `null`: whether the run is timing-only.
    """

    __slots__ = ("columns", "dense", "ids", "null", "places", "x")

    def __init__(
        self, ids: np.ndarray, x: np.ndarray, places: Sequence[np.ndarray], columns: int, dense: int, null: bool = False
    ):
        self.ids, self.x, self.places, self.columns, self.dense = ids, x, tuple(places), columns, dense
        self.null = null

    @property
    def table(self) -> int:
        return len(self.ids) * self.columns


class RowWeights:
    """The weights that a worker pulled: `values` are [rows of `rows_needed` | dense part], flat; `read`: the version of
    every shard.
    """

    __slots__ = ("read", "rows_needed", "values")

    def __init__(self, values: np.ndarray, read: Read, rows_needed: BatchRows):
        self.values, self.read, self.rows_needed = values, read, rows_needed


class RowGradient(Gradient):
    """The gradient of the rows of one batch and of the dense part: `values` are [rows | dense part], flat."""

    __slots__ = ("rows_needed",)
    rows_needed: BatchRows

    def push(self, shard: int) -> RowPush:  # type: ignore[override]
        """Return the message for `shard`: the rows that it owns, and its slice of the dense part."""
        rows_needed, part = self.rows_needed, self.parts[shard]
        place, table = rows_needed.places[shard], self.rows_needed.table
        generation, version = self.read[shard]
        if rows_needed.null:
            values = _timing_only_array(self.values, len(place) * rows_needed.columns + part.stop - part.start)
        else:
            rows = self.values[:table].reshape(-1, rows_needed.columns)[place]
            values = np.concatenate([rows.reshape(-1), self.values[table:][part]])
        return RowPush(rows_needed.ids[place], values, self.step, generation, version, self.count, self.samples)

    def dense_for(self, replica: Any) -> Gradient:
        """Return the dense part (a view), as a gradient with the version of the worker's replica of it."""
        read = ((replica.generation, replica.version),)
        return Gradient(self.values[self.rows_needed.table :], self.step, read, self.samples, ())


class RowModel(Model):
    """A worker's recommender. `parts[s]`: the slice of the dense part that server s owns; `recipe`, `seed`: the distribution of
    the ids in a timing-only run, so that its messages have realistic sizes.
    """

    def __init__(
        self, placement: Placement, parts: tuple[slice, ...], recipe: Any, seed: int, norms_every: int, *,
        objective: Any, recorder: Recorder, clock: Any, strategy: Any,
    ):  # fmt: skip
        super().__init__(objective, recorder, clock, parts, clip_norm=strategy.clip_norm, norms_every=norms_every)
        self.placement, self.recipe = placement, recipe
        self.network = represented(objective)
        self._rng = np.random.default_rng([seed, recorder.role]) if self.null else None

    def rows_needed(self, batch: Any) -> BatchRows:
        """Return the rows that a batch needs, and their servers."""
        x = batch.x if self._rng is None else self.recipe.draw(self._rng, batch.samples)
        ids, index = np.unique(x, return_inverse=True)
        servers = len(self.parts)
        owner = self.placement.owner(ids, servers)
        order = np.argsort(owner, kind="stable")
        places = np.split(order, np.searchsorted(owner[order], np.arange(1, servers)))
        bag, tower = self.network.bag, self.network.tower
        return BatchRows(ids, index.reshape(x.shape), places, bag.columns, tower.size, self.null)

    def gradient(self, parameters: RowWeights, batch: Any) -> RowGradient:  # type: ignore[override]  # of one mini-batch
        """Return the gradient of the mean loss over `batch` with respect to its rows and the dense part."""
        counters, rows_needed = self.recorder.counters, parameters.rows_needed
        step, like, loss = counters.computed, parameters.values, float("nan")
        values = like
        if not self.null:
            values = self.pool.take(like.nbytes)[: like.nbytes].view(like.dtype)
            loss = self.network.compact_gradient(like, rows_needed.x, batch.y, values)
        counters.computed = step + 1
        if not self.null and self.clip_norm is not None:  # missing rows are 0: this is the norm of the whole gradient
            clip_by_norm(values, self.clip_norm)
        if self.measures(step):
            shift = rows_needed.table - self.network.bag.size
            _, *dense = self.network.layout.groups().values()
            layers = (slice(0, rows_needed.table), *(slice(s.start + shift, s.stop + shift) for s in dense))
            record_norms(self.recorder, self.clock(), step, enumerate(layers), values, like)
        made = RowGradient(values, step, parameters.read, batch.samples, self.parts, loss)
        made.rows_needed = rows_needed
        return made


async def pull_rows(
    ctx: Context, rows_needed: BatchRows, replica: Any = None, pushed: RowGradient | None = None
) -> RowWeights:  # fmt: skip
    """Fetch the rows of a batch from their servers. The servers also send the dense part, unless the worker has a `replica` of
    it.

    `pushed`: the gradient that was pushed last. The reply to the pull acknowledges this push. If a server is restarted before
    it has answered, both the push and the pull are retransmitted.
    """
    servers = ctx.peers("server")

    def request(shard: int) -> RowPull:
        return RowPull(rows_needed.ids[rows_needed.places[shard]])

    def repeat_request(shard: int) -> RowPull:
        if pushed is not None:
            ctx.send(servers[shard], pushed.push(shard))
        return request(shard)

    for shard, server in enumerate(servers):
        ctx.send(server, request(shard))
    arrived = await replies(ctx, servers, repeat_request, Rows)
    read = tuple((rows.generation, rows.version) for rows in arrived)
    first = arrived[0].values
    if rows_needed.null:
        return RowWeights(_timing_only_array(first, rows_needed.table + rows_needed.dense), read, rows_needed)
    values = np.empty(rows_needed.table + rows_needed.dense, first.dtype)
    table, end = values[: rows_needed.table].reshape(-1, rows_needed.columns), rows_needed.table
    for place, rows in zip(rows_needed.places, arrived):
        own = len(place) * rows_needed.columns
        table[place] = rows.values[:own].reshape(-1, rows_needed.columns)
        start, end = end, end + len(rows.values) - own
        values[start:end] = rows.values[own:]
    if replica is not None:
        values[end:] = replica.values
    return RowWeights(values, read, rows_needed)


def push_rows(ctx: Context, gradient: RowGradient) -> None:
    """Send every server the gradient of its rows (possibly none) and of its slice of the dense part."""
    for shard, server in enumerate(ctx.peers("server")):
        ctx.send(server, gradient.push(shard))


def _timing_only_array(like: np.ndarray, size: int) -> np.ndarray:
    """Return an array of a timing-only run, without memory (zero strides)."""
    return np.broadcast_to(like.dtype.type(0), (size,))
