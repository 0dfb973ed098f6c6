"""The encoding of messages between the grader and a student process: frames of JSON and raw array bytes.

A frame consists of two lengths (8 bytes each, little-endian), JSON text, and the concatenated bytes of the arrays.
Nothing is unpickled, and no class is looked up by a name that was received. Values keep their type, so that a check has
the same result as in a notebook. These values can be sent: None, booleans, numbers, text, bytes, NumPy scalars and
arrays (of numbers, of text, of objects that can be encoded; masked arrays and matrices), lists, tuples, named tuples,
dicts, sets, ranges, views of dicts, the containers of `collections`, fractions, and references to objects that stay in
the other process. An iterator arrives as an iterator over the items that the sender took from it. The sender raises an
error for any other value, and the receiver for a malformed frame. The memory that a receiver needs for a frame is
bounded by a constant multiple of `MAX_FRAME_BYTES` and `MAX_TEXT_BYTES`.
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

__all__ = ["MAX_FRAME_BYTES", "MalformedFrame", "decode", "encode"]

HEAD = struct.Struct("<QQ")
MAX_FRAME_BYTES = 32 << 20  # bytes of one frame
MAX_TEXT_BYTES = 1 << 20  # bytes of the JSON text of a frame, which takes up to a hundred times as much memory when parsed
NUMBER_KINDS = "biufc"  # kinds of dtype
TEXT_KINDS = "US"
DTYPE = re.compile(
    "[<>|=](?:[biufc][0-9]{1,2}|[US][0-9]{1,7})"
)  # as `dtype.str` writes it; NumPy would parse other texts as dtypes too
MAX_DEPTH = 40  # nested containers
MAX_ITEMS = 100_000  # items of a range or an iterator
MAX_FIELDS = 100  # fields of a named tuple
MAX_BITS = 100_000  # bits of a whole number

# dict views and containers with their tags in a frame
_VIEWS: dict[type, str] = {type({}.keys()): "keys", type({}.values()): "values", type({}.items()): "items"}
_DICTS: dict[type, str] = {
    collections.OrderedDict: "ordered", collections.Counter: "counter", collections.defaultdict: "defaults",
}  # fmt: skip
_SEQUENCES: dict[type, str] = {tuple: "tuple", set: "set", frozenset: "frozenset", collections.deque: "deque"}

Value = Any  # a value of one of the types above; JSON and arrays have no narrower static type
Refer = Callable[[object], Any]  # an object that stays in this process -> its reference (plain data), or None
Find = Callable[[Any], object]  # a received reference (plain data) -> the object


class MalformedFrame(Exception):
    """A received frame is malformed, or a value to be sent cannot be encoded."""


def encode(value: Value, refer: Refer) -> bytes:
    """Encode `value` as a frame. Raises `MalformedFrame` if a part of the value cannot be encoded, or it is too large."""
    arrays: list[np.ndarray] = []
    text = json.dumps(_pack(value, arrays, refer, 0), separators=(",", ":")).encode("utf-8", "surrogatepass")
    size = sum(array.nbytes for array in arrays)
    if len(text) > MAX_TEXT_BYTES:
        raise MalformedFrame(
            f"{len(text) >> 20} MB of text, numbers and lists; allowed: {MAX_TEXT_BYTES >> 20} MB (an array may be larger)"
        )
    if len(text) + size > MAX_FRAME_BYTES:
        raise MalformedFrame(f"{(len(text) + size) >> 20} MB at once; allowed: {MAX_FRAME_BYTES >> 20} MB")
    return b"".join([HEAD.pack(len(text), size), text, *(array.tobytes() for array in arrays)])


def decode(read: Callable[[int], bytes], find: Find) -> Value:
    """Read and decode the next frame. `read(n)` returns exactly n bytes. Raises `MalformedFrame` if it cannot be decoded."""
    length, size = HEAD.unpack(read(HEAD.size))
    if length > MAX_TEXT_BYTES or length + size > MAX_FRAME_BYTES:
        raise MalformedFrame(f"a frame of {length} + {size} bytes; allowed: {MAX_TEXT_BYTES}, and {MAX_FRAME_BYTES} in all")
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
        raise MalformedFrame(f"the frame cannot be decoded: {type(error).__name__}") from None


def _pack(value: Any, arrays: list[np.ndarray], refer: Refer, depth: int) -> Any:
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        if value.bit_length() > MAX_BITS:
            raise MalformedFrame(f"a whole number of {value.bit_length():,} bits; allowed: {MAX_BITS:,}")
        return value if -(2**63) <= value < 2**64 else {"int": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if depth > MAX_DEPTH:
        raise MalformedFrame(f"more than {MAX_DEPTH} nested lists")

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
        return {"range": inside((value.start, value.stop, value.step))} if len(value) <= MAX_ITEMS else _too_many("a range")
    if kind is Fraction:
        return {"fraction": inside((value.numerator, value.denominator))}
    reference = refer(value)
    if reference is not None:
        return {"ref": _pack(reference, arrays, refer, depth + 1)}
    if isinstance(value, tuple) and isinstance(getattr(kind, "_fields", None), tuple):
        return {"named": [kind.__name__, list(map(str, kind._fields)), inside(tuple.__iter__(value))]}
    if isinstance(value, Iterator):
        items = list(islice(value, MAX_ITEMS + 1))
        return {"iterator": inside(items)} if len(items) <= MAX_ITEMS else _too_many("an iterator")
    raise MalformedFrame(
        f"a {kind.__name__}: only numbers, text, arrays, and lists, tuples, dicts and sets of them can be sent"
    )


def _too_many(what: str) -> Any:
    raise MalformedFrame(f"{what} of more than {MAX_ITEMS:,} items")


def _pack_array(value: np.ndarray, arrays: list[np.ndarray]) -> Any:
    if value.dtype.kind not in NUMBER_KINDS + TEXT_KINDS:
        raise MalformedFrame(f"an array of dtype {value.dtype}: only numbers, booleans and text can be sent")
    plain = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("=")).view(np.ndarray)
    arrays.append(plain)
    shape = list(value.shape)
    return (
        {"array": [plain.dtype.str, shape]} if value.flags.writeable else {"array": [plain.dtype.str, shape, "fixed"]}
    )


def _unpack(packed: Any, body: bytes, find: Find, depth: int) -> Any:
    offset = [0]  # bytes of `body` that have been read

    def unpack(packed: Any, depth: int) -> Any:
        if depth > MAX_DEPTH + 2:
            raise ValueError("too deep")
        if isinstance(packed, list):
            return [unpack(item, depth + 1) for item in packed]
        if not isinstance(packed, dict):
            return packed
        ((what, content),) = packed.items()
        if what == "array":
            return _array(content, body, offset)
        if what == "scalar":
            return _array([content, []], body, offset)[()]
        if what in ("bytes", "bytearray"):
            return _BYTES[what](_array(["|u1", [content]], body, offset).tobytes())
        if what == "objects":
            return _objects(content[0], unpack(content[1], depth + 1))
        if what == "named":
            return _named(content[0], content[1], unpack(content[2], depth + 1))
        if what == "ref":
            return find(unpack(content, depth + 1))
        return _CONSTRUCTORS[what](unpack(content, depth + 1))

    return unpack(packed, depth)


def _array(about: Any, body: bytes, offset: list[int]) -> np.ndarray:
    """Return a copy of the next array of the frame."""
    name, shape, *fixed = about
    if not isinstance(name, str) or not DTYPE.fullmatch(name):
        raise ValueError("dtype")
    dtype = np.dtype(name)
    if not all(type(n) is int and n >= 0 for n in shape) or len(shape) > 32:
        raise ValueError("shape")
    size = math.prod(shape)
    begin, end = offset[0], offset[0] + size * dtype.itemsize
    # an empty array with a large axis is an error too, because a reduction of it would be large
    if end > len(body) or math.prod(max(n, 1) for n in shape) * max(dtype.itemsize, 1) > MAX_FRAME_BYTES:
        raise ValueError("size")
    offset[0] = end
    nonempty = size and dtype.itemsize
    array = np.frombuffer(body, dtype, size, begin).reshape(shape).copy() if nonempty else np.zeros(shape, dtype)
    if dtype.kind == "U" and size and np.frombuffer(array.tobytes(), np.uint32).max(initial=0) > 0x10FFFF:
        raise ValueError("text")
    array.flags.writeable = not fixed
    return array


def _objects(shape: Any, items: list[Any]) -> np.ndarray:
    if not all(type(n) is int and n >= 0 for n in shape) or len(shape) > 32 or math.prod(shape) != len(items):
        raise ValueError("shape")
    if math.prod(max(n, 1) for n in shape) * 8 > MAX_FRAME_BYTES:
        raise ValueError("size")
    made = np.empty(len(items), object)
    for i, item in enumerate(items):
        made[i] = item
    return made.reshape(shape)


def _named(name: Any, fields: Any, items: list[Any]) -> Any:
    if len(fields) > MAX_FIELDS or len(fields) != len(items) or not all(len(word) <= 100 for word in (name, *fields)):
        raise ValueError("a named tuple")
    kind: Any = collections.namedtuple(str(name), fields)  # type: ignore[misc]
    return kind._make(items)


def _int(content: str) -> int:
    if len(content) > MAX_BITS // 4 + 4:
        raise ValueError("an int")
    return int(content, 16)


def _range(content: list[Any]) -> range:
    made = range(*content)
    if len(made) > MAX_ITEMS:
        raise ValueError("a range")
    return made


_BYTES: dict[str, Any] = {"bytes": bytes, "bytearray": bytearray}
_CONSTRUCTORS: dict[str, Callable[[Any], Any]] = {
    "int": lambda items: _int(items), "float": float, "complex": lambda items: complex(*items), "tuple": tuple, "set": set,
    "frozenset": frozenset, "deque": collections.deque, "dict": dict, "ordered": collections.OrderedDict,
    "counter": lambda items: collections.Counter(dict(items)), "defaults": lambda items: collections.defaultdict(None, items),
    "keys": lambda items: dict.fromkeys(items).keys(), "values": lambda items: dict(enumerate(items)).values(),
    "items": lambda items: dict(items).items(), "range": _range, "fraction": lambda items: Fraction(*items), "iterator": iter,
    "masked": lambda items: np.ma.array(items[0], mask=items[1]), "matrix": np.asmatrix,
}  # fmt: skip
