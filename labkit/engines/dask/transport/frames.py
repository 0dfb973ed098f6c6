"""Frames: the format of messages on a connection, the codec, and the parser.

Pickle is not used, so received bytes can be invalid but cannot execute code.

A frame is a header of 48 bytes, then `meta`, then `payload`. The payload is the raw bytes of the message's arrays, in the
order of its fields; each array starts at a multiple of 16 bytes. Meta is everything else: first one struct with the fields
that are declared int or float, then the other fields, each after a tag of one byte. If a value of a message cannot be
encoded, the sending role raises `RoleError`, which names the field. If bytes cannot be decoded, the receiver raises
`ProtocolError`, which ends the connection. No length is used before it is checked against the available bytes.

    header   magic 4s | kind u16 | category u8 | flags u8 | meta bytes u32 | padding u32
             sequence u64 | sent_ns i64 | computed u64 | payload bytes u64          (little-endian)
    meta     mask u64, a bit per number that is not of its declared type | the numbers | values | values of numbers in the mask
    value    N | T | F | i int64 | d float64 | s length u32, UTF-8 | t count u32, values | a length u16, array
    array    length of the dtype's code u8 | the code ("<f4") | shape, u64 each

A close frame is a header with a flag and without a message. It is the last frame of a connection: `FINAL` if the sender
will send no more messages, `SUSPENDED` if the link continues in another connection.
"""

from __future__ import annotations

import dataclasses
import math
import re
import struct
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from ....errors import RoleError
from ....nn.buffer_pool import BufferPool
from ....roles.messages import Message, field_names
from ..protocol import ProtocolError

Header = tuple[bytes, int, int, int, int, int, int, int, int, int]  # the fields of a header, in their order
Piece = bytes | memoryview  # a part of a frame; at run time also a flat array of uint8, which is a buffer

MAGIC = b"LKF1"
HEADER = struct.Struct("<4sHBBIIQqQQ")
FINAL = 1  # flag of a close frame: the sender has sent all messages
SUSPENDED = 2  # flag of a close frame: the link is cut, and continues in another connection
ALIGN = 16  # bytes
MAX_FRAME = 2 << 30  # bytes of meta and payload together
READ_AHEAD = 512  # bytes of the read-ahead buffer: see `FrameParser`
_DEPTH = 32  # limit of the nesting of tuples
_CACHED = 512  # limit of cached array descriptions
_DTYPE = re.compile(r"[|<>][biufcmMSUV]\d+(\[\w+\])?")
_TYPES: dict[Any, str] = {int: "q", float: "d", "int": "q", "float": "d"}
_U16, _U32, _INT, _FLOAT = (struct.Struct("<" + code) for code in "HIqd")
_NONE, _TRUE, _FALSE, _INTEGER, _REAL, _TEXT, _TUPLE, _ARRAY = b"NTFidsta"
_NOT_CACHED: tuple[list[Any], int] = ([], -1)
_ALLOWED = "a message is made of numbers, strings, booleans, None, NumPy arrays and tuples of them"


def read_header(buffer: bytes | bytearray | memoryview, offset: int, max_frame: int = MAX_FRAME) -> Header:
    """Return the header at `offset`, where at least 48 bytes are available.

    Raises `ProtocolError` if these bytes are not a valid header.
    """
    fields: Header = HEADER.unpack_from(buffer, offset)
    magic, _, _, flags, meta, padding, _, _, _, payload = fields
    if magic != MAGIC or flags > SUSPENDED or meta % ALIGN or padding > payload:
        raise ProtocolError(f"no frame starts with {bytes(buffer[offset : offset + 8])!r}")
    if meta + payload > max_frame:
        raise ProtocolError(f"a header announces {meta + payload:,} bytes; a frame has at most {max_frame:,}")
    return fields


def close_frame(flag: int, sequence: int) -> bytes:
    """Return the close frame with `flag` (`FINAL` or `SUSPENDED`) and number `sequence`."""
    return HEADER.pack(MAGIC, 0, 0, flag, 0, 0, sequence, 0, 0, 0)


