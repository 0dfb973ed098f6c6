"""Weights of classes and samples reach the processes: a run there computes what the simulator computes."""

import numpy as np
import pytest

import labkit as lk

pytestmark = pytest.mark.processes


def test_a_run_on_processes_has_the_weights_of_classes_and_samples(started):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(200, 3)), rng.integers(0, 3, 200)
    found = []
    for weights in (rng.integers(1, 5, 200), None):
        data = lk.from_arrays(x, y, sample_weights=weights, dtype="float64")
        problem = lk.Problem(data, hidden=(6,), batch_size=8, class_weights={1: 4.0})
        strategy, budget = lk.RingAllReduce(), lk.Budget(updates=20)
        simulated = lk.train(problem, strategy, lk.SimulatedCluster(workers=2), budget).wait(progress=False)
        processes = started(strategy, budget, problem=problem).wait(progress=False)
        found.append(simulated.result().parameters)
        assert np.abs(processes.result().parameters - found[-1]).max() < 1e-10
    assert np.abs(found[0] - found[1]).max() > 1e-3
