"""Strong and weak scaling: a batch that is divided among the workers, and the linear scaling rule (Goyal et al. 2017)."""

import math

import numpy as np
import pytest

import labkit as lk

RATE, UPDATES, BATCH = 0.2, 60, 24  # an epoch of 160 samples ends within a batch, and so within a worker's part
PROBLEM = lk.Problem(
    "moons", hidden=(5,), batch_size=BATCH, dtype="float64", seed=3, partition="global-batch", options={"samples": 200}
)  # fmt: skip
COUNTS = (1, 2, 4, 8)


def trained(problem, strategy, workers, **budget):
    return lk.train(
        problem, strategy, lk.SimulatedCluster(workers=workers), lk.Budget(**budget or {"updates": UPDATES})
    ).wait()


def loop(problem, updates):
    """The parameters after `updates` steps of one process, with batches drawn here: permutations, one after the other."""
    objective, data = problem.objective(), problem.dataset
    weights, gradient = objective.start(problem.seed), np.empty(objective.size)
    (batches,) = problem.batches()
    seen = []
    for _, batch in zip(range(updates), batches):
        objective.gradient(weights, batch.x, batch.y, gradient)
        weights -= RATE * gradient
        seen.append(batch.x)
    rows = np.concatenate(seen)[: len(data.x_train)]
    assert len({tuple(row) for row in rows}) == len(data.x_train)  # an epoch has every sample once
    return weights


@pytest.mark.sample(3)
@pytest.mark.parametrize("strategy", [lk.SyncPS, lk.RingAllReduce, lk.HalvingDoubling, lk.BucketedAllReduce, lk.FSDP])
def test_the_number_of_workers_does_not_change_the_parameters(strategy):
    """A local step of `LocalSGD` and an asynchronous gradient are others; those have no such statement."""
    alone = loop(PROBLEM, UPDATES)
    for workers in COUNTS:
        made = trained(PROBLEM, strategy(learning_rate=RATE), workers)
        np.testing.assert_allclose(made.result().parameters, alone, rtol=0, atol=1e-12)
        assert made.trace.header.problem.batch_size == BATCH // workers
        assert made.summary()["gradients"] == UPDATES * workers


def test_the_replicas_of_a_pipeline_divide_the_batch():
    """A pipeline has one batch, which it cuts into micro-batches; a hybrid of two pipelines has two halves of it."""
    alone = loop(PROBLEM, UPDATES)
    for strategy, workers in ((lk.Pipeline(learning_rate=RATE), 2), (lk.Hybrid(learning_rate=RATE, shape="2x2"), 4)):
        np.testing.assert_allclose(trained(PROBLEM, strategy, workers).result().parameters, alone, rtol=0, atol=1e-12)
    with pytest.raises(lk.BadInput, match="micro_batches=16 cuts a batch of 12"):
        trained(PROBLEM, lk.Hybrid(shape="2x2", micro_batches=16), 4)


@pytest.mark.parametrize("partition", ["even", "shared"])
def test_without_a_global_batch_the_parameters_depend_on_the_number_of_workers(partition):
    problem = lk.Problem("moons", hidden=(5,), batch_size=8, dtype="float64", partition=partition)
    found = [trained(problem, lk.SyncPS(learning_rate=RATE), workers).result().parameters for workers in COUNTS]
    assert min(np.abs(one - other).max() for one, other in zip(found, found[1:])) > 1e-3


def test_workers_divide_each_batch_and_an_epoch_has_each_sample_once():
    whole = PROBLEM.batches(workers=1)[0]
    parts = PROBLEM.batches(workers=4)
    for _ in range(20):
        np.testing.assert_array_equal(next(whole).x, np.concatenate([next(part).x for part in parts]))


def test_a_batch_that_cannot_be_divided_equally_is_refused_with_what_can():
    allowed = (
        r"24 with partition='global-batch' .* 5 workers.*batch_size=20 or 25, .* divides 24: 1, 2, 3, 4, 6, 8, 12, 24\."
    )
    with pytest.raises(lk.BadInput, match=allowed):
        trained(PROBLEM, lk.SyncPS(), 5)
    with pytest.raises(lk.BadInput, match="a fixed number of workers; leave max_workers out"):
        lk.train(PROBLEM, lk.SyncPS(), lk.SimulatedCluster(workers=2, max_workers=4), lk.Budget(updates=1))


def test_a_divided_batch_makes_measured_gradients_shorter_and_the_advice_knows_it():
    """A gradient of b samples takes b ms: with 4 workers a step of 24 samples takes 6 ms, in a run and in the advice."""
    problem = lk.Problem("quadratic", batch_size=24, partition="global-batch", options={"dimension": 1, "samples": 48})
    for workers in COUNTS:
        costs = lk.Costs(lk.WorkCost(per_product=1e-3), cores=workers)
        cluster = lk.SimulatedCluster(workers=workers, compute=None, costs=costs, latency=0.0, bandwidth=math.inf)
        run = lk.train(problem, lk.RingAllReduce(), cluster, lk.Budget(updates=10)).wait()
        assert run.trace.column("applies", "time").max() == pytest.approx(10 * 24e6 / workers)
        (row,) = lk.advise(problem, cluster, ["ring-all-reduce"]).rows
        assert row.step == pytest.approx(0.024 / workers)


# the linear scaling rule ----------------------------------------------------------------------------------------------


def test_the_sum_of_k_gradients_is_the_rate_times_k():
    problem = lk.Problem("moons", hidden=(5,), batch_size=8, dtype="float64", seed=1)
    for strategy in (lk.SyncPS, lk.RingAllReduce, lk.BucketedAllReduce):
        for optimizer in ("sgd", "nesterov"):
            scaled = strategy(learning_rate=4 * 0.03, optimizer=optimizer, schedule="warmup:10")
            added = strategy(learning_rate=0.03, optimizer=optimizer, schedule="warmup:10", reduce="sum")
            one, other = (trained(problem, made, 4).result().parameters for made in (scaled, added))
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


def losses(workers, batch, reduce):
    """The held-out loss of `digits` after each of five epochs."""
    problem = lk.Problem("digits", hidden=(16,), batch_size=batch, dtype="float64")
    every = problem.dataset.n_train // (workers * batch)
    strategy = lk.RingAllReduce(learning_rate=0.05, eval_every=every, reduce=reduce)
    return trained(problem, strategy, workers, updates=5 * every).trace.column("evaluations", "loss")[1:]


def test_with_the_linear_scaling_rule_large_batches_follow_the_loss_of_small_ones_epoch_by_epoch():
    """8 workers of 8 samples with 8 times the rate: within .02 of one worker; without it, .3 and more above."""
    small = losses(1, 8, "mean")
    assert small[0] - small[-1] > 0.2
    np.testing.assert_allclose(losses(8, 8, "sum"), small, rtol=0, atol=0.02)
    assert (losses(8, 8, "mean") - small).min() > 0.3
