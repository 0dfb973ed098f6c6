"""200 schedules of random faults in virtual time, over all strategies: the promises hold in each.

`LABKIT_CHAOS=whole pytest tests/chaos` tries all of them; without it the first ones. A schedule that fails is printed;
`python -c "from schedules import schedule; print(schedule(17))"`, run in this folder, prints it again.
"""

import os

import pytest
from schedules import schedule

import labkit as lk
from labkit.errors import ClusterError
from labkit.trace.ledger import ledger

SEEDS = range(200 if os.environ.get("LABKIT_CHAOS") == "whole" else 60)
WALL = 30.0  # seconds for one call; a fraction of one is usual
STILL = 20.0


def started(plan):
    cluster = lk.SimulatedCluster(**plan.shape)
    return lk.train(plan.problem, plan.strategy, cluster, plan.budget, seed=plan.seed, faults=plan.faults)


def call_back(run, roles):
    """Whoever stays away is restarted."""
    for role in roles:
        if not run.done and run.engine.by_name[role].down:
            run.engine.restart(role)


def played(plan):
    """The run of a schedule, as far as it goes; those who stay away come back where the schedule says so."""
    run = started(plan)
    if plan.back is not None:
        run.engine.advance(plan.back, WALL)
        call_back(run, plan.away)
    return goes_on(run)


def goes_on(run):
    """To its end; or until nothing has been applied for `STILL` virtual seconds, when no fault has an effect any more."""
    versions = None
    while not run.done and versions != (versions := [r.shard.version for r in run.engine.roles if r.shard is not None]):
        run.engine.advance(run.engine.seconds + STILL, WALL)
    return run


def waits_for(run):
    """Whom a run says that it waits for."""
    said = [mark["text"] for mark in run.trace.marks if mark["kind"] == "waits"]
    return said[-1] if said else ""


def closed(run):
    book = ledger(run.trace)
    assert book["closes"] is True, book
    assert book["missing"] == 0, book
    return book


def ends_a_wait(run, plan):
    """Promises 1 and 5: a run that waits says for whom, they are really away, and every way to end it is one."""
    names = run.engine.by_name
    away = [role.name for role in run.engine.roles if role.down]
    assert away, "nobody is away, and the run stands still"
    assert plan.back is None
    assert {names[role].node for role in away} <= {names[role].node for role in plan.away}  # who shares a node goes, too
    if not names["chief"].down:  # without it the others go on, and nobody ends them
        assert any(f"{role}, which was killed" in waits_for(run) for role in away), waits_for(run)
    if plan.seed % 3 == 0:
        run.stop()
        assert run.stopped_by == "user"
    elif plan.seed % 3 == 1:
        call_back(run, away)
        assert goes_on(run).done
    else:
        with pytest.raises(ClusterError, match=f"({'|'.join(away)}), which was killed, and nobody brings it back"):
            run.wait(WALL)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_the_promises_hold(seed, oracle):
    plan = schedule(seed)
    print(plan)  # shown where the test fails
    run = played(plan)
    if not run.done:
        ends_a_wait(run, plan)
    if run.stopped_by not in ("user", "error"):
        assert run.stopped_by == "updates", run.engine.error
        assert run.summary()["updates"] == plan.budget.updates
    assert oracle.wrong == []  # promises 1 and 4: never both, and nothing twice
    oracle.agrees(run, closed(run))  # promise 4: the books close, and are true
