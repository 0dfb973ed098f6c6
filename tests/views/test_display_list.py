"""Display lists: positions, colours and order of what matplotlib would draw."""

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.patheffects import withStroke

import labkit as lk
from labkit.views import make_panel
from labkit.views.display_list import DisplayList
from labkit.views.figures import blank, place
from labkit.views.style import tinted, width

WIDTH, HEIGHT = 200, 100


@pytest.fixture
def axes():
    """Axes over the whole figure whose data are pixels from the lower left corner."""
    axes = blank(WIDTH, HEIGHT).add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(0, HEIGHT))
    return axes


@pytest.fixture(scope="module")
def trace():
    cluster = lk.SimulatedCluster(workers=3, bandwidth=1e7)
    return lk.train(lk.Problem("moons", hidden=(8,)), lk.AsyncPS(), cluster, lk.Budget(seconds=2)).wait().trace


def recorded(*artists):
    made = DisplayList(WIDTH, HEIGHT).add(artists)
    return made.instructions, made.points


def test_a_line_has_its_points_from_the_upper_left_corner_its_colour_width_and_dashes(axes):
    (line,) = axes.plot([10, 60, 110], [20, 70, 20], color="#3b6cf6", linewidth=1.44, linestyle=(0, (2, 1)))
    (one,), points = recorded(line)
    assert one["do"] == "shapes"
    assert one["n"] == [3]
    assert not one["closed"]
    np.testing.assert_allclose(points, [[10, 80], [60, 30], [110, 80]], atol=1e-4)
    assert one["edge"] == ["#3b6cf6ff"]
    assert one["fill"] == [""]
    assert one["width"] == pytest.approx([2.0])  # 1.44 points at 100 pixels per inch
    assert one["dash"] == pytest.approx([0, 4.0, 2.0])  # in widths of the line
    assert one["clip"] == [0, 0, WIDTH, HEIGHT]


def test_missing_values_interrupt_a_line(axes):
    (line,) = axes.plot([10, 20, np.nan, 40, 50], [10, 10, 10, 10, 10])
    instructions, points = recorded(line)
    parts = [n for one in instructions for n in one.get("n", [])] or [one["codes"] for one in instructions]
    assert np.isfinite(points).all()
    assert parts in ([2, 2], [[1, 2, 1, 2]])


def test_polygons_of_a_collection_are_one_instruction(axes):
    boxes = [[(10, 10), (20, 10), (20, 30), (10, 30)], [(40, 10), (60, 10), (60, 30), (40, 30)]]
    made = axes.add_collection(PolyCollection(boxes, facecolors=["#ff0000", "#00ff0080"], edgecolors="none"))
    (one,), points = recorded(made)
    assert one["do"] == "shapes"
    assert one["closed"]
    assert one["n"] == [5, 5]
    assert one["edge"] == []
    assert one["fill"] == ["#ff0000ff", "#00ff0080"]
    np.testing.assert_allclose(points[[0, 5]], [[10, 90], [40, 90]], atol=1e-4)


def test_lines_of_a_collection_keep_their_widths_and_colours(axes):
    lines = LineCollection(
        [[(0, 0), (10, 10)], [(5, 5), (15, 5)]], colors=["#ff0000", "#0000ff"], linewidths=[0.72, 1.44]
    )
    (one,), points = recorded(axes.add_collection(lines))
    assert one["n"] == [2, 2]
    assert not one["closed"]
    assert one["edge"] == ["#ff0000ff", "#0000ffff"]
    assert one["width"] == pytest.approx([1.0, 2.0])
    np.testing.assert_allclose(points, [[0, 100], [10, 90], [5, 95], [15, 95]], atol=1e-4)


def test_markers_are_one_shape_at_many_places(axes):
    dots = axes.scatter([10, 50, 90], [10, 50, 90], s=25, color="#123456")
    (one,), points = recorded(dots)
    assert one["do"] == "markers"
    assert one["count"] == 3
    assert one["fill"] == "#123456ff"
    shape, places = points[: len(one["codes"])], points[len(one["codes"]) :]
    np.testing.assert_allclose(places, [[10, 90], [50, 50], [90, 10]], atol=1e-4)
    assert np.abs(shape).max() == pytest.approx(5 * 100 / 72 / 2, rel=1e-3)  # a diameter of sqrt(25) points


def test_a_text_is_anchored_where_it_is_aligned(axes):
    words = axes.text(80, 40, "a <b>", ha="right", va="center", color="#cc1f1f", fontsize=9, fontweight="bold")
    words.set_path_effects([withStroke(linewidth=3.6, foreground="w")])
    (one,), _ = recorded(words)
    assert (one["do"], one["s"], one["x"], one["y"]) == ("text", "a <b>", 80, 60)
    assert (one["align"], one["base"], one["bold"], one["colour"]) == (1, 0, True, "#cc1f1fff")
    assert (one["size"], one["halo"]) == (12.5, 5.0)


@pytest.mark.parametrize("hidden", ["invisible", "empty", "not a number"])
def test_a_text_that_is_not_shown_is_left_out(axes, hidden):
    words = axes.text(np.nan if hidden == "not a number" else 1, 1, "" if hidden == "empty" else "x")
    words.set_visible(hidden != "invisible")
    assert recorded(words)[0] == []


