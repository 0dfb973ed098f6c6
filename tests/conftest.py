"""One cluster of processes for all tests of the session that do not need a separate one."""

import pytest

import labkit as lk


@pytest.fixture(scope="session")
def dask_processes():
    """Eight processes: 5 workers, 2 servers and the chief. A run on `dask_processes.resized(...)` uses as many as it has roles.

    Runs may overlap if there are enough processes. A process that a test kills is replaced before it is needed again.
    """
    with lk.DaskCluster(workers=5, servers=2) as cluster:
        yield cluster.open()
