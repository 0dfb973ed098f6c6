"""The encoding of messages between the grader and a student process: frames of JSON and raw array bytes.

A frame consists of two lengths (8 bytes each, little-endian), JSON text, and the concatenated bytes of the arrays.
Nothing is unpickled, and no class is looked up by a name that was received. Values keep their type, so that a check has
the same result as in a notebook. These values can be sent: None, booleans, numbers, text, bytes, NumPy scalars and
arrays (of numbers, of text, of objects that can be encoded), lists, tuples, named tuples, dicts, sets, ranges, views of
dicts, the containers of `collections`, fractions, decimals, and references to objects that stay in the other process. An
iterator arrives as an iterator over the items that the sender took from it. A subclass whose comparisons differ from
those of its values arrives as plain values: a masked array, a matrix or another subclass of `ndarray` as an array, with
all its elements, and a member of `class Op(str, Enum)` as text. The sender raises an error for any other value, and the
receiver for a malformed frame.

What a receiver spends on a frame is bounded: the memory by a constant multiple of `MAX_FRAME_BYTES` and
`MAX_TEXT_BYTES`, and the time by a constant multiple of the bytes. Therefore numbers have a limited size, keys of a dict
or set that have the same hash are refused, and the classes of the named tuples of one sender are counted.
"""

from __future__ import annotations

import collections
import json
import math
import re
import struct
from collections.abc import Callable, Hashable, Iterator
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np

HEAD = struct.Struct("<QQ")
MAX_FRAME_BYTES = 32 << 20  # bytes of one frame
# bytes of the JSON text of a frame, which takes up to a hundred times as much memory when parsed
MAX_TEXT_BYTES = 1 << 20
NUMBER_KINDS = "biufc"  # kinds of dtype
TEXT_KINDS = "US"
DTYPE = re.compile(
    "[<>|=](?:[biufc][0-9]{1,2}|[US][0-9]{1,7})"
)  # as `dtype.str` writes it; NumPy would parse other texts as dtypes too
MAX_DEPTH = 40  # nested containers
MAX_ITEMS = 100_000  # items of a range or an iterator
MAX_FIELDS = 100  # fields of a named tuple
MAX_CLASSES = 50  # classes of named tuples of one sender: to make one takes 10,000 times as long as to send its name
MAX_BITS = 100_000  # bits of a whole number
MAX_FRACTION_BITS = 4_000  # bits of a numerator or denominator: to reduce a fraction takes a time quadratic in them
DECIMAL = re.compile(r"-?(?:[0-9]{1,1000}(?:E-?[0-9]{1,3})?|Infinity|NaN)")  # so that an `int` of it has few digits
# keys of a dict or set with one hash, which are compared with each other; -1 and -2 have the same hash
MAX_SAME_HASH = 100

# dict views and containers with their tags in a frame
_VIEWS: dict[type, str] = {type({}.keys()): "keys", type({}.values()): "values", type({}.items()): "items"}
_DICTS: dict[type, str] = {
    collections.OrderedDict: "ordered", collections.Counter: "counter", collections.defaultdict: "defaults",
}  # fmt: skip
_SEQUENCES: dict[type, str] = {tuple: "tuple", set: "set", frozenset: "frozenset", collections.deque: "deque"}

_PLAIN: dict[type, Callable[[Any], Any]] = {str: str.__str__, int: int.__int__, float: float.__float__}
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


