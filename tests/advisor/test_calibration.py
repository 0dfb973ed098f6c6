"""Calibration returns the constants with which the runs were simulated."""

import pytest

import labkit as lk
from labkit.advisor.calibration import LEAST_LATENCY, MOST_BANDWIDTH, calibrate

SMALL, LARGE = (lk.Problem("digits", hidden=hidden, timing_only=True) for hidden in ((), (512,)))
KNOWN = {"compute": 0.01, "server_time": 1e-3, "latency": 1e-4, "bandwidth": 1e8}


def run(problem, budget=None, **shape):
    cluster = lk.SimulatedCluster(**{"workers": 1, "servers": 1, **KNOWN, **shape})
    return lk.train(problem, lk.AsyncPS(), cluster, budget or lk.Budget(updates=20)).wait()


@pytest.mark.parametrize(
    "changed", [{}, {"compute": 0.5}, {"server_time": None}, {"latency": 0.01}, {"bandwidth": 1e6}], ids=str
)
def test_the_constants_of_the_simulation_are_returned(changed):
    measured = calibrate(run(SMALL, **changed), run(LARGE, **changed).trace)
    expected = KNOWN | changed
    assert measured == pytest.approx(expected | {"server_time": expected["server_time"] or 0.0}, rel=0.02)


def test_the_result_describes_a_cluster_with_the_same_throughput():
    measured = calibrate(run(SMALL), run(LARGE))
    cluster = lk.SimulatedCluster(workers=4, servers=1, **measured)
    known = run(LARGE, workers=4).summary()["gradients_per_second"]
    again = lk.train(LARGE, lk.AsyncPS(), cluster, lk.Budget(updates=20)).wait().summary()["gradients_per_second"]
    assert again == pytest.approx(known, rel=0.02)


def test_times_that_are_too_short_to_measure_have_limits():
    measured = calibrate(*(run(problem, latency=0.0, bandwidth=float("inf")) for problem in (SMALL, LARGE)))
    assert (measured["latency"], measured["bandwidth"]) == (LEAST_LATENCY, MOST_BANDWIDTH)


def test_runs_that_do_not_fit_are_refused():
    with pytest.raises(lk.BadInput, match="give the small one first"):
        calibrate(run(LARGE), run(SMALL))
    with pytest.raises(lk.BadInput, match="one worker and one server"):
        calibrate(run(SMALL), run(LARGE, workers=2))
    with pytest.raises(lk.BadInput, match="applied no gradient"):
        calibrate(run(SMALL), run(LARGE, lk.Budget(seconds=1e-6)))
    with pytest.raises(lk.BadInput, match="large="):
        calibrate(run(SMALL), "x")


def test_a_cluster_whose_messages_take_no_time_has_the_least_latency_and_the_largest_bandwidth():
    cluster = lk.SimulatedCluster(workers=1, servers=1, compute=0.01)
    runs = [
        lk.train(lk.Problem("digits", hidden=hidden, timing_only=True), lk.AsyncPS(), cluster, lk.Budget(updates=20)).wait()
        for hidden in ((), (512,))
    ]
    found = calibrate(*runs)
    assert (found["latency"], found["bandwidth"]) == (LEAST_LATENCY, pytest.approx(MOST_BANDWIDTH))
    assert (found["compute"], found["server_time"]) == (0.01, 0.0)
