"""Rows on their way: what a worker of a sparse model asks for, computes on, and sends back.

    worker -> server   RowPull   the ids of this batch that the server owns, each once              8 bytes a row
    server -> worker   Rows      those rows, and the server's slice of the dense part               a row each
    worker -> server   RowPush   the same ids, and the gradient of each, repeated ids summed        8 bytes and a row

So U distinct ids in a batch cost U (8 + row bytes) to pull and as much to push, however long the table is. The gradient
is made on a table of those U rows, with ids that count them: neither a table nor a gradient as long as all rows ever
exists on a worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...nn import NullObjective, clip_by_norm
from ...trace.recorder import Recorder
from ..context import Context
from ..gradient import Gradient, Model, Read
from ..messages import Message
from ..servers import answers
from .placement import Placement

__all__ = ["RowGradient", "RowModel", "RowPull", "RowPush", "RowWeights", "Rows", "Wanted", "pull_rows", "push_rows"]


@dataclass(frozen=True)
class RowPull(Message):
    """worker -> server: send me these rows of yours. ids: (k,) int64, each once."""

    ids: np.ndarray


@dataclass(frozen=True)
class Rows(Message):
    """server -> worker: the rows asked for, in that order, then the server's slice of the dense part. Flat.

    With several servers an asynchronous pull may be a torn read, so each says the version that its part is.
    """

    values: np.ndarray
    shard: int
    generation: int
    version: int
    reads: ClassVar[bool] = True
    header: ClassVar[tuple[str, ...]] = ("shard", "generation", "version")


@dataclass(frozen=True)
class RowPush(Message):
    """worker -> server: the gradient of rows `ids` ((k,) int64, each once), then that of your slice of the dense part.

    `values`: flat, k * columns + the slice's size. The rest as in `Push`. A push may hold no rows at all: a synchronous
    server counts one of every worker, and a gradient has reached a server only with its push.
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


class Wanted:
    """The rows of one batch. ids: (U,) int64, each once, sorted. x: the batch's ids, as numbers of those rows.

    `places[s]`: which of `ids` server s owns, int64 indices. `columns`: of a row; `dense`: size of the dense part.
    `null`: the run is timing-only.
    """

    __slots__ = ("columns", "dense", "ids", "null", "places", "x")

    def __init__(
        self, ids: np.ndarray, x: np.ndarray, places: Sequence[np.ndarray], columns: int, dense: int, null: bool = False
    ):
        self.ids, self.x, self.places, self.columns, self.dense = ids, x, tuple(places), columns, dense
        self.null = null

    @property
    def table(self) -> int:
        """How many numbers the rows have together."""
        return len(self.ids) * self.columns


class RowWeights:
    """What a worker pulled: `values` are [rows of `wanted` | dense part], flat; `read` the version of every shard."""

    __slots__ = ("read", "values", "wanted")

    def __init__(self, values: np.ndarray, read: Read, wanted: Wanted):
        self.values, self.read, self.wanted = values, read, wanted


class RowGradient(Gradient):
    """The gradient of the rows of one batch and of the dense part: `values` are [rows | dense part], flat."""

    __slots__ = ("wanted",)
    wanted: Wanted

    def push(self, shard: int) -> RowPush:  # type: ignore[override]
        """The message for `shard`: the rows that it owns, and its slice of the dense part."""
        wanted, part = self.wanted, self.parts[shard]
        place, table = wanted.places[shard], self.wanted.table
        generation, version = self.read[shard]
        if wanted.null:
            values = _weightless(self.values, len(place) * wanted.columns + part.stop - part.start)
        else:
            rows = self.values[:table].reshape(-1, wanted.columns)[place]
            values = np.concatenate([rows.reshape(-1), self.values[table:][part]])
        return RowPush(wanted.ids[place], values, self.step, generation, version, self.count, self.samples)

    def dense_for(self, replica: Any) -> Gradient:
        """The dense part alone (a view), as a gradient on the weights of the worker's own replica of it."""
        read = ((replica.generation, replica.version),)
        return Gradient(self.values[self.wanted.table :], self.step, read, self.samples, ())


