"""Every strategy trains, on both engines, with 4 workers: digits to 95%; a recommender that beats the constant
predictor; a split model that equals one process, parameter for parameter.
"""

import numpy as np
import pytest

import labkit as lk
from labkit.data import Batches
from labkit.random_streams import BATCHES, role_stream
from labkit.strategies import FAMILIES, FIRST, STRATEGIES
from labkit.trace import ledger

SPLIT = ("tensor-parallel", "pipeline")  # one gradient a step, computed by all workers together
SPARSE = ("sparse-ps",)
OTHERS = [name for name in STRATEGIES if name not in SPLIT + SPARSE]
DEEP = lk.Problem("digits", hidden=(32, 32, 32), batch_size=32, seed=1, dtype="float64")


def closed(run):
    entries = ledger(run.trace)
    assert entries["closes"], entries
    assert entries["missing"] == 0, entries
    return entries


def test_the_registry_begins_with_nine_and_has_each_strategy_once():
    assert list(STRATEGIES)[:9] == list(FIRST) == [
        "sync-ps", "async-ps", "ssp", "backup-workers", "ring-all-reduce", "local-sgd", "tensor-parallel", "pipeline",
        "hybrid",
    ]  # fmt: skip
    assert sum(map(len, FAMILIES.values())) == len(STRATEGIES) == len(set(STRATEGIES.values()))
    asked = "k-sync k-batch-sync k-async k-batch-async easgd halving-doubling dpsgd adpsgd sparse-ps pipedream fsdp"
    assert set(asked.split()) <= set(STRATEGIES)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_digits_to_95_percent(engine, name):
    """PipeDream and Hybrid are split as well, but use more than one gradient at a time: they are tested here."""
    problem = lk.Problem("digits", hidden=STRATEGIES[name].suggested_problem.get("hidden", (64,)), seed=1)
    strategy = STRATEGIES[name]()
    run = engine.wait(problem, strategy, lk.Budget(accuracy=0.95, seconds=50), workers=4, time=0.001)
    assert run.stopped_by == "accuracy"
    right = run.result().predict(problem.dataset.raw(problem.dataset.x_test)) == problem.dataset.y_test
    assert right.mean() >= 0.95
    closed(run)


@pytest.mark.parametrize("name", SPLIT)
def test_a_split_model_is_one_process(engine, name):
    """The oracle is a loop over the same mini-batches in NumPy, without strategy or engine."""
    run = engine.wait(DEEP, STRATEGIES[name](learning_rate=0.1), lk.Budget(updates=30), workers=4)
    net, weights = DEEP.objective(), DEEP.objective().start(DEEP.seed)
    out = np.empty_like(weights)
    data = DEEP.dataset
    batches = Batches(data.x_train, data.y_train, DEEP.batch_size, role_stream(DEEP.seed, "worker", 0, BATCHES))
    for _ in range(30):
        batch = next(batches)
        net.gradient(weights, batch.x, batch.y, out)
        weights -= 0.1 * out
    np.testing.assert_allclose(run.result().parameters, weights, rtol=0, atol=1e-10)
    assert closed(run)["applied"] == 30


@pytest.mark.slow
@pytest.mark.parametrize("name", SPARSE)
def test_a_recommender_beats_the_constant_predictor(engine, name):
    problem = lk.Problem("clicks", seed=1)
    run = engine.wait(problem, STRATEGIES[name](), lk.Budget(updates=300), workers=4, servers=2)
    extra = problem.dataset.extra
    assert run.summary()["loss"] < 0.9 * extra["baseline_loss"]
    assert run.summary()["accuracy"] > extra["baseline_accuracy"] + 0.05
    closed(run)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_applies_what_its_budget_allows_and_its_ledger_closes(engine, name):
    made = STRATEGIES[name]
    problem = lk.Problem(**{"hidden": (16, 16, 16)} | made.suggested_problem)
    run = engine.wait(problem, made(), lk.Budget(updates=12), workers=4, servers=2 if made.uses_servers else None)
    assert (run.stopped_by, run.summary()["updates"]) == ("updates", 12)
    assert closed(run)["computed"] >= 12
    assert np.isfinite(run.result().parameters).all()
    assert np.isfinite(run.summary()["loss"])


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_steps_one_by_one_on_a_cluster(dask_processes, name):
    """In whichever state a pause has stopped the shards, a step advances all of them, and no role waits for a paused one."""
    made = STRATEGIES[name]
    problem = lk.Problem(**{"hidden": (16, 16, 16)} | made.suggested_problem)
    cluster = dask_processes.resized(workers=4, servers=2 if made.uses_servers else None)
    with lk.train(problem, made(), cluster, lk.Budget(updates=10**6)) as run:
        seen = []
        for _ in range(2):
            run.step().step()
            seen.append(run.summary()["updates"])
            run.step()
            seen.append(run.summary()["updates"])
            run.resume()
    closed(run)
    if name != "adpsgd":  # its replicas step one by one, not together
        assert [seen[1] - seen[0], seen[3] - seen[2]] == [1, 1]
    assert sorted(seen) == seen
