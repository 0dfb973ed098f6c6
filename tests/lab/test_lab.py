"""The whole lab without a browser: every command as a method, and by its control."""

from __future__ import annotations

import csv
import threading

import numpy as np
import pytest
from ipywidgets import Widget

import labkit as lk
from labkit.engines.commands import Cut, Reconnect, Restart, Thaw
from labkit.lab import cells

QUICK = {"engine": "simulated", "seconds": 3, "workers": 3}


def threads():
    return sorted(t.name for t in threading.enumerate() if t.name.startswith("labkit-"))


def live_widgets():
    """The identifiers of all widgets that are not closed."""
    return set(Widget.get_manager_state()["state"])


@pytest.fixture
def lab():
    """Labs that are closed at the end, after which no thread is left."""
    before, made = threads(), []

    def make(*arguments, quick=True, **more):
        made.append(lk.Lab(*arguments, **more))
        return made[-1].set(**QUICK) if quick else made[-1]

    yield make
    for one in made:
        one.close()
    for thread in threading.enumerate():
        if thread.name in set(threads()) - set(before):
            thread.join()
    assert threads() == before


def test_a_lab_runs_to_its_end_and_reports_what_happened(lab):
    one = lab()
    assert one.run() is one
    one.wait()
    assert one.view().state == "over"
    assert one.latest.stopped_by == "seconds"
    assert "theory: mean = N − 1 = 2" in one.sentence
    assert str(one.log[-1]) == "3.00 s end: time limit of 3 s"
    assert [row["strategy"] for row in one.runs] == ["AsyncPS"]
    assert lk.ledger(one.trace)["closes"]
    assert one.snapshot()._repr_png_()[0].startswith(b"\x89PNG")


def test_invalid_arguments_of_a_lab_are_refused():
    for wrong in ({"strategy": "foo"}, {"scenario": "foo"}, {"panels": ["foo"]}, {"controls": ["foo"]}, {"cluster": 3},
                  {"cluster": lk.DaskCluster}, {"problem": "foo"}, {"speed": -1}):  # fmt: skip
        with pytest.raises(lk.BadInput):
            lk.Lab(**wrong)
    assert threads() == []


def test_a_lab_opens_on_the_given_problem_strategy_cluster_and_budget(lab):
    problem, cluster = (
        lk.Problem("moons", hidden=(16,)),
        lk.SimulatedCluster(workers=5, compute=lk.distributions.Exponential(0.2)),
    )
    one = lab(problem, lk.SSP(s=2), cluster, lk.Budget(updates=40), quick=False)
    one.run().wait()
    assert (one.trace.header.problem.data, one.trace.kinds.count("worker")) == ("moons", 5)
    assert one.runs[0]["strategy"] == "SSP"
    assert one.trace.ending["update"] == 40


def test_a_lab_shows_a_run_that_its_program_advances(lab):
    run = lk.train("digits", lk.AsyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(seconds=1)).advance(0.2)
    one = run.watch(panels="staleness")
    assert one.trace is run.trace
    run.advance(0.1)
    assert run.engine.seconds == pytest.approx(0.3)
    one.close()
    assert not run.done
    two = run.watch()
    two.wait()
    assert run.done
    two.close()


def test_a_run_of_a_user_defined_strategy_can_be_watched_and_repeated(lab):
    class Mine(lk.AsyncPS):
        pass

    run = lk.train("digits", Mine(), lk.SimulatedCluster(workers=2), lk.Budget(seconds=0.5))
    one = run.watch(speed=5.0)
    one.wait()
    one.run().wait()
    assert [row["strategy"] for row in one.runs] == ["Mine", "Mine"]
    one.close()


def test_pause_step_slow_set_and_stop(lab):
    one = lab().run().pause()
    assert one.view().state == "paused"
    before = one.view().t
    one.step()
    assert one.view().t > before
    one.slow("worker-1", 5).set(learning_rate=0.2)
    assert one.view().slow == {"worker-1": 5.0}
    one.resume().stop()
    assert one.latest.stopped_by == "user"
    assert [m.kind for m in one.trace.events][:2] == ["slowed", "set"]
    for wrong in (lambda: one.slow("worker-9", 5), lambda: one.set(learning_rate=-1), lambda: one.kill("worker-0")):
        with pytest.raises(lk.BadInput):
            wrong()


