"""30 schedules of random faults on a Dask cluster of processes: real signals, links that are really cut.

`LABKIT_TESTS=whole pytest -m "" tests/chaos` tries all of them; without it the first ones. What virtual time shows
exactly is
asserted there; here: every call returns, with the budget reached or with an error that names a role; the
ledger balances; no state of the run is left on the cluster.
"""

import contextlib
import os
import time

import pytest

import labkit as lk
from labkit.errors import ClusterError
from labkit.trace.ledger import ledger
from tests.chaos.schedules import schedule

pytestmark = pytest.mark.slow

SEEDS = range(30 if os.environ.get("LABKIT_TESTS") == "whole" else 4)
WALL = 180.0  # seconds for a run to end, or to report which roles it waits for
CALL = 15.0  # seconds in which every other call returns, with a result or an error


@pytest.fixture(scope="module")
def processes():
    with lk.DaskCluster(workers=4, servers=2) as cluster:
        yield cluster.open()


def eventually(condition, limit):
    """The result of `condition` once it is true; None after `limit` seconds."""
    until = time.monotonic() + limit
    while not (found := condition()) and time.monotonic() < until:
        time.sleep(0.02)
    return found or None


def waits(run):
    """The run's report of the roles it waits for; "" if no role is absent without a scheduled restart."""
    events = [event for event in run.trace.events if event.kind in ("waits", "restarted")]
    return str(events[-1]) if events and events[-1].kind == "waits" else ""


def ends(run, limit):
    """Whether the run is over within `limit` seconds; an error that ends it names a role."""
    try:
        run.wait(limit)
    except TimeoutError:
        return False
    except ClusterError:
        pass
    error = run.engine.error
    assert error is None or any(role in str(error) for role in run.trace.roles), error
    return True


def call_back(run, roles):
    for role in roles:
        with contextlib.suppress(lk.BadInput):  # another fault has brought it back
            run.restart(role)


def leftovers(processes):
    """Remaining state of a run: plugins on the workers, places in use."""
    found = processes.client.run(lambda dask_worker: [n for n in dask_worker.plugins if n.startswith("labkit")])
    return [name for names in found.values() for name in names] + [n for n in processes._connection.usage.values() if n]


@pytest.mark.parametrize("seed", SEEDS)
def test_under_random_faults_the_run_ends_and_its_ledger_balances(seed, processes):
    plan = schedule(seed, real=True)
    print(plan)
    run = lk.train(
        plan.problem, plan.strategy, processes.resized(**plan.shape), plan.budget, seed=plan.seed, faults=plan.faults
    )  # fmt: skip
    try:
        over = ends(run, WALL) if not plan.away else eventually(lambda: run.done or waits(run), WALL)
        assert over, (run.summary(), [str(event) for event in run.trace.events])
        if not run.done:
            assert any(role in waits(run) for role in plan.away), waits(run)
            if plan.back is not None:
                call_back(run, plan.away)
                assert ends(run, WALL), [str(event) for event in run.trace.events]
    finally:
        since = time.monotonic()
        run.stop()
    assert time.monotonic() - since < CALL + WALL  # a limit, not a measurement: stop() never hangs
    entries = ledger(run.trace)
    assert entries["closes"] is True, entries
    assert entries["missing"] == 0, entries
    if run.stopped_by == "updates":
        assert run.summary()["updates"] == plan.budget.updates
    assert eventually(lambda: not leftovers(processes), CALL), leftovers(processes)
