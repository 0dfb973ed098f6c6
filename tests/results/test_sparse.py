"""Sparse models in virtual time: equality with dense training for any servers and placement, bytes, and 10,000,000 rows."""

import tracemalloc

import numpy as np
import pytest

import labkit as lk
from labkit.roles.sparse.placement import ConsistentHash, HashPlacement
from labkit.strategies.sparse_ps import SparsePS
from labkit.trace import ledger, query

pytestmark = pytest.mark.sample(3, slow=4)

CLICKS = lk.Problem("clicks", hidden=(8,), batch_size=16, dtype="float64", options={"rows": 3000, "samples": 3000})
ROW = 8 * 4  # bytes of a row of 8 float32 columns


def train(problem, strategy, updates, workers=3, servers=None, **cluster):
    cluster = lk.SimulatedCluster(workers=workers, servers=servers, **cluster)
    return lk.train(problem, strategy, cluster, lk.Budget(updates=updates)).wait()


@pytest.fixture(scope="module")
def dense():
    """The parameters after 20 steps of the dense server, by optimizer."""
    made = {}
    for optimizer in (lk.SGD(), lk.Adagrad()):
        strategy = lk.SyncPS(learning_rate=0.2, optimizer=optimizer, clip_norm=0.5)
        made[optimizer] = train(CLICKS, strategy, 20, servers=1).result().parameters
    return made


@pytest.mark.parametrize("optimizer", [lk.SGD(), lk.Adagrad()], ids=["sgd", "adagrad"])
@pytest.mark.parametrize("part", ["server", "all-reduce"])
@pytest.mark.parametrize(
    ("servers", "placement"),
    [(1, "hash"), (2, "range"), (3, "consistent-hash"), (7, HashPlacement(3)), (5, ConsistentHash(3, 1))],
)
def test_sparse_training_equals_dense_training(dense, optimizer, part, servers, placement):
    strategy = SparsePS(learning_rate=0.2, optimizer=optimizer, dense=part, placement=placement, clip_norm=0.5)
    run = train(CLICKS, strategy, 20, servers=servers, compute=lk.distributions.LogNormal(0.01, 1.0), latency=1e-3)
    parameters = run.result().parameters
    np.testing.assert_allclose(parameters, dense[optimizer], rtol=0, atol=1e-12)
    assert run.summary()["staleness"]["max"] == 0
    assert ledger(run.trace)["closes"]
    assert np.abs(parameters - CLICKS.objective().start(0)).max() > 0.05


def test_the_sum_equals_the_mean_at_a_rate_as_many_times_higher():
    mean, total = (
        train(CLICKS, SparsePS(learning_rate=rate, optimizer=lk.SGD(), reduce=reduce), 10, servers=2)
        .result()
        .parameters
        for rate, reduce in ((0.3, "mean"), (0.1, "sum"))
    )
    np.testing.assert_allclose(total, mean, rtol=0, atol=1e-12)


def bytes_of(trace, kind, **where):
    """Bytes of all messages of a kind, in the order sent; `where`: columns with a value."""
    columns = ("kind", "bytes", "sent", *where)
    number, count, sent, *have = trace.column("messages", *columns)
    mine = number == trace.header.messages.index(kind)
    for column, value in zip(have, where.values()):
        mine &= column == value
    return count[mine][np.argsort(sent[mine], kind="stable")]


# bytes of a batch -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("servers", [1, 3])
def test_a_batch_costs_the_bytes_of_its_distinct_rows(servers):
    """E[U] = 621.60 distinct ids of 1,000 draws from 100,000 Zipf(1) keys; each costs its id up and its row down."""
    problem = lk.Problem("clicks", batch_size=125, timing_only=True, options={"rows": 100_000, "fields": 8})
    steps, workers = 60, 4
    trace = train(problem, SparsePS(), steps, workers, servers, compute=1.0).trace
    for worker in trace.role_ids("worker"):
        asked = bytes_of(trace, "RowPull", sender=worker)[: servers * steps].reshape(steps, servers).sum(axis=1)
        brought = bytes_of(trace, "Rows", role=worker)[: servers * steps].reshape(steps, servers).sum(axis=1)
        pushed = bytes_of(trace, "RowPush", sender=worker)[: servers * steps].reshape(steps, servers).sum(axis=1)
        assert not (asked % 8).any()
        distinct = asked // 8
        assert np.array_equal(brought, distinct * ROW)
        assert np.array_equal(pushed, distinct * (8 + ROW))
        assert distinct.mean() == pytest.approx(621.60, rel=0.02)
    assert bytes_of(trace, "RowPull").sum() / 8 / (steps * workers) == pytest.approx(621.60, rel=0.03)


