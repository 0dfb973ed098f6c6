"""The tables of transitions (the lifecycle of a role, the restart of a group): every pair of a state and a trigger."""

import pickle
from collections import Counter, deque
from itertools import product

import pytest

from labkit.engines.dask.client.membership import Membership
from labkit.engines.dask.client.recovery_policy.group_restart import PHASES, GroupTrigger, Phase
from labkit.engines.lifecycle import AWAITING_PLACEMENT, PARTICIPATING, PRESENT, TRANSITIONS, State, Trigger
from labkit.engines.transitions import LAST, InvalidTransition, next_state
from labkit.roles.layout import Layout, RoleSpec

# {(state, trigger): the state that follows}
ROLE = {
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
GROUP = {
    ("", "collect"): "collect",
    ("", "lose"): "",
    ("collect", "start"): "start",
    ("collect", "lose"): "collect",
    ("start", "up"): "start",
    ("start", "begin"): "",
    ("start", "lose"): "collect",
}
TABLES = [
    pytest.param(TRANSITIONS, State, Trigger, ROLE, id="role"),
    pytest.param(PHASES, Phase, GroupTrigger, GROUP, id="group"),
]


def refusal(table, state, trigger, story):
    """The message of a trigger that is refused in this state; it is kept when the error is sent to another process."""
    with pytest.raises(InvalidTransition) as caught:
        next_state(table, "worker-1", state, trigger, story)
    text = str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == text
    return text


@pytest.mark.parametrize(("table", "states", "triggers", "expected"), TABLES)
def test_every_pair_is_listed_or_refused_by_name(table, states, triggers, expected):
    for state, trigger in product(states, triggers):
        story = deque(["earlier"])
        if (after := expected.get((state.value, trigger.value))) is not None:
            assert next_state(table, "worker-1", state, trigger, story, "was killed") == after, (state, trigger)
            assert list(story) == ["earlier", f"{trigger} (was killed)"]
            continue
        text = refusal(table, state, trigger, story)
        assert text.startswith(f"worker-1 is {state or 'idle'}, where '{trigger}' is not possible; possible are ")
        assert all(f"'{allowed}'" in text for allowed in table[state]), text
        assert text.endswith("Its last events: earlier.")
        assert list(story) == ["earlier"]


@pytest.mark.parametrize(("table", "states", "triggers", "expected"), TABLES)
def test_a_table_names_every_state_and_uses_every_trigger(table, states, triggers, expected):
    assert table.keys() == set(states)
    assert {trigger for row in table.values() for trigger in row} == set(triggers)
    assert sum(map(len, table.values())) == len(expected) < len(states) * len(triggers)


def reached(table, state):
    found, new = set(), {state}
    while new:
        found |= new
        new = {after for one in new for after in table[one].values()} - found
    return found


@pytest.mark.parametrize(("table", "states", "triggers", "expected"), TABLES)
def test_every_state_is_reached_from_every_state(table, states, triggers, expected):
    assert [state for state in states if reached(table, state) != set(states)] == []


def test_an_error_tells_the_last_events_of_its_role_and_not_those_of_others():
    names = ["worker-0", "worker-1"]
    roles = tuple(RoleSpec(name, "worker", i, name, computes=True) for i, name in enumerate(names))
    members = Membership(Layout(roles, (), ()), dict.fromkeys(names, "here"), Counter())
    for name in names:
        members.move(name, Trigger.UP)
    for incarnation in range(LAST):
        members.lose("worker-1", f"was killed {incarnation}")
        members.place("worker-1", "there")
    members.note("worker-1", "TaskFailed of incarnation 9")
    with pytest.raises(InvalidTransition) as caught:
        members.move("worker-1", Trigger.RESTART)
    assert len(caught.value.story) == LAST
    last = f"lose (was killed {LAST - 1}); place; TaskFailed of incarnation 9."
    assert str(caught.value) == (
        "worker-1 is starting, where 'restart' is not possible; possible are 'up', 'lose', 'lose without restart', "
        f"'repeat group restart'. Its last events: {'; '.join(caught.value.story)}."
    )
    assert str(caught.value).endswith(last)
    with pytest.raises(InvalidTransition, match=r"worker-0 is running.* Its last events: up\."):
        members.move("worker-0", Trigger.RESTART)


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
