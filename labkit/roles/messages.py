"""The messages that roles send to each other.

A message is a frozen dataclass made of numbers, strings, booleans, None, arrays, and tuples of them. Nothing else can be
sent, on either engine: the transport carries no pickles, and the simulator keeps the same rule, so that a strategy that runs
on one engine runs on the other. A message is never aliased: the receiver gets a copy of its own.

The payload of a message is counted in bytes, on both engines alike: arrays as they lie in memory, and everything else in the
fields that are not in the `header` of its kind: 8 bytes a number, 1 a truth value, None, or a tuple in a tuple, text in
UTF-8, and 8 bytes a dimension of an array without elements in a tuple, or of more than two dimensions. So data cost the same
whatever type they travel as. The headers of labkit's own kinds (which step, which version, which part) travel in the
frame's head and are not counted; a strategy's own kind has no header unless it declares one.
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
    "SnapshotRequest", "Weights", "field_names", "loose_bytes", "own_copy", "payload_bytes", "weightless",
]  # fmt: skip


@dataclass(frozen=True)
class Message:
    """The base of every message. `sender` and `incarnation` are filled in by the engine on delivery.

    What an engine has to know of a kind of message is declared with its class:

    - `carries`: True if it carries gradients: those numbered `step - count + 1` to `step` of its sender. The engine counts
      them as released when it is sent and as received when a role takes it out of its inbox, and reports those that are lost.
    - `reads`: True if it carries weights of a shard at `version`: its receiver has then read this version, from which
      the staleness of its next gradient is counted.
    - `header`: the fields that say what the message is about. Only arrays in them count as payload.
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
    """worker -> server: the part of the worker's gradient that belongs to the shard.

    `values`: flat, the shard's size. `step`: the sender's number of its newest gradient in it; `count`: how many
    gradients it holds; `samples`: how many examples. `generation`, `version`: of the weights it was computed on.
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
        """The (generation, version) of each shard: here, of one that holds the whole model."""
        return ((self.generation, self.version),)

    @property
    def clocks(self) -> tuple[tuple[int, ...], ...]:
        """For each shard the gradients that its part holds; empty, except of `CentreWeights`."""
        return ()


@dataclass(frozen=True)
class Position(Push):
    """worker -> centre: the part of the worker's weights that belongs to the shard. The rest as in `Push`: `step` and `count`
    name the gradients that have moved the weights since the last position.

    `clock`: which gradients of other lives the values hold, because a centre's weights held them: a life, the last step of
    that life, and so on, two numbers a life (a life is a role and an incarnation: their number is role + incarnation x
    roles). Of its own life they hold all gradients up to `step`.
    """

    clock: tuple[int, ...] = ()
    header: ClassVar[tuple[str, ...]] = (*Push.header, "clock")


@dataclass(frozen=True)
class CentreWeights(Weights):
    """centre -> worker: as `Weights`. `clock`: which gradients the values hold, as in `Position`, of all lives."""

    clock: tuple[int, ...] = ()
    header: ClassVar[tuple[str, ...]] = (*Weights.header, "clock")

    @property
    def clocks(self) -> tuple[tuple[int, ...], ...]:
        """Of each shard which gradients its part holds: here, of one that holds the whole model."""
        return (self.clock,)


@dataclass(frozen=True)
class Ack(Message):
    """server -> worker: the push with the gradient `step` has been applied."""

    step: int
    header: ClassVar[tuple[str, ...]] = ("step",)


@dataclass(frozen=True)
class Chunk(Message):
    """peer -> peer: one piece of a collective. `tag` numbers the collective, `part` the piece."""

    values: np.ndarray
    tag: int
    part: int
    header: ClassVar[tuple[str, ...]] = ("tag", "part")


@dataclass(frozen=True)
class Mix(Message):
    """replica -> replica: the sender's parameters, to be averaged with the receiver's.

    `clock`: the last step of every worker, in their order, whose gradient they hold (-1: none).
    """

    values: np.ndarray
    clock: tuple[int, ...]
    header: ClassVar[tuple[str, ...]] = ("clock",)


@dataclass(frozen=True)
class SnapshotRequest(Message):
    """chief -> shard, answered by the engine: send a `Snapshot` of the weights.

    At the first multiple of `eval_every` from version `at` on, or when the budget is used up; `final`: as they are now.
    """

    at: int = 0
    final: bool = False
    header: ClassVar[tuple[str, ...]] = ("at", "final")


@dataclass(frozen=True)
class Snapshot(Message):
    """shard -> chief, sent by the engine: weights to evaluate. `final` answers a final look.

    `ids`: of a shard that owns rows of a table, the rows that `values` begin with. `held`: which gradients the values hold, as
    JSON (`AppliedLog.held`, and the time in ns), where the shard may be lost before it reports them.
    """

    values: np.ndarray
    shard: int
    version: int
    samples: int
    final: bool = False
    ids: np.ndarray | None = None
    held: str = ""
    header: ClassVar[tuple[str, ...]] = ("shard", "version", "samples", "final", "ids", "held")


@dataclass(frozen=True)
class Joined(Message):
    """engine -> role: `name` has joined the run, or is back in its next `incarnation`.

    What was sent to its earlier incarnation and has not been answered is lost. A role that takes this message out of its inbox
    sends it again; what it sends from now on goes to the new incarnation. Sent only in strategies that list this kind.
    """

    name: str = ""
    header: ClassVar[tuple[str, ...]] = ("name",)


@dataclass(frozen=True)
class Left(Message):
    """engine -> role: `name` has left the run, or was lost and is not waited for: it is not a peer any more.

    Sent only in strategies that list this kind.
    """

    name: str = ""
    header: ClassVar[tuple[str, ...]] = ("name",)


_FIELDS: dict[type, tuple[str, ...]] = {}  # a cache of what the classes themselves say; never holds a run's state
_PLAIN = (int, float, str, bool, type(None))
_LEAST, _MOST = -(2**63), 2**63 - 1
_NUMBERS = "biufc"  # kinds of dtype


def field_names(kind: type[Message]) -> tuple[str, ...]:
    """The fields that travel, in order (`sender` and `incarnation` travel in the frame's header)."""
    names = _FIELDS.get(kind)
    if names is None:
        names = _FIELDS[kind] = tuple(f.name for f in dataclasses.fields(kind) if f.init)
    return names


def loose_bytes(message: Message) -> int:
    """The bytes of a message's payload that are in no array: see the beginning of this module."""
    kind: Any = message.__class__
    have, size = message.__dict__, 0
    for name in _counted(kind):
        value = have[name]
        if value.__class__ is tuple:
            size += sum(map(_loose, value))
        elif value.__class__ is not np.ndarray:
            size += _loose(value)
        elif value.ndim > 2 and not value.size:
            size += 8 * value.ndim
    return size


@cache
def _counted(kind: Any) -> tuple[str, ...]:
    """The fields of a kind of message that are payload."""
    return tuple(name for name in field_names(kind) if name not in kind.header)


def _loose(value: Any) -> int:
    if isinstance(value, tuple):
        return 1 + sum(map(_loose, value))
    if isinstance(value, np.ndarray):
        return 0 if value.size else 8 * value.ndim  # what it says is its shape
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    return 1 if value is None or isinstance(value, (bool, np.bool_)) else 8


def weightless(kind: type[Message], fields: dict[str, Any]) -> Any:
    """A message of a timing-only run, made by labkit itself: numbers, and arrays without memory.

    There is nothing in it to check or to copy, so it says, beside its `fields`, how many bytes it stands for
    (`weightless`). It takes 0.35 us where a frozen dataclass's own `__init__` takes 0.7 us (`timeit`).
    """
    made = object.__new__(kind)
    made.__dict__.update(fields)
    return made


def own_copy(message: Message, sender: str, incarnation: int = 0) -> tuple[Message, int]:
    """(a message from an `incarnation` of `sender` that shares no memory with the sender's, the bytes of its payload).

    A message is frozen, so one without memory of its own to share is its own copy. `RoleError` names the field that
    holds something else than data.
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
            # Arrays of a timing-only run have zero strides and no memory of their own: nothing can be aliased.
            if value.strides != (0,):
                own[name] = value.copy() if value.dtype.kind in _NUMBERS else _copy_value(kind, name, value)
        else:
            own[name] = copied = _copy_value(kind, name, value)
            size += _array_bytes(copied)
    size += loose_bytes(message)
    if not own and not incarnation and have.setdefault("sender", sender) == sender:
        return message, size
    twin = object.__new__(kind)
    twin.__dict__.update(have, sender=sender, incarnation=incarnation, **own)
    return twin, size


def payload_bytes(message: Message) -> int:
    """The bytes of a message's payload."""
    size: int | None = message.__dict__.get("weightless")
    if size is None:
        have = message.__dict__
        size = sum(_array_bytes(have[name]) for name in field_names(message.__class__)) + loose_bytes(message)
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
            return value  # as a gossip's clock: one number a worker
        return tuple(_copy_value(kind, name, item) for item in value)
    hint = " Is an `await` missing?" if hasattr(value, "__await__") or hasattr(value, "send") else ""
    raise RoleError(
        f"{kind.__name__}.{name} holds a {type(value).__name__}; a message is made of numbers, strings, booleans, None, "
        f"NumPy arrays and tuples of them.{hint}"
    )
