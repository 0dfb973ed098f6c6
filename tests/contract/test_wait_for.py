"""`Run.wait_for` on both engines: conditions, events, and waits that cannot succeed."""

import pytest

import labkit as lk

PROBLEM = lk.Problem("moons", hidden=(8,))


def test_it_waits_for_a_condition_and_for_an_event_and_returns_them(engine):
    run = engine.train(PROBLEM, lk.AsyncPS(), lk.Budget(seconds=600))
    updates = run.wait_for(lambda run: run.summary()["updates"] >= 20 and run.summary()["updates"])
    assert updates >= 20
    run.slow("worker-0", 2)
    assert run.wait_for("slowed", "worker-0", factor=2.0).factor == 2
    assert not run.done
    run.stop()
    assert run.wait_for("slowed", "worker-0").factor == 2  # it was recorded before


def test_a_run_that_ends_first_is_an_error_with_the_last_events(engine):
    run = engine.train(PROBLEM, lk.AsyncPS(), lk.Budget(updates=20))
    with pytest.raises(
        lk.RunOver, match=r"20 updates done.* before the event 'restarted' of worker-1(?s:.*)end: 20 updates"
    ):
        run.wait_for("restarted", "worker-1")


def test_the_error_that_ends_a_run_is_raised(engine):
    class Wrong(lk.AsyncPS):
        async def worker(self, ctx, model):
            raise ValueError("not written yet")

    run = engine.train(PROBLEM, Wrong(), lk.Budget(updates=20))
    with pytest.raises(lk.RoleError, match="not written yet"):
        run.wait_for("restarted", "worker-1")


def test_the_limit_ends_only_the_wait(simulated):
    run = simulated.train(PROBLEM, lk.AsyncPS(), lk.Budget(seconds=100_000))

    def killed(run):
        """the chief has been killed"""

    with pytest.raises(TimeoutError, match="the chief has been killed"):
        run.wait_for(killed, timeout=0.01)
    assert not run.done


def test_an_error_of_the_condition_is_raised_and_the_run_continues(simulated):
    run = simulated.train(PROBLEM, lk.AsyncPS(), lk.Budget(seconds=600))
    with pytest.raises(ZeroDivisionError):
        run.wait_for(lambda run: 1 / 0)
    assert run.wait_for(lambda run: run.summary()["updates"] >= 3)


def test_in_virtual_time_the_run_stops_at_the_update_that_fulfils_the_condition():
    run = lk.train(PROBLEM, lk.AsyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(seconds=2))
    for goal in (7, 20, 21):
        run.wait_for(lambda run, goal=goal: run.summary()["updates"] >= goal)
        assert run.summary()["updates"] == goal
    whole = lk.train(PROBLEM, lk.AsyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(seconds=2)).wait()
    assert run.wait().trace.ending["parameters_sha256"] == whole.trace.ending["parameters_sha256"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("restart",), "no event 'restart'. Did you mean 'restarted'"),
        (("restarted", "worker-9"), "no role 'worker-9'"),
        ((len, "worker-1"), "role belongs to an event"),
        ((5,), "no event 5"),
    ],
)
def test_invalid_arguments_are_refused(arguments, message):
    run = lk.train(PROBLEM, lk.AsyncPS(), lk.SimulatedCluster(workers=2))
    with pytest.raises(lk.BadInput, match=message):
        run.wait_for(*arguments)
    with pytest.raises(lk.BadInput, match=r"no field 'incarnations'. Did you mean 'incarnation'"):
        run.wait_for("restarted", "worker-1", incarnations=1)
