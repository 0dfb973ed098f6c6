"""Amdahl, Gustafson, and the Universal Scalability Law, which a fit recovers from exact points."""

import itertools
import math

import numpy as np
import pytest

import labkit as lk
from labkit.lessons.pictures import memory_traffic, ranking, scaling
from labkit.lessons.pictures.layout import lanes


def usl(n, p, k):
    return n / (1 + p * (n - 1) + k * n * (n - 1))


def test_amdahl_and_gustafson_have_the_values_of_their_formulas():
    """f = 5%, N = 64: 15.42 and 60.85."""
    assert lk.lessons.amdahl(0.05, 64) == pytest.approx(64 / (0.05 * 64 + 0.95), rel=1e-12)
    assert round(lk.lessons.amdahl(0.05, 64), 2) == 15.42
    assert round(lk.lessons.gustafson(0.05, 64), 2) == 60.85
    assert lk.lessons.amdahl(0, 7) == lk.lessons.gustafson(0, 7) == 7
    assert lk.lessons.amdahl(1, 7) == lk.lessons.gustafson(1, 7) == 1
    assert lk.lessons.amdahl(0.1, np.array([1, 10, 1e9])).tolist() == pytest.approx([1, 10 / 1.9, 10])


@pytest.mark.parametrize(
    "speedup", [lambda *a: lk.lessons.amdahl(*a), lambda *a: lk.lessons.gustafson(*a)], ids=["amdahl", "gustafson"]
)
@pytest.mark.parametrize(
    "wrong", [(-0.1, 4), (1.1, 4), ("half", 4), (True, 4), (0.5, 0), (0.5, math.inf), (0.5, "many")]
)
def test_invalid_serial_fractions_and_worker_counts_are_refused(speedup, wrong):
    with pytest.raises(lk.BadInput, match=r"serial=|workers="):
        speedup(*wrong)


@pytest.mark.parametrize(("p", "k"), [(0.05, 0.0005), (0.0, 0.0), (0.3, 0.0), (0.0, 0.01), (0.02, 1e-6)])
@pytest.mark.parametrize("one", [1.0, 37.5])
def test_a_fit_of_exact_points_recovers_the_coefficients(p, k, one):
    fit = lk.lessons.fit_scalability({n: one * usl(n, p, k) for n in (1, 2, 4, 16, 64)})
    assert fit.contention == pytest.approx(p, abs=1e-9)
    assert fit.coherence == pytest.approx(k, abs=1e-9)
    assert fit(32) == pytest.approx(one * usl(32, p, k), rel=1e-9)


def test_the_peak_of_the_scalability_law_is_where_a_search_finds_it():
    """p = .05, k = .0005: at N = 43.59, 10.742 times one worker; the best integer N by search is adjacent to it."""
    fit = lk.lessons.fit_scalability({n: usl(n, 0.05, 0.0005) for n in (1, 2, 8, 32, 128)})
    assert fit.peak == pytest.approx(43.59, abs=0.005)
    assert fit.ceiling == pytest.approx(10.742, abs=0.0005)
    best = max(range(1, 200), key=lambda n: usl(n, 0.05, 0.0005))
    assert abs(best - fit.peak) < 1


def test_neither_parameter_is_negative():
    """Faster than N times one: an efficiency above 1 counts as 1. Contention that would be negative is 0."""
    assert lk.lessons.fit_scalability({1: 1.0, 2: 2.5, 4: 6.0}) == lk.lessons.Scalability(1.0, 0.0, 0.0)
    bent = lk.lessons.fit_scalability({1: 1.0, 2: 2.2, 64: 10.0})
    assert bent.contention == 0
    assert bent.coherence > 0
    assert lk.lessons.Scalability(1.0, 0.0, 0.0).peak == lk.lessons.Scalability(1.0, 0.0, 0.0).ceiling == math.inf
    assert lk.lessons.Scalability(2.0, 0.1, 0.0).ceiling == pytest.approx(20)
    assert lk.lessons.Scalability(2.0, 2.0, 0.1).peak == 1


def test_the_fit_is_the_best_of_a_grid():
    """No pair on a fine grid fits better, with the equations divided by N - 1."""
    points = {1: 10.0, 2: 19.0, 4: 33.0, 8: 60.0, 16: 78.0, 32: 120.0}
    fit = lk.lessons.fit_scalability(points)
    n = np.array([2, 4, 8, 16, 32.0])
    y = (n * 10 / np.array([points[int(m)] for m in n]) - 1) / (n - 1)
    p, k = np.meshgrid(np.linspace(0, 0.2, 201), np.linspace(0, 0.01, 201), indexing="ij")
    grid = ((p[..., None] + k[..., None] * n - y) ** 2).sum(-1)
    assert ((fit.contention + fit.coherence * n - y) ** 2).sum() <= grid.min() + 1e-12


