"""Faults in the lab: the commands that inject and undo them, the share text, and the conditions at an earlier moment."""

from __future__ import annotations

from dataclasses import replace

import pytest

import labkit as lk
from labkit.engines.commands import Restart
from labkit.trace import events as ev
from labkit.trace.role_states import conditions, intervals, undoable
from labkit.views.event_labels import event_labels

S = 1_000_000_000


@pytest.fixture
def lab():
    made = lk.Lab().set(engine="simulated", seconds=8, workers=3)
    yield made
    made.close()


def times(trace):
    """When which worker's gradients were applied."""
    return [column.tolist() for column in trace.column("applies", "time", "sender")]


def test_all_commands_are_repeated_to_the_bit_from_the_share_text(lab):
    lab.run().pause()
    at = lab.latest.engine.seconds
    for verb, *more in [
        ("slow", "worker-0", 3), ("kill", "worker-1", False), ("freeze", "worker-0"), ("cut", "worker-2"),
        ("restart", "worker-1"), ("thaw", "worker-0"), ("reconnect", "worker-2"), ("cut", "worker-2", "server-0"),
        ("reconnect", "worker-2", "server-0"), ("limit", "worker-0", "10MB/s"),
        ("delay", "worker-0", 0.05), ("drop", "worker-0", 0.1, "server-0"),
        ("kill", "server-0"), ("slow", "worker-0", 1),
    ]:  # fmt: skip
        getattr(lab, verb)(*more)
        lab.latest.advance(0.31)
    lab.resume().wait()
    assert lab.latest.stopped_by == "seconds"
    assert lk.ledger(lab.trace)["closes"]
    assert lab.latest.engine.commands[0].at == at
    for verb in (
        "kill:worker-1:for-good@",
        "restart:worker-1@",
        "freeze:",
        "thaw:",
        "cut:worker-2:server-0@",
        "kill:server-0@",
    ):
        assert verb in lab.share_text()
    with lk.Lab.from_share_text(lab.share_text()) as again:
        again.run().wait()
        assert again.trace.ending["parameters_sha256"] == lab.trace.ending["parameters_sha256"]
        assert times(again.trace) == times(lab.trace)


def test_a_killed_role_is_restarted_unless_restart_is_false(lab):
    lab.run().pause()
    lab.kill("worker-1").latest.advance(2.0)
    assert lab.view().conditions == {}
    lab.kill("worker-2", restart=False).latest.advance(2.0)
    view = lab.view()
    assert (view.state, view.conditions, view.undo) == ("paused", {"worker-2": "killed"}, {"worker-2": {"restart"}})
    lab.seek(1.0)
    assert lab.view().conditions == {}
    assert lab.view().undo == {"worker-2": {"restart"}}  # what is possible is done now
    lab.live().restart("worker-2")
    assert lab.view().conditions == lab.view().undo == {}


def test_a_run_that_waits_for_a_killed_role_ends_with_an_error_and_every_call_returns(lab):
    lab.set(strategy="sync-ps", updates=100).set(seconds=None).run().pause()
    lab.kill("worker-1", restart=False).resume()
    with pytest.raises(lk.ClusterError, match="worker-1, which was killed"):
        lab.wait(fast=True)
    assert lab.view().state == "failed"


def test_a_run_that_waits_can_be_stopped(lab):
    lab.set(strategy="sync-ps", updates=100).set(seconds=None).run().pause()
    lab.kill("worker-1", restart=False).latest.advance(2.0)
    assert any(event.kind == "waits" and "worker-1" in str(event) for event in lab.trace.events)
    lab.stop()
    assert lab.view().state != "running"


def test_commands_without_an_active_run_are_refused(lab):
    for verb in ("kill", "restart", "freeze", "thaw", "cut", "reconnect"):
        with pytest.raises(lk.BadInput, match=f"{verb} worker-1: no run is active"):
            getattr(lab, verb)("worker-1")


def test_a_command_value_is_executed_like_a_button(lab):
    lab.run().pause()
    lab.execute(lk.Kill("worker-2", restart=False)).latest.advance(1.0)
    assert lab.view().conditions == {"worker-2": "killed"}
    lab.execute(Restart("worker-2"))
    assert lab.view().conditions == {}
    with pytest.raises(lk.BadInput, match="is two commands, one at its start and one at its end"):
        lab.execute(lk.Freeze("worker-2", until=5.0))


def test_faults_that_a_program_injected_have_no_text(lab):
    lab.run().pause()
    lab.latest.inject(lk.Kill("worker-1", at=0.5))
    with pytest.raises(lk.BadInput, match="injected"):
        lab.share_text()


