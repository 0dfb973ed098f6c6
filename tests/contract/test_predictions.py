"""Evaluation samples are recorded in the trace on both engines, and equal the model's predictions."""

from __future__ import annotations

import numpy as np

import labkit as lk
from labkit.trace.exports import load_npz, save_npz

MOONS = lk.Problem("moons", hidden=(8,), batch_size=8)


def test_the_last_evaluation_sample_equals_the_predictions_of_the_model(engine, tmp_path):
    run = engine.wait(MOONS, lk.AsyncPS(), lk.Budget(updates=100), 2)
    predictions, samples = list(run.trace.predictions), run.trace.header["samples"]
    assert len(predictions) >= 2
    assert predictions == sorted(predictions, key=lambda predicted: predicted.time)
    assert predictions[-1].update == run.trace.ending["update"]
    assert list(predictions[-1].samples) == run.result().predict(samples["features"]).tolist()
    assert {len(predicted.grid) for predicted in predictions} == {40 * 40}
    evaluated = run.trace.column("evaluations", "update").tolist()
    assert all(predicted.update in evaluated for predicted in predictions)
    loaded = load_npz(save_npz(run.trace, tmp_path / "run.npz"))
    assert list(loaded.predictions) == predictions
    assert all(draw().axes for draw in (run.plot.predictions, run.plot.decision_boundary, run.plot.ledger))


def test_both_engines_compute_and_record_the_same_predictions(engine):
    """A synchronous run computes the same on both, but for the order of sums."""

    budget = lk.Budget(updates=40)
    here = engine.wait(MOONS, lk.SyncPS(), budget, 2).trace
    there = lk.train(MOONS, lk.SyncPS(), lk.SimulatedCluster(workers=2), budget).wait().trace
    assert here.header["samples"] == there.header["samples"]
    assert here.header["shares"] == there.header["shares"]
    one, two = (np.frombuffer(list(t.predictions)[-1].grid, np.uint8) for t in (here, there))
    assert np.mean(one != two) < 0.01


def test_a_run_that_keeps_totals_only_has_no_predictions(engine):
    run = engine.wait(MOONS, lk.AsyncPS(), lk.Budget(updates=20), 2, record=False)
    assert len(run.trace.predictions) == 0
