"""Pacing is exact: waits are not rounded to milliseconds, and late wake-ups do not accumulate."""

import random
import time

import numpy as np
import pytest

import labkit as lk
from labkit.engines.dask.transport.poller import Poller
from labkit.engines.pacing import Pacing
from labkit.trace.schema import COMPUTE

LIMIT_S = 60  # a hang, not a measurement


@pytest.fixture
def poller():
    made = Poller()
    yield made
    made.close()


def shortest(wait, under):
    """Seconds of the shortest wait; repeats until one takes less than `under`. On a busy machine most are longer."""
    until, best = time.monotonic() + LIMIT_S, float("inf")
    while best >= under and time.monotonic() < until:
        began = time.perf_counter()
        wait()
        best = min(best, time.perf_counter() - began)
    return best


@pytest.mark.parametrize("spin", [True, False])
@pytest.mark.parametrize("seconds", [0.0003, 0.0021])
def test_a_wait_is_not_rounded_up_to_milliseconds(poller, seconds, spin):
    def wait():
        began = time.perf_counter()
        while (left := began + seconds - time.perf_counter()) > 0:
            assert poller.wait(left, spin) == []

    assert seconds <= shortest(wait, seconds + 0.0005) < seconds + 0.0005


def test_an_exact_wait_ends_with_a_doorbell(poller):
    poller.wake()
    began = time.monotonic()
    assert poller.wait(LIMIT_S, spin=False) == []
    assert time.monotonic() - began < LIMIT_S


@pytest.mark.parametrize("name", ["epoll", "poll"])
def test_waits_are_no_longer_without_select(name, monkeypatch):
    """macOS has no epoll; and a descriptor from 1024 on cannot be given to select()."""
    import select

    if name == "poll":
        monkeypatch.delattr(select, "epoll", raising=False)
    monkeypatch.setattr(select, "select", lambda *_: pytest.fail("select was called"))
    poller = Poller(exact=False)
    try:
        assert shortest(lambda: poller.wait(0.0003, False), 0.0008) < 0.0008
        poller.wake()
        assert poller.wait(LIMIT_S, False) == []
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
    run = started(lk.AsyncPS(), on=cluster.resized(workers=2, pace=0.0201), budget=lk.Budget(updates=200))
    run.wait(LIMIT_S)
    role, phase, start, end = run.trace.column("spans", "role", "phase", "start", "end")
    computed = [(phase == COMPUTE) & (role == run.plan.role_ids[f"worker-{i}"]) for i in range(2)]
    lasted = np.concatenate([(end - start)[each][:-1] for each in computed]) / 1e6
    assert len(lasted) > 150
    assert np.any(lasted < 20.1)
    assert np.any(lasted > 20.1)
