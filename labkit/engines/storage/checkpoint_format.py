"""Checkpoint file format: a state as bytes with a checksum.

    magic (8) | format (2) | length of the body (8) | BLAKE2b-256 of the body (32) | body: the state (`labkit.encoding`)

`decode_state(encode_state(state)) == state`. A file with missing, added or changed bytes is detected and rejected.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ...encoding import MAPPINGS, Bytes, Decoder, EncodingError, SizeLimits, encode
from ...errors import BadInput
from ...formats import other_format
from ...nn import SparseParameters

MAGIC, FORMAT = b"labkit\r\n", 3
HEADER = struct.Struct("<8sHQ32s")
LIMITS = SizeLimits(1 << 31, 1 << 62)


class DamagedCheckpoint(Exception):
    """The bytes are not a valid checkpoint. The text is a short reason ("truncated", "checksum", ...)."""


def encode_state(state: Mapping[str, Any]) -> list[Bytes]:
    """Encode a state. Returns byte strings to be written one after the other; arrays are not copied.

    `state`: values that `labkit.encoding` encodes, `SparseParameters`, and other mappings and lists. An array with strides 0 (one
    number everywhere) is stored as that number. `BadInput` names a value that cannot be stored.
    """
    try:
        pieces = encode(dict(state), _refer, LIMITS)
    except EncodingError as error:
        name, *keys = error.keys or ["the state"]
        raise BadInput(f"{name}{''.join(f'[{key!r}]' for key in keys)} is {error}.") from None
    return [HEADER.pack(MAGIC, FORMAT, sum(map(len, pieces)), _digest(pieces)), *pieces]


def decode_state(data: Bytes) -> dict[str, Any]:
    """Decode a state; its arrays are copies, and can be changed. Raises only `DamagedCheckpoint`."""
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
        state = Decoder(_find, LIMITS, writable=True).decode(_reader(body))
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


def _reader(data: memoryview) -> Any:
    """Return a function that returns the next n bytes."""
    position = 0

    def read(size: int) -> memoryview:
        nonlocal position
        position += size
        if position > len(data):
            raise EncodingError("its parts have another size")
        return data[position - size : position]

    return read


def _refer(value: Any) -> list[Any] | None:
    if isinstance(value, np.ndarray) and value.size > 1 and not any(value.strides):
        return ["constant", value.reshape(-1)[:1].copy(), value.shape]
    if isinstance(value, SparseParameters):
        return ["rows", value.to_state()]
    if isinstance(value, Mapping) and type(value) not in MAPPINGS:
        return ["plain", dict(value)]
    if isinstance(value, list) and type(value) is not list:
        return ["plain", list(value)]
    if isinstance(value, Iterator):
        raise EncodingError(f"a {type(value).__name__}, whose items can be taken only once: make a list of them")
    return None


def _find(reference: list[Any]) -> Any:
    what, value, *shape = reference
    if what == "constant":
        return np.broadcast_to(value[0], *shape)
    return SparseParameters.from_state(value) if what == "rows" else value