class _MessageLayout:
    """The layout of one kind of message.

    The declared type of a field decides where it is encoded. A number that is not of its declared type is encoded with
    a tag.
    """

    def __init__(self, index: int, kind: type[Message]) -> None:
        # Annotations may be strings. They are compared as text ("int"), because resolving them would need names that a notebook
        # may not have.
        codes: dict[str, str] = {f.name: _TYPES.get(f.type, "") for f in dataclasses.fields(kind)}
        names = field_names(kind)
        self.index = index
        self.kind = kind
        self.numbers = tuple(name for name in names if codes[name])[:64]
        self.others = tuple(name for name in names if name not in self.numbers)
        self.types = tuple(int if codes[name] == "q" else float for name in self.numbers)
        self.number_codes = "Q" + "".join(codes[name] for name in self.numbers)
        self.struct = struct.Struct("<" + self.number_codes)
        # Cache for decoding: {meta after the numbers, if it describes arrays only: ([(field, dtype, shape, start)], bytes of
        # the payload)}. Most messages of a run have the same shapes as the previous one.
        self.decode_cache: dict[bytes, tuple[list[tuple[str, np.dtype, tuple[int, ...], int]], int]] = {}
        # Cache for encoding, for a kind with one array: {(dtype, shape): layout of its frames}.
        self.all_numbers = _all_of(self.numbers)
        self.array = self.others[0] if len(self.others) == 1 and self.numbers else ""
        self.prepared: dict[tuple[np.dtype, tuple[int, ...]], Prepared] = {}


class Prepared:
    """The layout of a frame with numbers and one array of known dtype and shape: all but the array is one struct.

    `size`: bytes of meta and payload together. `payload`: bytes of the payload. `described`: the last value of
    `struct`, which describes the array.
    """

    __slots__ = ("described", "index", "meta", "payload", "size", "struct")

    def __init__(self, layout: _MessageLayout, described: bytes, payload: int) -> None:
        size = layout.struct.size + len(described)
        self.meta = size + -size % ALIGN
        self.struct = struct.Struct(HEADER.format + layout.number_codes + f"{len(described) + self.meta - size}s")
        self.index, self.described, self.payload = layout.index, described, payload
        self.size = self.meta + payload


