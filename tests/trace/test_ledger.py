"""The record: batches of rows in, columns out; counters are never sampled; the ledger finds what is missing."""

import json

import numpy as np
import pytest

import labkit as lk
from labkit.strategies import STRATEGIES
from labkit.trace import Counters, Recorder, Trace, ledger, query
from labkit.trace.events import Note, RoleFrozen, RoleLeft, RoleLost
from labkit.trace.schema import TABLES
from tests.headers import header_of

MOONS = lk.Problem("moons", hidden=(4,), batch_size=8, options={"samples": 100})


def test_rows_come_back_as_they_were_written():
    trace, recorder = Trace(header_of("server-0", "worker-0")), Recorder(1)
    recorder.span(0, 5, 9, 3)
    recorder.span(1, 9, 9)  # empty: no row
    recorder.evaluations.extend((1.5, 2, 0.25, 0.5))
    recorder.event(Note(7, "hello", {"a": 1.0}))
    trace.append(recorder.take(10))
    recorder.span(1, 9, 11, 4)
    trace.append(recorder.take(12))
    assert trace.column("spans", "role", "phase", "start", "end", "step")[2].tolist() == [5, 9]
    assert trace.tables["spans"].rows().tolist() == [[1, 0, 5, 9, 3], [1, 1, 9, 11, 4]]
    assert trace.column("evaluations", "loss").tolist() == [0.25]
    assert trace.events == [Note(7, "hello", {"a": 1.0}, recorder=1)]
    assert (trace.now, trace.reported_until) == (12, {1: 12})
    assert recorder.rows_waiting() == 0


def test_recorded_batches_contain_plain_values():
    recorder = Recorder(0, incarnation=2)
    recorder.apply(0, 5, 1, 3, 2, 16, 4, 1)
    recorder.counters.reads[1] = 7
    batch = recorder.take(9)
    assert all(isinstance(raw, bytes) for raw in batch["tables"].values())
    plain = json.loads(json.dumps(batch["counters"]))
    assert Counters.from_dict(plain).to_dict() == recorder.counters.to_dict()
    assert Counters.from_dict(plain).applied == {1: [2, 3]}


def test_above_the_byte_budget_rows_are_left_out_and_counted_and_counters_are_not():
    recorder = Recorder(0)
    for i in range(1000):
        recorder.span(0, i, i + 1)
        recorder.drop(0, i, 1, 0, i, 1, 0)
    batch = recorder.take(1000, limit=3 * 8 * 4 * 10)
    assert len(batch["tables"]["spans"]) == 10 * 4 * 8
    assert batch["skipped"] == {"spans": 990}
    assert len(batch["tables"]["drops"]) == 1000 * 7 * 8
    assert batch["counters"]["phases"][0] == 1000


def test_not_recording_keeps_counters_and_the_ledger():
    def made(record):
        cluster = lk.SimulatedCluster(workers=3, compute=lk.distributions.Exponential(0.01), record=record)
        return lk.train(MOONS, lk.AsyncPS(), cluster, lk.Budget(updates=50)).wait()

    with_rows, without = made(True), made(False)
    assert without.summary().to_dict() == with_rows.summary().to_dict()
    assert len(without.trace.tables["spans"]) == len(without.trace.tables["applies"]) == 0
    assert ledger(without.trace)["closes"]


def test_spilled_rows_leave_totals_exact():
    trace, recorder = Trace(header_of("worker-0"), keep=100), Recorder(0)
    for i in range(50):
        for k in range(10):
            recorder.span(0, 10 * i + k, 10 * i + k + 1)
        trace.append(recorder.take(10 * i))
    spans = trace.tables["spans"]
    assert (len(spans), spans.spilled) == (100, 400)
    assert spans.column("start").tolist() == list(range(400, 500))
    assert trace.counters[0].phases[0] == 500


def test_the_watermark_ignores_silent_roles():
    trace = Trace(header_of("a-0", "a-1", "a-2"))
    for role, until in ((0, 5_000_000_000), (1, 4_500_000_000), (2, 1_000_000_000)):
        trace.append(Recorder(role).take(until))
    assert trace.watermark() == 4_500_000_000
    trace.end(time=6_000_000_000, in_flight=[])
    assert trace.watermark() == 6_000_000_000


@pytest.mark.parametrize("kind", [RoleLost, RoleLeft, RoleFrozen])
def test_the_watermark_does_not_wait_for_a_role_that_cannot_report(kind):
    trace = Trace(header_of("a-0", "a-1"))
    for role, until in ((0, 5_000_000_000), (1, 4_500_000_000)):
        trace.append(Recorder(role).take(until))
    trace.event(kind(4_600_000_000, "a-1", *(0, "was killed")[: 2 * (kind is RoleLost)]))
    assert trace.watermark() == 5_000_000_000
    trace.append(Recorder(1).take(4_550_000_000))  # was on its way
    assert trace.watermark() == 5_000_000_000
    trace.append(Recorder(1, 1).take(4_900_000_000))  # of the next incarnation, or after a thaw
    assert trace.watermark() == 4_900_000_000


