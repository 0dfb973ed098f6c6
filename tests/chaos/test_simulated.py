"""Random schedules in virtual time, over all strategies, options and commands: the guarantees hold in each.

`LABKIT_TESTS=whole pytest -m "" tests/chaos` tries all of them; without it some. A schedule that fails is printed.
"""

import pytest

import labkit as lk
from labkit.engines.commands import Reconnect, Restart, Thaw
from labkit.engines.faults import KINDS
from labkit.options import options_of
from labkit.strategies import STRATEGIES
from tests.accounts import balanced
from tests.chaos.schedules import FIXED, schedule

SEEDS = range(420)
WALL = 30.0  # seconds for one call; a fraction of one is usual
STILL = 20.0


def goes_on(run):
    """Advance to the end; or until nothing has been applied for `STILL` virtual seconds, when no fault has an effect any more."""
    versions = None
    while not run.done and versions != (
        versions := [r.shard.version for r in run.engine.roles.values() if r.shard is not None]
    ):
        run.engine.advance(run.engine.seconds + STILL, WALL)
    return run


def mend(run):
    """Undo every fault: all roles are present, at their normal speed, and connected."""
    if run.plan.elastic is not None:
        run.scale(sum(role.kind == "worker" for role in run.plan.layout.roles))
    for name in run.engine.roles:
        undone = lk.Delay(name, seconds=0), lk.Drop(name, chance=0), lk.Limit(name, None), lk.Slow(name, 1)
        for undo in (Thaw(name), Reconnect(name), *undone, Restart(name)):
            if not run.done and (not isinstance(undo, Restart) or run.engine.roles[name].down):
                run.execute(undo)


def ends(run, plan):
    """A run that waits is ended at once by `stop`, or goes on to its end when all faults are undone."""
    if plan.seed % 2:
        now = run.engine.seconds
        run.stop()
        assert run.engine.seconds - now < 5.0  # a last evaluation takes its time, a recovery none
    else:
        mend(run)
        assert goes_on(run).done


@pytest.mark.sample(6, slow=6)
@pytest.mark.parametrize("seed", SEEDS)
def test_guarantees_hold_under_random_schedules(seed, oracle):
    plan = schedule(seed)
    print(plan)  # shown where the test fails
    cluster = lk.SimulatedCluster(**plan.shape)
    run = goes_on(lk.train(plan.problem, plan.strategy, cluster, plan.budget, seed=plan.seed, faults=plan.faults))
    if not run.done:
        ends(run, plan)
    assert run.stopped_by in ("user", "updates", "seconds", "diverged"), run.engine.error
    if run.stopped_by == "updates":
        assert run.summary()["updates"] == plan.budget.updates
    assert oracle.wrong == []  # guarantees 1 and 4: never both, and no duplicates
    oracle.costs_little(run)  # guarantee 2
    oracle.agrees(run, balanced(run))  # guarantee 4: the ledger balances, and is correct


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", [1, 11, 38])
def test_the_same_schedule_twice_is_the_same_bytes(seed):
    def made():
        plan = schedule(seed)
        cluster = lk.SimulatedCluster(**plan.shape)
        run = goes_on(lk.train(plan.problem, plan.strategy, cluster, plan.budget, seed=plan.seed, faults=plan.faults))
        rows = {name: table.rows().tobytes() for name, table in run.trace.tables.items()}
        return rows, run.trace.events, {role: c.to_dict() for role, c in run.trace.counters.items()}, run.trace.ending

    assert made() == made()


@pytest.mark.slow
def test_every_option_and_every_command_is_drawn():
    """With several values; or `FIXED` says why it is not."""
    plans = [schedule(seed) for seed in range(640)]
    drawn = {fault.word for plan in plans for fault in plan.faults}
    assert drawn | FIXED.keys() >= set(KINDS)
    values = {}
    for one in (*(lk.SimulatedCluster(**plan.shape) for plan in plans), *(plan.strategy for plan in plans)):
        for name in options_of(one).keys() - FIXED.keys():
            values.setdefault(name, set()).add(str(getattr(one, name)))
    assert [name for name, drawn in values.items() if len(drawn) < 2] == []
    assert {name for kind in STRATEGIES.values() for name in options_of(kind)} <= values.keys() | FIXED.keys()


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
        workers=4, compute=0.005, latency=0.0005, heartbeat_timeout=0.2, restart_after=0.1, checkpoint_every=0.1
    )
    problem, budget = lk.Problem("digits", hidden=(32,), seed=1), lk.Budget(accuracy=0.95, updates=3000)
    run = lk.train(problem, strategy, cluster, budget, faults=WEATHER).wait(WALL)
    assert run.stopped_by == "accuracy"
    assert len([event for event in run.trace.events if event.kind == "restarted"]) >= 3
    right = run.result().predict(problem.dataset.raw(problem.dataset.x_test)) == problem.dataset.y_test
    assert right.mean() >= 0.95
    assert oracle.wrong == []
    oracle.agrees(run, balanced(run))
