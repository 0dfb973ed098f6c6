"""The encoding of arrays and plain values, of checkpoints and of what the grader and a student process exchange.

    encoded  bytes of the outline u64 | bytes of the arrays u64 | outline | the arrays, one after the other    (little-endian)
    outline  the value in prefix notation, as msgpack objects: None, True, 1, 0.5, "text", or {type: number of parts},
             followed by the parts: {"dict": 1}, "a", {"array": 2}, "<f4", 3, 4

Nothing is unpickled, and no class is looked up by a name that was received. Values keep their type: None, booleans, numbers,
text, bytes, NumPy scalars and arrays (of numbers, of text, of objects that can be encoded), lists, tuples, named tuples,
dicts, sets, ranges, views of dicts, the containers of `collections`, fractions and decimals. Other objects are encoded by
`refer` of the writer, and found again by `find` of the reader. An iterator becomes an iterator over the items that were taken
from it. A subclass whose comparisons differ from those of its values becomes plain values: a masked array, a matrix or another
subclass of `ndarray` an array, with all its elements, and a member of `class Op(str, Enum)` text.

What a reader spends is bounded: the memory by a constant multiple of `Limits`, and the time by a constant multiple of the
bytes. Therefore the outline contains no nested msgpack objects (msgpack allocates an array before its elements are read),
numbers have a limited size, keys of a dict or set that have the same hash are refused, and the classes of the named tuples
of one writer are counted.
"""

from __future__ import annotations

import collections
import math
import re
import struct
from collections.abc import Callable, Hashable, Iterator
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from itertools import islice
from typing import Any, NamedTuple

import msgpack
import numpy as np


class Limits(NamedTuple):
    """The most that is encoded and decoded at a time, in bytes: `outline` is everything but the arrays."""

    outline: int
    arrays: int


SMALL = Limits(1 << 20, 32 << 20)  # an outline takes up to a hundred times as much memory when it is decoded
HEAD = struct.Struct("<QQ")
DTYPE = re.compile("[<>|=](?:[biufc][0-9]{1,2}|[US][0-9]{1,7})")  # as `dtype.str`; NumPy would accept other texts, too
MAX_DEPTH = 40  # nested containers
MAX_ITEMS = 100_000  # items of a range or an iterator
MAX_FIELDS = 100  # fields of a named tuple
MAX_CLASSES = 50  # classes of named tuples of one writer: to make one takes 10,000 times as long as to read its name
MAX_BITS = 100_000  # bits of a whole number
MAX_FRACTION_BITS = 4_000  # bits of a numerator or denominator: to reduce a fraction takes a time quadratic in them
DECIMAL = re.compile(r"-?(?:[0-9]{1,1000}(?:E-?[0-9]{1,3})?|Infinity|NaN)")  # so that an `int` of it has few digits
# keys of a dict or set with one hash, which are compared with each other; -1 and -2 have the same hash
MAX_SAME_HASH = 100

Value = Any  # a value of one of the types above; they have no narrower static type
Bytes = bytes | memoryview
Refer = Callable[
    [Any], list[Any] | None
]  # an object -> values that stand for it, or None if it is to be encoded itself
Find = Callable[[list[Any]], Any]  # what `refer` has returned -> the object


class EncodingError(Exception):
    """A value cannot be encoded, or bytes cannot be decoded; the text is the reason. `keys`: where in the value."""

    def __init__(self, why: str):
        super().__init__(why)
        self.keys: list[Any] = []


# encoding -------------------------------------------------------------------------------------------------------------

_PLAIN: dict[type, Callable[[Any], Any]] = {str: str.__str__, int: int.__int__, float: float.__float__}
_SEQUENCES: dict[type, str] = {
    list: "list", tuple: "tuple", set: "set", frozenset: "frozenset", collections.deque: "deque", type({}.keys()): "keys",
    type({}.values()): "values",
}  # fmt: skip
DICTS: dict[type, str] = {
    dict: "dict", collections.OrderedDict: "ordered", collections.Counter: "counter", collections.defaultdict: "defaults",
}  # fmt: skip
_PAIRS: type = type({}.items())


def encode(value: Value, refer: Refer = lambda _: None, limits: Limits = SMALL) -> list[Bytes]:
    """Encode `value`. Returns the bytes in pieces; the arrays are not copied. Raises `EncodingError`."""
    encoder = _Encoder(refer, limits)
    encoder.put(value, 0)
    pack = msgpack.Packer(unicode_errors="surrogatepass").pack
    outline = b"".join(map(pack, encoder.objects))
    if len(outline) > limits.outline:
        raise EncodingError(
            f"{len(outline) >> 20} MB of text, numbers and lists; allowed: {limits.outline >> 20} MB (an array may be larger)"
        )
    return [HEAD.pack(len(outline), sum(map(len, encoder.arrays))), outline, *encoder.arrays]


