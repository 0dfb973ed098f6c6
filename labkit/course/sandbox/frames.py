"""The encoding of messages between the grader and a student process: frames of JSON and raw array bytes.

A frame is two lengths (8 bytes each, little-endian), JSON text, and the bytes of the arrays one after the other. Nothing is
unpickled, and no class is looked up by a name that was received. Values keep their type, so that a check has the same result as
in a notebook: None, booleans, numbers, text, bytes, NumPy scalars and arrays (of numbers, of text, of objects that can be
encoded; masked arrays and matrices), lists, tuples, named tuples, dicts, sets, ranges, views of dicts, the containers of
`collections`, fractions, and references to objects that stay in the other process. An iterator arrives as an iterator over the
items that the sender took from it. The sender refuses any other value, the receiver a malformed frame. A receiver needs at most a
constant multiple of `LARGEST` and `LONGEST` bytes of memory for a frame.
"""

from __future__ import annotations

import collections
import json
import math
import re
import struct
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np

__all__ = ["LARGEST", "Malformed", "decode", "encode"]

HEAD = struct.Struct("<QQ")
LARGEST = 32 << 20  # bytes of one frame
LONGEST = 1 << 20  # bytes of its text, which takes up to a hundred times as much memory when parsed
NUMBERS = "biufc"  # kinds of dtype
TEXTS = "US"
DTYPE = re.compile(
    "[<>|=](?:[biufc][0-9]{1,2}|[US][0-9]{1,7})"
)  # as `dtype.str` writes it; NumPy would parse other texts as dtypes too
DEEPEST = 40  # nested containers
MOST = 100_000  # items of a range or an iterator
FIELDS = 100  # of a named tuple
BITS = 100_000  # of a whole number

# dict views and containers with their tags in a frame
_VIEWS: dict[type, str] = {type({}.keys()): "keys", type({}.values()): "values", type({}.items()): "items"}
_DICTS: dict[type, str] = {
    collections.OrderedDict: "ordered", collections.Counter: "counter", collections.defaultdict: "defaults",
}  # fmt: skip
_SEQUENCES: dict[type, str] = {tuple: "tuple", set: "set", frozenset: "frozenset", collections.deque: "deque"}

Refer = Callable[[Any], Any]  # an object that stays here -> its reference (plain data); None if it has none
Find = Callable[[Any], Any]  # a received reference -> the object


class Malformed(Exception):
    """A received frame is malformed, or a value to be sent cannot be encoded."""


def encode(value: Any, refer: Refer) -> bytes:
    """`value` as a frame. `Malformed` names the value that cannot be encoded."""
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
    """The value of the next frame. `read(n)` returns exactly n bytes. Raises `Malformed`."""
    length, size = HEAD.unpack(read(HEAD.size))
    if length > LONGEST or length + size > LARGEST:
        raise Malformed(f"a frame of {length} + {size} bytes; allowed: {LONGEST}, and {LARGEST} in all")
    text, body = read(length), read(size)
    try:
        packed = json.loads(text.decode("utf-8", "surrogatepass"))
        return _unpack(packed, body, find, 0)
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        RecursionError,
        OverflowError,
        MemoryError,
    ) as error:
        raise Malformed(f"the frame cannot be decoded: {type(error).__name__}") from None


def _pack(value: Any, arrays: list[np.ndarray], refer: Refer, depth: int) -> Any:
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        if value.bit_length() > BITS:
            raise Malformed(f"a whole number of {value.bit_length():,} bits; allowed: {BITS:,}")
        return value if -(2**63) <= value < 2**64 else {"int": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if depth > DEEPEST:
        raise Malformed(f"more than {DEEPEST} nested lists")

    def inside(items: Any) -> list[Any]:
        return [_pack(item, arrays, refer, depth + 1) for item in items]

    if kind is complex:
        return {"complex": inside((value.real, value.imag))}
    if isinstance(value, np.generic):
        _pack_array(np.asarray(value), arrays)
        return {"scalar": arrays[-1].dtype.str}
    if isinstance(value, np.ma.MaskedArray):
        return {"masked": inside((np.asarray(value.data), np.ma.getmaskarray(value)))}
    if kind is np.matrix:
        return {"matrix": inside((np.asarray(value),))[0]}
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return {"objects": [list(value.shape), inside(value.ravel().tolist())]}
        return _pack_array(value, arrays)
    if kind is list:
        return inside(value)
    if kind in _SEQUENCES:
        return {_SEQUENCES[kind]: inside(value)}
    if kind is dict:
        return {"dict": [inside(pair) for pair in value.items()]}
    if kind in _DICTS:
        return {_DICTS[kind]: [inside(pair) for pair in value.items()]}
    if kind in _VIEWS:
        return {_VIEWS[kind]: [inside(item) if kind is type({}.items()) else inside((item,))[0] for item in value]}
    if kind is bytes or kind is bytearray:
        arrays.append(np.frombuffer(value, np.uint8))
        return {kind.__name__: len(value)}
    if kind is range:
        return {"range": inside((value.start, value.stop, value.step))} if len(value) <= MOST else _too_many("a range")
    if kind is Fraction:
        return {"fraction": inside((value.numerator, value.denominator))}
    reference = refer(value)
    if reference is not None:
        return {"ref": _pack(reference, arrays, refer, depth + 1)}
    if isinstance(value, tuple) and isinstance(getattr(kind, "_fields", None), tuple):
        return {"named": [kind.__name__, list(map(str, kind._fields)), inside(tuple.__iter__(value))]}
    if isinstance(value, Iterator):
        items = list(islice(value, MOST + 1))
        return {"iterator": inside(items)} if len(items) <= MOST else _too_many("an iterator")
    raise Malformed(
        f"a {kind.__name__}: only numbers, text, arrays, and lists, tuples, dicts and sets of them can be sent"
    )


def _too_many(what: str) -> Any:
    raise Malformed(f"{what} of more than {MOST:,} items")


def _pack_array(value: np.ndarray, arrays: list[np.ndarray]) -> Any:
    if value.dtype.kind not in NUMBERS + TEXTS:
        raise Malformed(f"an array of dtype {value.dtype}: only numbers, booleans and text can be sent")
    plain = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("=")).view(np.ndarray)
    arrays.append(plain)
    shape = list(value.shape)
    return (
        {"array": [plain.dtype.str, shape]} if value.flags.writeable else {"array": [plain.dtype.str, shape, "fixed"]}
    )


