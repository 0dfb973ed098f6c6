"""A shard of rows: rows are created when first used, updates equal those of the whole table, accounting as in any shard."""

import numpy as np
import pytest

import labkit as lk
from labkit.errors import RoleError
from labkit.nn import NullObjective, Recommender
from labkit.roles.budget import Limits
from labkit.roles.messages import Snapshot
from labkit.roles.sparse.placement import HashPlacement
from labkit.roles.sparse.row_parameters import HOTTEST
from labkit.roles.sparse.row_shard import Assembly, RowShard
from labkit.roles.sparse.rows import BatchRows, RowModel, RowPull, RowPush
from labkit.trace.recorder import Counters, Recorder
from labkit.trace.schema import REASONS

MODEL = Recommender(100, 2, 3, hidden=(), dtype="float64")  # 2 columns, then 6 dense parameters
TABLE = MODEL.bag.start(9, np.arange(100), np.dtype("float64"))


class Plan:
    """The part of a plan that a shard uses."""

    def __init__(self, senders, **limits):
        self.seed, self.limits, self.timing_only, self.ledger = 9, Limits(**limits), False, True
        self.role_ids = {"server-0": 0, "worker-0": 1, "worker-1": 2}
        workers = tuple(lk.RoleSpec(f"worker-{i}", "worker", i, f"worker-{i}", data=i) for i in range(senders))
        self.layout = lk.Layout(workers, ("server-0",), ())

    def start(self, objective):
        return objective.start(self.seed)


def made(part=slice(0, 0), held=None, optimizer=None, objective=MODEL, strategy=None, senders=0, **limits):
    recorder, seen = Recorder(0), []
    spec = lk.RoleSpec("server-0", "server", 0, "server-0", shard=0, part=part)
    strategy = strategy or lk.SyncPS(optimizer=optimizer or lk.SGD())
    shard = RowShard.make(
        held=held, spec=spec, plan=Plan(senders, **limits), objective=objective, recorder=recorder, clock=lambda: 0,
        watcher=lambda shard: seen.append(shard.version), strategy=strategy,
    )  # fmt: skip
    return shard, recorder, seen


def push(sender, step, ids, rows, dense=(), version=0, samples=4):
    values = np.concatenate([np.ravel(rows), dense])
    message = RowPush(np.array(ids, np.int64), values, step, 0, version, 1, samples)
    message.__dict__.update(sender=sender, incarnation=0)
    return message


def pull(*ids, sender="worker-0"):
    message = RowPull(np.array(ids, np.int64))
    message.__dict__.update(sender=sender, incarnation=0)
    return message


def test_rows_are_made_when_they_are_asked_for_and_start_as_in_the_table():
    shard, recorder, _ = made()
    assert recorder.counters.rows == 0
    rows = shard.rows(pull(70, 3))
    assert np.array_equal(rows.values.reshape(-1, 2), TABLE[[70, 3]])
    assert (recorder.counters.rows, rows.version, rows.shard) == (2, 0, 0)
    assert len(shard.rows(pull()).values) == 0
    assert recorder.counters.rows == 2


@pytest.mark.parametrize("optimizer", [lk.SGD(), lk.Adagrad()], ids=["sgd", "adagrad"])
@pytest.mark.parametrize("reduce", ["mean", "sum"])
def test_lazy_row_updates_equal_those_of_the_whole_table(optimizer, reduce):
    shard, _, _ = made(slice(1, 4), optimizer=optimizer)
    rng, rule, size = np.random.default_rng(0), optimizer, 203
    whole = np.concatenate([TABLE.ravel(), MODEL.tower.start(9)[1:4]])
    state = rule.state(size, whole.dtype)
    for step in range(8):
        together, total = [], np.zeros(size)
        for worker in range(2):
            ids = rng.choice(100, 5, replace=False)
            rows, dense = rng.standard_normal((5, 2)), rng.standard_normal(3)
            together.append(push(f"worker-{worker}", step, ids, rows, dense, step))
            total[:200].reshape(100, 2)[ids] += rows
            total[200:] += dense
        assert shard.apply(together, 0.1, reduce)
        rule.apply(whole, total / 2 if reduce == "mean" else total, 0.1, state, step + 1)
    now = shard.rows(pull(*range(100))).values
    assert now.tobytes() == whole.tobytes()


