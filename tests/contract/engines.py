"""The engine under test, and the choice of the cases that run on processes."""

from dataclasses import dataclass, field
from typing import Any

import pytest

import labkit as lk


@dataclass
class Engine:
    """Creates clusters of one kind, of any shape, and runs on them."""

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

    def train(self, problem, strategy, budget, workers=2, servers=None, time=None, faults=(), checkpoint=None, **more):
        """Start a run; it is stopped after the test if the test has not ended it."""
        cluster = self.cluster(workers, servers, time, **more)
        run = lk.train(problem, strategy, cluster, budget, faults=faults, checkpoint=checkpoint)
        self.runs.append(run)
        return run

    def wait(self, *args, **kwargs):
        """Start a run and wait for its end."""
        return self.train(*args, **kwargs).wait()

    def stop(self):
        """Stop the runs that have not ended."""
        for run in self.runs:
            if not run.done:
                run.stop()


def over(name, cases, quick=(), slow=()):
    """Parametrize a test by `engine` and by the cases {id: value}: all in virtual time; on processes the ids `quick`, and those
    that are `slow` in the slow suites.
    """
    assert {*quick, *slow} <= set(cases)
    values = [pytest.param("simulated", case, id=f"simulated-{key}") for key, case in cases.items()]
    values += [pytest.param("dask", cases[key], id=f"dask-{key}") for key in quick]
    values += [pytest.param("dask", cases[key], id=f"dask-{key}", marks=pytest.mark.slow) for key in slow]
    return pytest.mark.parametrize(("engine", name), values, indirect=["engine"])


slow_on_processes = pytest.mark.parametrize(
    "engine", ["simulated", pytest.param("dask", marks=pytest.mark.slow)], indirect=True
)
