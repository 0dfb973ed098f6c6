"""Beside the panels: settings, fault injection, the question, the list of runs, the choice of panels."""

from __future__ import annotations

import base64
import gc
import re
import weakref

import ipywidgets
import pytest

import labkit as lk
from labkit.engines.commands import COMMANDS, Cut, Reconnect, Restart, Thaw
from labkit.lab import actions
from labkit.lab.controls import controls
from labkit.lab.settings import Settings
from tests.lab.page.page_stub import (
    SCENARIO,
    all_widgets,
    button,
    by_class,
    entries,
    labelled,
    panel,
    seen,
    setting,
    text,
    trace,
    view,
)


def settings_in(page):
    """The widgets of all settings in the column of controls."""
    kinds = {"lk-setting", "lk-check"}
    sections = [box for box in by_class(page, "lk-side").children if "lk-faults" not in str(names_in(box))]
    return [w for box in sections for w in box.children if kinds & set(w._dom_classes)]


def names_in(box):
    """The classes of the children of a box."""
    return [name for child in box.children for name in child._dom_classes]


@pytest.mark.parametrize("strategy", ["async-ps", "ssp", "sync-ps", "local-sgd", "pipeline", "dpsgd"])
def test_every_control_is_on_the_page_and_changes_its_setting(open_page, strategy):
    settings = Settings().changed(strategy=strategy)
    page = open_page(view(settings=settings, shown=settings))
    button(page, "more").click()
    found = {control.name: control for control in controls(settings)}
    assert len(settings_in(page)) == len(found)
    for name, control in found.items():
        page.lab.pressed.clear()
        widget = setting(page, "" if name == "strategy" else control.label)
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
        assert page.lab.pressed == [actions.ChangeSettings({name: wanted})]
        if control.choices:  # the stub has not accepted it: the widget is reset
            assert control.choices[widget.index][1] == control.value
        else:
            assert widget.value == pytest.approx(control.value)


def test_a_refused_setting_is_reset_and_the_reason_shown(open_page):
    page = open_page()
    page.lab.answers = lambda action: {"problem": "workers=2 is not <allowed>"}
    workers = setting(page, "workers")
    before = workers.index
    workers.index = 0
    assert page.lab.pressed == [actions.ChangeSettings({"workers": 1})]
    assert workers.index == before
    assert "workers=2 is not &lt;allowed&gt;" in by_class(page, "lk-headline").value


def test_changing_the_strategy_keeps_common_controls_and_closes_the_others(open_page):
    page = open_page()
    strategy, rate = setting(page, ""), setting(page, "learning rate")
    page.lab.now = view(settings=Settings().changed(strategy="ssp"))
    page.refresh()
    assert setting(page, "") is strategy
    assert setting(page, "learning rate") is rate
    assert "s" in [w.description for w in settings_in(page)]
    page.lab.now = view()
    page.refresh()
    assert "s" not in [w.description for w in settings_in(page)]


def test_rebuilding_leaves_no_widget_behind(open_page):
    page = open_page()
    choices = [Settings().changed(strategy=name) for name in ("ssp", "async-ps")]
    counts = []
    for settings in choices * 3:
        page.lab.now = view(settings=settings)
        page.refresh()
        counts.append(len(ipywidgets.widgets.widget._instances))
    assert counts[2:4] == counts[4:6]


def test_settings_of_the_next_run_are_marked(open_page):
    page = open_page(view(changed=("workers",)))
    assert "lk-next" in setting(page, "workers")._dom_classes
    assert "lk-next" not in setting(page, "engine")._dom_classes


def test_only_the_controls_that_were_named(open_page):
    page = open_page(controls=("strategy", "workers"))
    assert [w.description for w in settings_in(page)] == ["", "workers"]
    heads = [box.children[0] for box in by_class(page, "lk-side").children if seen(box)]
    assert [head.value for head in heads] == ["algorithm", "cluster", "inject a fault", "runs"]