def test_undo_takes_back_faults_and_settings_the_last_one_first(lab):
    one = lab().run().pause()
    one.slow("worker-1", 5).slow("worker-1", 2).set(workers=5).freeze("worker-2")
    assert (one.view().conditions, one.settings.value("workers")) == ({"worker-2": "frozen"}, 5)
    one.undo()
    assert (one.view().conditions, one.settings.value("workers")) == ({}, 5)
    one.undo()
    assert (one.settings.value("workers"), one.view().slow) == (3, {"worker-1": 2.0})
    one.undo()
    assert one.view().slow == {"worker-1": 5.0}
    assert "undo" in one.view().available
    one.undo()
    assert one.view().slow == {}
    assert "undo" not in one.view().available
    with pytest.raises(lk.BadInput, match="nothing to undo"):
        one.undo()


def test_undo_of_a_live_option_affects_the_present_run(lab):
    one = lab().run().pause().set(learning_rate=0.2)
    before = lk.AsyncPS().learning_rate
    one.undo().stop()
    assert one.settings.value("learning_rate") == before
    assert one.latest.engine.roles["worker-0"].strategy.learning_rate == before
    assert [event.kind for event in one.trace.events][:2] == ["set", "set"]


def test_undo_concerns_the_present_run_only(lab):
    one = lab().run().pause().slow("worker-1", 5).set(workers=4)
    one.run().pause()
    with pytest.raises(lk.BadInput, match="nothing to undo"):
        one.undo()
    assert one.settings.value("workers") == 4
    one.slow("worker-1", 5).stop()
    assert "undo" not in one.view().available  # a fault of a run that is over
    one.set(workers=2).undo()
    assert one.settings.value("workers") == 4
    one.press("undo")
    one.wait()
    assert "nothing to undo" in one.view().problem


def test_a_killed_worker_comes_back_and_the_run_goes_on_to_its_end(lab):
    one = lab().run().pause()
    one.kill("worker-1")
    one.resume().wait()
    assert one.view().state == "over"
    reported = [(event.kind, event.name) for event in one.trace.events if event.kind in ("killed", "lost", "restarted")]
    assert reported == [(kind, "worker-1") for kind in ("killed", "lost", "restarted")]
    assert one.trace.ending["lost"] == []
    assert lk.ledger(one.trace)["closes"]


def test_seek_and_what_if(lab):
    one = lab().run().wait()
    one.seek(1.5)
    assert one.view().t == 1_500_000_000
    assert not one.view().live
    was = one.trace
    one.what_if().slow("worker-0", 10).wait()
    assert one.view().reference is was
    assert one.trace is not was
    assert len(one.runs) == 2
    one.live()
    for wrong in (-1, "x", None, True, float("nan")):
        with pytest.raises(lk.BadInput):
            one.seek(wrong)


def test_scenarios_reference_runs_and_questions(lab):
    one = lab(scenario="first-minute", quick=False)
    one.set(engine="simulated")
    assert one.answered is None
    assert "20%" in one.question
    one.run()
    for wrong in ("30%", 7, -1):
        with pytest.raises(lk.BadInput):
            one.answer(wrong)
    one.answer("50%")
    one.wait()
    assert one.answered == "50%"
    assert len(one.traces) >= 2
    assert one.view().reference is one.traces[-2]
    sync, free = (lk.ledger(trace)["applied"] for trace in one.traces[-2:])
    assert free > 1.5 * sync
    with pytest.raises(lk.BadInput, match="already answered: 50%"):
        one.answer(0)


def test_the_share_text_of_a_lab_opens_the_same_run_again(lab):
    one = lab(panels=["timeline", "loss"]).set(strategy="ssp", s=1).run().pause()
    one.slow("worker-1", 3).resume().wait()
    two = lk.Lab.from_share_text(one.share_text())
    two.run().wait()
    assert two.trace.ending["parameters_sha256"] == one.trace.ending["parameters_sha256"]
    assert two.share_text() == one.share_text()
    two.close()


def test_the_table_of_runs_can_be_read_by_a_spreadsheet(lab, tmp_path):
    one = lab()
    for name in ("async-ps", "sync-ps"):
        one.set(strategy=name).run().wait()
    rows = list(csv.DictReader(one.export_csv(tmp_path / "runs.csv").open(encoding="utf-8", newline="")))
    assert [row["run"] for row in rows] == ["1", "2"]
    assert "SyncPS" in repr(one.runs)
    assert "<table" in one.runs._repr_html_()


