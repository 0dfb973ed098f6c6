"""`Problem.batches`: the batches with which a loop outside the engine repeats a run."""

from dataclasses import replace

import numpy as np
import pytest

import labkit as lk

MOONS = lk.Problem("moons", hidden=(4,), batch_size=8, dtype="float64", seed=3, options={"samples": 100})


@pytest.mark.parametrize("partition", ["even", "by-label:0.5", "shared", "global-batch"])
def test_a_loop_with_these_batches_ends_at_the_parameters_of_the_run(partition):
    problem = replace(MOONS, partition=partition, batch_size=9)
    run = lk.train(problem, lk.SyncPS(learning_rate=0.3), lk.SimulatedCluster(workers=3), lk.Budget(updates=25)).wait()
    objective = problem.objective()
    weights, gradient = objective.start(problem.seed), np.empty(objective.size)
    for _, several in zip(range(25), zip(*problem.batches(workers=3))):
        total = np.zeros(objective.size)
        for batch in several:
            objective.gradient(weights, batch.x, batch.y, gradient)
            total += gradient
        weights -= 0.3 * total / 3
    np.testing.assert_allclose(weights, run.result().parameters, rtol=0, atol=1e-12)


def test_the_partition_divides_the_samples():
    first, second = MOONS.batches(workers=2)
    rows = [{tuple(x) for _, batch in zip(range(20), batches) for x in batch.x} for batches in (first, second)]
    assert not rows[0] & rows[1]
    assert len(rows[0] | rows[1]) == len(MOONS.dataset.x_train)
    (alone,) = MOONS.batches()
    assert next(alone).samples == 8
