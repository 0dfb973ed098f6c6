"""A killed process is restarted, and the run continues: same events on both engines, and the ledger balances."""

import time

import pytest

import labkit as lk
from labkit.engines.commands import COMMANDS
from labkit.trace.ledger import ledger

pytestmark = pytest.mark.sample(2)

MOONS = lk.Problem("moons", hidden=(8,), batch_size=8, options={"samples": 400})
ENDLESS = lk.Budget(updates=10**9)
SOON = 180  # seconds of wall time in which a process is replaced, on a busy machine


def begun(engine, strategy, **shape):
    """A run that has made a few updates."""
    run = engine.train(MOONS, strategy, ENDLESS, time=0.005, **shape)
    for _ in range(3):
        run.step()
    return run.resume()


def until(engine, run, found):
    """Advance the run until `found()` returns a result."""
    deadline = time.monotonic() + SOON
    while not (what := found()):
        assert time.monotonic() < deadline, run.trace.events
        assert not run.done, run.engine.error
        if engine.simulated:
            run.advance(0.05)
        else:
            time.sleep(0.02)
    return what


def event(engine, run, kind, role):
    """The first event of that kind about `role`, as soon as there is one."""
    return until(
        engine, run, lambda: next((m for m in run.trace.events if m.kind == kind and getattr(m, "name", None) == role), None)
    )


def moves(engine, run, count=5):
    """Assert that the run makes more updates."""
    before = run.summary()["updates"]
    until(engine, run, lambda: run.summary()["updates"] >= before + count)


def closed(run):
    """The ledger of a finished run."""
    entries = ledger(run.trace)
    assert entries["closes"], entries
    assert entries["missing"] == 0
    return entries


@pytest.mark.parametrize("role", ["worker-1", "server-0", "chief"])
def test_a_killed_process_comes_back_and_the_run_goes_on(engine, role):
    run = begun(engine, lk.AsyncPS(), workers=2)
    assert run.kill(role) is run
    back = event(engine, run, "restarted", role)
    moves(engine, run)
    assert not run.done
    run.stop()
    killed, lost = event(engine, run, "killed", role), event(engine, run, "lost", role)
    assert (str(killed), str(lost)) == (f"killed {role}", f"lost {role}: it was killed")
    assert (lost.incarnation, lost.reason, back.incarnation) == (0, "was killed", 1)
    assert killed.time <= lost.time <= back.time <= run.trace.ending["time"]
    assert run.trace.ending["lost"] == []
    names = [spec["name"] for spec in run.trace.header["layout"]["roles"]]
    assert [(names[number], instance) for number, instance in run.trace.ending["lost_lives"]] == [(role, 0)]
    closed(run)


@pytest.mark.parametrize(
    ("strategy", "shape"),
    [(lk.SyncPS(), {"workers": 3}), (lk.RingAllReduce(), {"workers": 3}), (lk.AsyncPS(), {"workers": 2, "servers": 2})],
    ids=["sync", "ring", "shards"],
)
def test_a_role_that_waits_for_a_lost_role_continues_with_its_next_incarnation(engine, strategy, shape):
    run = begun(engine, strategy, **shape).kill("worker-0")
    event(engine, run, "restarted", "worker-0")
    moves(engine, run)
    run.stop()
    assert run.trace.ending["lost"] == []
    closed(run)


@pytest.mark.sample(1)
@pytest.mark.parametrize("strategy", [lk.SyncPS(), lk.RingAllReduce()], ids=["sync", "ring"])
def test_a_waiting_run_names_the_awaited_role_and_can_be_stopped(engine, strategy):
    run = begun(engine, strategy).kill("worker-0", restart=False)
    text = until(engine, run, lambda: [str(m) for m in run.trace.events if m.kind == "waits"])
    assert text == ["waits for worker-0, which was killed"]
    assert not run.done
    run.stop()
    assert run.stopped_by == "user"
    assert run.trace.ending["lost"] == ["worker-0"]
    closed(run)


@pytest.mark.parametrize("strategy", [lk.SyncPS, lk.RingAllReduce], ids=["sync", "ring"])
def test_a_run_that_goes_on_without_its_worker_takes_it_back(engine, strategy):
    run = begun(engine, strategy(on_loss="continue"), workers=3).kill("worker-0", restart=False)
    event(engine, run, "left", "worker-0")
    moves(engine, run)
    assert not [m for m in run.trace.events if m.kind in ("waits", "restarted")]
    run.restart("worker-0")
    event(engine, run, "restarted", "worker-0")
    moves(engine, run)
    run.stop()
    assert run.trace.ending["lost"] == []
    closed(run)


def test_a_process_can_be_lost_during_a_pause(engine):
    run = engine.train(MOONS, lk.AsyncPS(), ENDLESS, time=0.005)
    run.step().pause().kill("worker-0")
    run.resume()
    event(engine, run, "restarted", "worker-0")
    run.stop()
    closed(run)


def test_invalid_kills_and_restarts_are_refused(engine):
    run = engine.train(MOONS, lk.AsyncPS(), ENDLESS, time=0.005)
    with pytest.raises(lk.BadInput, match=r"no role 'worker-7'.* Did you mean 'worker-[01]'"):
        run.kill("worker-7")
    with pytest.raises(lk.BadInput, match=r"no role 'worker-7'"):
        run.restart("worker-7")
    with pytest.raises(lk.BadInput, match=r"restart\('worker-0'\): it is "):
        run.restart("worker-0")
    assert not run.done
    assert not run.trace.events
    run.stop()
    for verb in (run.kill, run.restart):
        with pytest.raises(lk.BadInput, match=r"The run is over \(stopped by user\): nothing can be changed any more"):
            verb("worker-0")


def test_both_engines_support_every_command(engine):
    run = engine.train(MOONS, lk.AsyncPS(), ENDLESS, time=0.005)
    assert run.engine.supported_commands == set(COMMANDS.values())
