"""The page of a lab with no kernel and no browser: the widgets are real, and what a person does to them is done to them.

The lab is a stub that is shown and that writes down what it is asked; at the end a real one.
"""

from __future__ import annotations

import base64
import dataclasses
import re
import threading
import time
from functools import cache

import ipywidgets
import pytest

import labkit as lk
from labkit.errors import BadInput
from labkit.lab.controls import controls
from labkit.lab.page import Page
from labkit.lab.page.kit import Dial, Kit
from labkit.lab.page.painter import GONE
from labkit.lab.setup import Setup, Shape
from labkit.lab.stage import Entry
from labkit.lab.story import Act, Question, Story
from labkit.lab.view import View
from labkit.trace.vocabulary import NANO
from labkit.views import PANELS
from labkit.words import run_row

EVERYTHING = frozenset(
    {"run", "pause", "stop", "reset", "step", "pin", "seek", "what_if", "slow", "kill", "set", "live"}
)
STORY = Story(
    "slow-worker", "One slow worker", "Everybody waits.", (Act(says="Synchronous."), Act(says="Asynchronous.")),
    question=Question("Throughput falls to …", ("80%", "50%", "20%"), 2, "You said {said}; it fell to {right}."),
)  # fmt: skip


@cache
def trace(workers=3, seconds=0.5, slow=False):
    """A record to look at."""
    faults = [lk.Slow("worker-1", 5, at=0.2)] if slow else []
    cluster = lk.SimulatedCluster(workers, compute=lk.Deterministic(0.05))
    run = lk.train(lk.Problem("digits", hidden=(8,)), lk.AsyncPS(), cluster, lk.Budget(seconds=seconds), faults=faults)
    return run.wait().trace


def view(of=None, **more):
    """What a lab would say that is looking at this record."""
    of = trace() if of is None else of
    setup = Setup(shape=Shape(workers=3))
    plain = {
        "trace": of, "t": of.watermark(), "recorded": of.watermark(), "ends": 10 * NANO, "live": True, "state": "paused",
        "replaying": False, "simulated": True, "pinned": None, "setup": setup, "shown": setup, "changed": (),
        "entries": (), "cluster": None, "busy": "", "problem": "", "story": None, "act": -1, "says": "", "asked": False,
        "said": None, "slow": {}, "verbs": ("slow", "kill"), "can": EVERYTHING, "dashboard": None,
    }  # fmt: skip
    return View(**{**plain, **more})


class Stub:
    """A lab that does nothing. `answers`: what each press does to it."""

    def __init__(self, now):
        self.now, self.pressed, self.answers = now, [], lambda name, *arguments: {}

    def view(self):
        return self.now

    def press(self, name, *arguments):
        self.pressed.append((name, *arguments))
        self.now = dataclasses.replace(self.now, **self.answers(name, *arguments))

    def stories(self):
        return {STORY.name: STORY.title}

    def code(self):
        return "strategy=async-ps"


def until(condition, seconds=20.0):
    """Wait for something that another thread does."""
    end, pause = time.monotonic() + seconds, threading.Event()
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        pause.wait(0.005)


@pytest.fixture
def open_page(monkeypatch):
    """Make pages of stubs; their threads are over, so that only the test writes. All are closed in the end."""
    monkeypatch.setattr("labkit.lab.page.page.SETTLES", 0.02)
    made = []

    def make(now=None, panels=("staleness",), controls=None, drawing=False):
        page = Page(Stub(view() if now is None else now), panels, controls)
        page.kit.clock = iter(range(0, 10**9, 10)).__next__  # each time somebody looks it is ten seconds later
        made.append(page)
        if not drawing:
            page.painter.close()
        page.show()
        return page

    yield make
    for page in made:
        page.close()
    until(lambda: not [t for t in threading.enumerate() if t.name.startswith("labkit-page")])


def all_widgets(page):
    """Everything on the page, by walking the boxes."""
    found, todo = [], [page.box]
    while todo:
        widget = todo.pop()
        found.append(widget)
        todo += getattr(widget, "children", ())
    return found


def button(page, label):
    """The button that says so."""
    found = [w for w in all_widgets(page) if isinstance(w, ipywidgets.Button) and w.description.startswith(label)]
    assert found, label
    return found[0]


