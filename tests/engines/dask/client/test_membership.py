"""Membership of a run, derived from the states of its roles. No process is needed."""

from collections import Counter

import pytest

from labkit.engines.dask.client.membership import Membership
from labkit.engines.lifecycle import State, Trigger
from tests.engines.dask.client.recovery_world import ring, servers


def members_of(layout, outside=(), leaves=()):
    where = {role.name: role.name for role in layout.roles if role.name not in outside}
    members = Membership(layout, where, Counter(), leaves, outside)
    for role in where:
        members.arrive(role, ("host", 1, role))
    return members


def test_all_workers_must_return_but_those_outside():
    members = members_of(servers(3, 1), outside=["worker-2"])
    assert members.must_return == ["worker-0", "worker-1"]
    members.leave("worker-0")
    assert members.must_return == ["worker-1"]


def test_without_workers_all_but_the_chief_must_return():
    assert members_of(servers(0, 2)).must_return == ["server-0", "server-1"]
    assert members_of(ring(2)).must_return == ["worker-0", "worker-1"]


@pytest.mark.parametrize("spared", [True, False], ids=["the others go on", "the others wait"])
def test_an_absent_worker_is_waited_for_unless_the_others_continue(spared):
    members = members_of(servers(3, 1), leaves=["worker-0", "worker-1", "worker-2"] if spared else [])
    members.lose("worker-1", "was killed")
    assert "worker-1" in members.must_return  # it will be restarted
    members.move("worker-1", Trigger.CANCEL_RESTART)
    assert ("worker-1" in members.must_return) is not spared


def test_a_deadlock_is_possible_while_workers_are_outside_but_not_while_one_joins_or_is_lost():
    members = members_of(servers(3, 1), outside=["worker-2"])
    assert members.settled
    members.invite("worker-2")
    assert not members.settled
    members.place("worker-2", "somewhere")
    assert members.state["worker-2"] is State.JOINING
    assert not members.settled
    members.arrive("worker-2", ("host", 1, ""))
    assert members.settled
    members.lose("worker-0", "was killed")
    assert not members.settled


def test_servers_without_a_worker_wait_for_one_to_join():
    members = members_of(servers(1, 1))
    members.leave("worker-0")
    assert members.whole
    assert not members.settled
