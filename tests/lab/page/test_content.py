"""What the page shows: each section is a function of the view of the lab, without a widget."""

from __future__ import annotations

import itertools
import json
import math
from types import SimpleNamespace

import pytest

import labkit as lk
from labkit.engines.command_words import WORDS
from labkit.engines.commands import COMMANDS, Cut, Freeze, Kill, Reconnect, Restart, Thaw
from labkit.lab.controls import controls
from labkit.lab.page import content
from labkit.lab.page.content import LONG, MOST_CHIPS, MOST_LINES, MOST_RUNS, SPEEDS
from labkit.lab.page.live_panel import FIRST_VIEW, is_wide
from labkit.lab.run_table import Entry
from labkit.lab.settings import Settings
from labkit.trace.schema import NANO
from labkit.views import PANELS
from tests.lab.page.stubs import EVERYTHING, SCENARIO, entries, trace, view

ALL = frozenset(COMMANDS.values())
SCENARIOS = {SCENARIO.name: SCENARIO.title}
STAGE = "3 of 6 processes imported"
NOTHING = frozenset({"run", "set"})


def buttons(**now):
    """{number of the button: button} of the toolbar."""
    return {button["id"]: button for button in content.toolbar(view(**now), SCENARIOS)["buttons"]}


# toolbar --------------------------------------------------------------------------------------------------------------


def test_each_button_has_its_texts_and_only_available_ones_are_on():
    for available in (EVERYTHING, NOTHING, frozenset({"run", "resume", "unpin"})):
        found = buttons(available=available)
        for button in found.values():
            assert button["off"] == (button["action"] not in available)
            assert button["tip"]
            assert button["label"]
            assert callable(getattr(lk.Lab, button["action"]))  # the method that does the same
    assert list(found)[:3] == ["run", "pause", "stop"]


def test_an_action_and_its_opposite_share_a_button():
    assert [buttons()[slot]["label"] for slot in ("pause", "pin")] == ["Pause", "Pin"]
    other = buttons(available=EVERYTHING - {"pause", "pin"} | {"resume", "unpin"})
    assert [(other[slot]["label"], other[slot]["action"]) for slot in ("pause", "pin")] == [
        ("Resume", "resume"), ("Unpin", "unpin"),
    ]  # fmt: skip


@pytest.mark.parametrize(("busy", "label"), [("pausing", "Resume"), ("resuming", "Pause")])
def test_the_requested_state_is_shown_while_pause_or_resume_is_executed(busy, label):
    for available in (EVERYTHING, EVERYTHING - {"pause"} | {"resume"}):
        assert buttons(state="running", busy=busy, available=available)["pause"]["label"] == label


@pytest.mark.parametrize(
    ("now", "label"),
    [
        ({}, "Run"),
        ({"settings": Settings().changed(engine="dask")}, "Run on cluster"),
        ({"changed": ("workers",), "state": "running"}, "Run again"),
        ({"changed": ("workers",), "state": "paused", "settings": Settings().changed(engine="dask")}, "Run again"),
        ({"changed": ("workers",), "state": "over"}, "Run"),
    ],
)
def test_the_label_of_the_run_button(now, label):
    start = buttons(**now)["run"]
    assert start["label"] == label
    assert start["main"]


def test_what_if_and_back_to_live_are_shown_at_an_earlier_time_only():
    assert buttons()["what_if"]["hidden"]
    assert buttons()["live"]["hidden"]
    back = buttons(live=False)
    assert not back["what_if"]["hidden"]
    assert not back["live"]["hidden"]
    assert buttons(live=False, available=EVERYTHING - {"what_if"})["what_if"]["hidden"]  # a run on processes


def test_undo_is_shown_if_there_is_something_to_undo():
    assert not buttons()["undo"]["hidden"]
    assert buttons(available=EVERYTHING - {"undo"})["undo"]["hidden"]


def test_reset_names_the_seed():
    assert buttons(settings=Settings().changed(seed=11))["reset"]["label"] == "Reset, seed 11"


def test_the_menu_of_scenarios_starts_with_none():
    shown = content.toolbar(view(), SCENARIOS)
    assert shown["scenarios"] == [["", "no scenario"], ["slow-worker", "One straggler"]]
    assert shown["scenario"] == ""
    assert content.toolbar(view(scenario=SCENARIO), SCENARIOS)["scenario"] == "slow-worker"
    assert content.toolbar(view(scenario=SCENARIO), {})["scenario"] == ""  # not in the menu


