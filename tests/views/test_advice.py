"""The figure of predicted step times: every strategy's bar, its parts, and its formula."""

from __future__ import annotations

import numpy as np
import pytest

import labkit as lk
from labkit.views.advice import bars

pytestmark = pytest.mark.filterwarnings("error")
LINES = [
    ("Fast", 0.010, 0.001, 0.002, "c + a + m", "13 ms", True),
    ("Big", 0.010, 0.002, 0.010, "c + 2a + 5m " * 20, "22 ms", False),
    ("Far", 0.010, 0.0, 90.0, "c + m", "90 s", True),
]


def test_bar_lengths_are_proportional_to_seconds():
    figure = bars(LINES, "One step = 4 gradients.")
    axes = figure.axes[0]
    wide = [patch.get_width() for patch in axes.patches]
    assert wide[:6] == pytest.approx([10, 1, 2, 10, 2, 10])
    assert sum(wide[6:]) == pytest.approx(axes.get_xlim()[1])  # truncated, with a note
    texts = [t.get_text() for t in axes.texts]
    assert {"Fast", "13 ms", "22 ms, too large", "90 s →", "c + a + m"} <= set(texts)
    assert "One step = 4 gradients." in [t.get_text() for t in figure.texts]


def test_the_figure_of_the_advice_has_no_text_outside_its_edges():
    cluster = lk.SimulatedCluster(workers=4, compute=0.01, latency=1e-3, bandwidth=1e8)
    x = np.zeros((64, 40), "float32")
    problem = lk.Problem(lk.from_arrays(x, np.arange(64) % 2), hidden=(40, 40, 40), timing_only=True)
    figure = lk.advise(problem, cluster, memory=1e5).figure()
    figure.canvas.draw()
    width, height = figure.get_size_inches() * figure.dpi
    for text in [*figure.axes[0].texts, *figure.texts, figure.axes[0].xaxis.label]:
        box = text.get_window_extent()
        assert 0 <= box.x0 <= box.x1 <= width, text.get_text()
        assert 0 <= box.y0 <= box.y1 <= height, text.get_text()
