"""Ranks of a tensor-parallel network: the model of a rank, and the pass of one mini-batch through all ranks.

Every rank has the whole input x and the whole output y of every pair of layers (`nn/split.py`), and a part of the layer between
them. It computes a partial sum of y and, in the backward pass, of dx. One all-reduce per pair and pass sums them over the
ranks. Every rank computes the activation after a pair, and the loss, from identical bits.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...errors import BadInput
from ...nn import Network
from ...nn.index_sets import Boxes
from ...nn.objective import represented
from ...nn.split import boxes_of, split_pairs
from ..collectives import all_reduce
from ..context import Context
from ..gradient import Gradient
from ..messages import Weights
from .model_part import ModelPart, adjacent


class TensorRank(ModelPart):
    """The parts of all pairs on rank `index` of `ranks`. `slices[i]`: the slice of pair i in the rank's vector."""

    def __init__(self, ranks: int, **more: Any):
        super().__init__(**more)
        self.pairs = split_pairs(represented(self.objective), self.index, ranks)
        self.slices = adjacent(pair.size for pair in self.pairs)
        self.layers = [
            (number, slice(own.start + low, own.start + high))
            for pair, own in zip(self.pairs, self.slices)
            for number, low, high in pair.layers
        ]
        self._saved: list[list[np.ndarray]] = []  # of every pair, for its backward
        self._behind: list[np.ndarray] = []  # saved by the activations after the pairs
        self._y: Any = None

    def begin(self, batch: Any) -> None:
        self.count(batch.samples)
        self._y, self._saved, self._behind = batch.y, [], []

    def forward(self, params: np.ndarray, i: int, x: np.ndarray) -> np.ndarray:
        """Return this rank's partial sum of pair i's output, flat. x: the batch's input, or the sum of the previous pair."""
        pair = self.pairs[i]
        if self.null:
            return self.null_values(self.samples * pair.outputs)
        with np.errstate(over="ignore", invalid="ignore"):
            x = x if i == 0 else self._activate(i - 1, x)
            y, saved = pair.forward(params[self.slices[i]], x.reshape(self.samples, -1))
        self._saved.append(saved)
        return y.reshape(-1)

    def backward(self, params: np.ndarray, i: int, dy: np.ndarray) -> np.ndarray:
        """Return this rank's partial sum of pair i's dx, flat. dy: the scores for the last pair, else the sum of the next
        pair's dx.
        """
        pair, own = self.pairs[i], self.slices[i]
        if self.null:
            return self.null_values(self.samples * pair.inputs)
        with np.errstate(over="ignore", invalid="ignore"):
            dy = dy.reshape(self.samples, -1)
            if i == len(self.pairs) - 1:
                dy = self._loss(self._activate(i, dy))
            activation = pair.second.activation
            if activation is not None:
                dy = activation.input_gradient(params[:0], self._behind[i], dy)
            return pair.backward(params[own], self._saved[i], dy, self.values[own]).reshape(-1)

    def _activate(self, i: int, total: np.ndarray) -> np.ndarray:
        y, kept = total.reshape(self.samples, -1), total
        activation = self.pairs[i].second.activation
        if activation is not None:
            y, kept = activation.forward(self.values[:0], y, y)
        self._behind.append(kept)
        return y

    def _loss(self, scores: np.ndarray) -> np.ndarray:
        loss, dy = self.objective.loss, np.empty_like(scores)
        loss.gradient(scores, loss.check(self._y, *scores.shape), dy)
        return dy


def tensor_parallel_parts(strategy: Any, problem: Any, ranks: int) -> tuple[list[Boxes], list[Any]]:
    """Return (the parameters of each rank, the factory of each rank's model). Raises `BadInput` if the
    network cannot be split in this way.
    """
    network = represented(problem.objective())
    if not isinstance(network, Network):
        raise BadInput(
            f"{strategy.name} splits the weights of dense layers, by columns and by rows, and this model is not made of them: "
            f"{network.architecture}. Use a network of dense layers, or a strategy that keeps every layer whole, as SyncPS."
        )
    parts = [boxes_of(split_pairs(network, rank, ranks)) for rank in range(ranks)]
    return parts, [partial(TensorRank, ranks)] * ranks


async def tensor_pass(ctx: Context, rank: TensorRank, weights: Weights, batch: Any) -> Gradient:
    """Process one mini-batch, forward and backward through all pairs. Returns this rank's part of the gradient."""
    rank.begin(batch)
    sum_ = batch.x
    for i, pair in enumerate(rank.pairs):
        mine = await ctx.compute(rank.forward, weights.values, i, sum_, cost=pair.share / 3)
        sum_ = await all_reduce(ctx, mine, rank.group)
    # Nothing needs the dx of the first pair. It is summed nevertheless, so that every pair takes two sums as in the
    # literature, where an embedding precedes the first pair.
    for i, pair in reversed(list(enumerate(rank.pairs))):
        mine = await ctx.compute(rank.backward, weights.values, i, sum_, cost=2 * pair.share / 3)
        sum_ = await all_reduce(ctx, mine, rank.group)
    return rank.gradient(weights)
