"""A panel on the page: when it is drawn again, and that the parts that the browser keeps equal a new drawing."""

from __future__ import annotations

import dataclasses
import gc
import weakref

import pytest

import labkit as lk
from labkit.lab.page.content import SMALLEST
from labkit.lab.page.live_panel import FIRST_VIEW, LivePanel, is_wide
from labkit.trace.schema import NANO
from labkit.views import PANELS, make_panel
from labkit.views.display_list import DisplayList
from labkit.views.figures import blank, place
from tests.lab.page.stubs import resolved, trace, view


def run(seconds=2.0, workers=3):
    """A run with a straggler, a failure and a restart."""
    cluster = lk.SimulatedCluster(workers, compute=lk.distributions.Exponential(0.05))
    faults = [lk.Slow("worker-1", 4, at=0.6), lk.Kill("worker-0", at=1.2)]
    return lk.train(lk.Problem("digits", hidden=(8,)), lk.AsyncPS(), cluster, lk.Budget(seconds=seconds), faults=faults)


@pytest.fixture(scope="module")
def finished():
    return run().wait().trace


class Kept:
    """The layers of a panel as a browser keeps them: a layer that is not sent stays."""

    def __init__(self):
        self.axes, self.content, self.received = [], [], []

    def receive(self, message, buffers):
        self.received.append(message)
        if "axes" in message:
            self.axes = resolved(message["axes"], buffers)
        self.content = resolved(message["content"], buffers)


def drawn_anew(name, record, reference, t, size):
    """All instructions of the panel on new axes, in one display list."""
    panel = make_panel(name, reference)
    axes = place(blank(*size), panel, 0, 0, *size, title=False)
    panel.update(record, t)
    whole = DisplayList(*size).add(artist for artist in axes.get_children() if artist is not axes.patch)
    layer = {"ops": whole.instructions, "points": 0, "pixels": 1}
    return resolved(layer, [whole.points.tobytes(), whole.pixels]), panel.caption(record, t)


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", PANELS)
def test_kept_axes_and_new_content_equal_a_new_drawing(name, finished):
    panel, kept = LivePanel(name), Kept()
    size = PANELS[name].size
    for t, panel.size in ((0.0, size), (0.7, size), (0.71, size), (1.5, size), (2.0, SMALLEST), (0.7, size)):
        now = view(finished, t=round(t * NANO))
        kept.receive(*panel.draw(now))
        instructions, caption = drawn_anew(name, finished, None, now.t, panel.size)
        assert sorted(kept.axes + kept.content) == sorted(instructions)
        assert kept.received[-1]["caption"] == caption
        assert kept.received[-1]["size"] == list(panel.size)
        assert PANELS[name].title in kept.received[-1]["alt"]


def test_a_size_that_is_reported_during_a_drawing_counts_for_the_next_one(finished, monkeypatch):
    panel, kept = LivePanel("staleness"), Kept()
    caption = PANELS["staleness"].caption

    def resize(self, *moment):
        panel.size = (900, 400)
        return caption(self, *moment)

    monkeypatch.setattr(PANELS["staleness"], "caption", resize)
    now, before = view(finished), panel.size
    kept.receive(*panel.draw(now))
    assert sorted(kept.axes + kept.content) == sorted(drawn_anew("staleness", finished, None, now.t, before)[0])
    assert kept.received[-1]["size"] == list(before)
    assert panel.behind(now)


def test_unchanged_axes_are_not_sent_again(finished):
    panel = LivePanel("accuracy")
    first, buffers = panel.draw(view(finished, t=NANO))
    again, fewer = panel.draw(view(finished, t=NANO + 1))
    assert "axes" in first
    assert "axes" not in again
    assert "content" in again
    assert (len(buffers), len(fewer)) == (4, 2)
    assert {first[layer][kind] for layer in ("axes", "content") for kind in ("points", "pixels")} == {0, 1, 2, 3}
    panel.resend()
    assert "axes" in panel.draw(view(finished, t=NANO + 1))[0]


@pytest.mark.parametrize("name", FIRST_VIEW)
def test_a_panel_is_behind_only_if_it_would_look_different(name, finished):
    panel = LivePanel(name)
    now = view(finished, t=NANO)
    assert panel.behind(now)
    panel.draw(now)
    assert not panel.behind(now)
    assert not panel.behind(dataclasses.replace(now, busy="stopping", slow={"worker-1": 4.0}))
    assert panel.behind(view(finished, t=2 * NANO))
    assert panel.behind(view(trace(), t=NANO))
    assert panel.behind(view(finished, t=NANO, reference=trace()))
    panel.size = (333, 155)
    assert panel.behind(now)
    panel.draw(now)
    assert not panel.behind(now)
    panel.resend()
    assert panel.behind(now)


@pytest.mark.parametrize("name", FIRST_VIEW)
def test_a_panel_of_a_growing_run_is_drawn_when_it_has_grown(name):
    growing = run().advance(0.5)
    panel, kept = LivePanel(name), Kept()
    drawings = 0
    for _ in range(10):
        growing.advance(0.1)
        record = growing.trace
        now = view(record, t=record.watermark(), state="running")
        before = (kept.axes, kept.content)
        if panel.behind(now):
            drawings += 1
            kept.receive(*panel.draw(now))
            assert (kept.axes, kept.content) != before
    assert drawings >= 3
    growing.wait()
    end = view(growing.trace, state="over")
    assert panel.behind(end)
    kept.receive(*panel.draw(end))
    assert sorted(kept.axes + kept.content) == sorted(drawn_anew(name, end.trace, None, end.t, panel.size)[0])


def test_a_released_panel_keeps_no_run():
    old = run(0.3).wait().trace
    panel = LivePanel("staleness")
    panel.draw(view(old))
    panel.release()
    gone = weakref.ref(old)
    del old
    gc.collect()
    assert gone() is None
    assert panel.behind(view())
    assert "axes" in panel.draw(view())[0]


def test_values_under_the_pointer_are_those_of_the_trace(finished):
    panel = LivePanel("throughput")
    now = view(finished)
    assert panel.readout(now, 0.5, 0.5) == ""  # not drawn yet
    panel.draw(now)
    assert panel.readout(now, 0.5, 0.4)
    for x, y in ((0.001, 0.5), (0.5, 0.999), (-3.0, 0.5), (0.5, 1e9), (float("nan"), 0.5)):
        assert panel.readout(now, x, y) == ""  # beside the axes
    assert panel.readout(view(trace()), 0.5, 0.4) == ""  # another run is shown by now


def test_a_table_has_a_row_of_names_and_rows_of_values(finished):
    panel = LivePanel("accuracy")
    assert panel.table(view(finished)) == ""
    panel.draw(view(finished))
    lines = [line.split("\t") for line in panel.table(view(finished)).split("\n")]
    assert len({len(line) for line in lines}) == 1
    shown = [float(line[-1]) for line in lines[1:]]
    assert shown[-1] == pytest.approx(100 * finished.ending["accuracy"])
    assert len(shown) == len(finished.tables["evaluations"].rows())


def test_wide_panels_take_a_row():
    assert is_wide("timeline")
    assert not is_wide("staleness")
