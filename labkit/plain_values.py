"""Values of listed classes as plain values, which JSON can represent.

    lk.Momentum(0.9)  <->  {"lk": "Momentum", "momentum": 0.9}

`from_plain(to_plain(value, classes), classes) == value`, but a list becomes a tuple. Only the listed classes are instantiated,
and only with fields that they declare, so no code from a file is executed; their constructors check the values.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from .errors import BadInput, lacks, shown

KIND = "lk"
MAX_DEPTH = 20  # maximum nesting
Classes = Mapping[str, type]  # dataclasses by their names


class NotEncodable(BadInput):
    """A user-defined value cannot be encoded. `name`: the name of its class."""

    def __init__(self, value: Any):
        self.name = type(value).__name__
        super().__init__(f"{shown(value)} was made by hand: it cannot be written down so that it could be made again.")


def to_plain(value: Any, classes: Classes, other: Callable[[Any], Any] = lambda _: None) -> Any:
    """Encode `value`. `other(value)`: the plain values of an object that is encoded in its own way, or None.

    Raises `NotEncodable` if it is or contains a value of another class.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {KIND: "float", "is": repr(value)}
    if isinstance(value, (tuple, list)):
        return [to_plain(v, classes, other) for v in value]
    if isinstance(value, dict) and all(isinstance(k, str) and k != KIND for k in value):
        return {k: to_plain(v, classes, other) for k, v in value.items()}
    if (plain := other(value)) is not None:
        return plain
    if classes.get(type(value).__name__) is not type(value):
        raise NotEncodable(value)
    fields = ((name, getattr(value, name)) for name in field_names(type(value)))
    return {KIND: type(value).__name__} | {name: to_plain(field, classes, other) for name, field in fields}


def from_plain(
    plain: Any, classes: Classes, others: Mapping[str, Callable[[dict[str, Any]], Any]] | None = None, depth: int = 0
) -> Any:
    """Decode a value encoded by `to_plain`. `others`: by its kind, the function that decodes what `other` has encoded.

    Raises `BadInput` if there is no such class, option or value.
    """
    if depth > MAX_DEPTH:
        raise BadInput(f"Values are nested more than {MAX_DEPTH} deep, which labkit does not write.")
    if isinstance(plain, list):
        return tuple(from_plain(v, classes, others, depth + 1) for v in plain)
    if not isinstance(plain, dict):
        return plain
    kind = plain.get(KIND)
    rest = {name: value for name, value in plain.items() if name != KIND}
    if others and isinstance(kind, str) and kind in others:
        return others[kind](rest)
    values = {name: from_plain(value, classes, others, depth + 1) for name, value in rest.items()}
    if kind is None:
        return values
    if kind == "float":
        if list(values) != ["is"] or values["is"] not in ("inf", "-inf", "nan"):
            raise BadInput(f"{shown(values)} is not a float; the values that are not finite are inf, -inf and nan.")
        return float(values["is"])
    if not isinstance(kind, str) or kind not in classes:
        raise BadInput(f"There is no {kind} in this labkit: it was written by another version.")
    fields = field_names(classes[kind])
    for name in values:
        if name not in fields:
            raise lacks(kind, "option", name, fields)
    try:
        return classes[kind](**values)
    except TypeError as error:
        raise BadInput(f"{kind} has other options in this labkit: {error}.") from None


def field_names(kind: Any) -> list[str]:
    """Return the names of the fields that the constructor of a dataclass takes."""
    return [field.name for field in dataclasses.fields(kind) if field.init]