def test_without_controls_there_is_no_column_but_fault_injection(open_page):
    page = open_page(controls=())
    assert not [w for w in all_widgets(page) if "lk-side" in w._dom_classes]
    assert seen(by_class(page, "lk-chips"))
    assert "lk-full" in page.box._dom_classes
    assert ".lk-full .lk-p-staleness img { aspect-ratio: 462 /" in by_class(page, "lk-css").value


# faults ---------------------------------------------------------------------------------------------------------------


def chosen(chips):
    """The texts of the chips that are pressed."""
    return [chip.description for chip in chips if chip.value]


def test_a_chosen_role_can_be_slowed_and_killed(open_page):
    page = open_page()
    chips = [w for w in by_class(page, "lk-chips").children if seen(w)]
    assert [chip.description for chip in chips] == ["w0", "w1", "w2", "s0"]
    assert "lk-server" in chips[3]._dom_classes
    chips[1].value = True
    assert [chip.value for chip in chips] == [False, True, False, False]
    chips[1].value = False  # pressed once more: chosen it stays
    assert chips[1].value
    by_class(page, "lk-slowdown").value = 5.0
    button(page, "Kill").click()
    assert page.lab.pressed == [actions.Execute(lk.Slow("worker-1", 5.0)), actions.Execute(lk.Kill("worker-1"))]


def test_a_slow_role_is_orange_and_chosen_until_the_user_chooses_one(open_page):
    page = open_page(view(slow={"worker-1": 7.0}))
    chips = by_class(page, "lk-chips").children
    assert "lk-slow" in chips[1]._dom_classes
    assert chosen(chips) == ["w1"]
    assert by_class(page, "lk-slowdown").value == 7.0
    chips[0].value = True
    assert chosen(chips) == ["w0"]
    assert by_class(page, "lk-slowdown").value == 1.0
    assert page.lab.pressed == []


def test_many_workers_are_chosen_from_a_menu(open_page):
    page = open_page(view(trace(40)))
    assert seen(setting(page, "role"))
    assert not any(seen(chip) for chip in by_class(page, "lk-chips").children)
    setting(page, "role").value = "worker-33"
    by_class(page, "lk-slowdown").value = 2.0
    assert page.lab.pressed == [actions.Execute(lk.Slow("worker-33", 2.0))]


ALL = frozenset(COMMANDS.values())
UNDONE = [
    ("Kill", lk.Kill("worker-0", restart=False), "Restart", Restart("worker-0")),  # it stays away until Restart
    ("Freeze", lk.Freeze("worker-0"), "Thaw", Thaw("worker-0")),
    ("Cut off", Cut("worker-0"), "Reconnect", Reconnect("worker-0")),
]


@pytest.mark.parametrize(("label", "command", "back", "undo"), UNDONE)
def test_a_command_is_undone_by_the_same_button(open_page, label, command, back, undo):
    page = open_page(view(supported=ALL))
    assert [b.description for b in by_class(page, "lk-faults").children] == ["Kill", "Freeze", "Cut off"]
    pressed = button(page, label)
    pressed.click()
    assert page.lab.pressed[-1] == actions.Execute(command)
    page.lab.now = view(supported=ALL, undo={"worker-0": frozenset({undo.word})})
    page.refresh()
    assert pressed.description == back
    assert "w0" in pressed.tooltip
    page.set_clock(lambda: 1e9)  # no double click
    pressed.click()
    assert page.lab.pressed[-1] == actions.Execute(undo)
    by_class(page, "lk-chips").children[1].value = True
    assert pressed.description == label  # the other one is unchanged


def test_controls_of_unsupported_commands_are_disabled(open_page):
    page = open_page(view(supported=frozenset({lk.Slow, Cut, Reconnect})))
    assert [b.description for b in by_class(page, "lk-faults").children] == ["Cut off"]
    page.lab.now = view(supported=frozenset())
    page.refresh()
    assert "lk-off" in button(page, "Cut off")._dom_classes


