"""The request for the final evaluation is repeated until the chief acknowledges it; no run is needed."""

import pytest

from labkit.engines.dask.client.clock import EngineClock
from labkit.engines.dask.client.shutdown import FinalEvaluation
from labkit.engines.dask.timeouts import REPEAT_S


class World:
    def __init__(self):
        self.time, self.sent = 0.0, []
        clock = EngineClock(lambda: int(self.time * 1e9))
        clock.begin()
        self.request = FinalEvaluation(self.sent.append, clock, lambda: self.time)


@pytest.fixture
def world():
    return World()


def test_without_a_request_there_is_nothing_to_acknowledge(world):
    world.request.reported(False)
    assert (world.request.acknowledged_at, world.request.orders(), world.sent) == (0, [], [])


def test_a_request_is_repeated_until_the_chief_has_it(world):
    world.request.request("user")
    order = {"do": "finish", "reason": "user"}
    assert world.request.acknowledged_at is None
    for world.time in (0.1, REPEAT_S):
        world.request.reported(False)
    assert world.sent == [order]
    for world.time in (REPEAT_S + 0.1, REPEAT_S + 0.2, 3 * REPEAT_S):
        world.request.reported(False)
    assert world.sent == [order] * 3
    world.time = 7.0
    world.request.reported(True)
    world.time = 20.0
    # of an earlier report, or of a chief that has begun since: it is notified at its start
    world.request.reported(False)
    assert world.request.acknowledged_at == 7_000_000_000
    assert world.sent == [order] * 3
    assert world.request.orders() == [order]


def test_the_first_reason_counts(world):
    world.request.request("finished")
    world.request.request("user")
    assert world.request.reason == "finished"
    assert len(world.sent) == 1
