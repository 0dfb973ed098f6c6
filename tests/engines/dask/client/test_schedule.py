"""Scheduled commands: when they are due, by a clock that the test sets; no run is needed."""

import pytest

from labkit.engines.commands import Kill, Pause, Resume, Slow, Stop
from labkit.engines.dask.client.clock import EngineClock
from labkit.engines.dask.client.schedule import CommandSchedule


class World:
    def __init__(self, *commands):
        self.time = 0.0
        self.clock = EngineClock(lambda: int(self.time * 1e9))
        self.clock.begin()
        self.schedule = CommandSchedule(commands, self.clock)

    def take(self, seconds):
        """Texts of the commands that are due after this many seconds, including pauses."""
        self.time = seconds
        taken = []
        while (command := self.schedule.take()) is not None:
            taken.append(command.word)
        return taken


def test_commands_are_due_at_their_times_in_their_order():
    world = World(Kill("worker-0", at=2.0), Slow("worker-1", 2.0, at=1.0))
    assert world.take(0.5) == []
    assert world.schedule.left == 0.5
    world.schedule.add([Kill("worker-1", at=1.5)])
    assert world.take(1.0) == ["slow"]
    assert world.take(5.0) == ["kill", "kill"]
    assert world.schedule.left == float("inf")


def test_no_command_is_due_while_the_user_has_paused_the_run():
    world = World(Kill("worker-0", at=2.0), Resume(at=3.0), Stop(at=4.0))
    world.time = 1.0
    world.clock.pause()
    assert world.take(10.0) == []
    assert world.schedule.left == float("inf")
    world.clock.resume()
    assert world.schedule.left == 1.0
    assert world.take(13.0) == ["kill", "resume", "stop"]


@pytest.mark.parametrize("command", [Resume(at=3.0), Stop(at=3.0)], ids=["resume", "stop"])
def test_in_a_scheduled_pause_its_end_is_due_and_nothing_else(command):
    world = World(Pause(at=1.0), Kill("worker-0", at=2.0), command)
    assert world.take(1.0) == ["pause"]
    world.schedule.in_scheduled_pause = True
    world.clock.pause()
    assert world.take(2.5) == []
    assert world.schedule.left == 0.5
    assert world.take(3.0) == [command.word]
    world.clock.resume()
    assert world.schedule.left == 1.0  # engine time has reached 1 s
    assert world.take(4.0) == ["kill"]
