"""The page of a lab with no kernel and no browser: it draws when there is something to see, and goes away without a trace.

The lab is a stub that is shown and that writes down what it is asked; what a person does to the widgets is done to them.
"""

from __future__ import annotations

import ipywidgets
import pytest
from page_stub import STORY, Stub, button, entries, text, trace, until, view

from labkit.errors import BadInput
from labkit.lab.page import Page
from labkit.lab.page.kit import Dial, Kit
from labkit.lab.settings import Settings
from labkit.trace.vocabulary import NANO
from labkit.views import PANELS


def test_pictures_words_and_numbers_are_drawn_and_then_the_thread_ends(open_page):
    page = open_page(panels=("timeline", "staleness"), drawing=True)
    assert page.join(20)
    for slot in page.wall.shown:
        assert bytes(slot._image.value).startswith(b"\x89PNG")
        assert slot._scale == 2
    assert "asynchronous" in page.headline.box.value.lower()
    assert "applied" in page.foot._numbers.value
    assert "strategy=async-ps" in text(page)
    assert 'role="log"' in text(page)


def test_an_answered_last_frame_starts_no_other(open_page):
    page = open_page(drawing=True)
    assert page.join(20)
    sent = page.painter.sent
    assert sent >= 1
    page._echo._seen.value = page._echo._sent.value  # what the browser does
    assert page.painter.answered == sent
    assert page.join(20)
    page.wake()
    assert page.join(20)
    assert page.painter.sent == sent  # and nothing new is not sent


def test_another_run_another_picture(open_page):
    page = open_page(drawing=True)
    assert page.join(20)
    first = page.wall.shown[0]._image.value
    page.lab.now = view(trace(6))
    page.wake()
    assert page.join(20)
    assert page.wall.shown[0]._image.value != first
    page.lab.now = view()
    page.wake()
    assert page.join(20)
    assert page.wall.shown[0]._image.value == first


def test_while_something_moves_frames_are_drawn_and_a_look_back_is_at_rest(open_page):
    page = open_page(view(state="running"), drawing=True)
    until(lambda: page.painter.sent >= 1)
    assert page.painter.alive
    page.lab.now = view(state="running", live=False, t=NANO // 4)
    page.wake()
    assert page.join(20)


def test_a_panel_that_cannot_be_drawn_says_so_and_the_others_are_drawn(open_page, monkeypatch):
    def broken(*_):
        raise ValueError("<broken> on purpose")

    monkeypatch.setattr(PANELS["staleness"], "update", broken)
    page = open_page(panels=("staleness", "throughput"), drawing=True)
    assert page.join(20)
    assert "&lt;broken&gt; on purpose" in page.wall.shown[0]._title.value
    assert bytes(page.wall.shown[1]._image.value).startswith(b"\x89PNG")


def test_a_lab_that_cannot_say_what_is_shows_why_and_the_thread_ends(open_page, monkeypatch):
    page = open_page(drawing=True)
    assert page.join(20)
    monkeypatch.setattr(page.lab, "view", lambda: 1 / 0)
    monkeypatch.setattr("labkit.lab.page.page.TRIES", 0)
    page.wake()
    assert page.join(20)
    assert "division by zero" in page.headline.box.value


def test_unpaced_processes_get_more_of_the_machine(open_page):
    setup = Settings().changed(engine="dask", law="full speed")
    page = open_page(view(state="running", simulated=False, shown=setup), drawing=True)
    until(lambda: page.painter.sent >= 1)
    assert page.painter.share < 0.15


# the end --------------------------------------------------------------------------------------------------------------


def test_closing_takes_every_widget_and_the_thread_away_and_twice_is_as_good_as_once():
    before = set(ipywidgets.widgets.widget._instances)
    page = Page(Stub(view(entries=entries(), story=STORY, asked=True)), ("staleness",), None)
    page.side._sections["more"]._fold()
    page.choose(("accuracy", "throughput"))
    page.close()
    page.close()
    assert not page.painter.alive
    assert set(ipywidgets.widgets.widget._instances) == before
    page.choose(("loss",))
    page.wake()
    page.show()
    assert set(ipywidgets.widgets.widget._instances) == before


def test_two_pages_of_two_labs(open_page):
    one, two = open_page(), open_page(view(trace(6)))
    button(one, "Run").click()
    two.top._scrub.widget.value = 3
    assert one.lab.pressed == [("run",)]
    assert two.lab.pressed == [("seek", pytest.approx(0.1))]
    one.close()
    button(two, "Stop").click()
    assert two.lab.pressed[-1] == ("stop",)


# the kit --------------------------------------------------------------------------------------------------------------


def test_what_is_there_already_is_not_sent():
    kit = Kit()
    words = kit.html("a b", "one")
    kit.put(words, value="one")
    kit.mark(words, a=True)
    assert kit.writes == 0
    kit.mark(words, a=False, lk_new=True)
    assert words._dom_classes == ("b", "lk-new")
    assert kit.writes == 1
    kit.close()


def test_a_dial_is_left_alone_for_a_moment_after_a_hand_has_moved_it():
    now = [0.0]
    kit = Kit(lambda: now[0])
    turned = []
    dial = Dial(kit, kit.make(ipywidgets.IntSlider, value=1), turned.append, patience=1.0)
    dial.widget.value = 5
    dial.show(1)  # the lab has not heard of it yet
    assert dial.widget.value == 5
    now[0] = 2.0
    dial.show(1)  # and will not do it
    assert dial.widget.value == 1
    assert turned == [5]
    kit.close()


@pytest.mark.parametrize(
    ("panels", "named", "said"),
    [(("stalenes",), None, "staleness"), (None, ("workres",), "workers"), ((), None, "panels")],
)
def test_what_there_is_not_is_refused_before_anything_is_made(panels, named, said):
    before = len(ipywidgets.widgets.widget._instances)
    with pytest.raises(BadInput, match=said):
        Page(Stub(view()), panels, named)
    assert len(ipywidgets.widgets.widget._instances) == before
