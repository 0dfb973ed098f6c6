"""The closed set of effects that a role can await. This is the only module whose functions yield to an engine.

A role is a coroutine that an engine drives: `coroutine.send(value)` returns the next effect; the engine performs the effect and
sends the result into the coroutine. An effect is a tuple whose first item is one of the tags below. If a coroutine yields
anything else, this is an error (`engines.error_texts.foreign_effect`).

`compute`, `recv`, `sleep` and `inbox` are methods of `Context`. Only graded code awaits `call`. The grader performs it and
forwards the other effects of the graded code to the engine.

A role with tasks is still one coroutine for the engine: `tasks.RoleTasks` drives the coroutines of the tasks and combines what
they await into one effect, `SELECT`. `OPEN` is the effect of a role that begins to have tasks. `GET` and `JOIN` are performed by
`RoleTasks` and never reach an engine.

What happens to a role that waits in an effect, on both engines:

- *A kill*, and any other loss. The effect has no result: the coroutine is not resumed. Messages in the inbox and in flight to the
  role are lost. The next incarnation is a new coroutine.
- *A freeze*. After the thaw the same incarnation goes on, and receives the messages that have arrived meanwhile; if it was
  declared lost, it has ended as by a kill. In virtual time the rest of a duration or timeout follows the thaw. On processes
  engine time does not wait for a frozen process: what was due meanwhile is due at the thaw.
- *A pause*, also that after a single step. Engine time stands still, so durations and timeouts are not shortened. Messages that
  arrive are received after the pause. On processes a function that is being called returns first.
- *A group restart*, and a worker that leaves. As by a kill, but the engine takes the last state and the account of the
  gradients. On processes a function that is being called returns first; its result is dropped.
- *The end of the run*. No role is resumed, and that is no error. Only the chief goes on: its `recv` returns None, so that it
  makes the last evaluation.

A coroutine that is not resumed is closed: its `finally` blocks run, except by a kill on processes. Their posts have no effect.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator, Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from ..errors import RoleError, shown
from .messages import Message

COMPUTE = "compute"  # (COMPUTE, function, arguments, cost, unless)
RECV = "recv"  # (RECV, kinds, timeout, sender)
SLEEP = "sleep"  # (SLEEP, seconds)
CALL = "call"  # (CALL, name, arguments, keyword arguments)
SELECT = (
    "select"  # (SELECT, a `TaskWork` or None, list of `TaskWait`); returns the one that is over, None if interrupted
)
OPEN = "open"  # (OPEN, task group)
GET = "get"  # (GET, queue)
JOIN = "join"  # (JOIN, task group)

Effect = tuple[Any, ...]
T = TypeVar("T")
M = TypeVar("M", bound=Message)
A = TypeVar("A", bound=Message)
B = TypeVar("B", bound=Message)
C = TypeVar("C", bound=Message)
D = TypeVar("D", bound=Message)

# In a `SELECT` effect, `TaskWork` is the work that is in progress or has to begin. Work in progress that is not named in the next
# `SELECT` is cancelled.


class TaskWork:
    """A `ctx.compute` of a task. An engine sets `begun` when it begins the work, and `finished` and `result` or `error` at its
    end. The result of work that was cancelled (`unless`) is None.
    """

    __slots__ = ("args", "begun", "cost", "error", "finished", "fn", "result", "task", "unless")

    def __init__(self, task: Any, fn: Callable[..., Any], args: tuple[Any, ...], cost: float, unless: Any):
        self.task, self.fn, self.args, self.cost, self.unless = task, fn, args, cost, unless
        self.begun = self.finished = False
        self.result: Any = None
        self.error: BaseException | None = None


class TaskWait:
    """A `ctx.recv` of a task; without `kinds` a `ctx.sleep`. `timeout`: seconds, or None. An engine sets `until`, the end of the
    timeout in ns of engine time (-1: not set yet), and `result`, the message; None after the timeout.
    """

    __slots__ = ("kinds", "result", "sender", "tag", "task", "timeout", "until")

    error = None

    def __init__(
        self, task: Any, kinds: tuple[type, ...], timeout: float | None, sender: str | None = None, tag: int | None = None
    ):  # fmt: skip
        self.task, self.kinds, self.timeout, self.sender, self.tag = task, kinds, timeout, sender, tag
        self.until = -1
        self.result: Any = None

    def accepts(self, message: Any) -> bool:
        """Return whether it waits for `message`: by its kind, sender and tag."""
        return (
            type(message) in self.kinds
            and (self.sender is None or message.sender == self.sender)
            and (self.tag is None or message.tag == self.tag)
        )


LONGEST = 1e9  # seconds, and times the usual cost: engines count nanoseconds in 64 bits


@overload
def compute(
    ctx: Any, fn: Callable[..., T], *args: Any, cost: float = 1.0, unless: None = None
) -> Coroutine[Effect, Any, T]: ...
@overload
def compute(
    ctx: Any, fn: Callable[..., T], *args: Any, cost: float = 1.0, unless: type[Message]
) -> Coroutine[Effect, Any, T | None]: ...
@types.coroutine
def compute(
    ctx: Any, fn: Callable[..., Any], *args: Any, cost: float = 1.0, unless: type[Message] | None = None
) -> Generator[Effect, Any, Any]:
    """Run a function and return its result: `await ctx.compute(fn, *args)`.

    On processes the duration of the call is measured, and paced if the cluster has a pace. In virtual time the duration is
    `cost` times a draw from the distribution for this kind of work.

    In virtual time the function is called when its duration has passed, so work that is interrupted by a kill or a restart was
    not done. On processes it is called first, and the rest of the pace is a wait: the last state of a shard may contain it.

    Parameters
    ----------
    ctx : Context
        The context, of which this is a method.
    fn : callable
        The function, as `model.gradient` or `shard.apply`.
    *args : object
        Its arguments.
    cost : float, default: 1.0
        The duration in virtual time, relative to the usual one. From 0 to 10**9.
    unless : type, optional
        A kind of message. If such a message arrives before the work is done, the work is cancelled: in virtual time at once, on
        processes when the call returns, whose result is discarded.

    Returns
    -------
    object
        The result of the function; None if the work was cancelled.

    Raises
    ------
    RoleError
        If `cost` is not a number from 0 to 10**9, or if `unless` is not a class.
    """
    if cost.__class__ is not float or cost != 1.0 or unless is not None:
        _check_work(cost, unless)
    return (yield (COMPUTE, fn, args, cost, unless))


# Type checkers know the union of up to four kinds; of more kinds they know the common base class.
@overload
def recv(
    ctx: Any, a: type[A], /, *, timeout: None = None, sender: str | None = None, tag: int | None = None
) -> Coroutine[Effect, Any, A]: ...
@overload
def recv(
    ctx: Any, a: type[A], /, *, timeout: float | None, sender: str | None = None, tag: int | None = None
) -> Coroutine[Effect, Any, A | None]: ...
@overload
def recv(
    ctx: Any, a: type[A], b: type[B], /, *, timeout: None = None, sender: str | None = None, tag: int | None = None
) -> Coroutine[Effect, Any, A | B]: ...
@overload
def recv(
    ctx: Any, a: type[A], b: type[B], /, *, timeout: float | None, sender: str | None = None, tag: int | None = None
) -> Coroutine[Effect, Any, A | B | None]: ...
@overload
def recv(
    ctx: Any,
    a: type[A],
    b: type[B],
    c: type[C],
    /,
    *,
    timeout: None = None,
    sender: str | None = None,
    tag: int | None = None,
) -> Coroutine[Effect, Any, A | B | C]: ...
@overload
def recv(
    ctx: Any,
    a: type[A],
    b: type[B],
    c: type[C],
    /,
    *,
    timeout: float | None,
    sender: str | None = None,
    tag: int | None = None,
) -> Coroutine[Effect, Any, A | B | C | None]: ...
@overload
def recv(
    ctx: Any,
    a: type[A],
    b: type[B],
    c: type[C],
    d: type[D],
    /,
    *,
    timeout: None = None,
    sender: str | None = None,
    tag: int | None = None,
) -> Coroutine[Effect, Any, A | B | C | D]: ...
@overload
def recv(
    ctx: Any,
    a: type[A],
    b: type[B],
    c: type[C],
    d: type[D],
    /,
    *,
    timeout: float | None,
    sender: str | None = None,
    tag: int | None = None,
) -> Coroutine[Effect, Any, A | B | C | D | None]: ...
@overload
def recv(
    ctx: Any, *kinds: type[M], timeout: None = None, sender: str | None = None, tag: int | None = None
) -> Coroutine[Effect, Any, M]: ...
@overload
def recv(
    ctx: Any, *kinds: type[M], timeout: float | None, sender: str | None = None, tag: int | None = None
) -> Coroutine[Effect, Any, M | None]: ...
@types.coroutine
def recv(
    ctx: Any, *kinds: type[Message], timeout: float | None = None, sender: str | None = None, tag: int | None = None
) -> Generator[Effect, Any, Any]:
    """Return the next message of some kinds, in order of arrival: `await ctx.recv(*kinds)`.

    Every link is first-in first-out. Messages of other kinds stay in the inbox.

    Parameters
    ----------
    ctx : Context
        The context, of which this is a method.
    *kinds : type
        The kinds of message.
    timeout : float, optional
        The longest time to wait, in seconds of engine time; 0 does not wait. None: no limit.
    sender : str, optional
        The name of the role whose messages are accepted. None: any role.
    tag : int, optional
        The tag of the messages that are accepted, for kinds with a field `tag`, as `Chunk`. None: any tag.

    Returns
    -------
    Message or None
        The message; None after the timeout.

    Raises
    ------
    RoleError
        If `kinds` are not classes, if `timeout` is neither None nor a number up to 10**9, or if a tag is given and is not an
        int or a kind has no field `tag`.
    """
    if not (0 < len(kinds) <= 2 and kinds[0].__class__ is kinds[-1].__class__ is type):  # fast path
        _check_kinds("recv", kinds)
    if timeout is not None:
        _check_seconds(timeout, "ctx.recv(timeout={})", "; None: no limit")
    if tag is not None:
        _check_tag(tag, kinds)
        wait = TaskWait(None, kinds, timeout, sender, tag)
        yield (SELECT, None, [wait])
        return wait.result
    return (yield (RECV, kinds, timeout, sender))


@types.coroutine
def sleep(ctx: Any, seconds: float) -> Generator[Effect, Any, None]:
    """Let engine time pass: `await ctx.sleep(seconds)`.

    Parameters
    ----------
    ctx : Context
        The context, of which this is a method.
    seconds : float
        The time, up to 10**9. Negative numbers mean no wait.

    Raises
    ------
    RoleError
        If `seconds` is not such a number.
    """
    _check_seconds(seconds, "ctx.sleep({})")
    yield (SLEEP, seconds)


class Inbox(Generic[M]):
    """An infinite asynchronous iterator over the messages of `kinds`, in order of arrival."""

    __slots__ = ("_effect",)

    def __init__(self, kinds: tuple[type[M], ...]):
        self._effect = (RECV, kinds, None, None)

    def __aiter__(self) -> Inbox[M]:
        return self

    @types.coroutine
    def __anext__(self) -> Generator[Effect, Any, M]:
        return (yield self._effect)


@overload
def inbox(ctx: Any, a: type[A], /) -> Inbox[A]: ...
@overload
def inbox(ctx: Any, a: type[A], b: type[B], /) -> Inbox[A | B]: ...
@overload
def inbox(ctx: Any, a: type[A], b: type[B], c: type[C], /) -> Inbox[A | B | C]: ...
@overload
def inbox(ctx: Any, a: type[A], b: type[B], c: type[C], d: type[D], /) -> Inbox[A | B | C | D]: ...
@overload
def inbox(ctx: Any, *kinds: type[M]) -> Inbox[M]: ...
def inbox(ctx: Any, *kinds: type[M]) -> Inbox[M]:
    """Return an infinite iterator over messages: `async for message in ctx.inbox(*kinds)`.

    Parameters
    ----------
    ctx : Context
        The context, of which this is a method.
    *kinds : type
        The kinds of message.

    Returns
    -------
    Inbox
        An asynchronous iterator over the messages of these kinds, in order of arrival.

    Raises
    ------
    RoleError
        If `kinds` are not classes.
    """
    _check_kinds("inbox", kinds)
    return Inbox(kinds)


@types.coroutine
def open_group(group: Any) -> Generator[Effect, Any, None]:
    """Begin the task group: see `tasks.TaskGroup`."""
    yield (OPEN, group)


@types.coroutine
def join(group: Any) -> Generator[Effect, Any, None]:
    """Wait until all tasks of the group have ended."""
    yield (JOIN, group)


@types.coroutine
def get(queue: Any) -> Generator[Effect, Any, Any]:
    """Return the next item of a queue between tasks: see `tasks.TaskQueue`."""
    return (yield (GET, queue))


@types.coroutine
def call(name: str, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Generator[Effect, Any, Any]:
    """Request the grader to call labkit's function `name`. No engine time passes. Engines raise an error for this effect."""
    return (yield (CALL, name, args, keywords))


