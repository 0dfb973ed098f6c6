"""A role that reports late is not lost while its process lives; a frozen one is. Scripted observations, no process."""

import types
from collections import Counter

import pytest

from labkit.engines.dask.client.membership import Membership
from labkit.engines.dask.client.recovery_events import Heartbeat, WorkerHeartbeats, WorkerLeft
from labkit.engines.dask.client.recovery_policy import Record, RecoveryPolicy, RequestHeartbeats, ScaleUp, Submit, Timer
from labkit.engines.dask.timeouts import LOOK_S, SILENT_S
from labkit.roles.layout import Layout, RoleSpec
from labkit.trace.events import RoleLost

ADDRESSES = {"server-0": "a", "worker-0": "b", "chief": "c"}
TIMEOUT, STEP_S = 5.0, 0.25


class World:
    """A run, of which all roles but worker-0 report. `alive(now)`: a value that changes while the process of worker-0 lives."""

    def __init__(self, alive, heartbeat_timeout=TIMEOUT):
        roles = [RoleSpec(n, n.partition("-")[0], 0, n, computes=n == "worker-0") for n in ADDRESSES]
        members = self.members = Membership(Layout(tuple(roles), (), ()), dict(ADDRESSES), Counter())
        for role in ADDRESSES:
            members.arrive(role, ("127.0.0.1", 1, ""))
        cluster = types.SimpleNamespace(local=True, place=None, recovering=True)
        self.policy = RecoveryPolicy(
            members, cluster, "abcd", on_loss="wait", heartbeat_timeout=heartbeat_timeout, elastic=False, now=0.0
        )
        self.alive, self.now, self.lost_at, self.done = alive, 0.0, [], []

    def handle(self, event):
        for action in self.policy.handle(event, self.now):
            self.done.append(action)
            if isinstance(action, Record) and action.kind is RoleLost:
                self.lost_at.append(self.now)
            elif isinstance(action, RequestHeartbeats):
                seen = {"a": self.now, "b": self.alive(self.now), "c": self.now, "d": self.alive(self.now)}
                self.handle(WorkerHeartbeats({a: v for a, v in seen.items() if v is not None}))

    def run(self, seconds, step=STEP_S):
        until = self.now + seconds
        while self.now < until:
            self.now += step
            for role in ("server-0", "chief"):
                self.handle(Heartbeat(role, 0))
            self.handle(Timer())


def test_a_role_that_does_not_report_is_not_lost_while_its_process_lives():
    world = World(alive=lambda now: now)
    world.run(600)
    assert world.lost_at == []
    assert not any(isinstance(action, Submit | ScaleUp) for action in world.done)


@pytest.mark.parametrize("heartbeat_timeout", [0.6, TIMEOUT, 60.0])
def test_a_frozen_role_is_lost_after_the_heartbeat_timeout(heartbeat_timeout):
    world = World(alive=lambda now: "stopped", heartbeat_timeout=heartbeat_timeout)
    world.run(1.5 * heartbeat_timeout, step=min(STEP_S, heartbeat_timeout / 20))
    assert world.lost_at[0] == pytest.approx(heartbeat_timeout, abs=0.15 * heartbeat_timeout)


def test_a_process_that_cannot_be_observed_is_lost_after_the_heartbeat_timeout():
    """It has been cut off, so there is neither a report nor a sign of life."""
    world = World(alive=lambda now: None)
    world.run(2 * TIMEOUT)
    assert world.lost_at == [TIMEOUT + STEP_S]


def test_a_late_role_that_is_then_frozen_is_lost_in_time():
    world = World(alive=lambda now: min(now, 42.0))
    world.run(60)
    assert world.lost_at[0] == pytest.approx(42.0 + TIMEOUT, abs=2 * LOOK_S)


def test_no_role_is_lost_while_the_client_has_too_little_processor_time():
    """The run's thread runs once in two seconds, in which no report was received."""
    world = World(alive=lambda now: now)
    for _ in range(100):
        world.now += 2.0
        world.handle(Timer())
    assert world.lost_at == []


@pytest.mark.parametrize(("alive", "fails"), [(lambda now: now, False), (lambda now: "stopped", True)])
def test_a_restart_may_be_slow_but_not_without_a_sign_of_life(alive, fails):
    world = World(alive)
    world.handle(WorkerLeft("b", expected=False))
    world.run(1.0)
    assert [(action.role, action.worker) for action in world.done if isinstance(action, Submit)] == [("worker-0", "d")]
    world.run(SILENT_S + 3.0 if fails else 600.0)
    assert len(world.lost_at) == 1 + fails
