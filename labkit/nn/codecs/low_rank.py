"""Low-rank compression: the gradient of a weight matrix is sent as two thin factors.

    M, n x m:   P <- M Q            Q, m x rank, is the result of the previous step
                P <- orthonormal basis of P's columns
                Q <- M^T P
                M is about P Q^T

Each gradient takes one step of the power method, which starts at the Q of the previous gradient and so converges over
many gradients. Both products are linear in M. Therefore the P of all workers can be added before they are made
orthonormal, and after that the Q. These two all-reduces add rank (n + m) values in total, where M has n m values. A
matrix of rank <= `rank` is reproduced exactly.

Vogels, Karimireddy and Jaggi, "PowerSGD: practical low-rank gradient compression for distributed optimization",
NeurIPS 2019.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import DTypeLike

from ...errors import BadInput
from ...options import option
from ..objective import Array
from .base import Codec, Messages, Shapes, Sums


class Piece:
    """One parameter array: its slice `where` of the vector, its `shape`, and `q`, the Q above, or None if sent uncompressed."""

    __slots__ = ("q", "shape", "where")

    def __init__(self, where: slice, shape: tuple[int, ...], q: Array | None):
        self.where, self.shape, self.q = where, shape, q


@dataclass(frozen=True)
class PowerSGD(Codec):
    """Two thin factors of each weight matrix: rank (n + m) values instead of n m. It uses error feedback.

    Vectors (biases), and matrices that would not shrink, are sent uncompressed. The flat vector must contain whole
    matrices, so there can be only one shard. The first Q is the same on all workers. Each step multiplies every matrix
    three times by a thin matrix and makes one thin matrix orthonormal. Every member of an all-reduce does this
    separately, so replicas stay equal bit for bit only if linear algebra is computed identically (on machines of one kind).

    See Also
    --------
    AsyncPS, SyncPS, RingAllReduce : Strategies with the option codec.

    Notes
    -----
    Vogels, Karimireddy and Jaggi, "PowerSGD: practical low-rank gradient compression for distributed optimization",
    NeurIPS 2019.

    Examples
    --------
    A matrix of rank 1 is reproduced.

    >>> codec, matrix = lk.codecs.PowerSGD(rank=1), np.outer([1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0])
    >>> message = codec.encode(matrix.ravel(), codec.state([matrix.shape], float, np.random.default_rng(0)))
    >>> [array.shape for array in message]
    [(3, 1), (4, 1)]
    >>> np.allclose(codec.decode(message, 12, float).reshape(3, 4), matrix)
    True
    """

    rank: int = option(2, low=1, high=1024, help="columns of the factors")

    linear: ClassVar[bool] = True
    feedback: ClassVar[bool] = True

    def shrinks(self, shape: tuple[int, ...]) -> bool:
        """Return whether a parameter is a matrix that has more values than its two factors.

        Parameters
        ----------
        shape : tuple of int
            The shape of the parameter.

        Returns
        -------
        bool
            Whether it is compressed.
        """
        return len(shape) == 2 and self.rank * sum(shape) < math.prod(shape)

    def message(self, shapes: Shapes, dtype: DTypeLike) -> Messages:
        kind, rank = np.dtype(dtype), self.rank
        arrays: list[tuple[int, ...]] = []
        for shape in shapes:
            arrays += [(n, rank) for n in shape] if self.shrinks(shape) else [(math.prod(shape),)]
        return tuple((shape, kind) for shape in arrays)

    def sums(self, shapes: Shapes, dtype: DTypeLike) -> Messages:
        first = sum(self.rank * s[0] if self.shrinks(s) else math.prod(s) for s in shapes)
        second = sum(self.rank * s[1] for s in shapes if self.shrinks(s))
        return tuple(((size,), np.dtype(dtype)) for size in (first, second) if size)

    def state(self, shapes: Shapes, dtype: DTypeLike, rng: np.random.Generator) -> list[Piece]:
        """Return one `Piece` per parameter. The first Q of a parameter is drawn with the parameter's position as the seed."""
        pieces, start = [], 0
        for place, shape in enumerate(shapes):
            where = slice(start, start + math.prod(shape))
            q = None
            if self.shrinks(shape):
                # The same on all workers: the sum of their products M Q is the product of the sum of M only if Q is the same.
                q = np.random.default_rng(place).standard_normal((shape[1], self.rank)).astype(dtype)
            pieces.append(Piece(where, shape, q))
            start = where.stop
        return pieces

    def encode(self, values: Array, state: list[Piece]) -> tuple[Array, ...]:
        arrays: list[Array] = []
        with np.errstate(over="ignore", invalid="ignore"):
            for piece in state:
                flat = values[piece.where]
                if piece.q is None:
                    arrays.append(flat.copy())
                    continue
                matrix = flat.reshape(piece.shape)
                p = _orthonormal(matrix @ piece.q)
                q = matrix.T @ p
                _warm(piece, q)
                arrays += [p, q]
        return tuple(arrays)

    def decode(self, arrays: tuple[Array, ...], size: int, dtype: DTypeLike) -> Array:
        """Return the dense vector. Factors are the arrays of two dimensions, in pairs, so no further structure is needed."""
        dense, start, rest = np.empty(size, dtype), 0, iter(arrays)
        with np.errstate(over="ignore", invalid="ignore"):
            for array in rest:
                piece = (array @ next(rest).T).ravel() if array.ndim == 2 else array
                if start + len(piece) > size:
                    break
                dense[start : start + len(piece)] = piece
                start += len(piece)
            else:
                if start == size:
                    return dense
        raise BadInput(f"PowerSGD: {[a.shape for a in arrays]} are not the factors of a vector of {size} values.")

    def sum_over_workers(self, values: Array, out: Array, state: list[Piece], workers: int) -> Sums:
        """Yield first all P with the uncompressed parameters, then all Q, as `Codec.sum_over_workers` describes."""
        factors = [piece for piece in state if piece.q is not None]
        matrices = [values[piece.where].reshape(piece.shape) for piece in factors]
        plain = [piece.where for piece in state if piece.q is None]
        mine = values.copy()
        with np.errstate(over="ignore", invalid="ignore"):
            products = [m @ piece.q for m, piece in zip(matrices, factors)]
            first = np.concatenate([*(p.ravel() for p in products), *(values[where] for where in plain)])
        yield first
        basis = [_orthonormal(p) for p in _split(first, [p.shape for p in products])]
        start = sum(p.size for p in products)
        for where in plain:
            out[where] = first[start : start + where.stop - where.start]
            start += where.stop - where.start
        if not factors:
            return mine
        with np.errstate(over="ignore", invalid="ignore"):
            own = [m.T @ p for m, p in zip(matrices, basis)]
            second = np.concatenate([q.ravel() for q in own])
            for piece, p, q in zip(factors, basis, own):
                np.matmul(p, q.T, out=mine[piece.where].reshape(piece.shape))
        yield second
        with np.errstate(over="ignore", invalid="ignore"):
            for piece, p, q in zip(factors, basis, _split(second, [q.shape for q in own])):
                np.matmul(p, q.T, out=out[piece.where].reshape(piece.shape))
                # from the sums, so that Q remains the same on all workers
                _warm(piece, q / workers)
        return mine


def _orthonormal(p: Array) -> Array:
    """Return an orthonormal basis whose span contains all columns, also if columns are linearly dependent or zero."""
    basis: Array = np.linalg.qr(p)[0]
    return np.ascontiguousarray(basis)


def _warm(piece: Piece, q: Array) -> None:
    """Keep Q for the next step, unless it is zero or not finite."""
    if q.any() and np.isfinite(q).all():
        piece.q = q


def _split(flat: Array, shapes: list[tuple[int, ...]]) -> list[Array]:
    parts, start = [], 0
    for shape in shapes:
        parts.append(flat[start : start + math.prod(shape)].reshape(shape))
        start += math.prod(shape)
    return parts
