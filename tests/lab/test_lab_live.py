"""Watching a run with no kernel and no browser: threads end, labs close, players play, nothing is lost or hangs."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import labkit as lk
from labkit.lab import cells
from labkit.lab.echo import listen
from labkit.lab.live import Watch
from labkit.lab.painter import Painter
from labkit.lab.player import Player
from labkit.lab.screen import Canvas
from labkit.views import bare, make_panel

PANELS = ("staleness", "throughput")


def start(seconds=1.0, **cluster):
    """A run in virtual time that stands at zero."""
    cluster = lk.SimulatedCluster(**{"workers": 3, "compute": lk.Deterministic(0.05), **cluster})
    return lk.train(lk.Problem("digits", hidden=(8,)), lk.AsyncPS(), cluster, lk.Budget(seconds=seconds)).advance(0)


def until(condition, seconds=20.0):
    """Wait for something that another thread does."""
    end = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        pause.wait(0.005)


@pytest.fixture(autouse=True)
def no_thread_left():
    """Every test leaves as many labkit threads as it found."""
    yield
    until(lambda: not [t for t in threading.enumerate() if t.name.startswith("labkit-watch")], 10)


def test_the_thread_ends_when_the_run_ends_and_the_last_frame_shows_the_end():
    run = start()
    watch = Watch(run, PANELS)
    assert watch.wait() is run
    assert not watch._painter.alive
    assert "ended: seconds" in watch._status.value
    assert all(bytes(screen.image.value).startswith(b"\x89PNG") for screen in watch.screens)
    assert "the law says N − 1 = 2" in watch._sentence.value
    assert "closes" in watch._exact.value
    assert watch._stop.disabled
    watch.close()


def test_a_run_that_is_over_can_be_watched():
    watch = Watch(start().wait(), "timeline")
    assert watch._painter.join(20)
    assert watch.screens[0].image.value
    watch.close()


def test_close_ends_the_thread_of_a_run_that_goes_on_and_twice_is_as_good_as_once():
    run = start()
    watch = Watch(run, PANELS)
    watch.close()
    watch.close()
    assert not watch._painter.alive
    assert not run.done


def test_two_watches_of_one_run():
    run = start()
    one, two = Watch(run, "staleness"), run.watch(panels="accuracy")
    run.wait()
    assert one._painter.join(20)
    assert two._painter.join(20)
    one.close()
    two.close()


def test_a_player_plays_a_run_to_its_end():
    run = start(seconds=0.3)
    watch = run.watch(panels="staleness", speed=3.0)
    assert watch.wait() is run
    assert run.stopped_by == "seconds"
    watch.close()


def test_buttons_pause_resume_and_stop():
    run = start(seconds=1000)
    watch = run.watch(panels="staleness", speed=1.0)
    watch._pause.click()
    assert watch.player.paused
    until(lambda: watch._pause.description == "Resume")
    watch._pause.click()
    assert not watch.player.paused
    watch._stop.click()
    assert run.stopped_by == "user"
    assert watch._painter.join(20)
    watch.close()


def test_an_error_while_drawing_is_shown_and_does_not_end_the_watch(monkeypatch):
    run = start()
    watch = Watch(run, "staleness")

    def broken(*_):
        raise ValueError("<broken> on purpose")

    monkeypatch.setattr(watch.screens[0].panel, "update", broken)
    watch._painter.wake()
    run.advance(0.2)
    watch._painter.answer(watch._painter.frame)
    until(lambda: "&lt;broken&gt; on purpose" in watch._status.value)
    assert watch._painter.alive
    run.wait()
    assert watch._painter.join(20)
    watch.close()


def test_an_error_of_a_button_is_shown():
    run = start()
    watch = Watch(run, "staleness")
    watch.run = type("Run", (), {"done": False, "engine": run.engine, "pause": lambda self: 1 / 0})()
    watch._pause.click()
    until(lambda: "ZeroDivisionError" in watch._status.value)
    watch.close()


def test_what_a_widget_says_does_not_wait_for_the_cell_that_made_it():
    run = start()
    watch = Watch(run, "staleness")
    watch._stop.comm._reply_subshell_id = None  # as ipykernel 7.4 does whenever a cell speaks to the widget
    listen(watch._stop)
    assert "_reply_subshell_id" not in vars(watch._stop.comm)
    watch.close()
    listen(watch._stop)


def test_watching_for_some_seconds_only():
    run = start()
    watch = Watch(run, "staleness", seconds=0.001)
    assert watch._painter.join(20)
    assert not run.done
    watch.close()


def test_its_text_is_stable_and_its_snapshot_is_a_figure():
    watch = Watch(start().wait(), "staleness")
    data, _ = watch._repr_mimebundle_()
    assert data["text/plain"] == "<labkit Watch>"
    assert len(watch.snapshot().axes) == 5
    watch.close()


@pytest.mark.parametrize("wrong", [{"panels": "stalenes"}, {"seconds": 0}, {"speed": -1}, {"speed": True}])
def test_wrong_options_are_refused_and_leave_no_thread(wrong):
    with pytest.raises(lk.BadInput):
        start().watch(**wrong)


def test_running_a_cell_again_closes_what_it_made_before():
    class Lab:
        closed = 0

        def close(self):
            self.closed += 1
            cells.forget(self)

    one, two, three, other = Lab(), Lab(), Lab(), Lab()
    cells.remember(one, ("cell", "first run"))
    cells.remember(two, ("cell", "first run"))
    cells.remember(other, ("other cell", "its run"))
    assert not one.closed
    cells.remember(three, ("cell", "second run"))
    assert (one.closed, two.closed, three.closed, other.closed) == (1, 1, 0, 0)
    assert cells.open_labs() == [other, three] or cells.open_labs() == [three, other]
    for lab in (three, other):
        lab.close()
    assert cells.open_labs() == []
    cells.remember(one, None)
    assert cells.open_labs() == []


def test_a_painter_waits_for_answers_and_draws_the_newest():
    frames, seen = [], threading.Event()

    def paint(frame):
        frames.append(frame)
        seen.set()
        return True

    painter = Painter("labkit-watch-test", paint)
    painter.answered = 0  # a browser that has answered before
    painter.start()
    until(lambda: len(frames) >= 1)
    painter.answer(1)
    until(lambda: len(frames) >= 2)
    painter.answer(2)
    until(lambda: len(frames) >= 3)
    assert frames == sorted(frames)
    painter.close()
    assert not painter.alive
    painter.answer(3)  # too late: a closed painter stays closed
    assert not painter.alive


def test_a_frame_is_due_only_when_the_one_before_the_last_was_answered():
    painter = Painter("unused", lambda _: True)
    painter.frame, painter.answered, painter._heard = 5, 4, 100.0
    assert painter._due(100.5, 100.0, 0.1)
    assert not painter._due(100.05, 100.0, 0.1)  # the budget of drawing time
    painter.answered = 3
    assert not painter._due(100.5, 100.0, 0.1)
    assert painter._due(101.5, 100.0, 0.1)  # a slow kernel, not a closed tab
    painter.answered = -1
    assert not painter._due(100.3, 100.0, 0.1)
    assert painter._due(100.5, 100.0, 0.1)  # never an answer: the slow rate


def test_drawing_takes_its_share_of_a_core_and_no_more():
    painter = Painter("unused", lambda _: True, share=0.1)
    assert painter._period(0.05) == pytest.approx(0.5)
    assert painter._period(0.001) == 0.1  # never faster than eyes are


@pytest.mark.parametrize("name", [*PANELS, "timeline", "gradient_flow", "accuracy", "loss"])
def test_a_frame_on_kept_axes_is_the_frame_drawn_anew(name):
    cluster = lk.SimulatedCluster(workers=3, compute=lk.Deterministic(0.05))
    faults = [lk.Slow("worker-1", 4, at=1.0)]
    run = lk.train(lk.Problem("digits", hidden=(8,)), lk.AsyncPS(), cluster, lk.Budget(seconds=2), faults=faults)
    trace, canvas = run.wait().trace, Canvas(make_panel(name))
    for t, scale in ((0.0, 1), (0.8, 1), (0.81, 1), (1.7, 1), (2.0, 1), (2.0, 2), (0.5, 1)):
        anew = make_panel(name)
        figure = bare(anew)
        for panel in (anew, canvas.panel):
            panel.update(trace, round(t * 1e9))
        figure.set_dpi(scale * figure.get_dpi())
        figure.canvas.draw()
        np.testing.assert_array_equal(canvas.draw(scale), np.asarray(figure.canvas.buffer_rgba()))


def test_a_player_moves_time_as_its_clock_does_and_forgets_pauses():
    run, now = start(seconds=100), [0.0]
    player = Player(run, 2.0, clock=lambda: now[0])
    player.tick()
    now[0] = 0.3
    player.tick()
    assert run.trace.now == 600_000_000
    player.pause()
    now[0] = 5.0
    player.tick()
    player.resume()
    player.tick()
    now[0] = 5.1
    player.tick()
    assert run.trace.now == 800_000_000
    player.stop()


def test_the_lab_is_not_loaded_before_it_is_used():
    code = "import sys, labkit.lab; sys.exit(any(m in sys.modules for m in ('ipywidgets', 'matplotlib')))"
    subprocess.run([sys.executable, "-c", code], check=True)