def test_the_mean_number_of_distinct_rows_is_within_one_percent_of_the_formula():
    problem = lk.Problem("clicks", batch_size=125, timing_only=True, options={"rows": 100_000, "fields": 8})
    trace = train(problem, SparsePS(), 50, 8, 1, compute=1.0).trace
    pulls = bytes_of(trace, "RowPull")
    assert len(pulls) >= 400
    assert pulls.mean() / 8 == pytest.approx(621.60, rel=0.01)


def test_the_dense_part_with_the_rows_or_around_the_ring():
    """dense="server": a worker gets and sends the D bytes of the dense part a step; all-reduce: 2(N-1)/N D."""
    problem = lk.Problem("clicks", hidden=(15,), timing_only=True, batch_size=10)
    tower = (8 * 15 + 15 + 15 * 2 + 2) * 4
    workers, steps = 4, 5
    plain = train(problem, SparsePS(dense="server"), steps, workers, 2, compute=1.0).trace
    ring = train(problem, SparsePS(dense="all-reduce"), steps, workers, 2, compute=1.0).trace
    for worker in plain.role_ids("worker"):
        rows = bytes_of(plain, "RowPull", sender=worker)[: 2 * steps].sum() // 8 * ROW
        assert bytes_of(plain, "Rows", role=worker)[: 2 * steps].sum() == rows + steps * tower
    assert bytes_of(ring, "Chunk").sum() == steps * 2 * (workers - 1) * tower


# against all-reduce ---------------------------------------------------------------------------------------------------

M = 400_000


class SparseAllGather(lk.RingAllReduce):
    """Every worker sends every other its nonzero entries: index and value, 8 bytes each (so two words of 4 bytes)."""

    entries: int = 0

    async def worker(self, ctx, model, replica):
        for batch in ctx.batches():
            gradient = await ctx.compute(model.gradient, replica.weights(), batch)
            workers = len(ctx.peers("worker"))
            await lk.all_gather(ctx, np.broadcast_to(np.float32(0), (2 * self.entries * workers,)))
            gradient.of_all_workers(gradient.values, workers)
            await ctx.compute(replica.apply, gradient, self.learning_rate)