@pytest.mark.parametrize(
    "wrong", [{}, {2: 1.0}, {1: 1.0}, {1: 1.0, 2: 0.0}, {1: 1.0, 2.5: 2.0}, {1: 1.0, 2: math.nan}, [1, 2]]
)
def test_points_that_do_not_determine_the_fit_are_refused(wrong):
    with pytest.raises(lk.BadInput, match="fit_scalability"):
        lk.lessons.fit_scalability(wrong)


def test_the_pictures_show_the_numbers_given():
    figure = scaling({"ring": {1: 10.0, 10: 90.0}, "server": {1: 9.0, 10: 20.0}}, {"ring": lambda n: 10 * n}, "Title")
    axes = figure.axes[0]
    assert axes.get_xscale() == axes.get_yscale() == "log"
    drawn = [line.get_ydata() for line in axes.lines if line.get_marker() not in ("None", None)]
    assert [list(y) for y in drawn] == [[10.0, 90.0], [9.0, 20.0]]
    assert {"ring: 90", "server: 20", "with 10 workers"} <= {text.get_text() for text in figure.texts}
    held = memory_traffic({"ring": (200.0, 100.0), "fsdp": (300.0, 25.0)}, "Title").axes[0].lines[0]
    assert held.get_xdata().tolist() == [2.0, 3.0]
    assert held.get_ydata().tolist() == [1.0, 0.25]
    rows = ranking({"fast": {"a": 10.0, "b": 5.0}, "slow": {"a": 1.0}}, "Title").axes[0]
    assert [float(line.get_xdata()[0]) for line in rows.lines if line.get_marker() != "None"] == [1.0, 0.5, 1.0]
    assert [text.get_text() for text in rows.texts] == ["10 /s", "1 /s"]


def test_no_markers_overlap():
    """Equal values: in a row of `ranking` one below the other, in `scaling` side by side; all others are at their place."""
    rows = ranking({"equal": {"a": 5.0, "b": 5.0, "c": 4.96}, "apart": {"a": 1.0, "b": 0.5}}, "Title")
    lines = scaling({"ring": {1: 1.0, 10: 9.0}, "server": {1: 1.0, 10: 2.0}, "pairs": {1: 1.01}}, {}, "Title")
    for figure in (rows, lines):
        figure.canvas.draw()
        axes, size = figure.axes[0], 9 * 100 / 72
        dots = [
            axes.transData.transform(line.get_xydata()) for line in axes.lines if line.get_marker() not in ("None", "")
        ]
        for (x0, y0), (x1, y1) in itertools.combinations(np.concatenate(dots).tolist(), 2):
            assert max(abs(x1 - x0), abs(y1 - y0)) > size
    assert [line.get_xdata()[-1] for line in lines.axes[0].lines if line.get_marker() not in ("None", "")][:2] == [
        10,
        10,
    ]


@pytest.mark.parametrize(
    ("positions", "moved"),
    [
        ([], []),
        ([0, 20, 40], [0, 0, 0]),
        ([0, 0], [-7.5, 7.5]),
        ([3, 0, 100, 5], [0, -15, 0, 15]),
        ([0, 10, 20], [-7.5, 7.5, -7.5]),  # the first and the last are apart
    ],
)
def test_lanes(positions, moved):
    assert lanes(positions) == moved


@pytest.mark.parametrize(
    ("draw", "why"),
    [
        (lambda: scaling({}, {}, ""), "1 to"),
        (lambda: scaling({"a": {1: 1.0}}, {"b": abs}, ""), "theory contains 'b'"),
        (lambda: scaling({"a": {1: 0.0}}, {}, ""), "positive"),
        (lambda: memory_traffic({"a": (-1.0, 1.0)}, ""), "negative"),
        (lambda: ranking({"a": {}}, ""), "1 to"),
        (lambda: ranking({"a": {"b": 0.0}}, ""), "gradients per second"),
    ],
)
def test_pictures_refuse_what_they_cannot_draw(draw, why):
    with pytest.raises(lk.BadInput, match=why):
        draw()
