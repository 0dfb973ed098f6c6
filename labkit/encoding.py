"""The encoding of arrays and plain values, of checkpoints and of what the grader and a student process exchange.

    encoded  bytes of the outline u64 | bytes of the arrays u64 | outline | the arrays, one after the other    (little-endian)
    outline  the value in prefix notation, as msgpack objects: None, True, 1, 0.5, "text", or {type: number of parts},
             followed by the parts: {"dict": 2}, "a", {"array": 2}, "<f4", 3, 4

Nothing is unpickled, and no class is looked up by a name that was received. Values keep their type: None, booleans, numbers,
text, bytes, NumPy scalars and arrays (of numbers, of text, of objects that can be encoded), lists, tuples, named tuples,
dicts, sets, ranges, views of dicts, the containers of `collections`, fractions and decimals. Other objects are encoded by
`refer` of the writer, and found again by `find` of the reader. An iterator becomes an iterator over the items that were taken
from it. A subclass whose comparisons differ from those of its values becomes plain values: a masked array, a matrix or another
subclass of `ndarray` an array, with all its elements, and a member of `class Op(str, Enum)` text.

What a reader spends is bounded: the memory by a constant multiple of `SizeLimits`, and the time by a constant multiple of the
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


class SizeLimits(NamedTuple):
    """The most that is encoded and decoded at a time, in bytes: `outline` is everything but the arrays."""

    outline: int
    arrays: int


SMALL = SizeLimits(1 << 20, 32 << 20)  # an outline takes up to a hundred times as much memory when it is decoded
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


def _check(right: bool, wrong: str) -> None:
    if not right:
        raise EncodingError(wrong)


# types with parts -----------------------------------------------------------------------------------------------------


def _flat(table: Any) -> list[Any]:
    return [part for pair in table.items() for part in pair]


def _table(parts: list[Any]) -> dict[Any, Any]:
    return dict(zip(_distinct(parts[::2]), parts[1::2], strict=True))


def _distinct(keys: list[Hashable]) -> list[Hashable]:
    """Return the keys of a dict or set. Raises `EncodingError` if many have the same hash: each would be compared with all."""
    if len(keys) > MAX_SAME_HASH and max(collections.Counter(map(hash, keys)).values()) > MAX_SAME_HASH:
        raise EncodingError(f"more than {MAX_SAME_HASH} keys with the same hash")
    return keys


def _items(items: Any) -> list[Any]:
    taken = list(islice(items, MAX_ITEMS + 1))
    _check(len(taken) <= MAX_ITEMS, f"an iterator of more than {MAX_ITEMS:,} items")
    return taken


def _range(value: range) -> range:
    _check(len(value) <= MAX_ITEMS, f"a range of more than {MAX_ITEMS:,} items")
    return value


def _terms(terms: list[Any]) -> list[int]:
    right = all(type(term) is int and term.bit_length() <= MAX_FRACTION_BITS for term in terms)
    _check(right, f"a fraction of whole numbers with more than {MAX_FRACTION_BITS:,} bits")
    return terms


def _bytes(parts: list[Any]) -> bytes:
    (data,) = parts
    _check(isinstance(data, np.ndarray) and data.dtype == np.uint8, "bytes that are no array of bytes")
    return data.tobytes()


class _Type(NamedTuple):
    """A type whose values have parts. `parts(value)`, and `make(parts)`, which refuses parts that are not those of a value."""

    name: str
    kind: type
    parts: Callable[[Any], list[Any]]
    make: Callable[[list[Any]], Any]


_TYPES = (
    _Type("list", list, list, list),
    _Type("tuple", tuple, list, tuple),
    _Type("deque", collections.deque, list, collections.deque),
    _Type("set", set, list, lambda parts: set(_distinct(parts))),
    _Type("frozenset", frozenset, list, lambda parts: frozenset(_distinct(parts))),
    _Type("dict", dict, _flat, _table),
    _Type("ordered", collections.OrderedDict, _flat, lambda parts: collections.OrderedDict(_table(parts))),
    _Type("counter", collections.Counter, _flat, lambda parts: collections.Counter(_table(parts))),
    _Type("defaults", collections.defaultdict, _flat, lambda parts: collections.defaultdict(None, _table(parts))),
    _Type("keys", type({}.keys()), list, lambda parts: dict.fromkeys(_distinct(parts)).keys()),
    _Type("values", type({}.values()), list, lambda parts: dict(enumerate(parts)).values()),
    _Type("items", type({}.items()), lambda view: _flat(dict(view)), lambda parts: _table(parts).items()),
    _Type("iterator", Iterator, _items, iter),
    _Type("range", range, lambda r: [_range(r).start, r.stop, r.step], lambda parts: _range(range(*parts))),
    _Type("complex", complex, lambda z: [z.real, z.imag], lambda parts: complex(*parts)),
    _Type("fraction", Fraction, lambda f: _terms([f.numerator, f.denominator]), lambda parts: Fraction(*_terms(parts))),
    _Type("bytes", bytes, lambda data: [np.frombuffer(data, np.uint8)], _bytes),
    _Type("bytearray", bytearray, lambda data: [np.frombuffer(data, np.uint8)], lambda parts: bytearray(_bytes(parts))),
)
_BY_NAME, _BY_KIND = {each.name: each for each in _TYPES}, {each.kind: each for each in _TYPES}
MAPPINGS = (dict, collections.OrderedDict, collections.Counter, collections.defaultdict)
_SCALARS = (str, int, float, bool)
_PLAIN: dict[type, Callable[[Any], Any]] = {str: str.__str__, int: int.__int__, float: float.__float__}


# encoding -------------------------------------------------------------------------------------------------------------


def encode(value: Value, refer: Refer = lambda _: None, limits: SizeLimits = SMALL) -> list[Bytes]:
    """Encode `value`. Returns the bytes in pieces; the arrays are not copied. Raises `EncodingError`."""
    encoder = _Encoder(refer, limits)
    encoder.put(value, 0)
    pack = msgpack.Packer(unicode_errors="surrogatepass").pack
    outline = b"".join(map(pack, encoder.objects))
    wrong = f"{len(outline) >> 20} MB of text, numbers and lists; allowed: {limits.outline >> 20} MB (an array may be larger)"
    _check(len(outline) <= limits.outline, wrong)
    return [HEAD.pack(len(outline), sum(map(len, encoder.arrays))), outline, *encoder.arrays]


class _Encoder:
    """`objects`: the outline. `arrays`: their bytes; `most`, `left`: how many are allowed, and how many more."""

    def __init__(self, refer: Refer, limits: SizeLimits):
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
        known = _BY_KIND.get(kind) or (_BY_NAME["iterator"] if isinstance(value, Iterator) else None)
        if reference is not None:
            self._parts("ref", reference, depth)
        elif isinstance(value, np.ndarray | np.generic):
            self._array(value, depth)
        elif known is not None:
            self._parts(known.name, known.parts(value), depth, kind in MAPPINGS)
        elif kind is Decimal:
            self.objects.append({"decimal": _decimal_text(value)})
        elif plain := next((plain for base, plain in _PLAIN.items() if isinstance(value, base)), None):
            self.put(plain(value), depth)  # of a subclass, for example a member of an `IntEnum`
        elif isinstance(value, tuple) and isinstance(getattr(kind, "_fields", None), tuple):
            self._parts("named", list(tuple.__iter__(value)), depth, names=[kind.__name__, *map(str, kind._fields)])
        elif isinstance(value, Enum):
            raise EncodingError(
                f"a member of the Enum {kind.__name__}: write `class {kind.__name__}(str, Enum)`, or return text"
            )
        else:
            allowed = "only numbers, text, arrays, and lists, tuples, dicts and sets of them are allowed"
            raise EncodingError(f"a {kind.__name__}: {allowed}")

    def _parts(self, what: str, parts: list[Any], depth: int, keyed: bool = False, names: Any = ()) -> None:
        """Put parts. `keyed`: whether every second one is the value of the one before. `names`: put before the parts."""
        self.objects += ({what: len(parts)}, *names)
        for i, part in enumerate(parts):
            try:
                self.put(part, depth + 1)
            except EncodingError as error:
                error.keys.insert(0, parts[i - i % 2] if keyed else i)
                raise

    def _array(self, value: Any, depth: int) -> None:
        about = np.asarray(value) if isinstance(value, np.generic) else value  # which gives empty text one character
        name = about.dtype.str
        self._take(about.nbytes)  # before it is copied: it may be a broadcast
        if about.dtype == object:
            self._parts("objects", np.asarray(about).ravel().tolist(), depth, names=[about.ndim, *about.shape])
            return
        if not DTYPE.fullmatch(name):
            raise EncodingError(f"an array of dtype {about.dtype}: only numbers, booleans and text are allowed")
        if about is value:
            self.objects += ({"array" if value.flags.writeable else "fixed": value.ndim}, name, *value.shape)
        else:
            self.objects.append({"scalar": name})
        flat = np.ascontiguousarray(about).view(np.ndarray).reshape(-1)
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
    _check(bool(DECIMAL.fullmatch(known)), "a decimal with more than 1,000 digits, or an exponent of more than three")
    return "-" * sign + known


# decoding -------------------------------------------------------------------------------------------------------------

_MALFORMED = (
    msgpack.UnpackException, ValueError, TypeError, LookupError, AttributeError, RecursionError, ArithmeticError, MemoryError,
)  # fmt: skip


class Decoder:
    """Decodes what one writer has encoded. `writable`: make also the arrays writable that were not.

    `outline_bytes`: the bytes of all outlines so far.
    """

    def __init__(self, find: Find, limits: SizeLimits = SMALL, writable: bool = False):
        self._find, self._limits, self._writable, self.outline_bytes = find, limits, writable, 0
        self._classes: dict[tuple[str, ...], Any] = {}  # of named tuples, by name and fields
        self._next: Callable[[], Any] = lambda: None  # the next object of the outline
        self._arrays: Bytes = b""
        self._offset = self._left = 0  # bytes of arrays: how many were read, and how many more may be made

    def decode(self, read: Callable[[int], Bytes]) -> Value:
        """Return the next value. `read(n)`: returns exactly n bytes. Raises `EncodingError`, and what `read` raises."""
        length, size = HEAD.unpack(read(HEAD.size))
        fits = length <= self._limits.outline and size <= self._limits.arrays
        _check(fits, f"{length} + {size} bytes; allowed: {self._limits.outline} + {self._limits.arrays}")
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
            _check(objects.tell() == length and self._offset == size, "more bytes than those of the value")
            return value
        except _MALFORMED as error:
            raise EncodingError(f"it cannot be decoded: {type(error).__name__}") from None
        finally:
            self._arrays = b""

    def _value(self, depth: int) -> Any:
        found = self._next()
        if type(found) is not dict:
            _check(found is None or type(found) in _SCALARS, "an object that is no value")
            return found
        _check(depth <= MAX_DEPTH + 2, "too many nested lists")
        ((what, about),) = found.items()
        if (known := _BY_NAME.get(what)) is not None:
            return known.make(self._parts(_count(about), depth))
        if what == "int":
            return int(_text(about, MAX_BITS // 4 + 4), 16)
        if what == "decimal":
            _check(bool(DECIMAL.fullmatch(about)), "a decimal")
            return Decimal(about)
        if what == "scalar":
            return self._array(about, [])[()]
        count = _count(about)
        if what in ("array", "fixed"):
            made = self._array(self._next(), self._shape(count))
            made.flags.writeable = what == "array" or self._writable
            return made
        if what == "named":
            _check(count <= MAX_FIELDS, "a named tuple with too many fields")
            return self._class([_text(self._next(), 100) for _ in range(count + 1)])._make(self._parts(count, depth))
        if what == "objects":
            shape = self._shape(_count(self._next()))
            return self._objects(self._parts(count, depth), shape)
        _check(what == "ref", "a type that is none")
        return self._find(self._parts(count, depth))

    def _parts(self, count: int, depth: int) -> list[Any]:
        return [self._value(depth + 1) for _ in range(count)]  # ends with the outline, if `count` is too large

    def _shape(self, axes: int) -> list[int]:
        _check(axes <= 32, "too many axes")
        return [_count(self._next()) for _ in range(axes)]

    def _take(self, shape: list[int], itemsize: int) -> None:
        # an empty array with a large axis counts, too, because a reduction of it would be large
        self._left -= math.prod(max(n, 1) for n in shape) * max(itemsize, 1)
        _check(self._left >= 0, "arrays that are too large")

    def _array(self, name: Any, shape: list[int]) -> np.ndarray:
        """Return a copy of the next array."""
        _check(bool(DTYPE.fullmatch(name)), "a dtype that is not allowed")
        dtype, size = np.dtype(name), math.prod(shape)
        self._take(shape, dtype.itemsize)
        begin, self._offset = self._offset, self._offset + size * dtype.itemsize
        if self._offset == begin:
            return np.zeros(shape, dtype)
        values = np.frombuffer(self._arrays, dtype, size, begin)
        if dtype.kind == "U":
            _check(values.view(f"{dtype.str[0]}u4").max() <= 0x10FFFF, "characters that do not exist")
        return values.reshape(shape).copy()

    def _objects(self, parts: list[Any], shape: list[int]) -> np.ndarray:
        self._take(shape, 8)
        made = np.empty(len(parts), object)
        for i, part in enumerate(parts):
            made[i] = part
        return made.reshape(shape)

    def _class(self, words: list[str]) -> Any:
        """Return the class of named tuples with this name and these fields."""
        name, *fields = words
        if tuple(words) not in self._classes:
            _check(len(self._classes) < MAX_CLASSES, "too many kinds of named tuples")
            self._classes[tuple(words)] = collections.namedtuple(name, fields)  # type: ignore[misc]
        return self._classes[tuple(words)]


def _count(found: Any) -> int:
    _check(type(found) is int and found >= 0, "a count that is none")
    return found


def _text(found: Any, most: int) -> str:
    _check(type(found) is str and len(found) <= most, "text that is too long")
    return found
