"""What both engines book when a message leaves, and what they refuse to send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import RoleError
from ..trace.recorder import Recorder
from ..trace.vocabulary import EVERYONE, UNUSED

__all__ = ["hand_on", "refused"]


def hand_on(recorder: Recorder, now: int, message: Any) -> None:
    """Book that gradients up to `message.step` have left their worker; those it skipped over will never be used."""
    counters = recorder.counters
    first = message.step - message.count + 1
    if first > counters.handed:
        recorder.drop(EVERYONE, now, recorder.role, recorder.incarnation, first - 1, first - counters.handed, UNUSED)
    if message.step >= counters.handed:
        counters.handed = message.step + 1


def refused(sender: str, to: str, message: Any, known: Mapping[str, Any], strategy: Any) -> RoleError:
    """Why `sender` may not say `message` to `to`."""
    if to not in known:
        return RoleError(
            f"{sender} sends to {to!r}; there is no such role in this run (there is {', '.join(list(known)[:8])})."
        )
    if hasattr(message, "send") or hasattr(message, "__await__"):
        return RoleError(f"{sender} sends a {type(message).__name__}, not a message: is an `await` missing?")
    listed = ", ".join(k.__name__ for k in strategy.messages)
    return RoleError(
        f"{sender} sends {type(message).__name__}, which {strategy.name} does not list: messages = ({listed})."
    )
