"""Tables of transitions: which trigger is possible in which state, and the state that follows.

A trigger that the table does not list is a bug in labkit and raises `InvalidTransition`. Late and duplicate events are
removed before a table is used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

S = TypeVar("S", bound=StrEnum)
T = TypeVar("T", bound=StrEnum)
LAST = 20  # number of events in a story


class InvalidTransition(RuntimeError):
    """A trigger that is not possible in a state. `subject`: what is in this state. `story`: its last events, oldest first."""

    def __init__(
        self, subject: str, state: StrEnum, trigger: StrEnum, allowed: tuple[StrEnum, ...], story: tuple[str, ...]
    ):
        super().__init__(subject, state, trigger, allowed, story)
        self.subject, self.state, self.trigger, self.allowed, self.story = subject, state, trigger, allowed, story

    def __str__(self) -> str:
        possible = ", ".join(repr(str(one)) for one in self.allowed) or "none"
        return (
            f"{self.subject} is {str(self.state) or 'idle'}, where {str(self.trigger)!r} is not possible; possible are "
            f"{possible}. Its last events: {'; '.join(self.story) or 'none'}."
        )


def new_story() -> deque[str]:
    """Return a story without events."""
    return deque(maxlen=LAST)


def next_state(
    table: Mapping[S, Mapping[T, S]], subject: str, state: S, trigger: T, story: deque[str], why: str = ""
) -> S:
    """Return the state of `subject` after `trigger`, which is appended to its `story` together with the reason.

    Raises `InvalidTransition` if the table does not list it.
    """
    after = table[state].get(trigger)
    if after is None:
        raise InvalidTransition(subject, state, trigger, tuple(table[state]), tuple(story))
    story.append(f"{trigger} ({why})" if why else str(trigger))
    return after
