"""Asynchrony on a quadratic, where every result is a linear recurrence: implicit momentum and stability."""

import math
from dataclasses import replace

import numpy as np
import pytest

import labkit as lk
from labkit.engines.plan import make_plan


class Noting(lk.AsyncPS):
    """AsyncPS that records the single weight after every update."""

    async def server(self, ctx, shard):
        async for request in ctx.inbox(lk.Push, lk.Pull):
            if isinstance(request, lk.Push) and await ctx.compute(shard.apply, request, self.learning_rate):
                ctx.note("w", w=shard.values[0])
            ctx.send(request.sender, shard.weights())


def bowl(**options):
    return lk.Problem("quadratic", batch_size=1, options={"samples": 1, "dimension": 1, **options}, partition="shared")


def weights(run):
    return [event.numbers["w"] for event in run.trace.events if str(event) == "w"]


@pytest.mark.slow
def test_random_staleness_is_implicit_momentum():
    """N = 4, rate x curvature = .5: the mean over seeds follows m(t+1) = m + (1 - 1/N)(m - m_before) - (a/N) m.

    600 seeds instead of the 20,000 of the statement: the bound of 4 standard errors is wider by 5.8, a seventh of the start.
    """
    workers, a, seeds, updates = 4, 0.5, 600, 6
    cluster = lk.SimulatedCluster(workers=workers, compute=lk.distributions.Exponential(1.0))
    strategy = Noting(learning_rate=0.25, eval_every=10**6)
    plan = make_plan(bowl(curvature=2.0), strategy, cluster.spec, lk.Budget(updates=updates))
    seen = np.empty((seeds, updates))
    for seed in range(seeds):
        run = cluster.start(replace(plan, seed=seed))
        run.wait()
        seen[seed] = weights(run)
    m = [1.0, 1.0 - a]
    while len(m) <= updates:
        m.append(m[-1] + (1 - 1 / workers) * (m[-1] - m[-2]) - a / workers * m[-1])
    np.testing.assert_allclose(m[:5], [1, 0.5, 0.0625, -0.2734375, -0.4912109], atol=5e-8)
    error = seen.std(axis=0) / math.sqrt(seeds)
    assert seen[:, 0].tolist() == [0.5] * seeds  # all have read the same start
    assert np.all(np.abs(seen.mean(axis=0) - m[1:]) <= 4 * error)
    assert error[1:].min() > 0
    assert error.max() < 0.04


def test_implicit_momentum_does_not_hold_for_constant_compute():
    run = lk.train(bowl(), Noting(learning_rate=0.5), lk.SimulatedCluster(workers=4), lk.Budget(updates=4)).wait()
    assert weights(run) == [0.5, 0.0, -0.5, -1.0]  # four gradients of the same start, not .5, .0625, -.273, -.491


def delayed(workers, rate, updates):
    """w(t+1) = w(t) - rate w(t - tau), tau = min(t, N - 1), computed with an array as queue."""
    w = [1.0]
    for t in range(updates):
        w.append(w[-1] - rate * w[max(0, t - (workers - 1))])
    return w


@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_equal_workers_follow_the_delay_recurrence(workers):
    strategy = Noting(learning_rate=0.07)
    run = lk.train(bowl(), strategy, lk.SimulatedCluster(workers=workers), lk.Budget(updates=100)).wait()
    np.testing.assert_allclose(weights(run), delayed(workers, 0.07, 100)[1:], rtol=1e-12, atol=1e-15)


@pytest.mark.slow
@pytest.mark.sample(slow=1)
@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_runs_are_stable_and_without_oscillation_up_to_the_theoretical_bounds(workers):
    """Constant staleness N - 1. Stable iff rate x curvature < 2 sin(pi / (2 (2 tau + 1))); no oscillation iff at most
    tau^tau / (tau + 1)^(tau + 1).
    """
    tau = workers - 1

    def path(rate, updates):
        strategy = Noting(learning_rate=rate, eval_every=10**6)
        budget = lk.Budget(updates=updates)
        return np.array(weights(lk.train(bowl(), strategy, lk.SimulatedCluster(workers=workers), budget).wait()))

    def stable(rate):  # over whole periods (at most 4 tau + 2 updates), an unstable path grows and a stable one shrinks
        w = np.abs(path(rate, 3000))
        return w[-300:].max() < w[1200:1500].max()

    def without_oscillation(rate):
        return bool(np.all(path(rate, 700) >= 0))

    bound = 2 * math.sin(math.pi / (2 * (2 * tau + 1)))
    monotone = tau**tau / (tau + 1) ** (tau + 1)
    for change in (-0.02, -0.001, 0.001, 0.02):
        assert stable(bound + change) == (change < 0)
        assert without_oscillation(monotone + change) == (change < 0)


def test_eight_workers_converge_at_rate_020_and_diverge_at_022():
    def loss(rate):
        strategy = lk.AsyncPS(learning_rate=rate)
        return (
            lk.train(bowl(), strategy, lk.SimulatedCluster(workers=8), lk.Budget(updates=2000)).wait().summary()["loss"]
        )

    assert loss(0.20) < 1e-4 < 1e4 < loss(0.22)
