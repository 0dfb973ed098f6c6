"""Codecs that work on single entries of a vector: they select entries, or encode each entry with fewer bits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from ...errors import BadInput, shown
from ...options import option
from ..objective import Array
from .base import Codec, Messages, Shapes, Sums

HALF = np.dtype(np.float16)


def _size(shapes: Shapes) -> int:
    return sum(math.prod(shape) for shape in shapes)


@dataclass(frozen=True)
class TopK(Codec):
    """The k entries of largest magnitude, each as an index of 4 bytes and a value: 8 bytes per entry for float32.

    Of entries of equal magnitude those with the lowest index are sent, so the choice does not depend on the machine. An
    entry that is not sent stays in the error memory, with k = 1% for about a hundred steps on average. This is a kind
    of staleness, so a learning rate that is stable without a codec may be too large here. At least one entry is sent.
    With several shards, k applies to the part of each shard. Cost: a partial sort per step.

    See Also
    --------
    AsyncPS, SyncPS, RingAllReduce : Strategies with the option codec.

    Notes
    -----
    Stich, Cordonnier and Jaggi, "Sparsified SGD with memory", NeurIPS 2018.

    Examples
    --------
    >>> codec = lk.codecs.TopK(k=2)
    >>> message = codec.encode(np.array([0.1, -3.0, 0.2, 2.0]), None)
    >>> message
    (array([1, 3], dtype=int32), array([-3.,  2.]))
    >>> codec.decode(message, 4, float)
    array([ 0., -3.,  0.,  2.])
    """

    k: float = option(
        0.01, low=1e-9, high=2**31 - 1, log=True, help="below 1: share of the entries; from 1 on: how many"
    )

    feedback: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k > 1 and self.k != int(self.k):
            raise BadInput(f"TopK: k={shown(self.k)} is not allowed; from 1 on, k is how many entries: a whole number.")

    def entries(self, size: int) -> int:
        """Return how many entries of a vector are sent.

        Parameters
        ----------
        size : int
            The size of the vector.

        Returns
        -------
        int
            The number of entries, from 1 to `size`.
        """
        return min(size, int(self.k) if self.k >= 1 else max(1, round(self.k * size)))

    def message(self, shapes: Shapes, dtype: DTypeLike) -> Messages:
        k = self.entries(_size(shapes))
        return ((k,), np.dtype(np.int32)), ((k,), np.dtype(dtype))

    def encode(self, values: Array, state: Any) -> tuple[Array, ...]:
        k = self.entries(len(values))
        length = np.abs(values)
        length[np.isnan(length)] = np.inf  # NaN is sent first, so that it is not hidden
        least = np.partition(length, len(length) - k)[len(length) - k] if k else 0.0
        chosen = length > least
        chosen[np.flatnonzero(length == least)[: k - np.count_nonzero(chosen)]] = True
        index = np.flatnonzero(chosen)
        return index.astype(np.int32), values[index]

    def decode(self, arrays: tuple[Array, ...], size: int, dtype: DTypeLike) -> Array:
        dense = np.zeros(size, dtype)
        index, values = arrays
        dense[index] = values
        return dense


@dataclass(frozen=True)
class SignSGD(Codec):
    """One bit for the sign of each entry, and one value for all: the mean of their magnitudes. 32 times fewer bytes.

    It uses error feedback (EF-signSGD). Zero counts as positive. All entries change by the same amount, so an entry
    that is far larger than the mean is applied over many steps, and entries near zero fluctuate.

    See Also
    --------
    AsyncPS, SyncPS, RingAllReduce : Strategies with the option codec.

    Notes
    -----
    Karimireddy, Rebjock, Stich and Jaggi, "Error feedback fixes SignSGD and other gradient compression schemes",
    ICML 2019.

    Examples
    --------
    >>> codec = lk.codecs.SignSGD()
    >>> codec.decode(codec.encode(np.array([0.5, -3.0, 0.5, 2.0]), None), 4, float)
    array([ 1.5, -1.5,  1.5,  1.5])
    >>> codec.nbytes([(1000, 100)], "float32")  # 400,000 without the codec
    12504
    """

    feedback: ClassVar[bool] = True

    def message(self, shapes: Shapes, dtype: DTypeLike) -> Messages:
        return ((-(-_size(shapes) // 8),), np.dtype(np.uint8)), ((1,), np.dtype(dtype))

    def encode(self, values: Array, state: Any) -> tuple[Array, ...]:
        with np.errstate(over="ignore", invalid="ignore"):
            scale = np.abs(values).mean(keepdims=True) if len(values) else np.zeros(1, values.dtype)
            return np.packbits(values >= 0), scale.astype(values.dtype)

    def decode(self, arrays: tuple[Array, ...], size: int, dtype: DTypeLike) -> Array:
        bits, scale = arrays
        return np.where(np.unpackbits(bits, count=size), scale, -scale).astype(dtype, copy=False)


@dataclass(frozen=True)
class QSGD(Codec):
    """A sign and one of s = 2^(bits-1) - 1 levels for each entry, rounded up or down at random so that it is unbiased.

    A level is a fraction of the Euclidean length L of a bucket of n neighbouring entries. E[decoded] = value, and the
    variance of a bucket is at most min(n / s^2, sqrt(n) / s) L^2. For n = 512 this is 3.2 L^2 with 4 bits, but only
    0.03 L^2 with 8 bits. Short buckets are less noisy, but each bucket costs one more value. There is no error
    feedback and no memory. One number per entry is drawn from the role's random stream.

    See Also
    --------
    AsyncPS, SyncPS, RingAllReduce : Strategies with the option codec.

    Notes
    -----
    Alistarh, Grubic, Li, Tomioka and Vojnovic, "QSGD: communication-efficient SGD via gradient quantization and
    encoding", NeurIPS 2017 (packed with a fixed number of bits instead of their Elias code).

    Examples
    --------
    The mean of many decoded vectors is the vector.

    >>> codec, values, rng = lk.codecs.QSGD(bits=3), np.array([0.3, -0.4, 0.5]), np.random.default_rng(0)
    >>> decoded = [codec.decode(codec.encode(values, rng), 3, float) for _ in range(2000)]
    >>> np.mean(decoded, axis=0).round(1)
    array([ 0.3, -0.4,  0.5])
    >>> codec.nbytes([(1000, 100)], "float32")  # 400,000 without the codec
    38284
    """

    bits: int = option(4, low=2, high=8, help="bits an entry, its sign included")
    bucket: int = option(512, low=1, high=2**31 - 1, log=True, help="entries that share one length")

    def message(self, shapes: Shapes, dtype: DTypeLike) -> Messages:
        size = _size(shapes)
        packed, buckets = -(-size * self.bits // 8), -(-size // self.bucket)
        return ((packed,), np.dtype(np.uint8)), ((buckets,), np.dtype(dtype))

    def state(self, shapes: Shapes, dtype: DTypeLike, rng: np.random.Generator) -> np.random.Generator:
        """Return the random stream from which `encode` draws."""
        return rng

    def encode(self, values: Array, state: np.random.Generator) -> tuple[Array, ...]:
        size, sign, levels = len(values), 1 << (self.bits - 1), (1 << (self.bits - 1)) - 1
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.sqrt(np.add.reduceat(values * values, self._starts(size))) if size else values.copy()
            share = np.abs(values) / np.where(lengths > 0, lengths, 1).repeat(self._counts(size))
            share *= levels
            # Cut off to a whole number, a value plus a uniform number is rounded up with the probability of its fraction.
            share += state.random(size, share.dtype)
        np.nan_to_num(share, copy=False, nan=0.0, posinf=0.0)  # the length is then not finite either, and is sent
        codes = np.minimum(share, levels).astype(np.uint8)
        codes[values < 0] |= sign
        return np.packbits(np.unpackbits(codes[:, None], axis=1)[:, 8 - self.bits :]), lengths

    def decode(self, arrays: tuple[Array, ...], size: int, dtype: DTypeLike) -> Array:
        packed, lengths = arrays
        bits = np.unpackbits(packed, count=size * self.bits).reshape(size, self.bits)
        levels = (1 << (self.bits - 1)) - 1
        dense = (np.packbits(bits[:, 1:], axis=1)[:, 0] >> (9 - self.bits)).astype(dtype)
        dense /= levels
        with np.errstate(over="ignore", invalid="ignore"):
            dense *= lengths.repeat(self._counts(size))
        return np.negative(dense, out=dense, where=bits[:, 0] > 0)

    def _starts(self, size: int) -> Array:
        return np.arange(0, size, self.bucket)

    def _counts(self, size: int) -> Array:
        return np.diff(self._starts(size), append=size)


@dataclass(frozen=True)
class Float16(Codec):
    """Every entry in half precision: 2 bytes, 11 significant bits, magnitudes from 6e-8 to 65,504.

    A finite value that is too large is sent as 65,504 with its sign; inf and nan are not changed. In an all-reduce the
    values are added in half precision. Each value is first divided by the number of workers, so that a sum of large
    values cannot overflow (but the smallest values become 0 slightly earlier). No memory.

    See Also
    --------
    AsyncPS, SyncPS, RingAllReduce : Strategies with the option codec.

    Notes
    -----
    Micikevicius et al., "Mixed precision training", ICLR 2018, on what half precision keeps of a gradient.

    Examples
    --------
    >>> codec = lk.codecs.Float16()
    >>> codec.decode(codec.encode(np.array([0.1, 1e6]), None), 2, float)
    array([9.99755859e-02, 6.55040000e+04])
    """

    linear: ClassVar[bool] = True

    def message(self, shapes: Shapes, dtype: DTypeLike) -> Messages:
        return (((_size(shapes),), HALF),)

    sums = message

    def encode(self, values: Array, state: Any) -> tuple[Array, ...]:
        return (_half(values),)

    def decode(self, arrays: tuple[Array, ...], size: int, dtype: DTypeLike) -> Array:
        return arrays[0].astype(dtype)

    def sum_over_workers(self, values: Array, out: Array, state: Any, workers: int) -> Sums:
        half = _half(values / workers)
        yield half
        np.multiply(half, workers, out=out, dtype=out.dtype)
        return values


def _half(values: Array) -> Array:
    with np.errstate(over="ignore"):
        half = values.astype(HALF)
    if half.size and (half.view(np.uint16) & 0x7FFF).max() >= 0x7C00:  # inf or nan; `isinf` of halves is slow
        half = np.where(np.isfinite(values), np.clip(values, -65504, 65504), values).astype(HALF)
    return half
