"""The closed set of things a role can wait for. This is the only place where a role's coroutine yields.

A role is driven by hand: the engine calls `coroutine.send(value)`, gets the next effect, performs it, and sends its
result in. An effect is a tuple whose first item is one of the four marks below; anything else that comes out of a
coroutine was awaited by mistake.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Generator
from typing import Any

__all__ = ["COMPUTE", "EFFECTS", "RECV", "SLEEP", "Posted", "compute", "is_effect", "recv", "sleep"]

COMPUTE = "compute"  # (COMPUTE, fn, args, cost, unless)
RECV = "recv"  # (RECV, kinds, timeout, sender)
SLEEP = "sleep"  # (SLEEP, seconds)
EFFECTS = (COMPUTE, RECV, SLEEP)


@types.coroutine
def compute(
    fn: Callable[..., Any], args: tuple[Any, ...], cost: float, unless: Any
) -> Generator[tuple[Any, ...], Any, Any]:
    """Run `fn(*args)`; the result comes back, or None if a message of kind `unless` came first."""
    return (yield (COMPUTE, fn, args, cost, unless))


@types.coroutine
def recv(kinds: tuple[type, ...], timeout: float | None, sender: str | None) -> Generator[tuple[Any, ...], Any, Any]:
    """The next message of these kinds (from `sender`), or None after `timeout` seconds."""
    return (yield (RECV, kinds, timeout, sender))


@types.coroutine
def sleep(seconds: float) -> Generator[tuple[Any, ...], Any, Any]:
    """Let `seconds` of engine time pass."""
    return (yield (SLEEP, seconds))


def is_effect(thing: Any) -> bool:
    """Whether a coroutine yielded one of ours."""
    return thing.__class__ is tuple and len(thing) > 1 and thing[0] in EFFECTS


class Posted:
    """What a post (`ctx.send`, `ctx.note`, `ctx.save`) returns. Awaiting it is a mistake that gets its own sentence."""

    def __init__(self, name: str):
        self.name = name

    def __await__(self) -> Generator[Any, Any, Any]:
        raise TypeError(
            f"ctx.{self.name} never waits, so it is not awaited: write `ctx.{self.name}(...)` without `await`."
        )
