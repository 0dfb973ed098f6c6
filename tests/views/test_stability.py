"""Stable or not: the edge against the roots of the recurrence, and the dot against runs that converge or diverge."""

from __future__ import annotations

import numpy as np
import pytest

import labkit as lk
from labkit.views import bare_figure, make_panel
from labkit.views.stability import edge, locate_run, smooth_edge
from labkit.views.style import BLUE, RED

pytestmark = pytest.mark.filterwarnings("error")


def run(strategy, seconds=6.0, workers=8, curvature=1.0, **options):
    problem = lk.Problem("quadratic", options={"curvature": curvature, **options})
    cluster = lk.SimulatedCluster(workers=workers, compute=lk.distributions.Deterministic(0.1))
    return lk.train(problem, strategy, cluster, lk.Budget(seconds=seconds))


def roots(tau, a):
    """Of w(k+1) = w(k) - a w(k - tau), the largest first."""
    found = np.roots([1.0, -1.0, *[0.0] * (tau - 1), a]) if tau else np.array([1.0 - a])
    return found[np.argsort(-np.abs(found))]


@pytest.mark.parametrize("tau", [0, 1, 2, 3, 7, 20])
def test_the_edge_is_where_a_root_leaves_the_unit_circle(tau):
    limit = float(edge(tau))
    assert abs(roots(tau, 0.999 * limit)[0]) < 1 < abs(roots(tau, 1.001 * limit)[0])


@pytest.mark.parametrize("tau", [0, 1, 2, 3, 7])
def test_below_the_dashed_line_the_slowest_power_is_a_positive_number(tau):
    limit = float(smooth_edge(tau))
    below, above = roots(tau, 0.99 * limit)[0], roots(tau, 1.01 * limit)[0]
    assert abs(below.imag) < 1e-9
    assert below.real > 0
    assert abs(above.imag) > 1e-3 or above.real < 0


def test_the_edge_of_stability_has_the_published_values():
    assert edge([0, 1, 3, 7]) == pytest.approx([2, 1, 0.445042, 0.209057], abs=1e-6)
    assert smooth_edge([0, 1, 2]) == pytest.approx([1, 1 / 4, 4 / 27])


@pytest.mark.parametrize(("rate", "stable"), [(0.20, True), (0.22, False)])
def test_the_dot_is_on_the_stable_side_iff_the_loss_falls(rate, stable):
    trace = run(lk.AsyncPS(learning_rate=rate, eval_every=500), seconds=40.0).wait().trace
    loss = trace.column("evaluations", "loss")
    assert (loss[-1] < loss[0]) == stable
    place = locate_run(trace, trace.now)
    assert place.stable == stable
    assert place.tau == 7
    assert place.product == pytest.approx(rate)
    text = make_panel("stability").caption(trace, trace.now)
    assert text == f"{'stable' if stable else 'unstable'}: {rate:g}, edge at 0.209"


def test_the_largest_curvature_decides():
    trace = run(lk.SyncPS(learning_rate=0.5), seconds=1.0, curvature=(1.0, 3.0, 0.1), dimension=3).wait().trace
    assert trace.header.problem.curvature == (0.1, 3.0)
    place = locate_run(trace, trace.now)
    assert (place.tau, place.product) == (0.0, 1.5)


def test_effective_rates_include_sums_and_staleness_aware_scaling():
    summed = run(lk.SyncPS(learning_rate=0.1, reduce="sum"), seconds=1.0).wait().trace
    assert locate_run(summed, summed.now).product == pytest.approx(0.8)
    aware = run(lk.AsyncPS(learning_rate=0.7, staleness_aware=True), seconds=6.0).wait().trace
    assert locate_run(aware, aware.now).product == pytest.approx(0.1)


def test_a_rate_that_is_set_moves_the_dot_and_leaves_the_old_place_in_sight():
    going = run(lk.AsyncPS(learning_rate=0.1)).advance(2.0)
    going.set(learning_rate=0.3)
    trace = going.wait().trace
    panel = make_panel("stability")
    bare_figure(panel)
    for t, at, was, colour in ((1_900_000_000, 0.1, [], BLUE), (None, 0.3, [0.1], RED)):
        panel.update(trace, t)
        assert list(panel.dot.get_ydata()) == pytest.approx([at])
        assert list(panel.was.get_ydata()) == pytest.approx(was)
        assert panel.dot.get_markerfacecolor() == colour


def test_without_a_known_curvature_a_text_names_the_problem_to_use(slowed_trace):
    panel = make_panel("stability")
    bare_figure(panel)
    panel.update(slowed_trace, None)
    assert len(panel.dot.get_xdata()) == 0
    assert "Problem('quadratic')" in panel.aside.get_text()
    assert panel.caption(slowed_trace).startswith("edge of stability at staleness ")
    panel.update(slowed_trace, 0)
    assert panel.aside.get_text() == "no gradient applied yet"


def test_for_other_optimizers_the_caption_names_plain_sgd():
    trace = run(lk.AsyncPS(learning_rate=0.01, optimizer=lk.Momentum(0.9)), seconds=2.0).wait().trace
    assert make_panel("stability").caption(trace).endswith("for plain SGD")


def test_the_line_of_the_edge_is_drawn_at_the_theoretical_edge(slowed_trace):
    panel = make_panel("stability")
    bare_figure(panel)
    panel.update(slowed_trace, None)
    x, y = (np.asarray(values) for values in panel.edge.get_data())
    assert x[0] == 0
    assert y == pytest.approx(2 * np.sin(np.pi / (4 * x + 2)))
