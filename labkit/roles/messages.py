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


@dataclass(frozen=True)
class Message:
    """The base class of every message.

    A message is a frozen dataclass made of numbers, strings, booleans, None, arrays, and tuples of them. The receiver gets a
    copy. Two messages are equal if kind, sender, incarnation and content are.

    Attributes
    ----------
    sender : str
        The name of the role that has sent the message. The engine sets it on delivery.
    incarnation : int
        The incarnation of the sender. The engine sets it on delivery.
    carries : bool
        Whether the message carries gradients (a class attribute). Their numbers are `step - count + 1` to `step` of the sender.
        The engine counts the gradients as released when the message is sent, and as received when a role takes the message from
        its inbox. It reports gradients that are lost.
    reads : bool
        Whether the message carries weights of a shard at `version` (a class attribute). The receiver has then read this version;
        the staleness of its next gradient is counted from it.
    header : tuple of str
        The metadata fields (a class attribute). Only arrays in them count as payload.

    See Also
    --------
    Context.send : Sends a message.
    Context.recv : Receives messages by kind.

    Examples
    --------
    A kind of message is a subclass. A strategy that sends it lists it in `messages`.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Loss(lk.Message):
    ...     value: float
    >>> Loss(0.25)
    Loss(sender='', incarnation=0, value=0.25)
    """

    sender: str = field(default="", init=False)
    incarnation: int = field(default=0, init=False)
    carries: ClassVar[bool] = False
    reads: ClassVar[bool] = False
    header: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        if "__eq__" not in cls.__dict__:
            setattr(cls, "__eq__", Message.__eq__)  # noqa: B010 - that of a dataclass fails on arrays

    def __eq__(self, other: object) -> bool:
        """Return whether the messages are of the same kind, sender and incarnation, and have the same content."""
        if other.__class__ is not self.__class__:
            return NotImplemented
        names = ("sender", "incarnation", *field_names(self.__class__))
        return all(_equal(getattr(self, name), getattr(other, name)) for name in names)


@dataclass(frozen=True)
class Pull(Message):
    """A request for the weights of a shard, from a worker to a server.

    See Also
    --------
    Weights : The reply.
    pull : Sends a `Pull` to every server, and waits for the replies.

    Examples
    --------
    >>> lk.Pull()
    Pull(sender='', incarnation=0)
    """