class Decoder:
    """Decodes the frames of one sender. `read(n)`: returns exactly n bytes; `find`: returns the object of a reference.

    `text_bytes`: the bytes of JSON text in all frames so far.
    """

    def __init__(self, read: Callable[[int], bytes], find: Find):
        self._read, self._find, self.text_bytes = read, find, 0
        self._named: dict[tuple[str, ...], Any] = {}  # the classes of named tuples by name and fields
        self._body, self._offset = b"", 0  # of the current frame: bytes of arrays, and how many have been read

    def decode(self) -> Value:
        """Read and decode the next frame. Raises `MalformedFrame` if it cannot be decoded."""
        length, size = HEAD.unpack(self._read(HEAD.size))
        if length > MAX_TEXT_BYTES or length + size > MAX_FRAME_BYTES:
            raise MalformedFrame(
                f"a frame of {length} + {size} bytes; allowed: {MAX_TEXT_BYTES}, and {MAX_FRAME_BYTES} in all"
            )
        self.text_bytes += length
        text, self._body, self._offset = self._read(length), self._read(size), 0
        try:
            return self._unpack(json.loads(text.decode("utf-8", "surrogatepass")), 0)
        except (
            ValueError,
            TypeError,
            KeyError,
            IndexError,
            AttributeError,
            RecursionError,
            ArithmeticError,
            MemoryError,
        ) as error:
            raise MalformedFrame(f"the frame cannot be decoded: {type(error).__name__}") from None
        finally:
            self._body = b""

    def _unpack(self, packed: Any, depth: int) -> Any:
        if depth > MAX_DEPTH + 2:
            raise ValueError("too deep")
        if type(packed) is list:
            return [self._unpack(item, depth + 1) for item in packed]
        if type(packed) is not dict:
            return packed
        ((what, content),) = packed.items()
        if what == "array":
            return self._array(content)
        if what == "scalar":
            return self._array([content, []])[()]
        if what in _BYTES:
            return _BYTES[what](self._array(["|u1", [content]]).tobytes())
        if what in _TEXTS:
            if type(content) is not str:
                raise TypeError("text")
            return _TEXTS[what](content)
        if what == "objects":
            return _objects(content[0], self._items(content[1], depth))
        if what == "named":
            return self._named_tuple(content[0], content[1], self._items(content[2], depth))
        if what == "ref":
            return self._find(self._items(content, depth))
        return _CONSTRUCTORS[what](self._items(content, depth))

    def _items(self, packed: Any, depth: int) -> list[Any]:
        """Decode a list. (A constructor that is given an array would make an object of each of its elements.)"""
        if type(packed) is not list:
            raise TypeError("items")
        return self._unpack(packed, depth + 1)

    def _array(self, about: Any) -> np.ndarray:
        """Return a copy of the next array of the frame."""
        name, shape, *fixed = about
        if not isinstance(name, str) or not DTYPE.fullmatch(name):
            raise ValueError("dtype")
        dtype = np.dtype(name)
        if not all(type(n) is int and n >= 0 for n in shape) or len(shape) > 32:
            raise ValueError("shape")
        size = math.prod(shape)
        begin, end = self._offset, self._offset + size * dtype.itemsize
        # an empty array with a large axis is an error too, because a reduction of it would be large
        if end > len(self._body) or math.prod(max(n, 1) for n in shape) * max(dtype.itemsize, 1) > MAX_FRAME_BYTES:
            raise ValueError("size")
        self._offset = end
        nonempty = size and dtype.itemsize
        array = (
            np.frombuffer(self._body, dtype, size, begin).reshape(shape).copy() if nonempty else np.zeros(shape, dtype)
        )
        if dtype.kind == "U" and size and np.frombuffer(array.tobytes(), np.uint32).max(initial=0) > 0x10FFFF:
            raise ValueError("text")
        array.flags.writeable = not fixed
        return array

    def _named_tuple(self, name: Any, fields: Any, items: list[Any]) -> Any:
        if (
            len(fields) > MAX_FIELDS
            or len(fields) != len(items)
            or not all(len(word) <= 100 for word in (name, *fields))
        ):
            raise ValueError("a named tuple")
        kind: Any = self._named.get((name, *fields))
        if kind is None:
            if len(self._named) >= MAX_CLASSES:
                raise ValueError("too many kinds of named tuples")
            kind = self._named[(name, *fields)] = collections.namedtuple(name, fields)  # type: ignore[misc]
        return kind._make(items)


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
    if isinstance(value, np.ndarray):
        if value.size * value.dtype.itemsize > MAX_FRAME_BYTES:  # without a copy: it may be a broadcast
            raise MalformedFrame(f"{value.size:,} elements at once; allowed: {MAX_FRAME_BYTES >> 20} MB")
        if value.dtype == object:
            return {"objects": [list(value.shape), inside(np.asarray(value).ravel().tolist())]}
        return _pack_array(value, arrays)
    for base, plain in _PLAIN.items():  # a subclass, for example a member of an `IntEnum`
        if isinstance(value, base):
            return _pack(plain(value), arrays, refer, depth)
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
        return (
            {"range": inside((value.start, value.stop, value.step))}
            if len(value) <= MAX_ITEMS
            else _too_many("a range")
        )
    if kind is Fraction:
        if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_FRACTION_BITS:
            raise MalformedFrame(f"a fraction of whole numbers with more than {MAX_FRACTION_BITS:,} bits")
        return {"fraction": [_pack(part, arrays, refer, depth) for part in (value.numerator, value.denominator)]}
    if kind is Decimal:
        return {"decimal": _decimal_text(value)}
    reference = refer(value)
    if reference is not None:
        return {"ref": _pack(reference, arrays, refer, depth + 1)}
    if isinstance(value, tuple) and isinstance(getattr(kind, "_fields", None), tuple):
        return {"named": [kind.__name__, list(map(str, kind._fields)), inside(tuple.__iter__(value))]}
    if isinstance(value, Iterator):
        items = list(islice(value, MAX_ITEMS + 1))
        return {"iterator": inside(items)} if len(items) <= MAX_ITEMS else _too_many("an iterator")
    if isinstance(value, Enum):
        raise MalformedFrame(
            f"a member of the Enum {kind.__name__}: write `class {kind.__name__}(str, Enum)`, or return text"
        )
    raise MalformedFrame(
        f"a {kind.__name__}: only numbers, text, arrays, and lists, tuples, dicts and sets of them can be sent"
    )