# conditions from events ------------------------------------------------------------------------------------------------


def recorded(*events):
    """A trace of three workers with these events only, their times in seconds."""
    cluster = lk.SimulatedCluster(workers=3, compute=0.1)
    trace = lk.train("digits", lk.AsyncPS(), cluster, lk.Budget(seconds=1)).trace
    for event in events:
        trace.event(replace(event, time=round(event.time * S)))
    return trace


HISTORY = [
    ev.RoleKilled(1, "worker-1"), ev.RoleLost(1, "worker-1", 0, "was killed"), ev.RoleLeft(1, "worker-1"),
    ev.RoleRestarted(2, "worker-1", 1), ev.RoleFrozen(3, "worker-0"), ev.LinkCut(3, "worker-2", "server-0"),
    ev.RoleThawed(4, "worker-0"), ev.LinkCut(5, "worker-2", None), ev.RoleFrozen(6, "worker-2"),
    ev.LinkReconnected(7, "worker-2", None), ev.RoleLost(8, "worker-2", 0, "was silent for 2 s"),
    ev.RoleRestarted(9, "worker-2", 1), ev.RoleThawed(10, "worker-2"), ev.RoleLeft(11, "worker-0"),
    ev.RoleJoined(12, "worker-0", 1),
]  # fmt: skip
THEN = {
    0.5: {}, 1: {"worker-1": "killed"}, 1.9: {"worker-1": "killed"}, 2: {}, 3.5: {"worker-0": "frozen"}, 4: {},
    5.5: {"worker-2": "cut off"}, 6.5: {"worker-2": "cut off"}, 7.5: {"worker-2": "frozen"}, 8.5: {"worker-2": "lost"},
    9.5: {}, 11.5: {"worker-0": "left"}, 12.5: {},
}  # fmt: skip


@pytest.mark.parametrize("seconds", THEN)
def test_the_conditions_of_all_roles_at_a_moment(seconds):
    trace = recorded(*HISTORY)
    found = {trace.roles[role]: how for role, how in conditions(trace, round(seconds * S)).items()}
    assert found == THEN[seconds]


def test_the_intervals_of_a_condition():
    trace = recorded(*HISTORY)
    mine = intervals(trace, 20 * S)[trace.roles.index("worker-2")]
    assert mine == [(5 * S, 7 * S, "cut off"), (7 * S, 8 * S, "frozen"), (8 * S, 9 * S, "lost")]
    (open_,) = intervals(trace, round(1.5 * S)).values()
    assert open_ == [(S, None, "killed")]


def test_commands_that_can_be_undone_are_listed():
    assert undoable(recorded(*HISTORY[:1])) == {"worker-1": {"restart"}}
    assert undoable(recorded(*HISTORY[:3])) == {"worker-1": {"restart"}}
    assert undoable(recorded(*HISTORY[:5])) == {"worker-0": {"thaw"}}
    assert undoable(recorded(*HISTORY[:11])) == {"worker-2": {"thaw", "restart"}}
    # the process that was declared lost, not its successor
    assert undoable(recorded(*HISTORY[:12])) == {"worker-2": {"thaw"}}
    assert undoable(recorded(*HISTORY)) == {}
    assert undoable(recorded(ev.RoleFrozen(1, "worker-0"), ev.RoleKilled(2, "worker-0"))) == {"worker-0": {"restart"}}


def test_the_axes_show_every_fault_and_restart_once():
    text = [label for _, label in event_labels(recorded(*HISTORY), 20 * S)]
    assert text == [
        "w1 killed", "w1 restarted", "w0 frozen", "w2–s0 cut", "w0 thawed", "w2 cut off", "w2 frozen", "w2 reconnected",
        "w2 lost", "w2 restarted", "w2 thawed", "w0 left", "w0 joined",
    ]  # fmt: skip


def test_the_axes_show_the_cost_of_a_restart():
    restarts = {
        ev.RoleRestarted(S, "server-0", 1, "checkpoint", 240, rolled_back=12): "s0 restarted, −12 updates",
        ev.RoleRestarted(S, "server-0", 1, "checkpoint", 7, 1.52, 55, at_least=True): "s0 restarted, −55 updates",
        ev.RoleRestarted(S, "server-0", 1, "backup"): "s0 restarted",
    }
    for event, text in restarts.items():
        trace = recorded()
        trace.event(event)
        assert event_labels(trace, 2 * S) == [(S, text)]
