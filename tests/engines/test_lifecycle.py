"""The lifecycle of one role: every pair of a state and a trigger, and the reachable states. No process is needed."""

import pickle
from itertools import product

import pytest

from labkit.engines.lifecycle import (
    AWAITING_PLACEMENT,
    PARTICIPATING,
    PRESENT,
    TRANSITIONS,
    InvalidTransition,
    State,
    Trigger,
    next_state,
)

EXPECTED = {
    ("outside", "invite"): "invited",
    ("invited", "place"): "joining",
    ("invited", "withdraw"): "outside",
    ("joining", "up"): "running",
    ("joining", "lose"): "invited",
    ("joining", "lose without restart"): "invited",
    ("joining", "repeat group restart"): "invited",
    ("starting", "up"): "running",
    ("starting", "lose"): "lost",
    ("starting", "lose without restart"): "stopped",
    ("starting", "repeat group restart"): "ended",
    ("running", "lose"): "lost",
    ("running", "lose without restart"): "stopped",
    ("running", "end"): "ended",
    ("running", "repeat group restart"): "ended",
    ("running", "leave"): "outside",
    ("lost", "place"): "starting",
    ("lost", "cancel restart"): "stopped",
    ("lost", "leave"): "outside",
    ("stopped", "restart"): "lost",
    ("stopped", "leave"): "outside",
    ("ended", "place"): "starting",
    ("ended", "lose placement"): "lost",
    ("ended", "cancel restart"): "stopped",
    ("ended", "leave"): "outside",
}


def refusal(state, trigger):
    """The message of a trigger that is refused in this state; it is kept when the error is sent to another process."""
    with pytest.raises(InvalidTransition) as caught:
        next_state("worker-1", state, trigger)
    text = str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == text
    return text


def test_every_pair_is_listed_or_refused_by_name():
    assert len(EXPECTED) < len(State) * len(Trigger)
    for state, trigger in product(State, Trigger):
        if (expected := EXPECTED.get((state.value, trigger.value))) is not None:
            assert next_state("worker-1", state, trigger) == expected, (state, trigger)
            continue
        text = refusal(state, trigger)
        assert text.startswith(f"worker-1 is {state}, where '{trigger}' is not possible; possible are ")
        assert all(f"'{allowed}'" in text for allowed in TRANSITIONS[state]), text


def test_the_table_names_every_state_and_uses_every_trigger():
    assert TRANSITIONS.keys() == set(State)
    assert {trigger for row in TRANSITIONS.values() for trigger in row} == set(Trigger)
    assert sum(map(len, TRANSITIONS.values())) == len(EXPECTED)


def reached(state, without=()):
    found, new = set(), {state}
    while new:
        found |= new
        new = {to for one in new for trigger, to in TRANSITIONS[one].items() if trigger not in without} - found
    return found


def test_every_state_is_reached_from_every_state():
    assert [state for state in State if reached(state) != set(State)] == []


def test_an_incarnation_begins_only_by_being_placed_and_is_here_only_after_it_has_come_up():
    for state, row in TRANSITIONS.items():
        for trigger, to in row.items():
            assert (trigger is Trigger.PLACE) == (to in PRESENT and state not in PRESENT)
            assert (trigger is Trigger.UP) == (to is State.RUNNING)


def test_stopped_and_outside_roles_return_only_on_request():
    assert TRANSITIONS[State.STOPPED].keys() == {Trigger.RESTART, Trigger.LEAVE}
    assert TRANSITIONS[State.OUTSIDE].keys() == {Trigger.INVITE}


def test_a_role_takes_part_from_its_first_incarnation_that_is_up_until_it_leaves():
    for state, row in TRANSITIONS.items():
        for trigger, to in row.items():
            if (state in PARTICIPATING) != (to in PARTICIPATING):
                assert trigger in (Trigger.UP, Trigger.LEAVE)


def test_states_that_await_placement_are_those_that_can_be_placed():
    for state in State:
        assert (state in AWAITING_PLACEMENT) == (Trigger.PLACE in TRANSITIONS[state] and state is not State.ENDED)