# player ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "lamp", "at", "below"),
    [
        ({"state": "running"}, "● LIVE", "0.5 s", "virtual time"),
        ({"state": "running", "simulated": False, "late": 4.9}, "● LIVE", "0.5 s", "on the cluster"),
        ({"state": "running", "simulated": False, "late": 12.3}, "● LIVE", "0.5 s", "reports are 12 s late"),
        ({"state": "running", "busy": "pausing"}, "● LIVE", "0.5 s", "pausing…"),
        ({"state": "running", "processes": STAGE}, "● PREVIEW", "0.5 s", STAGE),
        ({"state": "running", "processes": STAGE, "busy": "stopping"}, "● PREVIEW", "0.5 s", "stopping…"),
        ({"live": False, "replaying": True, "t": NANO // 4}, "REPLAY", "0.25 s", "playing"),
        ({"live": False, "t": NANO // 4}, "PAST", "0.25 s", "looking back"),
        ({"live": False, "t": NANO // 4, "busy": "repeating"}, "PAST", "0.25 s", "repeating…"),
        ({"state": "over"}, "over", "0.5 s", "time limit reached"),
        ({"state": "ready"}, "ready", "0.5 s", "press Run"),
        ({"state": "paused"}, "paused", "0.5 s", "press Resume"),
        ({"state": "failed", "problem": "no memory"}, "failed", "0.5 s", ""),
    ],
)
def test_the_state_of_the_run(now, lamp, at, below):
    player = content.player(view(**now))
    assert (player["lamp"], player["at"], player["below"]) == (lamp, at, below)
    assert player["failed"] == (now.get("state") == "failed")


@pytest.mark.parametrize(
    ("stopped_by", "text"),
    [
        ("user", "stopped by you"),
        ("accuracy", "target accuracy reached"),
        ("closed", "the cluster was closed"),
        ("new", "new"),
    ],
)
def test_the_reason_of_the_end(stopped_by, text):
    run = trace()
    record = SimpleNamespace(ending={"stopped_by": stopped_by}, roles=run.roles, role_ids=run.role_ids)
    assert content.player(view(state="over", trace=record))["below"] == text


def test_time_moves_during_a_live_run_and_a_replay():
    for live, state, replaying, moves in (
        (True, "running", False, True), (False, "running", False, False), (False, "over", True, True),
        (True, "over", False, False),
    ):  # fmt: skip
        assert content.player(view(live=live, state=state, replaying=replaying))["moves"] == moves


def test_the_slider_ends_at_a_short_time_limit_and_grows_with_a_long_run():
    assert content.slider_length(0.0, 20.0) == 20.0
    assert content.slider_length(21.5, 20.0) == 21.5  # the last evaluation comes after the limit
    assert content.slider_length(0.0, LONG) == LONG
    assert content.slider_length(0.0, 900.0) == LONG
    assert [content.slider_length(recorded, 900.0) for recorded in (55.0, 411.0, 899.0)] == [60.0, 500.0, 900.0]
    for recorded, ends in itertools.product((0.0, 3.0, 10.0, 55.0, 411.0, 899.0), (None, 900.0)):
        assert recorded <= content.slider_length(recorded, ends) <= max(900.0, 2.5 * recorded, 10.0)


def test_the_limits_of_the_run():
    def ends(**now):
        return content.player(view(**now))["ends"]

    goal = Settings().changed(accuracy=0.95)
    assert ends(state="running", ends=12 * NANO) == ["ends at 12 s", "12 s left"]
    assert ends(shown=goal, state="running", ends=12 * NANO) == ["ends at 12 s", "or at 95% · 12 s left"]
    assert ends(shown=goal, state="over", ends=12 * NANO) == ["ends at 12 s", "or at 95%"]
    assert ends(shown=goal, state="running", ends=None) == ["ends at 95%", ""]
    assert ends(state="running", ends=None) == ["", ""]
    assert ends(state="over", ends=900 * NANO) == ["limit 900 s", ""]  # the slider ends earlier, and says where
    assert ends(state="running", ends=NANO // 4) == ["ends at 0.25 s", "0 s left"]


def test_a_speed_that_is_not_in_the_menu_is_added_in_order():
    player = content.player(view(settings=Settings(speed=3.5)))
    assert player["speed"] == 3.5
    assert player["speeds"] == sorted({*SPEEDS, 3.5})
    assert content.player(view())["speeds"] == list(SPEEDS)


# headline and question ------------------------------------------------------------------------------------------------


def test_an_error_replaces_the_sentence():
    shown = content.headline(view(problem="workers=-2: at least 1"), lambda: pytest.fail("not computed"))
    assert shown == {"first": "⚠ ", "rest": "workers=-2: at least 1", "error": True}


def test_the_first_sentence_is_emphasized_and_a_step_of_a_scenario_comes_first():
    def parts(**now):
        shown = content.headline(view(**now), lambda: "Asynchronous. 3 workers. Mean 2.")
        return shown["first"], shown["rest"], shown["error"]

    assert parts() == ("Asynchronous. ", "3 workers. Mean 2.", False)
    assert parts(text="Now with a straggler.") == ("Now with a straggler. ", "Asynchronous. 3 workers. Mean 2.", False)


@pytest.mark.parametrize(
    ("answer", "step", "state", "result"),
    [
        (None, 0, "paused", ""),
        (1, 0, "over", ""),
        (1, 1, "running", ""),
        (1, 1, "over", "wrong"),
        (2, 1, "over", "right"),
    ],
)
def test_the_result_replaces_the_question_at_the_end(answer, step, state, result):
    shown = content.question(view(scenario=SCENARIO, step=step, asked=True, answer=answer, state=state))
    text = {
        "": "Throughput falls to …",
        "wrong": "You answered 50%; it fell to 20%.",
        "right": "You answered 20%; it fell to 20%.",
    }
    assert (shown["text"], shown["result"], shown["open"]) == (text[result], result, answer is None)
    answers = [(each["text"], each["given"]) for each in shown["answers"]]
    assert answers == ([] if result else [("80%", answer == 0), ("50%", answer == 1), ("20%", answer == 2)])


def test_no_question_is_shown_before_it_is_asked():
    assert content.question(view(scenario=SCENARIO, step=0)) == {"text": ""}
    assert content.question(view(asked=True)) == {"text": ""}


# faults ---------------------------------------------------------------------------------------------------------------


def test_faults_are_offered_for_workers_and_then_servers():
    shown = content.faults(view())
    assert [(role["name"], role["text"], role["server"]) for role in shown["roles"]] == [
        ("worker-0", "w0", False), ("worker-1", "w1", False), ("worker-2", "w2", False), ("server-0", "s0", True),
    ]  # fmt: skip
    assert shown["first"] == "worker-0"
    assert shown["most"] == MOST_CHIPS


def test_slow_and_failed_roles_show_their_condition_and_come_first():
    shown = content.faults(view(slow={"worker-1": 7.0}, conditions={"server-0": "cut off", "worker-2": "killed"}))
    roles = {role["name"]: role for role in shown["roles"]}
    assert shown["first"] == "worker-1"
    assert (roles["worker-1"]["slow"], roles["worker-1"]["tip"], roles["worker-1"]["away"]) == (7.0, "w1 ×7", False)
    assert 7.0 in roles["worker-1"]["factors"]
    assert roles["worker-1"]["factors"] == sorted(roles["worker-1"]["factors"])
    assert (roles["worker-2"]["text"], roles["worker-2"]["away"]) == ("w2 killed", True)
    assert (roles["server-0"]["text"], roles["worker-0"]["text"]) == ("s0 cut off", "w0")
    assert content.faults(view(conditions={"worker-2": "killed"}))["first"] == "worker-2"
    assert content.faults(view(slow={"evaluator-0": 2.0}))["first"] == "worker-0"  # a role without a button
    changing = content.faults(view(conditions={"worker-2": "killed"}, changing={"worker-2": "restarting"}))
    assert changing["roles"][2]["text"] == "w2 restarting"


PAIRS = [("Kill", Kill, "Restart", Restart), ("Freeze", Freeze, "Thaw", Thaw), ("Cut off", Cut, "Reconnect", Reconnect)]


@pytest.mark.parametrize(("label", "kind", "back", "opposite"), PAIRS)
def test_a_command_is_undone_by_the_same_button(label, kind, back, opposite):
    def button(**now):
        role = content.faults(view(**now))["roles"][0]
        return next(each for each in role["buttons"] if each["id"] == kind.word)

    plain = button(supported=ALL)
    assert (plain["label"], plain["action"], plain["off"], plain["undo"]) == (label, kind.word, False, False)
    undoable = {"worker-0": frozenset({opposite.word})}
    undo = button(supported=ALL, undo=undoable)
    assert (undo["label"], undo["action"], undo["off"], undo["undo"]) == (back, opposite.word, False, True)
    assert "w0" in plain["tip"]
    assert "w0" in undo["tip"]
    assert plain["tip"] != undo["tip"]
    assert button(supported=ALL, undo={"worker-1": undoable["worker-0"]}) == plain  # of another role
    assert button(supported=frozenset({kind}), undo=undoable)["label"] == label  # the engine cannot undo it
    assert button(supported=frozenset())["off"]
    assert (plain["change"], undo["change"]) == tuple(f"w0 {WORDS[each].progress}" for each in (kind, opposite))


# controls -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["async-ps", "sync-ps", "ssp", "easgd", "pipeline"])
def test_a_control_shows_the_value_of_its_setting(strategy):
    settings = Settings().changed(strategy=strategy)
    shown = content.controls(controls(settings), frozenset(), {})
    assert [each["name"] for each in shown] == [each.name for each in controls(settings)]
    for control, each in zip(controls(settings), shown):
        if control.choices:
            assert control.choices[each["index"]] == (each["choices"][each["index"]], control.value)
        else:
            assert each["value"] == control.value
        assert not each["next"]
    json.dumps(shown, allow_nan=False)


def test_values_without_a_json_form_are_shown_as_text():
    made = [each for each in controls(Settings()) if each.name == "learning_rate"]
    odd = type(made[0])(**{**vars(made[0]), "value": math.inf})
    assert content.controls((odd,), frozenset(), {})[0]["value"] == "inf"


def test_settings_of_the_next_run_are_marked_and_explained():
    shown = {each["name"]: each for each in content.controls(controls(Settings()), frozenset({"workers"}), {"seed": 2})}
    assert [name for name, each in shown.items() if each["next"]] == ["workers"]
    assert {name: each["received"] for name, each in shown.items() if each["received"]} == {"seed": 2}
    assert shown["workers"]["help"].endswith("(for the next run)")
    assert "next run" not in shown["learning_rate"]["help"]  # it takes effect at once


# runs, numbers, log, share, panels ------------------------------------------------------------------------------------


def test_the_runs_are_listed_newest_first_with_their_numbers():
    reference, shown = entries()
    listed = content.runs(view(shown.trace, entries=(reference, shown), reference=reference.trace))
    assert [(row["number"], row["name"], row["on"], row["pinned"]) for row in listed["rows"]] == [
        (2, "AsyncPS", True, False), (1, "SyncPS", False, True),
    ]  # fmt: skip
    assert listed["rows"][0]["cells"][0] == f"{lk.ledger(shown.trace)['applied'] / 0.5:.0f}"  # in half a second
    assert len(listed["columns"]) == len(listed["rows"][0]["cells"]) == 3


@pytest.mark.parametrize(
    ("row", "cells"),
    [
        ({}, ["–", "–", "–"]),
        ({"gradients_per_second": 59.6, "staleness_mean": 1.94, "time_to_accuracy": 5.83}, ["60", "1.9", "5.8"]),
        ({"gradients_per_second": 9_999, "staleness_mean": 0, "time_to_accuracy": 99.94}, ["9,999", "0", "99.9"]),
        ({"gradients_per_second": 48_600, "staleness_mean": 249.7, "time_to_accuracy": 411.2}, ["49k", "250", "411"]),
    ],
)
def test_the_numbers_of_a_run_are_short(row, cells):
    listed = content.runs(view(entries=(Entry(1, Settings(), None, row),)))
    assert listed["rows"][0]["cells"] == cells
    assert listed["rows"][0]["off"]  # its trace is not kept


def test_only_the_newest_runs_and_lines_are_sent():
    many = tuple(Entry(n, Settings(), None, {}) for n in range(1, 31))
    numbers = [row["number"] for row in content.runs(view(entries=many))["rows"]]
    assert numbers == list(range(30, 30 - MOST_RUNS, -1))
    lines = content.log([f"{n} s" for n in range(500)])
    assert len(lines) == MOST_LINES
    assert (lines[0], lines[-1]) == ("499 s", f"{500 - MOST_LINES} s")


def test_numbers_have_explanations_and_the_dashboard_a_link():
    shown = content.numbers([("applied", "30"), ("no such number", "1")], "http://localhost:8787")
    assert shown["values"][0][:2] == ["applied", "30"]
    assert "update" in shown["values"][0][2]
    assert shown["values"][1] == ["no such number", "1", ""]
    assert shown["dashboard"] == "http://localhost:8787"
    assert content.numbers([], None) == {"values": [], "dashboard": ""}


def test_a_lab_without_a_share_text_gives_the_reason():
    def refused():
        raise lk.BadInput("Mine has no text")

    assert content.share(lambda: "strategy=ssp") == {"text": "strategy=ssp"}
    assert content.share(refused) == {"error": "Mine has no text"}


def test_panels_are_listed_with_those_that_are_shown():
    shown = content.panels(FIRST_VIEW, is_wide)
    assert [name for name, _ in shown["all"]] == list(PANELS)
    assert [panel["name"] for panel in shown["shown"]] == list(FIRST_VIEW)
    assert [panel["name"] for panel in shown["shown"] if panel["wide"]] == ["timeline"]
    assert all(panel["title"] == PANELS[panel["name"]].title for panel in shown["shown"])


def test_json_can_represent_all_sections():
    for now in (
        {"entries": entries(), "slow": {"worker-1": 5.0}, "supported": ALL},
        {"scenario": SCENARIO, "asked": True, "answer": 1, "step": 1, "state": "over", "ends": None, "live": False},
    ):
        shown = view(**now)
        sections = [
            content.toolbar(shown, SCENARIOS), content.player(shown), content.headline(shown, lambda: "One. Two."),
            content.question(shown), content.faults(shown), content.runs(shown), content.panels(FIRST_VIEW, is_wide),
        ]  # fmt: skip
        for section in sections:
            assert json.loads(json.dumps(section, allow_nan=False)) == section
