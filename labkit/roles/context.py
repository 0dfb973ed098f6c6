"""`ctx`: the only door between a role and the world.

`await ctx.x(...)` is a trap: time may pass. Everything else is a post: it happens at once and never waits. Engines
derive from `Context` and fill in the posts; the traps are the same everywhere.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ..errors import RoleError
from . import effects
from .effects import Posted
from .messages import Message

__all__ = ["Context", "Inbox", "stream"]

SENT, NOTED, SAVED = Posted("send"), Posted("note"), Posted("save")
PURPOSES = {"role": 0, "batches": 1, "time": 2, "start": 3, "service": 4, "codec": 5, "network": 6, "preempt": 7}


def stream(
    seed: int, kind: str, index: int, purpose: str, incarnation: int = 0, more: Iterable[int] = ()
) -> np.random.Generator:
    """The random stream of one role for one purpose. It depends on nothing else: another worker changes no other
    stream. A role that was restarted does not repeat what it drew before. `more`: of what else it is for, in whole
    numbers (the other end of a link).
    """
    key = (*kind.encode(), 0, index, PURPOSES[purpose], *([incarnation] if incarnation else ()), *more)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


def check_kinds(asked: str, kinds: tuple[Any, ...]) -> None:
    """A role says which kinds of message it waits for: classes, at least one."""
    if len(kinds) == 1 and kinds[0].__class__ is type:  # nearly always, and asked before every message
        return
    if not kinds or not all(kind.__class__ is type for kind in kinds):
        given = ", ".join(repr(kind) for kind in kinds)
        raise RoleError(f"ctx.{asked}({given}): name the kinds of message to wait for, as ctx.{asked}(Push, Pull).")


class Inbox:
    """`async for message in ctx.inbox(Push, Pull)`: the messages of these kinds, in order of arrival, for ever."""

    __slots__ = ("_effect",)

    def __init__(self, kinds: tuple[type[Message], ...]):
        self._effect = (effects.RECV, kinds, None, None)

    def __aiter__(self) -> Inbox:
        return self

    @types.coroutine
    def __anext__(self) -> Generator[tuple[Any, ...], Any, Any]:
        return (yield self._effect)


class Context:
    """What a role can see and do. 13 names; there is no other way out.

    `name`: this role's name. `restored`: what this role saved before it was lost and restarted (None on a first start).
    """

    name: str
    restored: Any = None
    incarnation: int = 0

    def __init__(
        self, name: str, kind: str, index: int, seed: int, peers: Mapping[str, tuple[str, ...]],
        batches: Callable[[], Iterator[Any]] | None,
    ):  # fmt: skip
        self.name, self._kind, self._index, self._seed = name, kind, index, seed
        self._peers, self._batches = peers, batches
        self._rng: np.random.Generator | None = None

    # traps ------------------------------------------------------------------------------------------------------------

    def compute(self, fn: Callable[..., Any], *args: Any, cost: float = 1.0, unless: Any = None) -> Any:
        """`await`: run `fn(*args)`. Real: call, measure, pace. Simulated: charge the compute law, times `cost`.

        `unless`: a kind of message. When one arrives first the work is given up (simulated: at once; real: its result
        is discarded when it returns) and None comes back.
        """
        return effects.compute(fn, args, cost, unless)

    def recv(self, *kinds: type[Message], timeout: float | None = None, sender: str | None = None) -> Any:
        """`await`: the next message of these kinds (from `sender`) in order of arrival; None after `timeout` seconds.

        First-in first-out on every link. `timeout=0` looks without waiting.
        """
        check_kinds("recv", kinds)
        return effects.recv(kinds, timeout, sender)

    def sleep(self, seconds: float) -> Any:
        """`await`: let engine time pass."""
        return effects.sleep(seconds)

    def inbox(self, *kinds: type[Message]) -> Inbox:
        """`async for`: the messages of these kinds, for ever."""
        check_kinds("inbox", kinds)
        return Inbox(kinds)

    # posts ------------------------------------------------------------------------------------------------------------

    def send(self, to: str | Message, message: Message) -> Posted:
        """Say `message` to role `to`. Never waits, never aliases: its arrays may be overwritten right after.

        `to` may be a message: then this is the answer to it, and if its sender was restarted meanwhile, nobody gets it.
        """
        raise NotImplementedError  # the engine's

    def note(self, text: str, **numbers: float) -> Posted:
        """Write a remark into the trace."""
        raise NotImplementedError  # the engine's

    def save(self, state: Mapping[str, Any]) -> Posted:
        """Keep `state` (names to arrays and plain values) durably, for this role's next incarnation."""
        raise NotImplementedError  # the engine's

    @property
    def now(self) -> float:
        """Seconds of engine time since the run began."""
        raise NotImplementedError  # the engine's

    # plain ------------------------------------------------------------------------------------------------------------

    @property
    def rng(self) -> np.random.Generator:
        """This role's own random stream."""
        if self._rng is None:
            self._rng = stream(self._seed, self._kind, self._index, "role", self.incarnation)
        return self._rng

    def batches(self) -> Iterator[Any]:
        """This role's mini-batches, for ever: a plain `for`."""
        if self._batches is None:
            raise TypeError(f"{self.name} has no data: its strategy's layout gives {self._kind}s none.")
        return self._batches()

    def peers(self, role: str) -> tuple[str, ...]:
        """The names of all roles of a kind that take part now ("worker", "server", "chief"), in order.

        A role that was lost is among them as long as it is waited for.
        """
        return self._peers.get(role, ())
