"""Checkpoint file format: a state as bytes with a checksum.

    magic (8) | format (2) | length of the body (8) | BLAKE2b-256 of the body (32) | body
    body = length of the outline (8) | the outline, JSON | the arrays' bytes, one after the other

`decode_state(encode_state(state)) == state`. A file with missing, added or changed bytes is detected and rejected. Pickle is
not used, so reading a file executes no code from it.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ...errors import BadInput, shown
from ...formats import other_format
from ...nn import SparseParameters

MAGIC, FORMAT = b"labkit\r\n", 2
HEADER = struct.Struct("<8sHQ32s")
COUNT = struct.Struct("<Q")
KINDS = "biufcSU"  # dtype kinds that are stored as raw bytes

Bytes = bytes | memoryview


class DamagedCheckpoint(Exception):
    """The bytes are not a valid checkpoint. The text is a short reason ("truncated", "checksum", ...)."""


def encode_state(state: Mapping[str, Any]) -> list[Bytes]:
    """Encode a state. Returns byte strings to be written one after the other; arrays are not copied.

    `state`: numbers, text, booleans, None, arrays, `SparseParameters`, and lists, tuples and mappings of these, to any
    depth. An array with strides 0 (one number everywhere) is stored as that number. `BadInput` names a value that cannot be
    stored.
    """
    arrays: list[np.ndarray] = []
    encoded = ["dict", *([str(key), _encode_value(value, str(key), arrays)] for key, value in state.items())]
    outline = json.dumps(encoded, separators=(",", ":")).encode()
    pieces: list[Bytes] = [COUNT.pack(len(outline)), outline]
    pieces += [array.reshape(-1).view(np.uint8).data for array in arrays if array.nbytes]
    length, digest = sum(len(piece) for piece in pieces), _digest(pieces)
    return [HEADER.pack(MAGIC, FORMAT, length, digest), *pieces]


def decode_state(data: Bytes) -> dict[str, Any]:
    """Decode a state; its arrays are copies. Raises only `DamagedCheckpoint`."""
    if len(data) < HEADER.size:
        raise DamagedCheckpoint("truncated")
    magic, version, length, digest = HEADER.unpack_from(data)
    body = memoryview(data)[HEADER.size :]
    if magic != MAGIC:
        raise DamagedCheckpoint("not a checkpoint")
    if wrong := other_format(version, FORMAT):
        raise DamagedCheckpoint(wrong)
    if len(body) != length:
        raise DamagedCheckpoint("truncated" if len(body) < length else "bytes added")
    if _digest([body]) != digest:
        raise DamagedCheckpoint("checksum")
    try:
        (size,) = COUNT.unpack_from(body)
        outline = json.loads(bytes(body[COUNT.size : COUNT.size + size]))
        arrays = _ArrayReader(body, COUNT.size + size)
        state = _decode_value(outline, arrays)
        if arrays.position != len(body):
            raise ValueError("its arrays have another size")
    except Exception as error:  # the checksum is right, but labkit did not write this body
        raise DamagedCheckpoint(f"cannot be read: {error}") from None
    if not isinstance(state, dict):
        raise DamagedCheckpoint("not a state")
    return state


def _digest(pieces: Iterable[Bytes]) -> bytes:
    digest = hashlib.blake2b(digest_size=32)
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


# JSON outline: a list is [type, ...]; numbers, text, booleans and None are stored as they are ---------------------------


def _encode_value(value: Any, path: str, arrays: list[np.ndarray]) -> Any:
    """Return `value` as JSON; its arrays are appended to `arrays` in order of occurrence."""
    if isinstance(value, np.generic) and value.dtype.kind in KINDS:
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.ndarray):
        return _encode_array(value, path, arrays)
    if isinstance(value, (list, tuple)):
        return [
            "list" if isinstance(value, list) else "tuple",
            *(_encode_value(v, f"{path}[{i}]", arrays) for i, v in enumerate(value)),
        ]
    if isinstance(value, SparseParameters):
        return ["rows", _encode_value(value.to_state(), path, arrays)]
    if isinstance(value, Mapping):
        pairs = (
            [_encode_value(k, f"a key of {path}", []), _encode_value(v, f"{path}[{shown(k)}]", arrays)]
            for k, v in value.items()
        )
        return ["dict", *pairs]
    raise BadInput(
        f"{path} is a {type(value).__name__}, which a checkpoint cannot store; it stores numbers, text, arrays, and lists, "
        "tuples and mappings of these."
    )


def _encode_array(value: np.ndarray, path: str, arrays: list[np.ndarray]) -> Any:
    if value.dtype.kind not in KINDS:
        raise BadInput(
            f"{path} is an array of {value.dtype}, which a checkpoint cannot store; it stores plain numbers."
        )
    constant = value.size > 1 and not any(value.strides)
    stored = value.reshape(-1)[:1] if constant else value
    arrays.append(np.array(stored, order="C", copy=True) if constant else np.ascontiguousarray(stored))
    return ["same" if constant else "array", value.dtype.str, *value.shape]


class _ArrayReader:
    """Reads the arrays of a body, in the order in which they were written."""

    def __init__(self, body: memoryview, start: int):
        self.body, self.position = body, start

    def read(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
        if dtype.kind not in KINDS or not dtype.itemsize:
            raise ValueError(f"an array of {dtype}")
        size = math.prod(shape) * dtype.itemsize
        values = np.frombuffer(self.body[self.position : self.position + size], dtype)
        self.position += size
        return values.copy().reshape(shape)


def _decode_value(outline: Any, arrays: _ArrayReader) -> Any:
    """Return the value that `_encode_value` has encoded."""
    if not isinstance(outline, list):
        return outline
    kind, *rest = outline
    if kind in ("array", "same"):
        dtype, shape = np.dtype(rest[0]), tuple(rest[1:])
        return arrays.read(dtype, shape) if kind == "array" else np.broadcast_to(arrays.read(dtype, ()), shape)
    if kind == "dict":
        return {_decode_value(key, arrays): _decode_value(value, arrays) for key, value in rest}
    if kind == "rows":
        return SparseParameters.from_state(_decode_value(rest[0], arrays))
    return (list if kind == "list" else tuple)(_decode_value(value, arrays) for value in rest)