def test_every_button_has_an_effect_or_shows_why_not(lab):
    one = lab()
    for _ in range(3):
        one.press("run")  # once is enough
    one.wait()
    assert len(one.runs) == 1
    for name, *arguments in [
        ("pause",), ("step",), ("seek", 1.0), ("what_if",), ("pin",), ("set", {"workers": 2}), ("run",), ("set", {"workers": -2}),
        ("slow", "worker-7", 3.0), ("kill", "nobody"), ("answer", 3), ("show_run", 99), ("live",), ("reset",), ("unpin",),
        ("play", "foo"), ("stop",),
    ]:  # fmt: skip
        one.press(name, *arguments)
    one.wait()
    one.press("kill", "nobody")
    one.wait()
    assert "no run is active" in one.view().problem


@pytest.mark.parametrize(
    ("name", "arguments", "command"),
    [
        ("slow", [5], lk.Slow("worker-1", 5)), ("kill", [], lk.Kill("worker-1", restart=False)),
        ("freeze", [], lk.Freeze("worker-1")), ("cut", [], Cut("worker-1")), ("restart", [], Restart("worker-1")),
        ("thaw", [], Thaw("worker-1")),
        ("reconnect", [], Reconnect("worker-1")),
    ],
)  # fmt: skip
def test_a_button_of_a_role_executes_its_command(lab, name, arguments, command):
    one = lab().run().pause()
    begins = {"restart": "kill", "thaw": "freeze", "reconnect": "cut"}
    if name in begins:
        one.press(begins[name], "worker-1")
    one.press(name, "worker-1", *arguments)
    one.wait()
    assert [entry.command.changed(at=0.0) for entry in one.latest.engine.commands][-1] == command
    assert not one.view().problem


MALFORMED = [
    {}, {"action": "close"}, {"action": "session"}, {"action": "__init__"}, {"action": "execute", "args": [{}]},
    {"action": ["run"]}, {"action": None}, {"action": "stop", "args": [1]}, {"action": "seek", "args": []},
    {"action": "seek", "args": 3}, {"action": "seek", "args": ["x"]}, {"action": "set", "args": [3]},
    {"action": "set", "args": [{"workers": {"choice": "8"}}]}, {"action": "set", "args": [{"nothing": 1}]},
    {"action": "slow", "args": ["worker-0", "x"]}, {"action": "slow", "args": []}, {"action": "kill", "args": [None]},
    {"action": "kill", "args": ["worker-0", 0, True, 3]}, {"action": "freeze", "args": ["worker-0", 0, 5]},
    {"action": "answer", "args": [{}]}, {"action": "pin", "args": ["x"]}, {"action": "show_run", "args": [None]},
    {"action": "play", "args": [3]}, {"action": "sweep", "args": [3, 4]}, {"action": "forecast", "args": ["x"]},
    {"action": "calibrate", "args": [{}]},
]  # fmt: skip


@pytest.mark.slow
def test_malformed_presses_are_answered_and_change_nothing(lab, browsers, caplog):
    one = lab(quick=False).set(**QUICK).run().pause()
    (browser,) = (each for each in browsers.values() if "toolbar" in each.state)
    settings, run, t = one.settings, one.latest, one.view().t
    for number, message in enumerate(MALFORMED):
        browser.send_to_kernel(do="press", number=number, **message)
        one.wait()
        assert [answer["number"] for answer, _ in browser.take("answer")] == [number], message
        assert (one.settings, one.latest, one.view().t, one.view().state) == (settings, run, t, "paused"), message
        assert not run.engine.commands, message
        assert one.view().live, message
        assert not caplog.records, message  # where ipywidgets reports an exception


def test_a_pause_after_the_end_does_not_hold_up_a_program(lab):
    one = lab().run().wait()
    one.press("pause")
    one.wait(20)
    assert one.view().state == "over"


def test_unknown_buttons_are_refused_with_the_most_similar_one(lab):
    with pytest.raises(lk.BadInput, match="pause"):
        lab().press("pausee")


def test_presses_from_many_threads_at_once(lab):
    one = lab().set(seconds=30)
    one.run()
    moves = [
        ("pause",), ("resume",), ("slow", "worker-1", 2.0), ("seek", 0.5), ("live",), ("step",), ("run",), ("pin",), ("what_if",),
    ]  # fmt: skip

    def play(seed):
        draws = np.random.default_rng(seed)
        for _ in range(40):
            one.press(*moves[draws.integers(len(moves))])

    hands = [threading.Thread(target=play, args=(seed,)) for seed in range(4)]
    for hand in hands:
        hand.start()
    for hand in hands:
        hand.join()
    one.stop()
    assert one.view().state in ("over", "ready")
    assert all(lk.ledger(trace)["closes"] for trace in one.traces)


