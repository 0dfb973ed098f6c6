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
        """Return shape and dtype of each array of a message. They do not depend on the values.

        Parameters
        ----------
        shapes : sequence of tuple of int
            The shapes of the parameters that the vector consists of, in order.
        dtype : dtype
            The type of the vector.

        Returns
        -------
        tuple of tuple
            A pair (shape, dtype) for each array.
        """
        raise NotImplementedError  # each codec's

    def nbytes(self, shapes: Shapes, dtype: DTypeLike) -> int:
        """Return the number of bytes of the arrays of a message, without headers.

        Parameters
        ----------
        shapes : sequence of tuple of int
            The shapes of the parameters that the vector consists of, in order.
        dtype : dtype
            The type of the vector.

        Returns
        -------
        int
            The number of bytes.
        """
        return sum(math.prod(shape) * kind.itemsize for shape, kind in self.message(shapes, dtype))

    def state(self, shapes: Shapes, dtype: DTypeLike, rng: np.random.Generator) -> Any:
        """Return the initial state, without the error memory.

        Parameters
        ----------
        shapes : sequence of tuple of int
            The shapes of the parameters that the vector consists of, in order.
        dtype : dtype
            The type of the vector.
        rng : numpy.random.Generator
            The source of all random numbers of the codec.

        Returns
        -------
        object
            The state; None if nothing is kept from one message to the next.
        """
        return None

    def encode(self, values: Array, state: Any) -> tuple[Array, ...]:
        """Return the message for a vector.

        Values that are not finite raise no warning; the decoded vector is then not finite either.

        Parameters
        ----------
        values : ndarray, shape (size,)
            The vector. It is not changed.
        state : object
            The state. It is changed.

        Returns
        -------
        tuple of ndarray
            New arrays, of the shapes that `message` returns.
        """
        raise NotImplementedError  # each codec's

    def decode(self, arrays: tuple[Array, ...], size: int, dtype: DTypeLike) -> Array:
        """Return the dense vector that a message represents.

        Parameters
        ----------
        arrays : tuple of ndarray
            The message.
        size : int
            The size of the vector.
        dtype : dtype
            The type of the vector.

        Returns
        -------
        ndarray, shape (size,)
            The vector, in new memory.
        """
        raise NotImplementedError  # each codec's

    def sums(self, shapes: Shapes, dtype: DTypeLike) -> Messages:
        """Return shape and dtype of the vectors that `sum_over_workers` yields. Linear codecs only.

        Parameters
        ----------
        shapes : sequence of tuple of int
            The shapes of the parameters that the vector consists of, in order.
        dtype : dtype
            The type of the vector.

        Returns
        -------
        tuple of tuple
            A pair (shape, dtype) for each vector.
        """
        raise NotImplementedError  # each linear codec's

    def sum_over_workers(self, values: Array, out: Array, state: Any, workers: int) -> Sums:
        """Sum the decoded values of all workers. Linear codecs only.

        Parameters
        ----------
        values : ndarray, shape (size,)
            The vector of this worker.
        out : ndarray, shape (size,)
            The place of the result, which may be `values`.
        state : object
            The state. It is changed.
        workers : int
            The number of workers.

        Returns
        -------
        ndarray, shape (size,)
            This worker's part of the sum (used only with `feedback`).

        Yields
        ------
        ndarray
            A vector. The caller sums it over all workers, in place, before it asks for the next vector.
        """
        raise NotImplementedError  # each linear codec's
