"""A view is a pure function of (trace, time), draws every kind of run without a warning, and does not use pyplot."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest

import labkit as lk
from labkit.formatting import rate
from labkit.trace.summary import summary
from labkit.views import PANELS, Plots, bare_figure, compare, make_panel, overview, panel_figure

pytestmark = [pytest.mark.filterwarnings("error"), pytest.mark.sample(4, slow=4)]
OWN = [
    "timeline", "message_zoom", "staleness", "staleness_over_time", "gradient_flow", "throughput", "accuracy", "loss",
    "noise_scale", "hot_rows",
]  # fmt: skip


def pixels(figure):
    """The figure as an array."""
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba()).copy()


def sized(name, size):
    """The panel of this name, to be drawn at `size`; None is its preferred size."""
    panel = make_panel(name)
    panel.size = size or panel.size
    return panel


def texts(figure):
    """Every visible, nonempty text of the figure's axes."""
    return [t for axes in figure.axes for t in axes.texts if t.get_visible() and t.get_text()]


@pytest.mark.parametrize("name", list(PANELS))
def test_every_panel_draws_every_run_at_every_time(trace, name):
    panel = make_panel(name)
    figure = panel_figure(panel, trace)
    for t in (None, trace.now // 2, 0, trace.now + 10**9):
        panel.update(trace, t)
        assert isinstance(panel.caption(trace, t), str)
    assert pixels(figure).std() > 0


@pytest.mark.parametrize("name", OWN)
def test_no_text_is_cut_off_or_overlapped_at_half_the_column_width(trace, name):
    panel = sized(name, (724, 200) if name == "timeline" else (354, 180))
    figure = bare_figure(panel)
    for t in (None, trace.now // 2):
        panel.update(trace, t)
        pixels(figure)
        width, height = figure.canvas.get_width_height()
        boxes = []
        named = [panel.axes.xaxis.label, *ticks(panel.axes)] if panel.axes.xaxis.get_visible() else []
        for text in [*texts(figure), *named]:
            if not text.get_text() or not text.get_visible():
                continue
            box = text.get_window_extent()
            assert min(box.x0, box.y0 + 2, width - box.x1, height - box.y1) >= -1, text.get_text()
            boxes += [(text.get_text(), box)] if text in panel.axes.texts and text not in _cells(panel) else []
        for (one, a), (other, b) in itertools.combinations(boxes, 2):
            wide, high = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
            assert wide <= 1 or high <= 3, f"{one!r} lies on {other!r}"


def ticks(axes):
    """The labels of ticks that are on the axes."""
    (left, right), (low, high) = axes.get_xlim(), sorted(axes.get_ylim())
    across = [label for label in axes.get_xticklabels() if left <= label.get_position()[0] <= right]
    return across + [label for label in axes.get_yticklabels() if low <= label.get_position()[1] <= high]


def _cells(panel):
    """Numbers of a table are in separate columns."""
    return [*getattr(panel, "cells", ()), *getattr(panel, "steps", ())]


@pytest.mark.parametrize("name", OWN)
def test_a_panel_that_followed_a_run_shows_what_a_fresh_one_shows(name):
    cluster = lk.SimulatedCluster(workers=10, compute=lk.distributions.LogNormal(0.1, 0.25), latency=0.002)
    faults = [lk.Slow("worker-2", 5, at=1.0)]
    problem = lk.Problem("digits", hidden=(8,))
    run = lk.train(problem, lk.AsyncPS(), cluster, lk.Budget(seconds=9), faults=faults)
    followed, fresh = make_panel(name), make_panel(name)
    one, two = bare_figure(followed), bare_figure(fresh)
    for seconds in (0.0, 0.3, 1.1, 1.2, 1.9, 4.5, 4.6):
        run.advance(seconds)
        followed.update(run.trace, None)
    fresh.update(run.trace, None)
    assert np.array_equal(pixels(one), pixels(two))
    followed.update(run.trace, 1_500_000_000)  # scrubbed back
    fresh.update(run.trace, 1_500_000_000)
    assert np.array_equal(pixels(one), pixels(two))
    followed.update(run.wait().trace, None)
    fresh.update(run.trace, None)
    assert np.array_equal(pixels(one), pixels(two))


@pytest.mark.parametrize("name", list(PANELS))
@pytest.mark.parametrize("t", [None, 1_700_000_000])
def test_equal_traces_and_times_give_equal_pixels_regardless_of_earlier_frames(slowed_trace, name, t):
    fresh, used = make_panel(name), make_panel(name)
    one, two = bare_figure(fresh), bare_figure(used)
    used.update(slowed_trace, 400_000_000)
    used.update(slowed_trace, None)
    for panel in (fresh, used):
        panel.update(slowed_trace, t)
    assert np.array_equal(pixels(one), pixels(two))


def test_figures_of_a_past_time_are_unchanged_by_later_rows():
    def run():
        cluster = lk.SimulatedCluster(workers=3, compute=lk.distributions.Deterministic(0.1))
        return lk.train(lk.Problem("digits", hidden=(8,)), lk.AsyncPS(), cluster, lk.Budget(seconds=3))

    early, late = run().advance(1.0), run().advance(2.0)
    for name in OWN:
        if name in ("hot_rows",):
            continue  # totals, not their course
        a, b = make_panel(name), make_panel(name)
        one, two = bare_figure(a), bare_figure(b)
        a.update(early.trace, 10**9)
        b.update(late.trace, 10**9)
        assert np.array_equal(pixels(one), pixels(two)), name


def test_no_text_leaves_its_figure(trace):
    figure = overview(trace)
    pixels(figure)
    width, height = figure.canvas.get_width_height()
    for text in [*texts(figure), *figure.texts]:
        box = text.get_window_extent()
        assert min(box.x0, box.y0, width - box.x1, height - box.y1) >= -1, text.get_text()


def test_names_at_the_ends_of_curves_do_not_overlap(slowed_trace, sync_trace):
    figure = compare([slowed_trace, sync_trace, sync_trace, slowed_trace])
    pixels(figure)
    for axes in figure.axes:
        boxes = [t.get_window_extent() for t in axes.texts if t.get_text()]
        assert len(boxes) >= 4
        for i, one in enumerate(boxes):
            assert not any(one.overlaps(other) for other in boxes[i + 1 :])


def test_a_comparison_shows_the_throughput_of_the_table(slowed_trace, sync_trace):
    reported = [t.get_text() for t in texts(compare([slowed_trace, sync_trace], ["one", "two"]))]
    for name, trace in (("one", slowed_trace), ("two", sync_trace)):
        assert f"{name} {rate(summary(trace)['gradients_per_second'])}/s" in reported


def test_only_the_colours_of_the_grammar_are_used_for_the_slowed_worker(slowed_trace):
    panel = make_panel("timeline")
    figure = bare_figure(panel)
    panel.update(slowed_trace, 1_000_000_000)
    pixels(figure)
    assert not panel.boxes["orange"].get_paths()  # not slowed yet
    panel.update(slowed_trace, 2_400_000_000)
    assert panel.boxes["orange"].get_paths() or panel.boxes["open orange"].get_paths()
    panel.update(slowed_trace, 3_000_000_000)
    assert not panel.boxes["open orange"].get_paths()  # healed


def test_plots_show_themselves_and_save(slowed_trace, tmp_path):
    plots = Plots(lambda: slowed_trace)
    for name in ("timeline", "loss"):
        data, more = getattr(plots, name)(t=2.0)._repr_mimebundle_()
        assert data["image/png"].startswith(b"\x89PNG")
        assert more["image/png"]["width"] in (462, 940)
    assert plots.save(tmp_path / "all.svg").read_text().lstrip().startswith("<?xml")
    assert "staleness()" in repr(plots)


def test_predictions_box_the_wrong_ones(slowed_trace):
    images, labels = np.arange(5 * 64.0).reshape(5, 64), np.array([1, 2, 3, 4, 5])
    reported = np.array([1, 2, 9, 4, 5])
    figure = Plots(lambda: slowed_trace).predictions(images, labels, reported)
    red = [t.get_text() for t in texts(figure) if t.get_color() == "#cc1f1f"]
    assert red == ["9"]
    with pytest.raises(lk.BadInput, match="as many"):
        Plots(lambda: slowed_trace).predictions(images, labels[:3], reported)


def test_unknown_panels_and_impossible_comparisons_are_refused(slowed_trace):
    with pytest.raises(lk.BadInput, match="Did you mean 'staleness'"):
        make_panel("stalenes")
    with pytest.raises(lk.BadInput, match="1 to 8"):
        compare([])


def test_views_import_neither_pyplot_nor_widgets_nor_engines():
    code = (
        "import sys, labkit.views; "
        "bad = [m for m in sys.modules if m in ('matplotlib.pyplot', 'ipywidgets', 'distributed') or "
        "m.startswith(('labkit.engines', 'labkit.run', 'labkit.lab', 'labkit.roles', 'labkit.strategies'))]; "
        "sys.exit(repr(bad) if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("high", [95, 130, 210])
def test_names_of_the_rows_of_the_gradient_flow_do_not_overlap(slowed_trace, high):
    panel = sized("gradient_flow", (240, high))
    figure = bare_figure(panel)
    panel.update(slowed_trace, None)
    pixels(figure)
    boxes = [label.get_window_extent() for label in panel.axes.get_yticklabels() if label.get_text()]
    assert boxes
    edges = sorted((box.y0, box.y1) for box in boxes)
    assert all(above[0] >= below[1] - 1 for below, above in itertools.pairwise(edges))
