"""Tests of the browser harness: its measurements are present and correct."""

from __future__ import annotations

import pytest

WIDGETS = """
import subprocess, sys, threading
import ipywidgets as widgets

asked = threading.Event()
button = widgets.Button(description="before")

def answer(_):
    asked.wait()
    button.description = "after"

button.on_click(answer)
button
"""
DRAW = """(async ([panel, times]) => {
    const canvas = document.querySelector(`[data-panel="${panel}"] canvas`), pen = canvas.getContext("2d");
    for (let i = 0; i < times; i++) {
        await new Promise(resolve => requestAnimationFrame(resolve));
        pen.clearRect(0, 0, canvas.width, canvas.height);
        ["red", "green", "blue"].forEach((colour, k) => { pen.fillStyle = colour; pen.fillRect(10 * k, 0, 10, 10); });
    }
})"""
BOXES = """() => ["one", "two"].forEach(name => document.body.insertAdjacentHTML("beforeend",
    `<div class="box" data-panel="${name}"><canvas width="50" height="50" style="width: 50px"></canvas></div>`))"""


@pytest.fixture(scope="module")
def page(notebook):
    """A notebook with one button that answers when it is told so."""
    page = notebook([WIDGETS, "threading.Event().wait()", "1 / 0"])
    page.run_and_wait(0)
    page.output(0).locator("button").wait_for()
    return page


@pytest.fixture
def boxes(page):
    """Two boxes with canvases like those of panels."""
    page.page.evaluate(BOXES)
    yield page
    page.page.evaluate("() => { document.querySelectorAll('.box').forEach(box => box.remove()); }")
    page.page.evaluate("() => { document.body.classList.remove('labkit-lab'); }")


def test_drawings_are_counted_by_canvas_and_blank_canvases_are_recognized(boxes):
    page = boxes
    assert not page.page.evaluate("() => window.labkitMeasure.pictured('.box canvas', 1)")
    page.page.evaluate("() => window.labkitMeasure.record('.box', () => document.querySelectorAll('.box').length)")
    before = page.page.evaluate("() => window.labkitMeasure.drawn('.box canvas')")
    page.page.evaluate(f"() => {DRAW}(['one', 7])")
    after = page.page.evaluate("() => window.labkitMeasure.drawn('.box canvas')")
    assert [n - m for n, m in zip(after, before, strict=True)] == [7, 0]
    page.page.evaluate("() => window.labkitMeasure.laidOut()")
    drawings = page.page.evaluate("() => window.labkitMeasure.drawings()")
    assert [frame["panels"] for frame in drawings] == [["one"]] * 7
    assert {frame["state"] for frame in drawings} == {2}
    assert page.page.evaluate("() => window.labkitMeasure.pictured('[data-panel=one] canvas', 1)")
    assert not page.page.evaluate("() => window.labkitMeasure.pictured('.box canvas', 2)")
    page.page.evaluate(f"() => {DRAW}(['two', 1])")
    page.await_panels(".box canvas", least=2)


def test_texts_are_read_with_their_contrast_and_what_is_cut_of_them(boxes):
    page = boxes
    page.page.evaluate("() => document.querySelector('.box').parentElement.classList.add('labkit-lab')")
    page.page.evaluate("() => window.labkitMeasure.readTexts()")
    page.page.evaluate("""() => {
        const pen = document.querySelector("[data-panel=one] canvas").getContext("2d");
        for (const [paper, ink] of [["#fff", "#000"], ["#fff", "#777777"], ["#000", "#ff0000"]]) {
            pen.fillStyle = paper;
            pen.fillRect(0, 0, 50, 50);
            pen.fillStyle = ink;
            pen.textAlign = "center";
            pen.fillText("text", 25, 25);
        }
        pen.font = "10px monospace";
        const wide = pen.measureText("wide").width;
        pen.textAlign = "left";
        pen.fillText("wide", 50 - wide + 3, 25);
    }""")
    found = page.page.evaluate("() => window.labkitMeasure.textsRead()")
    assert [(panel, text, cut) for panel, text, _, cut in found[:3]] == [("one", "text", 0)] * 3
    assert found[3][3] == pytest.approx(3)
    assert [ratio for _, _, ratio, _ in found[:3]] == pytest.approx([21, 4.48, 5.25], abs=0.01)


def test_acknowledged_measures_from_the_press_to_a_change(page):
    button = page.output(0).locator("button")
    after = "document.querySelector('.jp-OutputArea button').innerText == 'after'"

    def click():
        button.click()
        assert button.inner_text() == "before"  # the kernel has not answered
        page.kernel("asked.set()")

    assert page.acknowledged(click, after) > 0
    with pytest.raises(Exception, match="true before the press"):
        page.page.evaluate(f"() => window.labkitMeasure.expect(() => {after}, 1000)")
    with pytest.raises(Exception, match="not true 200 ms later"):
        page.acknowledged(button.click, "false", seconds=0.2)
    with pytest.raises(Exception, match="nothing was pressed"):
        page.acknowledged(lambda: None, "false", seconds=0.2)


def test_the_kernel_answers_while_a_cell_runs_and_reports_errors(page):
    page.run(1)
    assert page.kernel("found = [n * n for n in (1, 2)]\nfound") == [1, 4]
    assert page.kernel("found.append(9)") is None
    assert page.kernel("{'a': (found, None, 2.5)}") == {"a": ([1, 4, 9], None, 2.5)}
    with pytest.raises(RuntimeError, match="NameError"):
        page.kernel("nothing_of_that_name")
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        page.kernel("1 / 0\nTrue")
    assert page.threads("Main").keys() == {"MainThread"}
    assert page.prompt(1) == "*"
    assert len(page.cells) == 3
    page.interrupt()
    with pytest.raises(AssertionError, match="KeyboardInterrupt"):
        page.wait_idle(1)


def test_a_cell_that_fails_and_an_error_in_the_console_are_seen(page):
    page.run(2)
    with pytest.raises(AssertionError, match="cell 2: ZeroDivisionError"):
        page.wait_idle(2)
    with page.page.expect_event("pageerror"):
        page.page.evaluate("() => { console.error('one'); setTimeout(() => { throw Error('two'); }); }")
    assert page.errors == ["console: one", "page: two"]
    page.forgive()
    assert page.errors == []


def test_a_process_that_outlives_its_kernel_is_found_and_ended(page, server):
    command = [repr(part) for part in ("-c", "import time; time.sleep(600)")]
    started = f"subprocess.Popen([sys.executable, {', '.join(command)}], start_new_session=True).pid"
    orphan = page.kernel(started)
    page.close()
    assert orphan in [process.pid for process in server.started()]
    assert any("time.sleep(600)" in command for command in server.sweep(patience=0))
    assert not server.started()
