"""Index sets of the flat parameter vector: which parameters a shard owns.

A box is the columns `low` to `high - 1` of a matrix of `rows` rows and `stride` columns, which is stored row by row and
begins at `offset`. A plain slice is a box of one row. A few boxes, without a list of indices, describe the parameters
of a server, of a stage, of a rank of a split layer, or of a part of every layer, for a model of any size.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ..errors import BadInput
from .objective import Array


class Box(NamedTuple):
    """The columns low..high-1 of a (rows, stride) matrix that begins at index `offset` of the flat vector."""

    offset: int
    rows: int
    stride: int
    low: int
    high: int

    @property
    def size(self) -> int:
        return self.rows * (self.high - self.low)

    def view(self, flat: Array) -> Array:
        """Return the box as a view of `flat`, shape (rows, high - low)."""
        return flat[self.offset : self.offset + self.rows * self.stride].reshape(self.rows, self.stride)[
            :, self.low : self.high
        ]


class Boxes:
    """A sequence of boxes: the parameters that a shard, stage or rank (the owner) has. Concatenated they are its vector.

    Raises `BadInput` if a box is invalid. Boxes must not overlap; this is not checked, because layouts make the boxes.
    """

    __slots__ = ("boxes", "size")

    def __init__(self, boxes: Iterable[Box | tuple[int, int, int, int, int]]) -> None:
        self.boxes = tuple(Box(*map(int, box)) for box in boxes)
        for box in self.boxes:
            if not (box.offset >= 0 <= box.rows and 0 <= box.low <= box.high <= box.stride):
                raise BadInput(f"{box}: a box has rows and columns 0 <= low <= high <= stride.")
        self.size = sum(box.size for box in self.boxes)

    @classmethod
    def of(cls, part: slice | Boxes) -> Boxes:
        """Convert a slice of the vector to boxes; return boxes unchanged."""
        if isinstance(part, Boxes):
            return part
        length = part.stop - part.start
        return cls([(part.start, 1, length, 0, length)])

    def take(self, flat: Array) -> Array:
        """Return the owner's parameters, shape (size,), in new memory; from an array with zero strides, another such array."""
        if flat.strides == (0,):
            return np.broadcast_to(flat.dtype.type(0), (self.size,))
        return np.concatenate([box.view(flat).ravel() for box in self.boxes] or [flat[:0]])

    def put(self, flat: Array, values: Array) -> None:
        """Write the owner's parameters, shape (size,), to their places in `flat`."""
        if values.shape != (self.size,):
            raise BadInput(f"The owner has {self.size} parameters; these are {values.shape}.")
        start = 0
        for box in self.boxes:
            box.view(flat)[...] = values[start : start + box.size].reshape(box.rows, box.high - box.low)
            start += box.size

    def __len__(self) -> int:
        return self.size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Boxes) and self.boxes == other.boxes

    def __hash__(self) -> int:
        return hash(self.boxes)

    def __repr__(self) -> str:
        return f"Boxes({[tuple(box) for box in self.boxes]}, {self.size} parameters)"
