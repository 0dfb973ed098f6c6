"""The ledger of runs on processes describes the parameters that the run returns, for kills at all times.

Every gradient is a unique mark (`indicator`), so the returned parameters show which ones they hold. Processes are
killed where their reports have not arrived: reports are withheld in the process itself, as if it had been killed
before they were sent. `LABKIT_TESTS=whole pytest -m slow tests/chaos` runs all random schedules.
"""

import os
import random
import threading
from contextlib import suppress

import pytest

import labkit as lk
from labkit.engines.plan import make_plan
from labkit.errors import ClusterError, LabkitError
from labkit.strategies import STRATEGIES
from tests.chaos.indicator import Records, computed, held_by_model, problem_for
from tests.chaos.process_runs import agree, evaluated, reported, saved, started, withhold
from tests.chaos.schedules import random_commands
from tests.dask.helpers import nothing_left

WHOLE = os.environ.get("LABKIT_TESTS") == "whole"


@pytest.mark.slow
def test_drops_lost_with_a_server_do_not_count_as_applied(dask_processes, tmp_path):
    """A checkpoint holds the last step applied of every worker. The drops before it, if they were never reported, must be in
    it, too: else the ledger counts them as applied.
    """
    run = started(dask_processes, lk.BackupWorkers(), lk.Budget(updates=150), tmp_path)
    run.wait_for(lambda run: reported(run, "server-0") > 5)
    withhold(run, "server-0")
    before = reported(run, "server-0")
    run.wait_for(lambda run: saved(run, "server-0") > before + 20)
    run.kill("server-0")
    run.wait()
    assert run.stopped_by == "updates"
    assert sum(agree(run, tmp_path)["dropped"].values()) > 0


@pytest.mark.slow
def test_returned_parameters_hold_what_a_killed_server_had_not_reported(dask_processes, tmp_path):
    """The chief has evaluated more updates than the server's last report contains; the run returns the evaluated parameters."""
    run = started(dask_processes, lk.AsyncPS(), lk.Budget(updates=10**6), tmp_path)
    run.wait_for(lambda run: reported(run, "server-0") > 5)
    withhold(run, "server-0")
    before = reported(run, "server-0")
    run.wait_for(lambda run: evaluated(run) > before + 10)
    run.kill("server-0", restart=False)
    run.stop()
    assert agree(run, tmp_path)["applied"] > before


@pytest.mark.slow
def test_all_processes_killed_at_once(dask_processes, tmp_path):
    """The parameters of the chief's last evaluation remain: what was applied later is rolled back."""
    run = started(dask_processes, lk.RingAllReduce(eval_every=50), lk.Budget(updates=10**6), tmp_path, servers=None)
    run.wait_for(lambda run: evaluated(run) > 0)
    run.wait_for(lambda run: run.summary()["updates"] > evaluated(run) + 5)
    for role in run.trace.roles:
        run.kill(role, restart=False)
    run.stop()
    entries = agree(run, tmp_path)
    assert entries["rolled_back"] > 0
    assert entries["dropped"].get("after the end", 0) == 0


@pytest.mark.slow
def test_a_killed_chief_counts_no_gradients(dask_processes, tmp_path):
    run = started(
        dask_processes, lk.RingAllReduce(), lk.Budget(updates=60), tmp_path, [lk.Kill("chief", at=0.3)], servers=None
    )
    run.wait()
    entries = agree(run, tmp_path)
    assert entries["applied"] == 180
    assert entries["computed"] == computed(tmp_path)  # workers send their state before they restart: none was lost


@pytest.mark.slow
def test_positions_bring_gradients_of_a_lost_worker_back_to_a_lost_centre(dask_processes, tmp_path):
    """One of two centres restarts with the initial weights, and a worker is lost with it: others hold its gradients."""
    budget = lk.Budget(updates=150)
    run = started(dask_processes, lk.EASGD(tau=2), budget, tmp_path, checkpoint_every=None)
    run.wait_for(lambda run: min(reported(run, "server-0"), reported(run, "server-1")) > 30)
    run.kill("server-1")
    run.kill("worker-1")
    run.wait()
    entries = agree(run, tmp_path)
    calls, held = Records(tmp_path).read("calls"), held_by_model(run, run.engine.parameters, tmp_path)
    worker = run.trace.roles.index("worker-1")
    first = {call for call, (role, incarnation, _) in enumerate(calls.tolist()) if role == worker and not incarnation}
    assert first & held.everywhere
    assert entries["applied"] >= 200


# random schedules -----------------------------------------------------------------------------------------------------


def fitting(name, rng):
    """(strategy, shape, plan) of a run that fits these processes."""
    kind = STRATEGIES[name]
    strategy = kind(on_loss=rng.choice(["wait", "continue"]))
    servers = rng.choice([1, 2]) if kind.uses_servers else None
    for workers in rng.sample([2, 3, 4], 3):
        with suppress(lk.BadInput):
            small = lk.SimulatedCluster(workers=workers, servers=servers)
            plan = make_plan(problem_for(kind, servers or 1), strategy, small.spec, lk.Budget(updates=1), 0)
            return strategy, {"workers": workers, "servers": servers}, plan
    raise AssertionError(name)


def faulty(seed, name, processes, folder):
    """A run of `name` with random faults, until it is over."""
    rng = random.Random(f"ledger {seed} {name}")
    strategy, shape, plan = fitting(name, rng)
    shape |= {"heartbeat_timeout": 2.0, "checkpoint_every": rng.choice([None, 0.2])}
    faults = random_commands(rng, plan, shape, real=True)
    print(seed, strategy, shape, [fault.text() for fault in faults])  # shown where the test fails
    run = started(processes, strategy, lk.Budget(updates=rng.choice([20, 40])), folder, faults, **shape)
    with suppress(ClusterError):
        run.wait()
    error = run.engine.error
    assert error is None or any(role in str(error) for role in run.trace.roles), error
    return run


def stopped(seed, name, processes, folder):
    """A run of `name` that is stopped at some update, and a role that is killed at about that time."""
    rng = random.Random(f"stopped {seed} {name}")
    strategy, shape, plan = fitting(name, rng)
    run = started(processes, strategy, lk.Budget(updates=10**6), folder, **shape)
    role, first, update = rng.choice(list(plan.role_ids)), rng.random() < 0.5, rng.randrange(50)
    print(seed, strategy, shape, "kill", role, "before" if first else "after", "stop at", update)
    run.wait_for(lambda run: evaluated(run) >= 0 and run.summary()["updates"] >= update)
    stopping = threading.Thread(target=run.stop)
    for act in (lambda: run.kill(role), stopping.start) if first else (stopping.start, lambda: run.kill(role)):
        with suppress(LabkitError):
            act()
    stopping.join()
    return run


QUICK = [(stopped, 0, "async-ps")]
REST = [(faulty, 0, name) for name in ("backup-workers", "easgd", "ring-all-reduce", "pipeline")]
if WHOLE:
    REST = [(kind, seed, name) for kind in (faulty, stopped) for seed in range(3) for name in sorted(STRATEGIES)]


@pytest.mark.parametrize(
    ("kind", "seed", "name"),
    [*QUICK, *(pytest.param(*one, marks=pytest.mark.slow) for one in REST if one not in QUICK)],
)
def test_random_schedules(kind, seed, name, dask_processes, tmp_path):
    run = kind(seed, name, dask_processes, tmp_path)
    try:
        run.stop()
    finally:
        agree(run, tmp_path)
    nothing_left(dask_processes.client)
