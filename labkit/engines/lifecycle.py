"""The lifecycle of one role: states, triggers and the table of transitions.

A role has incarnations, of which at most one is present. For the use of the table see `transitions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class State(StrEnum):
    """The state of a role. In the first three states the role does not take part in the run (yet)."""

    OUTSIDE = "outside"  # has not joined, or has left; not waited for
    INVITED = "invited"  # about to join: a placement is requested for the incarnation
    JOINING = "joining"  # the incarnation is starting; the role takes part once it is up
    STARTING = "starting"  # the next incarnation is starting
    RUNNING = "running"  # the incarnation is up
    LOST = "lost"  # the incarnation was lost; a placement is requested for the next incarnation
    STOPPED = "stopped"  # the incarnation was lost; no placement is requested until `Trigger.RESTART`
    # the incarnation ended for a group restart; the next incarnation starts with the group, in the same place
    ENDED = "ended"


class Trigger(StrEnum):
    """An event in the lifecycle of a role."""

    INVITE = "invite"  # asked to join
    WITHDRAW = "withdraw"  # the invitation is cancelled
    PLACE = "place"  # a place was found, in which the next incarnation starts
    UP = "up"  # the incarnation has started and accepts connections
    LOSE = "lose"  # the incarnation is declared lost
    LOSE_WITHOUT_RESTART = "lose without restart"  # declared lost, without an automatic restart
    CANCEL_RESTART = "cancel restart"  # the automatic restart of a lost role is cancelled
    RESTART = "restart"  # a restart is requested for a role that would not restart automatically
    END = "end"  # the incarnation has sent its state for a group restart
    # a group restart starts over: the incarnation that was about to start ends
    REPEAT_GROUP_RESTART = "repeat group restart"
    LOSE_PLACEMENT = "lose placement"  # the place that was reserved for the next incarnation is gone
    LEAVE = "leave"  # the role leaves the run


TRANSITIONS: Mapping[State, Mapping[Trigger, State]] = MappingProxyType(
    {
        State.OUTSIDE: {Trigger.INVITE: State.INVITED},
        State.INVITED: {Trigger.PLACE: State.JOINING, Trigger.WITHDRAW: State.OUTSIDE},
        State.JOINING: {
            Trigger.UP: State.RUNNING,
            Trigger.LOSE: State.INVITED,
            Trigger.LOSE_WITHOUT_RESTART: State.INVITED,  # a role that has not joined leaves instead
            Trigger.REPEAT_GROUP_RESTART: State.INVITED,
        },
        State.STARTING: {
            Trigger.UP: State.RUNNING,
            Trigger.LOSE: State.LOST,
            Trigger.LOSE_WITHOUT_RESTART: State.STOPPED,
            Trigger.REPEAT_GROUP_RESTART: State.ENDED,
        },
        State.RUNNING: {
            Trigger.LOSE: State.LOST,
            Trigger.LOSE_WITHOUT_RESTART: State.STOPPED,
            Trigger.END: State.ENDED,
            Trigger.REPEAT_GROUP_RESTART: State.ENDED,
            Trigger.LEAVE: State.OUTSIDE,
        },
        State.LOST: {
            Trigger.PLACE: State.STARTING,
            Trigger.CANCEL_RESTART: State.STOPPED,
            Trigger.LEAVE: State.OUTSIDE,
        },
        State.STOPPED: {Trigger.RESTART: State.LOST, Trigger.LEAVE: State.OUTSIDE},
        State.ENDED: {
            Trigger.PLACE: State.STARTING,
            Trigger.LOSE_PLACEMENT: State.LOST,
            Trigger.CANCEL_RESTART: State.STOPPED,
            Trigger.LEAVE: State.OUTSIDE,
        },
    }
)

PRESENT = frozenset({State.JOINING, State.STARTING, State.RUNNING})  # an incarnation is running or starting
PARTICIPATING = frozenset(State) - {State.OUTSIDE, State.INVITED, State.JOINING}
AWAITING_PLACEMENT = frozenset({State.INVITED, State.LOST})  # a placement is requested for the next incarnation
