"""The steady state of a run: its interval contains the expectation as often as it says, and slices do not change it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

import labkit as lk
from labkit.forecasts.steady_state import PRECISION, ROUGH, SteadyState

FLAT = lk.Problem("quadratic", timing_only=True, options={"dimension": 100, "samples": 1})
H4 = math.fsum(1 / i for i in range(1, 5))
RANDOM = lk.SimulatedCluster(workers=4, compute=lk.distributions.Exponential(1.0))


@pytest.mark.slow
@pytest.mark.sample(slow=1)
@pytest.mark.parametrize(
    ("strategy", "compute", "seconds"),
    [  # order statistics of four times
        (lk.AsyncPS(), lk.distributions.Exponential(1.0), 1.0),
        (lk.SyncPS(), lk.distributions.Exponential(1.0), H4),
        (lk.SyncPS(), lk.distributions.Uniform(0.0, 1.0), 4 / 5),
        (lk.KSync(K=2), lk.distributions.Exponential(1.0), 2 * (1 / 4 + 1 / 3)),
    ],
)  # fmt: skip
def test_intervals_contain_the_expectation(strategy, compute, seconds):
    inside = 0
    for seed in range(25):
        steady = SteadyState(replace(FLAT, seed=seed), strategy, replace(RANDOM, compute=compute))
        assert steady.advance(ROUGH)
        assert 0 < steady.error <= ROUGH * steady.step
        inside += abs(steady.step - seconds) <= steady.error
    assert inside >= 21  # of 95% intervals: fewer in 1 of 100


def test_with_constant_times_a_step_is_exact():
    steady = SteadyState(FLAT, lk.SyncPS(), lk.SimulatedCluster(workers=4, compute=0.5, server_time=0.25))
    assert steady.advance()
    assert (steady.step, steady.error) == (pytest.approx(0.75), 0.0)
    first, last = steady.window
    assert (last - first) % 750_000_000 == 0


def test_slices_give_the_same():
    whole, sliced = (SteadyState(FLAT, lk.AsyncPS(), replace(RANDOM, workers=2, compute=1.0)) for _ in range(2))
    whole.advance()
    slices = 1
    while not sliced.advance(timeout=1e-9):  # a slice ends after every few events, also between two of the same time
        slices += 1
    assert slices > 1
    assert (sliced.step, sliced.error, sliced.window) == (whole.step, whole.error, whole.window)


def test_more_precision_continues_the_run():
    steady = SteadyState(FLAT, lk.SyncPS(), RANDOM)
    steady.advance(ROUGH)
    before, end = steady.error, steady.trace.watermark()
    steady.advance(PRECISION)
    assert steady.error <= PRECISION * steady.step < before
    assert steady.trace.watermark() > end


@pytest.mark.parametrize("strategy", [lk.EASGD(tau=2), lk.DPSGD(), lk.ADPSGD()], ids=lambda each: each.name)
def test_vector_clocks_which_it_does_not_pass_on_change_no_time(strategy):
    strategy, cluster = replace(strategy, eval_every=10**9), replace(RANDOM, latency=0.01, bandwidth=1e4)
    steady = SteadyState(FLAT, strategy, cluster)
    steady.advance(0.2)
    until = steady.trace.watermark()
    run = lk.train(FLAT, strategy, cluster, lk.Budget(seconds=1e8)).advance(until / 1e9)
    for table, columns in (
        ("applies", ("role", "time", "sender", "step")),
        ("spans", ("role", "start", "end", "phase")),
    ):
        mine, theirs = (sorted(zip(*trace.column(table, *columns))) for trace in (steady.trace, run.trace))
        assert len(mine) > 100
        assert mine == theirs


def test_problems_compute_no_gradients():
    assert SteadyState(lk.Problem("moons"), lk.AsyncPS(), RANDOM).trace.header.problem.timing_only
