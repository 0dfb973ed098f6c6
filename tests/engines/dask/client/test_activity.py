"""Waiting ends without signs of life of the run: scripted events and a scripted clock, without processes."""

import pytest

import labkit as lk
from labkit.engines.dask.client.activity import Activity
from labkit.engines.dask.client.recovery_events import Heartbeat, StepRequested, WorkerHeartbeats
from labkit.engines.dask.timeouts import SILENT_S

STEP_S = 0.25  # seconds between two events


def waits(events, heartbeat_timeout=5.0, step=STEP_S):
    """Wait for a condition that never holds, while these events are handled. Returns the seconds until the wait ends."""
    now, left = 0.0, iter(events)
    activity = Activity(heartbeat_timeout, clock=lambda: now)

    def condition():
        nonlocal now
        now += step
        event = next(left, None)
        activity.handled(event)
        return False

    with pytest.raises(lk.ClusterError, match="sign of life"):
        activity.wait_until(condition, None)
    return now


@pytest.mark.parametrize(
    ("event", "is_sign"),
    [
        (lambda i: Heartbeat("worker-0", 0), True),
        (lambda i: WorkerHeartbeats({"tcp://a": float(i)}), True),
        (lambda i: WorkerHeartbeats({"tcp://a": 1.0}), False),  # the scheduler repeats an old heartbeat
        (lambda i: StepRequested(None, lambda error: None), False),  # a thread of the client
        (lambda i: None, False),
    ],
)
def test_only_roles_and_dask_workers_give_signs_of_life(event, is_sign):
    ended = waits(event(i) for i in range(400))
    assert (ended > 100) is is_sign


def test_the_limit_allows_for_the_heartbeat_timeout():
    assert waits([]) == pytest.approx(SILENT_S, abs=2 * STEP_S)
    assert waits([], heartbeat_timeout=60) == pytest.approx(120, abs=2 * STEP_S)


def test_a_client_that_was_suspended_draws_no_conclusion():
    """Every evaluation comes 20 s after the last: the client had no processor time, so nothing is known about the roles."""
    now, evaluations = 0.0, 0
    activity = Activity(5.0, clock=lambda: now)

    def condition():
        nonlocal now, evaluations
        now, evaluations = now + 20, evaluations + 1
        activity.handled(None)
        return evaluations == 10

    assert activity.wait_until(condition, None)


def test_the_end_of_the_run_ends_the_wait():
    activity = Activity(5.0)
    activity.close()
    assert activity.wait_until(lambda: False, None) is False
    assert activity.wait_until(lambda: True, None) is True
