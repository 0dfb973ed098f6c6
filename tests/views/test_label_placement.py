"""Label placement: texts cover neither lines nor other texts, lie within the axes, and are as wide as estimated."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.views import style
from labkit.views.event_lines import Events
from labkit.views.figures import blank, truncated
from labkit.views.label_placement import HIGH, WORDS, LabelPlacement


def empty_axes(wide=300, high=140):
    """Axes of this size in pixels, with room around them, from (0, 0) to (10, 1)."""
    figure = blank(wide + 100, high + 60)
    axes = figure.add_axes((50 / (wide + 100), 30 / (high + 60), wide / (wide + 100), high / (high + 60)))
    axes.set_xlim(0, 10)
    axes.set_ylim(0, 1)
    return axes


TEXTS = [
    "theory: mean = N − 1 = 3", "w2 5x slower", "this run 12,345/s", "96.1%", "learning_rate = 0.05", "worker-3 killed",
    "WWW MMM", "illicit, little", "5–95% × 1,000 · µ", "(N − 1) / K = 3.5",
]  # fmt: skip


@pytest.mark.parametrize("words", TEXTS)
@pytest.mark.parametrize("bold", [False, True])
def test_text_widths_are_estimated_within_a_few_percent(words, bold):
    axes = empty_axes()
    text = style.write(axes, 0, 0, words, size=style.NORMAL, fontweight="bold" if bold else "normal")
    drawn = text.get_window_extent().width
    assert 0.97 * drawn - 1 <= style.width(words, style.NORMAL, bold) <= 1.15 * drawn + 2


def test_captions_are_shortened_by_parts_and_then_by_letters():
    words = "gradients per second · dashed: reference, SyncPS · thin: each worker"
    assert truncated(words, 1000) == words
    assert truncated(words, 350) == "gradients per second · dashed: reference, SyncPS"
    assert truncated(words, 150) == "gradients per second"
    assert truncated(words, 60).endswith("…")
    assert style.width(truncated(words, 60), style.NORMAL) <= 60


def test_a_label_is_placed_near_its_curve_without_overlap():
    axes = empty_axes()
    room = LabelPlacement(axes)
    x = np.linspace(0, 10, 50)
    room.curve(x, np.full(50, 0.5))
    left, bottom, cost = room.near(60, 300, 70)
    assert cost == 0
    assert left + 60 >= 290  # at the end
    assert 3 <= min(abs(bottom - 70), abs(bottom + HIGH - 70)) <= 9 or bottom >= 70  # just above or below the line
    assert bottom + HIGH <= 70 or bottom >= 70
    room.box(0, 72, 300, 140)  # no room above any more
    assert room.near(60, 300, 70)[1] + HIGH <= 70
    assert room.near(60, 300, 140, [100.0])[0] == pytest.approx(100, abs=3)
    assert room.near(60, 300, 140, [900.0])[0] + 60 <= 300  # moved inside


def test_invisible_and_non_finite_points_take_no_space_for_labels():
    room = LabelPlacement(empty_axes())
    room.curve(np.array([np.nan, 1.0, 2.0, np.inf]), np.array([0.5, np.nan, 1e300, 0.5]))
    room.curve(np.array([]), np.array([]))
    room.curve(np.array([20.0, 30.0]), np.array([0.5, 0.5]))
    room.box(-50, -50, -10, -10)
    room.box(400, 400, 500, 500)
    assert room.cells.sum() == 0


drawn_events = st.lists(st.tuples(st.floats(-1, 11), st.sampled_from(TEXTS)), max_size=12).map(sorted)


@settings(max_examples=40, deadline=None)
@given(drawn_events, st.booleans(), st.sampled_from([(300, 140), (666, 120), (120, 60)]))
def test_event_labels_do_not_overlap_and_are_not_cut(events, above, size):
    axes = empty_axes(*size)
    made = Events(axes, above)
    made.show(events, None if above else LabelPlacement(axes))
    boxes = [words.get_window_extent() for words in made.words if words.get_text()]
    whole = axes.get_window_extent()
    for box in boxes:
        assert whole.x0 - 10 <= box.x0 <= box.x1 <= whole.x1 + 10
        assert (box.y0 >= whole.y1 - 1) if above else (whole.y0 - 2 <= box.y0 <= box.y1 <= whole.y1 + 2)
    for a, b in itertools.combinations(boxes, 2):
        assert min(a.x1, b.x1) - max(a.x0, b.x0) <= 1 or min(a.y1, b.y1) - max(a.y0, b.y0) <= 3
    seen = {x for x, _ in events if 0 <= x <= 10}
    drawn = set(made.lines.get_xdata())
    assert drawn <= seen | {x for x in drawn if any(abs(x - s) < 1e-6 for s in seen)}
    assert bool(drawn) == bool(seen)  # each has a line, or shares one that is too near to be distinguished


def test_the_newest_event_is_named_first():
    axes = empty_axes(120, 20)  # room for one line of text
    made = Events(axes)
    made.show([(2.0, "w2 5x slower"), (6.0, "w1 normal speed")], LabelPlacement(axes))
    assert made.words[0].get_text() in ("w1 normal speed", "w1 1x")
    taken = LabelPlacement(axes)
    taken.box(0, 0, 120, 20, WORDS)
    made.show([(2.0, "w2 5x slower")], taken)
    assert not any(words.get_text() for words in made.words)


@pytest.mark.parametrize(
    ("value", "below"), [(0.2, 1), (1, 1), (4.9, 2), (5, 5), (999, 500), (1000, 1000), (2500, 2000)]
)
def test_nice_below(value, below):
    assert style.nice_below(value) == below


@pytest.mark.parametrize(
    ("value", "reported"),
    [(0.25, "0.25"), (1234, "1,234"), (20_000, "20k"), (2e6, "2M"), (3.5e9, "3.5G"), (-2e6, "−2M")],
)
def test_ticks_are_short_numbers(value, reported):
    assert style.plain(value) == reported
