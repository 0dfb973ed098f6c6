"""The five pictures: they match the stored images (pytest-mpl), their sentences agree with independent formulas, and no
text is small, cut off or covered.

After an intended change, inspect the new pictures and store them:

    pytest tests/lessons/test_pictures.py --mpl-generate-path=tests/lessons/baseline/pictures
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib import ft2font
from matplotlib.text import Text

import labkit as lk
from labkit.lessons.pictures.layout import number
from labkit.lessons.pictures.link_saturation import theoretical_throughput

BASELINE = Path(__file__).parent / "baseline" / "pictures"
STORED_WITH = "2.14.3"  # FreeType; with another one letters differ a little
PICTURE = {
    "baseline_dir": "baseline/pictures", "tolerance": 2.0 if ft2font.__freetype_version__ == STORED_WITH else 20.0,
    "deterministic": True, "style": {"text.hinting": "no_hinting"}, "savefig_kwargs": {"dpi": 100, "facecolor": "white"},
}  # fmt: skip
PACE = lk.distributions.Deterministic(0.1)
DIGITS = lk.Problem("digits", hidden=(24,), seed=7)
EQUAL_STAGES = lk.Problem("digits", hidden=(54, 64, 54, 54))  # multiply-adds of each layer: 3,456
NETWORK = {"latency": 0.001, "bandwidth": 1e5}
SIZES = (2, 4, 8)


def run(strategy, problem=DIGITS, budget=None, **cluster):
    made = lk.SimulatedCluster(**{"workers": 4, "compute": PACE, **cluster})
    return lk.train(problem, strategy, made, budget or lk.Budget(seconds=4.25)).wait()


def spiral(rate, updates=100):
    cluster = lk.SimulatedCluster(workers=8, compute=PACE, server_time=0.001)
    going = lk.train(
        lk.Problem("quadratic"), lk.AsyncPS(learning_rate=rate, eval_every=1), cluster, lk.Budget(updates=updates)
    )
    return going, [going.step().result().parameters[0] for _ in range(updates)]


def straggler():
    slow = {"worker-2": 5}
    return lk.lessons.pictures.straggler(run(lk.SyncPS(), slow=slow), run(lk.AsyncPS(), slow=slow))


def mean_staleness():
    random = {
        "compute": lk.distributions.LogNormal(0.1, 0.3),
        "slow": {"worker-1": 5},
        "budget": lk.Budget(updates=400),
    }
    return lk.lessons.pictures.mean_staleness({n: run(lk.AsyncPS(), workers=n, **random) for n in SIZES})


def divergence():
    (inside, one), (outside, other) = spiral(0.15), spiral(0.25)
    return lk.lessons.pictures.divergence(inside, outside, paths=[one, other])


def divergence_without_paths():
    return lk.lessons.pictures.divergence(spiral(0.15)[0], spiral(0.25)[0])


def on_networks():
    return {
        "one server": {n: run(lk.SyncPS(), workers=n, **NETWORK) for n in SIZES},
        "4 shards": {n: run(lk.SyncPS(), workers=n, servers=4, **NETWORK) for n in SIZES},
        "ring": {n: run(lk.RingAllReduce(), workers=n, **NETWORK) for n in SIZES},
    }


def link_saturation():
    return lk.lessons.pictures.link_saturation(on_networks())


def pipelines():
    c = lk.distributions.Deterministic(1.0)
    return {m: run(lk.Pipeline(micro_batches=m), EQUAL_STAGES, lk.Budget(updates=3), compute=c) for m in (1, 4, 16)}


def bubble():
    return lk.lessons.pictures.bubble(pipelines())


DRAWN = {
    f.__name__: f for f in (straggler, mean_staleness, divergence, divergence_without_paths, link_saturation, bubble)
}


@pytest.fixture(scope="module")
def figure():
    """The picture of this name; each is drawn once."""
    made = {}
    return lambda name: made.setdefault(name, None) or made.update({name: DRAWN[name]()}) or made[name]


@pytest.fixture
def compared(request):
    """Without `--mpl` a picture is drawn but not compared: that must not count as a success."""
    options = request.config.option
    if not (getattr(options, "mpl", False) or getattr(options, "mpl_generate_path", None)):
        pytest.fail("pictures are compared with --mpl only (pyproject's addopts has it): nothing was compared.")


def texts(figure):
    """All texts: (text, artist), in the order of creation, without tick labels that are not drawn."""
    figure.canvas.draw()
    hidden = {label for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for label in undrawn(axes, axis)}
    found = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip() and t not in hidden]
    return [(t.get_text(), t) for t in found]


def undrawn(axes, axis):
    """The labels of ticks beyond the limits, and all of axes that are not shown."""
    low, high = sorted(axis.get_view_interval())
    for tick in (*axis.majorTicks, *axis.minorTicks):
        if not axes.axison or not low <= tick.get_loc() <= high:
            yield from (tick.label1, tick.label2)


def title(figure):
    return figure.texts[0].get_text()


def numbers(words):
    return [float(n) for n in re.findall(r"\d+(?:\.\d+)?", words)]


# images ---------------------------------------------------------------------------------------------------------------


@pytest.mark.mpl_image_compare(**PICTURE)
@pytest.mark.parametrize("name", DRAWN)
def test_picture(compared, figure, name):
    return figure(name)


def test_no_picture_is_missing_and_none_is_left_over():
    assert {path.name for path in BASELINE.glob("*.png")} == {f"test_picture_{name}.png" for name in DRAWN}


@pytest.mark.parametrize("name", DRAWN)
def test_text_is_readable_and_neither_cut_off_nor_covered(figure, name):
    drawn = figure(name)
    wide, high = drawn.get_size_inches() * 100
    assert wide == 940
    boxes = []
    for words, artist in texts(drawn):
        assert artist.get_fontsize() >= 9, words
        box = artist.get_window_extent()
        inside = box.x0 >= 0, box.x1 <= wide, box.y0 >= 0, box.y1 <= high
        assert all(inside), words
        boxes.append((words, box))
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        apart = a.x1 <= b.x0 + 1 or b.x1 <= a.x0 + 1 or a.y1 <= b.y0 + 2 or b.y1 <= a.y0 + 2
        assert apart, f"{one!r} and {other!r} lie on each other"


# sentences ------------------------------------------------------------------------------------------------------------


def test_a_straggler_limits_the_throughput_of_synchronous_training(figure):
    """N / (F c) where all wait, (N - 1) / c + 1 / (F c) where none waits; N = 4, F = 5, c = 0.1 s."""
    assert title(figure("straggler")) == "Synchronous, with straggler w2: 8 gradients per second. Asynchronous: 32."
    written = [words for words, _ in texts(figure("straggler"))]
    counted = [[int(text.get_text()) for text in axes.texts] for axes in figure("straggler").axes[1::2]]
    assert counted == [[8, 8, 8, 8], [40, 40, 8, 40]]  # in 4 s: eight whole steps, of which the end cuts none
    assert written.count("gradients in 4 s") == 2


def test_throughput_is_measured_from_the_slowdown():
    late = [lk.Slow("worker-2", 5, at=2.0)]
    pair = [
        lk.train(DIGITS, strategy, lk.SimulatedCluster(workers=4, compute=PACE), lk.Budget(seconds=6.25), faults=late).wait()
        for strategy in (lk.SyncPS(), lk.AsyncPS())
    ]  # fmt: skip
    both = numbers(title(lk.lessons.pictures.straggler(*pair)).replace("w2", ""))
    assert both == pytest.approx([8, 32], rel=0.05)


def test_staleness_in_the_title_is_the_mean_of_all_that_was_applied():
    runs = {n: run(lk.AsyncPS(), workers=n, slow={"worker-1": 3}) for n in (2, 3)}
    means = []
    for each in runs.values():
        stale, count = each.trace.column("applies", "staleness", "count")
        means.append(f"{np.repeat(stale, count).mean():.2f}")
    drawn = lk.lessons.pictures.mean_staleness(runs)
    assert title(drawn) == f"Mean staleness is N − 1, also with a slow worker: {means[0]} and {means[1]} for N = 2, 3."
    written = [words for words, _ in texts(drawn)]
    assert {"theory: N − 1 = 1", "theory: N − 1 = 2", f"measured: {means[0]}", f"measured: {means[1]}"} <= set(written)


def test_bars_are_the_shares(figure):
    for axes in figure("mean_staleness").axes:
        assert sum(patch.get_height() for patch in axes.patches) == pytest.approx(100)


def test_the_edge_in_the_title_is_result_a8(figure):
    """N = 8: constant staleness 7, and the edge is at 2 sin(pi / 30)."""
    edge = 2 * np.sin(np.pi / 30)
    assert numbers(title(figure("divergence")))[:4] == [7, pytest.approx(edge, abs=5e-4), 0.15, 0.25]
    assert "0.15 converges, 0.25 diverges" in title(figure("divergence"))


def test_the_recipe_for_paths_gives_the_recurrence():
    """w(k+1) = w(k) - a w(k-7), all of the first round on the start."""
    _, path = spiral(0.25)
    w = [1.0]
    for k in range(99):
        w.append(w[-1] - 0.25 * w[max(0, k - 7)])
    assert np.allclose(path, w, rtol=1e-12)


def test_the_spiral_shows_the_given_path(figure):
    _, path = spiral(0.15)
    axes = figure("divergence").axes[0]
    drawn = max((line.get_xydata() for line in axes.lines if line.get_color() == "#3b6cf6"), key=len)
    assert np.allclose(drawn[:, 1], path)
    assert np.allclose(drawn[7:, 0], path[:-7])


def test_predicted_and_measured_step_times_agree():
    """Against the time of a ring and the server's link, computed independently: m = model bytes / bandwidth."""
    weights = 64 * 24 + 24 + 24 * 10 + 10
    m, a, c = 4 * weights / NETWORK["bandwidth"], NETWORK["latency"], 0.1
    steps = {
        "one server": lambda n: c + 2 * a + m + n * m, "4 shards": lambda n: c + 2 * a + m + n * m / 4,
        "ring": lambda n: c + 2 * (n - 1) * a + 2 * (n - 1) / n * m,
    }  # fmt: skip
    runs = on_networks()
    drawn = lk.lessons.pictures.link_saturation(runs)
    dots = [line.get_xydata() for line in drawn.axes[0].lines if line.get_marker() == "o"]
    assert len(dots) == len(runs)
    for (name, mine), measured in zip(runs.items(), dots):
        wanted = [n / steps[name](n) for n in SIZES]
        assert theoretical_throughput(mine[8].trace, np.array(SIZES)) == pytest.approx(wanted, rel=1e-9)
        assert measured[:, 0] == pytest.approx(SIZES, abs=0.2)  # side by side where they would overlap
        assert measured[:, 1] == pytest.approx(wanted, rel=0.01)
    low, high = (number(8 / steps[name](8)) for name in ("one server", "ring"))
    reported = numbers(title(drawn))
    assert reported[0] == 8
    assert reported[1:] == pytest.approx([float(low), float(high)], rel=0.01)
    assert title(drawn).startswith("The link of a server saturates, the ring does not")


