"""`scatter` and `side_by_side`: the figures of the lessons. The oracle is the input: every point is at its given position."""

import numpy as np
import pytest

import labkit as lk
from labkit.views import style


def drawn(figure):
    """(dots, lines) of the only axes, each (x, y)."""
    (axes,) = figure.axes
    *lines, dots = axes.get_lines()
    return dots.get_data(), [line.get_data() for line in lines]


def texts_of(figure):
    return [words.get_text() for words in figure.texts]


def test_measurements_are_dots_and_theory_is_lines():
    theory = {"x squared": lambda x: x**2, "always 2": lambda x: 2.0, "some points": {3: 1.0, 1: 4.0}}
    figure = lk.lessons.pictures.scatter(
        {2: 4.1, 1: 0.9, 3: 9.2}, theory, "Squares", "x", "y", caption="of three numbers"
    )
    (x, y), lines = drawn(figure)
    assert x.tolist() == [1, 2, 3]
    assert y.tolist() == [0.9, 4.1, 9.2]
    np.testing.assert_allclose(lines[0][1], lines[0][0] ** 2)
    assert (lines[0][0].min(), lines[0][0].max()) == (1, 3)
    assert set(lines[1][1].tolist()) == {2.0}
    assert [values.tolist() for values in lines[2]] == [[1, 3], [4, 1]]
    assert {"Squares", "of three numbers", "measured", "x squared", "always 2", "some points"} <= set(texts_of(figure))
    colours = [line.get_color() for line in figure.axes[0].get_lines()]
    assert colours == [style.RED, style.GREY, style.GREY, style.BLUE]


@pytest.mark.parametrize("log", ["", "x", "y", "xy"])
def test_every_dot_is_inside_the_frame(log):
    figure = lk.lessons.pictures.scatter(
        {1e-8: 3e-7, 1.0: 2.0, 30.0: 1e-12}, {"far away": lambda x: 1e-40 * x}, "t", "x", "y", log=log
    )
    (x, y), _ = drawn(figure)
    axes = figure.axes[0]
    for values, (low, high) in ((x, axes.get_xlim()), (y, axes.get_ylim())):
        assert low < values.min()
        assert values.max() < high
    assert (axes.get_xscale(), axes.get_yscale()) == tuple("log" if a in log else "linear" for a in "xy")
    if "y" in log:
        assert axes.get_ylim()[0] > 1e-14  # the line far from all dots has no influence


def test_text_fits_into_the_figure():
    """The labels of the axes do not overlap the ticks, and no text is cut off."""
    figure = lk.lessons.pictures.scatter(
        {h: h**2 for h in 10.0 ** np.arange(-8, 0)}, {"h²": np.square}, "t", "h", "error", log="xy"
    )
    renderer = figure.canvas.get_renderer()
    axes = figure.axes[0]
    name = axes.yaxis.label.get_window_extent(renderer)
    ticks = [label.get_window_extent(renderer) for label in axes.get_yticklabels() if label.get_text()]
    low, high = axes.get_window_extent(renderer).intervaly
    assert name.x0 >= 0
    assert all(name.x1 <= tick.x0 for tick in ticks if low <= (tick.y0 + tick.y1) / 2 <= high)


def test_points_that_are_not_finite_are_left_out():
    (x, _), _ = drawn(lk.lessons.pictures.scatter({1: 1.0, 2: np.inf, 3: np.nan}, {}, "t", "x", "y"))
    assert x.tolist() == [1]


@pytest.mark.parametrize(
    ("measured", "log", "message"),
    [
        ({}, "", "no measured point is finite"),
        ({1: np.nan}, "", "no measured point is finite"),
        ({1: 0.0}, "y", "0 cannot be shown on a logarithmic axis"),
        ({-1: 1.0}, "xy", "-1 cannot be shown"),
        ({1: 1.0}, "z", "log='z' is not allowed"),
    ],
)
def test_values_that_cannot_be_drawn_are_refused(measured, log, message):
    with pytest.raises(lk.BadInput, match=message):
        lk.lessons.pictures.scatter(measured, {}, "t", "x", "y", log=log)


def test_several_runs_beside_each_other():
    paper = lk.SimulatedCluster(workers=3, compute=lk.distributions.Deterministic(0.1), slow={"worker-1": 4})
    timing = lk.Problem("moons", timing_only=True)
    runs = [lk.train(timing, s, paper, lk.Budget(seconds=2)).wait() for s in (lk.AsyncPS(), lk.SSP(s=2))]
    figure = lk.lessons.pictures.side_by_side("progress", {"free": runs[0], "held": runs[1].trace})
    assert len(figure.axes) == 2
    assert {"free", "held"} <= set(texts_of(figure))
    tops = [axes.get_ylim()[1] for axes in figure.axes]
    assert tops[0] > 2 * tops[1]  # separate scales: 15 ahead, and 2
    with pytest.raises(lk.BadInput, match="Did you mean 'progress'"):
        lk.lessons.pictures.side_by_side("progres", {"free": runs[0]})
    with pytest.raises(lk.BadInput, match="at least one run"):
        lk.lessons.pictures.side_by_side("progress", {})
