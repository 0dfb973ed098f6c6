"""Evaluation samples: recorded by the chief, bounded, saved, equal for the same seed; and the header's description of the
data.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

import labkit as lk
from labkit.roles.probe import Probe, ProbeInputs
from labkit.trace import Recorder, Trace, ledger
from labkit.trace.exports import load_npz, save_npz
from labkit.trace.header import TraceHeader
from labkit.trace.prediction_history import NO_ANSWER, PredictionHistory

MOONS = lk.Problem("moons", hidden=(8,), batch_size=8)
DIGITS = lk.Problem("digits", hidden=(8,))


def start(problem=MOONS, strategy=None, budget=None, **cluster):
    cluster = lk.SimulatedCluster(**{"workers": 3, "compute": lk.distributions.Exponential(0.01), **cluster})
    return lk.train(problem, strategy or lk.AsyncPS(), cluster, budget or lk.Budget(updates=100))


def predicted_classes(problem, parameters, points):
    """The predictions of the trained model."""
    return problem.objective().predict(parameters, np.asarray(points, dtype=np.float32)).tolist()


# recorded by the chief --------------------------------------------------------------------------------------------------


def test_the_last_predictions_equal_those_of_the_result():
    run = start().wait()
    samples, last = run.trace.header.samples, list(run.trace.predictions)[-1]
    predictor, plane = run.result(), samples.plane
    assert last.update == run.trace.ending["update"] == 100
    assert list(last.samples) == predictor.predict(samples.features).tolist()
    low, high, side = np.array(plane.low), np.array(plane.high), plane.side
    cells = np.frombuffer(last.grid, np.uint8).reshape(side, side)
    for x, y in ((0, 0), (39, 0), (0, 39), (17, 23), (39, 39)):  # the grid's row is y, from below
        middle = low + (np.array([x, y]) + 0.5) / side * (high - low)
        assert cells[y, x] == predictor.predict(middle[None])[0]


def test_a_short_run_has_predictions_for_every_evaluation():
    run = start(DIGITS).wait()
    time, update = run.trace.column("evaluations", "time", "update")
    assert [entry.time for entry in run.trace.predictions] == time.tolist()
    assert [entry.update for entry in run.trace.predictions] == update.tolist()
    assert {len(entry.samples) for entry in run.trace.predictions} == {18}
    assert {entry.grid for entry in run.trace.predictions} == {b""}  # pictures are not points in a plane


def test_predictions_become_rarer_and_the_last_entry_is_never_left_out():
    class Always:
        def predict(self, values, x):
            return np.full(len(x), values)

    recorder = Recorder(0)
    probe = Probe(ProbeInputs(2), Always(), np.zeros((5, 3)), recorder)
    for k in range(1, 5001):
        probe.record(k, k, 1, finite=True, last=k == 5000)
    when = [time for time, *_ in recorder.predictions]
    assert when[:100] == list(range(1, 101))
    assert all(later - earlier <= earlier / 100 + 2 for earlier, later in zip(when, when[1:]))
    assert len(when) == pytest.approx(100 * (1 + np.log(50)), rel=0.15)
    assert when[-1] == 5000


def test_a_model_without_a_finite_loss_makes_no_predictions():
    run = start(DIGITS, lk.AsyncPS(learning_rate=10.0, eval_every=1), lk.Budget(seconds=5)).wait()
    assert run.stopped_by == "diverged"
    assert list(run.trace.predictions)[-1].samples == bytes([NO_ANSWER]) * 18


@pytest.mark.parametrize(
    ("problem", "why"),
    [
        (lk.Problem("digits", timing_only=True), "timing only"),
        (lk.Problem("linear-regression"), "no classes"),
        (lk.Problem("clicks", hidden=(4,), options={"rows": 50, "samples": 200}), "ids"),
    ],
)
def test_a_problem_without_samples_has_no_predictions_and_a_reason(problem, why):
    run = start(problem, lk.AsyncPS(learning_rate=0.001), lk.Budget(updates=20)).wait()
    assert len(run.trace.predictions) == 0
    assert why in run.trace.header.samples


def test_a_run_that_is_not_recorded_has_no_predictions():
    run = start(record=False).wait()
    assert len(run.trace.predictions) == 0
    assert "totals" in run.trace.header.samples
    assert run.summary()["parameters_sha256"] == start().wait().summary()["parameters_sha256"]


def test_a_large_network_is_evaluated_on_a_coarser_grid_or_none():
    sides = [
        start(lk.Problem("moons", hidden=hidden)).trace.header.samples.plane.side
        for hidden in ((8,), (256, 256), (512, 512))
    ]
    assert sides[0] == 40 > sides[1] > sides[2] == 0


# memory and files -------------------------------------------------------------------------------------------------------


def test_predictions_are_bounded_and_evenly_spread_over_the_run():
    history = PredictionHistory(most=40)
    for k in range(1000):
        history.add(k, k, bytes([k % 10]), b"")
        kept = [entry.time for entry in history]
        assert len(kept) <= 40
        assert kept[-1] == k
        assert len(kept) + history.thinned == k + 1
        stride = kept[1] - kept[0] if k else 1
        assert kept[:-1] == list(range(0, k, stride))
    assert stride == 32


def test_the_newest_predictions_not_later_than_a_time_are_found():
    trace = start().trace
    for time in (10, 20, 20, 40):
        trace.predictions.add(time, time, b"\1", b"")
    found = [trace.predictions_at(t) for t in (9, 10, 39, 40, 10**12)]
    assert [entry and entry.time for entry in found] == [None, 10, 20, 40, 40]


def test_kept_predictions_do_not_depend_on_how_often_the_trace_is_read():
    def noted(most):
        trace, recorder = Trace(start().trace.header), Recorder(0)
        for k in range(1000):
            recorder.add_predictions(k, k, bytes([k % 10]), b"")
            if k % most == 0:
                trace.append(recorder.take(k))
        trace.append(recorder.take(1000))
        return list(trace.predictions)

    assert noted(1) == noted(7) == noted(1001)


def test_a_batch_of_predictions_is_plain():
    recorder = Recorder(0)
    recorder.add_predictions(1, 2, b"\1\2", b"")
    batch = recorder.take(5)
    assert batch["predictions"] == [(1, 2, b"\1\2", b"")]
    assert recorder.take(6)["predictions"] == []


def test_a_file_gives_the_predictions_back_and_the_same_run_the_same_file(tmp_path):
    one, two = start().wait(), start()
    while not two.done:
        two.advance(0.013)
        assert two.trace.predictions_at(10**18) is not None
    first, second = save_npz(one.trace, tmp_path / "a.npz"), save_npz(two.trace, tmp_path / "b.npz")
    assert first.read_bytes() == second.read_bytes()
    loaded = load_npz(first)
    assert list(loaded.predictions) == list(one.trace.predictions)
    assert loaded.header.samples == one.trace.header.samples
    assert loaded.header.shares == one.trace.header.shares


def test_files_without_predictions_are_read(tmp_path):
    members = dict(np.load(save_npz(start().wait().trace, tmp_path / "new.npz")))
    old = {name: member for name, member in members.items() if not name.startswith("looks.")}
    np.savez(tmp_path / "old.npz", **old)
    assert len(load_npz(tmp_path / "old.npz").predictions) == 0


# the header's description of the data -----------------------------------------------------------------------------------


def test_the_header_has_the_samples_as_they_were_measured():
    samples, dataset = start(DIGITS).trace.header.samples, DIGITS.dataset
    assert samples.shape == (8, 8)
    np.testing.assert_allclose(samples.features, dataset.raw(dataset.x_test[:18]), atol=1e-4)
    assert samples.labels == tuple(dataset.y_test[:18].tolist())
    plane, dataset = start().trace.header.samples.plane, MOONS.dataset
    raw = dataset.raw(dataset.x_train)
    assert len(plane.points) == len(plane.labels) == 200
    assert np.all(raw.min(axis=0) > plane.low)
    assert np.all(raw.max(axis=0) < plane.high)


def test_the_header_is_small_plain_json_and_large_pictures_are_made_smaller():
    rng = np.random.default_rng(0)
    pictures = lk.from_arrays(rng.integers(0, 256, (300, 28, 28)), rng.integers(0, 10, 300))
    for problem, workers in ((DIGITS, 64), (MOONS, 500), (lk.Problem(pictures, hidden=(4,)), 100)):
        header = start(problem, workers=workers).trace.header
        text = json.dumps(header.to_dict(), allow_nan=False)
        assert len(json.dumps([header.samples.to_dict(), header.shares.to_dict()])) < 40_000
        assert TraceHeader.from_dict(json.loads(text)) == header
    assert header.samples.shape == (14, 14)
    first = pictures.raw(pictures.x_test[:1]).reshape(14, 2, 14, 2).mean(axis=(1, 3))
    np.testing.assert_allclose(np.reshape(header.samples.features[0], (14, 14)), first, atol=0.1)


def test_names_of_classes_are_in_the_header(tmp_path):
    rows = "".join(f"{i % 3},{i},{'red' if i % 3 else 'blue'}\n" for i in range(60))
    (tmp_path / "data.csv").write_text("a,b,colour\n" + rows)
    problem = lk.Problem(lk.from_csv(tmp_path / "data.csv", target="colour"), hidden=(4,))
    header = start(problem).trace.header
    assert sorted(header.samples.names) == sorted(header.shares.names) == ["blue", "red"]


@pytest.mark.parametrize("partition", ["even", "by-label:0.3", "by-size", "shared"])
def test_shares_are_counted_as_the_engine_deals_them_out(partition):
    problem = lk.Problem("digits", hidden=(4,), partition=partition)
    run, d = start(problem, workers=5), problem.dataset
    shares = run.trace.header.shares
    dealt = problem.partition.split(d.y_train, 5, 0)
    wanted = tuple(tuple(np.bincount(d.y_train[rows], minlength=10).tolist()) for rows in dealt)
    assert shares.counts == (wanted[:1] if partition == "shared" else wanted)
    assert (shares.shares, shares.shared, shares.classes) == (5, partition == "shared", 10)


def test_many_shares_are_grouped_with_their_number():
    shares = start(DIGITS, workers=100).trace.header.shares
    assert (shares.shares, len(shares.counts), len(shares.first)) == (100, 64, 64)
    assert np.sum(shares.counts) == DIGITS.dataset.n_train
    dealt = DIGITS.partition.split(DIGITS.dataset.y_train, 100, 0)
    group = range(shares.first[3], shares.first[4])
    assert sum(shares.counts[3]) == sum(len(dealt[i]) for i in group)


def test_shares_of_a_regression_and_of_nothing():
    regression = start(lk.Problem("linear-regression", partition="by-size")).trace.header.shares
    assert regression.classes == 0
    assert np.sum(regression.counts) == 800
    assert "no data" in start(lk.Problem("digits", timing_only=True)).trace.header.shares


# the ledger as of an earlier time ---------------------------------------------------------------------------------------


STRATEGIES = [
    lk.AsyncPS(), lk.SyncPS(), lk.KSync(), lk.KBatchAsync(), lk.SSP(), lk.RingAllReduce(), lk.EASGD(), lk.FSDP(),
    lk.BackupWorkers(), lk.LocalSGD(), lk.DPSGD(), lk.ADPSGD(),
]  # fmt: skip


def test_the_ledger_of_a_past_time_equals_the_one_shown_at_that_time():
    differ = []
    for strategy in STRATEGIES:
        whole, advanced = (
            start(
                strategy=strategy,
                budget=lk.Budget(seconds=2),
                compute=lk.distributions.LogNormal(0.1, 0.5),
                latency=0.01,
            )
            for _ in range(2)
        )
        whole.wait()
        for t, seconds in ((0.0, 0.0), (0.33, 0.33), (1.234, 0.904)):
            if ledger(whole.trace, round(t * 1e9)) != ledger(advanced.advance(seconds).trace):
                differ.append((strategy.name, t))
    assert differ == []


def test_values_that_were_not_recorded_are_none():
    entries = ledger(start(record=False).wait().trace, 100_000_000)
    assert (entries["computed"], entries["applied"], entries["in_flight"], entries["closes"]) == (
        None,
        None,
        None,
        None,
    )
    mixed = ledger(start(strategy=lk.DPSGD(), budget=lk.Budget(seconds=1), record=False).wait().trace, 500_000_000)
    assert (mixed["computed"], mixed["applied"]) == (None, None)
    mixed = ledger(start(strategy=lk.DPSGD(), budget=lk.Budget(seconds=1)).wait().trace, 500_000_000)
    assert mixed["computed"] >= mixed["applied"] > 0
