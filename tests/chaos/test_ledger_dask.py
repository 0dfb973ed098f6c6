"""The ledger of runs on processes describes the parameters that the run returns, for all kills at all times.

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
from tests.chaos.process_runs import LIMIT, agree, evaluated, eventually, reported, saved, started, withhold
from tests.chaos.schedules import random_faults

WHOLE = os.environ.get("LABKIT_TESTS") == "whole"


@pytest.fixture(scope="module")
def processes():
    with lk.DaskCluster(workers=4, servers=2) as cluster:
        yield cluster.open()


def test_drops_lost_with_a_server_do_not_count_as_applied(processes, tmp_path):
    """A checkpoint holds the last step applied of every worker. The drops before it, if they were never reported, must be in
    it, too: else the ledger counts them as applied.
    """
    run = started(processes, lk.BackupWorkers(), lk.Budget(updates=150), tmp_path)
    eventually(lambda: reported(run, "server-0") > 5)
    withhold(run, "server-0")
    before = reported(run, "server-0")
    eventually(lambda: saved(run, "server-0") > before + 20)
    run.kill("server-0")
    run.wait(LIMIT)
    assert run.stopped_by == "updates"
    assert sum(agree(run, tmp_path)["dropped"].values()) > 0


@pytest.mark.slow
def test_returned_parameters_hold_what_a_killed_server_had_not_reported(processes, tmp_path):
    """The chief has evaluated more updates than the server's last report contains; the run returns the evaluated parameters."""
    run = started(processes, lk.AsyncPS(), lk.Budget(seconds=100), tmp_path)
    eventually(lambda: reported(run, "server-0") > 5)
    withhold(run, "server-0")
    before = reported(run, "server-0")
    eventually(lambda: evaluated(run) > before + 10)
    run.kill("server-0", restart=False)
    run.stop()
    assert agree(run, tmp_path)["applied"] > before


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [lk.BackupWorkers(eval_every=50), lk.RingAllReduce(eval_every=50)], ids=lambda s: s.name)
def test_all_processes_killed_at_once(processes, tmp_path, strategy):
    """The parameters of the chief's last evaluation remain: what was applied later is rolled back."""
    servers = 2 if type(strategy).uses_servers else None
    run = started(processes, strategy, lk.Budget(seconds=100), tmp_path, servers=servers)
    eventually(lambda: evaluated(run) > 0)
    eventually(lambda: run.summary()["updates"] > evaluated(run) + 5)
    for role in run.trace.roles:
        run.kill(role, restart=False)
    run.stop()
    entries = agree(run, tmp_path)
    assert entries["rolled_back"] > 0
    assert entries["dropped"].get("after the end", 0) == 0


@pytest.mark.slow
def test_a_killed_chief_counts_no_gradients(processes, tmp_path):
    run = started(
        processes, lk.RingAllReduce(), lk.Budget(updates=60), tmp_path, [lk.Kill("chief", at=0.3)], servers=None
    )
    run.wait(LIMIT)
    entries = agree(run, tmp_path)
    assert entries["applied"] == 180
    assert entries["computed"] == computed(tmp_path)  # workers send their state before they restart: none was lost


def test_positions_bring_gradients_of_a_lost_worker_back_to_a_lost_centre(processes, tmp_path):
    """One of two centres restarts with the initial weights, and a worker is lost with it: others hold its gradients."""
    budget = lk.Budget(updates=150)
    run = started(processes, lk.EASGD(tau=2), budget, tmp_path, checkpoint_every=None)
    eventually(lambda: min(reported(run, "server-0"), reported(run, "server-1")) > 30)
    run.kill("server-1")
    run.kill("worker-1")
    run.wait(LIMIT)
    entries = agree(run, tmp_path)
    calls, held = Records(tmp_path).read("calls"), held_by_model(run, run.engine.parameters, tmp_path)
    worker = run.trace.roles.index("worker-1")
    first = {call for call, (role, incarnation, _) in enumerate(calls.tolist()) if role == worker and not incarnation}
    assert first & held.everywhere
    assert entries["applied"] >= 200


