"""The lifecycle of one role: states, triggers and the table of transitions.

A role has incarnations, of which at most one is present. The table lists the triggers that are possible in each state; any
other is a bug in labkit and raises `InvalidTransition`. Late and duplicate events are filtered out before the table is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

__all__ = ["PARTICIPATING", "PRESENT", "SOUGHT", "TRANSITIONS", "InvalidTransition", "State", "Trigger", "next_state"]


class State(StrEnum):
    """The state of a role. In the first three the role does not take part in the run (yet)."""

    OUTSIDE = "outside"  # has not joined, or has left; not waited for
    INVITED = "invited"  # about to join: a placement is requested for the incarnation
    JOINING = "joining"  # the incarnation is starting; the role takes part once it is up
    STARTING = "starting"  # the next incarnation is starting
    HERE = "here"  # the incarnation is up
    LOST = "lost"  # the incarnation was lost; a placement is requested for the next one
    AWAY = "away"  # the incarnation was lost; no placement is requested until `Trigger.WANT`
    ENDED = "ended"  # the incarnation ended for a group restart; the next one starts with the group, in the same place


class Trigger(StrEnum):
    """An event in the lifecycle of a role."""

    INVITE = "invite"  # asked to join
    WITHDRAW = "withdraw"  # the invitation is cancelled
    PLACE = "place"  # a place was found, in which the next incarnation starts
    UP = "up"  # the incarnation has started and accepts connections
    LOSE = "lose"  # the incarnation is declared lost
    LOSE_AND_KEEP_AWAY = "lose and keep away"  # declared lost, without an automatic restart
    KEEP_AWAY = "keep away"  # the automatic restart of a lost role is cancelled
    WANT = "want back"  # a restart is requested after all
    END = "end"  # the incarnation has handed over its state for a group restart
    RECALL = "recall"  # a group restart starts over: the incarnation that was about to begin ends
    UNPLACE = "unplace"  # the place that was reserved for the next incarnation is gone
    LEAVE = "leave"  # the role leaves the run


TRANSITIONS: Mapping[State, Mapping[Trigger, State]] = MappingProxyType(
    {
        State.OUTSIDE: {Trigger.INVITE: State.INVITED},
        State.INVITED: {Trigger.PLACE: State.JOINING, Trigger.WITHDRAW: State.OUTSIDE},
        State.JOINING: {
            Trigger.UP: State.HERE,
            Trigger.LOSE: State.INVITED,
            Trigger.LOSE_AND_KEEP_AWAY: State.INVITED,  # a role that has not joined leaves instead
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

PRESENT = frozenset({State.JOINING, State.STARTING, State.HERE})  # an incarnation is running or starting
PARTICIPATING = frozenset(State) - {State.OUTSIDE, State.INVITED, State.JOINING}
SOUGHT = frozenset({State.INVITED, State.LOST})  # a placement is requested for the next incarnation


class InvalidTransition(RuntimeError):
    """A trigger that is not possible in the state of a role: a bug in labkit."""

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
