"""The closed set of things a role can wait for. A role's coroutine yields here, and in `context.Inbox`, which is `recv`
for an `async for`; nowhere else.

A role is driven by hand: the engine calls `coroutine.send(value)`, gets the next effect, performs it, and sends its
result in. An effect is a tuple whose first item is one of the three marks below; anything else that comes out of a
coroutine was awaited by mistake.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Generator
from typing import Any

__all__ = ["COMPUTE", "RECV", "SLEEP", "Posted", "compute", "recv", "sleep"]

COMPUTE = "compute"  # (COMPUTE, fn, args, cost, unless)
RECV = "recv"  # (RECV, kinds, timeout, sender)
SLEEP = "sleep"  # (SLEEP, seconds)


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


class Posted:
    """What a post (`ctx.send`, `ctx.note`, `ctx.save`) returns. Awaiting it is a mistake that gets its own sentence."""

    def __init__(self, name: str):
        self.name = name

    def __await__(self) -> Generator[Any, Any, Any]:
        raise TypeError(
            f"ctx.{self.name} never waits, so it is not awaited: write `ctx.{self.name}(...)` without `await`."
        )
