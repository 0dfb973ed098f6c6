"""The log: every event as text (user actions, results reached, the end of the run), in order, and as of any time."""

from __future__ import annotations

import math

import labkit as lk
from labkit.narrative import Log, events, log_lines
from labkit.trace import Recorder, Trace
from labkit.trace.events import (
    EVENTS,
    ConnectionRefused,
    EngineWarning,
    GradientRefused,
    GroupRestarted,
    LinkCut,
    LinkDelayed,
    LinkLossy,
    LinkReconnected,
    Note,
    OptionsSet,
    RoleFenced,
    RoleFrozen,
    RoleJoined,
    RoleKilled,
    RoleLeft,
    RoleLimited,
    RoleLost,
    RoleRestarted,
    RoleSlowed,
    RoleThawed,
    RoleUnplaced,
    RunPaused,
    RunWaits,
)
from labkit.trace.stragglers import Stragglers
from tests.headers import header_of

NANO = 10**9
ROLES = ("server-0", "worker-0", "worker-1", "worker-2", "chief")


def simulated(*faults, strategy=None, budget=None, problem="moons", **cluster):
    cluster = lk.SimulatedCluster(**{"workers": 3, "compute": lk.distributions.Deterministic(0.02)} | cluster)
    problem = lk.Problem(problem, hidden=(4,), batch_size=8)
    return lk.train(problem, strategy or lk.AsyncPS(), cluster, budget or lk.Budget(updates=60), faults=faults)


def empty(budget=None):
    """A trace without a run."""
    return Trace(header_of(*ROLES, budget=budget))


AT = 5 * NANO


def recorded(*events):
    trace = empty()
    for event in events:
        trace.event(event)
    trace.now = 6 * NANO
    return log_lines(trace)


LINES = [
    (RoleSlowed(AT, "worker-2", 5.0), "you slowed w2 x5"),
    (RoleSlowed(AT, "worker-2", 1.5), "you slowed w2 x1.5"),
    (RoleSlowed(AT, "worker-2", 0.25), "you sped up w2 x4"),
    (RoleSlowed(AT, "worker-2", 1.0), "you reset the speed of w2"),
    (OptionsSet(AT, {"learning_rate": 0.05}), "you set learning_rate = 0.05"),
    (RunPaused(AT), "you paused"),
    (RoleKilled(AT, "server-0"), "s0 was killed"),
    (RoleKilled(AT, "server-0", restart=False), "s0 was killed, without restart"),
    (RoleKilled(AT, "server-0", absent=True), "s0 was not killed: it is not running"),
    (RoleLost(AT, "worker-2", 0, "was killed"), "w2 is lost: it was killed"),
    (RoleLost(AT, "worker-2", 1, "was silent for 5 s"), "w2 (incarnation 1) is lost: it was silent for 5 s"),
    (RoleRestarted(AT, "worker-2", 1), "w2 restarted (1st time)"),
    (
        RoleRestarted(AT, "server-0", 1, "checkpoint", 240, rolled_back=12),
        "s0 restarted (1st time), restored from update 240: 12 updates are rolled back",
    ),
    (
        RoleRestarted(AT, "server-0", 1, "checkpoint", 7, age=1.52, rolled_back=55, at_least=True),
        "s0 restarted (1st time), restored from update 7 of 1.52 s before: 55 updates that were reported are rolled back",
    ),
    (
        RoleRestarted(AT, "server-0", 1, "first weights", remark="its checkpoint is damaged"),
        "s0 restarted (1st time), restored from the first weights (its checkpoint is damaged)",
    ),
    (RoleRestarted(AT, "server-0", 2, "backup"), "s0 restarted (2nd time), restored from its backup"),
    (
        RoleRestarted(AT, "chief", 1, "evaluation", 80),
        "the chief restarted (1st time), restored from its evaluation of update 80",
    ),
    (RoleLeft(AT, "worker-1"), "w1 left; the others continue"),
    (RoleJoined(AT, "worker-1", 1), "w1 joined"),
    (RoleUnplaced(AT, "worker-1"), "w1 joins when a Dask worker is free"),
    (RoleFrozen(AT, "worker-1"), "w1 was frozen"),
    (RoleThawed(AT, "worker-1"), "w1 was thawed"),
    (
        RoleFenced(AT, "worker-1", 0, "woke up"),
        "w1 woke up after it was declared lost; it was replaced and ordered to stop",
    ),
    (RunWaits(AT, "worker-2, which was killed"), "the run waits for w2, which was killed"),
    (GroupRestarted(AT, 3, 40), "3 workers restarted from update 40"),
    (LinkCut(AT, "worker-1", None), "w1 was cut off"),
    (LinkCut(AT, "worker-1", "server-0"), "w1 was cut off from s0"),
    (LinkReconnected(AT, "worker-1", None), "w1 was reconnected"),
    (LinkReconnected(AT, "worker-1", "server-0"), "w1 was reconnected with s0"),
    (RoleLimited(AT, "worker-1", 2.5e6), "w1 is limited to 2.5 MB/s"),
    (RoleLimited(AT, "worker-1", None), "w1 has no limited bandwidth"),
    (LinkDelayed(AT, "worker-1", "server-0", 0.1), "messages between w1 and s0 are delayed by 0.10 s"),
    (LinkDelayed(AT, "worker-1", None, 0.0), "messages between w1 and all others are no longer delayed"),
    (LinkLossy(AT, "worker-1", "server-0", 0.05), "5% of messages between w1 and s0 are lost and retransmitted"),
    (LinkLossy(AT, "worker-1", "server-0", 0.0), "messages between w1 and s0 are no longer lost"),
    (
        GradientRefused(AT, "worker-1", 7, "is not finite"),
        "refused a gradient of w1, step 7: it is not finite",
    ),
    (ConnectionRefused(AT, "a handshake of worker-1 was not signed"), "a handshake of w1 was not signed"),
    (Note(AT, "lunch"), "note by you: lunch"),
    (EngineWarning(AT, "worker-1 did not acknowledge 'slow'"), "w1 did not acknowledge 'slow'"),
]


