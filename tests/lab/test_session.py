"""The session: the run and the moment that are shown. In virtual time, with a clock of the test, without threads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import labkit as lk
from labkit.engines.commands import Cut, Reconnect, Restart, Thaw
from labkit.lab.page.content import player, slider_length
from labkit.lab.processes import Processes
from labkit.lab.run_table import KEPT
from labkit.lab.scenario_runner import ScenarioRunner
from labkit.lab.session import Session
from labkit.lab.settings import Settings
from labkit.lab.view import make_view
from labkit.spec import make_cluster
from labkit.trace import events as ev

NANO = 1_000_000_000


class Clock:
    """Wall time that the test moves."""

    now = 0.0

    def __call__(self):
        return self.now


def session(processes=None, **settings):
    """A session with three workers at 0.1 s per gradient, for 4 seconds, and its clock."""
    clock = Clock()
    settings = Settings().changed(**{"workers": 3, "seconds": 4, **settings})
    return Session(settings, processes or Processes(), clock, slice_s=60.0), clock  # however busy the machine is


def tick(on):
    """One tick of the command thread; returns the seconds until the next one."""
    on.advance()
    return on.next_advance()


def view_of(on):
    return make_view(on, ScenarioRunner(on))


def pass_by(on, clock, seconds, step=0.1):
    """Let wall time pass, with a tick at every step."""
    pauses = []
    for _ in range(round(seconds / step)):
        clock.now += step
        pauses.append(tick(on))
    return pauses


def to_the_end(on, clock):
    for _ in range(10_000):
        clock.now += 0.1
        if tick(on) is None:
            return
    raise AssertionError("it does not end")


def test_a_run_is_played_at_its_speed():
    on, clock = session(speed=2.0)
    on.start()
    tick(on)
    pass_by(on, clock, 1.0)
    assert on.displayed.run.engine.seconds == pytest.approx(2.0)
    to_the_end(on, clock)
    assert on.displayed.run.stopped_by == "seconds"
    assert not on.displayed.active
    assert [entry.number for entry in on.table] == [1]


def test_a_slow_machine_plays_slower_and_does_not_jump():
    on, clock = session()
    on.start()
    tick(on)
    clock.now += 100.0
    tick(on)
    assert on.displayed.run.engine.seconds < 0.5


def test_pause_step_and_go_on():
    on, clock = session()
    on.start()
    tick(on)
    pass_by(on, clock, 1.0)
    on.playback.pause()
    stood = on.displayed.run.engine.seconds
    assert pass_by(on, clock, 1.0)[-1] is None
    assert on.displayed.run.engine.seconds == stood
    before = sum(c.gradients for c in on.displayed.trace.counters.values())
    on.step()
    assert sum(c.gradients for c in on.displayed.trace.counters.values()) == before + 1
    on.playback.resume()
    tick(on)
    pass_by(on, clock, 0.5)
    assert on.displayed.run.engine.seconds > stood + 0.4


def test_step_begins_a_run_that_stands_at_its_first_update():
    on, _ = session()
    on.step()
    assert sum(c.gradients for c in on.displayed.trace.counters.values()) == 1
    assert view_of(on).state == "paused"


def test_seek_changes_only_the_shown_position():
    on, clock = session()
    on.start()
    tick(on)
    pass_by(on, clock, 2.0)
    on.playback.seek(NANO)
    assert on.playback.moment() == NANO
    known = on.displayed.trace.watermark()
    pass_by(on, clock, 1.0)
    assert on.displayed.trace.watermark() == known  # a simulated run is paused meanwhile
    on.step()
    times = on.displayed.trace.column("applies", "time")
    assert on.playback.moment() == times[times > NANO].min()
    on.playback.resume()
    tick(on)
    pass_by(on, clock, 0.2)
    assert NANO < on.playback.moment() < known
    pass_by(on, clock, 3.0)  # it reaches now, and the run continues
    assert on.playback.position is None
    assert on.displayed.trace.watermark() > known


def test_seek_is_limited_to_the_recorded_time():
    on, clock = session()
    on.start()
    tick(on)
    pass_by(on, clock, 1.0)
    on.playback.seek(10**15)
    assert on.playback.moment() == on.displayed.trace.watermark()
    on.playback.seek(-5)
    assert on.playback.moment() == 0
    on.playback.live()
    assert on.playback.position is None


def test_a_paused_run_stays_paused_after_a_look_at_the_past():
    on, clock = session()
    on.start()
    tick(on)
    pass_by(on, clock, 1.0)
    on.playback.pause()
    on.playback.seek(NANO // 2)
    on.playback.live()
    assert view_of(on).state == "paused"
    on.playback.resume()
    on.playback.seek(NANO // 2)
    on.playback.live()
    assert view_of(on).state == "running"


def test_a_step_at_the_end_of_the_record_stays_there():
    on, clock = session()
    on.start()
    to_the_end(on, clock)
    on.playback.seek(10**15)
    on.step()
    assert on.playback.moment() == on.displayed.trace.watermark()


def test_what_if_repeats_the_run_up_to_the_position_and_pins_the_old_trace():
    on, clock = session()
    on.start()
    tick(on)
    pass_by(on, clock, 2.0)
    on.history.execute(lk.Slow("worker-1", 5))
    to_the_end(on, clock)
    was = on.displayed.trace
    on.playback.seek(3 * NANO)
    on.what_if()
    assert on.reference is was
    assert on.playback.position is None
    assert on.displayed.run.engine.seconds == 3.0
    assert [m.factor for m in on.displayed.trace.events if m.kind == "slowed"] == [5.0]
    on.history.execute(lk.Slow("worker-1", 1))
    to_the_end(on, clock)
    done = [sum(c.gradients for c in trace.counters.values()) for trace in (was, on.displayed.trace)]
    assert done[1] > done[0]
    assert len(on.table) == 2


def test_what_if_needs_a_run_that_can_be_repeated():
    on, _ = session()
    with pytest.raises(lk.BadInput, match="simulated"):
        on.what_if()


def test_a_new_run_ends_the_one_before_and_both_are_in_the_table():
    on, clock = session()
    on.start()
    tick(on)
    pass_by(on, clock, 1.0)
    first = on.displayed.run
    on.history.change({"strategy": "sync-ps"})
    on.start()
    assert first.stopped_by == "user"
    to_the_end(on, clock)
    assert [entry.row["strategy"] for entry in on.table] == ["AsyncPS", "SyncPS"]


def test_pin_show_and_unpin_by_number():
    on, clock = session()
    for name in ("async-ps", "sync-ps"):
        on.history.change({"strategy": name})
        on.start()
        to_the_end(on, clock)
    one, two = (entry.trace for entry in on.table)
    on.pin(1)
    assert on.reference is one
    on.show_run(1)
    assert on.displayed.trace is one
    assert view_of(on).reference is None  # no run is compared with itself
    on.pin(2)
    assert view_of(on).reference is two
    on.unpin()
    assert on.reference is None
    with pytest.raises(lk.BadInput, match="Run 9 is not kept; there is 1, 2"):
        on.pin(9)


def test_pinning_before_the_first_run_is_refused():
    on, _ = session()
    with pytest.raises(lk.BadInput, match="no run to pin"):
        on.pin()
    assert on.displayed.trace.watermark() == 0  # an empty picture of what would be run


def test_reset_is_the_same_run_with_the_same_seed():
    on, clock = session(seed=3)
    on.start()
    to_the_end(on, clock)
    was = on.displayed.trace.ending["parameters_sha256"]
    on.history.change({"seed": 4})
    on.reset()
    assert on.displayed.run is None
    on.start()
    to_the_end(on, clock)
    assert on.displayed.trace.ending["parameters_sha256"] == was


def test_live_options_act_on_the_run_and_the_others_on_the_next():
    on, clock = session(strategy="ssp")
    on.start()
    tick(on)
    pass_by(on, clock, 1.0)
    for settings in ({"learning_rate": 0.3}, {"workers": 5}):
        on.history.change(settings)
        on.displayed.set_options(settings)
    assert [str(m) for m in on.displayed.trace.events if m.kind == "set"] == ["learning_rate = 0.3"]
    assert view_of(on).changed == ("workers",)


def test_slow_without_a_run_is_for_the_next_one():
    on, _ = session()
    on.history.execute(lk.Slow("worker-2", 4))
    assert on.next_run.settings.cluster.slow == {"worker-2": 4.0}
    on.history.execute(lk.Slow("worker-2", 1))
    assert on.next_run.settings.cluster.slow == {}
    with pytest.raises(lk.BadInput, match="no run is active"):
        on.history.execute(lk.Kill("worker-2"))


def test_of_many_runs_all_numbers_and_the_last_traces_are_kept():
    on, clock = session(seconds=0.2)
    for _ in range(KEPT + 3):
        on.start()
        to_the_end(on, clock)
    assert len(on.table) == KEPT + 3
    assert [entry.trace is None for entry in on.table] == [True] * 3 + [False] * KEPT


class StartedByTheTest(Processes):
    """Processes whose start the test completes. The cluster is a simulated one."""

    starting = ready = False

    def start(self, nodes):
        self.wanted, self.starting = nodes, True

    def started(self):
        self.starting, self.ready = False, True
        self._cluster = Simulated()

    def progress(self):
        return f"{2 if self.starting else self.wanted} of {self.wanted} processes connected"


class Simulated:
    """A cluster in virtual time that a session takes for processes. `made()` is called when a run is made on it."""

    is_closed, starts_processes, dashboard_link = False, True, None

    def __init__(self, made=lambda: None):
        self.made = made

    def with_spec(self, spec):
        self.made()
        return make_cluster(replace(spec, engine="simulated"))


def test_a_simulated_preview_is_shown_until_the_processes_have_started():
    on, clock = session(StartedByTheTest(), engine="dask")
    on.start()
    assert on.displayed.simulated
    assert on.displayed.previewing
    assert on.processes.wanted == 5  # three workers, a server, the chief
    tick(on)
    pass_by(on, clock, 1.0)
    view = view_of(on)
    assert (view.processes, view.state, view.changed) == ("2 of 5 processes connected", "running", ())
    on.processes.starting = False
    on.processes.problem = lk.ClusterError("there are no processes to be had")
    with pytest.raises(lk.ClusterError, match="no processes"):
        tick(on)
    assert not on.displayed.active
    assert list(on.table) == []  # a preview is not recorded


def test_a_preview_is_shown_until_the_run_has_been_made():
    """No state in between says that the user has stopped a run, or names the limit of the preview."""
    on, clock = session(StartedByTheTest(), engine="dask")
    on.start()
    pass_by(on, clock, 1.0)
    preview, seen = on.displayed.run, []
    on.processes.started()
    on.processes.cluster.made = lambda: seen.append(player(view_of(on)))
    tick(on)
    below = "5 of 5 processes connected"
    assert [(shown["lamp"], shown["below"], shown["ends"][0]) for shown in seen] == [("● PREVIEW", below, "")]
    assert on.displayed.run is not preview
    assert preview.done
    shown = player(view_of(on))
    assert (shown["lamp"], shown["ends"][0], shown["t"]) == ("● LIVE", "ends at 4 s", 0)
    assert list(on.table) == []


def test_how_late_reports_are_is_the_time_of_the_run_that_they_do_not_cover(monkeypatch):
    on, clock = running(seconds=30)
    pass_by(on, clock, 1.0)
    engine = on.displayed.run.engine
    ahead = engine.trace.watermark() / NANO + 42
    monkeypatch.setattr(type(engine), "seconds", property(lambda self: ahead))
    assert view_of(on).late == pytest.approx(42)
    on.playback.pause()
    assert view_of(on).late == 0


def test_a_run_that_cannot_be_made_ends_its_preview():
    on, _ = session(StartedByTheTest(), engine="dask")
    on.start()
    on.processes.started()

    def refuse():
        raise lk.BadInput("not on this cluster")

    on.processes.cluster.made = refuse
    with pytest.raises(lk.BadInput, match="not on this"):
        tick(on)
    assert (on.displayed.run, on.displayed.previewing, view_of(on).state) == (None, False, "ready")


def test_a_preview_that_was_stopped_has_no_time_limit_and_reset_prepares_the_run_that_was_wanted():
    on, clock = session(StartedByTheTest(), engine="dask")
    on.start()
    pass_by(on, clock, 1.0)
    on.end()
    view = view_of(on)
    assert (view.state, view.ends, view.processes, view.changed) == ("over", None, "", ())
    assert "what_if" not in view.available
    on.reset()
    assert (on.next_run.settings.cluster.engine, on.next_run.settings.budget.seconds) == ("dask", 4)


# undo -----------------------------------------------------------------------------------------------------------------


def running(**settings):
    on, clock = session(**settings)
    on.start()
    pass_by(on, clock, 0.5)
    return on, clock


@pytest.mark.parametrize(
    ("command", "label", "state"),
    [
        (lk.Slow("worker-1", 5), "slowdown of w1", ({"worker-1": 5.0}, {})),
        (lk.Kill("worker-1", restart=False), "kill of w1", ({}, {"worker-1": "killed"})),
        (lk.Freeze("worker-0"), "freeze of w0", ({}, {"worker-0": "frozen"})),
        (Cut("worker-2"), "cut of w2", ({}, {"worker-2": "cut off"})),
        (Cut("worker-2", "server-0"), "cut of w2 from s0", ({}, {})),
    ],
)
def test_a_fault_can_be_undone(command, label, state):
    on, clock = running()
    on.history.execute(command)
    view = view_of(on)
    assert (view.undoes, view.slow, view.conditions) == (label, *state)
    assert "undo" in view.available
    pass_by(on, clock, 0.3)
    on.history.undo()
    view = view_of(on)
    assert (view.undoes, view.slow, view.conditions) == ("", {}, {})
    assert "undo" not in view.available
    assert [type(done.command) for done in on.displayed.run.engine.commands] == [type(command), INVERSE[type(command)]]
    with pytest.raises(lk.BadInput, match="nothing to undo"):
        on.history.undo()


INVERSE = {lk.Slow: lk.Slow, lk.Kill: Restart, lk.Freeze: Thaw, Cut: Reconnect}


def test_faults_and_settings_are_undone_in_reverse_order():
    on, _ = running()
    on.history.execute(lk.Slow("worker-1", 5))
    on.history.change({"learning_rate": 0.3})
    on.displayed.set_options({"learning_rate": 0.3})
    on.history.execute(lk.Slow("worker-1", 2))
    labels = []
    while on.history.undoes:
        labels.append(on.history.undoes)
        on.history.undo()
    assert labels == ["slowdown of w1", "learning rate", "slowdown of w1"]
    told = [
        m.factor if m.kind == "slowed" else str(m) for m in on.displayed.trace.events if m.kind in ("slowed", "set")
    ]
    assert told == [5.0, "learning_rate = 0.3", 2.0, 5.0, "learning_rate = 0.1", 1.0]
    assert on.next_run.settings.strategy.learning_rate == 0.1


def test_what_a_button_has_undone_cannot_be_undone_again():
    on, _ = running()
    on.history.execute(lk.Freeze("worker-0"))
    on.history.execute(lk.Kill("worker-1", restart=False))
    on.history.execute(Restart("worker-1"))
    assert on.history.undoes == "freeze of w0"
    on.history.execute(Thaw("worker-0"))
    assert on.history.undoes == ""


def test_a_kill_after_which_the_role_was_restarted_cannot_be_undone():
    on, clock = running(seconds=20)
    on.history.execute(lk.Kill("worker-1"))
    assert on.history.undoes == "kill of w1"
    pass_by(on, clock, 3.0)
    assert view_of(on).conditions == {}
    assert on.history.undoes == ""


@pytest.mark.parametrize(
    ("kinds", "command", "change"),
    [
        ([ev.RoleKilled], None, "stopping"), ([ev.RoleFrozen], None, "freezing"), ([ev.LinkCut], None, "cutting off"),
        ([ev.RoleLeft, ev.RoleJoined], None, "restarting"), ([ev.RoleFrozen, ev.RoleThawed], None, "thawing"),
        ([ev.LinkCut, ev.LinkReconnected], None, "reconnecting"), ([], lk.Kill("worker-1"), "stopping"),
        ([], lk.Slow("worker-1", 5), "slowing"), ([], None, None),
    ],
)  # fmt: skip
def test_what_a_command_changes_is_shown_before_the_displayed_time_reaches_it(kinds, command, change):
    on, clock = running(seconds=20)
    pass_by(on, clock, 1.0)
    now = on.displayed.trace.watermark()
    for later, kind in zip((now, now + 1) if len(kinds) == 2 else (now + 1,), kinds):
        more = {ev.RoleKilled: (False,), ev.RoleJoined: (1,), ev.LinkCut: (None,), ev.LinkReconnected: (None,)}.get(
            kind, ()
        )
        on.displayed.trace.event(kind(later, "worker-1", *more))
    changing = make_view(on, ScenarioRunner(on), command=command).changing
    assert changing == ({} if change is None else {"worker-1": change})
    on.playback.seek(now // 2)
    assert make_view(on, ScenarioRunner(on), command=command).changing == {}


def test_after_a_run_its_faults_cannot_be_undone_but_changes_of_settings_can():
    on, clock = running()
    on.history.change({"strategy": "pipeline"})
    on.history.execute(lk.Slow("worker-1", 5))
    to_the_end(on, clock)
    assert on.history.undoes == "strategy"
    on.history.undo()
    assert (on.next_run.settings.strategy.name, on.next_run.settings.problem.hidden) == ("AsyncPS", (64, 32))
    assert on.history.undoes == ""


def test_a_change_to_the_same_value_is_nothing_to_undo():
    on, _ = session()
    on.history.change({"workers": 3})
    assert on.history.undoes == ""


def test_a_slowdown_before_the_first_run_can_be_undone():
    on, _ = session()
    on.history.execute(lk.Slow("worker-2", 4))
    assert view_of(on).undoes == "slowdown of w2"
    on.history.undo()
    assert on.next_run.settings.cluster.slow == {}


def test_a_live_option_that_was_changed_in_a_preview_is_undone_on_its_run():
    on, _ = session(StartedByTheTest(), engine="dask")
    on.start()
    on.history.change({"learning_rate": 0.3})
    on.displayed.set_options({"learning_rate": 0.3})
    on.processes.started()
    tick(on)
    assert on.displayed.run.engine.roles["worker-0"].strategy.learning_rate == 0.3
    on.history.undo()
    assert on.displayed.run.engine.roles["worker-0"].strategy.learning_rate == 0.1
    assert on.next_run.settings.strategy.learning_rate == 0.1


def test_a_slowdown_of_a_preview_is_undone_on_its_run():
    on, _ = session(StartedByTheTest(), engine="dask")
    on.start()
    on.history.execute(lk.Slow("worker-1", 5))
    on.processes.started()
    tick(on)
    assert view_of(on).undoes == "slowdown of w1"
    on.history.undo()
    assert view_of(on).slow == {}


def test_settings_of_another_source_are_not_undone():
    on, _ = session()
    on.history.change({"workers": 5})
    on.prepare(Settings())
    assert on.history.undoes == ""


def test_a_notice_says_what_a_setting_has_changed_until_the_next_action():
    on, _ = session()
    on.history.change({"strategy": "pipeline"})
    assert "hidden layers changed from 64,32" in view_of(on).notice
    on.history.undo()
    assert view_of(on).notice == ""
    on.history.change({"strategy": "pipeline"})
    on.start()
    assert view_of(on).notice == ""


# the slider of the time -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [4, 30])
def test_the_position_of_a_time_on_the_slider_is_the_same_live_and_looking_back(seconds):
    on, clock = running(seconds=seconds, speed=5.0)
    pass_by(on, clock, 4.0)
    live = player(view_of(on))
    places = []
    for t in (0.5, 1.0, 2.0, live["recorded"]):
        on.playback.seek(round(t * NANO))
        shown = player(view_of(on))
        assert shown["length"] == live["length"]
        places.append(shown["t"] / shown["length"])
    assert places == sorted(places)
    assert places[-1] == live["t"] / live["length"]


@given(st.floats(0, 2000), st.floats(0, 2000), st.one_of(st.none(), st.floats(1, 1500)))
def test_the_slider_contains_the_run_and_grows_with_it(one, other, ends):
    short, long = sorted((one, other))
    lengths = [slider_length(recorded, ends) for recorded in (short, long)]
    assert lengths == sorted(lengths)
    assert lengths[0] >= short
    if ends is not None:
        assert lengths[0] <= max(ends, short)
        assert lengths[0] == max(ends, short) or lengths[0] >= 60


def test_commands_that_were_prepared_are_repeated_by_the_next_run_and_by_its_first_step():
    for begin in (Session.start, Session.step):
        on, clock = session()
        on.prepare(on.next_run.settings, (lk.Slow("worker-1", 5, at=1.0),))
        begin(on)
        on.playback.resume()
        to_the_end(on, clock)
        assert [(e.time, e.factor) for e in on.displayed.trace.events if e.kind == "slowed"] == [(NANO, 5.0)]
