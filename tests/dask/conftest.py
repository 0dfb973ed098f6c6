"""The shared cluster as this suite uses it, and runs on it."""

import dask
import pytest

import labkit as lk


@pytest.fixture(scope="module", autouse=True)
def _forked_workers():
    """Fork the workers of a `LocalCluster` of Dask, too: the imports of each take more than half a second of a core."""
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        yield


@pytest.fixture(scope="session")
def cluster(dask_processes):
    """The processes that all tests share, for two workers."""
    return dask_processes.resized(workers=2, servers=None)


@pytest.fixture
def started(cluster):
    """Starts runs on the shared cluster, and stops those that remain."""
    runs = []

    def start(strategy=None, budget=None, *, problem=None, on=None, **more):
        problem = problem or lk.Problem("moons", hidden=(8,))
        budget = budget or lk.Budget(updates=10**9)
        runs.append(lk.train(problem, strategy or lk.AsyncPS(), on or cluster, budget, **more))
        return runs[-1]

    yield start
    for run in runs:
        run.stop()
