"""The page of a lab without a kernel and a browser: it is drawn when something has changed, and closes all its widgets.

The lab is a stub that records presses; the tests change the widgets as a user would.
"""

from __future__ import annotations

import io

import ipywidgets
import pytest
from PIL import Image

from labkit.errors import BadInput
from labkit.lab import actions
from labkit.lab.page import Page
from labkit.lab.page.panels import shape_of
from labkit.lab.page.widget_factory import InputWidget, WidgetFactory
from labkit.lab.settings import Settings
from labkit.trace.schema import NANO
from labkit.views import PANELS
from tests.lab.page.page_stub import SCENARIO, Stub, button, by_class, entries, panel, text, trace, until, view


def picture(page, name):
    """The picture of a panel as it is on the page."""
    _, _, image = panel(page, name)
    return Image.open(io.BytesIO(image.value))


def test_panels_texts_and_numbers_are_drawn_and_then_the_thread_ends(open_page):
    page = open_page(panels=("timeline", "staleness"), drawing=True)
    assert page.join(20)
    for name in ("timeline", "staleness"):
        wide, high = shape_of(name, beside=True)
        assert picture(page, name).size == (2 * wide, 2 * high)  # at rest it is drawn with twice as many pixels
    assert "asynchronous" in by_class(page, "lk-headline").value.lower()
    assert "applied" in by_class(page, "lk-numbers").value
    assert "strategy=async-ps" in text(page)
    assert 'role="log"' in text(page)


def test_an_acknowledged_last_frame_starts_no_other(open_page):
    page = open_page(drawing=True)
    assert page.join(20)
    sent = page.thread.sent
    assert sent >= 1
    page.thread.acknowledge(sent)
    assert page.join(20)
    page.wake()
    assert page.join(20)
    assert page.thread.sent == sent  # and an unchanged picture is not sent


def test_another_run_gives_another_picture(open_page):
    page = open_page(drawing=True)
    assert page.join(20)
    first = panel(page, "staleness")[2].value
    page.lab.now = view(trace(6))
    page.wake()
    assert page.join(20)
    assert panel(page, "staleness")[2].value != first
    page.lab.now = view()
    page.wake()
    assert page.join(20)
    assert panel(page, "staleness")[2].value == first


def test_frames_are_drawn_during_a_run_and_not_for_a_past_position(open_page):
    page = open_page(view(state="running"), drawing=True)
    until(lambda: page.thread.sent >= 1)
    assert page.thread.alive
    page.lab.now = view(state="running", live=False, t=NANO // 4)
    page.wake()
    assert page.join(20)


def test_a_panel_that_cannot_be_drawn_shows_its_error_and_the_others_are_drawn(open_page, monkeypatch):
    def broken(*_):
        raise ValueError("<broken> on purpose")

    monkeypatch.setattr(PANELS["staleness"], "update", broken)
    page = open_page(panels=("staleness", "throughput"), drawing=True)
    assert page.join(20)
    assert "&lt;broken&gt; on purpose" in panel(page, "staleness")[1].value
    assert picture(page, "throughput").format == "PNG"


def test_a_lab_without_a_view_shows_the_error_and_the_thread_ends(open_page, monkeypatch):
    page = open_page(drawing=True)
    assert page.join(20)
    monkeypatch.setattr(page.lab, "view", lambda: 1 / 0)
    monkeypatch.setattr("labkit.lab.page.page.TRIES", 0)
    page.wake()
    assert page.join(20)
    assert "division by zero" in by_class(page, "lk-headline").value


def test_the_page_uses_less_processor_time_with_unpaced_processes(open_page):
    settings = Settings().changed(engine="dask", distribution="full speed")
    page = open_page(view(state="running", simulated=False, shown=settings), drawing=True)
    until(lambda: page.thread.sent >= 1)
    assert page.thread.share < 0.15


# the end --------------------------------------------------------------------------------------------------------------


def test_closing_ends_the_thread_closes_every_widget_and_is_idempotent():
    before = set(ipywidgets.widgets.widget._instances)
    page = Page(Stub(view(entries=entries(), scenario=SCENARIO, asked=True)), ("staleness",), None)
    button(page, "more").click()
    page.choose(("accuracy", "throughput"))
    page.close()
    page.close()
    assert not page.drawing
    assert set(ipywidgets.widgets.widget._instances) == before
    page.choose(("loss",))
    page.wake()
    page.refresh()
    assert set(ipywidgets.widgets.widget._instances) == before


def test_two_labs_have_independent_pages(open_page):
    one, two = open_page(), open_page(view(trace(6)))
    button(one, "Run").click()
    by_class(two, "lk-scrub").value = 3
    assert one.lab.pressed == [actions.Start()]
    assert two.lab.pressed == [actions.Seek(pytest.approx(0.1))]
    one.close()
    button(two, "Stop").click()
    assert two.lab.pressed[-1] == actions.Stop()


# widgets --------------------------------------------------------------------------------------------------------------


def test_only_what_has_changed_is_sent():
    factory = WidgetFactory()
    words = factory.html("a b", "one")
    factory.put(words, value="one")
    factory.mark(words, a=True)
    assert factory.writes == 0
    factory.mark(words, a=False, lk_new=True)
    assert words._dom_classes == ("b", "lk-new")
    assert factory.writes == 1
    factory.close()


def test_an_input_is_left_alone_for_a_moment_after_the_user_has_changed_it():
    now = [0.0]
    factory = WidgetFactory(lambda: now[0])
    chosen = []
    choice = InputWidget(factory, factory.make(ipywidgets.IntSlider, value=1), chosen.append, hold=1.0)
    choice.widget.value = 5
    choice.show(1)  # the lab is not notified yet
    assert choice.widget.value == 5
    now[0] = 2.0
    choice.show(1)  # and will not apply it
    assert choice.widget.value == 1
    assert chosen == [5]
    factory.close()


@pytest.mark.parametrize(
    ("panels", "named", "reported"),
    [(("stalenes",), None, "staleness"), (None, ("workres",), "workers"), ((), None, "panels")],
)
def test_unknown_panels_and_controls_are_refused_before_any_widget_is_made(panels, named, reported):
    before = len(ipywidgets.widgets.widget._instances)
    with pytest.raises(BadInput, match=reported):
        Page(Stub(view()), panels, named)
    assert len(ipywidgets.widgets.widget._instances) == before
