"""The page of a lab with a stub of a browser: presses are passed to the lab, and frames contain what has changed."""

from __future__ import annotations

import dataclasses
import io
import math
import threading

import pytest
from PIL import Image

from labkit.errors import BadInput
from labkit.lab.page import Page
from labkit.lab.page.content import SMALLEST
from labkit.lab.page.drawing_thread import BUSY, FULL_SPEED, SHARE
from labkit.lab.page.live_panel import FIRST_VIEW, LivePanel
from labkit.lab.page.page import LARGEST, SETTLES, TEXT_EVERY, TRIES
from labkit.lab.settings import Settings
from labkit.narrative import numbers
from labkit.trace.schema import NANO
from labkit.views import PANELS
from tests.lab.page.stubs import EVERYTHING, SCENARIO, StubLab, entries, resolved, trace, view

# messages of the browser ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("run", []), ("pin", [2]), ("play", [None]), ("set", [{"learning_rate": "0.2"}]), ("slow", ["worker-1", 5])],
)
def test_a_press_is_passed_to_the_lab_and_drawn(open_page, name, arguments):
    page = open_page()
    page.press(name, *arguments)
    assert page.lab.pressed == [(name, *arguments)]
    assert page.thread.acted
    assert page.thread.due


def test_the_choice_of_a_menu_is_the_value_of_its_control(open_page):
    page = open_page()
    shown = {control["name"]: control for control in page.browser.state["controls"]}
    page.press("set", {"workers": {"choice": shown["workers"]["choices"].index("8")}})
    page.press("set", {"bandwidth": {"choice": shown["bandwidth"]["choices"].index("unlimited")}})
    assert page.lab.pressed == [("set", {"workers": 8}), ("set", {"bandwidth": math.inf})]


FIRST = {"page": "p", "order": 1}  # the number of a layout
MALFORMED = [
    {}, {"do": "?"}, {"do": ["press"]}, {"do": "press"}, {"do": "press", "action": "stop", "args": 3},
    {"do": "press", "action": "set", "args": [3]}, {"do": "press", "action": "set", "args": []},
    {"do": "press", "action": "set", "args": [{"workers": {"choice": 999}}]},
    {"do": "press", "action": "set", "args": [{"workers": {"choice": "8"}}]},
    {"do": "press", "action": "set", "args": [{"gone": {"choice": 0}}]},
    {"do": "panels"}, {"do": "panels", "name": "gone", "shown": True}, {"do": "layout"},
    {"do": "layout", **FIRST, "sizes": {"staleness": 3}},
    {"do": "layout", **FIRST, "sizes": {"staleness": [math.nan, 100]}, "visible": []},
    {"do": "layout", **FIRST, "sizes": {}, "visible": 3}, {"do": "layout", "page": "p", "order": "x", "sizes": {}, "visible": []},
    {"do": "layout", **FIRST, "sizes": {"staleness": ["a", "b"]}, "visible": ["staleness"]},
    {"do": "seen"}, {"do": "seen", "frame": "x"},
    {"do": "seen", "frame": None}, {"do": "seen", "frame": 10**9}, {"do": "seen", "frame": -5},
    {"do": "probe"}, {"do": "probe", "panel": "gone", "x": 0.5, "y": 0.5, "number": 1},
    {"do": "probe", "panel": "staleness", "x": None, "y": 0.5, "number": 1}, {"do": "copy", "panel": "gone", "number": 1},
    {"do": "save", "panel": "gone", "format": "png", "number": 1}, {"do": "save", "number": 1},
    {"do": "share"}, {"do": "step", "panel": "staleness", "number": 1},
    {"do": "step", "panel": "gone", "at": 3, "direction": "x"},
]  # fmt: skip