def test_wait_gives_up_in_time_and_the_run_goes_on(lab, monkeypatch):
    monkeypatch.setattr("labkit.lab.lab.in_kernel", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda lab: None)
    one = lab().set(seconds=1000)
    one.run()
    with pytest.raises(TimeoutError, match="not idle"):
        one.wait(0.05)
    assert one.view().state == "running"
    one.set(seconds=3).stop()


def test_close_ends_threads_and_widgets_and_is_idempotent():
    before, widgets = threads(), live_widgets()
    one = lk.Lab().set(**QUICK).run()
    one.close()
    one.close()
    assert threads() == before
    assert one.latest.done
    one.press("run")  # no effect
    with pytest.raises(lk.BadInput, match="closed"):
        one.run()
    assert live_widgets() <= widgets


def test_running_a_cell_again_closes_its_lab_and_two_cells_have_two_labs(monkeypatch):
    where = [("cell-1", "first")]
    monkeypatch.setattr("labkit.lab.lab.this_cell", lambda: where[0])
    one = lk.Lab().set(**QUICK).run()
    where[0] = ("cell-2", "second")
    two = lk.Lab()
    where[0] = ("cell-1", "third")
    three = lk.Lab()
    assert one.closed
    assert one.latest.done
    assert three.session.processes is one.session.processes  # a cluster is not started anew
    assert (cells.stale(("cell-1", "next")), cells.stale(("cell-2", "next"))) == ([three], [two])
    two.close()
    three.close()
    assert cells.stale(("cell-1", "next")) == cells.stale(("cell-2", "next")) == []
    assert threads() == []


def test_typed_text_is_parsed_as_a_value(lab):
    one = lab()
    for typed, name, meant in [("8", "seed", 8), ("64, 32", "hidden", (64, 32)), ("momentum:0.8", "optimizer", lk.Momentum(0.8)),
                               ("none", "clip_norm", None), ("", "seed", 8), ("2", "clip_norm", 2.0),
                               ("", "clip_norm", None)]:  # fmt: skip
        one.press("set", {name: typed})
        assert one.settings.value(name) == meant
    one.press("set", {"seed": "eight"})
    assert "seed='eight'" in one.view().problem


def test_repeated_actions_of_one_kind_are_all_executed(lab):
    one = lab().set(seconds=30).run()
    for worker in range(3):
        one.press("slow", f"worker-{worker}", 5.0)
    for rate in (0.05, 0.2):
        one.press("set", {"learning_rate": rate})
    one.stop()
    assert one.view().slow == {f"worker-{i}": 5.0 for i in range(3)}
    assert one.latest.engine.roles["worker-0"].strategy.learning_rate == 0.2


def test_after_the_end_a_worker_cannot_be_slowed_and_its_kill_is_in_the_share_text(lab):
    one = lab().run().wait()
    with pytest.raises(lk.BadInput, match="run is over"):
        one.slow("worker-1", 5)
    assert one.settings.cluster.slow == {}
    one.run().pause()
    one.kill("worker-1")
    assert "kill:worker-1@" in one.share_text()
    one.resume().wait()
    two = lk.Lab.from_share_text(one.share_text())
    two.run().wait()
    assert [(m.time, str(m)) for m in two.trace.events if m.kind == "killed"] == [
        (m.time, str(m)) for m in one.trace.events if m.kind == "killed"
    ]
    assert two.trace.ending["time"] == one.trace.ending["time"]
    two.close()


def test_an_old_run_of_the_table_can_go_another_way(lab):
    one = lab().run().wait().set(strategy="sync-ps").run().wait()
    one.show_run(1).seek(1.0).what_if().wait()
    assert [row["strategy"] for row in one.runs] == ["AsyncPS", "SyncPS", "AsyncPS"]
    with pytest.raises(lk.BadInput, match="end of the run"):
        one.what_if()


def test_a_closed_cluster_is_refused_before_anything_is_lost(lab):
    cluster = lk.DaskCluster(workers=2)
    one = lab("digits", "async-ps", cluster).run().wait()
    was = one.trace
    cluster.close()
    one.set(engine="dask")
    with pytest.raises(lk.BadInput, match="has been closed"):
        one.run()
    assert one.trace is was
