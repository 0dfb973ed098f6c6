"""A killed process is restarted, and the run continues: same events on both engines, and the ledger balances."""

import labkit as lk
from tests.contract.engines import over, slow_on_processes
from tests.contract.statements import closed

MOONS = lk.Problem("moons", hidden=(8,), batch_size=8, options={"samples": 400})
ENDLESS = lk.Budget(updates=10**9)


def moves(run, count=5):
    """Wait for more updates."""
    before = run.summary()["updates"]
    run.wait_for(lambda run: run.summary()["updates"] >= before + count)


def begun(engine, strategy, **shape):
    """A run that has made a few updates."""
    run = engine.train(MOONS, strategy, ENDLESS, time=0.005, **shape)
    for _ in range(3):
        run.step()
    return run.resume()


@over("role", {role: role for role in ("worker-1", "server-0", "chief")}, quick=["server-0"], slow=["chief"])
def test_a_killed_process_comes_back_and_the_run_goes_on(engine, role):
    run = begun(engine, lk.AsyncPS(), workers=2)
    assert run.kill(role) is run
    back = run.wait_for("restarted", role)
    moves(run)
    assert not run.done
    run.stop()
    killed, lost = run.wait_for("killed", role), run.wait_for("lost", role)
    assert (str(killed), str(lost)) == (f"killed {role}", f"lost {role}: it was killed")
    assert (lost.incarnation, lost.reason, back.incarnation) == (0, "was killed", 1)
    assert killed.time <= lost.time <= back.time <= run.trace.ending["time"]
    assert run.trace.ending["lost"] == []
    names = list(run.trace.roles)
    assert [(names[number], instance) for number, instance in run.trace.ending["lost_instances"]] == [(role, 0)]
    closed(run)


@over("strategy", {"sync": lk.SyncPS(), "ring": lk.RingAllReduce()})
def test_a_waiting_run_names_the_awaited_role_and_can_be_stopped(engine, strategy):
    """On processes: `tests/dask/test_recovery.py`."""
    run = begun(engine, strategy).kill("worker-0", restart=False)
    run.advance(0.1)  # to wait for more would end the run: nothing can happen any more
    run.wait_for("waits")
    assert [str(m) for m in run.trace.events if m.kind == "waits"] == ["waits for worker-0, which was killed"]
    assert not run.done
    run.stop()
    assert run.stopped_by == "user"
    assert run.trace.ending["lost"] == ["worker-0"]
    closed(run)


@over("strategy", {"sync": lk.SyncPS, "ring": lk.RingAllReduce}, slow=["ring"])
def test_a_run_that_goes_on_without_its_worker_takes_it_back(engine, strategy):
    run = begun(engine, strategy(on_loss="continue"), workers=3).kill("worker-0", restart=False)
    run.wait_for("left", "worker-0")
    moves(run)
    assert not [m for m in run.trace.events if m.kind in ("waits", "restarted")]
    run.restart("worker-0")
    run.wait_for("restarted", "worker-0")
    moves(run)
    run.stop()
    assert run.trace.ending["lost"] == []
    closed(run)


@slow_on_processes
def test_a_process_can_be_lost_during_a_pause(engine):
    run = engine.train(MOONS, lk.AsyncPS(), ENDLESS, time=0.005)
    run.step().pause().kill("worker-0")
    run.resume()
    run.wait_for("restarted", "worker-0")
    run.stop()
    closed(run)


@slow_on_processes
def test_a_budget_of_seconds_ends_a_run_that_has_lost_its_server(engine):
    faults = [lk.Kill("server-0", at=0.3, restart=False)]
    run = engine.train(MOONS, lk.AsyncPS(), lk.Budget(seconds=0.6), time=0.005, faults=faults).wait()
    assert run.stopped_by == "seconds"
    assert "there is no last evaluation: it would wait for server-0, which was killed" in run.trace.ending["why"]
    assert run.trace.ending["update"] >= 0
    closed(run)
