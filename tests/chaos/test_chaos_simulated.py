"""200 schedules of random faults in virtual time, over all strategies: the promises hold in each.

`LABKIT_CHAOS=whole pytest tests/chaos` tries all of them; without it the first ones. A schedule that fails is printed;
`python -c "from schedules import schedule; print(schedule(17))"`, run in this folder, prints it again.
"""

import os

import pytest
from schedules import schedule

import labkit as lk
from labkit.trace.ledger import ledger

SEEDS = range(200 if os.environ.get("LABKIT_CHAOS") == "whole" else 60)
WALL = 30.0  # seconds for one call; a fraction of one is usual
LATER = 500.0  # virtual seconds in which a run of a few hundred updates is over, unless it waits


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
    run.engine.advance(run.engine.seconds + LATER, WALL)
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


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_the_promises_hold(seed, oracle):
    plan = schedule(seed)
    print(plan)  # shown where the test fails
    run = played(plan)
    if not run.done:  # promises 1 and 5: it waits, and says for whom, and those are really away
        away = [role.name for role in run.engine.roles if role.down]
        assert away, "nobody is away, and the run stands still"
        nodes = {run.engine.by_name[role].node for role in plan.away}  # who shares a node is killed with it
        assert {run.engine.by_name[role].node for role in away} <= nodes, away
        assert plan.back is None
        assert any(f"{role}, which was killed" in waits_for(run) for role in away), waits_for(run)
        if seed % 2:
            run.stop()
            assert run.stopped_by == "user"
        else:
            call_back(run, away)
            run.engine.advance(run.engine.seconds + LATER, WALL)
    if run.stopped_by != "user":
        assert run.stopped_by == "updates", run.engine.error
        assert run.summary()["updates"] == plan.budget.updates
    assert oracle.wrong == []  # promises 1 and 4: never both, and nothing twice
    oracle.agrees(run, closed(run))  # promise 4: the books close, and are true
