"""A process that is killed ends its run in the same words on both engines, with a mark before the end and closed books."""

import pytest

import labkit as lk
from labkit.trace.ledger import ledger

MOONS = lk.Problem("moons", hidden=(8,), batch_size=8, options={"samples": 400})
ENDLESS = lk.Budget(updates=10**9)


def killed(engine, strategy, role, **shape):
    """A run of which `role` is killed after a few updates."""
    run = engine.train(MOONS, strategy, ENDLESS, time=0.005, **shape)
    for _ in range(3):
        run.step()
    run.resume()
    assert run.kill(role) is run
    with pytest.raises(
        lk.ClusterError, match=rf"^The run ended after \d+\.\d\d s because the process of {role} was killed"
    ):
        run.wait(timeout=30)
    return run


@pytest.mark.parametrize("role", ["worker-1", "server-0", "chief"])
def test_a_killed_process_ends_the_run_and_is_named(engine, role):
    run = killed(engine, lk.AsyncPS(), role, workers=2)
    assert run.stopped_by == "error"
    assert run.trace.ending["lost"] == [role]
    assert run.trace.ending["why"] == str(run.engine.error)
    marks = [m for m in run.trace.marks if m["kind"] == "kill"]
    assert [(m["text"], m["name"]) for m in marks] == [(f"killed {role}", role)]
    assert marks[0]["time"] <= run.trace.ending["time"]
    assert run.summary()["updates"] >= 3
    book = ledger(run.trace)
    assert book["closes"]
    assert book["missing"] == 0


@pytest.mark.parametrize(
    ("strategy", "shape"),
    [(lk.SyncPS(), {"workers": 3}), (lk.RingAllReduce(), {"workers": 3}), (lk.AsyncPS(), {"workers": 2, "servers": 2})],
    ids=["sync", "ring", "shards"],
)
def test_whoever_waits_for_the_dead_waits_no_longer(engine, strategy, shape):
    run = killed(engine, strategy, "worker-0", **shape)
    assert run.trace.ending["lost"] == ["worker-0"]
    assert ledger(run.trace)["closes"]


def test_a_paused_run_can_lose_a_process_too(engine):
    run = engine.train(MOONS, lk.AsyncPS(), ENDLESS, time=0.005)
    run.step().pause().kill("worker-0")
    with pytest.raises(lk.ClusterError, match="process of worker-0 was killed"):
        run.wait(timeout=30)
    assert ledger(run.trace)["closes"]


def test_what_cannot_be_killed_is_refused(engine):
    run = engine.train(MOONS, lk.AsyncPS(), ENDLESS, time=0.005)
    with pytest.raises(lk.BadInput, match=r"no role 'worker-7'.* Did you mean 'worker-[01]'"):
        run.kill("worker-7")
    assert not run.done
    assert not [m for m in run.trace.marks if m["kind"] == "kill"]
    run.stop()
    with pytest.raises(lk.BadInput, match=r"The run is over \(stopped by user\): nothing can be changed any more"):
        run.kill("worker-0")


def test_an_engine_says_what_can_be_done_to_a_role(engine):
    run = engine.train(MOONS, lk.AsyncPS(), ENDLESS, time=0.005)
    assert run.engine.verbs == ("slow", "kill")
    assert all(hasattr(run, verb) for verb in run.engine.verbs)