def test_every_event_is_one_line():
    assert {type(event) for event, _ in LINES} == set(EVENTS.values())
    for event, line in LINES:
        assert recorded(event) == [f"5.00 s {line}"]


def test_links_with_equal_faults_are_summarized_in_one_line():
    run = simulated("drop:worker:server:0.05@0.1-0.2", "partition:worker-0,worker-1:*@0.1-0.15")
    run.advance(0.3)
    assert [line for line in log_lines(run.trace) if "accuracy" not in line] == [
        "0.10 s 5% of messages between w0, w1 and w2 and s0 are lost and retransmitted",
        "0.10 s w0 and w1 were cut off from s0, w2 and the chief",
        "0.15 s w0 and w1 were reconnected with s0, w2 and the chief",
        "0.20 s messages between w0, w1 and w2 and s0 are no longer lost",
    ]


def test_a_killed_role_is_not_logged_as_lost_too():
    run = simulated("kill:worker-1@0.1", restart_after=0.2, heartbeat_timeout=0.1).advance(0.35)
    assert [line for line in log_lines(run.trace) if line.startswith("0.10 s")] == [
        "0.10 s w1 was killed", "0.10 s w1 left; the others continue",
    ]  # fmt: skip
    assert "0.30 s w1 restarted (1st time)" in log_lines(run.trace)
    run = simulated("freeze:worker-1@0.1-0.5", restart_after=0.2, heartbeat_timeout=0.1).wait()
    lines = log_lines(run.trace)
    assert "0.20 s w1 is lost: it was silent for 0.1 s" in lines
    assert sum("woke up after" in line for line in lines) == (run.trace.now > 0.5 * NANO)


def test_a_note_is_logged_under_its_role():
    trace, recorder = empty(), Recorder(1)
    recorder.event(Note(2 * NANO, "a new epoch", {"loss": 0.25}))
    trace.append(recorder.take(3 * NANO))
    assert log_lines(trace) == ["2.00 s note by w0: a new epoch (loss = 0.25)"]


def test_repeated_pauses_are_shortened_in_the_log():
    trace = empty()
    for k in range(9):
        trace.event(RunPaused(k * NANO))
    trace.event(OptionsSet(9 * NANO, {"s": 1}))
    trace.event(RunPaused(10 * NANO))
    trace.now = 11 * NANO
    assert log_lines(trace) == [
        "0.00 s you paused", "1.00 s you paused", "8.00 s you paused, 7 more times", "9.00 s you set s = 1",
        "10.00 s you paused",
    ]  # fmt: skip


def evaluated(*rows, **more):
    trace, recorder = empty(**more), Recorder(4)
    for time, update, loss, accuracy in rows:
        recorder.evaluations.extend((time * NANO, update, loss, accuracy))
    trace.append(recorder.take(20 * NANO))
    return trace


def test_the_highest_of_several_new_milestones_is_logged_once():
    rows = ((1.0, 10, 1.0, 0.4), (2.0, 20, 0.5, 0.8), (3.0, 30, 0.4, 0.7), (4.0, 40, 0.3, 0.8), (5.0, 50, 0.2, 0.96))
    assert log_lines(evaluated(*rows)) == ["2.00 s accuracy passed 75%", "5.00 s accuracy passed 95%"]
    assert log_lines(evaluated(*rows, budget={"accuracy": 0.96}))[-1] == "5.00 s accuracy passed 96%"