def test_an_asynchronous_server_is_full_at_bandwidth_over_model():
    """Throughput limited by bandwidth: min(N / (c + 2a + 2m), 1 / m)."""
    runs = {n: run(lk.AsyncPS(), workers=n, **NETWORK) for n in (1, 8)}
    m = 4 * (64 * 24 + 24 + 24 * 10 + 10) / NETWORK["bandwidth"]
    wanted = [1 / (0.1 + 2 * 0.001 + 2 * m), 1 / m]
    assert theoretical_throughput(runs[8].trace, np.array([1, 8])) == pytest.approx(wanted, rel=1e-9)
    (dots,) = [
        line for line in lk.lessons.pictures.link_saturation({"server": runs}).axes[0].lines if line.get_marker() == "o"
    ]
    assert dots.get_ydata() == pytest.approx(wanted, rel=0.03)


def test_without_a_formula_only_dots_or_the_line_of_a_forecast_are_drawn():
    mine = {n: run(lk.AsyncPS(), workers=n, compute=lk.distributions.LogNormal(0.1, 0.3)) for n in (2, 4)}
    assert theoretical_throughput(mine[2].trace, np.array([2])) is None
    red = "#cc1f1f"
    plain = lk.lessons.pictures.link_saturation({"server": mine})
    assert not [line for line in plain.axes[0].lines if line.get_color() == red]
    given = lk.lessons.pictures.link_saturation({"server": mine}, forecast={"server": {2: 20.0, 4: 40.0}})
    (line,) = [line for line in given.axes[0].lines if line.get_color() == red]
    assert line.get_xydata().tolist() == [[2, 20], [4, 40]]


