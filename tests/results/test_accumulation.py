"""Gradient accumulation: k mini-batches of b samples make the step of one batch of k b samples, for one communication."""

import numpy as np
import pytest

import labkit as lk
from tests.models.own_models import Dropout

RATE, UPDATES, BATCH, WORKERS = 0.2, 25, 4, 3
PROBLEM = lk.Problem("moons", hidden=(6, 5), batch_size=BATCH, dtype="float64", seed=3, options={"samples": 200})
SYNCHRONOUS = (lk.SyncPS, lk.RingAllReduce, lk.HalvingDoubling, lk.BucketedAllReduce)
SERVERS = (lk.SyncPS, lk.AsyncPS, lk.SSP, lk.KAsync, lk.KBatchAsync)
ALL = tuple(dict.fromkeys(SYNCHRONOUS + SERVERS))


def trained(strategy, problem=PROBLEM, workers=WORKERS, updates=UPDATES, **cluster):
    return lk.train(problem, strategy, lk.SimulatedCluster(workers, **cluster), lk.Budget(updates=updates)).wait()


def loop(k, problem=PROBLEM, workers=WORKERS, updates=UPDATES, clip=None, reduce="mean"):
    """The parameters after steps on batches of k b samples of each worker: k mini-batches, joined here."""
    objective = problem.objective()
    weights, streams = objective.start(problem.seed), problem.batches(workers)
    for _ in range(updates):
        gradients = []
        for stream in streams:
            batches, made = [next(stream) for _ in range(k)], np.empty(objective.size)
            x, y = (np.concatenate([getattr(batch, name) for batch in batches]) for name in ("x", "y"))
            objective.gradient(weights, x, y, made)
            norm = np.sqrt(np.sum(made**2))
            gradients.append(made if clip is None or norm <= clip else made * (clip / norm))
        weights = weights - RATE * (np.mean(gradients, axis=0) if reduce == "mean" else np.sum(gradients, axis=0))
    return weights


@pytest.mark.parametrize("strategy", SYNCHRONOUS)
@pytest.mark.parametrize("k", [1, 2, 5])
def test_k_mini_batches_make_the_step_of_one_batch_with_their_samples(strategy, k):
    made = trained(strategy(learning_rate=RATE, accumulate=k))
    np.testing.assert_allclose(made.result().parameters, loop(k), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "problem", "expected"),
    [
        ({"reduce": "sum"}, {}, {"reduce": "sum"}),
        ({"clip_norm": 0.05}, {}, {"clip": 0.05}),  # the mean is clipped, and not the mini-batches
        ({}, {"class_weights": {0: 3.0, 1: 1.0}}, {}),
        ({}, {"batch_size": 6, "partition": "global-batch"}, {}),
    ],
    ids=["sum", "clipped", "weighted", "global batch"],
)
@pytest.mark.parametrize("strategy", [lk.SyncPS, lk.RingAllReduce])
def test_with_other_options(strategy, options, problem, expected):
    changed = lk.Problem(
        **{"data": "moons", "hidden": (6, 5), "batch_size": BATCH, "dtype": "float64", "seed": 3} | problem
    )
    made = trained(strategy(learning_rate=RATE, accumulate=3, **options), changed)
    np.testing.assert_allclose(made.result().parameters, loop(3, changed, **expected), rtol=0, atol=1e-12)


def test_the_sum_over_the_workers_is_clipped_with_buckets():
    objective, k = PROBLEM.objective(), 3
    weights, streams = objective.start(PROBLEM.seed), PROBLEM.batches(WORKERS)
    for _ in range(UPDATES):
        batches = [next(stream) for stream in streams for _ in range(k)]
        made = np.empty(objective.size)
        objective.gradient(weights, *(np.concatenate([b[i] for b in batches]) for i in (0, 1)), made)
        weights -= RATE * made * min(1.0, 0.02 / np.sqrt(np.sum(made**2)))
    run = trained(lk.BucketedAllReduce(learning_rate=RATE, accumulate=k, clip_norm=0.02, bucket_size=1))
    np.testing.assert_allclose(run.result().parameters, weights, rtol=0, atol=1e-12)