def _check_kinds(method: str, kinds: tuple[Any, ...]) -> None:
    """Raise `RoleError` unless `kinds` are classes, at least one."""
    for kind in kinds:
        if kind.__class__ is not type:
            break
    else:
        if kinds:
            return
    given = ", ".join(repr(kind) for kind in kinds)
    raise RoleError(f"ctx.{method}({given}): name the kinds of message to wait for, as ctx.{method}(Push, Pull).")


def _check_seconds(seconds: Any, call: str, also: str = "") -> None:
    """Raise `RoleError` unless `seconds` is a number up to `LONGEST`. Negative numbers mean no wait."""
    kind = seconds.__class__
    if (kind is float or kind is int or _is_number(seconds)) and seconds <= LONGEST:
        return
    raise RoleError(f"{call.format(shown(seconds))}: give seconds, at most 1e9{also}.")


def _check_tag(tag: Any, kinds: tuple[Any, ...]) -> None:
    """Raise `RoleError` unless `tag` is an int and all `kinds` have tags."""
    if tag.__class__ is not int:
        raise RoleError(f"ctx.recv(tag={shown(tag)}): give an int, or None for any tag.")
    for kind in kinds:
        if "tag" not in getattr(kind, "__dataclass_fields__", ()):
            raise RoleError(f"ctx.recv({kind.__name__}, tag={tag}): a {kind.__name__} has no field `tag`.")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real)  # also of NumPy


def _check_work(cost: Any, unless: Any) -> None:
    """Raise `RoleError` unless `cost` is a number from 0 to `LONGEST`, and `unless` is a class or None."""
    if not (_is_number(cost) and 0 <= cost <= LONGEST):
        raise RoleError(f"ctx.compute(cost={shown(cost)}): give a number from 0 to 1e9; 1 is the usual cost.")
    if unless is not None and unless.__class__ is not type:
        raise RoleError(f"ctx.compute(unless={shown(unless)}): give a kind of message, as unless=Weights, or None.")


class Posted:
    """The result of a post (`ctx.send`, `ctx.note`, `ctx.save`). Awaiting it raises `TypeError` with an explanation."""

    def __init__(self, name: str):
        self.name = name

    if not TYPE_CHECKING:  # so that type checkers report an `await`, too

        def __await__(self) -> Generator[Any, Any, Any]:
            raise TypeError(
                f"ctx.{self.name} never waits, so it is not awaited: write `ctx.{self.name}(...)` without `await`."
            )
