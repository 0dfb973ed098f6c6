"""The messages that roles send to each other.

A message is a frozen dataclass made of numbers, strings, booleans, None, arrays, and tuples of them. Nothing else can be sent,
because the transport does not use pickle. The simulator has the same rule, so that a strategy that runs on one engine also runs
on the other. The receiver gets a copy, which shares no memory with the message of the sender.

The payload is counted in bytes, by the same rules on both engines. The bytes of all arrays are counted. The other fields are
counted only if they are not in the `header` of the kind:

- a number: 8 bytes; a boolean, None, or a nested tuple: 1 byte; text: its bytes in UTF-8;
- an empty array that is in a tuple or has more than two dimensions: 8 bytes per dimension.

The headers of labkit's kinds (step, version, part) are sent in the frame header. A kind defined with a strategy has no header
unless it declares one.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

import numpy as np

from ..errors import RoleError

__all__ = [
    "Ack", "CentreWeights", "Chunk", "Joined", "Left", "Message", "Mix", "Position", "Pull", "Push", "Snapshot",
    "SnapshotRequest", "Weights", "bytes_outside_arrays", "copied_for_sending", "field_names", "payload_bytes",
    "timing_only_message",
]  # fmt: skip


@dataclass(frozen=True)
class Message:
    """The base class of every message. The engine sets `sender` and `incarnation` on delivery.

    Class attributes that engines use:

    - `carries`: True if the message carries gradients. Their numbers are `step - count + 1` to `step` of the sender. The engine
      counts the gradients as released when the message is sent, and as received when a role takes the message from its inbox.
      It reports gradients that are lost.
    - `reads`: True if the message carries weights of a shard at `version`. The receiver has then read this version; the
      staleness of its next gradient is counted from it.
    - `header`: the metadata fields. Only arrays in them count as payload.
    """

    sender: str = field(default="", init=False, compare=False)
    incarnation: int = field(default=0, init=False, compare=False)
    carries: ClassVar[bool] = False
    reads: ClassVar[bool] = False
    header: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True)
class Pull(Message):
    """worker -> server: a request for the weights of the shard."""


@dataclass(frozen=True)
class Push(Message):
    """worker -> server: the shard's part of a gradient.

    `values`: flat, with the size of the shard. `step`: the number of the newest gradient in the push, as counted by the sender;
    `count`: the number of gradients; `samples`: the number of examples. `generation`, `version`: those of the weights on which
    the gradient was computed.
    """

    values: np.ndarray
    step: int
    generation: int
    version: int
    count: int = 1
    samples: int = 0
    carries: ClassVar[bool] = True
    header: ClassVar[tuple[str, ...]] = ("step", "generation", "version", "count", "samples")


@dataclass(frozen=True)
class Weights(Message):
    """server -> worker: the weights of the shard (flat) and their version."""

    values: np.ndarray
    shard: int
    generation: int
    version: int
    reads: ClassVar[bool] = True
    header: ClassVar[tuple[str, ...]] = ("shard", "generation", "version")

    @property
    def read(self) -> tuple[tuple[int, int], ...]:
        """The (generation, version) of each shard. A single shard with the whole model has sent this message."""
        return ((self.generation, self.version),)

    @property
    def clocks(self) -> tuple[tuple[int, ...], ...]:
        """For each shard, the gradients contained in its part; empty except for `CentreWeights`."""
        return ()


@dataclass(frozen=True)
class Position(Push):
    """worker -> centre: the shard's part of the worker's weights. The other fields are those of a `Push`; `step` and `count`
    identify the gradients that were applied to the weights since the last position.

    The values contain all gradients of the sender's role instance up to `step`, and gradients of other role instances that the
    sender received with weights of the centre. `clock` lists the latter: (role instance, its last step, the next role instance,
    ...). The number of a role instance is role + incarnation x roles.
    """

    clock: tuple[int, ...] = ()
    header: ClassVar[tuple[str, ...]] = (*Push.header, "clock")


@dataclass(frozen=True)
class CentreWeights(Weights):
    """centre -> worker: the weights of the shard. `clock`: the gradients of all role instances that the values contain, in the
    format of `Position.clock`.
    """

    clock: tuple[int, ...] = ()
    header: ClassVar[tuple[str, ...]] = (*Weights.header, "clock")

    @property
    def clocks(self) -> tuple[tuple[int, ...], ...]:
        """For each shard, the gradients contained in its part. A single shard with the whole model has sent this message."""
        return (self.clock,)


@dataclass(frozen=True)
class Ack(Message):
    """server -> worker: the push with the gradient `step` has been applied."""

    step: int
    header: ClassVar[tuple[str, ...]] = ("step",)


@dataclass(frozen=True)
class Chunk(Message):
    """peer -> peer: one piece of a vector in a collective. `tag`: the number of the step; `part`: the number of the piece."""

    values: np.ndarray
    tag: int
    part: int
    header: ClassVar[tuple[str, ...]] = ("tag", "part")


@dataclass(frozen=True)
class Mix(Message):
    """replica -> replica: the sender's parameters, to be averaged with the receiver's.

    `clock`: for each worker, in order, the last step whose gradient the parameters contain (-1: none).
    """

    values: np.ndarray
    clock: tuple[int, ...]
    header: ClassVar[tuple[str, ...]] = ("clock",)


@dataclass(frozen=True)
class SnapshotRequest(Message):
    """chief -> shard: request for a `Snapshot` of the weights. The engine answers it.

    The snapshot is taken at the first version that is a multiple of `eval_every` and at least `at`, or when the budget is used
    up. If `final`, it is taken at once.
    """

    at: int = 0
    final: bool = False
    header: ClassVar[tuple[str, ...]] = ("at", "final")


@dataclass(frozen=True)
class Snapshot(Message):
    """shard -> chief: weights to evaluate, sent by the engine. `final`: whether this is the answer to a final request.

    `ids`: for a shard that owns rows of a table, the numbers of the rows at the beginning of `values`. `contained`: the
    gradients that the values contain, as JSON (`AppliedLog.contained`, and the time in ns). They are needed if the shard is
    lost before it reports them.
    """

    values: np.ndarray
    shard: int
    version: int
    samples: int
    final: bool = False
    ids: np.ndarray | None = None
    contained: str = ""
    header: ClassVar[tuple[str, ...]] = ("shard", "version", "samples", "final", "ids", "contained")


@dataclass(frozen=True)
class Joined(Message):
    """engine -> role: role `name` has joined the run, or was restarted with its next `incarnation`.

    Messages to the earlier incarnation of `name` that it has not answered are lost. The receiver of this message retransmits
    them. Messages that are sent to `name` from now on are addressed to the new incarnation. `Joined` is sent only in strategies
    whose `messages` contain it.
    """

    name: str = ""
    header: ClassVar[tuple[str, ...]] = ("name",)


@dataclass(frozen=True)
class Left(Message):
    """engine -> role: role `name` is no longer a peer, because it has left the run, or was lost and is not waited for.

    `Left` is sent only in strategies whose `messages` contain it.
    """

    name: str = ""
    header: ClassVar[tuple[str, ...]] = ("name",)


_FIELDS: dict[type, tuple[str, ...]] = {}  # a cache of `field_names`; contains no state of a run
_PLAIN = (int, float, str, bool, type(None))
_LEAST, _MOST = -(2**63), 2**63 - 1
_NUMBERS = "biufc"  # kinds of dtype


def field_names(kind: type[Message]) -> tuple[str, ...]:
    """Return the names of the fields that are sent, in order. (`sender` and `incarnation` are in the frame header.)"""
    names = _FIELDS.get(kind)
    if names is None:
        names = _FIELDS[kind] = tuple(f.name for f in dataclasses.fields(kind) if f.init)
    return names


def bytes_outside_arrays(message: Message) -> int:
    """Return the payload bytes of a message that are not in arrays, by the rules in the docstring of this module."""
    kind: Any = message.__class__
    have, size = message.__dict__, 0
    for name in _payload_fields(kind):
        value = have[name]
        if value.__class__ is tuple:
            size += sum(map(_plain_bytes, value))
        elif value.__class__ is not np.ndarray:
            size += _plain_bytes(value)
        elif value.ndim > 2 and not value.size:
            size += 8 * value.ndim
    return size


@cache
def _payload_fields(kind: Any) -> tuple[str, ...]:
    """Return the fields of a kind of message that are payload."""
    return tuple(name for name in field_names(kind) if name not in kind.header)


def _plain_bytes(value: Any) -> int:
    if isinstance(value, tuple):
        return 1 + sum(map(_plain_bytes, value))
    if isinstance(value, np.ndarray):
        return 0 if value.size else 8 * value.ndim  # only the shape is sent
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    return 1 if value is None or isinstance(value, (bool, np.bool_)) else 8


def timing_only_message(kind: type[Message], fields: dict[str, Any]) -> Any:
    """Create a message of a timing-only run: numbers, and arrays without memory.

    The message needs no check and no copy. `fields` contains `timing_only_bytes`, the size of its payload. A call takes 0.35
    us; the `__init__` of a frozen dataclass takes 0.7 us (`timeit`).
    """
    made = object.__new__(kind)
    made.__dict__.update(fields)
    return made


def copied_for_sending(message: Message, sender: str, incarnation: int = 0) -> tuple[Message, int]:
    """Return (a copy of the message with `sender` and `incarnation` set, the number of its payload bytes).

    The copy shares no memory with the original. A message without arrays is immutable, so the original may be returned. Raises
    `RoleError`, with the name of the field, if a field cannot be sent.
    """
    kind = message.__class__
    have = message.__dict__
    own: dict[str, Any] = {}
    size = 0
    for name in _FIELDS.get(kind) or field_names(kind):
        value = have[name]
        what = value.__class__
        if what is float or (what is int and _LEAST <= value <= _MOST):
            continue
        if what is np.ndarray:
            size += value.nbytes
            # Arrays of a timing-only run have zero strides and no writable memory: they need no copy.
            if value.strides != (0,):
                own[name] = value.copy() if value.dtype.kind in _NUMBERS else _copy_value(kind, name, value)
        else:
            own[name] = copied = _copy_value(kind, name, value)
            size += _array_bytes(copied)
    size += bytes_outside_arrays(message)
    if not own and not incarnation and have.setdefault("sender", sender) == sender:
        return message, size
    copy = object.__new__(kind)
    copy.__dict__.update(have, sender=sender, incarnation=incarnation, **own)
    return copy, size


def payload_bytes(message: Message) -> int:
    """Return the bytes of a message's payload."""
    size: int | None = message.__dict__.get("timing_only_bytes")
    if size is None:
        have = message.__dict__
        size = sum(_array_bytes(have[name]) for name in field_names(message.__class__)) + bytes_outside_arrays(message)
    return size


