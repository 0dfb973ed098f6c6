"""200 schedules of random faults in virtual time, over all strategies: the guarantees hold in each.

`LABKIT_TESTS=whole pytest -m "" tests/chaos` tries all of them; without it some. A schedule that fails is printed;
`python -c "from schedules import schedule; print(schedule(17))"`, run in this folder, prints it again.
"""

import pytest

import labkit as lk
from labkit.errors import ClusterError
from tests.accounts import balanced
from tests.chaos.schedules import schedule

SEEDS = range(200)
FOUND = (184, 238, 415, 570)  # schedules that have found defects which few others find
WALL = 30.0  # seconds for one call; a fraction of one is usual
STILL = 20.0


def started(plan):
    cluster = lk.SimulatedCluster(**plan.shape)
    return lk.train(plan.problem, plan.strategy, cluster, plan.budget, seed=plan.seed, faults=plan.faults)


def call_back(run, roles):
    """Restart the roles that were killed without a restart."""
    for role in roles:
        if not run.done and run.engine.roles[role].down:
            run.restart(role)


def played(plan):
    """The run of a schedule, up to its end; roles that stay down are restarted where the schedule requires it."""
    run = started(plan)
    if plan.back is not None:
        run.engine.advance(plan.back, WALL)
        call_back(run, plan.away)
    return goes_on(run)


def goes_on(run):
    """Advance to the end; or until nothing has been applied for `STILL` virtual seconds, when no fault has an effect
    any more.
    """
    versions = None
    while not run.done and versions != (versions := [r.shard.version for r in run.engine.roles.values() if r.shard is not None]):
        run.engine.advance(run.engine.seconds + STILL, WALL)
    return run


def waits_for(run):
    """The roles that a run reports waiting for."""
    text = [str(event) for event in run.trace.events if event.kind == "waits"]
    return text[-1] if text else ""


def ends_a_wait(run, plan):
    """Guarantees 1 and 5: a waiting run names the roles it waits for, they are absent, and each way to end the wait
    works.
    """
    names = run.engine.roles
    away = [role.name for role in run.engine.roles.values() if role.down]
    assert away, "no role is absent, and the run does not advance"
    assert plan.back is None
    assert {names[role].node for role in away} <= {
        names[role].node for role in plan.away
    }  # roles on the same node are lost, too
    if not names["chief"].down:  # without it the others continue without end
        assert any(f"{role}, which was killed" in waits_for(run) for role in away), waits_for(run)
    if plan.seed % 3 == 0:
        run.stop()
        assert run.stopped_by == "user"
    elif plan.seed % 3 == 1:
        call_back(run, away)
        assert goes_on(run).done
    else:
        with pytest.raises(ClusterError, match=f"({'|'.join(away)}), which was killed, and it is not restarted automatically"):
            run.wait(WALL)


@pytest.mark.sample(10, slow=10)
@pytest.mark.parametrize("seed", SEEDS)
def test_guarantees_hold_under_random_fault_schedules(seed, oracle):
    guarantees_hold(seed, oracle)


@pytest.mark.slow
@pytest.mark.parametrize("seed", FOUND)
def test_guarantees_hold_under_schedules_that_have_found_defects(seed, oracle):
    guarantees_hold(seed, oracle)


def guarantees_hold(seed, oracle):
    plan = schedule(seed)
    print(plan)  # shown where the test fails
    run = played(plan)
    if not run.done:
        ends_a_wait(run, plan)
    if run.stopped_by not in ("user", "error"):
        assert run.stopped_by == "updates", run.engine.error
        assert run.summary()["updates"] == plan.budget.updates
    assert oracle.wrong == []  # guarantees 1 and 4: never both, and no duplicates
    oracle.costs_little(run)  # guarantee 2
    oracle.agrees(run, balanced(run))  # guarantee 4: the ledger balances, and is correct


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", [1, 11, 38])
def test_the_same_schedule_twice_is_the_same_bytes(seed):
    def made():
        run = played(schedule(seed))
        rows = {name: table.rows().tobytes() for name, table in run.trace.tables.items()}
        return rows, run.trace.events, {role: c.to_dict() for role, c in run.trace.counters.items()}, run.trace.ending

    assert made() == made()


WEATHER = [
    lk.Kill("worker-0", at=0.05), lk.Kill("server-0", at=0.21), lk.Freeze("worker-1", at=0.1, until=0.5),
    lk.Kill("worker-2", at=0.22), lk.Kill("chief", at=0.3), lk.Drop("worker-3", "server-0", 0.3),
    lk.Partition("worker-2", "server-0", at=0.5, until=0.6),
]  # fmt: skip


@pytest.mark.parametrize("strategy", [
    lk.AsyncPS(), lk.SSP(), lk.KBatchAsync(), lk.SyncPS(), lk.SyncPS(on_loss="continue"), lk.BackupWorkers(),
], ids=lambda s: f"{s.name}-{s.on_loss}")  # fmt: skip
def test_digits_reach_95_percent_under_random_faults(strategy, oracle):
    """Asynchronous runs continue, synchronous ones wait or continue: all of them learn."""
    cluster = lk.SimulatedCluster(
        workers=4, compute=0.005, latency=0.0005, patience=0.2, restart_after=0.1, checkpoint_every=0.1
    )
    problem, budget = lk.Problem("digits", hidden=(32,), seed=1), lk.Budget(accuracy=0.95, updates=3000)
    run = lk.train(problem, strategy, cluster, budget, faults=WEATHER).wait(WALL)
    assert run.stopped_by == "accuracy"
    assert len([event for event in run.trace.events if event.kind == "restarted"]) >= 3
    right = run.result().predict(problem.dataset.raw(problem.dataset.x_test)) == problem.dataset.y_test
    assert right.mean() >= 0.95
    assert oracle.wrong == []
    oracle.agrees(run, balanced(run))
