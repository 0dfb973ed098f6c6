"""Components of a role in real time, without a process: its clock, its work times, its command channel, its assignment."""

from dataclasses import replace

import pytest

import labkit as lk
from labkit.engines.dask.protocol import PROTOCOL, ProtocolError
from labkit.engines.dask.worker.assignment import RoleAssignment
from labkit.engines.dask.worker.command_channel import CommandChannel
from labkit.engines.dask.worker.role_clock import RoleClock
from labkit.engines.pacing import WorkTimes

# the clock ------------------------------------------------------------------------------------------------------------


class Machine:
    """The clock of a machine."""

    now = 1_000

    def __call__(self):
        return self.now


def test_engine_time_stands_still_during_a_pause():
    machine = Machine()
    clock = RoleClock(machine)
    clock.begin(1_000)
    machine.now = 1_300
    assert clock.now() == 300
    assert clock.pause() == 300
    machine.now = 5_300
    assert (clock.now(), clock.pause(), clock.paused) == (300, 300, True)
    clock.resume(5_000)
    assert (clock.now(), clock.paused) == (300, False)
    machine.now = 5_310
    assert clock.now() == 310


def test_a_role_that_was_busy_when_the_run_paused_is_ahead_of_it():
    machine = Machine()
    clock = RoleClock(machine)
    clock.begin(1_000)
    machine.now = 1_500  # the run was paused at 300; this role was notified at 500
    clock.pause()
    machine.now = 9_000
    assert clock.ahead_of(9_000 - 300) == 200
    assert clock.ahead_of(9_000 - 700) < 0
    clock.resume(8_700)
    assert clock.ahead_of(8_700) == 0  # it is not paused: its time is unchanged


def test_a_role_may_begin_in_a_paused_run():
    machine = Machine()
    clock = RoleClock(machine)
    clock.begin(0, 250)
    assert (clock.now(), clock.paused) == (250, True)


# work times -----------------------------------------------------------------------------------------------------------


class Always:
    """Always draws the same number."""

    def __init__(self, value):
        self.value = value

    def next(self):
        return self.value


def test_work_takes_the_drawn_time_or_its_real_time_if_longer():
    times = WorkTimes({"gradient": Always(100), "server": None, "measure": None}, 1.0)
    assert times.paced("gradient")
    assert not times.paced("server")
    assert [times.duration("gradient", cost, took) for cost, took in ((1.0, 30), (0.5, 30), (1.0, 130))] == [
        100,
        50,
        130,
    ]


def test_a_slow_role_takes_longer_for_all_but_evaluation():
    times = WorkTimes({"gradient": Always(100), "server": None, "measure": None}, 3.0)
    assert [times.paced(work) for work in ("gradient", "server", "measure")] == [True, True, False]
    assert times.duration("gradient", 1.0, 30) == 300
    assert times.duration("server", 1.0, 30) == 90
    times.factor = 1.0
    assert not times.paced("server")


# the command channel --------------------------------------------------------------------------------------------------


@pytest.fixture
def sent():
    return []


@pytest.fixture
def channel(sent):
    return CommandChannel("run", "worker-0", 2, "key", sent.append)


def link_faults(isolated):
    return {"do": "link_faults", "isolated": isolated, "number": 1, "links": {}, "per_byte": 0.0}


def test_commands_are_taken_in_order_and_a_caller_that_stops_leaves_the_rest(channel):
    woken = []
    channel.wake = lambda: woken.append(True)
    for number in range(3):
        channel.post({"do": "slow", "factor": number})
    assert (channel.pending, len(woken), channel.posted.is_set()) == (True, 3, True)
    taken = channel.commands()
    assert next(taken)["factor"] == 0
    taken.close()
    assert channel.pending
    assert [command["factor"] for command in channel.commands()] == [1, 2]
    assert not channel.pending


def test_a_report_names_the_role_instance(channel, sent):
    channel.report("version", version=7)
    assert sent == [{"run": "run", "role": "worker-0", "incarnation": 2, "what": "version", "version": 7}]


def test_an_isolated_role_exchanges_no_messages_until_it_is_reconnected(channel, sent):
    channel.post(link_faults(True))
    channel.post({"do": "slow", "factor": 2})
    channel.report("version", version=7)
    assert [command["do"] for command in channel.commands()] == ["link_faults"]
    assert sent == []
    channel.post(link_faults(False))
    assert [report["what"] for report in sent] == ["version", "heartbeat"]
    assert [command["do"] for command in channel.commands()] == ["slow", "link_faults"]


def test_an_isolated_role_receives_the_command_to_leave(channel):
    channel.post(link_faults(True))
    channel.post({"do": "leave", "why": ""})
    assert [command["do"] for command in channel.commands()] == ["link_faults", "leave"]


# the assignment -------------------------------------------------------------------------------------------------------


def test_an_assignment_of_another_protocol_is_refused():
    plan = lk.train("moons", lk.AsyncPS(), lk.SimulatedCluster(workers=1), lk.Budget(updates=1)).wait().plan
    assignment = RoleAssignment("run", 0, 0, plan, None, None, None, 1.0, None, True)
    assignment.check()
    other = replace(assignment, protocol=PROTOCOL + 1)
    with pytest.raises(ProtocolError, match=f"it uses protocol {PROTOCOL + 1}, and this process protocol {PROTOCOL}"):
        other.check()
