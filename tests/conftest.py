"""What all tests of the session share: one cluster of processes, and where simulated runs of sweeps are executed."""

import math
from collections.abc import Iterator

import pytest

import labkit as lk
from labkit.forecasts import sweeps


@pytest.fixture(scope="session", autouse=True)
def _sweeps_in_this_process() -> Iterator[None]:
    """Execute the simulated runs of a sweep in this process, however slow the machine is. Tests of processes change this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeps, "ALONE_S", math.inf)
        yield


@pytest.fixture(scope="session")
def dask_processes():
    """Eight processes: 5 workers, 2 servers and the chief. A run on `dask_processes.resized(...)` uses as many as it has roles.

    Runs may overlap if there are enough processes. A process that a test kills is replaced before it is needed again.
    """
    with lk.DaskCluster(workers=5, servers=2) as cluster:
        yield cluster.open()
