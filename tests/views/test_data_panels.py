"""Panels of predictions, decision boundary, data distribution and ledger: correct, legible at every size, and without
errors on empty data.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from matplotlib.colors import to_rgb

import labkit as lk
from labkit.confusion import confusion_of
from labkit.trace import ledger
from labkit.views import Plots, bare_figure, make_panel, overview, panel_figure
from labkit.views.style import INK, RED

pytestmark = [pytest.mark.filterwarnings("error"), pytest.mark.sample(6, slow=4)]

NAMES = ("predictions", "decision_boundary", "data_distribution", "ledger")
SIZES = (None, (354, 180), (724, 200))


def finished(problem, strategy=None, seconds=1.0, **cluster):
    cluster = lk.SimulatedCluster(**{"workers": 4, "compute": lk.distributions.LogNormal(0.1, 0.25), **cluster})
    return lk.train(problem, strategy or lk.AsyncPS(), cluster, lk.Budget(seconds=seconds)).wait().trace


DIGITS = lk.Problem("digits", hidden=(8,))
RUNS = {
    "digits": lambda: finished(DIGITS, seconds=3.0, slow={"worker-2": 5}),
    "moons": lambda: finished(lk.Problem("moons", hidden=(8,), partition="by-label:0.3"), workers=64),
    "arms": lambda: finished(lk.Problem("spirals", hidden=(8,), options={"arms": 9}), lk.BackupWorkers()),
    "large": lambda: finished(lk.Problem("moons", hidden=(512, 512)), seconds=0.2),
    "many": lambda: finished(DIGITS, lk.RingAllReduce(), seconds=0.2, workers=200),
    "regression": lambda: finished(
        lk.Problem("linear-regression", partition="by-size"), lk.AsyncPS(learning_rate=0.001)
    ),
    "timing": lambda: finished(lk.Problem("digits", timing_only=True)),
    "totals": lambda: finished(DIGITS, record=False),
    "mixed": lambda: finished(DIGITS, lk.DPSGD()),
    "diverged": lambda: finished(DIGITS, lk.AsyncPS(learning_rate=10.0), seconds=5.0),
}


@pytest.fixture(scope="module")
def traces():
    """Created on first use."""

    class Made(dict):
        def __missing__(self, name):
            self[name] = RUNS[name]()
            return self[name]

    return Made()


def drawn(name, trace, t=None, size=None):
    """The panel, drawn on a separate figure."""
    panel = make_panel(name)
    if size is not None:
        panel.size = size
    figure = bare_figure(panel)
    panel.update(trace, t)
    figure.canvas.draw()
    return panel, figure


def texts(panel):
    return [text for text in panel.axes.texts if text.get_visible() and text.get_text()]


def words(panel):
    return [text.get_text() for text in texts(panel)]


def luminance(colour):
    """As WCAG 2 defines it; `colour`: RGB from 0 to 1, shape (..., 3)."""
    colour = np.asarray(colour, dtype=float)
    linear = np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def least_contrast(axes, ink, paper):
    """The smallest contrast of this ink with a cell on a page of this colour."""
    pixels = np.asarray(axes.images[0].get_array(), dtype=float)
    over = pixels[..., 3:] * pixels[..., :3] + (1 - pixels[..., 3:]) * to_rgb(paper)
    dark, light = np.sort(np.stack(np.broadcast_arrays(luminance(over), luminance(to_rgb(ink)))), axis=0)
    return ((light + 0.05) / (dark + 0.05)).min()


def test_numbers_are_legible_on_the_fullest_cells(traces):
    """At least 4.5:1, as WCAG 2 asks, on a white page and on a dark one, where the browser inverts the ink."""
    confusion = confusion_of(np.array([0, 0, 1, 1, 1]), np.array([0, 0, 0, 0, 0]), ("a", "b")).figure()
    uneven = finished(lk.Problem("moons", hidden=(8,), partition="by-label:0.05"), workers=2)
    norms, _ = drawn("gradient_flow", traces["diverged"], 4_000_000_000)  # they differ more than fourfold
    counts, _ = drawn("data_distribution", uneven)
    cells = {"gradient_flow": norms.axes, "data_distribution": counts.axes, "confusion": confusion.axes[0]}
    found = {}
    for name, axes in cells.items():
        assert INK in {text.get_color() for text in axes.texts if text.get_text()[:1].isdigit()}, name
        assert np.asarray(axes.images[0].get_array())[..., 3].max() > 0.4, name
        for page, ink, paper in (("light", INK, "#ffffff"), ("dark", "#cfd7e3", "#141414")):
            found[name, page] = least_contrast(axes, ink, paper)
    assert {where: round(float(value), 2) for where, value in found.items() if value < 4.5} == {}


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", NAMES)
def test_every_text_is_inside_and_none_lies_on_another(traces, name, run):
    for size in SIZES:
        panel, figure = drawn(name, traces[run], None if size is None else traces[run].now // 3, size)
        wide, high = figure.canvas.get_width_height()
        labels = [*panel.axes.get_xticklabels(), *panel.axes.get_yticklabels()] if name == "data_distribution" else []
        boxes = [text.get_window_extent() for text in texts(panel)]
        for box in boxes + [label.get_window_extent() for label in labels if panel.axes.xaxis.get_visible()]:
            assert min(box.x0, box.y0, wide - box.x1, high - box.y1) >= -1.5
        edges = np.array([(b.x0 + 1, b.x1 - 1, b.y0 + 2, b.y1 - 2) for b in boxes]).reshape(-1, 4)
        x = (edges[:, None, 0] < edges[None, :, 1]) & (edges[None, :, 0] < edges[:, None, 1])
        y = (edges[:, None, 2] < edges[None, :, 3]) & (edges[None, :, 2] < edges[:, None, 3])
        assert not np.any(x & y & ~np.eye(len(edges), dtype=bool))


@pytest.mark.sample(2, slow=2)
@pytest.mark.parametrize("name", NAMES)
def test_titles_fit_above_their_panels(traces, name):
    for trace in (traces["digits"], traces["many"]):
        for size in SIZES:
            panel = make_panel(name)
            panel.size = size or panel.size
            figure = panel_figure(panel, trace)
            figure.canvas.draw()
            assert max(text.get_window_extent().x1 for text in figure.texts) <= panel.size[0] + 1


# predictions ------------------------------------------------------------------------------------------------------------


def test_predictions_of_the_trace_are_those_of_the_arrays(traces):
    trace = traces["digits"]
    samples, look = trace.header.samples, trace.predictions_at(trace.now)
    panel, _ = drawn("predictions", trace)
    assert words(panel) == [str(c) for c in look.samples]
    wrong = [str(c) for c, label in zip(look.samples, samples.labels) if c != label]
    assert [text.get_text() for text in texts(panel) if text.get_color() == RED] == wrong
    assert len(panel.boxes[1].get_paths()) == len(wrong)
    given = Plots(lambda: trace).predictions(samples.features, samples.labels, list(look.samples))
    assert [text.get_text() for text in given.axes[0].texts if text.get_text()] == words(panel)


def test_predictions_follow_the_time(traces):
    trace = traces["digits"]
    early, late = trace.predictions_at(trace.now // 4), trace.predictions_at(trace.now)
    assert early.samples != late.samples
    panel, _ = drawn("predictions", trace)
    assert panel.key(trace, trace.now) != panel.key(trace, trace.now // 4)
    panel.update(trace, trace.now // 4)
    assert words(panel) == [str(c) for c in early.samples]
    panel.update(trace, -1)  # before the first evaluation: pictures without answers
    assert words(panel) == []
    assert "no evaluation" in panel.caption(trace, -1)


def test_points_and_diverged_models_have_predictions_too(traces):
    panel, _ = drawn("predictions", traces["moons"])
    labels = traces["moons"].header.samples.labels
    assert [word for word in words(panel) if word.startswith("is ")] == [f"is {label}" for label in labels]
    panel, _ = drawn("predictions", traces["diverged"])
    assert words(panel) == ["?"] * 18
    assert "18 wrong" in panel.caption(traces["diverged"])


def test_the_overview_ends_with_predictions_if_there_are_any(traces):
    def figures(trace):
        return [text.get_text() for text in overview(trace).texts]

    assert "Predictions" in figures(traces["digits"])
    assert not any(text.startswith("Predictions") for text in figures(traces["timing"]))


def test_predictions_want_all_three_arrays_or_none(traces):
    plots = Plots(lambda: traces["digits"])
    with pytest.raises(lk.BadInput, match="all three"):
        plots.predictions(np.zeros((2, 64)))
    assert plots.predictions(t=0.5).axes


# the others -------------------------------------------------------------------------------------------------------------


def test_the_plane_has_the_colours_of_the_predicted_classes(traces):
    trace = traces["moons"]
    panel, _ = drawn("decision_boundary", trace)
    cells = np.frombuffer(trace.predictions_at(trace.now).grid, np.uint8).reshape(40, 40)
    shown = panel.image.get_array()
    middles = shown[shown.shape[0] // 80 :: shown.shape[0] // 40, shown.shape[1] // 80 :: shown.shape[1] // 40]
    tints = {tuple(middles[y, x]): cells[y, x] for y, x in ((0, 0), (39, 39))}
    assert all(tints.get(tuple(middles[y, x]), cells[y, x]) == cells[y, x] for y, x in np.ndindex(40, 40))
    wrong = sum(a != b for a, b in zip(trace.predictions_at(trace.now).samples, trace.header.samples.labels))
    assert len(panel.wrong.get_offsets()) == wrong
    panel.update(trace, -1)
    assert len(panel.wrong.get_offsets()) == 0
    assert np.all(panel.image.get_array() == 1)


@pytest.mark.parametrize(
    ("run", "why"),
    [("digits", "two features"), ("regression", "no classes"), ("timing", "timing"), ("totals", "totals")],
)
def test_without_a_plane_the_panel_gives_the_reason(traces, run, why):
    panel, _ = drawn("decision_boundary", traces[run])
    assert why in panel.note.get_text()


def test_data_distribution_writes_the_counts_of_the_header(traces):
    trace = traces["digits"]
    panel, _ = drawn("data_distribution", trace)
    counts = np.array(trace.header.shares.counts)
    assert sorted(words(panel)) == sorted([str(n) for n in counts.ravel()] + [str(n) for n in counts.sum(axis=1)])
    colours = {label.get_text(): label.get_color() for label in panel.axes.get_yticklabels()}
    assert list(colours) == ["w0", "w1", "w2", "w3"]
    assert [name for name, colour in colours.items() if colour == "#ef7a17"] == ["w2"]
    assert "200 workers in 64 groups" in make_panel("data_distribution").caption(traces["many"])


@pytest.mark.parametrize("run", ["digits", "arms", "mixed"])
def test_the_bars_of_the_ledger_add_up_to_what_was_computed(traces, run):
    trace = traces[run]
    panel, _ = drawn("ledger", trace)
    entries = ledger(trace)
    shown = {name.get_text(): number.get_text() for name, number in zip(panel.names, panel.counts) if name.get_text()}
    numbers = {name: int(number.replace(",", "")) for name, number in shown.items()}
    assert numbers.pop("computed") == sum(numbers.values()) == entries["computed"]
    assert numbers["applied"] == entries["applied"]
    assert panel.verdict.get_text() == "all gradients accounted for ✓"
    ends = [path.vertices[:, 0].max() for path in panel.bars.get_paths()]
    assert max(ends[1:]) == pytest.approx(ends[0], abs=2.1)


def test_a_ledger_that_does_not_close_is_red():
    trace = finished(lk.Problem("moons", hidden=(4,)), lk.SyncPS())
    shard, worker = trace.counters[0], trace.role_ids("worker")[0]
    shard.applied[worker][1] -= 2
    shard.last_received[worker] -= 2
    panel, _ = drawn("ledger", trace)
    assert panel.verdict.get_text() == "2 gradients not accounted for"
    assert panel.verdict.get_color() == RED
    assert "missing" in words(panel)


def test_the_ledger_of_a_past_time_is_labelled_with_its_time(traces):
    panel, _ = drawn("ledger", traces["digits"], 1_500_000_000)
    assert re.match(r"at 1\.50 s", panel.verdict.get_text())
    panel, _ = drawn("ledger", traces["mixed"], 500_000_000)
    assert "?" not in words(panel)
