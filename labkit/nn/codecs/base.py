"""The interface of codecs. Values are flat vectors of shape (size,), float32 or float64."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from ...options import HasOptions
from ..objective import Array

__all__ = ["Codec", "Messages", "Shapes", "Sums"]

Shapes = Sequence[tuple[int, ...]]  # of the parameters that a vector consists of, in order
Messages = tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]  # (shape, dtype) of each array of a message
Sums = Generator[Array, None, Array]  # yields vectors to be added up in place over all workers, one after the other


@dataclass(frozen=True)
class Codec(HasOptions):
    """The base class of codecs. A codec is frozen. What it keeps from one message of a worker to the next is the `state`.

    `linear`: messages can be added without decoding them. `feedback`: the encoding error should be kept and sent later.
    """

    linear: ClassVar[bool] = False
    feedback: ClassVar[bool] = False

    def message(self, shapes: Shapes, dtype: DTypeLike) -> Messages:
        """Return shape and dtype of each array of a message, for a vector made of `shapes`. They do not depend on the values."""
        raise NotImplementedError  # each codec's

    def nbytes(self, shapes: Shapes, dtype: DTypeLike) -> int:
        """Return the number of bytes of the arrays of a message, without headers."""
        return sum(math.prod(shape) * kind.itemsize for shape, kind in self.message(shapes, dtype))

    def state(self, shapes: Shapes, dtype: DTypeLike, rng: np.random.Generator) -> Any:
        """Return the initial state, without the error memory. All random numbers of the codec are drawn from `rng`."""
        return None

    def encode(self, values: Array, state: Any) -> tuple[Array, ...]:
        """Return the message: new arrays, of the shapes that `message` returns. Changes `state` in place, but not `values`.

        Values that are not finite raise no warning; the decoded vector is then not finite either.
        """
        raise NotImplementedError  # each codec's

    def decode(self, arrays: tuple[Array, ...], size: int, dtype: DTypeLike) -> Array:
        """Return the dense vector, shape (size,), in new memory."""
        raise NotImplementedError  # each codec's

    def sums(self, shapes: Shapes, dtype: DTypeLike) -> Messages:
        """Return (shape, dtype) of the vectors that `sum_over_workers` yields. Linear codecs only."""
        raise NotImplementedError  # each linear codec's

    def sum_over_workers(self, values: Array, out: Array, state: Any, workers: int) -> Sums:
        """Yield vectors; the caller sums each of them over all workers, in place, before it asks for the next vector.

        At the end the sum of all workers' decoded values is in `out`, which may be `values`. Returns this worker's part
        of that sum (used only with `feedback`). Linear codecs only.
        """
        raise NotImplementedError  # each linear codec's