@pytest.mark.parametrize("strategy", ALL)
def test_an_accumulated_gradient_is_one_gradient_with_the_samples_of_its_mini_batches(strategy):
    """With one worker all strategies make the same steps."""
    made = trained(
        strategy(learning_rate=RATE, accumulate=4, **({"K": 1} if hasattr(strategy, "K") else {})), workers=1
    )
    np.testing.assert_allclose(made.result().parameters, loop(4, workers=1), rtol=0, atol=1e-12)
    summary, (count, samples) = made.summary(), made.trace.column("applies", "count", "samples")
    assert set(count.tolist()) == {1}
    assert set(samples.tolist()) == {4 * BATCH}
    assert summary["gradients"] == summary["updates"] == UPDATES
    assert summary["samples_per_second"] == pytest.approx(UPDATES * 4 * BATCH / summary["seconds"])
    assert summary["ledger"]["closes"]
    assert "mean over 4 mini-batches" in made.plan.strategy.one_update()


@pytest.mark.parametrize("limit", [{"samples": 10 * WORKERS * 5 * BATCH}, {"epochs": 10 * WORKERS * 5 * BATCH / 160}])
@pytest.mark.parametrize("strategy", SYNCHRONOUS)
def test_a_budget_counts_the_samples_of_all_mini_batches(strategy, limit):
    run = lk.train(PROBLEM, strategy(accumulate=5), lk.SimulatedCluster(WORKERS), lk.Budget(**limit)).wait()
    assert run.summary()["updates"] == 10


def test_each_mini_batch_has_random_numbers_of_its_own():
    """With dropout, one sample as all mini-batches would otherwise give k equal gradients."""
    x, y = np.ones((40, 6)), np.arange(40) % 2
    problem = lk.Problem(
        lk.from_arrays(x, y, standardize=False), model=Dropout(), batch_size=1, dtype="float64", seed=1
    )
    k, seen = 4, set()
    run = trained(lk.SyncPS(learning_rate=1.0, accumulate=k), problem, workers=1, updates=1)
    moved = run.result().parameters - problem.objective().start(1)
    for value in np.abs(moved[np.abs(moved) > 1e-12]):
        seen.add(round(float(value), 6))
    assert len(seen) > 2  # k equal gradients have two: of a kept input, and of the bias


# time and bytes -------------------------------------------------------------------------------------------------------

FLAT = lk.Problem("moons", hidden=(100,), batch_size=BATCH, timing_only=True)
MODEL = FLAT.objective().size * 4
C, A, B = 0.01, 0.0005, 1e6  # seconds of a gradient, latency, bytes per second


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_a_step_takes_k_gradients_and_one_communication(k):
    """So communication per sample falls by k, on both kinds of network."""
    wire, n = MODEL / B, 4
    ring = n * 2 * (n - 1) * MODEL / n  # bytes of an update
    for strategy, communication, moved in (
        (lk.RingAllReduce, 2 * (n - 1) * (A + wire / n), ring),
        (lk.SyncPS, 2 * A + wire * (1 + n), 2 * n * MODEL),
    ):
        run = trained(strategy(accumulate=k, eval_every=10**6), FLAT, n, 10, compute=C, latency=A, bandwidth=B)
        sent = sum(kinds["training"] for kinds in run.summary()["bytes_sent"].values())
        role, time = run.trace.column("applies", "role", "time")
        time = np.unique(time[role == role[0]])
        assert np.diff(time) / 1e9 == pytest.approx(np.full(9, k * C + communication), rel=1e-3)
        assert sent / (10 * n * k) == pytest.approx(moved / (n * k), rel=0.1)  # the last update's weights are not sent


def test_only_the_buckets_of_the_last_mini_batch_are_summed_during_its_backward_pass():
    k, n = 3, 2
    run = trained(
        lk.BucketedAllReduce(accumulate=k, bucket_size=1, eval_every=10**6), PROBLEM, n, 6, compute=C, latency=A
    )
    role, number, start = run.trace.column("communications", "role", "number", "start")
    layer = run.trace.column("pieces", "layer")
    assert len(layer) == k * n * 6 * 3  # a piece of each of three layers
    assert sorted(number[role == role[0]].tolist()) == sorted([0, 1, 2] * 6)
    first = start[(role == role[0]) & (number == 0)]
    assert first[0] > (k - 1 + 1 / 3) * C * 1e9  # in the backward pass of the last mini-batch of the first step
    assert first[0] < k * C * 1e9


