"""The toolbar: every button, the player, and the state. Without a kernel and a browser."""

from __future__ import annotations

import pytest

from labkit.lab import actions
from labkit.lab.settings import Settings
from labkit.trace.schema import NANO
from tests.lab.page.page_stub import EVERYTHING, SCENARIO, button, by_class, seen, text, trace, view


@pytest.mark.parametrize(
    ("label", "now", "pressed"),
    [
        ("Run", {}, actions.Start()),
        ("Pause", {}, actions.Pause()),
        ("Resume", {"actions": EVERYTHING - {actions.Pause} | {actions.Resume}}, actions.Resume()),
        ("Stop", {}, actions.Stop()),
        ("Reset, same seed 7", {}, actions.Reset()),
        ("Step", {}, actions.Step()),
        ("Pin", {}, actions.Pin()),
        ("What if", {"live": False}, actions.WhatIf()),
        ("Back to live", {"live": False}, actions.BackToLive()),
    ],
)
def test_a_button_carries_out_its_action(open_page, label, now, pressed):
    page = open_page(view(**now))
    assert seen(button(page, label))
    button(page, label).click()
    assert page.lab.pressed == [pressed]


def test_a_reference_run_is_unpinned_with_the_same_button(open_page):
    page = open_page(view(reference=trace(2), actions=EVERYTHING | {actions.Unpin}))
    button(page, "Unpin").click()
    assert page.lab.pressed == [actions.Unpin()]


def test_pause_becomes_resume_at_once_also_while_it_is_carried_out(open_page):
    page = open_page(view(state="running"))
    page.lab.answers = lambda action: {"busy": action.progress}
    button(page, "Pause").click()
    button(page, "Resume").click()
    assert button(page, "Pause")
    assert page.lab.pressed == [actions.Pause(), actions.Resume()]


def test_an_unavailable_button_is_pale_with_a_reason_and_not_disabled(open_page):
    page = open_page(view(actions=frozenset({actions.Start, actions.ChangeSettings}), state="ready"))
    page.set_clock(lambda: 0.0)
    stop = button(page, "Stop")
    assert "lk-off" in stop._dom_classes
    assert not stop.disabled
    page.set_clock(lambda: 5.0)
    stop.click()
    assert page.lab.pressed == []
    assert "stop: not available now" in by_class(page, "lk-now").value


@pytest.mark.parametrize(
    ("now", "label"),
    [
        ({}, "Run"),
        ({"settings": Settings().changed(engine="dask")}, "Run on cluster"),
        ({"changed": ("workers",), "state": "running"}, "Run again"),
        ({"changed": ("workers",), "state": "over"}, "Run"),
    ],
)
def test_the_label_of_the_run_button(open_page, now, label):
    assert by_class(open_page(view(**now)), "lk-main").description == label


def test_a_double_click_is_one_click_but_steps_are_counted(open_page):
    page = open_page()
    page.set_clock(lambda: 100.0)
    for _ in range(2):
        button(page, "Run").click()
        button(page, "Step").click()
    assert page.lab.pressed == [actions.Start(), actions.Step(), actions.Step()]
    page.set_clock(lambda: 101.0)
    button(page, "Run").click()
    assert page.lab.pressed[-1] == actions.Start()


@pytest.mark.parametrize(
    ("now", "reported"),
    [
        ({"state": "running"}, ["● LIVE", "0.5 s", "virtual time"]),
        ({"state": "running", "simulated": False}, ["● LIVE", "on the cluster"]),
        ({"state": "running", "busy": "pausing"}, ["pausing…"]),
        ({"state": "running", "processes": (3, 6)}, ["● PREVIEW", "cluster starting, 3 of 6"]),
        ({"live": False, "replaying": True, "t": NANO // 4}, ["replay 0.25 s"]),
        ({"live": False, "t": NANO // 4}, ["0.25 s", "looking back"]),
        ({"state": "over"}, ["over", "time limit reached"]),
        ({"state": "ready"}, ["ready", "press Run"]),
        ({"state": "failed", "problem": "<no> memory"}, ["failed", "&lt;no&gt; memory"]),
    ],
)
def test_the_state_is_shown(open_page, now, reported):
    page = open_page(view(**now))
    for words in reported:
        assert words in text(page), words


def test_the_end_of_the_run_is_shown(open_page):
    shown = Settings().changed(accuracy=0.95)
    page = open_page(view(shown=shown, state="running", ends=12 * NANO))
    assert all(words in by_class(page, "lk-ends").value for words in ("ends at 12 s", "or at 95%", "12 s left"))
    assert "left" not in by_class(open_page(view(state="over")), "lk-ends").value


def test_the_slider_selects_a_past_time_and_its_end_is_now(open_page):
    page = open_page(view(ends=10 * NANO))
    slider = by_class(page, "lk-scrub")
    assert slider.value == slider.max * 0.05  # 0.5 s of 10 s
    slider.value = slider.max // 100
    assert page.lab.pressed == [actions.Seek(pytest.approx(0.1))]
    slider.value = slider.max
    assert page.lab.pressed[-1] == actions.BackToLive()


def test_menus_select_speed_and_scenario(open_page):
    page = open_page()
    by_class(page, "lk-speed").value = 10.0
    by_class(page, "lk-scenario").value = "slow-worker"
    assert page.lab.pressed == [actions.ChangeSettings({"speed": 10.0}), actions.PlayScenario("slow-worker")]
    page.lab.now = view(scenario=SCENARIO)
    page.refresh()
    assert by_class(page, "lk-scenario").value == "slow-worker"
    by_class(page, "lk-scenario").value = ""
    assert page.lab.pressed[-1] == actions.PlayScenario(None)


def test_a_speed_that_is_not_in_the_menu_is_shown_too(open_page):
    page = open_page(view(settings=Settings(speed=3.5)))
    assert by_class(page, "lk-speed").value == 3.5


def test_updating_the_controls_sends_no_command(open_page):
    page = open_page()
    other = Settings(speed=5.0).changed(
        strategy="ssp", s=5, workers=8, pace=0.5, batch_size=64, seconds=60, accuracy=0.9
    )
    for now in (
        view(settings=other, t=NANO // 4, live=False), view(settings=other, scenario=SCENARIO, ends=None),
        view(trace(40), settings=other), view(trace(3, slow=True), slow={"worker-1": 5.0}), view(), view(trace(5)),
    ):  # fmt: skip
        page.lab.now = now
        page.refresh()
    assert page.lab.pressed == []