class FrameCodec:
    """Encodes messages of `kinds` as meta and arrays, and decodes them.

    Both ends of a connection must list the same kinds in the same order.
    """

    def __init__(self, kinds: Sequence[type[Message]]) -> None:
        self.kinds = tuple(kinds)
        self._layouts = tuple(_MessageLayout(index, kind) for index, kind in enumerate(self.kinds))
        self._by_kind: dict[type, _MessageLayout] = {layout.kind: layout for layout in self._layouts}
        self._described: dict[tuple[np.dtype, tuple[int, ...]], bytes] = {}

    def index(self, message: object, sender: str) -> int:
        """Return the number of the message's kind. Raises `RoleError`, which names `sender`, if the kind is not listed."""
        layout = self._by_kind.get(message.__class__)
        if layout is None:
            listed = ", ".join(kind.__name__ for kind in self.kinds)
            raise RoleError(f"{sender} sends {type(message).__name__}, which is not listed in messages = ({listed})")
        return layout.index

    def encode(self, message: Message) -> tuple[bytes, list[np.ndarray]]:
        """Return (meta, the arrays as flat arrays of uint8).

        A flat array is a view of the message's array if that array is contiguous. Raises `RoleError`, which names the
        field, if a value cannot be encoded. The kind must be listed: see `index`.
        """
        layout = self._by_kind[message.__class__]
        values = [getattr(message, name) for name in layout.numbers]
        mask, names, arrays = 0, layout.others, list[np.ndarray]()
        if tuple(map(type, values)) != layout.types:
            mask, values, late = _separate_untyped(layout, values)
            names = (*names, *late)
        try:
            out = [layout.struct.pack(mask, *values)]
        except struct.error:
            for name, value in zip(layout.numbers, values):
                _check_int(layout.kind, name, value)
            raise
        for name in names:
            value = getattr(message, name)
            put = self._put_array if value.__class__ is np.ndarray else self._put
            put(layout.kind, name, value, out, arrays)
        meta = b"".join(out)
        return meta + bytes(-len(meta) % ALIGN), arrays

    def prepare(self, message: Message) -> tuple[Prepared, tuple[Any, ...], Piece] | None:
        """Return (layout of the frame, numbers, array as flat bytes) of a message with numbers and one flat array.

        Returns None for other messages, which must be encoded by `encode`.
        """
        layout = self._by_kind.get(message.__class__)
        if layout is None or not layout.array:
            return None
        own = message.__dict__
        try:
            values, array = layout.all_numbers(own), own[layout.array]
        except KeyError:  # the field is an attribute of the class only
            return None
        if tuple(map(type, values)) != layout.types or array.__class__ is not np.ndarray or array.ndim != 1:
            return None
        key = (array.dtype, array.shape)
        prepared = layout.prepared.get(key)
        if prepared is None:
            if not array.size:
                return None
            if len(layout.prepared) >= _CACHED:
                layout.prepared.clear()
            described = _describe(layout.kind, layout.array, array)
            prepared = layout.prepared[key] = Prepared(layout, described, array.nbytes)
        if not array.flags.c_contiguous:
            return None
        return prepared, values, array.view(np.uint8)  # type: ignore[return-value]

    def _put_array(self, kind: type, name: str, value: np.ndarray, out: list[bytes], arrays: list[np.ndarray]) -> None:
        key = (value.dtype, value.shape)
        described = self._described.get(key)
        if described is None:
            if len(self._described) >= _CACHED:
                self._described.clear()
            described = self._described[key] = _describe(kind, name, value)
        out.append(described)
        flat = value if value.flags.c_contiguous else np.ascontiguousarray(value)
        arrays.append((flat if flat.ndim == 1 else flat.reshape(-1)).view(np.uint8))

    def _put(
        self, kind: type, name: str, value: Any, out: list[bytes], arrays: list[np.ndarray], depth: int = 0
    ) -> None:
        if isinstance(value, np.generic):
            value = value.item()
        if value is None:
            out.append(b"N")
        elif isinstance(value, bool):
            out.append(b"T" if value else b"F")
        elif isinstance(value, int):
            _check_int(kind, name, value)
            out.append(b"i" + _INT.pack(value))
        elif isinstance(value, float):
            out.append(b"d" + _FLOAT.pack(value))
        elif isinstance(value, str):
            text = value.encode("utf-8", "surrogatepass")
            out += (b"s", _U32.pack(len(text)), text)
        elif type(value) is np.ndarray and not value.dtype.hasobject:
            self._put_array(kind, name, value, out, arrays)
        elif type(value) is tuple:
            if depth == _DEPTH:
                raise RoleError(f"{kind.__name__}.{name} holds tuples nested deeper than {_DEPTH}; {_ALLOWED}.")
            out += (b"t", _U32.pack(len(value)))
            for item in value:
                self._put(kind, name, item, out, arrays, depth + 1)
        else:
            hint = " Is an `await` missing?" if hasattr(value, "__await__") or hasattr(value, "send") else ""
            raise RoleError(f"{kind.__name__}.{name} holds a {type(value).__name__}; {_ALLOWED}.{hint}")

    def decode(self, index: int, meta: memoryview, payload: memoryview, sender: str, incarnation: int) -> Message:
        """Return a new message, created without calling `__init__`. Its arrays are views of `payload`, writable if `payload` is.

        Raises `ProtocolError` if the bytes are not exactly one message of kind number `index`.
        """
        try:
            layout = self._layouts[index]
            mask, *values = layout.struct.unpack_from(meta, 0)
            message = object.__new__(layout.kind)
            own = message.__dict__
            own.update(zip(layout.numbers, values))
            arrays, nbytes = layout.decode_cache.get(bytes(meta[layout.struct.size :]), _NOT_CACHED)
            if nbytes == len(payload) and not mask:
                for name, dtype, shape, start in arrays:
                    own[name] = np.ndarray(shape, dtype, payload, start)
            else:
                self._read(layout, own, mask, meta, payload)
        except ProtocolError:
            raise
        except (IndexError, struct.error, ValueError, TypeError, OverflowError, MemoryError) as error:
            raise ProtocolError(f"an invalid frame of kind {index}: {error}") from error
        own["sender"] = sender
        own["incarnation"] = incarnation
        return message

    def _read(
        self, layout: _MessageLayout, own: dict[str, Any], mask: int, meta: memoryview, payload: memoryview
    ) -> None:
        """Decode the tagged values into `own`."""
        reader = _Reader(meta, layout.struct.size, payload)
        late = [name for bit, name in enumerate(layout.numbers) if mask >> bit & 1]
        for name in (*layout.others, *late):
            own[name] = reader.value(0)
        if len(meta) - reader.at >= ALIGN or reader.offset != len(payload) or mask >> len(layout.numbers):
            raise ProtocolError(f"a {layout.kind.__name__} ends before its frame does")
        if not late and all(type(own[name]) is np.ndarray and own[name].size for name in layout.others):
            if len(layout.decode_cache) >= _CACHED:
                layout.decode_cache.clear()
            arrays = [(n, own[n].dtype, own[n].shape, at) for n, at in zip(layout.others, reader.starts, strict=True)]
            layout.decode_cache[bytes(meta[layout.struct.size :])] = arrays, len(payload)


