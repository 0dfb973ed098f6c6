"""The lifecycle of one role: its states, what moves it from one to another, and nothing else.

A role has incarnations, of which at most one is present. The table says what may happen to the role in each state; what
it does not list is a mistake inside labkit, and raises `InvalidTransition`. Whether an event may be late or come twice is
decided before the table is asked: the table knows no events that do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

__all__ = ["PARTICIPATING", "PRESENT", "SOUGHT", "TRANSITIONS", "InvalidTransition", "State", "Trigger", "next_state"]


class State(StrEnum):
    """Where a role stands. The first three are of a role that takes no part in the run (yet)."""

    OUTSIDE = "outside"  # it has not joined, or has left; nothing waits for it
    INVITED = "invited"  # it is to join: a place is sought for its incarnation
    JOINING = "joining"  # its incarnation is starting; it takes part when that is up
    STARTING = "starting"  # its next incarnation is starting
    HERE = "here"  # its incarnation is up
    LOST = "lost"  # its incarnation was lost; a place is sought for the next one
    AWAY = "away"  # the same, and no place is sought until the role is asked for
    ENDED = "ended"  # its incarnation ended for a group restart; the next one starts with the group, in the same place


class Trigger(StrEnum):
    """What happens to a role."""

    INVITE = "invite"  # it shall join
    WITHDRAW = "withdraw"  # it shall not join after all
    PLACE = "place"  # its next incarnation starts in a place that was found
    UP = "up"  # its incarnation has started, and listens
    LOSE = "lose"  # its incarnation is declared lost
    LOSE_AND_KEEP_AWAY = "lose and keep away"  # the same, and no incarnation is to follow
    KEEP_AWAY = "keep away"  # no incarnation is to follow the one that was lost
    WANT = "want back"  # a next incarnation is to follow after all
    END = "end"  # its incarnation has handed over its state for a group restart
    RECALL = "recall"  # a group restart begins anew: the incarnation that was about to begin ends
    UNPLACE = "unplace"  # the place that was kept for its next incarnation is gone
    LEAVE = "leave"  # it takes part no more


TRANSITIONS: Mapping[State, Mapping[Trigger, State]] = MappingProxyType(
    {
        State.OUTSIDE: {Trigger.INVITE: State.INVITED},
        State.INVITED: {Trigger.PLACE: State.JOINING, Trigger.WITHDRAW: State.OUTSIDE},
        State.JOINING: {
            Trigger.UP: State.HERE,
            Trigger.LOSE: State.INVITED,
            Trigger.LOSE_AND_KEEP_AWAY: State.INVITED,  # to keep a role away that has not joined is to let it leave
            Trigger.RECALL: State.INVITED,
        },
        State.STARTING: {
            Trigger.UP: State.HERE,
            Trigger.LOSE: State.LOST,
            Trigger.LOSE_AND_KEEP_AWAY: State.AWAY,
            Trigger.RECALL: State.ENDED,
        },
        State.HERE: {
            Trigger.LOSE: State.LOST,
            Trigger.LOSE_AND_KEEP_AWAY: State.AWAY,
            Trigger.END: State.ENDED,
            Trigger.RECALL: State.ENDED,
            Trigger.LEAVE: State.OUTSIDE,
        },
        State.LOST: {Trigger.PLACE: State.STARTING, Trigger.KEEP_AWAY: State.AWAY, Trigger.LEAVE: State.OUTSIDE},
        State.AWAY: {Trigger.WANT: State.LOST, Trigger.LEAVE: State.OUTSIDE},
        State.ENDED: {
            Trigger.PLACE: State.STARTING,
            Trigger.UNPLACE: State.LOST,
            Trigger.KEEP_AWAY: State.AWAY,
            Trigger.LEAVE: State.OUTSIDE,
        },
    }
)

PRESENT = frozenset({State.JOINING, State.STARTING, State.HERE})  # an incarnation runs, or is about to
PARTICIPATING = frozenset(State) - {State.OUTSIDE, State.INVITED, State.JOINING}
SOUGHT = frozenset({State.INVITED, State.LOST})  # a place is sought for the next incarnation


class InvalidTransition(RuntimeError):
    """Something happened to a role that cannot happen in its state: a mistake inside labkit."""

    def __init__(self, role: str, state: State, trigger: Trigger):
        allowed = ", ".join(repr(str(one)) for one in TRANSITIONS[state])
        super().__init__(f"{role} is {state}, where {str(trigger)!r} is not possible; possible are {allowed}")
        self.role, self.state, self.trigger = role, state, trigger

    def __reduce__(self) -> tuple[type[InvalidTransition], tuple[str, State, Trigger]]:
        return type(self), (self.role, self.state, self.trigger)


def next_state(role: str, state: State, trigger: Trigger) -> State:
    """The state of `role` after `trigger`; `InvalidTransition` if the table does not list it."""
    try:
        return TRANSITIONS[state][trigger]
    except KeyError:
        raise InvalidTransition(role, state, trigger) from None