def test_the_bubble_is_p_minus_1_of_m_plus_p_minus_1(figure):
    shares_in_theory = [3 / (m + 3) for m in (1, 4, 16)]
    shares = ", ".join(f"{share:.0%}" for share in shares_in_theory)
    assert title(figure("bubble")) == f"More micro-batches, smaller bubble: {shares} with 1, 4, 16 micro-batches."
    written = [words for words, _ in texts(figure("bubble"))]
    for m, share in zip((1, 4, 16), shares_in_theory):
        assert f"measured: {share:.1%} idle" in written
        assert f"theory: 3/{m + 3} = {share:.1%}" in written
        assert f"{(m + 3) / m / 4:.3g} s per mini-batch" in written  # (M + P - 1) turns of c / (P M)


# refusals -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def some_run():
    return run(lk.AsyncPS(), budget=lk.Budget(updates=20))


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda r: lk.lessons.pictures.straggler(r, "x"), "not a run"),
        (lambda r: lk.lessons.pictures.mean_staleness(r), "dictionary"),
        (lambda r: lk.lessons.pictures.mean_staleness({}), "dictionary"),
        (lambda r: lk.lessons.pictures.mean_staleness({"4": r}), "whole number"),
        (lambda r: lk.lessons.pictures.mean_staleness({8: r}), "has 4"),
        (lambda r: lk.lessons.pictures.mean_staleness(dict.fromkeys(range(1, 7), r)), "1 to 4"),
        (lambda r: lk.lessons.pictures.divergence(r, r), "quadratic"),
        (lambda r: lk.lessons.pictures.link_saturation(r), "name"),
        (lambda r: lk.lessons.pictures.link_saturation({"ring": {3: r}}), "has 4"),
        (lambda r: lk.lessons.pictures.link_saturation({"ring": {4: r}}, forecast={"rang": {4: 1.0}}), "rang"),
        (lambda r: lk.lessons.pictures.bubble({4: r}), "no micro-batches"),
    ],
)  # fmt: skip
def test_figures_refuse_runs_that_do_not_fit(some_run, draw, message):
    with pytest.raises(lk.BadInput, match=message):
        draw(some_run)


