"""Evaluation samples are recorded in the trace on both engines, and equal the model's predictions."""

from __future__ import annotations

import numpy as np

import labkit as lk
from labkit.trace.exports import load_npz, save_npz

MOONS = lk.Problem("moons", hidden=(8,), batch_size=8)


def test_the_last_look_is_what_the_model_says(engine, tmp_path):
    run = engine.wait(MOONS, lk.AsyncPS(), lk.Budget(updates=100), 2)
    looks, samples = list(run.trace.looks), run.trace.header["samples"]
    assert len(looks) >= 2
    assert looks == sorted(looks, key=lambda look: look.time)
    assert looks[-1].update == run.trace.ending["update"]
    assert list(looks[-1].samples) == run.result().predict(samples["features"]).tolist()
    assert {len(look.grid) for look in looks} == {40 * 40}
    evaluated = run.trace.column("evaluations", "update").tolist()
    assert all(look.update in evaluated for look in looks)
    loaded = load_npz(save_npz(run.trace, tmp_path / "run.npz"))
    assert list(loaded.looks) == looks
    assert all(draw().axes for draw in (run.plot.predictions, run.plot.decision_boundary, run.plot.ledger))


def test_both_engines_learn_and_say_the_same(engine):
    """A synchronous run computes the same on both, but for the order of sums."""

    budget = lk.Budget(updates=40)
    here = engine.wait(MOONS, lk.SyncPS(), budget, 2).trace
    there = lk.train(MOONS, lk.SyncPS(), lk.SimulatedCluster(workers=2), budget).wait().trace
    assert here.header["samples"] == there.header["samples"]
    assert here.header["shares"] == there.header["shares"]
    one, two = (np.frombuffer(list(t.looks)[-1].grid, np.uint8) for t in (here, there))
    assert np.mean(one != two) < 0.01


def test_a_run_that_keeps_totals_only_has_no_looks(engine):
    run = engine.wait(MOONS, lk.AsyncPS(), lk.Budget(updates=20), 2, record=False)
    assert len(run.trace.looks) == 0
