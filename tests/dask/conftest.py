"""One cluster of processes for all tests that do not need a separate one."""

import pytest

import labkit as lk


@pytest.fixture(scope="session")
def cluster():
    with lk.DaskCluster(workers=2) as shared:
        yield shared.open()


@pytest.fixture
def started(cluster):
    """Starts runs on the shared cluster, and stops those that remain."""
    runs = []

    def start(strategy=None, budget=None, *, problem=None, on=None, **more):
        problem = problem or lk.Problem("moons", hidden=(8,))
        budget = budget or lk.Budget(seconds=60)
        runs.append(lk.train(problem, strategy or lk.AsyncPS(), on or cluster, budget, **more))
        return runs[-1]

    yield start
    for run in runs:
        run.stop()