@dataclass(frozen=True)
class Push(Message):
    """The part of a gradient that belongs to one shard, from a worker to a server.

    Parameters
    ----------
    values : ndarray, shape (n,)
        The part of the gradient; n is the size of the shard.
    step : int
        The number of the newest gradient in the push, as counted by the sender from 0.
    generation : int
        The generation of the weights on which the gradient was computed.
    version : int
        The version of the weights on which the gradient was computed.
    count : int, default: 1
        The number of gradients in the push.
    samples : int, default: 0
        The number of examples from which the gradients were computed.

    See Also
    --------
    Gradient.push : Makes the push for a shard.
    push, push_pull, post : Send pushes to all servers.

    Examples
    --------
    >>> lk.Push(np.zeros(2), step=7, generation=0, version=5).carries
    True
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
    """The weights of a shard, from a server to a worker.

    Parameters
    ----------
    values : ndarray, shape (n,)
        The weights of the shard, flat.
    shard : int
        The number of the shard.
    generation : int
        The generation of the weights. A restore of the shard starts a new one.
    version : int
        The number of updates that the weights contain.

    See Also
    --------
    pull, push_pull : Return the weights of all shards.

    Examples
    --------
    >>> lk.Weights(np.zeros(2), shard=0, generation=0, version=5).read
    ((0, 5),)
    """

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
    """The acknowledgement of a push, from a server to a worker.

    Parameters
    ----------
    step : int
        The number of the newest gradient of the push, which has been applied.

    See Also
    --------
    push : Waits for the acknowledgements of all servers.

    Examples
    --------
    >>> lk.Ack(step=7).step
    7
    """

    step: int
    header: ClassVar[tuple[str, ...]] = ("step",)


@dataclass(frozen=True)
class Chunk(Message):
    """One piece of a vector, from a member of a collective to another.

    Parameters
    ----------
    values : ndarray
        The piece.
    tag : int
        The number of the step of the collective.
    part : int
        The number of the piece.

    See Also
    --------
    all_reduce, all_gather, reduce_scatter, broadcast, barrier : The collectives.

    Examples
    --------
    >>> lk.Chunk(np.ones(3), tag=0, part=1).part
    1
    """

    values: np.ndarray
    tag: int
    part: int
    header: ClassVar[tuple[str, ...]] = ("tag", "part")


@dataclass(frozen=True)
class Mix(Message):
    """The parameters of a replica, to be averaged with those of the receiver.

    Parameters
    ----------
    values : ndarray, shape (n,)
        The parameters, flat.
    clock : tuple of int
        For each worker, in order, the last step whose gradient the parameters contain (-1: none).

    See Also
    --------
    DPSGD, ADPSGD : The strategies that send it.

    Examples
    --------
    >>> lk.Mix(np.zeros(2), clock=(4, 3, -1)).clock
    (4, 3, -1)
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
    """The notification that a role has joined the run, or was restarted with its next incarnation.

    It is sent by the engine, in strategies whose `messages` contain it. Messages to the earlier incarnation that it has not
    answered are lost: the receiver of this message retransmits them. Later messages are addressed to the new incarnation.

    Parameters
    ----------
    name : str, default: ''
        The name of the role.

    See Also
    --------
    Left : The notification that a role is no longer a peer.

    Examples
    --------
    >>> lk.Joined("worker-2").name
    'worker-2'
    """

    name: str = ""
    header: ClassVar[tuple[str, ...]] = ("name",)


@dataclass(frozen=True)
class Left(Message):
    """The notification that a role is no longer a peer.

    The role has left the run, or was lost and is not waited for. The message is sent by the engine, in strategies whose
    `messages` contain it.

    Parameters
    ----------
    name : str, default: ''
        The name of the role.

    See Also
    --------
    Joined : The notification that a role has joined.

    Examples
    --------
    >>> lk.Left("worker-2").name
    'worker-2'
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
            size += 8 * len(value) if _is_clock(value) else sum(map(_plain_bytes, value))
        elif value.__class__ is not np.ndarray:
            size += _plain_bytes(value)
        elif value.ndim > 2 and not value.size:
            size += 8 * value.ndim
    return size


@cache
def _payload_fields(kind: Any) -> tuple[str, ...]:
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
            size += 0 if _is_clock(copied) else _array_bytes(copied)
    size += bytes_outside_arrays(message)
    if not own and not incarnation and have.setdefault("sender", sender) == sender:
        return message, size
    copy = object.__new__(kind)
    copy.__dict__.update(have, sender=sender, incarnation=incarnation, **own)
    return copy, size


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    return one is other or (np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other)


def payload_bytes(message: Message) -> int:
    size: int | None = message.__dict__.get("timing_only_bytes")
    if size is None:
        have = message.__dict__
        size = sum(_array_bytes(have[name]) for name in field_names(message.__class__)) + bytes_outside_arrays(message)
    return size


def _is_clock(value: Any) -> bool:
    """Whether a field of a message is a tuple of integers. Vector clocks have one for each worker, so these have fast paths."""
    return value.__class__ is tuple and set(map(type, value)) == {int}


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
        if _is_clock(value) and min(value) >= _LEAST and max(value) <= _MOST:
            return value
        return tuple(_copy_value(kind, name, item) for item in value)
    hint = " Is an `await` missing?" if hasattr(value, "__await__") or hasattr(value, "send") else ""
    raise RoleError(
        f"{kind.__name__}.{name} holds a {type(value).__name__}; a message is made of numbers, strings, booleans, None, "
        f"NumPy arrays and tuples of them.{hint}"
    )