@pytest.mark.parametrize("values", [[0], [0, 1, 2, 3], [5] * 10 + [7], list(range(100)) * 3])
def test_staleness_against_numpy(values):
    trace, recorder = Trace(header_of("server-0")), Recorder(0)
    recorder.counters.shard = 0
    for i, value in enumerate(values):
        recorder.apply(0, i, 1, i, 1, 8, value, i + 1)
    trace.append(recorder.take(len(values)))
    got = query.staleness(trace)
    assert got["mean"] == pytest.approx(np.mean(values))
    assert got["max"] == max(values)
    assert got["p50"] == np.quantile(values, 0.5, method="inverted_cdf")
    assert got["p95"] == np.quantile(values, 0.95, method="inverted_cdf")
    assert {int(k): n for k, n in got["histogram"].items()} == {v: values.count(v) for v in set(values)}


def test_summary_is_json_and_a_running_one_too():
    run = lk.train(MOONS, lk.AsyncPS(), lk.SimulatedCluster(workers=2, compute=0.01), lk.Budget(updates=30))
    begun = run.summary().to_dict()
    assert (begun["updates"], begun["stopped_by"], begun["loss"], begun["staleness"]["mean"]) == (0, None, None, None)
    run.advance(0.1)
    going = run.summary().to_dict()
    assert going["updates"] == 20
    assert going["ledger"]["computed"] == going["ledger"]["applied"] + going["ledger"]["in_flight"]
    assert going["ledger"]["closes"] is None
    done = run.wait().summary().to_dict()
    wanted = (
        "strategy engine workers servers seed updates gradients seconds wall_seconds updates_per_second gradients_per_second "
        "samples_per_second staleness loss accuracy validation_loss validation_accuracy baseline_accuracy time_to_accuracy "
        "bytes_sent ledger phases communication parameters_sha256 stopped_by stopped_on"
    )
    for values in (begun, going, done):
        assert list(values) == wanted.split()
        assert json.loads(json.dumps(values, allow_nan=False)) == values
    assert done["seconds"] == 0.15
    assert done["updates_per_second"] == pytest.approx(200)
    assert done["samples_per_second"] == pytest.approx(1600)
    assert done["phases"]["worker"]["compute"] == pytest.approx(2 * 0.15)
    assert "updates" in str(run.summary())


def test_norms_are_those_of_each_layer():
    run = lk.train(MOONS, lk.SyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(updates=3)).wait()
    trace, objective = run.trace, MOONS.objective()
    role, step, layer, gradient, weight = trace.column("norms", "role", "step", "layer", "gradient", "weight")
    assert trace.header.layers == tuple(objective.layout.groups())
    start = objective.start(0)
    for worker in trace.role_ids("worker"):
        for i, part in enumerate(objective.layout.groups().values()):
            (row,) = np.flatnonzero((role == worker) & (step == 0) & (layer == i))
            assert weight[row] == pytest.approx(np.linalg.norm(start[part].astype(float)), rel=1e-5)
            assert gradient[row] > 0


def test_the_ledger_names_missing_gradients():
    """Without one applied row of the ledger, the gradient was computed and sent, and is missing."""
    run = lk.train(MOONS, lk.SyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(updates=10)).wait()
    trace = run.trace
    assert ledger(trace)["closes"]
    shard, worker = trace.counters[0], trace.role_ids("worker")[0]
    shard.applied[worker][1] -= 1
    shard.last_received[worker] -= 1
    entries = ledger(trace)
    assert not entries["closes"]
    assert entries["missing"] == 1
    assert "DOES NOT CLOSE, 1 missing" in str(run.summary())


def test_a_gradient_applied_on_one_shard_only_is_partly_applied():
    """Two shards, two updates each, of three pushes in different orders: one gradient is on one shard only."""
    trace = Trace(header_of("server-0", "server-1", "worker-0", "worker-1", "worker-2"))
    for shard, order in ((0, (2, 3)), (1, (2, 4))):
        recorder = Recorder(shard)
        recorder.counters.shard = shard
        for version, sender in enumerate(order, 1):
            recorder.apply(shard, version, sender, 0, 1, 8, 0, version)
        left = ({2, 3, 4} - set(order)).pop()
        recorder.drop(shard, 9, left, 0, 0, 1, 2)
        trace.append(recorder.take(9))
    for worker in (2, 3, 4):
        recorder = Recorder(worker)
        recorder.counters.computed = recorder.counters.released = 1
        trace.append(recorder.take(9))
    trace.end(time=9, in_flight=[])
    entries = ledger(trace)
    assert (entries["applied"], entries["partly_applied"], entries["dropped"], entries["closes"]) == (1, 2, {}, True)


def test_every_table_has_a_width():
    recorder = Recorder(0)
    for name, table in TABLES.items():
        getattr(recorder, name).extend(range(len(table.names)))
    trace = Trace(header_of("worker-0"))
    trace.append(recorder.take(1))
    assert all(len(table) == 1 for table in trace.tables.values())


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_ledger_of_a_running_run_contains_the_computed_gradients(name):
    suits = {"hidden": (64, 64, 64), **STRATEGIES[name].suggested_problem}
    cluster = lk.SimulatedCluster(workers=4, compute=lk.distributions.Deterministic(0.1))
    run = lk.train(lk.Problem(**suits), STRATEGIES[name](), cluster, lk.Budget(seconds=2)).advance(1.55)
    entries, computed = lk.ledger(run.trace), sum(c.computed for c in run.trace.counters.values())
    assert entries["computed"] == computed
    there = ("applied", "partly_applied", "in_flight", "lost", "rolled_back")
    assert sum(entries[place] for place in there) + sum(entries["dropped"].values()) == computed
    run.wait()