def test_a_chip_names_the_condition_of_its_role(open_page):
    how = {"worker-1": "killed", "server-0": "cut off"}
    page = open_page(view(supported=ALL, conditions=how))
    chips = by_class(page, "lk-chips").children
    assert [chip.description for chip in chips] == ["w0", "w1 killed", "w2", "s0 cut off"]
    assert ["lk-away" in chip._dom_classes for chip in chips] == [False, True, False, True]
    assert chosen(chips) == ["w1 killed"]
    assert chips[1].tooltip == "w1 killed"
    page.lab.now = view(supported=ALL)  # an earlier moment is shown
    page.refresh()
    assert [chip.description for chip in chips] == ["w0", "w1", "w2", "s0"]
    assert not any("lk-away" in chip._dom_classes for chip in chips)


# question, runs, panels, foot -----------------------------------------------------------------------------------------


def test_the_question_is_asked_answered_and_its_verdict_shown(open_page):
    page = open_page(view(scenario=SCENARIO, step=0, text="Synchronous."))
    assert not seen(by_class(page, "lk-asked"))
    assert "<b>Synchronous. </b>" in by_class(page, "lk-headline").value or by_class(page, "lk-headline").value == ""
    page.lab.now = view(scenario=SCENARIO, step=0, asked=True)
    page.refresh()
    assert seen(by_class(page, "lk-asked"))
    answers = [b for b in by_class(page, "lk-answers").children if seen(b)]
    assert [b.description for b in answers] == ["80%", "50%", "20%"]
    answers[1].click()
    assert page.lab.pressed == [actions.Answer(1)]
    page.lab.now = view(scenario=SCENARIO, step=1, asked=True, answer=1, state="running")
    page.refresh()
    assert "You answered <b>50%</b>" in text(page)
    assert "lk-given" in answers[1]._dom_classes
    page.lab.now = view(scenario=SCENARIO, step=1, asked=True, answer=1, state="over")
    page.refresh()
    assert "You answered 50%; it fell to 20%." in text(page)
    assert "lk-wrong" in answers[1]._dom_classes
    assert "lk-right" in answers[2]._dom_classes


def test_a_run_of_the_list_is_shown_and_pinned(open_page):
    page = open_page(view(entries=entries(), reference=trace(2)))
    rows = [row.children for row in by_class(page, "lk-runs").children if "lk-run" in row._dom_classes and seen(row)]
    assert [show.description for show, _, _ in rows] == ["2 AsyncPS", "1 SyncPS"]
    rows[0][0].click()
    rows[0][2].click()
    rows[1][2].click()
    assert page.lab.pressed == [actions.ShowRun(2), actions.Pin(2), actions.Unpin()]


def test_the_list_of_runs_is_a_file(open_page):
    page = open_page(view(entries=entries()))
    link = re.search(r'href="data:text/csv;base64,([^"]*)"', text(page))
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


def test_a_hidden_panel_releases_its_run_and_is_drawn_again_when_it_is_shown(open_page):
    cluster = lk.SimulatedCluster(2, compute=0.05)
    old = lk.train(lk.Problem("digits", hidden=(8,)), lk.AsyncPS(), cluster, lk.Budget(seconds=0.3)).wait().trace
    page = open_page(view(old), panels=("staleness", "throughput"), drawing=True)
    assert page.join(20)
    page.choose(("throughput",))
    page.lab.now = view()
    page.wake()
    assert page.join(20)
    box, _, image = panel(page, "staleness")
    assert not seen(box)
    old, released = None, weakref.ref(old)
    gc.collect()
    assert released() is None
    before = image.value
    page.choose(("throughput", "staleness"))
    assert page.join(20)
    assert seen(box)
    assert [panel(page, name)[0].layout.order for name in page.panels] == ["0", "1"]
    assert image.value != before


def test_the_last_panel_stays(open_page):
    page = open_page()
    check = labelled(page, ipywidgets.Checkbox, "staleness")
    check.value = False
    assert page.panels == ("staleness",)
    assert check.value
