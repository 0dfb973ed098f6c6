"""One suite for two engines.

A test with the fixture `engine` checks its statement in virtual time and on a Dask cluster of processes. With `over` (below) or
`slow_on_processes` (`engines.py`) it says which of its cases run on processes, too, and which of these are slow. A test with the
fixture `simulated` runs in virtual time only: it is about what the engines share (strategies, roles, ledger, refusals before a
start), or about exact times. Every strategy runs on processes in `test_every_strategy.py`, where its parameters and messages are
compared with those of virtual time.
"""

import pytest

from tests.contract.engines import Engine


@pytest.fixture(params=["simulated", "dask"])
def engine(request):
    """The engine under test; runs that have not ended are stopped after the test."""
    made = Engine(request.param)
    if not made.simulated:
        made.processes = request.getfixturevalue("dask_processes")
    yield made
    made.stop()


@pytest.fixture
def simulated():
    """The engine in virtual time."""
    made = Engine("simulated")
    yield made
    made.stop()