class _Reader:
    """Reads tagged values from meta, and their arrays from the payload, in order."""

    __slots__ = ("at", "meta", "offset", "payload", "starts")

    def __init__(self, meta: memoryview, at: int, payload: memoryview) -> None:
        self.meta, self.at, self.payload, self.offset = meta, at, payload, 0
        self.starts: list[int] = []  # offsets of the arrays in the payload

    def value(self, depth: int) -> Any:
        tag = self.meta[self.at]
        self.at += 1
        if tag == _ARRAY:
            return self._array()
        if tag == _INTEGER:
            return _INT.unpack(self._bytes(8))[0]
        if tag == _REAL:
            return _FLOAT.unpack(self._bytes(8))[0]
        if tag == _TEXT:
            return str(self._bytes(_U32.unpack(self._bytes(4))[0]), "utf-8", "surrogatepass")
        if tag == _TUPLE:
            count = _U32.unpack(self._bytes(4))[0]
            if count > len(self.meta) - self.at or depth == _DEPTH:
                raise ProtocolError(f"a tuple of {count:,} items at depth {depth}")
            return tuple([self.value(depth + 1) for _ in range(count)])
        if tag == _NONE:
            return None
        if tag in (_TRUE, _FALSE):
            return tag == _TRUE
        raise ProtocolError(f"a value of unknown type {tag}")

    def _bytes(self, count: int) -> memoryview:
        start, end = self.at, self.at + count
        if end > len(self.meta):
            raise ProtocolError(f"{count:,} bytes are announced where {len(self.meta) - start:,} are left")
        self.at = end
        return self.meta[start:end]

    def _array(self) -> np.ndarray:
        dtype, shape, nbytes = _parse_array(bytes(self._bytes(_U16.unpack(self._bytes(2))[0])))
        if not nbytes:
            return np.empty(shape, dtype)
        start = (self.offset + ALIGN - 1) & -ALIGN
        self.offset = start + nbytes
        self.starts.append(start)
        return np.ndarray(shape, dtype, self.payload, start)


class FrameParser:
    """Splits the bytes of one connection into frames, without I/O: read into `buffers()`, then call `received(count)`.

    A small read-ahead buffer receives the header, and small frames as a whole. The rest of a large frame is read directly into
    the memory of its arrays; the same read puts the beginning of the next frame into the read-ahead buffer. `check` is called
    with each header before memory is allocated for the frame; it raises `ProtocolError` if the frame is not due. `first`: bytes
    that have been read already, at most `READ_AHEAD`.
    """

    __slots__ = (
        "_body",
        "_check",
        "_filled",
        "_header",
        "_max_frame",
        "_pool",
        "_read_ahead",
        "_size",
        "_start",
        "_stop",
        "_view",
    )  # fmt: skip

    def __init__(self, pool: BufferPool, max_frame: int, check: Callable[[Header], None], first: bytes = b"") -> None:
        self._pool, self._max_frame, self._check = pool, max_frame, check
        self._read_ahead = bytearray(READ_AHEAD)
        self._view = memoryview(self._read_ahead)
        self._read_ahead[: len(first)] = first
        self._start, self._stop = 0, len(first)  # the part of the read-ahead that is not parsed
        self._header: Header | None = None  # header of the current frame
        self._body: memoryview | None = None
        self._size = self._filled = 0  # bytes of the body, and bytes of it that were received

    def buffers(self) -> list[memoryview]:
        """Return the buffers for the next bytes, in order."""
        if self._body is None:
            return [self._view[self._stop :]]
        return [self._body[self._filled :], self._view]

    def received(self, count: int) -> bool:
        """Record that `count` bytes were read into the buffers.

        Returns whether the buffers are full, which means that there may be more bytes.
        """
        if self._body is None:
            self._stop += count
        else:
            rest = self._size - self._filled
            if count < rest:
                self._filled += count
                return False
            self._filled += rest
            self._stop = count - rest
        return self._stop == READ_AHEAD

    def next(self) -> tuple[Header, memoryview] | None:
        """Return (header, body) of the next frame, or None while it is incomplete.

        Raises `ProtocolError` if the bytes are not a frame.
        """
        if self._header is None:
            have = self._stop - self._start
            if have < HEADER.size:
                if have:
                    self._read_ahead[:have] = self._read_ahead[self._start : self._stop]
                self._start, self._stop = 0, have
                return None
            self._begin(read_header(self._read_ahead, self._start, self._max_frame))
        header, body = self._header, self._body
        if self._filled < self._size or header is None or body is None:
            self._start = self._stop = 0
            return None
        self._header = self._body = None
        return header, body

    def whole(self, data: memoryview) -> tuple[int, Header, memoryview] | None:
        """Return (bytes used, header, copy of the body) of the frame at the start of `data`, or None if it is incomplete.

        Must be called only while the parser is `empty`.
        """
        if len(data) < HEADER.size:
            return None
        header = read_header(data, 0, self._max_frame)
        size = header[4] + header[9]
        end = HEADER.size + size
        if len(data) < end:
            return None
        body = self._allocate(header, size)
        body[:] = data[HEADER.size : end]
        return end, header, body

    @property
    def empty(self) -> bool:
        """Whether no frame has begun, and no unparsed byte is left."""
        return self._header is None and self._start == self._stop

    @property
    def between(self) -> bool:
        """Whether no frame has begun, and unparsed bytes are left."""
        return self._header is None and self._start < self._stop

    def discard(self) -> None:
        self._start = self._stop = 0

    def _begin(self, header: Header) -> None:
        self._size = header[4] + header[9]
        body = self._allocate(header, self._size)
        start = self._start + HEADER.size
        self._start = min(self._stop, start + self._size)
        self._filled = self._start - start
        body[: self._filled] = self._view[start : self._start]
        self._header, self._body = header, body

    def _allocate(self, header: Header, size: int) -> memoryview:
        """Check the header, and allocate `size` bytes for the body."""
        self._check(header)
        try:
            return memoryview(self._pool.take(size))[:size]  # type: ignore[arg-type]
        except MemoryError as error:
            raise ProtocolError(f"no memory for a frame of {size:,} bytes") from error