def test_random_times_are_drawn_for_each_mini_batch():
    """The mean of the slowest of N sums of k exponential times is less than k times that of the slowest of N times."""
    times = lk.distributions.Exponential(C)
    run = trained(lk.SyncPS(accumulate=6, eval_every=10**6), FLAT, 4, 2000, compute=times)
    rng = np.random.default_rng(0)
    draws = rng.exponential(C, (100_000, 4, 6)).sum(axis=2).max(axis=1)
    error = 4 * draws.std() * np.sqrt(1 / 2000 + 1 / 100_000)
    assert run.summary()["seconds"] / 2000 == pytest.approx(draws.mean(), abs=error)
    assert draws.mean() + error < 6 * C * (1 + 1 / 2 + 1 / 3 + 1 / 4)


# what happens in the middle of an accumulation ------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", SYNCHRONOUS)
@pytest.mark.parametrize("on_loss", ["wait", "continue"])
def test_mini_batches_of_a_worker_that_is_killed_are_in_no_gradient(strategy, on_loss):
    """At 0.225 s it computes the third of four mini-batches of its sixth gradient."""
    cluster = lk.SimulatedCluster(WORKERS, compute=C, heartbeat_timeout=0.05, restart_after=0.02)
    made = strategy(accumulate=4, on_loss=on_loss)
    run = lk.train(PROBLEM, made, cluster, lk.Budget(updates=20), faults=[lk.Kill("worker-1", at=0.225)]).wait()
    book = run.summary()["ledger"]
    assert run.summary()["updates"] == 20
    assert book["closes"]
    assert book["missing"] == book["partly_applied"] == 0
    count, samples = run.trace.column("applies", "count", "samples")
    assert (samples == count * 4 * BATCH).all()


def test_a_gradient_that_is_cancelled_during_an_accumulation_is_dropped_with_its_mini_batches():
    class Impatient(lk.KSync):
        async def worker(self, ctx, model):
            weights = await lk.pull(ctx)
            for batch in ctx.batches():
                gradient = await ctx.compute(model.gradient, weights, batch, 3, unless=lk.Weights)
                if gradient is None:
                    weights = await ctx.recv(lk.Weights)
                elif gradient.complete:
                    weights = await lk.push_pull(ctx, gradient)

    slow = lk.SimulatedCluster(WORKERS, compute=C, slow={"worker-2": 1.4})
    run = lk.train(PROBLEM, Impatient(K=2), slow, lk.Budget(updates=10)).wait()
    book = run.summary()["ledger"]
    assert book["applied"] == 20
    assert book["dropped"] == {"cancelled": 10}
    assert book["closes"]
    assert set(run.trace.column("applies", "samples").tolist()) == {3 * BATCH}


@pytest.mark.parametrize("strategy", [lk.SyncPS, lk.RingAllReduce, lk.LocalSGD])
@pytest.mark.parametrize("timing_only", [False, True])
def test_a_gradient_that_is_not_complete_cannot_be_used(strategy, timing_only):
    class Early(strategy):
        async def worker(self, ctx, model, replica=None):
            weights = await lk.pull(ctx) if replica is None else replica.weights()
            gradient = await ctx.compute(model.gradient, weights, next(ctx.batches()), 2)
            if replica is None:
                await lk.push_pull(ctx, gradient)
            await ctx.compute(replica.apply, gradient, 0.1)

    with pytest.raises(lk.RoleError, match=r"does not have all its mini-batches yet.*gradient\.complete"):
        trained(Early(), lk.Problem("moons", timing_only=timing_only))


@pytest.mark.parametrize("given", [0, -1, 1.5, True, "2", None])
def test_the_number_of_mini_batches_is_checked(given):
    class Odd(lk.SyncPS):
        async def worker(self, ctx, model):
            await ctx.compute(model.gradient, await lk.pull(ctx), next(ctx.batches()), given)

    with pytest.raises(lk.RoleError, match="give the number of mini-batches of a gradient, from 1 on"):
        trained(Odd())
