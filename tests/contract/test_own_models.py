"""A model of a user is trained on both engines. In virtual time and on processes a ring computes the same."""

import numpy as np
import pytest

import labkit as lk
from tests.contract.engines import slow_on_processes
from tests.contract.statements import closed
from tests.models.own_models import CNN, Dropout, StagedMLP


@pytest.mark.parametrize("strategy", [lk.RingAllReduce(), lk.SyncPS(), lk.AsyncPS()], ids=lambda s: s.name)
def test_a_model_is_trained(engine, strategy):
    problem = lk.Problem("digits", model=CNN(), dtype="float64")
    run = engine.wait(problem, strategy, lk.Budget(updates=60))
    closed(run)
    assert run.summary()["accuracy"] > 0.8
    if strategy.name != "AsyncPS":
        other = lk.train(problem, strategy, lk.SimulatedCluster(workers=2), lk.Budget(updates=60)).wait()
        np.testing.assert_allclose(run.result().parameters, other.result().parameters, rtol=0, atol=1e-10)


@slow_on_processes
def test_random_numbers_of_a_model_are_those_of_virtual_time(engine):
    problem = lk.Problem("digits", model=Dropout(), dtype="float64")
    run = engine.wait(problem, lk.RingAllReduce(), lk.Budget(updates=30))
    other = lk.train(problem, lk.RingAllReduce(), lk.SimulatedCluster(workers=2), lk.Budget(updates=30)).wait()
    np.testing.assert_allclose(run.result().parameters, other.result().parameters, rtol=0, atol=1e-10)


def test_stages_of_a_model_are_on_several_workers(engine):
    problem = lk.Problem("digits", model=StagedMLP(), dtype="float64")
    run = engine.wait(problem, lk.Pipeline(micro_batches=2), lk.Budget(updates=30), 3)
    network = lk.Problem("digits", hidden=(16, 12), dtype="float64")
    other = lk.train(
        network, lk.Pipeline(micro_batches=2), lk.SimulatedCluster(workers=3), lk.Budget(updates=30)
    ).wait()
    np.testing.assert_allclose(run.result().parameters, other.result().parameters, rtol=0, atol=1e-10)
