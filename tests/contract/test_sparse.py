"""Sparse models on both engines: equality with dense training, bytes of a step, learning, and 10,000,000 rows."""

import numpy as np
import pytest

import labkit as lk
from labkit.data import Batches
from labkit.random_streams import BATCHES, role_stream
from labkit.strategies.sparse_ps import SparsePS
from labkit.trace import ledger, query
from tests.contract.engines import slow_on_processes

pytestmark = pytest.mark.sample(2)

CLICKS = lk.Problem("clicks", hidden=(8,), batch_size=16, dtype="float64", options={"rows": 3000, "samples": 3000})


def trained(engine, strategy, steps, workers, servers, problem=CLICKS):
    run = engine.wait(problem, strategy, lk.Budget(updates=steps), workers, servers)
    assert run.summary()["updates"] == steps
    assert ledger(run.trace)["closes"]
    return run


@pytest.mark.parametrize("optimizer", [lk.SGD(), lk.Adagrad()], ids=["sgd", "adagrad"])
def test_sparse_pulls_and_pushes_equal_dense_ones(simulated, optimizer):
    dense = trained(simulated, lk.SyncPS(learning_rate=0.2, optimizer=optimizer), 15, 3, 1).result().parameters
    for part, servers, placement in (("server", 2, "hash"), ("all-reduce", 1, "range"), ("all-reduce", 2, "hash")):
        strategy = SparsePS(learning_rate=0.2, optimizer=optimizer, dense=part, placement=placement)
        sparse = trained(simulated, strategy, 15, 3, servers).result().parameters
        np.testing.assert_allclose(sparse, dense, rtol=0, atol=1e-12)
    assert np.abs(dense - CLICKS.objective().start(0)).max() > 0.01


def test_a_step_pulls_the_distinct_rows_of_its_batch_and_never_more(simulated):
    workers, servers, steps, row = 3, 2, 12, 8 * 8
    run = trained(simulated, SparsePS(), steps, workers, servers)
    trace, data = run.trace, CLICKS.dataset
    assert trace.tables["messages"].skipped == 0
    kind, size, sender, role, sent = trace.column("messages", "kind", "bytes", "sender", "role", "sent")
    number = {name: i for i, name in enumerate(trace.header.messages)}
    shares = CLICKS.partition.split(data.y_train, workers, CLICKS.seed)
    for worker, share in zip(trace.role_ids("worker"), shares):
        own = role_stream(CLICKS.seed, "worker", worker - servers, BATCHES)
        batches = Batches(data.x_train[share], data.y_train[share], CLICKS.batch_size, own)
        distinct = np.array([len(np.unique(next(batches).x)) for _ in range(steps)])

        def a_step(name, mine):
            chosen = (kind == number[name]) & mine
            in_order = size[chosen][np.argsort(sent[chosen], kind="stable")][: servers * steps]
            return in_order.reshape(steps, servers).sum(axis=1)

        assert np.array_equal(a_step("RowPull", sender == worker), 8 * distinct)
        assert np.array_equal(a_step("RowPush", sender == worker), (8 + row) * distinct)
        brought = (kind == number["Rows"]) & (role == worker)
        assert size[brought].sum() >= row * distinct.sum()
        for server in trace.role_ids("server"):  # an answer is as long as the request, server by server
            answers = size[brought & (sender == server)]
            asked = size[(kind == number["RowPull"]) & (sender == worker) & (role == server)]
            assert np.array_equal(answers, asked[: len(answers)] // 8 * row)
    assert 0 in [
        hot for hot, *_ in query.hot_rows(trace)[:3]
    ]  # in almost every batch, as its neighbours are: a near tie
    assert sum(share for *_, share in query.row_load(trace)) == pytest.approx(1)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "strategy",
    [SparsePS(), SparsePS(placement="consistent-hash", dense="server"), SparsePS(dense="server", synchronous=False)],
    ids=["all-reduce", "server", "asynchronous"],
)
def test_the_recommender_beats_the_constant_clearly(simulated, strategy):
    problem = lk.Problem("clicks", hidden=(16,))
    run = simulated.wait(problem, strategy, lk.Budget(updates=200 if strategy.synchronous else 600), 4, 2)
    summary, baseline = run.summary(), problem.dataset.extra
    assert summary["loss"] < baseline["baseline_loss"] - 0.15
    assert summary["accuracy"] > baseline["baseline_accuracy"] + 0.15
    assert ledger(run.trace)["closes"]
    data = problem.dataset
    assert (run.result().predict(data.x_test) == data.y_test).mean() == summary["accuracy"]


def test_asynchronous_staleness_is_conserved(simulated):
    strategy = SparsePS(dense="server", synchronous=False)
    run = simulated.wait(CLICKS, strategy, lk.Budget(updates=120), 4, 2, slow={"worker-1": 4.0}, time=0.003)
    for shard in range(2):
        left, right = query.staleness_identity(run.trace, shard)
        assert left == right
    assert run.summary()["staleness"]["mean"] > 1


def test_an_accuracy_ends_the_run_with_all_rows(simulated):
    problem = lk.Problem("clicks", hidden=(16,))
    run = simulated.wait(problem, SparsePS(), lk.Budget(accuracy=0.75, seconds=30), 3, 2, time=0.005)
    assert run.stopped_by == "accuracy"
    data = problem.dataset
    assert (run.result().predict(data.x_test) == data.y_test).mean() == run.summary()["accuracy"]


@slow_on_processes
def test_ten_million_rows(engine, tmp_path):
    problem = lk.Problem("clicks", hidden=(8,), options={"rows": 10_000_000, "samples": 2000})
    run = engine.wait(problem, SparsePS(), lk.Budget(updates=20), 4, 2)
    result, data = run.result(), problem.dataset
    touched = sum(rows for _, rows, _, _ in query.row_load(run.trace))
    assert len(result.parameters.ids) == touched < 4 * 21 * 32 * 8
    assert (result.predict(data.x_test) == data.y_test).mean() == run.summary()["accuracy"]
    again = lk.load(result.save(tmp_path / "big.npz"))
    assert np.array_equal(again.predict_proba(data.x_test), result.predict_proba(data.x_test))
    with pytest.raises(lk.BadInput, match="Use SparsePS"):
        engine.train(problem, lk.SyncPS(), lk.Budget(updates=1), 2, 1)


def test_timing_only_moves_real_numbers_of_rows(simulated):
    problem = lk.Problem("clicks", timing_only=True, batch_size=64, options={"rows": 100_000})
    run = simulated.wait(problem, SparsePS(), lk.Budget(updates=15), 3, 2)
    assert ledger(run.trace)["closes"]
    hot = query.hot_rows(run.trace, 12)
    assert 0 in [row for row, _, _ in hot]  # nearly every batch needs the first few rows
    assert hot[0][1] >= 45


@slow_on_processes
def test_a_checkpoint_holds_the_rows(engine, tmp_path):
    from labkit.engines.storage.store import Store, fingerprint

    problem = lk.Problem("clicks", hidden=(8,), options={"rows": 10_000_000, "samples": 2000})
    run = engine.wait(problem, SparsePS(), lk.Budget(updates=20), 2, 1, checkpoint=tmp_path)
    saved, _ = Store(tmp_path).read("chief")
    assert saved["update"] == 20
    assert fingerprint(saved["parameters"]) == run.trace.ending["parameters_sha256"]