def _decimal_text(value: Decimal) -> str:
    sign, digits, exponent = value.as_tuple()
    known = {"F": "Infinity", "n": "NaN"}.get(str(exponent)) or f"{''.join(map(str, digits))}E{exponent}"
    if not DECIMAL.fullmatch(known):
        raise MalformedFrame("a decimal with more than 1,000 digits, or an exponent of more than three")
    return "-" * sign + known


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


def _objects(shape: Any, items: list[Any]) -> np.ndarray:
    if not all(type(n) is int and n >= 0 for n in shape) or len(shape) > 32 or math.prod(shape) != len(items):
        raise ValueError("shape")
    if math.prod(max(n, 1) for n in shape) * 8 > MAX_FRAME_BYTES:
        raise ValueError("size")
    made = np.empty(len(items), object)
    for i, item in enumerate(items):
        made[i] = item
    return made.reshape(shape)


def _int(content: str) -> int:
    if len(content) > MAX_BITS // 4 + 4:
        raise ValueError("an int")
    return int(content, 16)


def _float(content: str) -> float:
    if content not in ("inf", "-inf", "nan"):
        raise ValueError("a float")
    return float(content)


def _decimal(content: str) -> Decimal:
    if not DECIMAL.fullmatch(content):
        raise ValueError("a decimal")
    return Decimal(content)


def _fraction(content: list[Any]) -> Fraction:
    if not all(type(part) is int and part.bit_length() <= MAX_FRACTION_BITS for part in content):
        raise ValueError("a fraction")
    return Fraction(*content)


def _range(content: list[Any]) -> range:
    made = range(*content)
    if len(made) > MAX_ITEMS:
        raise ValueError("a range")
    return made


def _distinct(keys: list[Hashable]) -> list[Hashable]:
    """Return the keys of a dict or set. Raises `ValueError` if many have the same hash: each would be compared with all."""
    if max(collections.Counter(map(hash, keys)).values(), default=0) > MAX_SAME_HASH:
        raise ValueError("keys with the same hash")
    return keys


def _pairs(items: list[Any]) -> list[Any]:
    _distinct([key for key, _ in items])
    return items


_BYTES: dict[str, Callable[[bytes], Value]] = {"bytes": bytes, "bytearray": bytearray}
_TEXTS: dict[str, Callable[[str], Value]] = {"int": _int, "float": _float, "decimal": _decimal}
_CONSTRUCTORS: dict[str, Callable[[list[Any]], Value]] = {
    "complex": lambda items: complex(*items), "range": _range, "fraction": _fraction, "iterator": iter,
    "tuple": tuple, "deque": collections.deque,
    "set": lambda items: set(_distinct(items)), "frozenset": lambda items: frozenset(_distinct(items)),
    "dict": lambda items: dict(_pairs(items)), "ordered": lambda items: collections.OrderedDict(_pairs(items)),
    "counter": lambda items: collections.Counter(dict(_pairs(items))),
    "defaults": lambda items: collections.defaultdict(None, _pairs(items)),
    "keys": lambda items: dict.fromkeys(_distinct(items)).keys(), "items": lambda items: dict(_pairs(items)).items(),
    "values": lambda items: dict(enumerate(items)).values(),
}  # fmt: skip
