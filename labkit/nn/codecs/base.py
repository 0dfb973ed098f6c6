"""The interface of codecs. Values are flat vectors of shape (size,), float32 or float64."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...options import check_options
from ..objective import Array

__all__ = ["Codec", "Messages", "Shapes", "Sums"]

Shapes = Sequence[tuple[int, ...]]  # of the parameters that lie one behind the other in a vector
Messages = tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]  # (shape, dtype) of each array of a message
Sums = Generator[Array, None, Array]  # vectors to be added up in place over all workers, one after the other


@dataclass(frozen=True)
class Codec:
    """The base class of codecs. A codec is frozen; what it keeps between messages of one worker is its `state`.

    `linear`: messages can be added without decoding them. `feedback`: the encoding error should be sent later.
    """

    linear: ClassVar[bool] = False
    feedback: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_options(self)

    def message(self, shapes: Shapes, dtype: Any) -> Messages:
        """Shapes and dtypes of the message of a vector made of `shapes`. They do not depend on the values."""
        raise NotImplementedError  # each codec's

    def nbytes(self, shapes: Shapes, dtype: Any) -> int:
        """Bytes of a message: its arrays, without headers."""
        return sum(math.prod(shape) * kind.itemsize for shape, kind in self.message(shapes, dtype))

    def state(self, shapes: Shapes, dtype: Any, rng: np.random.Generator) -> Any:
        """The initial state, which is kept between messages (apart from the error). `rng`: for all its draws."""
        return None

    def encode(self, values: Array, state: Any) -> tuple[Array, ...]:
        """The message: new arrays, as in `message`. `values` are not changed; `state` may change in place.

        Values that are not finite raise no warning, and what they decode to is not finite either.
        """
        raise NotImplementedError  # each codec's

    def decode(self, arrays: tuple[Array, ...], size: int, dtype: Any) -> Array:
        """A dense vector, shape (size,), new memory."""
        raise NotImplementedError  # each codec's

    def sums(self, shapes: Shapes, dtype: Any) -> Messages:
        """(shape, dtype) of the vectors that an all-reduce adds up in place of one of `values`. Linear codecs only."""
        raise NotImplementedError  # each linear codec's

    def sum_over_workers(self, values: Array, out: Array, state: Any, workers: int) -> Sums:
        """Yield the vectors of `sums`; the caller sums each over all workers, in place, before it asks for the next one.

        At the end the sum of all workers' decoded values is in `out`, which may be `values`. Returns this worker's part
        of it (used only with `feedback`). Linear codecs only.
        """
        raise NotImplementedError  # each linear codec's