def test_malformed_or_outdated_messages_do_nothing(open_page, caplog):
    page = open_page()
    page.thread.frame()
    for message in MALFORMED:
        page.browser.messages.clear()
        page.browser.updates.clear()
        page.browser.send_to_kernel(**message)
        assert not caplog.records, message  # where ipywidgets reports an exception
        if message.get("do") == "press":  # the browser waits for an answer
            assert [answer["do"] for answer, _ in page.browser.take("answer")] == ["answer"], message
        assert page.lab.pressed == [], message
        assert page.thread.acknowledged == -1, message
        page.thread.frame()
        assert page.page.panels == ("staleness",), message
        assert page.browser.messages == [], message
        assert [set(u) for u in page.browser.updates] in ([], [{"controls"}]), message  # fields show the settings again
    page.press("stop")
    assert page.lab.pressed == [("stop",)]


def test_only_frames_that_were_sent_are_acknowledged(open_page):
    page = open_page()
    page.thread.frame()
    assert not page.page.watched
    page.browser.send_to_kernel(do="seen", frame=1)
    assert (page.thread.acknowledged, page.page.watched) == (1, True)


# what is sent ---------------------------------------------------------------------------------------------------------


def test_a_first_frame_has_all_sections_and_pictures(open_page):
    page = open_page(view(entries=entries()), panels=None)
    page.thread.frame()
    state = page.browser.state
    for section in ("toolbar", "player", "headline", "question", "faults", "runs", "numbers", "panels"):
        assert state[section], section
    assert state["controls"]
    assert state["log_lines"]
    assert "asynchronous" in (state["headline"]["first"] + state["headline"]["rest"]).lower()
    (frame,) = page.browser.pictures()
    assert list(frame) == list(FIRST_VIEW)


def test_only_changed_sections_are_sent(open_page):
    page = open_page()
    page.thread.frame()
    page.browser.updates.clear()
    page.show()
    assert page.browser.updates == []
    page.show(busy="stopping")
    assert [set(update) for update in page.browser.updates] == [{"player"}]
    page.browser.updates.clear()
    page.show(busy="stopping", slow={"worker-1": 5.0})
    assert [set(update) for update in page.browser.updates] == [{"faults"}]


def test_a_press_is_shown_before_the_next_frame(open_page):
    page = open_page(view(state="running"))
    page.thread.frame()
    page.browser.updates.clear()
    page.lab.effect = lambda name: {"busy": "pausing"}
    page.press("pause")
    assert page.browser.state["player"]["below"] == "pausing…"
    assert [button["label"] for button in page.browser.state["toolbar"]["buttons"]][1] == "Resume"
    page.lab.effect = lambda name: {"busy": "", "problem": "workers=-2: at least 1"}
    page.press("set", {"workers": "-2"})
    assert page.browser.state["headline"] == {"first": "⚠ ", "rest": "workers=-2: at least 1", "error": True}
    assert page.thread.sent == 1


def test_a_start_clears_all_panels_and_texts_at_once(open_page):
    page = open_page(panels=FIRST_VIEW)
    page.show(state="running")
    number = page.browser.state["player"]["run"]
    page.browser.updates.clear()
    page.lab.effect = lambda name: {"trace": trace(3, 1e-3), "t": 0, "recorded": 0}  # nothing has been applied yet
    page.press("run")
    (update,) = page.browser.updates  # before the next frame
    assert update["player"]["run"] == number + 1  # then the browser clears all panels
    assert [(name, value) for name, value, _ in update["numbers"]["values"]] == numbers(trace(3, 1e-3), 0)
    assert update["log_lines"] == []
    assert update["headline"]
    page.thread.frame()
    ((frame, _),) = page.browser.take("frame")
    assert frame["run"] == number + 1  # the browser may get the frame before the texts
    assert [picture["name"] for picture in frame["panels"]] == list(FIRST_VIEW)
    assert all("axes" in picture for picture in frame["panels"])


def test_a_pinned_run_is_drawn_at_once(open_page):
    page = open_page(panels=("accuracy", "throughput"))
    page.show()
    assert set(page.show(reference=trace(2))) == {"accuracy", "throughput"}
    assert page.show(reference=trace(2)) == {}


