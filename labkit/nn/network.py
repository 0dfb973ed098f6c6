"""Networks: sequences of blocks over one flat vector. A stage is a range of blocks with its slice of the vector.

A block is a dense layer followed by an activation. The vector of a stage is exactly its slice of the whole vector, so
stages on different machines, run forward in order and backward in reverse order, compute the same as the whole network.
Parameters are arguments and gradients are results; a stage keeps only shapes and work space.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import BadInput, nearest, shown
from .layers import Dense, Layer, ReLU, Tanh
from .layout import ParameterLayout
from .losses import Loss, SoftmaxCrossEntropy, SquaredError
from .objective import Array, ScoredObjective, check_rows, check_vector

ACTIVATIONS: dict[str, tuple[type[ReLU] | type[Tanh], str]] = {"relu": (ReLU, "he"), "tanh": (Tanh, "glorot")}
LOSSES: dict[str, type[SoftmaxCrossEntropy] | type[SquaredError]] = {
    "cross-entropy": SoftmaxCrossEntropy,
    "squared-error": SquaredError,
}
DTYPES = ("float32", "float64")
ROWS_AT_ONCE = 4096  # rows of one pass of an evaluation, which bounds its memory
BATCH_SIZES_KEPT = 4  # batch sizes with buffers; a run uses one or two of them


@dataclasses.dataclass(frozen=True)
class Block:
    """A dense layer, its name, and the activation after it (None for the last block)."""

    name: str
    dense: Dense
    activation: ReLU | Tanh | None = None


class Stage:
    """Blocks `number`, `number + 1`, ... of a network, whose parameters are `slice` of the whole flat vector.

    `params` and `out` of a stage are vectors of the stage's `size`, such as `whole[stage.slice]`. `layout` describes
    the stage's vector. `multiply_adds`: multiplications with addition of one forward per sample.
    """

    def __init__(self, blocks: Sequence[Block], dtype: str = "float32", number: int = 0, offset: int = 0) -> None:
        if str(dtype) not in DTYPES:
            raise nearest("dtype", dtype, DTYPES)
        if not blocks:
            raise BadInput("A stage has at least one block.")
        for a, b in itertools.pairwise(blocks):
            if a.dense.outputs != b.dense.inputs:
                raise BadInput(f"{a.name} has {a.dense.outputs} outputs, but {b.name} takes {b.dense.inputs}.")
        self.blocks = tuple(blocks)
        self.number = number
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.layout = ParameterLayout({f"{b.name}.{p}": s for b in blocks for p, s in b.dense.shapes.items()})
        self.size = self.layout.size
        self.slice = slice(offset, offset + self.size)
        self.inputs, self.outputs = blocks[0].dense.inputs, blocks[-1].dense.outputs
        self.multiply_adds = sum(b.dense.multiply_adds for b in blocks)
        self._layers: list[Layer] = []
        self._slices: list[slice] = []
        for block, own in zip(blocks, self.layout.groups().values()):
            self._layers.append(block.dense)
            self._slices.append(own)
            if block.activation is not None:
                self._layers.append(block.activation)
                self._slices.append(slice(own.stop, own.stop))
        self._nowhere: list[Array | None] = [None] * len(self._layers)

    def start(self, seed: int) -> Array:
        """Return initial parameters, shape (size,).

        A block draws its values from (seed, number of the block), so a stage has the same values as its part of the network.
        """
        if int(seed) != seed or seed < 0:
            raise BadInput(f"seed={shown(seed)} is not allowed; a seed is a whole number, at least 0.")
        params = np.empty(self.size, self.dtype)
        for number, (block, own) in enumerate(zip(self.blocks, self.layout.groups().values()), self.number):
            block.dense.draw(np.random.default_rng([int(seed), number]), params[own])
        return params

    def forward(self, params: Array, x: Array) -> tuple[Array, list[Array]]:
        """Return (y, saved): y of shape (batch, outputs) for x of shape (batch, inputs).

        `saved` is an argument of `backward` with the same parameters. It consists of new arrays and x itself, so any
        number of other batches can go forward before the `backward` of this batch (x must not be changed until then).
        """
        check_vector("params", params, self.size, self.dtype)
        x = check_rows(x, self.inputs, self.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            return self._forward(params, x, self._nowhere)

    def backward(self, params: Array, saved: list[Array], dy: Array, out: Array, dx: bool = True) -> Array:
        """Return dx, shape (batch, inputs), in new memory; overwrite `out`, shape (size,), with the gradient of the parameters.

        `dy`, shape (batch, outputs), is the derivative of the loss with respect to y; it is not changed. If `dx` is
        False (for the first stage), dx is not computed and an array without rows is returned.
        """
        check_vector("params", params, self.size, self.dtype)
        check_vector("out", out, self.size, self.dtype)
        self._check_dy(saved, dy)
        own = self._slices[0]
        with np.errstate(over="ignore", invalid="ignore"):
            dy = self._backward(params, saved, dy, out, self._nowhere)
            if dx:
                return self._layers[0].backward(params[own], saved[0], dy, out[own])
            self._layers[0].parameter_gradient(saved[0], dy, out[own])
        return np.empty((0, self.inputs), self.dtype)

    def input_gradient(
        self, params: Array, saved: list[Array], dy: Array, dx: bool = True
    ) -> tuple[Array, list[Array]]:
        """Return (dx, dys): the half of `backward` that the previous stage needs. `dys` is for `parameter_gradient`."""
        check_vector("params", params, self.size, self.dtype)
        self._check_dy(saved, dy)
        dys = [dy] * len(self._layers)
        with np.errstate(over="ignore", invalid="ignore"):
            for i in range(len(self._layers) - 1, 0, -1):
                dys[i - 1] = self._layers[i].input_gradient(params[self._slices[i]], saved[i], dys[i])
            if dx:
                return self._layers[0].input_gradient(params[self._slices[0]], saved[0], dys[0]), dys
        return np.empty((0, self.inputs), self.dtype), dys

    def parameter_gradient(self, saved: list[Array], dys: list[Array], out: Array) -> None:
        """Write the gradient of the parameters to `out`, shape (size,), from the results of `forward` and `input_gradient`."""
        check_vector("out", out, self.size, self.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            for layer, own, kept, dy in zip(self._layers, self._slices, saved, dys):
                layer.parameter_gradient(kept, dy, out[own])

    def _check_dy(self, saved: list[Array], dy: Array) -> None:
        if dy.shape != (len(saved[0]), self.outputs):
            raise BadInput(f"dy: shape {(len(saved[0]), self.outputs)} is needed, not {dy.shape}.")

    def _forward(self, params: Array, x: Array, ys: list[Array | None]) -> tuple[Array, list[Array]]:
        """Run all layers forward. `ys`: for every layer the buffer for its y, or None for a new array."""
        saved = []
        for layer, own, y in zip(self._layers, self._slices, ys):
            x, kept = layer.forward(params[own], x, y)
            saved.append(kept)
        return x, saved

    def _backward(self, params: Array, saved: list[Array], dy: Array, out: Array, dxs: list[Array | None]) -> Array:
        """Run the layers backward to the first; return the first layer's dy. The dx of the first layer is not computed here."""
        for i in range(len(self._layers) - 1, 0, -1):
            own = self._slices[i]
            dy = self._layers[i].backward(params[own], saved[i], dy, out[own], dxs[i])
        return dy


