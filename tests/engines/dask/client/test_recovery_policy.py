"""The recovery policy without processes: single cases by hand, and random sequences of faults in a simulated cluster."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labkit.engines.dask.client import recovery_policy as policy
from labkit.engines.dask.timeouts import ATTEMPTS, LASTED_S, REPORT_S, RETURN_S, STARTS
from labkit.engines.lifecycle import State, Trigger
from labkit.engines.transitions import InvalidTransition
from labkit.trace.events import (
    GroupRestarted,
    RoleFenced,
    RoleJoined,
    RoleLeft,
    RoleLost,
    RoleRestarted,
    RoleUnplaced,
    RunWaits,
)
from tests.engines.dask.client.recovery_world import World, ring, servers


def recorded(world, kind):
    return [fields for _, what, fields in world.trace if what is kind]


def at(world, kind):
    return [time for time, what, _ in world.trace if what is kind]


def submitted(world):
    return [(a.role, a.incarnation) for a in world.done if isinstance(a, policy.Submit)]


# one role ---------------------------------------------------------------------------------------------------------------


def test_a_killed_role_begins_its_next_incarnation_when_its_process_is_back_and_the_others_know():
    world = World(servers())
    world.kill("worker-1")
    world.settle()
    assert recorded(world, RoleLost) == [("worker-1", 0, "was killed")]
    assert submitted(world) == [("worker-1", 1)]
    assert recorded(world, RoleRestarted) == [("worker-1", 1)]
    names = [type(action).__name__ for action in world.done]
    assert names.index("Submit") < names.index("Admit") < names.index("RecordRestart") < names.index("Begin")
    assert at(world, RoleRestarted)[0] < 1.5


def test_a_spare_dask_worker_is_taken_at_once():
    world = World(servers(), spare=1, local=False)
    world.kill("worker-1")
    world.run(0.3)
    assert submitted(world) == [("worker-1", 1)]
    world.settle()


def test_all_roles_killed_at_once_are_restarted_on_own_processes():
    world = World(servers(3, 2))
    for role in list(world.members.state):
        world.kill(role)
    world.settle()
    assert len(recorded(world, RoleLost)) == len(recorded(world, RoleRestarted)) == 6
    assert len(set(world.members.where.values())) == 6


def test_a_silent_role_is_lost_after_the_heartbeat_timeout_and_fenced_when_it_answers():
    world = World(servers())
    world.freeze(world.members.where["server-0"], 9.0)
    world.settle()
    assert recorded(world, RoleLost) == [("server-0", 0, "did not answer for 5 s (frozen, or cut off)")]
    assert recorded(world, RoleFenced) == [("server-0", 0, "reported")]
    assert submitted(world) == [("server-0", 1)]
    assert world.tasks["server-0", 0].over


def test_a_role_whose_task_has_ended_is_lost_although_its_process_lives():
    world = World(servers())
    world.finish_task("worker-1")
    world.settle()
    assert recorded(world, RoleLost) == [("worker-1", 0, "did not answer for 5 s (frozen, or cut off)")]
    assert submitted(world) == [("worker-1", 1)]


def test_a_role_frozen_for_less_than_the_heartbeat_timeout_continues():
    world = World(servers())
    world.freeze(world.members.where["server-0"], 3.0)
    world.settle()
    assert world.trace == []


def test_a_role_killed_without_restart_stays_down_until_a_restart_is_requested():
    world = World(servers())
    world.kill("worker-1", restart=False)
    world.settle()
    assert world.members.state["worker-1"] is State.STOPPED
    assert recorded(world, RunWaits) == [("worker-1, which was killed", "worker-1")]
    world.run(30)
    assert submitted(world) == []
    world.restart("worker-1")
    world.settle()
    assert world.members.whole


@pytest.mark.parametrize("layout", [servers(), ring()], ids=["servers", "ring"])
def test_a_kill_of_a_lost_role_does_not_postpone_its_return(layout):
    def returned(*again):
        world = World(layout)
        world.kill("worker-1")
        for moment in again:
            world.run(moment - world.now)
            assert world.members.state["worker-1"] is State.LOST
            world.kill("worker-1")
        world.settle()
        return at(world, RoleRestarted), submitted(world)

    assert returned(0.1, 0.2, 0.3) == returned()


def test_the_others_go_on_without_a_role_that_they_do_not_wait_for():
    world = World(servers(), on_loss="continue")
    world.kill("worker-1", restart=False)
    world.settle()
    assert recorded(world, RoleLeft) == [("worker-1", "was killed")]
    assert world.members.peers()["worker"] == ("worker-0", "worker-2")


@pytest.mark.parametrize("away", ["at once", "later", "when it is lost already"])
def test_when_a_role_stays_away_it_is_checked_whether_all_others_have_returned(away):
    world = World(servers(), on_loss="continue", local=False)
    world.kill("worker-1", restart=away != "at once")
    world.run(1.0)
    if away != "at once":
        assert not any(isinstance(action, policy.CheckReturned) for action in world.done)
    if away == "later":
        world.join_process()
        world.settle()
    if away != "at once":
        world.kill("worker-1", restart=False)
    world.run(1.0)
    assert world.members.must_return == ["worker-0", "worker-2"]
    assert any(isinstance(action, policy.CheckReturned) for action in world.done)


def test_a_start_that_fails_is_repeated_elsewhere_and_three_in_a_row_end_the_run():
    world = World(servers())
    world.fail_starts = STARTS - 1
    world.kill("worker-1")
    world.settle()
    assert submitted(world) == [("worker-1", number) for number in range(1, STARTS + 1)]
    world.fail_starts = STARTS
    world.kill("worker-1")
    world.settle()
    assert world.ended.why == "worker-1 could not be started again: ValueError: no"


@pytest.mark.parametrize(
    ("shape", "role", "ends"),
    [
        ("servers", "server-1", True),
        ("servers", "worker-2", True),
        ("servers", "chief", True),
        ("servers that go on", "server-0", True),
        ("servers that go on", "worker-1", False),
        ("servers that go on", "backup-1", False),
        ("given", "server-0", True),
        ("ring", "worker-1", True),
        ("ring that goes on", "worker-1", False),
        ("parts", "worker-2", True),
        ("same addresses", "worker-2", False),
        ("elastic", "worker-1", False),
    ],
)
@pytest.mark.parametrize("after", [0.0, 2.0])
def test_a_role_whose_process_dies_each_time_it_begins_is_given_up_with_the_reason(shape, role, ends, after):
    world = SHAPES[shape](0)
    world.make_fatal(role, after)
    for _ in range(ATTEMPTS):  # those of others come back by themselves here
        world.run(LASTED_S)
        if not world.local:
            world.join_process()
    world.settle()
    assert world.deaths == {role: ATTEMPTS}
    assert bool(world.ended) is ends
    if ends:
        assert role in world.ended.roles
        assert world.ended.why == (
            f"{' and '.join(world.ended.roles)} did not last: each of {ATTEMPTS} attempts ended within {LASTED_S:g} s, because "
            "the process ended unexpectedly (signal 11, SIGSEGV)"
        )
    else:
        assert world.members.missing == [role]
        assert (role, "ended unexpectedly (signal 11, SIGSEGV)") in recorded(world, RoleLeft)
        world.fatal.clear()
        world.restart(role)
        world.settle()
        assert world.members.whole


def test_a_process_that_dies_later_is_a_new_fault_each_time():
    world = World(servers())
    world.make_fatal("server-0", LASTED_S + 0.5)
    world.run(3 * ATTEMPTS * LASTED_S)
    assert not world.ended
    assert world.deaths["server-0"] > 2 * ATTEMPTS


def test_kills_by_request_are_no_failed_attempts():
    world = World(servers())
    for _ in range(2 * ATTEMPTS):
        world.kill("server-0")
        world.settle()
    assert not world.ended


def test_a_role_that_is_lost_again_before_it_is_back_is_reported_again():
    world = World(servers(), local=False)
    world.kill("worker-1")
    world.run(13.0)
    assert recorded(world, RunWaits) == [("worker-1, which was killed", "worker-1")]
    world.fail_starts = 1
    world.join_process()
    world.run(1.0)
    assert recorded(world, RunWaits)[1:] == [("worker-1, which did not start", "worker-1")]
    assert at(world, RunWaits)[1] == at(world, RoleLost)[1]


def test_a_start_that_hangs_is_repeated_on_another_dask_worker():
    world = World(servers())
    world.hang_starts = 1
    world.kill("worker-1")
    world.run(30)
    assert [reason for _, _, reason in recorded(world, RoleLost)] == ["was killed", "did not start"]
    assert world.members.whole


def test_a_dask_worker_on_which_a_start_failed_is_used_again_if_it_runs_and_is_the_only_one():
    world = World(servers(), local=False)
    world.kill("worker-1")
    world.fail_starts = 1
    world.join_process()
    world.run(10)
    assert submitted(world) == [("worker-1", 1), ("worker-1", 2)]
    assert world.members.whole


def test_a_frozen_dask_worker_is_not_reused_before_it_answers():
    world = World(servers(), local=False)
    world.freeze(world.members.where["worker-1"], 40.0)
    world.run(39)
    assert submitted(world) == []
    world.settle()
    assert submitted(world) == [("worker-1", 1)]


def test_the_history_of_an_earlier_process_at_an_address_does_not_apply_to_the_next_one():
    world = World(servers(), same_address=True)
    first_address = world.members.where["worker-1"]
    world.kill("worker-1")
    world.settle()
    assert world.members.where["worker-1"] == first_address
    world.kill_process(first_address)
    world.settle()
    assert [why for *_, why in recorded(world, RoleLost)] == ["was killed", "ended unexpectedly (signal 11, SIGSEGV)"]


def test_a_dask_worker_that_was_retired_and_is_back_at_its_address_keeps_its_new_role():
    world = World(servers(), same_address=True)
    first_address = world.members.where["worker-1"]
    world.retire(first_address)
    world.settle()
    assert recorded(world, RoleLost) == [("worker-1", 0, "was retired by Dask")]
    assert world.members.where["worker-1"] == first_address


def test_orders_that_get_lost_are_repeated():
    world = World(servers(), seed=3)
    world.lose_orders = 0.7
    world.kill("worker-1")
    world.kill("server-0")
    world.run(20)
    world.lose_orders = 0.0
    world.settle()
    assert world.members.whole


def test_without_any_dask_worker_the_run_waits_for_one_and_then_ends():
    world = World(servers(1, 1), local=False)
    for address in list(world.processes):
        world.kill_process(address)
    world.run(RETURN_S + 2)
    assert "server-0 ended unexpectedly (signal 11, SIGSEGV)" in world.ended.why
    assert world.ended.why.endswith("and no Dask worker is left, and none came back within 15 s")
    assert world.now <= REPORT_S + 2


def test_tasks_that_dask_cancels_one_by_one_are_losses_and_all_of_them_are_the_end():
    world = World(servers())
    world.cancel(["worker-0"])
    world.settle()
    assert recorded(world, RoleLost) == [("worker-0", 0, "was cancelled by Dask")]
    world.cancel(list(world.members.state))
    world.settle()
    assert world.ended.why == "Dask cancelled its tasks (was the cluster restarted?)"


def test_an_impossible_transition_tells_the_last_events_of_its_role():
    world = World(servers())
    world.kill("server-0")
    world.kill("worker-1")
    world.settle()
    with pytest.raises(InvalidTransition) as caught:
        world.members.move("worker-1", Trigger.PLACE)
    assert str(caught.value).endswith(" Its last events: up; lose (was killed); place; RoleUp of incarnation 1; up.")


def test_after_the_end_nothing_is_done():
    world = World(servers())
    world.cancel(list(world.members.state))
    world.settle()
    assert world.policy.handle(policy.Timer(), world.now + 100) == []


def test_the_policy_suspects_no_process_after_its_own_absence():
    world = World(servers())
    world.now += 60.0
    assert world.policy.handle(policy.Timer(), world.now) == []


# a group ----------------------------------------------------------------------------------------------------------------


def test_a_group_begins_again_together_when_the_lost_member_has_a_dask_worker():
    world = World(ring())
    world.kill("worker-1")
    world.settle()
    assert len(recorded(world, GroupRestarted)) == 1
    assert recorded(world, RoleRestarted) == [("worker-1", 1)]
    assert {world.members.incarnation[f"worker-{i}"] for i in range(3)} == {1}
    (start,) = [action for action in world.done if isinstance(action, policy.StartGroup)]
    assert start.reports.keys() == {"worker-0", "worker-2"}


def test_a_group_that_continues_restarts_without_the_lost_member_and_again_with_it():
    world = World(ring(), on_loss="continue", local=False)
    world.kill("worker-1")
    world.run(5)
    assert len(recorded(world, GroupRestarted)) == 1
    assert world.members.peers()["worker"] == ("worker-0", "worker-2")
    world.join_process()
    world.settle()
    assert len(recorded(world, GroupRestarted)) == 2
    assert world.members.whole


def test_two_lost_members_are_placed_on_two_dask_workers():
    world = World(ring(), spare=3)
    world.kill("worker-1")
    world.kill("worker-2")
    world.settle()
    assert len(set(world.members.where.values())) == 3


@pytest.mark.parametrize("on_loss", ["wait", "continue"])
def test_another_member_is_lost_while_a_group_begins_again(on_loss):
    violations = []
    for second in ("worker-0", "worker-1", "worker-2"):
        for when in (0.05, 0.15, 0.3, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5):
            world = World(ring(), on_loss=on_loss)
            world.kill("worker-1")
            world.run(when)
            world.kill_process(world.members.where.get(second) or world.policy.reserved.get(second))
            world.settle()
            if not (world.members.whole and world.answered_in_time()):
                violations.append(f"{second} after {when} s:\n{world.describe()}")
    assert not violations, "\n\n".join(violations)


def test_a_member_that_is_frozen_while_it_is_to_hand_over_does_not_hold_up_the_group():
    world = World(ring())
    world.freeze(world.members.where["worker-2"], 60.0)
    world.kill("worker-1")
    world.settle()
    assert "did not answer for 5 s (frozen, or cut off)" in [reason for *_, reason in recorded(world, RoleLost)]


def test_a_dask_worker_that_was_kept_for_a_member_is_replaced_when_it_is_lost():
    world = World(ring(), spare=2)
    world.freeze(world.members.where["worker-2"], 4.0)  # the group cannot begin before it is thawed
    world.kill("worker-1")
    world.run(1.0)
    (kept,) = world.policy.reserved_workers() - set(world.members.where.values()) - set(world.policy.reserved.values())
    world.kill_process(kept)
    world.settle()
    assert [reason for *_, reason in recorded(world, RoleLost)] == ["was killed"]
    assert world.members.whole


def test_a_dask_worker_on_which_a_member_has_handed_over_is_replaced_when_it_is_lost():
    world = World(ring())
    world.freeze(world.members.where["worker-2"], 4.0)
    world.kill("worker-1")
    world.run(1.0)
    assert world.members.state["worker-0"] is State.ENDED
    world.kill_process(world.policy.reserved["worker-0"])
    world.settle()
    assert "did not start" not in [reason for *_, reason in recorded(world, RoleLost)]
    assert world.members.whole


def test_a_member_that_ends_before_it_has_begun_and_is_to_hand_over_is_lost():
    world = World(ring())
    world.kill("worker-1")
    world.run(0.5)
    world.lose_orders = 1.0  # the request to begin, too
    while world.policy.phase or not world.members.whole:
        world.run(0.1)
    world.kill("worker-1")
    while world.policy.phase != "collect":
        world.run(0.1)
    world.retire(world.members.where["worker-2"])
    world.run(0.5)
    world.lose_orders = 0.0
    world.settle()
    assert ("worker-2", 1, "ended before it began") in recorded(world, RoleLost)
    assert world.members.whole


def test_members_that_are_all_lost_do_not_wait_for_one_that_stays_away_where_the_others_go_on():
    world = World(ring(), on_loss="continue")
    world.kill("worker-2", restart=False)
    world.kill("worker-0")
    world.kill("worker-1")
    world.settle()
    assert world.members.missing == ["worker-2"]


def test_members_that_do_not_start_are_lost_together():
    world = World(ring())
    world.kill("worker-1")
    world.run(0.3)
    world.hang_starts = 2
    world.settle()
    assert world.members.whole
    assert world.answered_in_time()


# joins and leaves -------------------------------------------------------------------------------------------------------


OUTSIDE = ("worker-2", "worker-3")


@pytest.mark.parametrize("layout", [servers(4, 1), ring(4)], ids=["servers", "ring"])
def test_workers_join_and_leave(layout):
    world = World(layout, outside=OUTSIDE, on_loss="continue")
    world.join("worker-2")
    world.join("worker-3")
    assert world.policy.present == ("worker-0", "worker-1", "worker-2", "worker-3")
    world.settle()
    assert sorted(role for role, _ in recorded(world, RoleJoined)) == ["worker-2", "worker-3"]
    world.leave("worker-1")
    assert world.policy.present == ("worker-0", "worker-2", "worker-3")
    world.settle()
    assert recorded(world, RoleLeft) == [("worker-1", "")]
    assert world.members.peers()["worker"] == ("worker-0", "worker-2", "worker-3")
    world.join("worker-1")
    world.settle()
    assert world.members.incarnation["worker-1"] >= 1
    assert recorded(world, RoleLost) == []


def test_a_join_waits_for_a_dask_worker_and_the_log_records_it():
    world = World(servers(3, 1), outside=("worker-2",), local=False)
    world.join("worker-2")
    world.run(10)
    assert recorded(world, RoleUnplaced) == [("worker-2",)]
    world.join_process()
    world.settle()
    assert recorded(world, RoleJoined) == [("worker-2", 1)]


def test_a_join_is_called_off_by_a_leave():
    world = World(servers(3, 1), outside=("worker-2",), local=False)
    world.join("worker-2")
    world.run(1)
    world.leave("worker-2")
    world.settle()
    assert world.members.state["worker-2"] is State.OUTSIDE
    assert submitted(world) == []


@pytest.mark.parametrize("layout", [servers(4, 1), ring(4)], ids=["servers", "ring"])
@pytest.mark.parametrize("after", [0.0, 0.1, 0.3, 0.6, 1.0])
def test_a_worker_that_is_to_join_again_while_it_leaves_leaves_and_joins(layout, after):
    world = World(layout, outside=OUTSIDE, on_loss="continue")
    world.leave("worker-1")
    world.run(after)
    world.join("worker-1")
    assert world.policy.present == ("worker-0", "worker-1")
    world.settle()
    assert world.members.state["worker-1"] is State.RUNNING
    assert recorded(world, RoleLeft) == [("worker-1", "")]
    assert [role for role, _ in recorded(world, RoleJoined)] == ["worker-1"]


def test_the_last_of_several_requests_counts():
    world = World(servers(4, 1), outside=OUTSIDE, on_loss="continue")
    for _ in range(3):
        world.leave("worker-1")
        world.join("worker-1")
    world.leave("worker-1")
    assert world.policy.present == ("worker-0",)
    world.settle()
    assert world.members.state["worker-1"] is State.OUTSIDE


def test_a_leave_that_was_not_ordered_yet_is_called_off_by_a_join():
    world = World(servers(4, 1), outside=OUTSIDE, on_loss="continue")
    world.kill("worker-1")
    world.run(0.3)
    assert world.members.state["worker-1"] is not State.RUNNING
    world.leave("worker-1")
    world.join("worker-1")
    world.settle()
    assert world.members.state["worker-1"] is State.RUNNING


def test_on_a_cluster_of_others_a_worker_joins_by_itself_when_a_dask_worker_comes_unless_it_was_asked_to_leave():
    world = World(servers(3, 1), outside=("worker-2",), local=False)
    world.join_process()
    world.settle()
    assert recorded(world, RoleJoined) == [("worker-2", 1)]
    world.leave("worker-2")
    world.settle()
    world.join_process()
    world.settle()
    assert world.members.state["worker-2"] is State.OUTSIDE


def test_a_worker_that_is_lost_while_it_is_to_leave_has_left():
    world = World(servers(3, 1), outside=("worker-2",))
    world.freeze(world.members.where["worker-1"], 60.0)
    world.leave("worker-1")
    world.settle()
    assert world.members.state["worker-1"] is State.OUTSIDE
    assert ("worker-1",) in recorded(world, RoleLeft)


def test_a_retired_dask_worker_takes_its_worker_along_and_its_server_moves():
    world = World(servers(3, 1), outside=("worker-2",), spare=1)
    world.retire(world.members.where["worker-1"])
    world.retire(world.members.where["server-0"])
    world.settle()
    assert recorded(world, RoleLost) == [("server-0", 0, "was retired by Dask")]
    assert recorded(world, RoleRestarted) == [("server-0", 1)]
    assert recorded(world, RoleLeft) == [("worker-1", "was retired by Dask")]


# any sequence -----------------------------------------------------------------------------------------------------------

SHAPES = {
    "servers": lambda seed: World(servers(3, 2), seed=seed),
    "servers that go on": lambda seed: World(servers(3, 2, backups=2), on_loss="continue", seed=seed),
    "given": lambda seed: World(servers(2, 1), local=False, spare=2, seed=seed),
    "ring": lambda seed: World(ring(3), seed=seed),
    "ring that goes on": lambda seed: World(ring(3), on_loss="continue", seed=seed),
    "parts": lambda seed: World(ring(3, parts=True), seed=seed),
    "elastic": lambda seed: World(servers(4, 1), outside=OUTSIDE, on_loss="continue", seed=seed),
    "elastic ring": lambda seed: World(ring(4), outside=OUTSIDE, on_loss="continue", seed=seed),
    "same addresses": lambda seed: World(ring(3), on_loss="continue", seed=seed, same_address=True),
    "elastic, same addresses": lambda seed: World(servers(4, 1), outside=OUTSIDE, seed=seed, same_address=True),
    "elastic, given": lambda seed: World(servers(4, 1), outside=OUTSIDE, local=False, spare=1, seed=seed),
}
FAULTS = (
    "kill", "kill for good", "kill process", "freeze", "freeze long", "retire", "cancel", "restart", "join", "leave",
    "join process", "lose orders", "fail a start", "hang a start", "absent", "die when it begins",
)  # fmt: skip


def inflict(world, fault, which):
    """Inject one fault, or send one request, to one of the roles."""
    roles = list(world.members.state)
    role = roles[which % len(roles)]
    worker = world.workers[which % len(world.workers)] if world.workers else None
    first_address = world.members.where.get(role) or world.policy.reserved.get(role)
    match fault:
        case "kill":
            world.kill(role)
        case "kill for good":
            world.kill(role, restart=False)
        case "restart":
            world.restart(role)
        case "cancel":
            world.cancel([role])
        case "join" if worker:
            world.join(worker)
        case "leave" if worker:
            world.leave(worker)
        case "join process":
            world.join_process()
        case "lose orders":
            world.lose_orders = 0.5 if world.lose_orders == 0.0 else 0.0
        case "fail a start":
            world.fail_starts = 1
        case "hang a start":
            world.hang_starts = 1
        case "die when it begins" if (role, world.members.incarnation[role]) in world.tasks:
            world.make_fatal(role, which / 4)
        case "absent":
            world.be_absent(4.0)
        case "kill process" if first_address:
            world.kill_process(first_address)
        case "freeze" if first_address:
            world.freeze(first_address, 2.0)
        case "freeze long" if first_address:
            world.freeze(first_address, 12.0)
        case "retire" if first_address:
            world.retire(first_address)


moments = st.one_of(st.just(0.0), st.floats(0.01, 1.5), st.floats(1.5, 8.0))
sequences = st.lists(st.tuples(st.sampled_from(FAULTS), st.integers(0, 11), moments), max_size=14)


def goes_well(shape, seed, sequence):
    """After any sequence of faults the run becomes quiescent: complete except for roles that are to stay away, or ended with a
    reason.
    """
    world = SHAPES[shape](seed)
    for fault, which, seconds in sequence:
        inflict(world, fault, which)
        world.run(seconds)
    world.lose_orders, world.fail_starts, world.hang_starts = 0.0, 0, 0
    world.fatal.clear()
    if not world.local:  # permanently lost roles are replaced, or the run ends
        there = sum(process.alive and not process.closing for process in world.processes.values())
        for _ in range(len(world.members.state) - there):
            world.join_process()
    world.settle()
    assert world.answered_in_time(), (world.longest, world.describe())
    for role, state in world.members.state.items():
        if state is State.STOPPED and not world.ended:
            text = [fields for fields in (*recorded(world, RunWaits), *recorded(world, RoleLeft)) if role in fields]
            assert text, world.describe()


@pytest.mark.sample(5)
@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), sequence=sequences)
def test_invariants_hold_for_any_sequence_of_faults(shape, seed, sequence):
    goes_well(shape, seed, sequence)


@pytest.mark.slow
@pytest.mark.sample(slow=2)
@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), sequence=sequences)
def test_any_of_more_sequences(shape, seed, sequence):
    goes_well(shape, seed, sequence)
