"""What labs and guesses leave in a notebook for readers without a kernel: HTML beside the widget."""

from __future__ import annotations

import base64
import io
import re

import nbclient
import nbformat
import pytest
from ipywidgets import Widget
from nbconvert import HTMLExporter
from PIL import Image

import labkit as lk

QUICK = {"engine": "simulated", "seconds": 3, "workers": 3}
VIEW = "application/vnd.jupyter.widget-view+json"
LARGEST = 200_000  # characters of one output


class Outputs:
    """The outputs of a cell: {display id: mime bundle}, in the order in which they were displayed."""

    def __init__(self):
        self.shown = {}

    def display(self, data, raw, display_id=None):
        assert raw
        name = display_id or f"output {len(self.shown)}"
        self.shown[name] = data
        outer = self

        class Handle:
            def update(self, data, raw):
                outer.shown[name] = data

        return Handle()


@pytest.fixture
def outputs(monkeypatch):
    found = Outputs()
    monkeypatch.setattr("IPython.display.display", found.display)
    return found


def picture(content):
    """The picture in HTML: its size and its alternative text."""
    alt, data = re.search(r'<img alt="([^"]*)"[^>]* src="data:image/png;base64,([^"]*)"', content).groups()
    return Image.open(io.BytesIO(base64.b64decode(data))).size, alt


def test_a_displayed_lab_has_a_widget_and_html_with_its_sentence(outputs):
    with lk.Lab().set(**QUICK) as lab:
        lab._ipython_display_()
        widget, static = outputs.shown.values()
        assert list(widget) == [VIEW]
        name = Widget.get_manager_state()["state"][widget[VIEW]["model_id"]]["state"]["status"]["output"]
        assert f'class="labkit-static-{name}"' in static["text/html"]
        assert lab.sentence in static["text/html"]
        assert static["text/plain"] == repr(lab)


def test_the_html_has_picture_sentence_and_numbers_after_a_run(outputs):
    with lk.Lab().set(**QUICK) as lab:
        lab._ipython_display_()
        lab.run().wait()
        content = list(outputs.shown.values())[1]["text/html"]
        applied = lk.ledger(lab.trace)["applied"]
        assert f"applied <b>{applied:,}</b>" in content
        (width, height), alt = picture(content)
        assert width > 800
        assert height > 500
        assert alt == lab.sentence
        assert "run the cell" in content
        assert len(content) < LARGEST
    closed = list(outputs.shown.values())[1]["text/html"]
    assert "closed" in closed
    assert "labkit-static" not in closed  # the script of the widget hides only this class
    assert picture(closed)[1] == alt


def test_the_html_of_a_guess_follows_its_state(outputs):
    guess = lk.Guess("Is a < b?", "yes", "no")
    guess._ipython_display_()
    widget, static = outputs.shown.values()
    assert list(widget) == [VIEW]
    assert "Is a &lt; b?" in static["text/html"]
    assert static["text/plain"] == repr(guess)
    guess.commit("yes")
    assert "You guessed yes." in list(outputs.shown.values())[1]["text/html"]
    guess.reveal("no")
    assert "Wrong: you guessed yes; measured: no." in list(outputs.shown.values())[1]["text/html"]
    assert len(outputs.shown) == 2


@pytest.mark.slow
def test_a_notebook_executed_without_a_browser_shows_picture_and_numbers(tmp_path):
    cells = [
        "import labkit as lk\n"
        "lab = lk.Lab('digits', 'async-ps', lk.SimulatedCluster(workers=2), lk.Budget(updates=50))\nlab",
        "lab.run().wait()\nNone",
        "guess = lk.Guess('Is it?', 'yes', 'no')\nguess",
        "guess.commit('yes')\nNone",
    ]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    nbclient.NotebookClient(book, timeout=None, resources={"metadata": {"path": str(tmp_path)}}).execute()
    lab, guess = (book.cells[i].outputs[-1]["data"]["text/html"] for i in (0, 2))
    assert "applied <b>50</b>" in lab
    assert picture(lab)[1] in lab
    assert "You guessed yes." in guess
    page, _ = HTMLExporter().from_notebook_node(book)
    assert "applied <b>50</b>" in page
    assert page.count('src="data:image/png;base64,') == 1
    assert "You guessed yes." in page
    assert nbformat.validate(book) is None
    assert all(len(output["data"].get("text/html", "")) < LARGEST for cell in book.cells for output in cell.outputs)
