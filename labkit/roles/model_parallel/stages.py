"""Pipeline stages: the model of a stage, and the pass of one mini-batch through it.

A pipeline stage has one or more chunks of consecutive stages of the objective (`nn.objective`). Forward, it receives activations
from the previous pipeline stage and sends its output to the next. Backward, it receives the derivative of the loss with respect
to its output (a delta) and sends the derivative with respect to its input. Between a forward and its backward it stores the
micro-batch's activations, which is the memory cost of a schedule.

The loss is a mean over the mini-batch, so micro-batches are weighted by their number of rows. These numbers differ by at most
one if the batch cannot be divided into M equal micro-batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...nn.objective import StageSequence
from ..context import Context
from ..gradient import Gradient, record_norms
from ..layout import shard_slices
from ..messages import Message, Weights
from .model_part import ModelPart, adjacent
from .schedules import BACKWARD, FORWARD, Work


@dataclass(frozen=True)
class Activation(Message):
    """stage -> next stage: output for micro-batch `micro`, the input of the receiver's chunk `chunk`. Flat, rows x width."""

    values: np.ndarray
    micro: int
    chunk: int
    header: ClassVar[tuple[str, ...]] = ("micro", "chunk")


@dataclass(frozen=True)
class Delta(Message):
    """stage -> previous stage: the derivative of the loss with respect to the receiver's output. Flat, rows x width."""

    values: np.ndarray
    micro: int
    chunk: int
    header: ClassVar[tuple[str, ...]] = ("micro", "chunk")


class PipelineStage(ModelPart):
    """The chunks of one pipeline stage: `chunks[i]` are the stages (first, last + 1) of the objective in its chunk i.

    The parameters are in the order of the chunks; `slices[i]`: the slice of chunk i in this part's vector. `stages[i]`: chunk i.
    `saved`: the saved activations of micro-batches whose backward is outstanding.
    """

    def __init__(self, chunks: Sequence[tuple[int, int]], micro_batches: int = 1, **more: Any):
        super().__init__(**more)
        self.micro_batches = micro_batches
        smallest = self.objective.stages
        self.stages = tuple(StageSequence(smallest[first:end]) for first, end in chunks)
        self._total = sum(stage.multiply_adds for stage in smallest)
        self.slices = adjacent(stage.size for stage in self.stages)
        self.layers = [layer for i, own in enumerate(self.slices) for layer in self.layers_of(i, own.start)]
        self.saved: dict[tuple[int, int], Any] = {}
        self._batches: dict[int, tuple[Any, Any]] = {}
        self._rows: tuple[slice, ...] = ()
        self._scratch = np.empty(0 if self.null else max(stage.size for stage in self.stages), self.dtype)

    def layers_of(self, chunk: int, at: int = 0) -> list[tuple[int, slice]]:
        """Return (number, slice) of the layers of a chunk, in a vector in which the chunk's parameters begin at `at`."""
        part = self.stages[chunk].slice
        shift = at - part.start
        layers = self.objective.layout.layers_in(part)
        return [(number, slice(own.start + shift, own.stop + shift)) for number, own in layers]

    def begins(self, chunk: int) -> bool:
        """Return whether the input of a chunk is that of the model."""
        return self.stages[chunk].slice.start == 0

    def ends(self, chunk: int) -> bool:
        """Return whether a chunk is followed by the loss."""
        return bool(self.stages[chunk].slice.stop == self.objective.size)

    def begin(self, batch: Any, number: int = 0) -> None:
        """Divide the next mini-batch into micro-batches, numbered from `number` on."""
        self.count(batch.samples)
        self._rows = shard_slices(batch.samples, self.micro_batches)
        for i, rows in enumerate(self._rows, number):
            self._batches[i] = batch.x[rows], batch.y[rows]

    def x(self, work: Work) -> np.ndarray:
        """Return the model's input for this work's micro-batch."""
        return self._batches[work.micro][0]

    def rows(self, work: Work) -> int:
        """Samples in this work's micro-batch."""
        rows = self._rows[work.micro % self.micro_batches]
        return rows.stop - rows.start

    def cost(self, work: Work) -> float:
        """Cost relative to one gradient of the whole model on one mini-batch: a third is forward, the rest backward."""
        thirds = 2 if work.kind == BACKWARD and not work.split else 1
        share = self.stages[work.chunk].multiply_adds / self._total
        return share * self.rows(work) / self.samples * thirds / 3

    def forward(self, params: np.ndarray, work: Work, x: np.ndarray) -> np.ndarray:
        """Return the output of chunk `work.chunk` with `params` for input x (flat or by rows), flat. The last chunk also
        computes the derivative of the loss."""
        stage, rows = self.stages[work.chunk], self.rows(work)
        if self.null:
            self.saved[work.micro, work.chunk] = None
            y = self.null_values(rows * stage.outputs)
        else:
            y, saved = stage.forward(params, x.reshape(rows, -1))
            dy = self._loss(y, work) if self.ends(work.chunk) else None
            self.saved[work.micro, work.chunk] = saved, dy
        counters = self.recorder.counters
        counters.activations = max(counters.activations, len(self.saved))
        return y.reshape(-1)

    def _loss(self, scores: np.ndarray, work: Work) -> np.ndarray:
        """Return the derivative of the mini-batch's mean loss with respect to this micro-batch's scores."""
        loss, dy = self.objective.loss, np.empty_like(scores)
        with np.errstate(over="ignore", invalid="ignore"):
            loss.gradient(scores, loss.check(self._batches[work.micro][1], *scores.shape), dy)
            if self.micro_batches > 1:
                dy *= len(scores) / self.samples
        return dy

    def backward(self, params: np.ndarray, work: Work, dy: np.ndarray | None, out: np.ndarray) -> np.ndarray:
        """Return the derivative with respect to the chunk's input, flat; the gradient of its parameters is accumulated in
        `out`.

        `dy`: None for the last chunk, which uses the derivative of the loss. A split backward leaves the gradient of the
        parameters to `weights`.
        """
        stage, rows = self.stages[work.chunk], self.rows(work)
        kept = self.saved[work.micro, work.chunk] if work.split else self._release(work)
        if self.null:
            return self.null_values(0 if self.begins(work.chunk) else rows * stage.inputs)
        saved, own = kept
        dy = own if dy is None else dy.reshape(rows, -1)
        more = not self.begins(work.chunk)
        if work.split:
            dx, dys = stage.input_gradient(params, saved, dy, more)
            self.saved[work.micro, work.chunk] = saved, dys
        else:
            target = self._target(work, out)
            dx = stage.backward(params, saved, dy, target, more)
            self._add(target, out)
        return dx.reshape(-1)

    def weights(self, work: Work, out: np.ndarray) -> None:
        """Compute the second part of a split backward: the gradient of the parameters, which is added to `out`."""
        kept = self._release(work)
        if not self.null:
            target = self._target(work, out)
            saved, dys = kept
            self.stages[work.chunk].parameter_gradient(saved, dys, target)
            self._add(target, out)

    def _release(self, work: Work) -> Any:
        if work.chunk == 0:
            del self._batches[work.micro]
        return self.saved.pop((work.micro, work.chunk))

    def _target(self, work: Work, out: np.ndarray) -> np.ndarray:
        """Return the buffer for a micro-batch's gradient: `out` itself for the first one, else scratch space to be added to
        `out`.
        """
        return out if work.micro % self.micro_batches == 0 else self._scratch[: len(out)]

    def _add(self, target: np.ndarray, out: np.ndarray) -> None:
        if target is not out:
            out += target


