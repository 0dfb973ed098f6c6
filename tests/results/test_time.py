"""Throughput, waiting and response times, against their formulas."""

import math

import numpy as np
import pytest

import labkit as lk
from labkit.random_streams import COMPUTE_TIME, role_stream
from labkit.trace import query

TIMING = lk.Problem("moons", hidden=(), timing_only=True)


def run(strategy, updates, **cluster):
    return lk.train(TIMING, strategy, lk.SimulatedCluster(**cluster), lk.Budget(updates=updates)).wait().trace


def times(trace, shard_role=0):
    """When each update of a shard was applied, ns (a synchronous update has a row for every gradient in it)."""
    role, time, version = trace.column("applies", "role", "time", "version")
    mine = role == shard_role
    return time[mine][np.unique(version[mine], return_index=True)[1]]


@pytest.mark.parametrize(("workers", "throughput"), [(1, 1 / 11), (4, 4 / 11), (8, 0.727272727), (11, 1.0), (32, 1.0)])
def test_throughput_with_constant_times_is_that_of_the_formula(workers, throughput):
    """Compute 10 s, server 1 s: min(N / (c + s), 1 / s), exactly, once the first round is over."""
    time = times(run(lk.AsyncPS(), workers * 12, workers=workers, compute=10.0, server_time=1.0))
    cycle = int(time[-1] - time[-1 - workers])  # nanoseconds for N updates
    assert cycle == max(11, workers) * 10**9
    assert workers / (cycle / 1e9) == pytest.approx(throughput, rel=1e-9)
    assert np.all(np.diff(time[2 * workers :], n=workers) == 0) or workers < 11


@pytest.mark.parametrize("strategy", [lk.AsyncPS(), lk.SyncPS()], ids=["async", "sync"])
def test_throughput_and_cycles_fulfil_the_response_time_equation(strategy):
    """N / throughput = mean cycle of a worker, the cycles counted from the workers' spans."""
    workers = 6
    trace = run(
        strategy,
        3000,
        workers=workers,
        compute=lk.distributions.LogNormal(0.02, 0.7),
        server_time=lk.distributions.Exponential(0.002),
        latency=0.001,
        bandwidth=1e6,
    )
    role, phase, start = trace.column("spans", "role", "phase", "start")
    cycles = [np.diff(np.sort(start[(role == w) & (phase == 0)])) for w in trace.role_ids("worker")]
    began, ended = times(trace)[100], times(trace)[-100]
    gradients = (query.updates(trace) - 200 + 1) * (workers if isinstance(strategy, lk.SyncPS) else 1)
    throughput = gradients / (ended - began)
    assert workers / throughput == pytest.approx(np.mean(np.concatenate(cycles)), rel=0.01)


def slowest_of(workers, rounds, seed=0):
    """(rounds,) ns: the longest of the workers' draws, taken from their streams directly."""
    slowest = np.zeros(rounds)
    for i in range(workers):
        slowest = np.maximum(
            slowest, np.rint(role_stream(seed, "worker", i, COMPUTE_TIME).exponential(1.0, rounds) * 1e9)
        )
    return slowest


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "rounds", "checked"), [(8, 20_000, 4088), (10_000, 1500, 3)])
def test_a_synchronous_step_waits_for_the_slowest(workers, rounds, checked):
    """Exponential compute: H_N on average. The engine's rounds equal, to the nanosecond, the maxima of the same draws;
    the average is taken over more of these maxima than the engine is run for. (Draws come in blocks of 8, 16, 32 ...
    1024.)
    """
    trace = run(lk.SyncPS(), checked, workers=workers, compute=lk.distributions.Exponential(1.0))
    slowest = slowest_of(workers, rounds)
    assert np.array_equal(np.diff(times(trace), prepend=0), slowest[:checked])
    harmonic = np.sum(1 / np.arange(1, workers + 1))
    assert harmonic == pytest.approx(2.7179 if workers == 8 else 9.788, abs=5e-4)
    assert slowest.mean() / 1e9 == pytest.approx(harmonic, rel=0.02)


# faults ---------------------------------------------------------------------------------------------------------------


@pytest.mark.sample(slow=1)
@pytest.mark.slow
@pytest.mark.parametrize(("rate", "down"), [(0.1, 5.0), (0.2, 5.0)])
def test_preempted_workers_are_available_for_the_share_of_renewal_theory(rate, down):
    """A worker is present for 1 / rate seconds on average, in which it completes 1 / (exp(rate c) - 1) gradients of c seconds,
    and absent for `down` seconds. A preemption of an absent worker has no effect.
    """
    c, workers, seconds = 0.2, 20, 400.0
    cluster = lk.SimulatedCluster(workers=workers, compute=c, restart_after=down)
    problem = lk.Problem("digits", hidden=(), timing_only=True)
    run = lk.train(problem, lk.AsyncPS(), cluster, lk.Budget(seconds=seconds), faults=lk.Preempt(rate)).wait()
    expected = workers / ((math.exp(rate * c) - 1) * (1 / rate + down))
    assert run.summary()["updates"] / seconds == pytest.approx(expected, rel=0.05)