def _unpack(packed: Any, body: bytes, find: Find, depth: int) -> Any:
    at = [0]  # bytes of `body` that have been read

    def go(packed: Any, depth: int) -> Any:
        if depth > DEEPEST + 2:
            raise ValueError("too deep")
        if isinstance(packed, list):
            return [go(item, depth + 1) for item in packed]
        if not isinstance(packed, dict):
            return packed
        ((what, held),) = packed.items()
        if what == "array":
            return _array(held, body, at)
        if what == "scalar":
            return _array([held, []], body, at)[()]
        if what in ("bytes", "bytearray"):
            return _BYTES[what](_array(["|u1", [held]], body, at).tobytes())
        if what == "objects":
            return _objects(held[0], go(held[1], depth + 1))
        if what == "named":
            return _named(held[0], held[1], go(held[2], depth + 1))
        if what == "ref":
            return find(go(held, depth + 1))
        return _MADE[what](go(held, depth + 1))

    return go(packed, depth)


def _array(about: Any, body: bytes, at: list[int]) -> np.ndarray:
    """The next array of the frame, copied."""
    name, shape, *fixed = about
    if not isinstance(name, str) or not DTYPE.fullmatch(name):
        raise ValueError("dtype")
    dtype = np.dtype(name)
    if not all(type(n) is int and n >= 0 for n in shape) or len(shape) > 32:
        raise ValueError("shape")
    size = math.prod(shape)
    begin, end = at[0], at[0] + size * dtype.itemsize
    # an empty array with a large axis is refused as well: a reduction of it would be large
    if end > len(body) or math.prod(max(n, 1) for n in shape) * max(dtype.itemsize, 1) > LARGEST:
        raise ValueError("size")
    at[0] = end
    some = size and dtype.itemsize
    made = np.frombuffer(body, dtype, size, begin).reshape(shape).copy() if some else np.zeros(shape, dtype)
    if dtype.kind == "U" and size and np.frombuffer(made.tobytes(), np.uint32).max(initial=0) > 0x10FFFF:
        raise ValueError("text")
    made.flags.writeable = not fixed
    return made


def _objects(shape: Any, items: list[Any]) -> np.ndarray:
    if not all(type(n) is int and n >= 0 for n in shape) or len(shape) > 32 or math.prod(shape) != len(items):
        raise ValueError("shape")
    if math.prod(max(n, 1) for n in shape) * 8 > LARGEST:
        raise ValueError("size")
    made = np.empty(len(items), object)
    for i, item in enumerate(items):
        made[i] = item
    return made.reshape(shape)


def _named(name: Any, fields: Any, items: list[Any]) -> Any:
    if len(fields) > FIELDS or len(fields) != len(items) or not all(len(word) <= 100 for word in (name, *fields)):
        raise ValueError("a named tuple")
    kind: Any = collections.namedtuple(str(name), fields)  # type: ignore[misc]
    return kind._make(items)


def _int(held: str) -> int:
    if len(held) > BITS // 4 + 4:
        raise ValueError("an int")
    return int(held, 16)


def _range(held: list[Any]) -> range:
    made = range(*held)
    if len(made) > MOST:
        raise ValueError("a range")
    return made


_BYTES: dict[str, Any] = {"bytes": bytes, "bytearray": bytearray}
_MADE: dict[str, Callable[[Any], Any]] = {
    "int": lambda held: _int(held), "float": float, "complex": lambda held: complex(*held), "tuple": tuple, "set": set,
    "frozenset": frozenset, "deque": collections.deque, "dict": dict, "ordered": collections.OrderedDict,
    "counter": lambda held: collections.Counter(dict(held)), "defaults": lambda held: collections.defaultdict(None, held),
    "keys": lambda held: dict.fromkeys(held).keys(), "values": lambda held: dict(enumerate(held)).values(),
    "items": lambda held: dict(held).items(), "range": _range, "fraction": lambda held: Fraction(*held), "iterator": iter,
    "masked": lambda held: np.ma.array(held[0], mask=held[1]), "matrix": np.asmatrix,
}  # fmt: skip