def test_stale_gradients_of_rows_are_corrected_as_those_of_the_whole_table_would_be():
    """DC-ASGD with a constant strength and a staleness-aware rate, written out for the whole vector, worker by worker."""
    options = {"staleness_aware": True, "compensation": lk.DelayCompensation(0.3), "optimizer": lk.SGD()}
    shard, _, _ = made(slice(1, 4), strategy=lk.SparsePS(synchronous=False, dense="server", **options))
    rng = np.random.default_rng(0)
    whole = np.concatenate([TABLE.ravel(), MODEL.tower.start(9)[1:4]])
    read = {}
    for step in range(12):
        worker = f"worker-{step % 2}"
        if worker in read:
            ids, then, version = read[worker]
            gradient = np.zeros(203)
            rows, dense = rng.standard_normal((5, 2)), rng.standard_normal(3)
            gradient[:200].reshape(100, 2)[ids], gradient[200:] = rows, dense
            assert shard.apply(push(worker, step // 2 - 1, ids, rows, dense, version), 0.1)
            better = gradient + 0.3 * gradient**2 * (whole - then)
            whole = whole - 0.1 * better / max(1, shard.version - 1 - version)
        ids = np.sort(rng.choice(100, 5, replace=False))
        shard.rows(pull(*ids, sender=worker))
        read[worker] = ids, whole.copy(), shard.version
    np.testing.assert_allclose(shard.rows(pull(*range(100))).values, whole, rtol=0, atol=1e-14)


def test_the_adaptive_compensation_of_rows_remembers_row_by_row():
    rule = lk.AdaptiveCompensation(2.0)
    options = {"compensation": rule, "optimizer": lk.SGD()}
    shard, _, _ = made(strategy=lk.SparsePS(synchronous=False, dense="server", **options))
    rng = np.random.default_rng(1)
    whole, state = TABLE.copy(), rule.state(200, np.float64)["mean_square"].reshape(100, 2)
    for step in range(10):
        ids = np.sort(rng.choice(100, 40, replace=False))
        shard.rows(pull(*ids))
        then, version = whole[ids], shard.version
        shard.apply(push("worker-1", step, ids, np.ones((40, 2)), version=version), 0.1)  # it received no gradient
        whole[ids] -= 0.1
        g = rng.standard_normal((40, 2))
        shard.apply(push("worker-0", step, ids, g, version=version), 0.1)
        state[ids] = 0.95 * state[ids] + (1 - 0.95) * g**2  # rows without a gradient keep theirs
        whole[ids] -= 0.1 * (g + 2.0 * g**2 / np.sqrt(state[ids] + rule.epsilon) * (whole[ids] - then))
    np.testing.assert_allclose(shard.rows(pull(*range(100))).values.reshape(100, 2), whole, rtol=0, atol=1e-13)


def test_repeated_ids_are_summed_and_never_lost():
    shard, _, _ = made()
    shard.apply(push("worker-0", 0, [5, 5, 8], [[1, 2], [10, 20], [3, 4]]), 1.0)
    now = shard.rows(pull(5, 8)).values.reshape(-1, 2)
    assert np.allclose(now, TABLE[[5, 8]] - [[11, 22], [3, 4]])


def test_a_row_shard_counts_like_any_shard():
    shard, recorder, seen = made(updates=2)
    first = push("worker-0", 0, [1], [[1, 1]])
    assert shard.apply(first, 0.1)
    assert not shard.apply(first, 0.1)  # once only
    assert shard.apply(push("worker-1", 0, [], [], samples=4), 0.1)  # no row of its batch is here: it counts
    assert not shard.apply(push("worker-0", 1, [1], [[1, 1]]), 0.1)
    counters = recorder.counters
    assert (counters.updates, counters.gradients, counters.duplicates, counters.samples) == (2, 2, 1, 8)
    assert counters.staleness == {0: 1, 1: 1}
    assert counters.drops[REASONS.index("after the end")] == 1
    assert seen == [2]


def test_a_push_that_does_not_fit_and_a_row_that_is_not_there():
    shard, recorder, _ = made(senders=2)  # with one worker it would be the rows of all
    assert not shard.apply(push("worker-0", 0, [1, 2], [1, 2, 3]), 0.1)
    (event,) = recorder.events
    assert (shard.version, event.kind, event.name) == (0, "gradient refused", "worker-0")
    assert "step 0: it does not fit: 2 ids with (3,) values, and 4 belong to them" in str(event)
    for ids, wrong in (((100,), "row 100"), ((-1, 2), "row -1")):
        with pytest.raises(RoleError, match=wrong + "; the table has rows 0 to 99"):
            shard.rows(pull(*ids))


def test_the_chief_sees_the_rows_that_it_needs_and_at_the_end_all_that_were_touched():
    shard, _, _ = made(slice(0, 6), held=np.array([2, 50]), updates=2)
    shard.rows(pull(7))
    shard.apply(push("worker-0", 0, [50, 60], [[1, 1], [2, 2]], np.zeros(6)), 1.0)
    final = shard.snapshot(False, True)
    assert final.ids.tolist() == [2, 50]
    assert np.array_equal(final.values[:4].reshape(2, 2), TABLE[[2, 50]] - [[0, 0], [1, 1]])
    assert np.array_equal(final.values[4:], MODEL.tower.start(9))
    assert shard.snapshot(True, True).ids.tolist() == [7, 50, 60]
    assert shard.snapshot(False, False).ids is None
    shard.apply(push("worker-0", 1, [], [], np.zeros(6), 1), 1.0)
    assert shard.snapshot(False, True).ids.tolist() == [7, 50, 60]  # no more messages
    whole = Assembly(MODEL.bag, 9)([shard.snapshot(True, True)]).plain()
    TABLE_NOW = TABLE.copy()
    TABLE_NOW[[50, 60]] -= [[1, 1], [2, 2]]
    assert np.allclose(whole, np.concatenate([TABLE_NOW.ravel(), MODEL.tower.start(9)]))


def test_a_model_in_pieces_is_put_together_by_row_and_by_slice():
    pieces = [
        Snapshot(np.array([1.0, 2, 7]), 0, 3, 0, False, np.array([40])),
        Snapshot(np.array([8.0, 9, 9, 9]), 1, 3, 0, False, np.array([], np.int64)),
        Snapshot(np.array([5.0]), 2, 3, 0, False, None),
    ]
    whole = Assembly(MODEL.bag, 9)(pieces)
    assert whole.ids.tolist() == [40]
    assert whole.dense.tolist() == [7, 8, 9, 9, 9, 5]


def test_hot_rows_are_few_and_the_totals_complete():
    shard, recorder, _ = made()
    for i in range(90):
        shard.rows(pull(*range(i, 100)))  # row 99 is pulled 90 times, row 0 once
    shard.apply(push("worker-0", 0, [99, 3], np.ones((2, 2))), 0.1)
    counters = Counters.from_dict(recorder.take(0)["counters"])
    assert counters.row_pulls == sum(100 - i for i in range(90))
    assert (counters.row_pushes, counters.rows) == (2, 100)
    assert len(counters.hot) == HOTTEST
    assert counters.hot[0] == [89, 90, 0]  # eleven rows were pulled by all; the lowest is first
    assert counters.hot[10] == [99, 90, 1]
    assert counters.hot[11] == [88, 89, 0]


@pytest.mark.parametrize("seed", range(5))
def test_among_equally_hot_rows_those_with_the_lowest_ids_are_reported(seed):
    """So that the report is the same on every processor: which of them a partition takes is not."""
    rng = np.random.default_rng(seed)
    shard, recorder, _ = made()
    pulls = dict.fromkeys(range(100), 0)
    for _ in range(6):
        ids = rng.permutation(100)[:60].tolist()
        shard.rows(pull(*ids))
        pulls.update({i: pulls[i] + 1 for i in ids})
    hot = Counters.from_dict(recorder.take(0)["counters"]).hot
    most = sorted((i for i in pulls if pulls[i]), key=lambda i: (-pulls[i], i))[:HOTTEST]
    assert hot == [[i, pulls[i], 0] for i in most]


def test_a_timing_only_shard_counts_and_keeps_nothing():
    null = NullObjective(MODEL.size, MODEL.layout, "float64", network=MODEL)
    shard, recorder, _ = made(objective=null)
    assert shard.snapshot(False, True).ids is not None  # or the chief would wait without end for a snapshot
    rows = shard.rows(pull(1, 2, 3))
    assert (rows.values.nbytes, rows.values.strides) == (3 * 2 * 8, (0,))
    shard.apply(push("worker-0", 0, [1], np.zeros(2)), 0.1)
    assert (recorder.counters.updates, recorder.counters.row_pushes, recorder.counters.rows) == (1, 1, 3)


def test_a_worker_asks_each_owner_for_each_row_once():
    model = RowModel(
        HashPlacement(1), (slice(0, 0),) * 3, None, 0, 0, objective=MODEL, recorder=Recorder(1), clock=lambda: 0,
        strategy=lk.SyncPS(),
    )  # fmt: skip
    x = np.array([[4, 4, 7], [99, 7, 0]])
    wanted = model.rows_needed(lk.data.Batch(x, np.array([0, 1]), 2, 0))
    assert isinstance(wanted, BatchRows)
    assert wanted.ids.tolist() == [0, 4, 7, 99]
    assert np.array_equal(wanted.ids[wanted.x], x)
    assert np.sort(np.concatenate(wanted.places)).tolist() == [0, 1, 2, 3]
    for server, place in enumerate(wanted.places):
        assert (HashPlacement(1).owner(wanted.ids[place], 3) == server).all()