class _Encoder:
    """`objects`: the outline. `arrays`: their bytes; `most`, `left`: how many are allowed, and how many more."""

    def __init__(self, refer: Refer, limits: Limits):
        self.refer, self.most = refer, limits.arrays
        self.left = self.most
        self.objects: list[Any] = []
        self.arrays: list[memoryview] = []

    def put(self, value: Any, depth: int) -> None:
        kind = type(value)
        if value is None or kind is bool or kind is str or kind is float:
            self.objects.append(value)
            return
        if kind is int:
            if value.bit_length() > MAX_BITS:
                raise EncodingError(f"a whole number of {value.bit_length():,} bits; allowed: {MAX_BITS:,}")
            self.objects.append(value if -(2**63) <= value < 2**64 else {"int": hex(value)})
            return
        if depth > MAX_DEPTH:
            raise EncodingError(f"more than {MAX_DEPTH} nested lists")
        reference = self.refer(value)
        if reference is not None:
            self._parts("ref", reference, depth)
        elif isinstance(value, np.ndarray | np.generic):
            self._array(value, depth)
        elif kind in _SEQUENCES:
            self._parts(_SEQUENCES[kind], value, depth)
        elif kind in DICTS or kind is _PAIRS:
            pairs = value if kind is _PAIRS else value.items()
            self.objects.append({DICTS.get(kind, "items"): len(pairs)})
            for key, item in pairs:
                self.put(key, depth + 1)
                self._part(key, item, depth)
        elif kind is bytes or kind is bytearray:
            self._bytes(np.frombuffer(value, np.uint8))
            self.objects.append({kind.__name__: len(value)})
        elif kind is complex:
            self._parts("complex", (value.real, value.imag), depth)
        elif kind is range:
            if len(value) > MAX_ITEMS:
                raise EncodingError(f"a range of more than {MAX_ITEMS:,} items")
            self._parts("range", (value.start, value.stop, value.step), depth)
        elif kind is Fraction:
            if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_FRACTION_BITS:
                raise EncodingError(f"a fraction of whole numbers with more than {MAX_FRACTION_BITS:,} bits")
            self._parts("fraction", (value.numerator, value.denominator), depth)
        elif kind is Decimal:
            self.objects.append({"decimal": _decimal_text(value)})
        elif plain := next((plain for base, plain in _PLAIN.items() if isinstance(value, base)), None):
            self.put(plain(value), depth)  # of a subclass, for example a member of an `IntEnum`
        elif isinstance(value, tuple) and isinstance(getattr(kind, "_fields", None), tuple):
            self.objects += ({"named": len(kind._fields)}, kind.__name__, *map(str, kind._fields))
            for item in tuple.__iter__(value):
                self.put(item, depth + 1)
        elif isinstance(value, Iterator):
            items = list(islice(value, MAX_ITEMS + 1))
            if len(items) > MAX_ITEMS:
                raise EncodingError(f"an iterator of more than {MAX_ITEMS:,} items")
            self._parts("iterator", items, depth)
        elif isinstance(value, Enum):
            raise EncodingError(
                f"a member of the Enum {kind.__name__}: write `class {kind.__name__}(str, Enum)`, or return text"
            )
        else:
            raise EncodingError(
                f"a {kind.__name__}: only numbers, text, arrays, and lists, tuples, dicts and sets of them are allowed"
            )

    def _parts(self, what: str, items: Any, depth: int) -> None:
        self.objects.append({what: len(items)})
        for i, item in enumerate(items):
            self._part(i, item, depth)

    def _part(self, key: Any, item: Any, depth: int) -> None:
        try:
            self.put(item, depth + 1)
        except EncodingError as error:
            error.keys.insert(0, key)
            raise

    def _array(self, value: Any, depth: int) -> None:
        about = np.asarray(value) if isinstance(value, np.generic) else value  # which gives empty text one character
        name = about.dtype.str
        if about.dtype == object:
            self._take(about.nbytes)  # before it is copied: it may be a broadcast
            self.objects += ({"objects": about.ndim}, *about.shape)
            for item in np.asarray(about).ravel().tolist():
                self.put(item, depth + 1)
            return
        if not DTYPE.fullmatch(name):
            raise EncodingError(f"an array of dtype {about.dtype}: only numbers, booleans and text are allowed")
        if about is value:
            self.objects += ({"array" if value.flags.writeable else "fixed": value.ndim}, name, *value.shape)
        else:
            self.objects.append({"scalar": name})
        self._bytes(about)

    def _bytes(self, value: np.ndarray) -> None:
        self._take(value.nbytes)
        flat = np.ascontiguousarray(value).view(np.ndarray).reshape(-1)
        if flat.nbytes:
            self.arrays.append(flat.view(np.uint8).data)

    def _take(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise EncodingError(
                f"{self.most - self.left >> 20:,} MB of arrays at once; allowed: {self.most >> 20:,} MB"
            )


def _decimal_text(value: Decimal) -> str:
    sign, digits, exponent = value.as_tuple()
    known = {"F": "Infinity", "n": "NaN"}.get(str(exponent)) or f"{''.join(map(str, digits))}E{exponent}"
    if not DECIMAL.fullmatch(known):
        raise EncodingError("a decimal with more than 1,000 digits, or an exponent of more than three")
    return "-" * sign + known


# decoding -------------------------------------------------------------------------------------------------------------

_MALFORMED = (
    msgpack.UnpackException, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, ArithmeticError,
    MemoryError,
)  # fmt: skip


class Decoder:
    """Decodes what one writer has encoded. `writable`: make also the arrays writable that were not.

    `outline_bytes`: the bytes of all outlines so far.
    """

    def __init__(self, find: Find, limits: Limits = SMALL, writable: bool = False):
        self._find, self._limits, self._writable, self.outline_bytes = find, limits, writable, 0
        self._classes: dict[tuple[str, ...], Any] = {}  # of named tuples, by name and fields
        self._next: Callable[[], Any] = lambda: None  # the next object of the outline
        self._arrays: Bytes = b""
        self._offset = self._left = 0  # bytes of arrays: how many were read, and how many more may be made

    def decode(self, read: Callable[[int], Bytes]) -> Value:
        """Return the next value. `read(n)`: returns exactly n bytes. Raises `EncodingError`, and what `read` raises."""
        length, size = HEAD.unpack(read(HEAD.size))
        if length > self._limits.outline or size > self._limits.arrays:
            raise EncodingError(f"{length} + {size} bytes; allowed: {self._limits.outline} + {self._limits.arrays}")
        self.outline_bytes += length
        outline, self._arrays = read(length), read(size)
        self._offset, self._left = 0, self._limits.arrays
        objects = msgpack.Unpacker(
            max_buffer_size=max(length, 1), max_array_len=0, max_map_len=1, max_bin_len=0, max_ext_len=0,
            unicode_errors="surrogatepass",
        )  # fmt: skip
        try:
            objects.feed(outline)
            self._next = objects.unpack
            value = self._value(0)
            if objects.tell() != length or self._offset != size:
                raise ValueError("more bytes than those of the value")
            return value
        except _MALFORMED as error:
            raise EncodingError(f"it cannot be decoded: {type(error).__name__}") from None
        finally:
            self._arrays = b""

    def _value(self, depth: int) -> Any:
        found = self._next()
        if type(found) is not dict:
            if type(found) in _SCALARS:
                return found
            raise TypeError("an object of msgpack")
        if depth > MAX_DEPTH + 2:
            raise ValueError("too deep")
        ((what, about),) = found.items()
        if what in _TEXTS:
            return _TEXTS[what](_a(str, about))
        if what == "scalar":
            return self._array(about, [])[()]
        count = _count(about)
        if what in _MAPPINGS:
            return _MAPPINGS[what](
                _distinct_keys([(self._value(depth + 1), self._value(depth + 1)) for _ in range(count)])
            )
        if what in ("array", "fixed"):
            name = self._next()
            made = self._array(name, self._shape(count))
            made.flags.writeable = what == "array" or self._writable
            return made
        if what == "bytes" or what == "bytearray":
            data = self._array("|u1", [count]).tobytes()
            return data if what == "bytes" else bytearray(data)
        if what == "objects":
            shape = self._shape(count)
            self._take(shape, 8)
            made = np.empty(math.prod(shape), object)
            for i, item in enumerate(self._values(made.size, depth)):
                made[i] = item
            return made.reshape(shape)
        if what == "named":
            return self._named_tuple(count, depth)
        values = self._values(count, depth)
        return self._find(values) if what == "ref" else _SEQUENCES_OF[what](values)

    def _values(self, count: int, depth: int) -> list[Any]:
        return [self._value(depth + 1) for _ in range(count)]  # ends with the outline, if `count` is too large

    def _shape(self, count: int) -> list[int]:
        if count > 32:
            raise ValueError("shape")
        return [_count(self._next()) for _ in range(count)]

    def _take(self, shape: list[int], itemsize: int) -> None:
        # an empty array with a large axis counts, too, because a reduction of it would be large
        self._left -= math.prod(max(n, 1) for n in shape) * max(itemsize, 1)
        if self._left < 0:
            raise ValueError("size")

    def _array(self, name: Any, shape: list[int]) -> np.ndarray:
        """Return a copy of the next array."""
        if not DTYPE.fullmatch(name):
            raise ValueError("dtype")
        dtype, size = np.dtype(name), math.prod(shape)
        self._take(shape, dtype.itemsize)
        begin, self._offset = self._offset, self._offset + size * dtype.itemsize
        if self._offset == begin:
            return np.zeros(shape, dtype)
        values = np.frombuffer(self._arrays, dtype, size, begin)
        if dtype.kind == "U" and values.view(f"{dtype.str[0]}u4").max() > 0x10FFFF:
            raise ValueError("text")
        return values.reshape(shape).copy()

    def _named_tuple(self, count: int, depth: int) -> Any:
        if count > MAX_FIELDS:
            raise ValueError("a named tuple")
        name, *fields = words = [_a(str, self._next()) for _ in range(count + 1)]
        if any(len(word) > 100 for word in words):
            raise ValueError("a named tuple")
        kind: Any = self._classes.get(tuple(words))
        if kind is None:
            if len(self._classes) >= MAX_CLASSES:
                raise ValueError("too many kinds of named tuples")
            kind = self._classes[tuple(words)] = collections.namedtuple(name, fields)  # type: ignore[misc]
        return kind._make(self._values(count, depth))


_SCALARS = (type(None), bool, int, float, str)


def _a(kind: type, found: Any) -> Any:
    if type(found) is not kind:
        raise TypeError(kind.__name__)
    return found


def _count(found: Any) -> int:
    if type(found) is not int or found < 0:
        raise ValueError("a count")
    return found


def _int(content: str) -> int:
    if len(content) > MAX_BITS // 4 + 4:
        raise ValueError("an int")
    return int(content, 16)


def _decimal(content: str) -> Decimal:
    if not DECIMAL.fullmatch(content):
        raise ValueError("a decimal")
    return Decimal(content)


def _fraction(parts: list[Any]) -> Fraction:
    if not all(type(part) is int and part.bit_length() <= MAX_FRACTION_BITS for part in parts):
        raise ValueError("a fraction")
    return Fraction(*parts)


def _range(parts: list[Any]) -> range:
    made = range(*parts)
    if len(made) > MAX_ITEMS:
        raise ValueError("a range")
    return made


def _distinct(keys: list[Hashable]) -> list[Hashable]:
    """Return the keys of a dict or set. Raises `ValueError` if many have the same hash: each would be compared with all."""
    if max(collections.Counter(map(hash, keys)).values(), default=0) > MAX_SAME_HASH:
        raise ValueError("keys with the same hash")
    return keys


def _distinct_keys(pairs: list[tuple[Hashable, Any]]) -> list[tuple[Hashable, Any]]:
    _distinct([key for key, _ in pairs])
    return pairs


_TEXTS: dict[str, Callable[[str], Value]] = {"int": _int, "decimal": _decimal}
_MAPPINGS: dict[str, Callable[[Any], Value]] = {
    "dict": dict, "ordered": collections.OrderedDict, "counter": lambda pairs: collections.Counter(dict(pairs)),
    "defaults": lambda pairs: collections.defaultdict(None, pairs), "items": lambda pairs: dict(pairs).items(),
}  # fmt: skip
_SEQUENCES_OF: dict[str, Callable[[list[Any]], Value]] = {
    "list": list, "tuple": tuple, "deque": collections.deque, "set": lambda items: set(_distinct(items)),
    "frozenset": lambda items: frozenset(_distinct(items)), "keys": lambda items: dict.fromkeys(_distinct(items)).keys(),
    "values": lambda items: dict(enumerate(items)).values(), "iterator": iter, "complex": lambda parts: complex(*parts),
    "range": _range, "fraction": _fraction,
}  # fmt: skip
