"""Two dense layers split over ranks: the first by columns, the second by rows (tensor parallelism).

    y = f(f1(x W1 + b1) W2 + b2)        rank r has columns r of W1 and b1, rows r of W2:  h_r = f1(x W1_r + b1_r)
    y = f(sum over ranks of h_r W2_r + b2)      dx = sum over ranks of dh_r W1_r^T,  dh_r = (dy W2_r^T) f1'

Here "columns r" and "rows r" are the rank's range of columns or rows. f1 is elementwise, so it needs only the rank's
columns, and nothing is communicated between the two layers. Only the two sums are communicated, one forward and one
backward. b2 is added once, because rank r adds only its slice of b2, to the same columns of its summand. If the number
of layers is odd, the last layer is split by rows alone: h_r is columns r of x, and rank r computes columns r of dx (its
other columns are 0).

Shoeybi et al., "Megatron-LM", 2019, section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import BadInput
from .index_sets import Box, Boxes
from .layers import Dense
from .network import Block, Network
from .objective import Array


class SplitPair:
    """One rank's part of a pair of layers (or of a single layer, if `first` is None).

    `middle`: the rank's columns of the first layer, which are its rows of the second layer. `bias`: the rank's slice of
    the second layer's bias. `boxes`: the positions of the rank's parameters in the whole vector. The part's flat vector
    has the parameters in the order W1, b1, W2, b2, with the matrices row by row. `share`: the part of the network's
    multiply-adds. `layers`: for each layer (number in the network, begin and end of its parameters in the flat vector).
    """

    def __init__(
        self, first: Block | None, second: Block, middle: slice, bias: slice, offsets: tuple[int, int], total: int,
        number: int,
    ) -> None:  # fmt: skip
        self.second, self.middle, self.bias = second, middle, bias
        self.activation = None if first is None else first.activation
        self.width = middle.stop - middle.start
        self.inputs = second.dense.inputs if first is None else first.dense.inputs
        self.outputs = second.dense.outputs
        self.dense = None if first is None else Dense(first.dense.inputs, self.width)
        (at1, at2), boxes = offsets, []
        if first is not None:
            rows, columns = first.dense.inputs, first.dense.outputs
            boxes = [Box(at1, rows, columns, middle.start, middle.stop)]
            boxes += [Box(at1 + rows * columns, 1, columns, middle.start, middle.stop)]
        rows, columns = second.dense.inputs, self.outputs
        boxes += [Box(at2 + middle.start * columns, self.width, columns, 0, columns)]
        boxes += [Box(at2 + rows * columns, 1, columns, bias.start, bias.stop)]
        self.boxes = tuple(boxes)
        self.size = sum(box.size for box in boxes)
        self._cut = self.size - boxes[-1].size - boxes[-2].size  # index at which W2 begins
        self.layers: tuple[tuple[int, int, int], ...] = ((number, 0, self.size),)
        if first is not None:
            self.layers = ((number, 0, self._cut), (number + 1, self._cut, self.size))
        self.share = self.width * (self.outputs + (0 if first is None else self.inputs)) / total

    def _second(self, flat: Array) -> tuple[Array, Array]:
        """Return the rank's rows of W2, shape (width, outputs), and its slice of b2, as views."""
        end = self._cut + self.width * self.outputs
        return flat[self._cut : end].reshape(self.width, self.outputs), flat[end:]

    def forward(self, params: Array, x: Array) -> tuple[Array, list[Array]]:
        """Return (y, saved): this rank's summand of the second activation's input, and the arrays that `backward` needs.

        x: (batch, inputs). y: (batch, outputs).
        """
        saved = [x]
        if self.dense is None:
            h = x[:, self.middle]
        else:
            h = self.dense.forward(params[: self._cut], x)[0]
            if self.activation is not None:
                h, kept = self.activation.forward(params[:0], h, h)
                saved.append(kept)
        saved.append(h)
        weight, bias = self._second(params)
        y = h @ weight
        y[:, self.bias] += bias
        return y, saved

    def backward(self, params: Array, saved: list[Array], dy: Array, out: Array) -> Array:
        """Return this rank's summand of dx, shape (batch, inputs), and write the gradient of its parameters to `out`."""
        x, h = saved[0], saved[-1]
        weight, bias = self._second(out)
        np.matmul(h.T, dy, out=weight)
        np.add.reduce(dy[:, self.bias], axis=0, out=bias)
        dh = dy @ self._second(params)[0].T
        if self.dense is None:
            dx = np.zeros_like(x)
            dx[:, self.middle] = dh
            return dx
        if self.activation is not None:
            dh = self.activation.input_gradient(params[:0], saved[1], dh)
        return self.dense.backward(params[: self._cut], x, dh, out[: self._cut])


def split_pairs(network: Network, rank: int, ranks: int) -> list[SplitPair]:
    """Return the parts that `rank` of `ranks` has of every pair of the network's dense layers, in forward order.

    Raises `BadInput` if a layer is too narrow for `ranks` parts.
    """
    blocks: Sequence[Block] = network.blocks
    starts = [own.start for own in network.layout.groups().values()]
    made = []
    for i in range(0, len(blocks), 2):
        pair: list[Any] = list(blocks[i : i + 2])
        at = starts[i : i + 2]
        if len(pair) == 1:
            pair, at = [None, *pair], [0, *at]
        first, second = pair
        width = second.dense.inputs
        if ranks > width:
            what = f"{first.name} has {width} outputs" if first is not None else f"{second.name} has {width} inputs"
            raise BadInput(f"{what}, which cannot be split over {ranks} workers; allowed: 1 to {width}.")
        outputs = second.dense.outputs
        middle = slice(width * rank // ranks, width * (rank + 1) // ranks)
        bias = slice(outputs * rank // ranks, outputs * (rank + 1) // ranks)
        made.append(SplitPair(first, second, middle, bias, (at[0], at[1]), network.multiply_adds, i))
    return made


def boxes_of(pairs: Sequence[SplitPair]) -> Boxes:
    """Return the positions of a rank's parameters in the whole vector, pair after pair."""
    return Boxes(box for pair in pairs for box in pair.boxes)
