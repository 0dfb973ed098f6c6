"""Evaluation samples are recorded in the trace on both engines, and equal the model's predictions."""

from __future__ import annotations

import labkit as lk
from labkit.trace.exports import load_npz, save_npz
from tests.contract.engines import slow_on_processes

MOONS = lk.Problem("moons", hidden=(8,), batch_size=8)


@slow_on_processes
def test_the_last_evaluation_sample_equals_the_predictions_of_the_model(engine, tmp_path):
    run = engine.wait(MOONS, lk.AsyncPS(), lk.Budget(updates=100), 2)
    predictions, data = list(run.trace.predictions), MOONS.dataset
    first = data.raw(data.x_test[: len(predictions[-1].samples)])  # those in the trace are rounded
    assert len(predictions) >= 2
    assert predictions == sorted(predictions, key=lambda predicted: predicted.time)
    assert predictions[-1].update == run.trace.ending["update"]
    assert list(predictions[-1].samples) == run.result().predict(first).tolist()
    assert {len(predicted.grid) for predicted in predictions} == {40 * 40}
    evaluated = run.trace.column("evaluations", "update").tolist()
    assert all(predicted.update in evaluated for predicted in predictions)
    loaded = load_npz(save_npz(run.trace, tmp_path / "run.npz"))
    assert list(loaded.predictions) == predictions
    assert all(draw().axes for draw in (run.plot.predictions, run.plot.decision_boundary, run.plot.ledger))


@slow_on_processes
def test_a_run_that_keeps_totals_only_has_no_predictions(engine):
    run = engine.wait(MOONS, lk.AsyncPS(), lk.Budget(updates=20), 2, record=False)
    assert len(run.trace.predictions) == 0