def test_buffers_of_panels_are_found_by_their_numbers(open_page):
    page = open_page(panels=FIRST_VIEW)
    page.thread.frame()
    ((frame, buffers),) = page.browser.take("frame")
    assert frame["frame"] == 1
    for picture in frame["panels"]:
        alone, own = LivePanel(picture["name"]).draw(view())
        for layer in ("axes", "content"):
            assert resolved(picture[layer], buffers) == resolved(alone[layer], own)
    used = [
        picture[layer][kind]
        for picture in frame["panels"]
        for layer in ("axes", "content")
        for kind in ("points", "pixels")
    ]
    assert sorted(used) == list(range(len(buffers)))


def test_text_is_updated_less_often_than_pictures_during_a_run(open_page, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("labkit.lab.page.page.time.monotonic", lambda: now[0])
    page = open_page()
    half = trace().watermark() // 2
    page.show(state="running", t=half)
    first = page.browser.state["numbers"]
    now[0] += TEXT_EVERY / 2
    page.show(state="running")
    assert page.browser.state["numbers"] == first
    now[0] += TEXT_EVERY / 2
    page.show(state="running")
    assert page.browser.state["numbers"] != first


def test_a_browser_that_shows_the_page_anew_gets_all_pictures(open_page):
    page = open_page(panels=("staleness", "accuracy"))
    page.thread.frame()
    page.browser.messages.clear()
    assert page.show() == {}
    page.thread.due = False
    page.browser.send_to_kernel(do="ready")
    assert page.thread.due
    frame = page.show()
    assert set(frame) == {"staleness", "accuracy"}
    assert all("axes" in picture and "content" in picture for picture in frame.values())


def test_a_run_that_is_shown_again_is_drawn_again(open_page):
    """The browser clears all pictures when another run is shown, also those that it had of this run."""
    page = open_page(panels=("staleness",))
    one, other = trace(), trace(2)
    assert set(page.show(of=one)) == {"staleness"}
    page.lab.now = view(of=other)
    page.page.refresh()  # shown by a press, and not drawn yet
    picture = page.show(of=one)["staleness"]
    assert "axes" in picture
    assert "content" in picture


def test_a_picture_of_another_run_is_not_sent_and_drawn_later(open_page, monkeypatch):
    page = open_page(panels=("staleness",))
    page.thread.frame()
    draw = LivePanel.draw

    def draw_while_another_run_is_selected_and_this_one_again(panel, shown):
        monkeypatch.setattr(LivePanel, "draw", draw)
        found = draw(panel, shown)
        for of in (trace(3), trace(2)):
            page.lab.now = view(of=of)
            page.page.refresh()
        return found

    page.browser.messages.clear()
    monkeypatch.setattr(LivePanel, "draw", draw_while_another_run_is_selected_and_this_one_again)
    assert page.show(of=trace(2)) == {}
    assert "axes" in page.show(of=trace(2))["staleness"]


def test_a_displayed_page_is_brought_into_view(open_page):
    page = open_page()
    page.page.displayed()
    assert page.browser.messages == [({"do": "show"}, [])]


# frames ---------------------------------------------------------------------------------------------------------------


def test_frames_follow_while_something_moves_and_end_when_nothing_does(open_page):
    page = open_page(view(state="running"))
    assert page.thread.frame() < 0.125  # eight frames per second and more
    for now in ({"state": "running", "live": False, "t": NANO // 4}, {"state": "over"}, {"state": "paused"}):
        page.lab.now = view(**now)
        while page.thread.frame() is not None:
            pass
        assert page.thread.frame() is None
    for now in (
        {"live": False, "replaying": True},
        {"busy": "stopping"},
        {"state": "running", "processes": "1 of 6 alive"},
    ):
        page.lab.now = view(**now)
        assert page.thread.frame() is not None


def test_an_idle_lab_is_drawn_once_more_after_an_action(open_page):
    page = open_page()
    page.thread.since_action = SETTLES / 2
    while page.browser.pictures():
        page.thread.frame()
    assert page.thread.frame() == SETTLES
    page.thread.since_action = 2 * SETTLES
    assert page.thread.frame() is None


@pytest.mark.parametrize(("distribution", "share"), [("deterministic", BUSY), ("full speed", FULL_SPEED)])
def test_processes_that_train_leave_less_for_drawing(open_page, distribution, share):
    settings = Settings().changed(engine="dask", distribution=distribution)
    page = open_page(view(state="running", simulated=False, shown=settings))
    page.thread.frame()
    assert page.thread.share == share
    page.show(state="over", simulated=False, shown=settings)
    assert page.thread.share == SHARE


def test_a_panel_that_cannot_be_drawn_shows_its_error_and_the_others_are_drawn(open_page, monkeypatch):
    def broken(*_):
        raise ValueError("broken on purpose")

    monkeypatch.setattr(PANELS["staleness"], "update", broken)
    frame = open_page(panels=("staleness", "throughput")).show()
    assert "broken on purpose" in frame["staleness"]["caption"]
    assert frame["staleness"]["failed"]
    assert "content" in frame["throughput"]


def test_a_lab_without_a_view_shows_the_error_and_is_tried_a_few_times(open_page, monkeypatch):
    page = open_page()
    monkeypatch.setattr(page.lab, "view", lambda: 1 / 0)
    pauses = [page.thread.frame() for _ in range(TRIES + 1)]
    assert pauses == [1.0] * TRIES + [None]
    assert "division by zero" in page.browser.state["headline"]["rest"]
    monkeypatch.undo()
    page.show()
    assert not page.browser.state["headline"]["error"]


# layout and panels ----------------------------------------------------------------------------------------------------


def test_panels_are_drawn_in_the_size_in_which_they_are_shown(open_page):
    page = open_page(panels=("staleness", "accuracy"))
    both = ["staleness", "accuracy"]
    page.browser.send_to_kernel(
        do="layout", **FIRST, sizes={"staleness": [400.4, 180], "accuracy": [0, 10**7]}, visible=both
    )
    frame = page.show()
    assert frame["staleness"]["size"] == [400, 180]
    assert frame["accuracy"]["size"] == [SMALLEST[0], LARGEST[1]]
    page.browser.send_to_kernel(do="layout", **FIRST, sizes={"staleness": [400, SMALLEST[1] / 2]}, visible=both)
    assert page.show()["staleness"]["size"] == [800, SMALLEST[1]]  # in the same shape
    page.browser.send_to_kernel(do="layout", **FIRST, sizes={"staleness": [500, 180]}, visible=both)
    assert {name: picture["size"] for name, picture in page.show().items()} == {"staleness": [500, 180]}


def test_a_new_size_is_drawn_at_once(open_page):
    page = open_page(panels=("staleness",))
    page.browser.send_to_kernel(do="layout", **FIRST, sizes={"staleness": [500, 180]}, visible=["staleness"])
    assert page.thread.acted
    assert page.thread.due


def test_a_frame_names_the_pictures_that_are_up_to_date_and_their_time(open_page, monkeypatch):
    page = open_page(view(state="running", t=NANO // 4), panels=("staleness", "accuracy"))
    page.browser.send_to_kernel(do="layout", **FIRST, sizes={}, visible=["accuracy"])
    page.thread.frame()
    ((frame, _),) = page.browser.take("frame")
    assert ([panel["name"] for panel in frame["panels"]], frame["current"], frame["t"]) == (
        ["accuracy"],
        ["accuracy"],
        0.25,
    )
    assert frame["late"] >= 0
    monkeypatch.setattr("labkit.lab.page.page.CONFIRM_EVERY", 0.0)
    page.thread.frame()
    assert page.browser.take("frame") == []  # no browser has answered
    page.browser.send_to_kernel(do="seen", frame=frame["frame"])
    page.thread.frame()
    ((frame, _),) = page.browser.take("frame")
    assert (frame["panels"], frame["current"]) == ([], ["accuracy"])


def test_invisible_panels_are_not_drawn_until_they_are_seen(open_page):
    page = open_page(panels=("staleness", "accuracy", "throughput"))
    page.browser.send_to_kernel(do="layout", **FIRST, sizes={}, visible=["accuracy"])
    assert set(page.show()) == {"accuracy"}
    assert page.show(of=trace(2)).keys() == {"accuracy"}
    page.thread.due = False
    page.browser.send_to_kernel(do="layout", **FIRST, sizes={}, visible=["accuracy", "staleness"])
    assert page.thread.due
    assert page.show(of=trace(2)).keys() == {"staleness"}


def test_a_layout_that_was_overtaken_by_a_newer_one_is_ignored(open_page):
    """JupyterLab sends the first messages through the main shell of the kernel, where they wait for the cell that runs."""
    page = open_page(panels=("staleness", "accuracy", "throughput"))
    page.browser.send_to_kernel(do="layout", page="p", order=2, sizes={}, visible=["accuracy", "staleness"])
    page.browser.send_to_kernel(do="layout", page="p", order=1, sizes={}, visible=[])
    assert set(page.show()) == {"accuracy", "staleness"}
    page.browser.send_to_kernel(do="layout", page="opened later", order=1, sizes={}, visible=["throughput"])
    assert set(page.show()) == {"throughput"}


def test_panels_are_chosen_and_put_in_their_place(open_page):
    page = open_page(panels=("staleness", "accuracy"))
    page.browser.send_to_kernel(do="panels", name="throughput", shown=True)
    order = sorted(("staleness", "accuracy", "throughput"), key=list(PANELS).index)
    assert [panel["name"] for panel in page.browser.state["panels"]["shown"]] == order
    assert page.page.panels == page.page.chosen == tuple(order)
    page.browser.send_to_kernel(do="panels", name="staleness", shown=False)
    assert "staleness" not in page.page.panels
    page.page.choose(None)
    assert page.page.chosen is None
    assert page.page.panels == FIRST_VIEW


def test_the_last_panel_stays_and_the_browser_is_corrected(open_page):
    page = open_page()
    page.browser.updates.clear()
    page.browser.send_to_kernel(do="panels", name="staleness", shown=False)
    assert page.page.panels == ("staleness",)
    assert [panel["name"] for panel in page.browser.updates[-1]["panels"]["shown"]] == ["staleness"]


# values, files --------------------------------------------------------------------------------------------------------


def answer(page, **question):
    """The answer to a question of the browser, and its buffers."""
    page.browser.send_to_kernel(number=7, **question)
    ((message, buffers),) = page.browser.take("answer")
    assert message["number"] == 7
    return message, buffers


def test_values_under_the_pointer_and_tables_are_answered(open_page):
    page = open_page(panels=("throughput",))
    assert answer(page, do="probe", panel="throughput", x=0.5, y=0.4)[0]["text"] == ""  # not drawn yet
    page.thread.frame()
    alone = LivePanel("throughput")
    alone.draw(view())
    assert (
        answer(page, do="probe", panel="throughput", x=0.5, y=0.4)[0]["text"] == alone.readout(view(), 0.5, 0.4) != ""
    )
    assert answer(page, do="copy", panel="throughput")[0]["text"] == alone.table(view()) != ""


def test_arrow_keys_and_the_share_text_are_answered(open_page):
    page = open_page(panels=("throughput",))
    page.thread.frame()
    alone = LivePanel("throughput")
    alone.draw(view())
    text, x, y = alone.step(view(), None, 1, 0)
    first, _ = answer(page, do="step", panel="throughput", at=None, direction=[1, 0])
    assert (first["text"], first["x"], first["y"]) == (text, x, y)
    second, _ = answer(page, do="step", panel="throughput", at=[x, y], direction=[1, 0])
    assert second["text"] == alone.step(view(), (x, y), 1, 0)[0]
    assert answer(page, do="share")[0]["text"] == "strategy=async-ps"


def test_a_panel_is_saved_as_a_picture(open_page):
    page = open_page(panels=("throughput",))
    _, (png,) = answer(page, do="save", panel="throughput", format="png")
    picture = Image.open(io.BytesIO(png))
    assert picture.format == "PNG"
    assert picture.width >= 2 * PANELS["throughput"].size[0]
    _, (svg,) = answer(page, do="save", panel="throughput", format="svg")
    assert b"<svg" in svg[:1000]


# controls, end --------------------------------------------------------------------------------------------------------


def test_only_the_controls_that_were_named_are_shown(open_page):
    page = open_page(controls=("strategy", "workers"))
    assert [control["name"] for control in page.browser.state["controls"]] == ["strategy", "workers"]
    assert open_page(controls=()).browser.state["controls"] == []


def test_the_displayed_controls_follow_the_settings(open_page):
    page = open_page()
    page.show(settings=Settings().changed(strategy="ssp"), changed=("strategy", "s"))
    shown = {control["name"]: control for control in page.browser.state["controls"]}
    assert shown["s"]["next"]
    assert shown["strategy"]["next"]
    assert not shown["workers"]["next"]
    page.press("set", {"s": {"choice": shown["s"]["choices"].index("8")}})
    assert page.lab.pressed == [("set", {"s": 8})]


@pytest.mark.parametrize(
    ("panels", "named", "reported"),
    [(("stalenes",), None, "staleness"), (None, ("workres",), "workers"), ((), None, "panels")],
)
def test_unknown_panels_and_controls_are_refused_before_a_widget_is_made(browsers, panels, named, reported):
    with pytest.raises(BadInput, match=reported):
        Page(StubLab(view()), panels, named)
    assert not browsers


def test_a_sleeping_page_is_drawn_when_it_is_woken(open_page):
    page = open_page(awake=False)
    assert not page.page.drawing
    page.page.wake()
    assert page.page.drawing


def test_a_closed_page_sends_only_its_end(open_page):
    page = open_page(view(entries=entries(), scenario=SCENARIO, asked=True, available=EVERYTHING))
    page.thread.frame()
    page.browser.messages.clear()
    page.browser.updates.clear()
    page.page.close()
    page.page.close()
    page.page.choose(("loss",))
    page.page.wake()
    page.page.refresh()
    assert page.browser.gone
    assert not page.page.drawing
    assert [message for message, _ in page.browser.messages] == [{"do": "close"}]  # the static output stays
    assert page.browser.updates == []


def test_two_labs_have_independent_pages(open_page):
    one, two = open_page(), open_page(view(trace(2)))
    one.press("run")
    two.press("seek", 0.1)
    one.page.close()
    two.press("stop")
    assert one.lab.pressed == [("run",)]
    assert two.lab.pressed == [("seek", 0.1), ("stop",)]


def test_questions_during_drawing_are_answered(open_page):
    """Messages arrive on other threads than the one that draws."""
    page = open_page(panels=("throughput", "accuracy"))
    stop = threading.Event()

    def ask():
        while not stop.is_set():
            page.browser.send_to_kernel(do="probe", panel="accuracy", x=0.5, y=0.5, number=1)
            page.browser.send_to_kernel(do="copy", panel="throughput", number=2)

    asking = threading.Thread(target=ask)
    asking.start()
    for step in range(1, 11):
        page.page.choose(("throughput", "accuracy") if step % 2 else ("throughput",))
        now = dataclasses.replace(view(trace(2 + step % 2)), t=step * NANO // 20)
        page.lab.now = now
        page.thread.frame()
    stop.set()
    asking.join()
    assert not page.browser.state["headline"].get("error")