class Network(Stage, ScoredObjective):
    """The stage of all blocks, with a loss. It is an `Objective`.

    x: (batch, inputs) in the network's dtype (another dtype is converted, which makes a copy in each call). y: as the
    loss defines it. A loss that is not finite is returned as it is, without a warning.

    Not thread-safe, because `gradient` reuses its work space (one set of buffers per batch size). Use one object per role.
    """

    def __init__(self, blocks: Sequence[Block], loss: Loss, dtype: str = "float32") -> None:
        super().__init__(blocks, dtype)
        if isinstance(loss, SoftmaxCrossEntropy) and self.outputs < 2:
            raise BadInput("Cross-entropy needs at least 2 outputs, one a class.")
        self.loss = loss
        self._buffers: dict[int, tuple[list[Array | None], list[Array | None]]] = {}

    @classmethod
    def mlp(
        cls,
        inputs: int,
        hidden: tuple[int, ...] = (),
        outputs: int = 1,
        activation: str = "relu",
        loss: str = "cross-entropy",
        dtype: str = "float32",
    ) -> Network:
        """Make a network of dense layers of the widths `hidden`, each with the activation, and a last layer without: "output".

        Without hidden layers it is a softmax or linear regression. Raises `BadInput` if a name is unknown or a width is below 1.
        """
        if activation not in ACTIVATIONS:
            raise nearest("activation", activation, ACTIVATIONS)
        if loss not in LOSSES:
            raise nearest("loss", loss, LOSSES)
        kind, initializer = ACTIVATIONS[activation]
        widths = [inputs, *hidden]
        blocks = [
            Block(f"dense{i}", Dense(a, b, initializer), kind())
            for i, (a, b) in enumerate(itertools.pairwise(widths), 1)
        ]
        return cls([*blocks, Block("output", Dense(widths[-1], outputs))], LOSSES[loss](), dtype)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Every block as a stage, without the loss."""
        starts = [own.start for own in self.layout.groups().values()]
        return tuple(Stage([block], str(self.dtype), i, starts[i]) for i, block in enumerate(self.blocks))

    @property
    def architecture(self) -> str:
        """Widths, activations and loss: `64-128-10, relu, cross-entropy`."""
        widths = "-".join(str(width) for width in [self.inputs, *(b.dense.outputs for b in self.blocks)])
        activations = dict.fromkeys(type(b.activation).__name__.lower() for b in self.blocks if b.activation)
        losses = [name for name, loss in LOSSES.items() if isinstance(self.loss, loss)]
        return ", ".join([widths, *activations, *losses])

    def to_plain(self) -> dict[str, Any]:
        """Return the network as JSON values. Raises `BadInput` if its loss has no name."""
        activations = {kind: name for name, (kind, _) in ACTIVATIONS.items()}
        losses: dict[Any, str] = {kind: name for name, kind in LOSSES.items()}
        if type(self.loss) not in losses:
            raise BadInput(f"A network with the loss {self.loss!r} cannot be saved, only one of {', '.join(LOSSES)}.")
        blocks = [
            [b.name, dataclasses.asdict(b.dense), activations[type(b.activation)] if b.activation else None]
            for b in self.blocks
        ]
        return {"blocks": blocks, "loss": losses[type(self.loss)], "dtype": str(self.dtype)}

    def gradient(self, params: Array, x: Array, y: Array, out: Array) -> float:
        """Return the mean loss and write its gradient to `out`. Allocates nothing of the size of the parameters."""
        check_vector("params", params, self.size, self.dtype)
        check_vector("out", out, self.size, self.dtype)
        x = check_rows(x, self.inputs, self.dtype)
        y = self.loss.check(y, len(x), self.outputs)
        ys, dxs = self._buffers.get(len(x)) or self._make_buffers(len(x))
        with np.errstate(over="ignore", invalid="ignore"):
            scores, saved = self._forward(params, x, ys)
            value = self.loss.gradient(scores, y, scores)
            dy = self._backward(params, saved, scores, out, dxs)
            self._layers[0].parameter_gradient(saved[0], dy, out[self._slices[0]])
        return value

    def scores(self, params: Array, x: Array) -> Array:
        check_vector("params", params, self.size, self.dtype)
        x = check_rows(x, self.inputs, self.dtype)
        scores = np.empty((len(x), self.outputs), self.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            for i in range(0, len(x), ROWS_AT_ONCE):
                scores[i : i + ROWS_AT_ONCE] = self._forward(params, x[i : i + ROWS_AT_ONCE], self._nowhere)[0]
        return scores

    def _make_buffers(self, rows: int) -> tuple[list[Array | None], list[Array | None]]:
        """Allocate the work space of `gradient` for `rows` rows: ys and dxs, one of each per layer.

        Activations work in place on the y and the dy of the preceding dense layer. This is possible because a dense
        layer saves its x, not its y. For the same reason the derivative of the loss can overwrite the scores.
        """
        ys: list[Array | None] = []
        dxs: list[Array | None] = []
        for block in self.blocks:
            y = np.empty((rows, block.dense.outputs), self.dtype)
            ys.append(y)
            dxs.append(np.empty((rows, block.dense.inputs), self.dtype) if dxs else None)
            if block.activation is not None:
                ys.append(y)
                dxs.append(None)
        for i in range(len(dxs) - 1, 0, -1):
            if dxs[i] is None:
                dxs[i] = dxs[i + 1] if i + 1 < len(dxs) else ys[i]
        if len(self._buffers) >= BATCH_SIZES_KEPT:
            self._buffers.clear()
        self._buffers[rows] = ys, dxs
        return ys, dxs

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickling, without the work space."""
        return {**self.__dict__, "_buffers": {}}

    def __repr__(self) -> str:
        widths = "-".join(str(n) for n in [self.inputs, *(b.dense.outputs for b in self.blocks)])
        return f"<Network {widths}, {type(self.loss).__name__}, {self.dtype}, {self.size} parameters>"