def sent_by_a_worker(strategy, workers):
    problem = lk.Problem("quadratic", dtype="float32", timing_only=True, options={"dimension": M // 4, "samples": 1})
    trace = train(problem, strategy, 1, workers, compute=1.0).trace
    return bytes_of(trace, "Chunk", sender=0).sum()


@pytest.mark.parametrize("workers", [2, 4, 8])
@pytest.mark.parametrize("times", [0.5, 1, 2])
def test_sparse_all_gather_beats_the_ring_iff_the_density_is_below_one_in_n(workers, times):
    gather = SparseAllGather()
    density = times / workers
    object.__setattr__(gather, "entries", round(density * M / 4))
    sparse, ring = sent_by_a_worker(gather, workers), sent_by_a_worker(lk.RingAllReduce(), workers)
    assert sparse == (workers - 1) * 2 * density * M
    assert ring == 2 * (workers - 1) * M / workers
    assert (sparse < ring) == (density < 1 / workers)
    assert (sparse == ring) == (density == 1 / workers)


class Colocated(SparsePS):
    """A server on every worker's node."""

    def layout(self, problem, cluster):
        plan = super().layout(problem, cluster)
        nodes = {f"server-{i}": f"worker-{i}" for i in range(cluster.workers)}
        roles = tuple(lk.RoleSpec(**{**vars(r), "node": nodes.get(r.name, r.node)}) for r in plan.roles)
        return lk.Layout(roles, plan.observed, plan.parts, plan.replication, plan.groups, plan.assemble)


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_a_colocated_sparse_server_beats_sparse_all_gather_iff_there_are_more_than_two(workers):
    """U entries of e bytes a worker: 2 U e (N-1)/N leave a node, (id and row) once to pull and once to push, against
    (N-1) U e if every worker sends them to every other. Every batch has every row here, so U and its owners are exact.
    """
    rows = 64
    problem = lk.Problem("clicks", batch_size=400, timing_only=True, options={"rows": rows, "fields": 8, "zipf": 0.0})
    trace = train(problem, Colocated(placement="range"), 2, workers, workers, compute=1.0).trace
    kinds = [trace.header.messages.index(name) for name in ("RowPull", "Rows", "RowPush")]
    node = np.array([trace.nodes.index(n) for n in trace.nodes])
    kind, count, sender, role, sent = trace.column("messages", "kind", "bytes", "sender", "role", "sent")
    first = np.isin(kind, kinds) & (node[sender] != node[role]) & (sent <= 1_000_000_000) & (count > 0)
    once = np.flatnonzero(first)
    at_start, after = sent[once] == 0, sent[once] == 1_000_000_000
    pulled = count[once][at_start].sum()  # ids and rows of the first batch
    pushed = count[once][after & (kind[once] == kinds[2])].sum()
    server = (pulled + pushed) / workers  # leave a node in a step
    gather = (workers - 1) * rows * (8 + ROW)
    assert server == 2 * rows * (8 + ROW) * (workers - 1) / workers
    assert (server < gather) == (workers > 2)
    assert (server == gather) == (workers == 2)


# hot rows, big tables -------------------------------------------------------------------------------------------------


def test_the_trace_records_the_hot_rows_and_their_servers():
    problem = lk.Problem("clicks", batch_size=64, timing_only=True, options={"rows": 5000})
    trace = train(problem, SparsePS(placement="range"), 40, 4, 4, compute=1.0).trace
    hot = query.hot_rows(trace, 5)
    assert [row for row, _, _ in hot] == [0, 1, 2, 3, 4]
    assert 4 * 40 <= hot[0][1] <= 4 * 41  # in every batch, and perhaps in those of the step after the last
    total = bytes_of(trace, "RowPull").sum() // 8  # the last pulls were sent, but not answered any more
    assert hot[0][2] == pytest.approx(hot[0][1] / total, rel=0.03)
    load = query.row_load(trace)
    assert [name for name, *_ in load] == [f"server-{i}" for i in range(4)]
    assert sum(share for *_, share in load) == pytest.approx(1)
    assert load[0][3] > 0.6  # ranges of ids sorted by frequency: the whole head is on the first
    assert query.hot_rows(train(problem, lk.SyncPS(), 1, compute=1.0).trace) == []


def test_ten_million_rows_take_the_memory_of_those_touched():
    problem = lk.Problem("clicks", hidden=(8,), batch_size=32, options={"rows": 10_000_000, "samples": 2000})
    tracemalloc.start()
    run = train(problem, SparsePS(), 20, 4, 2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30_000_000  # the table alone would be 320,000,000
    touched = sum(rows for _, rows, _, _ in query.row_load(run.trace))
    assert len(run.result().parameters.ids) == touched < 4 * 21 * 32 * 8
    data = problem.dataset
    assert (run.result().predict(data.x_test) == data.y_test).mean() == run.summary()["accuracy"]
    new = np.full((1, 8), 9_999_999)  # rows of unseen ids have their initial values
    assert run.result().predict_proba(new).shape == (1, 2)


@pytest.mark.parametrize("strategy", [lk.SyncPS(), lk.AsyncPS(), lk.RingAllReduce()])
def test_a_table_that_does_not_fit_is_refused_by_dense_strategies(strategy):
    problem = lk.Problem("clicks", options={"rows": 10_000_000, "samples": 100})
    with pytest.raises(lk.BadInput, match=r"makes a model of 320,00\d,\d{3} bytes.*Use SparsePS"):
        train(problem, strategy, 1)


@pytest.mark.parametrize(
    ("problem", "strategy", "why"),
    [
        (lk.Problem("digits"), SparsePS(), "the model of digits has none; use the data set 'clicks'"),
        (CLICKS, SparsePS(optimizer=lk.Adam()), r"use lk.SGD\(\) or lk.Adagrad\(\)"),
        (CLICKS, SparsePS(weight_decay=0.1), "weight_decay=0.1 would shrink every row"),
        (CLICKS, SparsePS(synchronous=False), "use synchronous=True, or dense='server'"),
    ],
)
def test_invalid_sparse_strategies_are_refused(problem, strategy, why):
    with pytest.raises(lk.BadInput, match=why):
        train(problem, strategy, 1)
    with pytest.raises(lk.BadInput, match="it needs at least 1"):
        train(CLICKS, SparsePS(), 1, servers=0)


def test_the_returned_model_is_the_one_evaluated_last():
    """A target accuracy ends the run between two snapshots of all rows: evaluated rows are kept, the others are
    current.
    """
    cluster = lk.SimulatedCluster(workers=4, servers=3, compute=lk.distributions.LogNormal(0.01, 0.5), latency=1e-3)
    run = lk.train(lk.Problem("clicks", hidden=(8,)), SparsePS(), cluster, lk.Budget(accuracy=0.75, seconds=30)).wait()
    assert run.stopped_by == "accuracy"
    data = run.plan.problem.dataset
    assert (run.result().predict(data.x_test) == data.y_test).mean() == run.summary()["accuracy"] >= 0.75
    assert ledger(run.trace)["closes"]


@pytest.mark.parametrize("budget", [lk.Budget(seconds=0.5), lk.Budget(updates=33), lk.Budget(samples=2000)])
@pytest.mark.parametrize("strategy", [SparsePS(), SparsePS(dense="server", synchronous=False)], ids=["sync", "async"])
def test_the_ledger_closes_however_the_run_ends(strategy, budget):
    cluster = lk.SimulatedCluster(
        workers=4,
        servers=3,
        compute=lk.distributions.LogNormal(0.01, 1.0),
        latency=2e-3,
        bandwidth=1e7,
        slow={"worker-1": 3.0},
    )
    run = lk.train(CLICKS, strategy, cluster, budget).wait()
    assert ledger(run.trace)["closes"]
    for shard in range(3):
        left, right = query.staleness_identity(run.trace, shard)
        assert left == right


def test_hot_rows_are_drawn_as_they_were_counted():
    """Of 60 batches nearly all need row 0; the servers' bars are their share of the traffic; a dense model has none."""
    run = lk.train(
        lk.Problem("clicks"), lk.SparsePS(), lk.SimulatedCluster(workers=2, servers=2), lk.Budget(updates=30)
    )
    trace = run.wait().trace
    (axes,) = run.plot.hot_rows().axes
    heights = [bar.get_height() for bar in axes.patches if bar.get_height()]
    batches = sum(c.computed for c in trace.counters.values())
    rows = [100 * pulls / batches for _, pulls, _ in query.hot_rows(trace, 12)]
    assert heights[:12] == pytest.approx(np.minimum(rows, 100))
    assert heights[12:] == pytest.approx([100 * share for *_, share in query.row_load(trace)])
    assert sum(heights[12:]) == pytest.approx(100)
    dense = lk.train("moons", lk.SyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(updates=3)).wait()
    assert any("no embedding table" in text.get_text() for text in dense.plot.hot_rows().axes[0].texts)


def test_without_a_budget_a_run_ends_at_the_budget_of_the_data_set():
    problem = lk.Problem("clicks")
    extra = problem.dataset.extra
    assert extra["baseline_accuracy"] < extra["goal_accuracy"] < extra["best_accuracy"]
    run = lk.train(problem, lk.SparsePS(), lk.SimulatedCluster(workers=4)).wait()
    assert run.stopped_by == "accuracy"
    assert run.summary()["accuracy"] >= extra["goal_accuracy"]
    assert run.summary()["loss"] < extra["baseline_loss"]
