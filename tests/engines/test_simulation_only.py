"""Simulation-only mode: a run for processes is executed in virtual time with the same shape, and reports this."""

import pytest

import labkit as lk
from labkit.engines.simulation_only import ENVIRONMENT_VARIABLE, to_simulated


@pytest.fixture
def light(monkeypatch):
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "1")


def test_a_run_starts_no_process_and_is_the_simulated_one(light):
    cluster = lk.DaskCluster(workers=3, servers=2, pace=0.1, slow={"worker-1": 5})
    run = lk.train("digits", lk.AsyncPS(), cluster, lk.Budget(updates=30)).wait()
    assert not cluster.is_open
    paper = lk.SimulatedCluster(workers=3, servers=2, compute=0.1, slow={"worker-1": 5})
    same = lk.train("digits", lk.AsyncPS(), paper, lk.Budget(updates=30)).wait()
    assert run.result().parameters.tobytes() == same.result().parameters.tobytes()
    assert f"{ENVIRONMENT_VARIABLE} is set" in str(run.log)
    assert ENVIRONMENT_VARIABLE not in str(same.log)
    assert run.trace.header.cluster.engine == "simulated"
    cluster.close()


def test_simulation_only_runs_support_faults_and_commands(light):
    cluster = lk.DaskCluster(workers=3, pace=0.1)
    run = lk.train("digits", lk.AsyncPS(), cluster, lk.Budget(updates=60), faults=["kill:worker-1@0.5"])
    run.slow("worker-2", 4)
    assert lk.ledger(run.wait().trace)["closes"]


def test_a_lab_starts_no_process(light):
    lab = lk.Lab("digits", lk.SyncPS(), lk.DaskCluster(workers=2, pace=0.1), lk.Budget(updates=5))
    lab.run().wait()
    assert not lab.cluster.is_open
    lab.close()


@pytest.mark.parametrize("value", ["", "0"])
def test_simulation_only_mode_is_off_by_default(monkeypatch, value):
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, value)
    cluster = lk.DaskCluster(workers=2)
    assert to_simulated(cluster) is cluster


def test_a_scheduler_that_was_given_is_used_as_it_is(light):
    cluster = lk.DaskCluster("tcp://127.0.0.1:1", workers=2)
    assert to_simulated(cluster) is cluster
