"""The layout of a model's parameters: named slices of one flat vector.

The parts are contiguous and in the given order, so slices do not overlap and together cover the vector. Code that moves
parameters (a push, a shard, an all-reduce, a checkpoint) can split the vector anywhere, independently of layers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from ..errors import BadInput, nearest, shown


class ParameterLayout:
    """Named slices of a flat vector.

    `shapes` maps names to shapes, in forward order. A name is `layer.part` ("dense1.weight"); the parts of one layer
    must be adjacent. Raises `BadInput` if a shape has a negative or fractional extent, or the parts of a layer are not
    adjacent.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.slices: dict[str, slice] = {}
        self._groups: dict[str, slice] = {}
        end, previous = 0, None
        for name, shape in shapes.items():
            if any(int(n) != n or n < 0 for n in shape):
                raise BadInput(f"The shape of {shown(name)} is {tuple(shape)}; extents are whole numbers, at least 0.")
            layer = name.rpartition(".")[0] or name
            if layer in self._groups and layer != previous:
                raise BadInput(
                    f"The parts of layer {layer!r} must stand next to each other; {shown(name)} stands apart."
                )
            start, previous = end, layer
            self.shapes[name] = tuple(int(n) for n in shape)
            end += math.prod(self.shapes[name])
            self.slices[name] = slice(start, end)
            self._groups[layer] = slice(self._groups[layer].start if layer in self._groups else start, end)
        self.size = end
        """Number of parameters."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parts, in forward order."""
        return tuple(self.shapes)

    def view(self, flat: NDArray[Any], name: str) -> NDArray[Any]:
        """Return a view of the part `name` of the vector `flat` (shape `(size,)`), in the part's shape.

        Writing to the view writes to `flat`. Raises `BadInput` if the name is unknown or the vector has another length.
        """
        if name not in self.slices:
            raise nearest("parameter", name, self.slices)
        if flat.shape != (self.size,):
            raise BadInput(f"The vector has shape {flat.shape}; this layout describes {(self.size,)}.")
        return flat[self.slices[name]].reshape(self.shapes[name])

    def groups(self) -> dict[str, slice]:
        """Return, for every layer in forward order, the slice that contains all its parts (weight and bias together)."""
        return dict(self._groups)

    def layers_in(self, part: slice) -> list[tuple[int, slice]]:
        """Return (number, slice) of every layer in the slice `part` of the vector. A slice is that of the whole vector."""
        layers = enumerate(self._groups.values())
        return [(number, own) for number, own in layers if part.start <= own.start < part.stop]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ParameterLayout) and list(self.shapes.items()) == list(other.shapes.items())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ParameterLayout({self.shapes})"