def test_milestones_of_an_untrained_model_are_not_logged():
    rows = ((0.0, 0, 0.7, 0.55), (1.0, 10, 0.5, 0.6), (2.0, 20, 0.4, 0.76))
    assert log_lines(evaluated(*rows)) == ["2.00 s accuracy passed 75%"]


def test_a_diverged_loss_is_logged_once():
    rows = ((1.0, 10, 0.5, 0.6), (2.0, 20, math.inf, 0.1), (3.0, 30, math.nan, 0.1), (4.0, 40, math.nan, 0.99))
    assert log_lines(evaluated(*rows)) == [
        "1.00 s accuracy passed 50%", "2.00 s the loss is no longer a finite number",
    ]  # fmt: skip


def test_the_log_contains_the_end_of_the_run():
    for budget, ending, line in [
        ({"accuracy": 0.9}, {"stopped_by": "accuracy"}, "accuracy reached 90% on the test set"),
        ({"loss": 0.25}, {"stopped_by": "loss"}, "loss reached 0.25 on the test set"),
        ({"patience": 1}, {"stopped_by": "patience"}, "no lower loss in 1 evaluation on the test set"),
        ({"updates": 1000}, {"stopped_by": "updates"}, "1,000 updates done"),
        ({"samples": 64}, {"stopped_by": "samples"}, "64 samples done"),
        ({"epochs": 1.5}, {"stopped_by": "epochs"}, "1.5 epochs done"),
        ({"seconds": 12}, {"stopped_by": "seconds"}, "time limit of 12 s"),
        ({}, {"stopped_by": "user"}, "you stopped it"),
        ({}, {"stopped_by": "interrupted", "why": ""}, "interrupted"),
        ({}, {"stopped_by": "finished"}, "every worker has finished"),
        ({}, {"stopped_by": "diverged", "why": "the loss is too large"}, "diverged: the loss is too large"),
        ({}, {"stopped_by": "error", "why": "worker-0 failed: no\nmore"}, "an error: worker-0 failed: no"),
        ({}, {"stopped_by": "deadlock", "why": "deadlock after 1.000 s: worker-0 waits"}, "deadlock after 1.000 s: w0 waits"),
        ({}, {"stopped_by": "the moon"}, "stopped by the moon"),
    ]:  # fmt: skip
        trace = empty(budget)
        trace.end(time=3 * NANO, **ending)
        assert log_lines(trace) == [f"3.00 s end: {line}"]
        assert log_lines(trace, 3 * NANO - 1) == []


def test_the_log_contains_faults_changes_and_the_end():
    run = simulated(lk.Slow("worker-1", 4, at=0.1, until=0.4), budget=lk.Budget(updates=90))
    run.advance(0.05).set(learning_rate=0.01)
    run.wait()
    lines = [line for line in run.log if "accuracy" not in line]
    assert lines[:4] == [
        "0.05 s you set learning_rate = 0.01", "0.10 s you slowed w1 x4",
        "0.34 s straggler: w1, computing 80 ms against a median of 20 ms", "0.40 s you reset the speed of w1",
    ]  # fmt: skip
    assert lines[-1].endswith("s end: 90 updates done")
    times = [float(line.split()[0]) for line in run.log]
    assert times == sorted(times)


def test_a_log_prints_as_lines():
    run = simulated(lk.Slow("worker-1", 4, at=0.1)).wait()
    assert isinstance(run.log, Log)
    assert list(run.log) == log_lines(run.trace)
    assert str(run.log) == repr(run.log) == "\n".join(log_lines(run.trace))
    assert run.log._repr_html_().count("<div>") == len(run.log)
    assert repr(simulated().advance(0).log) == "no events yet"
    assert "&lt;" in Log(["1.00 s note by you: <b>"])._repr_html_()


def test_settings_of_the_start_are_logged_at_time_zero():
    assert simulated(slow={"worker-2": 5}).advance(0).log == ["0.00 s you slowed w2 x5"]


def test_the_events_of_a_past_time_are_a_prefix_of_all_events():
    run = simulated(lk.Slow("worker-1", 4, at=0.1, until=0.4)).wait()
    whole, memory = events(run.trace), Stragglers()
    assert [time for time, _ in whole] == sorted(time for time, _ in whole)
    for t in (0, NANO // 10 - 1, NANO // 10, NANO // 3, NANO):
        past = [event for event in whole if event[0] <= t]
        assert events(run.trace, t) == events(run.trace, t, memory) == past
    going = simulated(lk.Slow("worker-1", 4, at=0.1, until=0.4))
    for t in (0.0, 0.099, 0.17, 0.3, 0.39):
        going.advance(t - going.engine.seconds)
        assert list(going.log) == log_lines(run.trace, round(t * NANO))
