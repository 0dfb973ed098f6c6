"""The result of a run depends neither on the time slices in which it is advanced, nor on other threads in between."""

import contextlib
import threading

import pytest

import labkit as lk
from labkit.engines.commands import Restart
from labkit.engines.simulated import run_lock
from labkit.engines.simulated.run_lock import RunLock
from tests.engines.simulated.test_frozen import everything
from tests.engines.simulated.test_recovery import BACK, applied, closed, events, started


@pytest.fixture(params=["slices of one turn", "slices as usual"])
def slices(request, monkeypatch):
    """Time slices of one turn each (the first one of a run excepted), or as long as they are."""
    if request.param == "slices of one turn":
        monkeypatch.setattr(run_lock, "MOST", 1)


def between_slices(monkeypatch, act):
    """Have another thread call `act()`, once, when the run lock is offered next."""
    left = [act]

    def offer(lock):
        if left:
            thread = threading.Thread(target=left.pop())
            thread.start()
            thread.join()

    monkeypatch.setattr(RunLock, "offer", offer)


# other threads ---------------------------------------------------------------------------------------------------------


def waiting(**more):
    """A run that waits for worker-1 since 0.51."""
    return started(lk.SyncPS(), **more).advance(0.505).kill("worker-1", restart=False).advance(0.1)


def test_a_wait_does_not_end_a_run_that_another_thread_has_moved_on(monkeypatch):
    run, refused = waiting(budget=lk.Budget(updates=100)), []

    def act():
        try:
            run.restart("worker-1")
        except lk.BadInput as error:
            refused.append(error)

    between_slices(monkeypatch, act)
    with contextlib.suppress(lk.ClusterError):
        run.wait()
    restarted = any(isinstance(entry.command, Restart) for entry in run.engine.commands)
    assert (run.stopped_by == "updates") == restarted
    assert bool(refused) != restarted


def test_time_does_not_go_backward(monkeypatch):
    """While it is advanced to 1.605, another thread kills a worker: at an instant that has passed, or is in the future."""
    run = waiting()
    between_slices(monkeypatch, lambda: run.kill("worker-2"))
    run.advance(1.0)
    at = round(run.engine.seconds * 1e9)
    seen = len(run.trace.events)
    run.advance(BACK)
    assert all(m.time >= at for m in run.trace.events[seen:])
    (back,) = events(run, "restarted")
    (killed,) = [m for m in events(run, "killed") if m.name == "worker-2"]
    times = [m.time for m in run.trace.events]
    assert times == sorted(times)
    assert back.time - killed.time == round(BACK * 1e9)
    assert run.engine.seconds == pytest.approx(1.605 + BACK)
    closed(run)


def test_a_run_that_waits_is_advanced_without_limit_no_further_than_it_goes():
    run = waiting()
    run.engine.advance(float("inf"))
    assert run.engine.seconds == pytest.approx(0.605)
    assert not run.done
    run.restart("worker-1").advance(0.1)
    assert applied(run, 0.605, 0.705) == 3 * 10
    closed(run)


# slices ----------------------------------------------------------------------------------------------------------------


def test_kills_and_restarts_of_the_chief_are_repeated_from_the_log(slices):
    run = started(lk.AsyncPS(), budget=lk.Budget(updates=300)).advance(0.305).kill("chief", restart=False)
    run.advance(0.4).restart("chief").wait()
    assert run.stopped_by == "updates"
    again = run.engine.cluster.start(run.plan, commands=run.engine.commands)
    again.wait()
    assert again.stopped_by == "updates"
    assert again.parameters.tobytes() == run.result().parameters.tobytes()
    assert [(e.command, e.turn) for e in again.commands] == [(e.command, e.turn) for e in run.engine.commands]


def test_a_run_ends_when_its_chief_is_permanently_lost(slices):
    run = started(lk.AsyncPS(), faults=["kill:chief:for-good@0.505"])
    with pytest.raises(lk.ClusterError, match="it waits for chief, which was killed"):
        run.wait()
    assert (run.engine.seconds, run.summary()["updates"]) == (0.505, 3 * 50)


@pytest.mark.parametrize("at", [0.505, 0.495])
def test_a_step_is_one_update_even_if_the_server_is_lost(slices, at):
    """The server is lost at 0.505, and restored at 1.305; the worker then sends its newest gradient again."""
    run = started(lk.AsyncPS(), 1, checkpoint_every=0.1, faults=["kill:server-0@0.505"]).advance(at).step()
    assert applied(run, at, 9.0) == 1
    assert run.engine.seconds == pytest.approx(0.5 if at < 0.5 else 0.505 + BACK)
    run.step()
    assert applied(run, at, 9.0) == 2
    closed(run)


def test_a_step_is_one_update_when_one_of_two_servers_is_lost(slices):
    """A gradient that only the other server has applied is no update of the model."""
    run = started(lk.AsyncPS(), 1, servers=2, checkpoint_every=0.1, faults=["kill:server-1@0.505"]).advance(0.5).step()
    assert run.engine.seconds == pytest.approx(0.505 + BACK)
    closed(run)


# scheduled commands ----------------------------------------------------------------------------------------------------


def test_a_planned_restart_of_a_role_that_is_back_is_a_warning_in_the_trace(slices):
    faults = ["kill:worker-1@0.5", Restart("worker-1", at=2.0)]
    run = started(lk.AsyncPS(), budget=lk.Budget(updates=700), faults=faults).wait()
    assert run.stopped_by == "updates"
    assert [(m.time / 1e9, str(m)) for m in events(run, "warning")] == [
        (2.0, "restart('worker-1'): it is not away; kill it first.")
    ]
    again = run.engine.cluster.start(run.plan, commands=run.engine.commands)
    again.wait()
    assert again.parameters.tobytes() == run.result().parameters.tobytes()
    late = run.fork(1.0)
    assert everything(late.wait())[1] == run.result().parameters.tobytes()


def test_a_restart_that_was_injected_and_is_not_needed_is_a_warning_in_the_trace():
    run = started(lk.AsyncPS(), budget=lk.Budget(updates=700)).advance(0.5).inject(Restart("worker-1", at=1.0)).wait()
    assert (run.stopped_by, len(events(run, "warning"))) == ("updates", 1)