def labelled(page, kind, label):
    """The widget of this kind with this description."""
    return next(w for w in all_widgets(page) if isinstance(w, kind) and w.description == label)


def seen(widget):
    return "lk-gone" not in widget._dom_classes


def text(page):
    """All that is said on the page."""
    return " ".join(
        re.sub("<style>.*</style>", "", w.value) for w in all_widgets(page) if isinstance(w, ipywidgets.HTML)
    )


# the top --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "now", "pressed"),
    [
        ("Run", {}, "run"),
        ("Pause", {}, "pause"),
        ("Resume", {"can": EVERYTHING - {"pause"} | {"resume"}}, "resume"),
        ("Stop", {}, "stop"),
        ("Reset, same seed 7", {}, "reset"),
        ("Step", {}, "step"),
        ("Pin", {}, "pin"),
        ("What if", {"live": False}, "what_if"),
        ("Back to live", {"live": False}, "live"),
    ],
)
def test_a_button_says_what_it_does_to_the_lab(open_page, label, now, pressed):
    page = open_page(view(**now))
    assert seen(button(page, label))
    button(page, label).click()
    assert page.lab.pressed == [(pressed,)]


def test_a_pinned_run_is_unpinned_with_the_same_button(open_page):
    page = open_page(view(pinned=trace(2), can=EVERYTHING | {"unpin"}))
    button(page, "Unpin").click()
    assert page.lab.pressed == [("unpin",)]


def test_pause_turns_over_at_once_and_is_not_lost_while_it_is_being_done(open_page):
    page = open_page(view(state="running"))
    page.lab.answers = lambda name, *_: {"busy": {"pause": "pausing", "resume": "going on"}[name]}
    button(page, "Pause").click()
    button(page, "Resume").click()
    assert button(page, "Pause")
    assert page.lab.pressed == [("pause",), ("resume",)]


def test_what_makes_no_sense_now_is_pale_and_says_so_and_keeps_the_focus(open_page):
    page = open_page(view(can=frozenset({"run", "set"}), state="ready"))
    page.kit.clock = lambda: 0.0
    stop = button(page, "Stop")
    assert "lk-off" in stop._dom_classes
    assert not stop.disabled
    page.kit.clock = lambda: 5.0
    stop.click()
    assert page.lab.pressed == []
    assert "stop: not now" in page.top._now.value


@pytest.mark.parametrize(
    ("now", "label"),
    [
        ({}, "Run"),
        ({"setup": Setup(shape=Shape(engine="dask"))}, "Run for real"),
        ({"changed": ("workers",), "state": "running"}, "Run again"),
        ({"changed": ("workers",), "state": "over"}, "Run"),
    ],
)
def test_the_run_button_says_what_will_be_run(open_page, now, label):
    assert open_page(view(**now)).top._run.description == label