def test_a_run_without_updates_is_refused():
    begun = lk.train(DIGITS, lk.AsyncPS(), lk.SimulatedCluster(workers=2, compute=PACE), lk.Budget(updates=3))
    with pytest.raises(lk.BadInput, match="wait"):
        lk.lessons.pictures.straggler(begun, begun)


@pytest.mark.parametrize("paths", ["ab", [[1.0] * 9], [np.ones((9, 2)), [1.0] * 9], [[1.0], [1.0]]])
def test_paths_are_two_lists_of_weights(paths):
    pair = spiral(0.15, 30)[0], spiral(0.25, 30)[0]
    with pytest.raises(lk.BadInput, match="path"):
        lk.lessons.pictures.divergence(*pair, paths=paths)


def test_figures_accept_traces_and_runs(some_run):
    drawn = [title(lk.lessons.pictures.mean_staleness({4: given})) for given in (some_run, some_run.trace)]
    assert drawn[0] == drawn[1]


def test_wrong_micro_batches_are_named():
    one = run(lk.Pipeline(micro_batches=4), EQUAL_STAGES, lk.Budget(updates=2))
    with pytest.raises(lk.BadInput, match="for 8 micro-batches has 4"):
        lk.lessons.pictures.bubble({8: one})


def test_runs_that_keep_totals_only_are_refused():
    counted = run(lk.AsyncPS(), record=False)
    with pytest.raises(lk.BadInput, match="record=False"):
        lk.lessons.pictures.mean_staleness({4: counted})


def test_staleness_alone_decides_stability():
    """The same rate, 0.2: for N = 4 below 2 sin(pi / 14) = .445, for N = 16 above 2 sin(pi / 62) = .101."""
    pair = [run(lk.AsyncPS(learning_rate=0.2), lk.Problem("quadratic"), workers=n) for n in (4, 16)]
    drawn = lk.lessons.pictures.divergence(*pair)
    reported = "0.2 at staleness 3 converges, 0.2 at staleness 15 diverges."
    assert title(drawn) == f"A high rate with stale gradients diverges: {reported}"
