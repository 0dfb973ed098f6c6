"""Pacing is exact: waits are not rounded to milliseconds, and late wake-ups do not accumulate."""

import random
import select
import time

import numpy as np
import pytest

import labkit as lk
from labkit.engines.dask.transport.poller import Poller
from labkit.engines.pacing import Pacing
from labkit.trace.schema import COMPUTE


@pytest.fixture
def poller():
    made = Poller()
    yield made
    made.close()


@pytest.mark.parametrize("spin", [True, False])
@pytest.mark.parametrize("seconds", [0.0003, 0.0021])
def test_a_wait_is_not_rounded_up_to_milliseconds(poller, seconds, spin, monkeypatch):
    """The kernel is asked for the rest of the time, in a call whose unit is not a millisecond."""
    asked, wait = [], select.select
    monkeypatch.setattr(select, "select", lambda *lists: asked.append(lists[3]) or wait(*lists))
    began = time.perf_counter()
    while (left := began + seconds - time.perf_counter()) > 0:
        assert poller.wait(left, spin) == []
    assert spin or asked
    assert all(0 < timeout <= seconds for timeout in asked)


def test_a_wait_ends_with_a_doorbell(poller):
    poller.wake()
    assert poller.wait(1e6, spin=False) == []


@pytest.mark.parametrize("name", ["epoll", "poll"])
def test_waits_are_no_longer_without_select(name, monkeypatch):
    """macOS has no epoll; and a descriptor from 1024 on cannot be given to select()."""
    if name == "poll":
        monkeypatch.delattr(select, "epoll", raising=False)
    monkeypatch.setattr(select, "select", lambda *_: pytest.fail("select was called"))
    rests = []
    monkeypatch.setattr(time, "sleep", rests.append)
    poller = Poller(exact=False)
    try:
        poller.wait(0.0023, False)  # the pollers themselves round up: they are asked for 2 ms
        assert rests == [pytest.approx(0.0003)]
        poller.wake()
        assert poller.wait(1e6, False) == []
    finally:
        poller.close()


def test_timer_delays_do_not_accumulate():
    """Random durations and random timer delays: the error of the sum is at most one delay. The clock is simulated."""
    rng, pacing, now, drawn = random.Random(0), Pacing(), 1_000_000, 0
    began = now
    for _ in range(1000):
        duration = rng.randrange(200_000, 3_000_000)
        deadline = pacing.deadline(now, duration)
        now = max(now, deadline) + rng.randrange(20_000, 250_000)
        pacing.ended(deadline, now)
        drawn += duration
    assert 0 <= now - began - drawn <= 250_000


def test_computations_longer_than_the_pace_are_not_compensated():
    pacing, now = Pacing(), 0
    for own, duration in [(5_000_000, 1_000_000), (100_000, 1_000_000)]:
        deadline = pacing.deadline(now, max(own, duration))
        now = max(now + own, deadline)
        pacing.ended(deadline, now)
    assert now == 6_000_000


def test_a_thawed_process_does_not_catch_up():
    pacing = Pacing(most=5_000_000)
    pacing.ended(1_000_000, 2_001_000_000)
    assert pacing.deadline(3_000_000_000, 20_000_000) == 3_015_000_000


def test_late_times_are_compensated_by_the_next_gradient(cluster, started):
    """Durations lie on both sides of the pace. Regression: with waits rounded up, only the last one of a worker was shorter,
    because the end of the run cut it off.
    """
    run = started(lk.AsyncPS(), on=cluster.resized(workers=2, pace=0.0201), budget=lk.Budget(updates=100))
    run.wait()
    role, phase, start, end = run.trace.column("spans", "role", "phase", "start", "end")
    computed = [(phase == COMPUTE) & (role == run.plan.role_ids[f"worker-{i}"]) for i in range(2)]
    lasted = np.concatenate([(end - start)[each][:-1] for each in computed]) / 1e6
    assert len(lasted) > 75
    assert np.any(lasted < 20.1)
    assert np.any(lasted > 20.1)