class RowModel(Model):
    """A worker's recommender. `parts[s]`: the slice of the dense part that server s owns; `recipe`, `seed`: what a
    timing-only run draws its ids from, so that its messages are as long as real ones.
    """

    def __init__(
        self, placement: Placement, parts: tuple[slice, ...], recipe: Any, seed: int, norms_every: int, *,
        objective: Any, recorder: Recorder, clock: Any, strategy: Any,
    ):  # fmt: skip
        super().__init__(objective, recorder, clock, parts, clip_norm=strategy.clip_norm, norms_every=norms_every)
        self.placement, self.recipe = placement, recipe
        self.network = objective.network if isinstance(objective, NullObjective) else objective
        self._rng = np.random.default_rng([seed, recorder.role]) if self.null else None

    def wanted(self, batch: Any) -> Wanted:
        """Which rows this batch needs, and from whom."""
        x = batch.x if self._rng is None else self.recipe.draw(self._rng, batch.samples)
        ids, index = np.unique(x, return_inverse=True)
        servers = len(self.parts)
        owner = self.placement.owner(ids, servers)
        order = np.argsort(owner, kind="stable")
        places = np.split(order, np.searchsorted(owner[order], np.arange(1, servers)))
        bag, tower = self.network.bag, self.network.tower
        return Wanted(ids, index.reshape(x.shape), places, bag.columns, tower.size, self.null)

    def gradient(self, parameters: RowWeights, batch: Any) -> RowGradient:
        """The gradient of the mean loss over `batch` with respect to its rows and the dense part."""
        counters, wanted = self.recorder.counters, parameters.wanted
        step, like, loss = counters.computed, parameters.values, float("nan")
        values = like
        if not self.null:
            values = self.pool.take(like.nbytes)[: like.nbytes].view(like.dtype)
            loss = self.network.compact_gradient(like, wanted.x, batch.y, values)
        counters.computed = step + 1
        if not self.null and self.clip_norm is not None:  # rows that are not here are 0: it is the whole one's length
            clip_by_norm(values, self.clip_norm)
        if not self.null and self.norms_every and step % self.norms_every == 0:
            shift = wanted.table - self.network.bag.size
            _, *dense = self.network.layout.groups().values()
            self.layers = (slice(0, wanted.table), *(slice(s.start + shift, s.stop + shift) for s in dense))
            self._record_norms(step, values, like)
        made = RowGradient(values, step, parameters.read, batch.samples, self.parts, loss)
        made.wanted = wanted
        return made


async def pull_rows(
    ctx: Context, wanted: Wanted, replica: Any = None, pushed: RowGradient | None = None
) -> RowWeights:  # fmt: skip
    """Fetch the rows of a batch from their owners; the dense part comes with them, or from the worker's `replica`.

    `pushed`: the gradient that was pushed last. The answer to the pull acknowledges it: a server that was restarted
    before it answered is told of both again.
    """
    servers = ctx.peers("server")

    def ask(shard: int) -> RowPull:
        return RowPull(wanted.ids[wanted.places[shard]])

    def ask_again(shard: int) -> RowPull:
        if pushed is not None:
            ctx.send(servers[shard], pushed.push(shard))
        return ask(shard)

    for shard, server in enumerate(servers):
        ctx.send(server, ask(shard))
    arrived = await answers(ctx, servers, ask_again, Rows)
    read = tuple((rows.generation, rows.version) for rows in arrived)
    first = arrived[0].values
    if wanted.null:
        return RowWeights(_weightless(first, wanted.table + wanted.dense), read, wanted)
    values = np.empty(wanted.table + wanted.dense, first.dtype)
    table, end = values[: wanted.table].reshape(-1, wanted.columns), wanted.table
    for place, rows in zip(wanted.places, arrived):
        own = len(place) * wanted.columns
        table[place] = rows.values[:own].reshape(-1, wanted.columns)
        start, end = end, end + len(rows.values) - own
        values[start:end] = rows.values[own:]
    if replica is not None:
        values[end:] = replica.values
    return RowWeights(values, read, wanted)


def push_rows(ctx: Context, gradient: RowGradient) -> None:
    """Send every server the gradient of its rows (perhaps none) and of its slice of the dense part."""
    for shard, server in enumerate(ctx.peers("server")):
        ctx.send(server, gradient.push(shard))


def _weightless(like: np.ndarray, size: int) -> np.ndarray:
    """An array of a timing-only run: it has a size and no memory."""
    return np.broadcast_to(like.dtype.type(0), (size,))
