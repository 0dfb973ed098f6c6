"""Layers: functions y = f(params, x) and their derivatives, with respect to params and to x. A layer keeps no state.

`params` is the layer's slice of the flat vector, and `out` the same slice of a gradient, which is overwritten.
`forward` returns y and the array that `backward` needs. Because all state is passed as arguments, any number of batches
may be in progress at once. `backward` is `parameter_gradient` followed by `input_gradient`; a pipeline schedule may
also call them separately. All arrays have the dtype of `params`. Optional arguments `out` of `forward` and `dx` are
arrays for the result; without them a new array is returned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np

from ..options import HasOptions, option
from .objective import Array


class Layer(Protocol):
    """The interface of layers.

    x: (batch, inputs). dy: (batch, outputs), the derivative of the loss with respect to y. dx: (batch, inputs), with
    respect to x.
    """

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the layer's parameters by name, in their order in the flat slice."""

    @property
    def multiply_adds(self) -> int:
        """Multiplications with addition of one forward per sample; a backward needs twice as many."""

    def draw(self, rng: np.random.Generator, out: Array) -> None:
        """Write random initial values to `out`, the layer's slice of the flat vector."""

    def forward(self, params: Array, x: Array, out: Array | None = None) -> tuple[Array, Array]:
        """Return y (in `out`, if given) and the array that `backward` needs."""

    def parameter_gradient(self, saved: Array, dy: Array, out: Array) -> None:
        """Write the gradient with respect to the parameters, summed over the batch, to `out`."""

    def input_gradient(self, params: Array, saved: Array, dy: Array, dx: Array | None = None) -> Array:
        """Return the gradient with respect to x (in `dx`, if given)."""

    def backward(self, params: Array, saved: Array, dy: Array, out: Array, dx: Array | None = None) -> Array:
        """Write the gradient with respect to the parameters to `out`, and return the gradient with respect to x."""


@dataclass(frozen=True)
class Dense(HasOptions):
    """A dense layer: y = x W + b.

    W has the shape (inputs, outputs) and b the shape (outputs,); W is before b in the flat slice. The gradients are
    dW = x^T dy,  db = sum of dy over the batch,  dx = dy W^T.

    `start` is the distribution of the initial weights. "he" is normal with variance 2/inputs (He et al. 2015, "Delving
    deep into rectifiers", section 2.2), which keeps the size of activations through ReLUs. "glorot" is uniform on
    +-sqrt(6/(inputs + outputs)) (Glorot and Bengio 2010, eq. 16), for tanh and for the last layer. Biases start at 0.
    """

    inputs: int = field(metadata=option(low=1, help="columns of x").metadata)
    outputs: int = field(metadata=option(low=1, help="columns of y").metadata)
    start: str = option("glorot", choices=("glorot", "he"), help="initialization of the weights")

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"weight": (self.inputs, self.outputs), "bias": (self.outputs,)}

    @property
    def multiply_adds(self) -> int:
        return self.inputs * self.outputs

    def draw(self, rng: np.random.Generator, out: Array) -> None:
        count = self.inputs * self.outputs
        if self.start == "he":
            out[:count] = rng.normal(0.0, math.sqrt(2 / self.inputs), count)
        else:
            limit = math.sqrt(6 / (self.inputs + self.outputs))
            out[:count] = rng.uniform(-limit, limit, count)
        out[count:] = 0

    def forward(self, params: Array, x: Array, out: Array | None = None) -> tuple[Array, Array]:
        weight, bias = self._split(params)
        y = np.matmul(x, weight, out=out)
        y += bias
        return y, x

    def parameter_gradient(self, saved: Array, dy: Array, out: Array) -> None:
        weight, bias = self._split(out)
        np.matmul(saved.T, dy, out=weight)
        np.add.reduce(dy, axis=0, out=bias)

    def input_gradient(self, params: Array, saved: Array, dy: Array, dx: Array | None = None) -> Array:
        return np.matmul(dy, self._split(params)[0].T, out=dx)

    def backward(self, params: Array, saved: Array, dy: Array, out: Array, dx: Array | None = None) -> Array:
        self.parameter_gradient(saved, dy, out)
        return self.input_gradient(params, saved, dy, dx)

    def _split(self, flat: Array) -> tuple[Array, Array]:
        """Return weight and bias as views. They are not cached, because a cache would keep `flat` alive."""
        count = self.inputs * self.outputs
        return flat[:count].reshape(self.inputs, self.outputs), flat[count:]


class _Elementwise:
    """An elementwise function of any width, without parameters. To work in place, `out` may be x and `dx` may be dy."""

    shapes: ClassVar[dict[str, tuple[int, ...]]] = {}
    multiply_adds: ClassVar[int] = 0

    def draw(self, rng: np.random.Generator, out: Array) -> None: ...

    def parameter_gradient(self, saved: Array, dy: Array, out: Array) -> None: ...

    def input_gradient(self, params: Array, saved: Array, dy: Array, dx: Array | None = None) -> Array:
        raise NotImplementedError

    def backward(self, params: Array, saved: Array, dy: Array, out: Array, dx: Array | None = None) -> Array:
        return self.input_gradient(params, saved, dy, dx)


@dataclass(frozen=True)
class ReLU(_Elementwise):
    """y = max(x, 0). dx is dy where y > 0, else 0 (also at x = 0, where the derivative does not exist). Saves y."""

    def forward(self, params: Array, x: Array, out: Array | None = None) -> tuple[Array, Array]:
        y = np.maximum(x, 0, out=out)
        return y, y

    def input_gradient(self, params: Array, saved: Array, dy: Array, dx: Array | None = None) -> Array:
        return np.multiply(dy, saved > 0, out=dx)


@dataclass(frozen=True)
class Tanh(_Elementwise):
    """y = tanh(x), and dx = dy (1 - y^2). Saves y."""

    def forward(self, params: Array, x: Array, out: Array | None = None) -> tuple[Array, Array]:
        y = np.tanh(x, out=out)
        return y, y

    def input_gradient(self, params: Array, saved: Array, dy: Array, dx: Array | None = None) -> Array:
        slope = np.multiply(saved, saved)
        np.subtract(1, slope, out=slope)
        return np.multiply(dy, slope, out=dx)
