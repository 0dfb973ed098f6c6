"""A panel on the page: arrow keys go through the values of its picture."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest

import labkit as lk
from labkit.lab.page.live_panel import LivePanel


@pytest.fixture(scope="module")
def view():
    cluster = lk.SimulatedCluster(workers=3, compute=lk.distributions.Deterministic(0.1))
    problem = lk.Problem("digits", hidden=(8,))
    trace = lk.train(problem, lk.AsyncPS(), cluster, lk.Budget(seconds=4)).wait().trace
    return SimpleNamespace(trace=trace, t=trace.watermark(), reference=None, forecast=None)


def drawn(name, view):
    panel = LivePanel(name)
    panel.draw(view)
    return panel


def test_left_and_right_go_through_all_points_of_a_curve_and_stay_at_its_ends(view):
    panel, at, said = drawn("accuracy", view), None, []
    time, accuracy = view.trace.column("evaluations", "time", "accuracy")
    # the last of those of one time
    time, accuracy = (column[np.diff(time, append=np.inf) > 0] for column in (time, accuracy))
    for _ in range(len(time) + 3):
        text, *at = panel.step(view, at, 1, 0)
        said.append((text, tuple(at)))
    expected = [f"this run: {100 * y:.2f}% at {x / 1e9:,.3f} s" for x, y in zip(time, accuracy)]
    assert [text for text, _ in said] == expected + 3 * expected[-1:]
    places = [x for _, (x, _) in said]
    assert np.all(np.diff(places[: len(time)]) > 0)
    back, *_ = panel.step(view, at, -1, 0)
    assert back == expected[-2]
    assert panel.step(view, None, -1, 0)[0] == expected[-1]


def test_the_place_of_a_value_is_where_the_pointer_has_it_too(view):
    panel = drawn("timeline", view)
    text, x, y = panel.step(view, None, 1, 0)
    assert panel.readout(view, x, y) == text


def test_up_and_down_go_to_the_neighbouring_role(view):
    panel = drawn("timeline", view)
    _, *at = panel.step(view, None, 1, 0)
    roles = []
    for _ in range(5):
        text, *at = panel.step(view, at, 0, 1)
        roles.append(text.split(":")[0])
    assert roles == ["worker-0", "worker-1", "worker-2", "worker-2", "worker-2"]
    assert panel.step(view, at, 0, -1)[0].startswith("worker-1: ")


def test_a_panel_without_values_and_one_that_is_not_drawn_have_no_points(view):
    assert LivePanel("accuracy").step(view, None, 1, 0) is None
    assert drawn("hot_rows", view).step(view, None, 1, 0) is None


def test_values_are_those_of_the_picture_and_not_of_a_later_time(view):
    panel = drawn("staleness", SimpleNamespace(trace=view.trace, t=2 * 10**9, reference=None, forecast=None))
    header, *rows = (line.split("\t") for line in panel.table(view).splitlines())
    assert header == ["staleness (updates)", "gradients"]
    applied = int((view.trace.column("applies", "time") <= 2 * 10**9).sum())
    assert sum(int(count) for _, count in rows) == applied
    text, *_ = panel.step(view, None, 1, 0)
    assert re.search(rf" of {applied} gradients ", text)