class ShardedLayers(PipelineStage):
    """The stages of an objective whose parameters are sharded: the worker owns one of `of` chunks of every stage.

    `chunks[i]`: the slice of stage i that the worker owns; `own[i]`: the position of this chunk in the worker's vector, as a
    slice.
    """

    def __init__(self, of: int, *, objective: Any, **more: Any):
        super().__init__([(i, i + 1) for i in range(len(objective.stages))], objective=objective, **more)
        self.layers = []  # norms are recorded for whole stages, in `backward`
        self.chunks = tuple(shard_slices(stage.size, of)[self.index] for stage in self.stages)
        self.own = adjacent(chunk.stop - chunk.start for chunk in self.chunks)

    def backward(self, params: np.ndarray, work: Work, dy: np.ndarray | None, out: np.ndarray) -> np.ndarray:
        """Compute a backward, as `PipelineStage.backward`. `params` and `out` are those of the whole stage."""
        dx = super().backward(params, work, dy, out)
        if self.measures(self.step):
            record_norms(self.recorder, self.clock(), self.step, self.layers_of(work.chunk), out, params)
        return dx

    def gather_buffer(self, i: int, mine: np.ndarray | None = None) -> np.ndarray:
        """Return a vector for the whole stage i, with this worker's chunk of `mine` (the worker's parameters) filled in."""
        size = self.stages[i].size
        if self.null:
            return self.null_values(size)
        whole = np.empty(size, self.dtype)
        if mine is not None:
            whole[self.chunks[i]] = mine[self.own[i]]
        return whole

    def store_chunk(self, i: int, total: np.ndarray) -> None:
        """Store this worker's chunk of `total`, the gradient of stage i."""
        if not self.null:
            self.values[self.own[i]] = total[self.chunks[i]]


async def perform(ctx: Context, stage: PipelineStage, params: np.ndarray, work: Work) -> None:
    """Perform one item of a stage's work: receive its input, compute, send its output."""
    members, part, cost = ctx.peers(stage.group), stage.slices[work.chunk], stage.cost(work)
    before, after = members[stage.index - 1], members[(stage.index + 1) % len(members)]
    begins, ends = stage.begins(work.chunk), stage.ends(work.chunk)
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


async def pipeline_pass(
    ctx: Context, stage: PipelineStage, weights: Weights, batch: Any, order: Iterable[Work]
) -> Gradient:
    """Process one mini-batch in the `order` of this stage's schedule. Returns the stage's part of the gradient."""
    stage.begin(batch)
    for work in order:
        await perform(ctx, stage, weights.values, work)
    return stage.gradient(weights)


def stash(stage: PipelineStage, shard: Any, kept: Mapping[int, Weights]) -> Weights:
    """Return a copy of the shard's present weights. If `kept` has weights of the same version, these are returned, not
    copied.
    """
    now: Weights = shard.weights()
    same = [weights for weights in kept.values() if weights.read == now.read]
    if not same and not stage.null:
        now = Weights(now.values.copy(), now.shard, now.generation, now.version)
    counters = stage.recorder.counters
    counters.stashed = max(counters.stashed, len({w.read for w in kept.values()} | {now.read}))
    return same[0] if same else now
