"""Pause, resume and steps without processes: requests are captured, and answered by the test."""

import threading
import types

import pytest

from labkit.engines.commands import Pause, Resume
from labkit.engines.dask.client.clock import EngineClock
from labkit.engines.dask.client.pause_control import ANSWER_S, STEP_S, PauseControl
from labkit.engines.dask.client.run_record import RunRecord
from labkit.engines.dask.timeouts import REPEAT_S
from labkit.roles.layout import Layout, RoleSpec

SERVERS = ("server-0", "server-1")


class World:
    """Stub of the rest of a run: pending requests, a trace, and a stopped clock."""

    def __init__(self, replication="", computes=False, names=SERVERS):
        kind = "worker" if computes else "server"
        roles = tuple(RoleSpec(name, kind, i, name, shard=i, computes=computes) for i, name in enumerate(names))
        layout = Layout(roles, names, tuple(slice(i, i + 1) for i in range(len(names))), replication)
        self.time, self.sent, self.done = 0.0, [], []
        self.clock = EngineClock(lambda: int(self.time * 1e9))
        self.clock.begin()
        self.events = []
        self.record = RunRecord(types.SimpleNamespace(lock=threading.RLock(), event=self.events.append), self.clock)
        self.repeated = []
        self.control = PauseControl(layout, self.clock, self.record, self.send, self.send_to, lambda: self.time)

    def send(self, order, then):
        self.sent.append((order, then))

    def send_to(self, order, role, incarnation):
        self.repeated.append((order, role, incarnation))

    def answer(self):
        """Let all roles answer the oldest request, which is returned."""
        order, then = self.sent.pop(0)
        then()
        return order

    def ask(self, what, *arguments):
        """Request a pause, resume or step; its name is in `done` when it has completed."""
        getattr(self.control, what)(*arguments, lambda: self.done.append(what))

    def go(self, *versions):
        """Advance a step until the roles have received their goals, which are returned."""
        assert self.answer()["paused"]
        self.say(*versions)
        assert not self.answer()["paused"]

    def say(self, *versions):
        assert self.sent.pop(0)[0] == {"do": "version"}
        for name, version in zip(SERVERS, versions):
            self.control.version(name, version)


@pytest.fixture
def world():
    return World()


def test_engine_time_stops_when_all_roles_have_acknowledged_the_pause_until_they_resume(world):
    world.time = 1.0
    world.ask("pause", Pause())
    world.time = 1.5
    assert not world.control.paused
    assert world.done == []
    assert world.answer() == {"do": "flow", "number": 1, "paused": True, "zero": 0, "goals": {}}
    world.time = 4.0
    assert world.control.paused
    assert world.done == ["pause"]
    assert world.clock.seconds == 1.5
    world.ask("resume", Resume())
    assert world.sent[0][0] == {"do": "flow", "number": 2, "paused": False, "zero": 2_500_000_000, "goals": {}}
    world.time = 5.0
    world.answer()
    assert world.done == ["pause", "resume"]
    assert world.clock.seconds == 2.5
    assert [entry.command.word for entry in world.record.commands] == ["pause", "resume"]
    assert [event.kind for event in world.events] == ["paused"]


def test_pause_twice_is_one_pause_and_both_are_answered(world):
    world.ask("pause", Pause())
    world.ask("pause", Pause())
    world.answer()
    assert world.sent == []
    assert world.done == ["pause", "pause"]
    world.ask("pause", Pause())
    assert world.done == ["pause"] * 3
    assert len(world.record.commands) == 1


def test_a_resume_cancels_a_pause_that_not_all_roles_have_acknowledged(world):
    world.ask("pause", Pause())
    assert [order["paused"] for order in world.control.orders()] == [True]
    world.ask("resume", Resume())
    assert [order["paused"] for order in world.control.orders()] == [False]
    assert [(order["number"], order["paused"]) for order, _ in world.sent] == [(1, True), (2, False)]
    world.answer()
    world.answer()
    assert not world.control.paused
    assert world.done == ["pause", "resume"]
    assert world.events == []


def test_resume_of_a_run_that_goes_on_does_nothing(world):
    world.ask("resume", Resume())
    assert world.done == ["resume"]
    assert world.record.commands == []
    assert world.sent == []


def test_all_shards_step_to_one_version_and_pause(world):
    world.ask("step", None)
    world.answer()
    assert world.control.paused
    world.say(3, 5)
    assert world.answer()["goals"] == {"server-0": 6, "server-1": 6}
    assert world.control.stepping
    assert not world.control.paused
    world.control.reached("server-1")
    assert world.sent == []
    world.control.reached("server-0")
    assert world.answer()["paused"]
    assert world.done == ["step"]
    assert world.control.paused
    assert not world.control.stepping


@pytest.mark.parametrize("when", ["before the step", "after its answer"])
def test_a_restored_shard_steps_from_its_own_version(world, when):
    """The others cannot wait until it has made all updates again: it needs gradients that they would have to answer."""
    if when == "before the step":
        world.control.lost("server-0")
    world.ask("step", None)
    assert world.answer()["paused"]
    if when == "after its answer":
        world.control.version("server-0", 8)
        world.control.lost("server-0")
    world.say(2, 9)
    assert world.answer()["goals"] == {"server-0": 3, "server-1": 10}
    world.control.reached("server-1")
    if when == "before the step":
        assert world.sent == []
        world.control.reached("server-0")
    assert world.answer()["paused"]
    assert world.done == ["step"]


