"""A frame of a live figure, whose axes are cached as pixels, equals a newly drawn frame, for every panel."""

from __future__ import annotations

import numpy as np
import pytest

import labkit as lk
from labkit.lab.page.canvas import Canvas
from labkit.views import PANELS, bare_figure, make_panel

pytestmark = pytest.mark.sample(4)


@pytest.mark.parametrize("name", PANELS)
def test_a_frame_on_reused_axes_equals_a_new_one(name):
    cluster = lk.SimulatedCluster(workers=3, compute=lk.Deterministic(0.05))
    faults = [lk.Slow("worker-1", 4, at=1.0)]
    run = lk.train(lk.Problem("digits", hidden=(8,)), lk.AsyncPS(), cluster, lk.Budget(seconds=2), faults=faults)
    trace, canvas = run.wait().trace, Canvas(make_panel(name))
    for t, scale in ((0.0, 1), (0.8, 1), (0.81, 1), (1.7, 1), (2.0, 1), (2.0, 2), (0.5, 1)):
        anew = make_panel(name)
        figure = bare_figure(anew)
        for panel in (anew, canvas.panel):
            panel.update(trace, round(t * 1e9))
        figure.set_dpi(scale * figure.get_dpi())
        figure.canvas.draw()
        np.testing.assert_array_equal(canvas.draw(scale), np.asarray(figure.canvas.buffer_rgba()))