def lay_out(arrays: list[np.ndarray]) -> tuple[list[Piece], int, int]:
    """Return the payload of flat uint8 arrays: (its pieces in order, number of its bytes, number of padding bytes among them)."""
    if len(arrays) == 1:
        return arrays, arrays[0].size, 0  # type: ignore[return-value]
    pieces: list[Piece] = []
    total = padding = 0
    for array in arrays:
        if total % ALIGN and array.size:
            gap = -total % ALIGN
            pieces.append(bytes(gap))
            padding += gap
            total += gap
        pieces.append(array)  # type: ignore[arg-type]
        total += array.size
    return pieces, total, padding


def _all_of(names: tuple[str, ...]) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
    """Return a function that returns the items `names` of a dict as a tuple."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda own: tuple(own[name] for name in names)


def _separate_untyped(layout: _MessageLayout, values: list[Any]) -> tuple[int, list[Any], list[str]]:
    """Return (mask, values for the struct, fields to encode with a tag). NumPy scalars are converted to Python numbers first."""
    mask, packed, late = 0, [], []
    for bit, (name, value, declared) in enumerate(zip(layout.numbers, values, layout.types)):
        if isinstance(value, np.generic):
            value = value.item()
        if type(value) is not declared:
            mask |= 1 << bit
            late.append(name)
            value = declared()
        packed.append(value)
    return mask, packed, late


def _check_int(kind: type, name: str, value: Any) -> None:
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise RoleError(f"{kind.__name__}.{name} holds an int beyond 64 bits; allowed: -2**63 to 2**63 - 1.")


def _describe(kind: type, name: str, value: np.ndarray) -> bytes:
    dtype = value.dtype
    code = dtype.str
    if dtype.hasobject or not dtype.itemsize or not _DTYPE.fullmatch(code) or np.dtype(code) != dtype:
        what = f"{kind.__name__}.{name} holds an array of dtype {dtype}"
        raise RoleError(f"{what}; allowed: numbers, booleans, times and strings of fixed length.")
    body = bytes([len(code)]) + code.encode() + struct.pack(f"<{value.ndim}Q", *value.shape)
    return b"a" + _U16.pack(len(body)) + body


def _parse_array(described: bytes) -> tuple[np.dtype, tuple[int, ...], int]:
    """Return (dtype, shape, bytes) of an array. Raises `ProtocolError`, or an error of NumPy, if the description is invalid."""
    end = 1 + described[0]
    code = described[1:end].decode("ascii")
    if not _DTYPE.fullmatch(code):
        raise ProtocolError(f"an array of dtype {code!r}")
    dtype = np.dtype(code)
    shape = struct.unpack(f"<{(len(described) - end) // 8}Q", described[end:])
    if not dtype.itemsize or dtype.hasobject:
        raise ProtocolError(f"an array of dtype {code!r}")
    return dtype, shape, math.prod(shape) * dtype.itemsize
