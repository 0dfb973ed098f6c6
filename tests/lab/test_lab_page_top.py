"""The top of the page: every button, the player, and what is said there. No kernel and no browser."""

from __future__ import annotations

import pytest
from page_stub import EVERYTHING, STORY, button, seen, text, trace, view

from labkit.lab.settings import Settings
from labkit.trace.vocabulary import NANO


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
        ({"setup": Settings().changed(engine="dask")}, "Run for real"),
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
    shown = Settings().changed(accuracy=0.95)
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
    page = open_page(view(setup=Settings(speed=3.5)))
    assert page.top._speed.widget.value == 3.5


def test_what_the_lab_shows_never_comes_back_as_a_command(open_page):
    page = open_page()
    other = Settings(speed=5.0).changed(strategy="ssp", s=5, workers=8, pace=0.5, batch_size=64, seconds=60, accuracy=0.9)
    for now in (
        view(setup=other, t=NANO // 4, live=False), view(setup=other, story=STORY, ends=None),
        view(trace(40), setup=other), view(trace(3, slow=True), slow={"worker-1": 5.0}), view(), view(trace(5)),
    ):  # fmt: skip
        page.lab.now = now
        page.show()
    assert page.lab.pressed == []