@pytest.mark.parametrize(
    "kill", ["server-0", *(pytest.param(one, marks=pytest.mark.slow) for one in (None, "worker-0", "chief"))]
)
def test_a_kill_while_a_run_is_stopped(processes, tmp_path, kill):
    run = started(processes, lk.AsyncPS(), lk.Budget(seconds=100), tmp_path)
    eventually(lambda: evaluated(run) > 0)
    stopping = threading.Thread(target=run.stop)
    stopping.start()
    if kill:
        run.kill(kill)
    stopping.join(LIMIT)
    assert run.stopped_by == "user"
    agree(run, tmp_path)


# random schedules -----------------------------------------------------------------------------------------------------


def fitting(name, rng, processes):
    """(strategy, shape, roles) of a run that fits these processes."""
    kind = STRATEGIES[name]
    strategy = kind(on_loss=rng.choice(["wait", "continue"]))
    servers = rng.choice([1, 2]) if kind.uses_servers else None
    for workers in rng.sample([2, 3, 4], 3):
        with suppress(lk.BadInput):
            small = lk.SimulatedCluster(workers=workers, servers=servers)
            plan = make_plan(problem_for(kind, servers or 1), strategy, small.spec, lk.Budget(updates=1), 0)
            return strategy, {"workers": workers, "servers": servers}, [role.name for role in plan.layout.roles]
    raise AssertionError(name)


def faulty(seed, name, processes, folder):
    """A run of `name` with random faults, until it is over."""
    rng = random.Random(f"ledger {seed} {name}")
    strategy, shape, roles = fitting(name, rng, processes)
    faults = random_faults(rng, roles, rng.choice([0.3, 1.0]), {"patience": 2.0})
    shape |= {"patience": 2.0, "checkpoint_every": rng.choice([None, 0.2])}
    print(seed, strategy, shape, [fault.text() for fault in faults])  # shown where the test fails
    run = started(processes, strategy, lk.Budget(updates=rng.choice([20, 40])), folder, faults, **shape)
    with suppress(ClusterError, TimeoutError):
        run.wait(LIMIT)
    return run


def stopped(seed, name, processes, folder):
    """A run of `name` that is stopped at some time, and a role that is killed at about that time."""
    rng = random.Random(f"stopped {seed} {name}")
    strategy, shape, roles = fitting(name, rng, processes)
    run = started(processes, strategy, lk.Budget(seconds=100), folder, **shape)
    role, first, gap = rng.choice(roles), rng.random() < 0.5, rng.uniform(0.0, 0.06)
    print(seed, strategy, shape, "kill", role, "before" if first else "after", "stop by", gap)
    eventually(lambda: evaluated(run) >= 0)
    threading.Event().wait(rng.uniform(0.0, 0.5))
    stopping = threading.Thread(target=run.stop)
    for act in (lambda: run.kill(role), stopping.start) if first else (stopping.start, lambda: run.kill(role)):
        with suppress(LabkitError):
            act()
        threading.Event().wait(gap)
    stopping.join(LIMIT)
    return run


NAMES = sorted(STRATEGIES)
QUICK = [(0, "backup-workers")]
REST = [(seed, name) for seed in range(3) for name in NAMES] if WHOLE else [(0, name) for name in NAMES[::5]]


@pytest.mark.parametrize(
    ("seed", "name"), [*QUICK, *(pytest.param(*one, marks=pytest.mark.slow) for one in REST if one not in QUICK)]
)
@pytest.mark.parametrize("kind", [faulty, stopped])
def test_random_schedules(seed, name, kind, processes, tmp_path):
    run = kind(seed, name, processes, tmp_path)
    try:
        run.stop()
    finally:
        agree(run, tmp_path)
