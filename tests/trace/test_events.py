"""Events are values: every kind is unchanged after a round trip through a dict, a batch and a file; other values are refused."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import labkit as lk
from labkit.trace import Recorder
from labkit.trace.events import EVENTS, Event, LinkCut, Note, RoleKilled, RoleLost, RoleRestarted, RoleSlowed
from labkit.trace.role_states import conditions, intervals, periods, slowdowns, undoable

NAMES = st.sampled_from(["worker-0", "worker-1", "server-0"])
FINITE = st.floats(allow_nan=False, allow_infinity=False)
VALUES = {
    "int": st.integers(-1, 10**15), "str": st.text(max_size=20), "bool": st.booleans(), "float": FINITE,
    "int | None": st.none() | st.integers(0, 10**9), "float | None": st.none() | FINITE, "str | None": st.none() | NAMES,
    "dict[str, float]": st.dictionaries(st.text(max_size=5), FINITE, max_size=3),
    "dict[str, Any]": st.dictionaries(st.text(max_size=5), FINITE | st.booleans() | st.text(max_size=5), max_size=3),
}  # fmt: skip


def any_event(kind):
    fields = {f.name: VALUES[f.type] for f in dataclasses.fields(EVENTS[kind])}
    return st.builds(EVENTS[kind], **fields)


EVENT = st.sampled_from(sorted(EVENTS)).flatmap(any_event)


@given(EVENT)
def test_an_event_survives_json(event):
    plain = json.loads(json.dumps(event.to_dict()))
    assert Event.from_dict(plain) == event
    assert plain["kind"] == event.kind
    assert isinstance(str(event), str)


@given(EVENT, st.booleans())
def test_a_batch_carries_events_as_those_of_its_role(event, plain):
    trace = empty()
    recorder = Recorder(2)
    recorder.event(event)
    batch = recorder.take(10, plain=plain)
    if plain:
        assert batch["events"] == [event.to_dict() | {"recorder": 2}]
    trace.append(batch)
    assert trace.events == [dataclasses.replace(event, recorder=2)]


def empty():
    cluster = lk.SimulatedCluster(workers=3, compute=0.1)
    return lk.train("moons", lk.AsyncPS(), cluster, lk.Budget(seconds=1)).trace


@pytest.mark.parametrize(
    "wrong",
    [
        {}, {"kind": "exploded", "time": 1}, {"kind": "killed", "time": 1}, {"kind": "killed", "time": "soon", "name": "w"},
        {"kind": "killed", "time": 1, "name": "w", "restart": "no"}, {"kind": "killed", "time": True, "name": "w"},
        {"kind": "lost", "time": 1, "name": "w", "incarnation": 0, "reason": "r", "more": 1},
        {"kind": "note", "time": 1, "text": "t", "numbers": [1]},
    ],
)  # fmt: skip
def test_invalid_events_are_refused(wrong):
    with pytest.raises(ValueError, match=r"no event of kind|an event of kind"):
        Event.from_dict(wrong)


# role states ----------------------------------------------------------------------------------------------------------


def recorded(*events):
    trace = empty()
    for event in events:
        trace.event(event)
    return trace


def test_a_role_that_is_frozen_and_cut_off_stays_held_until_both_are_undone():
    made = EVENTS
    trace = recorded(
        made["frozen"](1, "worker-0"), LinkCut(2, "worker-0", None), made["reconnected"](3, "worker-0", None),
        made["thawed"](4, "worker-0"),
    )  # fmt: skip
    role = trace.roles.index("worker-0")
    assert [conditions(trace, t).get(role) for t in range(6)] == [None, "frozen", "frozen", "frozen", None, None]
    assert [(p.since, p.unavailable) for p in periods(trace, 9)] == [(0, {}), (1, {role: "frozen"}), (4, {})]


def test_the_first_reason_for_which_a_role_is_gone_holds_until_it_is_back():
    trace = recorded(
        RoleLost(1, "worker-1", 0, "was silent for 5 s"), RoleKilled(2, "worker-1"), RoleRestarted(3, "worker-1", 1),
        RoleKilled(4, "worker-1"), RoleLost(4, "worker-1", 1, "was killed"),
    )  # fmt: skip
    role = trace.roles.index("worker-1")
    assert intervals(trace, 9)[role] == [(1, 3, "lost"), (4, None, "killed")]
    assert undoable(trace) == {"worker-1": {"restart"}}


def test_events_of_other_roles_links_and_later_times_change_no_state():
    trace = recorded(
        Note(1, "hello"), LinkCut(1, "worker-0", "server-0"), RoleKilled(1, "nobody-7"), RoleSlowed(5, "worker-2", 3.0),
    )  # fmt: skip
    assert conditions(trace, 9) == {}
    assert slowdowns(trace, 4) == {}
    assert slowdowns(trace, 5) == {trace.roles.index("worker-2"): [(5, 3.0)]}
    assert [p.fault_free for p in periods(trace, 9)] == [True, False]
