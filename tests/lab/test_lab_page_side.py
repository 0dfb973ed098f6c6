"""Beside the pictures: every setting can be turned, everybody can be disturbed, runs are looked at and pinned."""

from __future__ import annotations

import base64
import re

import ipywidgets
import pytest
from page_stub import STORY, button, entries, labelled, seen, text, trace, view

import labkit as lk
from labkit.engines.commands import COMMANDS, Cut, Reconnect, Restart, Thaw
from labkit.lab.controls import controls
from labkit.lab.settings import Settings


@pytest.mark.parametrize("strategy", ["async-ps", "ssp", "sync-ps", "local-sgd", "pipeline", "dpsgd"])
def test_every_control_is_on_the_page_and_turns_its_setting(open_page, strategy):
    setup = Settings().changed(strategy=strategy)
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
    setup = Settings().changed(strategy="ssp")
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
    setups = [Settings().changed(strategy=name) for name in ("ssp", "async-ps")]
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
    assert page.lab.pressed == [("execute", lk.Slow("worker-1", 5.0)), ("execute", lk.Kill("worker-1"))]


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
    assert page.lab.pressed == [("execute", lk.Slow("worker-33", 2.0))]


ALL = frozenset(COMMANDS.values())
UNDONE = [
    ("Kill", lk.Kill("worker-0", restart=False), "Restart", Restart("worker-0")),  # it stays away until Restart
    ("Freeze", lk.Freeze("worker-0"), "Thaw", Thaw("worker-0")),
    ("Cut off", Cut("worker-0"), "Reconnect", Reconnect("worker-0")),
]


@pytest.mark.parametrize(("label", "command", "back", "undo"), UNDONE)
def test_what_was_done_is_undone_by_the_same_button(open_page, label, command, back, undo):
    page = open_page(view(supported=ALL))
    assert [b.description for b in page.trouble._button_box.children] == ["Kill", "Freeze", "Cut off"]
    pressed = button(page, label)
    pressed.click()
    assert page.lab.pressed[-1] == ("execute", command)
    page.lab.now = view(supported=ALL, undo={"worker-0": frozenset({undo.word})})
    page.show()
    assert pressed.description == back
    assert "w0" in pressed.tooltip
    page.trouble.kit.clock = lambda: 1e9  # no double click
    pressed.click()
    assert page.lab.pressed[-1] == ("execute", undo)
    page.trouble._chip_box.children[1].value = True
    assert pressed.description == label  # nothing was done to the other one


def test_what_the_engine_cannot_do_is_off(open_page):
    page = open_page(view(supported=frozenset({lk.Slow, Cut, Reconnect})))
    assert [b.description for b in page.trouble._button_box.children] == ["Cut off"]
    page.lab.now = view(supported=frozenset())
    page.show()
    assert "lk-off" in button(page, "Cut off")._dom_classes


def test_a_chip_says_how_its_role_is(open_page):
    how = {"worker-1": "killed", "server-0": "cut off"}
    page = open_page(view(supported=ALL, conditions=how))
    chips = page.trouble._chip_box.children
    assert [chip.description for chip in chips] == ["w0", "w1 killed", "w2", "s0 cut off"]
    assert ["lk-away" in chip._dom_classes for chip in chips] == [False, True, False, True]
    assert page.trouble.role == "worker-1"
    assert chips[1].tooltip == "w1 killed"
    page.lab.now = view(supported=ALL)  # an earlier moment is looked at
    page.show()
    assert [chip.description for chip in chips] == ["w0", "w1", "w2", "s0"]
    assert not any("lk-away" in chip._dom_classes for chip in chips)


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