def _array_bytes(value: Any) -> int:
    if type(value) is tuple:
        return sum(_array_bytes(item) for item in value)
    return value.nbytes if type(value) is np.ndarray else 0


def _copy_value(kind: type, name: str, value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, _PLAIN):
        if isinstance(value, int) and not _LEAST <= value <= _MOST:
            raise RoleError(f"{kind.__name__}.{name} holds an int beyond 64 bits; allowed: -2**63 to 2**63 - 1.")
        return value
    if type(value) is np.ndarray:
        if value.dtype.kind not in _NUMBERS + "mMSU":
            what = f"{kind.__name__}.{name} holds an array of dtype {value.dtype}"
            raise RoleError(f"{what}; allowed: numbers, booleans, times and strings of fixed length.")
        return value if value.strides == (0,) else value.copy()
    if type(value) is tuple:
        if value and set(map(type, value)) == {int} and min(value) >= _LEAST and max(value) <= _MOST:
            return value  # fast path for clocks, with one number per worker
        return tuple(_copy_value(kind, name, item) for item in value)
    hint = " Is an `await` missing?" if hasattr(value, "__await__") or hasattr(value, "send") else ""
    raise RoleError(
        f"{kind.__name__}.{name} holds a {type(value).__name__}; a message is made of numbers, strings, booleans, None, "
        f"NumPy arrays and tuples of them.{hint}"
    )
