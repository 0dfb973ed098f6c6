"""What a pipeline stage computes with, and the way of one mini-batch through it.

A stage has one or more chunks of neighbouring blocks. It takes activations from the stage before and hands its own
on; backward, it takes the derivative of the loss with respect to what it handed on (a delta), and hands on that with
respect to what it got. Between a forward and its backward the stage holds the micro-batch's activations: that is the
memory a schedule costs.

The loss is a mean over the mini-batch, so a micro-batch counts by its rows: the mean over M equal ones is the mean of
their means. Micro-batches may differ by a row where M does not divide the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..context import Context
from ..gradient import Gradient
from ..layout import shard_slices
from ..messages import Message, Weights
from .model_part import ModelPart
from .schedules import BACKWARD, FORWARD, Work

__all__ = ["Activation", "Delta", "ShardedLayers", "PipelineStage", "perform", "pipeline_pass", "stash"]


@dataclass(frozen=True)
class Activation(Message):
    """stage -> next stage: what my blocks made of micro-batch `micro`; for your chunk `chunk`. Flat, rows x width."""

    values: np.ndarray
    micro: int
    chunk: int
    header: ClassVar[tuple[str, ...]] = ("micro", "chunk")


@dataclass(frozen=True)
class Delta(Message):
    """stage -> stage before: the derivative of the loss with respect to what you sent me. Flat, rows x width."""

    values: np.ndarray
    micro: int
    chunk: int
    header: ClassVar[tuple[str, ...]] = ("micro", "chunk")


class PipelineStage(ModelPart):
    """The chunks of one stage: `chunks[i]` are the blocks (first, last + 1) of its chunk i.

    `part`: which parameters it owns, chunk after chunk; `slices[i]`: where chunk i is in its own vector. `held`: the
    micro-batches whose backward is still to come, with what it needs.
    """

    def __init__(self, chunks: tuple[tuple[int, int], ...], micro_batches: int = 1, **more: Any):
        super().__init__(**more)
        self.micro_batches = micro_batches
        self.stages = tuple(self.network.stage(*blocks) for blocks in chunks)
        edges = np.cumsum([0, *(stage.size for stage in self.stages)]).tolist()
        self.slices = tuple(slice(a, b) for a, b in zip(edges, edges[1:]))
        self.begins = tuple(blocks[0] == 0 for blocks in chunks)  # nothing is before it: it takes x
        self.ends = tuple(blocks[1] == len(self.network.blocks) for blocks in chunks)  # nothing is after: the loss
        self.layers = [
            (number, slice(chunk.start + own.start, chunk.start + own.stop))
            for stage, chunk in zip(self.stages, self.slices)
            for number, own in enumerate(stage.layout.groups().values(), stage.number)
        ]
        self.held: dict[tuple[int, int], Any] = {}
        self._batches: dict[int, tuple[Any, Any]] = {}
        self._rows: tuple[slice, ...] = ()
        self._scratch = np.empty(0 if self.null else max(stage.size for stage in self.stages), self.dtype)

    def begin(self, batch: Any, number: int = 0) -> None:
        """Cut the next mini-batch into micro-batches, numbered from `number` on."""
        self.count(batch.samples)
        self._rows = shard_slices(batch.samples, self.micro_batches)
        for i, rows in enumerate(self._rows, number):
            self._batches[i] = batch.x[rows], batch.y[rows]

    def x(self, work: Work) -> np.ndarray:
        """What goes into the network for this work's micro-batch."""
        return self._batches[work.micro][0]

    def rows(self, work: Work) -> int:
        """Samples in this work's micro-batch."""
        rows = self._rows[work.micro % self.micro_batches]
        return rows.stop - rows.start

    def cost(self, work: Work) -> float:
        """Share of one gradient of the whole model on one mini-batch: a third is forward, the rest backward."""
        thirds = 2 if work.kind == BACKWARD and not work.split else 1
        share = self.stages[work.chunk].multiply_adds / self.network.multiply_adds
        return share * self.rows(work) / self.samples * thirds / 3

    def forward(self, params: np.ndarray, work: Work, x: np.ndarray) -> np.ndarray:
        """What chunk `work.chunk`, with `params`, makes of x (flat or by rows); flat. At the end also the loss."""
        stage, rows = self.stages[work.chunk], self.rows(work)
        if self.null:
            self.held[work.micro, work.chunk] = None
            y = self.nothing(rows * stage.outputs)
        else:
            y, saved = stage.forward(params, x.reshape(rows, -1))
            dy = self._loss(y, work) if self.ends[work.chunk] else None
            self.held[work.micro, work.chunk] = saved, dy
        counters = self.recorder.counters
        counters.activations = max(counters.activations, len(self.held))
        return y.reshape(-1)

    def _loss(self, scores: np.ndarray, work: Work) -> np.ndarray:
        """The derivative of the mini-batch's mean loss with respect to this micro-batch's scores."""
        loss, dy = self.network.loss, np.empty_like(scores)
        with np.errstate(over="ignore", invalid="ignore"):
            loss.gradient(scores, loss.check(self._batches[work.micro][1], *scores.shape), dy)
            if self.micro_batches > 1:
                dy *= len(scores) / self.samples
        return dy

    def backward(self, params: np.ndarray, work: Work, dy: np.ndarray | None, out: np.ndarray) -> np.ndarray:
        """The derivative with respect to the chunk's x, flat; its parameters' gradient is added up in `out`.

        `dy`: None at the end of the network, where it is the loss's. Of a split backward the parameters' half is left
        for `weights`.
        """
        stage, rows = self.stages[work.chunk], self.rows(work)
        kept = self.held[work.micro, work.chunk] if work.split else self._release(work)
        if self.null:
            return self.nothing(0 if self.begins[work.chunk] else rows * stage.inputs)
        saved, own = kept
        dy = own if dy is None else dy.reshape(rows, -1)
        more = not self.begins[work.chunk]
        if work.split:
            dx, dys = stage.input_gradient(params, saved, dy, more)
            self.held[work.micro, work.chunk] = saved, dys
        else:
            target = self._target(work, out)
            dx = stage.backward(params, saved, dy, target, more)
            self._add(target, out)
        return dx.reshape(-1)

    def weights(self, work: Work, out: np.ndarray) -> None:
        """The half that a split backward has left: the parameters' gradient, added up in `out`."""
        kept = self._release(work)
        if not self.null:
            target = self._target(work, out)
            saved, dys = kept
            self.stages[work.chunk].parameter_gradient(saved, dys, target)
            self._add(target, out)

    def _release(self, work: Work) -> Any:
        if work.chunk == 0:
            del self._batches[work.micro]
        return self.held.pop((work.micro, work.chunk))

    def _target(self, work: Work, out: np.ndarray) -> np.ndarray:
        """The first micro-batch's gradient is written where the sum will be, the others' are added to it."""
        return out if work.micro % self.micro_batches == 0 else self._scratch[: len(out)]

    def _add(self, target: np.ndarray, out: np.ndarray) -> None:
        if target is not out:
            out += target


