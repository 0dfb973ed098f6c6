"""The figure of step times: every strategy's bar, its parts, and the texts below it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import labkit as lk
from labkit.views.advice import bars, wrapped

pytestmark = pytest.mark.filterwarnings("error")
LINES = [
    ("Fast", (0.010, 0.001, 0.002, 0.0, 0.0), ("83% computing", "theory: c + a + m"), "13 ms", True),
    ("Big", (0.010, 0.002, 0.010, 0.0, 0.0), ("c + 2a + 5m " * 20,), "22 ms", False),
    ("Far", (0.010, 0.0, 90.0, 0.0, 0.0), ("c + m",), "90 s", True),
]


def test_bar_lengths_are_proportional_to_seconds():
    figure = bars(LINES, "One step = 4 gradients.")
    axes = figure.axes[0]
    wide = [patch.get_width() for patch in axes.patches]
    assert wide[:10] == pytest.approx([10, 1, 2, 0, 0, 10, 2, 10, 0, 0])
    assert sum(wide[10:]) == pytest.approx(axes.get_xlim()[1])  # truncated, with a note
    texts = [t.get_text() for t in axes.texts]
    assert {"Fast", "13 ms", "22 ms, too large", "90 s →", "83% computing", "theory: c + a + m"} <= set(texts)
    assert not any("…" in text for text in texts)
    assert "One step = 4 gradients." in [t.get_text() for t in figure.texts]


def test_doubts_are_written_below_the_axis_and_inside_the_figure():
    doubts = (
        "a network with 5 parameters; measured were 10 to 20",
        "the calibration was repeated and differed by 40% " * 5,
    )
    figure = bars(LINES, "One step = 4 gradients.", "", doubts)
    figure.canvas.draw()
    written = [text for text in figure.texts if text.get_text().startswith("Doubtful: ")]
    assert [text.get_text().split()[1] for text in sorted(written, key=lambda text: -text.get_position()[1])] == [
        "a",
        "the",
    ]
    axis = figure.axes[0].xaxis.label.get_window_extent()
    for text in written:
        box = text.get_window_extent()
        assert 0 <= box.y0 < box.y1 <= axis.y0
        assert box.x1 <= figure.get_figwidth() * figure.dpi


@pytest.mark.parametrize(
    ("formula", "lines"),
    [
        ("c + s = 1 ms + 2 ms", ["c + s = 1 ms + 2 ms"]),
        (
            "max(c + s + a + m, m/S) = max(1 ms + 2 ms + 3 s, 4 s)",
            ["max(c + s + a + m, m/S)", "= max(1 ms + 2 ms + 3 s, 4 s)"],
        ),
        ("N/(c + s), c = slowest: 8 / (4/29.4 ms + 4/10 ms + 1)", ["N/(c + s), c = slowest:", "8 / (4/29.4 ms + 4/10 ms + 1)"]),
        ("c " * 39 + "c", [" ".join("c" * 21), " ".join("c" * 19)]),
    ],
)  # fmt: skip
def test_a_long_formula_is_divided_and_nothing_is_left_out(formula, lines):
    assert wrapped(formula, 240.0) == lines


def test_the_figure_of_the_advice_has_no_text_outside_its_edges():
    cluster = lk.SimulatedCluster(workers=4, compute=0.01, latency=1e-3, bandwidth=1e8)
    x = np.zeros((64, 40), "float32")
    problem = lk.Problem(lk.from_arrays(x, np.arange(64) % 2), hidden=(40, 40, 40), timing_only=True)
    figure = lk.advise(problem, cluster, memory=1e5).figure()
    figure.canvas.draw()
    width, height = figure.get_size_inches() * figure.dpi
    texts = [*figure.axes[0].texts, *figure.texts, figure.axes[0].xaxis.label]
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
    for text, box in boxes:
        assert 0 <= box.x0 <= box.x1 <= width, text
        assert 0 <= box.y0 <= box.y1 <= height, text
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        assert a.x1 <= b.x0 or b.x1 <= a.x0 or a.y1 <= b.y0 + 1 or b.y1 <= a.y0 + 1, (one, other)
