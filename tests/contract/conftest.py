"""One suite for two engines: every test runs in virtual time and on a Dask cluster of processes."""

import time
from dataclasses import dataclass, field
from typing import Any

import pytest

import labkit as lk


@dataclass
class Engine:
    """Creates clusters of one kind, of any shape."""

    name: str
    processes: Any = None
    runs: list = field(default_factory=list)

    @property
    def simulated(self) -> bool:
        """Whether time is virtual, and so exact."""
        return self.name == "simulated"

    def cluster(self, workers=2, servers=None, time=None, **more):
        """`time`: the distribution of a gradient's time (None: 10 ms in virtual time, full speed on Dask)."""
        if self.simulated:
            return lk.SimulatedCluster(workers=workers, servers=servers, compute=0.01 if time is None else time, **more)
        return self.processes.resized(workers=workers, servers=servers, pace=time, **more)

    def train(self, problem, strategy, budget, workers=2, servers=None, time=None, faults=(), **more):
        """Start a run; it is stopped after the test if the test has not ended it."""
        run = lk.train(problem, strategy, self.cluster(workers, servers, time, **more), budget, faults=faults)
        self.runs.append(run)
        return run

    def wait(self, *args, **kwargs):
        """Start a run and wait for its end; fails after a minute."""
        return self.train(*args, **kwargs).wait(timeout=180)

    def advance_until(self, run, condition):
        """Advance a run until `condition()` is true; fails after a minute."""
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, run.trace.events
            if self.simulated:
                run.advance(0.05)
            else:
                time.sleep(0.02)


@pytest.fixture(params=["simulated", "dask"])
def engine(request):
    """The engine under test."""
    made = Engine(request.param)
    if not made.simulated:
        made.processes = request.getfixturevalue("dask_processes")
    yield made
    for run in made.runs:
        if not run.done:
            run.stop()
