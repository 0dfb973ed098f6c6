"""Tests of the browser harness: its measurements are present and correct."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

WIDGETS = """
import subprocess, sys, threading, time
import ipywidgets as widgets

image, button = widgets.Image(format="png"), widgets.Button(description="before")

def answer(_):
    time.sleep(0.25)
    button.description = "after"

button.on_click(answer)
widgets.VBox([image, button])
"""
PICTURES = """
import io
from PIL import Image
def picture(shade):
    file = io.BytesIO()
    Image.new("RGB", (8, 8), (shade, 0, 0)).save(file, "PNG")
    return file.getvalue()
def send():
    for shade in range(7):
        time.sleep(0.15)
        image.value = picture(shade)
threading.Thread(target=send, name="labkit-test-sender").start()
"""


@pytest.fixture
def page(notebook):
    """A notebook with one image and one button that answers after 0.25 s."""
    page = notebook([WIDGETS, "time.sleep(600)", "1 / 0"])
    page.run_and_wait(0)
    page.output(0).locator("button").wait_for()
    return page


def test_frames_counts_the_pictures_that_come(page):
    page.kernel(PICTURES)
    frames = page.frames(seconds=3)
    assert frames.given == (7,)
    assert 1 <= frames.shown[0] <= 7
    assert frames.seconds >= 3
    assert frames.rates[0] <= 7 / 3


def test_acknowledged_measures_from_the_press_to_a_change(page):
    after = "document.querySelector('.jp-OutputArea button').innerText == 'after'"
    assert page.acknowledged(page.output(0).locator("button").click, after) >= 250
    with pytest.raises(Exception, match="true before the press"):
        page.acknowledged(page.output(0).locator("button").click, after)
    with pytest.raises(Exception, match="not true 200 ms later"):
        page.acknowledged(page.output(0).locator("button").click, "false", seconds=0.2)
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
    assert len(server.sweep(patience=1.0)) == 1
    assert not server.started()
