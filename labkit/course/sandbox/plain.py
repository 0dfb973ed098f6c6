"""What passes between the judge and a student's process: plain data, in frames of JSON and raw array bytes.

A frame is two lengths (8 bytes each, little-endian), JSON text, and the arrays' bytes one after the other. Nothing is
unpickled, no class is looked up by a name that came from outside: the reader knows None, truth values, numbers, text,
arrays of numbers, lists, tuples, dicts with text keys, and references to things that stay on the other side. What is
anything else is refused by the sender; what is malformed is refused by the reader.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["LARGEST", "Malformed", "decode", "encode"]

HEAD = struct.Struct("<QQ")
LARGEST = 64 << 20  # bytes of one frame
LONGEST = 4 << 20  # bytes of its text: what it becomes in memory is up to fifty times as much
NUMBERS = "biufc"  # kinds of dtype
DTYPE = re.compile("[<>|=][biufc][0-9]{1,2}")  # as `dtype.str` writes it; NumPy reads much more than that as a dtype
DEEPEST = 40  # lists in lists

_NUMBER: dict[str, Any] = {"int": int, "float": float}

Refer = Callable[[Any], Any]  # something that stays here -> what it is called, JSON; None if it cannot be said
Find = Callable[[Any], Any]  # and the other way round


class Malformed(Exception):
    """What came is no frame, or what was to be said is no plain data."""


def encode(value: Any, refer: Refer) -> bytes:
    """`value` as a frame. `Malformed` names what cannot be said."""
    arrays: list[np.ndarray] = []
    text = json.dumps(_pack(value, arrays, refer, 0), separators=(",", ":")).encode("utf-8", "surrogatepass")
    size = sum(array.nbytes for array in arrays)
    if len(text) > LONGEST:
        raise Malformed(
            f"{len(text) >> 20} MB of text, numbers and lists; allowed: {LONGEST >> 20} MB (an array may be larger)"
        )
    if len(text) + size > LARGEST:
        raise Malformed(f"{(len(text) + size) >> 20} MB at once; allowed: {LARGEST >> 20} MB")
    return b"".join([HEAD.pack(len(text), size), text, *(array.tobytes() for array in arrays)])


def decode(read: Callable[[int], bytes], find: Find) -> Any:
    """The value of the next frame. `read(n)` gives exactly n bytes. `Malformed` if it is none."""
    length, size = HEAD.unpack(read(HEAD.size))
    if length > LONGEST or length + size > LARGEST:
        raise Malformed(f"a frame of {length} + {size} bytes; allowed: {LONGEST}, and {LARGEST} in all")
    text, body = read(length), read(size)
    try:
        packed = json.loads(text.decode("utf-8", "surrogatepass"))
        return _unpack(packed, body, find, 0)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, OverflowError) as error:
        raise Malformed(f"no frame: {type(error).__name__}") from None


def _pack(value: Any, arrays: list[np.ndarray], refer: Refer, depth: int) -> Any:
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if isinstance(value, np.generic) and value.dtype.kind in NUMBERS:
        value = value.item()  # np.float64(7.0) is 7.0
        kind = type(value)
    if kind is int:
        return value if -(2**63) <= value < 2**64 else {"int": str(value)}
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if kind is complex:
        return {"complex": [_pack(value.real, arrays, refer, depth), _pack(value.imag, arrays, refer, depth)]}
    if depth > DEEPEST:
        raise Malformed(f"more than {DEEPEST} lists in each other")
    if isinstance(value, np.ndarray):
        return _pack_array(value, arrays)
    if kind is list:
        return [_pack(item, arrays, refer, depth + 1) for item in value]
    if kind is tuple:
        return {"tuple": [_pack(item, arrays, refer, depth + 1) for item in value]}
    if kind is dict:
        return {
            "dict": [[_pack(k, arrays, refer, depth + 1), _pack(v, arrays, refer, depth + 1)] for k, v in value.items()]
        }
    said = refer(value)
    if said is None:
        raise Malformed(
            f"a {kind.__name__}: only numbers, text, arrays, lists, tuples and dicts pass from one to the other"
        )
    return {"there": _pack(said, arrays, refer, depth + 1)}


def _pack_array(value: np.ndarray, arrays: list[np.ndarray]) -> Any:
    if value.dtype.kind not in NUMBERS:
        raise Malformed(f"an array of dtype {value.dtype}: only numbers and truth values pass")
    plain = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("=")).view(np.ndarray)
    arrays.append(plain)
    return {"array": [plain.dtype.str, list(value.shape)]}


def _unpack(packed: Any, body: bytes, find: Find, depth: int) -> Any:
    at = [0]  # how much of `body` has been taken

    def go(packed: Any, depth: int) -> Any:
        if depth > DEEPEST + 2:
            raise ValueError("too deep")
        if isinstance(packed, list):
            return [go(item, depth + 1) for item in packed]
        if not isinstance(packed, dict):
            return packed
        ((what, held),) = packed.items()
        if what == "tuple":
            return tuple(go(item, depth + 1) for item in held)
        if what == "dict":
            return {go(key, depth + 1): go(item, depth + 1) for key, item in held}
        if what == "array":
            return _array(held, body, at)
        if what == "there":
            return find(go(held, depth + 1))
        if what == "complex":
            return complex(*(go(part, depth + 1) for part in held))
        return _NUMBER[what](held)

    return go(packed, depth)


def _array(about: Any, body: bytes, at: list[int]) -> np.ndarray:
    """The next array of the frame: the reader's own memory."""
    name, shape = about
    if not isinstance(name, str) or not DTYPE.fullmatch(name):
        raise ValueError("dtype")
    dtype = np.dtype(name)
    if not all(type(n) is int and n >= 0 for n in shape) or len(shape) > 8:
        raise ValueError("shape")
    size = math.prod(shape)
    begin, end = at[0], at[0] + size * dtype.itemsize
    if end > len(body):
        raise ValueError("size")
    at[0] = end
    return np.frombuffer(body, dtype, size, begin).reshape(shape).copy()
