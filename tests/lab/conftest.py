"""Fixtures: widgets whose messages a stub of a browser receives, and a calibration with known costs."""

from __future__ import annotations

from dataclasses import replace

import comm
import pytest

import labkit as lk
from tests.lab.browser_stub import Browser

COSTS = lk.Costs(lk.WorkCost(0.02), send=lk.Linear(1e-4), receive=lk.Linear(2e-4), update=lk.Linear(1e-4), cores=8)


@pytest.fixture(scope="session")
def calibration():
    """A calibration that has found the costs exactly, in another form: with equal costs a run would be its own forecast."""
    problem = lk.Problem("moons", hidden=(8,), timing_only=True)
    found = lk.calibrate(lk.SimulatedCluster(1, 1, compute=None, costs=COSTS), problem, 1)
    return replace(found, costs=replace(COSTS, spread=lk.distributions.Measured((1.0, 1.0))), doubts=())


@pytest.fixture
def browsers(monkeypatch):
    """{id of a model: its `Browser`} of all widgets that the test makes."""
    found = {}

    def connect(*arguments, **more):
        made = Browser(*arguments, **more)
        found[made.comm_id] = made
        return made

    monkeypatch.setattr(comm, "create_comm", connect)
    return found
