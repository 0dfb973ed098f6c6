"""What the page of a lab sends to the browser: all of one run, and fields that show the setting after a refusal.

The session is real, in virtual time, with a clock of the test; the widget records what is sent. A frame is drawn when a test asks
for it.
"""

from __future__ import annotations

import threading

import pytest

import labkit as lk
from labkit.lab.page import Page
from labkit.lab.page.drawing_thread import DrawingThread
from labkit.lab.processes import Processes
from labkit.lab.scenario_runner import ScenarioRunner
from labkit.lab.session import Session
from labkit.lab.settings import Settings
from labkit.lab.view import make_view
from labkit.narrative import sentence
from labkit.views import PANELS, make_panel

SHOWN = ("timeline", "staleness", "throughput")


class Widget:
    """Records what is sent, in order: ("put", sections) or ("message", content)."""

    model_id = "1"

    def __init__(self, received):
        self.state, self.sent, self.lock, self.received = {}, [], threading.RLock(), received

    def put(self, **sections):
        changed = {name: value for name, value in sections.items() if self.state.get(name) != value}
        self.state |= changed
        if changed:
            self.sent.append(("put", changed))
        return bool(changed)

    def message(self, content, buffers=None):
        self.sent.append(("message", content))

    def close(self):
        pass


class Host:
    """A lab without threads, in which only settings can be changed."""

    def __init__(self):
        self.now, self.problem = 0.0, ""
        self.session = Session(Settings().changed(workers=3, seconds=4), Processes(), lambda: self.now, slice_s=60.0)
        self.runner = ScenarioRunner(self.session)

    def view(self):
        return make_view(self.session, self.runner, "", self.problem)

    def press(self, name, settings):
        self.problem = ""
        try:
            read = self.session.next_run.settings.read
            self.session.history.change({name: read(name, text) for name, text in settings.items()})
        except lk.BadInput as error:
            self.problem = str(error)

    def scenarios(self):
        return {}

    def share_text(self):
        return "strategy=async-ps"

    def play(self, seconds):
        for _ in range(round(seconds / 0.1)):
            self.now += 0.1
            self.session.advance()


@pytest.fixture
def opened(monkeypatch):
    """(page, host, function that draws one frame)."""
    monkeypatch.setattr("labkit.lab.page.page.PageWidget", Widget)
    paints = []

    def make_thread(name, paint):
        paints.append(paint)
        thread = DrawingThread(name, paint)
        thread.close()  # frames are drawn by the test
        return thread

    host = Host()
    page = Page(host, SHOWN, make_thread=make_thread)
    yield page, host, paints[0]
    page.close()


def runs_shown(sent):
    """The number of the run of each frame, and what arrived together with a change of the number."""
    run, frames, together = None, [], []
    for kind, content in sent:
        if kind == "put" and content.get("player", {}).get("run", run) != run:
            run = content["player"]["run"]
            together.append(content)
        elif kind == "message":
            frames.append((run, content))
    return frames, together


def test_a_start_replaces_all_texts_at_once_and_then_draws_all_panels(opened):
    page, host, paint = opened
    host.session.start()
    host.play(2.0)
    paint()
    page.widget.sent.clear()
    host.session.start()
    host.session.advance()
    paint()
    frames, together = runs_shown(page.widget.sent)
    assert page.widget.sent[0][0] == "put"  # before any picture
    assert {"player", "headline", "numbers", "log_lines"} <= set(together[0])
    assert {name: value for name, value, _ in together[0]["numbers"]["values"]}["applied"] == "0"
    headline = together[0]["headline"]
    assert headline["first"] + headline["rest"] == sentence(host.session.displayed.trace, 0)
    assert len(together) == 1
    assert [panel["name"] for _, frame in frames for panel in frame["panels"]] == list(SHOWN)
    view = host.view()
    for panel in frames[0][1]["panels"]:
        assert panel["caption"] == make_panel(panel["name"], view.reference).caption(view.trace, view.t)
        assert {"axes", "content"} <= set(panel)


@pytest.mark.parametrize("by_press", [False, True])
def test_no_picture_of_a_run_is_sent_after_the_texts_of_the_next_one(opened, monkeypatch, by_press):
    """The next run begins while a frame is drawn, and the reaction to a press shows it first."""
    page, host, paint = opened
    host.session.start()
    host.play(1.0)
    paint()
    update, drawn = PANELS["staleness"].update, []

    def begins_another(self, trace, t):
        update(self, trace, t)
        drawn.append(trace)
        if len(drawn) == 1:
            host.session.start()
            if by_press:
                page.refresh()

    monkeypatch.setattr(PANELS["staleness"], "update", begins_another)
    host.play(0.5)
    before = host.session.displayed.trace
    page.widget.sent.clear()
    paint()
    after_first = len(page.widget.sent)
    paint()
    assert drawn[0] is before
    assert drawn[1] is host.session.displayed.trace is not before
    sent_first = [content for kind, content in page.widget.sent[:after_first] if kind == "message"]
    assert len(sent_first) == (0 if by_press else 1)  # of the run before, but before the texts of the next one
    frames, together = runs_shown(page.widget.sent)
    assert together[-1]["numbers"]
    assert [panel["name"] for panel in frames[-1][1]["panels"]] == list(SHOWN)


def test_settings_before_the_first_run_do_not_clear_the_panels(opened):
    page, _, paint = opened
    paint()
    run = page.widget.state["player"]["run"]
    page.widget.received({"do": "press", "action": "set", "args": [{"workers": "5"}]})
    paint()
    assert len(page.widget.state["faults"]["roles"]) == 6  # five workers and a server
    assert page.widget.state["player"]["run"] == run


# fields ---------------------------------------------------------------------------------------------------------------


def control(page, name):
    return next(each for each in page.widget.state["controls"] if each["name"] == name)


@pytest.mark.parametrize("typed", ["-5", "1e99", "x", "nan"])
def test_a_refused_value_is_answered_with_the_setting_and_a_message(opened, typed):
    page, _, _ = opened
    before = control(page, "learning_rate")
    page.widget.sent.clear()
    page.widget.received({"do": "press", "action": "set", "args": [{"learning_rate": typed}]})
    after = control(page, "learning_rate")
    assert after["value"] == before["value"] == 0.1
    assert after["received"] == before["received"] + 1  # so the browser shows the setting again
    assert page.widget.state["headline"]["error"]
    assert "from 0.000001 to 10" in page.widget.state["headline"]["rest"]
    assert len([kind for kind, _ in page.widget.sent if kind == "put"]) == 1  # one reaction


def test_a_typed_value_beyond_the_slider_is_accepted(opened):
    page, host, _ = opened
    page.widget.received({"do": "press", "action": "set", "args": [{"learning_rate": "1e-5"}]})
    assert host.session.next_run.settings.strategy.learning_rate == 1e-5
    shown = control(page, "learning_rate")
    assert shown["value"] == 1e-5 < shown["low"]
    assert not page.widget.state["headline"]["error"]
