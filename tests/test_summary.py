"""The summary of a run names its faults, and gives its values like a dict."""

import labkit as lk

TIMING = lk.Problem("moons", hidden=(), timing_only=True)


def test_the_summary_mentions_faults():
    faults = [lk.Kill("worker-1", at=0.05), lk.Slow("worker-0", 3, at=0.02)]
    cluster = lk.SimulatedCluster(workers=2, compute=0.01)
    run = lk.train(TIMING, lk.AsyncPS(), cluster, lk.Budget(updates=50), faults=faults).wait()
    assert "faults" in str(run.summary())
    assert "worker-0 computes 3x slower at 0.02 s; killed worker-1 at 0.05 s" in str(run.summary())
    assert "faults" not in str(lk.train(TIMING, lk.AsyncPS(), cluster, lk.Budget(updates=5)).wait().summary())


def test_a_value_that_there_is_not_has_a_default():
    summary = lk.train(TIMING, lk.AsyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(updates=5)).wait().summary()
    assert (summary.get("updates"), summary.get("update"), summary.get("update", 0)) == (5, None, 0)
