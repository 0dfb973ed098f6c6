"""An embedding table: one row (a vector) per id, with initial values that can be computed for single rows.

    forward:   y = sum over the fields f of table[x_f]            (a bag of rows; "mean" divides by their number)
    backward:  d table[i] = sum of dy over all places where i occurs in x; 0 for all other rows

The gradient of a batch has as many non-zero rows as the batch has distinct ids; sparse parameter servers use this. An
id may occur several times in a batch. Its gradients are added with `np.add.at`, because `table[ids] -= g` would keep
only one of them.

The initial values of a row are a hash of (seed, row), not draws from a stream. A table of 10,000,000 rows of which 5,000
are used therefore takes the memory of 5,000 rows, with the same values as in the complete table. The hash
function is the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ..errors import BadInput
from ..options import HasOptions, option
from .objective import Array

_STEP = 0x9E3779B97F4A7C15  # 2**64 / golden ratio, odd: the increments of SplitMix64
_WORD = (1 << 64) - 1


def scramble(seed: int, numbers: Array) -> Array:
    """Return a uint64 hash of each of `numbers` (any integers, any shape) and `seed`.

    With the same seed, different numbers never have the same hash.
    """
    key = np.uint64((_mixed_word(seed & _WORD) + _STEP) & _WORD)
    with np.errstate(over="ignore"):
        # Each operation is invertible (products with odd numbers modulo 2^64, xor with a shift), so no two numbers get one
        # hash.
        return _mixed(numbers.astype(np.uint64) * np.uint64(_STEP) + key)


def _mixed(z: Array) -> Array:
    """Apply SplitMix64's finaliser to z in place, and return z."""
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def _mixed_word(word: int) -> int:
    with np.errstate(over="ignore"):
        return int(_mixed(np.array([word], np.uint64))[0])


def check_ids(x: Array, fields: int, rows: int) -> Array:
    """Return x as int64 ids, shape (batch, fields). Raises `BadInput` if the shape is another or an id is out of range."""
    x = np.asarray(x)
    if x.ndim != 2 or x.shape[1] != fields or not len(x) or x.dtype.kind not in "iu":
        raise BadInput(
            f"x: whole-number ids of shape (batch, {fields}) with at least one row are needed, not {x.dtype} "
            f"of shape {x.shape}."
        )
    x = x.astype(np.int64, copy=False)
    # As unsigned, a negative id is very large: one comparison checks both bounds.
    if np.ascontiguousarray(x).view(np.uint64).max() >= rows:
        raise BadInput(f"x: ids go from 0 to {rows - 1}; found {x.min()} to {x.max()}.")
    return x


@dataclass(frozen=True)
class EmbeddingBag(HasOptions):
    """A layer whose output y is the sum (or mean) of the rows with the ids x: x (batch, fields) int64, y (batch, columns).

    The parameters are the table, row by row, flat: shape (rows * columns,). `forward` and `parameter_gradient` use the
    length of their arguments, so the same layer also works on a table of a part of the rows, with x as indices of these
    rows. Initial values are uniform on +-sqrt(3 / (fields * columns)), so that the mean squared length of a sum is 1.
    """

    rows: int = field(metadata=option(low=1, high=2**40, help="ids, counted from 0").metadata)
    columns: int = field(metadata=option(low=1, high=65_536, help="length of a row").metadata)
    fields: int = option(1, low=1, high=65_536, help="ids a sample")
    combine: str = option("sum", choices=("sum", "mean"), help="how the rows of a sample become one vector")

    @property
    def size(self) -> int:
        return self.rows * self.columns

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"weight": (self.rows, self.columns)}

    @property
    def multiply_adds(self) -> int:
        """Additions of one forward per sample."""
        return self.fields * self.columns

    def start(self, seed: int, ids: Array, dtype: np.dtype) -> Array:
        """Return the initial values of the rows `ids` (k,), shape (k, columns). They depend on (seed, row, column) only."""
        places = ids[:, None] * self.columns + np.arange(self.columns)
        limit = math.sqrt(3 / (self.fields * self.columns))
        fraction = (scramble(seed, places) >> np.uint64(11)).astype(np.float64)  # 53 bits
        fraction *= 2 * limit / 2**53
        fraction -= limit
        return fraction.astype(dtype, copy=False)

    def forward(self, table: Array, x: Array, out: Array | None = None) -> tuple[Array, Array]:
        """Return y (in `out`, if given) and the array that `parameter_gradient` needs, which is x."""
        y = np.add.reduce(table.reshape(-1, self.columns)[x], axis=1, out=out)
        if self.combine == "mean":
            y /= x.shape[1]
        return y, x

    def parameter_gradient(self, saved: Array, dy: Array, out: Array) -> None:
        """Overwrite `out` (flat) with the gradient of the table, summed over the batch; it is 0 for rows without an id."""
        batch, fields = saved.shape
        if self.combine == "mean":
            dy = dy / fields
        out[...] = 0
        places = saved[:, :, None] * self.columns + np.arange(self.columns)
        each = np.broadcast_to(dy[:, None, :], (batch, fields, self.columns))
        np.add.at(out, places.reshape(-1), each.reshape(-1))  # one index per element is NumPy's fast path