class ShardedLayers(PipelineStage):
    """Every block of the network by itself; of each, this worker owns one of `of` chunks of its parameters.

    `chunks[i]`: which chunk of block i; `own[i]`: where it is in the worker's own vector.
    """

    def __init__(self, of: int, **more: Any):
        super().__init__(**more)
        self.layers = []  # measured whole, in `backward`, and not chunk by chunk
        self.chunks = tuple(shard_slices(stage.size, of)[self.index] for stage in self.stages)
        edges = np.cumsum([0, *(chunk.stop - chunk.start for chunk in self.chunks)]).tolist()
        self.own = tuple(slice(a, b) for a, b in zip(edges, edges[1:]))

    def backward(self, params: np.ndarray, work: Work, dy: np.ndarray | None, out: np.ndarray) -> np.ndarray:
        """See `PipelineStage.backward`; `params`, `out`: of the whole block."""
        dx = super().backward(params, work, dy, out)
        if self.measures(self.step):
            self.measure(self.step, work.chunk, out, params)
        return dx

    def room(self, i: int, mine: np.ndarray | None = None) -> np.ndarray:
        """A vector for all of block i, with `mine` (of the worker's own parameters) in its place."""
        size = self.stages[i].size
        if self.null:
            return self.nothing(size)
        whole = np.empty(size, self.dtype)
        if mine is not None:
            whole[self.chunks[i]] = mine[self.own[i]]
        return whole

    def keep(self, i: int, total: np.ndarray) -> None:
        """Of block i's gradient, keep this worker's chunk."""
        if not self.null:
            self.values[self.own[i]] = total[self.chunks[i]]


async def perform(ctx: Context, stage: PipelineStage, params: np.ndarray, work: Work) -> None:
    """One piece of a stage's work: wait for what it needs, do it, send on what came of it."""
    members, part, cost = ctx.peers(stage.group), stage.slices[work.chunk], stage.cost(work)
    before, after = members[stage.index - 1], members[(stage.index + 1) % len(members)]
    begins, ends = stage.begins[work.chunk], stage.ends[work.chunk]
    if work.kind == FORWARD:
        x = stage.x(work) if begins else (await ctx.recv(Activation, sender=before)).values
        y = await ctx.compute(stage.forward, params[part], work, x, cost=cost)
        if not ends:
            ctx.send(after, Activation(y, work.micro, work.chunk + (after == members[0])))
    elif work.kind == BACKWARD:
        dy = None if ends else (await ctx.recv(Delta, sender=after)).values
        dx = await ctx.compute(stage.backward, params[part], work, dy, stage.values[part], cost=cost)
        if not begins:
            ctx.send(before, Delta(dx, work.micro, work.chunk - (stage.index == 0)))
    else:
        await ctx.compute(stage.weights, work, stage.values[part], cost=cost)


async def pipeline_pass(ctx: Context, stage: PipelineStage, weights: Weights, batch: Any, order: Iterable[Work]) -> Gradient:
    """One mini-batch through the pipeline, in the order that a schedule gives this stage; its part of the gradient."""
    stage.begin(batch)
    for work in order:
        await perform(ctx, stage, weights.values, work)
    return stage.gradient(weights)


def stash(stage: PipelineStage, shard: Any, kept: Mapping[int, Weights]) -> Weights:
    """The shard's weights as they are now, to be kept: a copy, unless there is one of this version in `kept`."""
    now: Weights = shard.weights()
    same = [weights for weights in kept.values() if weights.read == now.read]
    if not same and not stage.null:
        now = Weights(now.values.copy(), now.shard, now.generation, now.version)
    counters = stage.recorder.counters
    counters.stashed = max(counters.stashed, len({w.read for w in kept.values()} | {now.read}))
    return same[0] if same else now
