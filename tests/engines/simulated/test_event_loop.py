"""The event loop of virtual time, with roles that record their calls."""

import pytest

from labkit.engines.simulated.event_loop import CALL, CHIEF_WAKE, DELIVER, DONE, EARLY, LATE, WAKE, EventLoop

FAR = 10**9


class Role:
    """Stub of a role, with the interface that the loop uses."""

    def __init__(self, loop, name="worker-0", log=None):
        self.loop, self.name, self.token, self.log = loop, name, 0, [] if log is None else log

    def drive(self, value):
        self.log.append((self.loop.now, self.name, "drive", value))

    def deliver(self, message):
        self.log.append((self.loop.now, self.name, "deliver", message))

    def work_done(self):
        self.log.append((self.loop.now, self.name, "done", None))

    def wait_over(self):
        self.log.append((self.loop.now, self.name, "wake", None))


class Letter:
    def __init__(self, sender):
        self.sender = sender


@pytest.fixture
def loop():
    made = EventLoop()
    made.pause = 1000
    return made


def reserve(loop):
    """The next sequence number."""
    loop.sequence += 1
    return loop.sequence


def what(role):
    return [(time, kind) for time, _, kind, _ in role.log]


def test_events_come_in_order_of_time_then_of_cause_and_timeouts_last(loop):
    role = Role(loop)
    loop.schedule(20, EARLY, DONE, role, 0)
    loop.schedule(10, LATE, WAKE, role, 0)
    loop.schedule(10, EARLY, DELIVER, role, "a")
    loop.schedule(10, EARLY, DONE, role, 0)
    assert loop.run(FAR) is loop.EMPTY
    assert what(role) == [(10, "deliver"), (10, "done"), (10, "wake"), (20, "done")]
    assert (loop.now, loop.turn) == (20, 4)


def test_a_role_that_goes_on_comes_before_later_events_of_the_instant(loop):
    role = Role(loop)
    loop.schedule(0, EARLY, DONE, role, 0)
    loop.make_ready(role, "first")
    loop.schedule(0, EARLY, DELIVER, role, "second")
    loop.run(FAR)
    assert what(role) == [(0, "done"), (0, "drive"), (0, "deliver")]


def test_events_of_another_token_are_void_but_count_as_turns(loop):
    role = Role(loop)
    loop.schedule(5, EARLY, DONE, role, 0)
    role.token = 1
    loop.run(FAR)
    assert (role.log, loop.turn) == ([], 1)


def test_the_event_loop_stops_before_its_limit_and_before_a_pause(loop):
    role = Role(loop)
    for time in (5, 6, 7):
        loop.schedule(time, EARLY, DELIVER, role, time)
    assert loop.run(4) is loop.AHEAD
    assert loop.now == 0
    loop.pause = 2
    assert loop.run(FAR) is loop.PAUSED
    assert what(role) == [(5, "deliver"), (6, "deliver")]


def test_events_of_the_run_are_returned_to_the_run(loop):
    role = Role(loop, "chief")
    loop.schedule(3, EARLY, CHIEF_WAKE, role, 0)
    loop.call_at(4, print, 1, 2)
    time, _, _, kind, subject, payload = loop.run(FAR)
    assert (time, kind, subject, payload) == (3, CHIEF_WAKE, role, 0)
    time, _, _, kind, subject, payload = loop.run(FAR)
    assert (time, kind, subject, payload) == (4, CALL, print, (1, 2))
    assert (loop.now, loop.turn, role.log) == (0, 0, [])


def test_a_reserved_place_comes_before_what_was_caused_since(loop):
    role, woken = Role(loop), Role(loop, "worker-1")
    woken.log = role.log
    loop.make_ready(Role(loop, "before", role.log), 0)
    number = reserve(loop)
    loop.make_ready(woken, 2)  # by the update
    assert not loop.make_ready_at(role, 1, number)
    loop.run(FAR)
    assert [name for _, name, _, _ in role.log] == ["before", "worker-0", "worker-1"]


def test_a_reserved_place_with_nothing_ahead_is_the_next_turn(loop):
    role = Role(loop)
    loop.schedule(1, EARLY, DELIVER, role, "later")
    assert loop.make_ready_at(role, 1, reserve(loop))
    assert loop.turn == 1
    loop.pause = 2
    assert not loop.make_ready_at(role, 1, reserve(loop))  # the loop has to return first


def test_suspending_a_role_returns_its_pending_events(loop):
    role, other = Role(loop), Role(loop, "worker-1")
    loop.now = 10
    loop.schedule(25, LATE, WAKE, role, 0)
    loop.schedule(15, EARLY, DONE, role, 0)
    loop.schedule(30, EARLY, DELIVER, role, Letter("worker-1"))
    loop.make_ready(role, "value")
    loop.make_ready(other, "stays")
    assert loop.suspend(role) == ([(5, EARLY, DONE), (15, LATE, WAKE)], ["value"])
    role.token += 1
    loop.run(FAR)
    assert [(time, kind) for time, _, kind, _ in role.log] == [(30, "deliver")]
    assert [value for *_, value in other.log] == ["stays"]


def test_messages_from_and_to_a_lost_role_never_arrive(loop):
    one, two, three = (Role(loop, f"worker-{i}") for i in range(3))
    for sender, target in ((one, two), (two, three), (three, one), (one, three)):
        loop.schedule(5, EARLY, DELIVER, target, Letter(sender.name))
    loop.discard_messages({"worker-1"})
    assert [(target.name, m.sender) for target, m in loop.messages()] == [
        ("worker-0", "worker-2"),
        ("worker-2", "worker-0"),
    ]
    assert loop.run(FAR) is loop.EMPTY
    assert not two.log


def test_events_of_the_chief_can_be_left_out_of_roles_have_events(loop):
    role, chief = Role(loop), Role(loop, "chief")
    assert not loop.roles_have_events()
    loop.schedule(5, EARLY, CHIEF_WAKE, chief, 0)
    assert loop.roles_have_events()
    assert not loop.roles_have_events(but_chief=True)
    loop.schedule(5, EARLY, DONE, role, 7)  # void
    assert not loop.roles_have_events(but_chief=True)
    assert not loop.run_has_events()
    loop.call_at(6, print)
    assert loop.run_has_events()
    loop.schedule(5, EARLY, DELIVER, role, Letter("chief"))
    assert loop.roles_have_events(but_chief=True)
