"""The widget of a page: only changes are sent, from any thread, and messages arrive while a cell runs."""

from __future__ import annotations

import json
import re
import threading

import anywidget
import pytest

from labkit.lab.page.widget import PageWidget, receive_during_cells


@pytest.fixture
def opened(browsers):
    received = []
    widget = PageWidget(received.append)
    yield widget, browsers[widget.model_id], received
    widget.close()


def test_only_changed_sections_are_sent_and_together(opened):
    widget, browser, _ = opened
    assert widget.put(player={"t": 1.0}, numbers={"values": []}, log_lines=["a"])
    assert widget.put(player={"t": 2.0}, numbers={"values": []}, log_lines=["a"])
    assert not widget.put(player={"t": 2.0}, numbers={"values": []})
    assert browser.updates == [
        {"player": {"t": 1.0}, "numbers": {"values": []}, "log_lines": ["a"]}, {"player": {"t": 2.0}},
    ]  # fmt: skip


def test_all_sections_are_part_of_the_state(opened):
    _, browser, _ = opened
    listened = json.loads(re.search(r"const SECTIONS = (\[.*?\]);", browser.state["_esm"], re.DOTALL)[1])
    assert len(listened) == 13
    assert set(listened) <= set(browser.state)
    assert "export default" in browser.state["_esm"]
    assert re.findall("^export .*", browser.state["_esm"], re.MULTILINE) == ["export default () => {"]  # one module


def test_concurrent_changes_leave_the_browser_with_the_state_of_the_widget(opened):
    widget, browser, _ = opened
    begin = threading.Barrier(4)

    def put(number):
        begin.wait()
        for step in range(50):
            widget.put(player={"by": number, "step": step}, numbers={"by": number, "step": step})

    threads = [threading.Thread(target=put, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (browser.state["player"], browser.state["numbers"]) == (widget.player, widget.numbers)
    assert widget.player["step"] == 49
    assert all(update["player"] == update["numbers"] for update in browser.updates)  # no change is torn


def test_messages_have_buffers_and_arrive_in_both_directions(opened):
    widget, browser, received = opened
    widget.message({"do": "frame", "frame": 1}, [b"points"])
    assert browser.messages == [({"do": "frame", "frame": 1}, [b"points"])]
    browser.send_to_kernel(do="ready")
    assert received == [{"do": "ready"}]


def test_a_closed_widget_sends_nothing(opened):
    widget, browser, _ = opened
    widget.close()
    widget.close()
    widget.put(player={"t": 1.0})
    widget.message({"do": "show"})
    assert browser.gone
    assert browser.updates == browser.messages == []


def test_messages_of_a_widget_do_not_wait_for_the_cell_that_made_it(browsers):
    widget = anywidget.AnyWidget()
    widget.comm._reply_subshell_id = None  # as ipykernel does whenever a cell sends the widget a message
    receive_during_cells(widget)
    assert "_reply_subshell_id" not in vars(widget.comm)
    if hasattr(widget.comm, "_reply_subshell_for"):  # ipykernel 7.4
        widget.comm._reply_subshell_id = None
        assert widget.comm._reply_subshell_for({}, "of the browser") == "of the browser"
    widget.close()
    receive_during_cells(widget)


def test_every_message_of_a_page_keeps_it_reachable_while_a_cell_runs(opened):
    widget, _, _ = opened
    for send in (lambda: widget.put(player={"t": 1.0}), lambda: widget.message({"do": "show"})):
        widget.comm._reply_subshell_id = None
        send()
        assert "_reply_subshell_id" not in vars(widget.comm)