def test_a_double_click_is_one_click_but_steps_are_counted(open_page):
    page = open_page()
    page.kit.clock = lambda: 100.0
    for _ in range(2):
        button(page, "Run").click()
        button(page, "Step").click()
    assert page.lab.pressed == [("run",), ("step",), ("step",)]
    page.kit.clock = lambda: 101.0
    button(page, "Run").click()
    assert page.lab.pressed[-1] == ("run",)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"state": "running"}, ["● LIVE", "0.5 s", "simulated"]),
        ({"state": "running", "simulated": False}, ["● LIVE", "real processes"]),
        ({"state": "running", "busy": "pausing"}, ["pausing…"]),
        ({"state": "running", "cluster": (3, 6)}, ["● simulated", "cluster starting, 3 of 6"]),
        ({"live": False, "replaying": True, "t": NANO // 4}, ["replaying 0.25 s"]),
        ({"live": False, "t": NANO // 4}, ["0.25 s", "looking back"]),
        ({"state": "over"}, ["over", "its time is up"]),
        ({"state": "ready"}, ["ready", "press Run"]),
        ({"state": "failed", "problem": "<no> memory"}, ["failed", "&lt;no&gt; memory"]),
    ],
)
def test_where_we_are_is_said(open_page, now, said):
    page = open_page(view(**now))
    for words in said:
        assert words in text(page), words


def test_when_the_run_stops_by_itself_is_said(open_page):
    shown = Setup().changed(accuracy=0.95)
    page = open_page(view(shown=shown, state="running", ends=12 * NANO))
    assert all(words in page.top._ends.value for words in ("stops at 12 s", "or at 95%", "12 s left"))
    assert "left" not in open_page(view(state="over")).top._ends.value


def test_the_slider_looks_back_and_its_end_is_now(open_page):
    page = open_page(view(ends=10 * NANO))
    slider = page.top._scrub.widget
    assert slider.value == slider.max * 0.05  # 0.5 s of 10 s
    slider.value = slider.max // 100
    assert page.lab.pressed == [("seek", pytest.approx(0.1))]
    slider.value = slider.max
    assert page.lab.pressed[-1] == ("live",)


def test_a_choice_of_speed_and_of_a_story(open_page):
    page = open_page()
    page.top._speed.widget.value = 10.0
    page.top._story.widget.value = "slow-worker"
    assert page.lab.pressed == [("set", {"speed": 10.0}), ("tell", "slow-worker")]
    page.lab.now = view(story=STORY)
    page.show()
    assert page.top._story.widget.value == "slow-worker"
    page.top._story.widget.value = ""
    assert page.lab.pressed[-1] == ("tell", None)


def test_a_speed_that_is_not_in_the_menu_is_shown_too(open_page):
    page = open_page(view(setup=Setup(speed=3.5)))
    assert page.top._speed.widget.value == 3.5


def test_what_the_lab_shows_never_comes_back_as_a_command(open_page):
    page = open_page()
    other = Setup(speed=5.0).changed(strategy="ssp", s=5, workers=8, pace=0.5, batch_size=64, seconds=60, accuracy=0.9)
    for now in (
        view(setup=other, t=NANO // 4, live=False), view(setup=other, story=STORY, ends=None),
        view(trace(40), setup=other), view(trace(3, slow=True), slow={"worker-1": 5.0}), view(), view(trace(5)),
    ):  # fmt: skip
        page.lab.now = now
        page.show()
    assert page.lab.pressed == []


# settings -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["async-ps", "ssp", "sync-ps", "local-sgd", "pipeline", "dpsgd"])
def test_every_control_is_on_the_page_and_turns_its_setting(open_page, strategy):
    setup = Setup().changed(strategy=strategy)
    page = open_page(view(setup=setup, shown=setup))
    page.side._sections["more"]._fold()
    knobs = {name: knob for section in page.side._sections.values() for name, knob in section._knobs.items()}
    found = {control.name: control for control in controls(setup)}
    assert set(knobs) == set(found)
    for name, control in found.items():
        page.lab.pressed.clear()
        widget = knobs[name].widget
        if len(control.choices) == 1:
            continue
        if control.choices:
            place = (widget.index + 1) % len(control.choices)
            wanted = control.choices[place][1]
            widget.index = place
        elif control.kind == "check":
            widget.value = wanted = not control.value
        elif control.kind == "slider":
            wanted = 0.5 if control.value != 0.5 else 0.25
            widget.value = wanted
        else:
            widget.value, wanted = " 17 ", "17"
        assert page.lab.pressed == [("set", {name: wanted})]
        if control.choices:  # the stub has not taken it: the widget is put back
            assert control.choices[widget.index][1] == control.value
        else:
            assert widget.value == pytest.approx(control.value)


def test_what_is_refused_is_put_back_and_said(open_page):
    page = open_page()
    page.lab.answers = lambda name, settings: {"problem": "workers=2 is not <allowed>"}
    workers = page.side._sections["cluster"]._knobs["workers"].widget
    before = workers.index
    workers.index = 0
    assert page.lab.pressed == [("set", {"workers": 1})]
    assert workers.index == before
    assert "workers=2 is not &lt;allowed&gt;" in page.headline.box.value


def test_another_strategy_keeps_what_it_can_and_closes_the_rest(open_page):
    page = open_page()
    algorithm = page.side._sections["algorithm"]
    before = dict(algorithm._knobs)
    setup = Setup().changed(strategy="ssp")
    page.lab.now = view(setup=setup)
    page.show()
    assert algorithm._knobs["strategy"] is before["strategy"]
    assert algorithm._knobs["learning_rate"] is before["learning_rate"]
    assert "s" in algorithm._knobs
    page.lab.now = view()
    page.show()
    assert "s" not in algorithm._knobs


def test_rebuilding_leaves_no_widget_behind(open_page):
    page = open_page()
    setups = [Setup().changed(strategy=name) for name in ("ssp", "async-ps")]
    counts = []
    for setup in setups * 3:
        page.lab.now = view(setup=setup)
        page.show()
        counts.append(len(ipywidgets.widgets.widget._instances))
    assert counts[2:4] == counts[4:6]


def test_settings_of_the_next_run_are_marked(open_page):
    page = open_page(view(changed=("workers",)))
    knobs = page.side._sections["cluster"]._knobs
    assert "lk-next" in knobs["workers"].widget._dom_classes
    assert "lk-next" not in knobs["engine"].widget._dom_classes


def test_only_the_controls_that_were_named(open_page):
    page = open_page(controls=("strategy", "workers"))
    shown = [name for section in page.side._sections.values() for name in section._knobs]
    assert shown == ["strategy", "workers"]
    assert not seen(page.side._sections["stop"].box)


def test_without_controls_there_is_no_column_and_trouble_is_still_there(open_page):
    page = open_page(controls=())
    assert page.side is None
    assert page.trouble.box in page.box.children
    assert page.wall.shown[0].size[0] == 462


# trouble --------------------------------------------------------------------------------------------------------------


def test_choose_a_role_and_slow_it_and_kill_it(open_page):
    page = open_page()
    chips = [w for w in page.trouble._chip_box.children if seen(w)]
    assert [chip.description for chip in chips] == ["w0", "w1", "w2", "s0"]
    assert "lk-server" in chips[3]._dom_classes
    chips[1].value = True
    assert page.trouble.role == "worker-1"
    assert [chip.value for chip in chips] == [False, True, False, False]
    chips[1].value = False  # pressed once more: chosen it stays
    assert chips[1].value
    page.trouble._slower.widget.value = 5.0
    button(page, "Kill").click()
    assert page.lab.pressed == [("slow", "worker-1", 5.0), ("kill", "worker-1")]


def test_who_is_slow_is_orange_and_chosen_until_somebody_chooses(open_page):
    page = open_page(view(slow={"worker-1": 7.0}))
    chips = page.trouble._chip_box.children
    assert "lk-slow" in chips[1]._dom_classes
    assert page.trouble.role == "worker-1"
    assert page.trouble._slower.widget.value == 7.0
    chips[0].value = True
    assert page.trouble.role == "worker-0"
    assert page.trouble._slower.widget.value == 1.0
    assert page.lab.pressed == []


def test_of_many_workers_there_is_a_menu(open_page):
    page = open_page(view(trace(40)))
    assert seen(page.trouble._menu.widget)
    assert not any(seen(chip) for chip in page.trouble._chip_box.children)
    page.trouble._menu.widget.value = "worker-33"
    page.trouble._slower.widget.value = 2.0
    assert page.lab.pressed == [("slow", "worker-33", 2.0)]


def test_more_can_be_done_where_the_engine_can_do_more(open_page):
    page = open_page(view(verbs=("slow", "kill", "freeze", "thaw", "cut_off")))
    for label, verb in (("Freeze", "freeze"), ("Thaw", "thaw"), ("Cut off", "cut_off")):
        button(page, label).click()
        assert page.lab.pressed[-1] == (verb, "worker-0")
    page.lab.now = view(verbs=())
    page.show()
    assert "lk-off" in button(page, "Freeze")._dom_classes


# question, runs, panels, foot -----------------------------------------------------------------------------------------


def test_the_question_is_asked_answered_and_told(open_page):
    page = open_page(view(story=STORY, act=0, says="Synchronous."))
    assert not seen(page.question.box)
    assert "<b>Synchronous. </b>" in page.headline.box.value or page.headline.box.value == ""
    page.lab.now = view(story=STORY, act=0, asked=True)
    page.show()
    assert seen(page.question.box)
    answers = [b for b in page.question._answers if seen(b)]
    assert [b.description for b in answers] == ["80%", "50%", "20%"]
    answers[1].click()
    assert page.lab.pressed == [("answer", 1)]
    page.lab.now = view(story=STORY, act=1, asked=True, said=1, state="running")
    page.show()
    assert "You said <b>50%</b>" in text(page)
    assert "lk-said" in answers[1]._dom_classes
    page.lab.now = view(story=STORY, act=1, asked=True, said=1, state="over")
    page.show()
    assert "You said 50%; it fell to 20%." in text(page)
    assert "lk-wrong" in answers[1]._dom_classes
    assert "lk-right" in answers[2]._dom_classes


def entries():
    setup = Setup()
    return (
        Entry(1, setup.changed(strategy="sync-ps"), trace(2), run_row(trace(2))),
        Entry(2, setup, trace(3), run_row(trace(3))),
    )


def test_the_table_of_runs_looks_and_pins(open_page):
    page = open_page(view(entries=entries(), pinned=trace(2)))
    rows = [row for row in page.side.runs._rows if seen(row[0])]
    assert [row[1].description for row in rows] == ["2 AsyncPS", "1 SyncPS"]
    rows[0][1].click()
    rows[0][3].click()
    rows[1][3].click()
    assert page.lab.pressed == [("look_at", 2), ("pin", 2), ("unpin",)]


def test_the_table_of_runs_is_a_file(open_page):
    page = open_page(view(entries=entries()))
    link = re.search(r'href="data:text/csv;base64,([^"]*)"', page.side.runs._file.value)
    lines = base64.b64decode(link[1]).decode().splitlines()
    assert len(lines) == 3
    assert lines[1].startswith("1,")


def test_panels_are_picked_and_put_in_their_place(open_page):
    page = open_page(panels=("staleness", "accuracy"))
    box = labelled(page, ipywidgets.Checkbox, "throughput")
    box.value = True
    assert page.panels == ("staleness", "throughput", "accuracy")
    assert page.chosen == page.panels
    labelled(page, ipywidgets.Checkbox, "staleness").value = False
    assert page.panels == ("throughput", "accuracy")
    page.choose(None)
    assert page.chosen is None
    assert page.panels[0] == "timeline"


def test_what_is_hidden_lets_go_of_its_run_and_comes_back(open_page):
    page = open_page(panels=("staleness", "throughput"), drawing=True)
    assert page.join(20)
    slot = page.wall.shown[0]
    page.choose(("throughput",))
    assert page.join(20)
    assert not seen(slot.box)
    assert slot._of is None
    assert slot._canvas is None
    page.choose(("throughput", "staleness"))
    assert page.join(20)
    assert page.wall.shown == (page.wall.shown[0], slot)
    assert [s.place.order for s in page.wall.shown] == ["0", "1"]
    assert slot._of is not None


def test_the_last_panel_stays(open_page):
    page = open_page()
    check = labelled(page, ipywidgets.Checkbox, "staleness")
    check.value = False
    assert page.panels == ("staleness",)
    assert check.value


@pytest.mark.parametrize(
    ("panels", "named", "said"),
    [(("stalenes",), None, "staleness"), (None, ("workres",), "workers"), ((), None, "panels")],
)
def test_what_there_is_not_is_refused_before_anything_is_made(panels, named, said):
    before = len(ipywidgets.widgets.widget._instances)
    with pytest.raises(BadInput, match=said):
        Page(Stub(view()), panels, named)
    assert len(ipywidgets.widgets.widget._instances) == before


# drawing --------------------------------------------------------------------------------------------------------------


def test_pictures_words_and_numbers_are_drawn_and_then_the_thread_ends(open_page):
    page = open_page(panels=("timeline", "staleness"), drawing=True)
    assert page.join(20)
    for slot in page.wall.shown:
        assert bytes(slot._image.value).startswith(b"\x89PNG")
        assert slot._scale == 2
    assert "asynchronous" in page.headline.box.value.lower()
    assert "applied" in page.foot._numbers.value
    assert "strategy=async-ps" in text(page)
    assert 'role="log"' in text(page)


def test_an_answered_last_frame_starts_no_other(open_page):
    page = open_page(drawing=True)
    assert page.join(20)
    sent = page.painter.sent
    assert sent >= 1
    page._echo._seen.value = page._echo._sent.value  # what the browser does
    assert page.painter.answered == sent
    assert page.join(20)
    page.wake()
    assert page.join(20)
    assert page.painter.sent == sent  # and nothing new is not sent


def test_another_run_another_picture(open_page):
    page = open_page(drawing=True)
    assert page.join(20)
    first = page.wall.shown[0]._image.value
    page.lab.now = view(trace(6))
    page.wake()
    assert page.join(20)
    assert page.wall.shown[0]._image.value != first
    page.lab.now = view()
    page.wake()
    assert page.join(20)
    assert page.wall.shown[0]._image.value == first


def test_while_something_moves_frames_are_drawn_and_a_look_back_is_at_rest(open_page):
    page = open_page(view(state="running"), drawing=True)
    until(lambda: page.painter.sent >= 1)
    assert page.painter.alive
    page.lab.now = view(state="running", live=False, t=NANO // 4)
    page.wake()
    assert page.join(20)


def test_a_panel_that_cannot_be_drawn_says_so_and_the_others_are_drawn(open_page, monkeypatch):
    def broken(*_):
        raise ValueError("<broken> on purpose")

    monkeypatch.setattr(PANELS["staleness"], "update", broken)
    page = open_page(panels=("staleness", "throughput"), drawing=True)
    assert page.join(20)
    assert "&lt;broken&gt; on purpose" in page.wall.shown[0]._title.value
    assert bytes(page.wall.shown[1]._image.value).startswith(b"\x89PNG")


def test_a_lab_that_cannot_say_what_is_shows_why_and_the_thread_ends(open_page, monkeypatch):
    page = open_page(drawing=True)
    assert page.join(20)
    monkeypatch.setattr(page.lab, "view", lambda: 1 / 0)
    monkeypatch.setattr("labkit.lab.page.page.TRIES", 0)
    page.wake()
    assert page.join(20)
    assert "division by zero" in page.headline.box.value


def test_unpaced_processes_get_more_of_the_machine(open_page):
    setup = dataclasses.replace(Setup(), shape=Shape(engine="dask", compute=None))
    page = open_page(view(state="running", simulated=False, shown=setup), drawing=True)
    until(lambda: page.painter.sent >= 1)
    assert page.painter.share < 0.15


# the end --------------------------------------------------------------------------------------------------------------


def test_closing_takes_every_widget_and_the_thread_away_and_twice_is_as_good_as_once():
    before = set(ipywidgets.widgets.widget._instances)
    page = Page(Stub(view(entries=entries(), story=STORY, asked=True)), ("staleness",), None)
    page.side._sections["more"]._fold()
    page.choose(("accuracy", "throughput"))
    page.close()
    page.close()
    assert not page.painter.alive
    assert set(ipywidgets.widgets.widget._instances) == before
    page.choose(("loss",))
    page.wake()
    page.show()
    assert set(ipywidgets.widgets.widget._instances) == before


def test_two_pages_of_two_labs(open_page):
    one, two = open_page(), open_page(view(trace(6)))
    button(one, "Run").click()
    two.top._scrub.widget.value = 3
    assert one.lab.pressed == [("run",)]
    assert two.lab.pressed == [("seek", pytest.approx(0.1))]
    one.close()
    button(two, "Stop").click()
    assert two.lab.pressed[-1] == ("stop",)


def test_a_browser_that_says_nothing_for_long_is_gone():
    assert GONE <= 60


# the kit --------------------------------------------------------------------------------------------------------------


def test_what_is_there_already_is_not_sent():
    kit = Kit()
    words = kit.html("a b", "one")
    kit.put(words, value="one")
    kit.mark(words, a=True)
    assert kit.writes == 0
    kit.mark(words, a=False, lk_new=True)
    assert words._dom_classes == ("b", "lk-new")
    assert kit.writes == 1
    kit.close()


def test_a_dial_is_left_alone_for_a_moment_after_a_hand_has_moved_it():
    now = [0.0]
    kit = Kit(lambda: now[0])
    turned = []
    dial = Dial(kit, kit.make(ipywidgets.IntSlider, value=1), turned.append, patience=1.0)
    dial.widget.value = 5
    dial.show(1)  # the lab has not heard of it yet
    assert dial.widget.value == 5
    now[0] = 2.0
    dial.show(1)  # and will not do it
    assert dial.widget.value == 1
    assert turned == [5]
    kit.close()
