"""Every term on the page of a lab has an explanation."""

from __future__ import annotations

from itertools import product

import pytest

import labkit as lk
from labkit.lab.controls import controls
from labkit.lab.glossary import TERMS, explain
from labkit.lab.page import content
from labkit.lab.processes import Processes
from labkit.lab.scenario_runner import ScenarioRunner
from labkit.lab.session import Session
from labkit.lab.settings import Settings
from labkit.lab.view import make_view
from labkit.narrative import numbers
from labkit.strategies import STRATEGIES
from labkit.views import PANELS


def test_every_setting_of_every_strategy_has_an_explanation():
    violations = []
    for name, engine in product(STRATEGIES, ("simulated", "dask")):
        shown = content.controls(controls(Settings().changed(engine=engine, workers=4, strategy=name)), frozenset(), {})
        assert len(shown) > 10
        short = [each["name"] for each in shown if len(each["help"].removesuffix(" (for the next run)")) < 10]
        violations += [f"{setting} of {name}, {engine}" for setting in short]
    assert not violations, "\n".join(violations)


def test_every_panel_has_an_explanation():
    shown = content.panels(tuple(PANELS), lambda name: False)["shown"]
    assert [panel["name"] for panel in shown if not panel["help"]] == []
    assert len({panel["help"] for panel in shown}) == len(PANELS)


@pytest.mark.parametrize("compute", [lk.distributions.Deterministic(0.1), lk.distributions.Exponential(0.1)])
def test_every_number_has_an_explanation(compute):
    cluster = lk.SimulatedCluster(3, compute=compute)
    faults = [lk.Kill("server-0", at=0.55), lk.Kill("worker-1", at=0.5)]
    run = lk.train("digits", lk.AsyncPS(), cluster, lk.Budget(updates=60), faults=faults).wait()
    found = content.numbers(numbers(run.trace), None)["values"]
    assert {"applied", "ledger", "sent", "staleness mean"} <= {name for name, _, _ in found}
    assert [name for name, _, help_ in found if not help_] == []


def test_numbers_that_are_shown_only_in_some_runs_have_an_explanation():
    names = ("in flight", "partly applied", "lost", "rolled back", "simulated", "paced", "pace")
    assert [name for name in names if not explain(name)] == []


def test_columns_of_the_table_and_all_buttons_have_an_explanation():
    session = Session(Settings().changed(workers=2, seconds=1), Processes(), lambda: 0.0)
    session.start()
    session.end()
    view = make_view(session, ScenarioRunner(session))
    assert all(len(help_) > 10 for _, help_ in content.runs(view)["columns"])
    assert [button["id"] for button in content.toolbar(view, {})["buttons"] if len(button["tip"]) < 8] == []
    for role in content.faults(view)["roles"]:
        assert [button["id"] for button in role["buttons"]] == ["kill", "freeze", "cut"]
        assert [button["id"] for button in role["buttons"] if len(button["tip"]) < 10] == []


def test_terms_are_explained_in_one_line_and_not_by_themselves():
    for term, text in TERMS.items():
        assert 15 < len(text) <= 120
        assert term.lower() != text.lower()
        assert text[0].islower()
        assert not text.endswith(".")
    assert explain("staleness_over_time") == TERMS["staleness over time"]
    assert explain("no such term") == ""
