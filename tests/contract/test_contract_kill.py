"""A process that is killed is lost and followed on both engines, with the same marks; the run comes to its end and its
books close."""

import pytest

import labkit as lk
from labkit.trace.ledger import ledger

MOONS = lk.Problem("moons", hidden=(8,), batch_size=8, options={"samples": 400})
ENDLESS = lk.Budget(updates=10**9)


def of(run, kind, role):
    return [m for m in run.trace.marks if m["kind"] == kind and m.get("name") == role]


@pytest.mark.parametrize("role", ["worker-1", "server-0", "chief"])
def test_a_killed_process_is_followed_and_the_run_ends_as_it_should(engine, role):
    run = engine.train(MOONS, lk.AsyncPS(), lk.Budget(updates=400), time=0.005)
    for _ in range(3):
        run.step()
    run.resume()
    assert run.kill(role) is run
    assert run.wait(timeout=60).stopped_by == "updates"
    assert [m["text"] for m in of(run, "kill", role)] == [f"killed {role}"]
    assert [(m["text"], m["why"], m["incarnation"]) for m in of(run, "lost", role)] == [
        (f"lost {role}: it was killed", "was killed", 0)
    ]
    assert [m["incarnation"] for m in of(run, "restart", role)] == [1]
    assert run.trace.ending["lost"] == []
    assert [run.trace.roles.index(role), 0] in [list(life) for life in run.trace.ending["lost_lives"]]
    book = ledger(run.trace)
    assert book["closes"]
    assert book["missing"] == 0


@pytest.mark.parametrize(
    ("strategy", "shape"),
    [(lk.SyncPS(), {"workers": 3}), (lk.RingAllReduce(), {"workers": 3}), (lk.AsyncPS(), {"workers": 2, "servers": 2})],
    ids=["sync", "ring", "shards"],
)
def test_whoever_waits_for_the_dead_waits_for_the_next_life(engine, strategy, shape):
    run = engine.train(MOONS, strategy, lk.Budget(updates=250), time=0.005, **shape)
    run.step().resume()
    run.kill("worker-0")
    assert run.wait(timeout=60).stopped_by == "updates"
    assert len(of(run, "restart", "worker-0")) == 1
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
    assert {"slow", "kill", "restart", "freeze", "thaw", "cut", "reconnect"} <= set(run.engine.verbs)
    assert all(hasattr(run, verb) for verb in run.engine.verbs)
