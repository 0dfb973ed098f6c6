"""The gradient of a mini-batch in pieces: a forward pass, then the backward pass layer by layer, from the last to the first.

Together the pieces compute the same bits as `Model.gradient`. The gradient of a layer is complete when its piece is done, so it
can be sent while the other layers are computed. An objective that has no `stages` has one piece.

A forward pass is a third of the cost of a gradient. The other two thirds are divided over the pieces by their multiplications,
as for the stages of a pipeline. In virtual time every piece draws its duration separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..nn import clip_by_norm
from ..nn.objective import StageSequence
from ..trace.recorder import PIECE
from .gradient import Gradient, Model, Parameters
from .part import Part, Work

FORWARD_COST = 1 / 3  # of a gradient


class GradientPiece(NamedTuple):
    """The backward pass of one stage (None: of the whole objective). `part`: the slice of its gradient in the flat vector.
    `cost`: relative to one gradient.
    """

    stage: int | None
    part: slice
    cost: float


class GradientBucket(NamedTuple):
    """Consecutive pieces whose gradients are sent together, the slice `part` of the flat vector."""

    pieces: Sequence[GradientPiece]
    part: slice


class LayerwiseModel(Part):
    """Computes the gradients of `model` in `pieces`, in the order of the backward pass."""

    work: ClassVar[Work] = "gradient"

    def __init__(self, model: Model):
        self.model = model
        self.stages = tuple(model.objective.stages)
        total = sum(stage.multiply_adds for stage in self.stages)
        self.pieces = [GradientPiece(None, slice(0, model.objective.size), 1 - FORWARD_COST)]
        if self.stages:
            self.pieces = [
                GradientPiece(i, stage.slice, (1 - FORWARD_COST) * stage.multiply_adds / total)
                for i, stage in reversed(list(enumerate(self.stages)))
            ]
        self._layers = {  # {the beginning of a piece: the number of its first layer}
            piece.part.start: sum(layer.start < piece.part.start for _, layer in model.layers) for piece in self.pieces
        }
        self._saved: list[Any] = []  # of each stage, for its backward pass
        self._dy: Any = None  # the derivative of the loss with respect to the output of the next piece
        self._batch: Any = None
        self._params: np.ndarray = np.empty(0)
        self._gradient: Gradient | None = None  # of the mini-batch
        self._total: Gradient | None = None  # to which it is added

    def buckets(self, size: int | None) -> list[GradientBucket]:
        """Return the pieces in buckets. A bucket is complete as soon as it has `size` bytes; None: a quarter of the model."""
        model = self.model
        itemsize = model.objective.dtype.itemsize
        least = model.objective.size * itemsize / 4 if size is None else size
        made: list[GradientBucket] = []
        pieces: list[GradientPiece] = []
        for piece in self.pieces:
            pieces.append(piece)
            part = slice(piece.part.start, pieces[0].part.stop)
            if (part.stop - part.start) * itemsize >= least or piece is self.pieces[-1]:
                made.append(GradientBucket(pieces, part))
                pieces = []
        return made

    def forward(self, parameters: Parameters, batch: Any, accumulate: int = 1) -> Gradient:
        """Compute the forward pass and the loss. Returns the gradient, whose values the calls of `backward` compute.

        `accumulate`: as of `Model.gradient`. The gradient of a layer is complete with its piece of the last mini-batch.
        """
        model, like = self.model, parameters.values
        values, loss = model.null_values, float("nan")
        if not model.null:
            values = model.pool.take(like.nbytes)[: like.nbytes].view(like.dtype)
            self._params, self._batch = like, batch
            if self.stages:
                loss = self._forward(batch)
        counters = model.recorder.counters
        counters.activations = max(counters.activations, 1)
        self._gradient = Gradient(values, counters.computed, parameters.read, batch.samples, model.parts, loss)
        self._total = model.accumulated.begin(self._gradient, accumulate, model.measures(counters.computed))
        return self._total

    def _forward(self, batch: Any) -> float:
        """Compute all stages and the loss, whose derivative is stored; returns the mean loss."""
        x, self._saved = StageSequence(self.stages).forward(self._params, batch.x)
        objective = self.model.objective
        self._dy = np.empty_like(x)  # the last stage may have saved x
        with np.errstate(over="ignore", invalid="ignore"):
            loss: float = objective.loss.gradient(x, objective.loss.check(batch.y, *x.shape), self._dy)
        return loss

    def backward(self, piece: GradientPiece) -> None:
        """Compute the gradient of the next piece. The gradient counts as computed when its last piece is done."""
        model, gradient, total = self.model, self._gradient, self._total
        assert gradient is not None
        assert total is not None
        if not model.null:
            if piece.stage is None:
                gradient.loss = model.compute(self._params, self._batch, gradient.step, gradient.values)
            else:
                stage, saved = self.stages[piece.stage], self._saved.pop()
                out = gradient.values[piece.part]
                self._dy = stage.backward(self._params[piece.part], saved, self._dy, out, piece.stage > 0)
            model.accumulated.add(gradient, piece.part)
            if total.complete and model.measures(total.step):
                model.record_norms(total, model.objective.layout.layers_in(piece.part), self._params)
        model.recorder.pieces += PIECE(model.clock(), gradient.step, self._layers[piece.part.start])
        if piece is self.pieces[-1]:
            model.accumulated.end(gradient)
            if total.complete:
                model.recorder.counters.computed = total.step + 1
            self._gradient = self._total = self._batch = self._dy = None

    def clip(self, gradient: Gradient) -> Gradient:
        """Clip the gradient by the norm of all its pieces. It is done after they were summed over the workers, because no norm
        is known before the last piece.
        """
        if self.model.clip_norm is not None and not self.model.null:
            clip_by_norm(gradient.values, self.model.clip_norm)
        return gradient