def test_an_image_is_its_own_pixels_in_its_box(axes):
    colours = np.arange(24, dtype=np.uint8).reshape(2, 4, 3) * 10
    image = axes.imshow(colours, extent=(20, 60, 30, 50), aspect="auto", interpolation="none")
    axes.set(xlim=(0, WIDTH), ylim=(0, HEIGHT))
    made = DisplayList(WIDTH, HEIGHT).add([image])
    (one,) = made.instructions
    assert (one["rows"], one["columns"], one["x"], one["y"], one["w"], one["h"]) == (2, 4, 20, 50, 40, 20)
    pixels = np.frombuffer(made.pixels, np.uint8).reshape(2, 4, 4)
    np.testing.assert_array_equal(pixels[..., :3], colours)
    assert (pixels[..., 3] == 255).all()


@pytest.mark.parametrize(
    ("x", "y", "ha", "va"),
    [(-5, 50, "left", "top"), (199, 50, "center", "center"), (50, 99, "left", "bottom"), (50, 1, "left", "top")],
)
def test_a_text_at_an_edge_is_moved_into_the_figure(axes, x, y, ha, va):
    (one,), _ = recorded(axes.text(x, y, "seconds", ha=ha, va=va, fontsize=9, clip_on=False))
    wide, high = width("seconds", 9), 12.5
    left, top = one["x"] - (one["align"] + 1) / 2 * wide, one["y"] - {-1: 0.0, 0: 0.5, 2: 1.0}[one["base"]] * high
    assert -0.1 <= left <= WIDTH - wide + 0.1
    assert -0.1 <= top <= HEIGHT - high + 0.1


def test_an_arrow_without_a_text_is_recorded(axes):
    arrow = axes.annotate("", xy=(10, 50), xytext=(90, 50), arrowprops={"arrowstyle": "->"})
    instructions, points = recorded(arrow)
    assert instructions
    assert points[:, 0].min() < 15


def test_empty_artists_are_left_out(axes):
    parts = [axes.plot([], [])[0], axes.add_collection(PolyCollection([])), axes.text(1, 1, "")]
    assert recorded(*parts)[0] == []


def test_artists_are_recorded_from_the_lowest_to_the_highest(axes):
    (high,) = axes.plot([0, 1], [0, 1], color="#ff0000", zorder=5)
    (low,) = axes.plot([0, 1], [0, 1], color="#00ff00", zorder=1)
    instructions, _ = recorded(high, low)
    assert [one["edge"] for one in instructions] == [["#00ff00ff"], ["#ff0000ff"]]


def test_everything_can_be_sent_as_json(axes):
    import json

    axes.plot([1, 2], [3, 4], "o-")
    axes.bar([10, 20], [5, 6], hatch="//")
    made = DisplayList(WIDTH, HEIGHT).add(axes.get_children())
    assert json.loads(json.dumps(made.instructions)) == made.instructions
    assert made.points.dtype == np.float32


@pytest.mark.parametrize("size", [(462, 210), (924, 420)])
def test_the_cells_of_an_image_are_sent_one_by_one_at_every_size(slowed_trace, size):
    panel = make_panel("data_distribution")
    figure = blank(*size)
    place(figure, panel, 0, 0, *size, title=False)
    panel.update(slowed_trace, None)
    shares = slowed_trace.header.shares
    (image,) = (one for one in DisplayList(*size).add(panel.axes.get_children()).instructions if one["do"] == "image")
    assert (image["rows"], image["columns"]) == (len(shares.counts), shares.classes)


def test_pixels_of_one_colour_are_mixed_with_the_paper_by_their_opacity():
    pixels = tinted("#3b6cf6", np.array([[0.0, 0.25], [0.5, 1.0]]))
    assert pixels.shape == (2, 2, 4)
    np.testing.assert_allclose(pixels[..., 3], [[0.0, 0.25], [0.5, 1.0]])
    np.testing.assert_allclose(pixels[..., :3] * 255, np.broadcast_to([0x3B, 0x6C, 0xF6], (2, 2, 3)))


@pytest.mark.parametrize("size", [(540, 150), (1080, 300)])
@pytest.mark.parametrize(
    "name", ["timeline", "throughput", "accuracy", "progress", "staleness", "gradient_flow", "links"]
)
def test_ticks_grid_and_labels_are_where_matplotlib_draws_them(trace, name, size):
    """The oracle is `Axis.draw`, in which each text has its position at the baseline."""
    panel = make_panel(name)
    place(blank(*size), panel, 0, 0, *size, title=False)
    panel.update(trace, trace.watermark())
    for axis in (panel.axes.xaxis, panel.axes.yaxis):
        ours, theirs = DisplayList(*size).add([axis]), DisplayList(*size)
        axis.draw(theirs)
        assert sorted(texts(ours)) == sorted(texts(theirs))
        for words, (x, y, colour, size_of) in texts(ours).items():
            x_there, y_there, *style_there = texts(theirs)[words]
            assert [colour, size_of] == style_there
            assert (x, y) == pytest.approx((x_there, y_there), abs=2.0), words
        lines, expected = (
            {tuple(map(tuple, np.round(pair))) for pair in made.points[: len(made.points) // 2 * 2].reshape(-1, 2, 2)}
            for made in (ours, grid_of(axis, size))
        )
        assert expected <= lines


def texts(made):
    """{text: (x, y of the baseline, colour, size)}, for texts whose left or right end or middle is at x."""
    rise = {-1: 0.76, 0: 0.36, 1: 0.0, 2: 0.0}
    found = {}
    for one in made.instructions:
        if one["do"] == "text" and not one["angle"]:
            found[one["s"]] = one["x"], one["y"] + rise[one["base"]] * one["size"], one["colour"], one["size"]
    return found


def grid_of(axis, size):
    low, high = sorted(axis.get_view_interval())
    made = DisplayList(*size)
    for tick in axis.get_major_ticks(len(axis.get_majorticklocs())):
        if low <= tick.get_loc() <= high:
            tick.gridline.draw(made)
    return made