@pytest.mark.parametrize(("computes", "goals"), [(True, [6, 6]), (False, [4, 6])], ids=["in step", "by themselves"])
def test_replicas_that_only_answer_each_other_step_by_themselves(computes, goals):
    world = World("local", computes)
    world.ask("step", None)
    world.answer()
    world.say(3, 5)
    assert list(world.answer()["goals"].values()) == goals


def test_two_steps_are_one_after_the_other(world):
    world.ask("step", None)
    world.ask("step", None)
    world.go(3, 3)
    world.control.reached("server-0")
    world.control.reached("server-1")
    world.answer()
    assert world.done == ["step"]
    world.say(4, 4)
    assert world.answer()["goals"] == {"server-0": 5, "server-1": 5}


def test_a_shard_that_does_not_report_its_version_is_ignored_after_a_timeout(world):
    world.ask("step", None)
    world.answer()
    world.say(3)
    world.control.check_deadline(ANSWER_S / 2)
    assert world.sent == []
    assert world.control.due == ANSWER_S
    world.time = ANSWER_S
    world.control.check_deadline(world.time)
    assert world.sent[0][0]["goals"] == {"server-0": 4}


def test_a_step_of_shards_that_do_not_report_their_versions_ends_paused_without_goals(world):
    world.ask("step", None)
    world.answer()
    world.sent.clear()
    world.time = ANSWER_S
    world.control.check_deadline(world.time)
    assert world.done == ["step"]
    assert world.control.paused
    assert world.sent == []


@pytest.mark.parametrize(("limit", "paused_at", "due"), [(4.0, 1.0, 4.0), (4.0, 5.0, 6.0), (0.1, 1.0, 1.1)])
def test_the_timeout_of_a_step_includes_the_pause_before_it_and_leaves_some_time_to_run(world, limit, paused_at, due):
    world.ask("step", limit)
    world.time = paused_at
    world.go(3, 3)
    assert world.control.due == pytest.approx(due)


@pytest.mark.parametrize("limit", [None, 0.1, 1e9])
def test_a_step_that_takes_too_long_pauses_where_it_is(world, limit):
    world.ask("step", limit)
    world.go(3, 3)
    assert world.control.due == min(STEP_S, limit or STEP_S)
    world.control.check_deadline(world.control.due)
    world.answer()
    assert world.done == ["step"]
    assert world.control.paused


def test_a_role_that_is_lost_is_not_waited_for(world):
    world.ask("step", None)
    world.go(3, 3)
    world.control.lost("server-1")
    world.control.reached("server-0")
    assert world.answer()["paused"]
    assert world.done == ["step"]


@pytest.mark.parametrize("when", ["pausing", "asking", "going", "stopping"])
@pytest.mark.parametrize("what", ["resume", "stop", "close"])
def test_a_pending_step_is_answered_when_it_becomes_obsolete(world, what, when):
    world.ask("step", None)
    if when != "pausing":
        world.answer()
    if when in ("going", "stopping"):
        world.say(3, 3)
        world.answer()
    if when == "stopping":
        world.control.reached("server-0")
        world.control.reached("server-1")
    if what == "resume":
        world.ask("resume", Resume())
    else:
        getattr(world.control, what)()
    while world.sent:
        world.answer()
    assert "step" in world.done
    assert world.done.count("step") == 1
    assert not world.control.stepping
    if what != "close":
        assert not world.control.paused


def test_a_pause_in_a_step_ends_it_paused(world):
    world.ask("step", None)
    world.go(3, 3)
    world.ask("pause", Pause())
    world.answer()
    assert sorted(world.done) == ["pause", "step"]
    assert world.control.paused
    assert not world.control.stepping


def test_a_run_that_is_to_end_is_not_paused_again(world):
    world.control.stop()
    world.ask("pause", Pause())
    world.ask("step", None)
    assert world.done == ["pause", "step"]
    assert world.sent == []
    assert not world.control.paused


def test_a_role_that_has_missed_an_order_gets_it_again_until_it_reports_its_number(world):
    assert world.control.orders() == []
    world.control.reported("server-0", 0, 0)
    world.ask("pause", Pause())
    pause, _ = world.sent[0]
    for world.time in (0.1, REPEAT_S):  # it may still be in flight
        world.control.reported("server-0", 0, 0)
    assert world.repeated == []
    for world.time in (REPEAT_S + 0.1, REPEAT_S + 0.2, 2 * REPEAT_S + 0.2):
        world.control.reported("server-0", 0, 0)
        world.control.reported("server-1", 2, 1)
    assert world.repeated == [(pause, "server-0", 0)] * 2
    world.time += REPEAT_S + 0.1
    world.control.reported("server-0", 0, 1)
    assert len(world.repeated) == 2


def test_only_the_newest_order_is_repeated(world):
    world.ask("pause", Pause())
    world.answer()
    world.time = 1.0
    world.ask("resume", Resume())
    resume = world.answer()
    world.time += REPEAT_S + 0.1
    for number in (0, 1, 2):
        world.control.reported(f"server-{number % 2}", number, number)
    assert world.repeated == [(resume, "server-0", 0), (resume, "server-1", 1)]


def test_a_shard_that_has_not_reported_its_version_is_asked_again(world):
    world.ask("step", None)
    world.answer()
    world.control.version("server-1", 3)
    world.time = REPEAT_S + 0.1
    for name in (*SERVERS, "worker-0"):
        world.control.reported(name, 0, 1)
    assert world.repeated == [({"do": "version"}, "server-0", 0)]
