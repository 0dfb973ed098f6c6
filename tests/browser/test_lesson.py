"""A lesson in a real JupyterLab: an answer is clicked before the measurement, stored, and compared with the measurement.

That the lesson runs to its end is a test of notebooks.
"""

from __future__ import annotations

import json

LESSON = "14_hidden_communication.ipynb"
ASKS, MEASURES, REVEALS = "lk.Guess(", "def train(", "guess.reveal("


def cell_with(words, cells):
    """The number of the first code cell that contains these words."""
    return next(i for i, cell in enumerate(cells) if cell["cell_type"] == "code" and words in "".join(cell["source"]))


def test_a_guess_is_clicked_kept_and_revealed(notebook, server):
    page, cells = notebook(LESSON), json.loads((server.root / LESSON).read_text())["cells"]
    asks, measures, reveals = (cell_with(words, cells) for words in (ASKS, MEASURES, REVEALS))
    page.run_and_wait(asks)
    page.output(asks).get_by_role("button", name="400 ms", exact=True).click()
    page.await_kernel("guess.committed == '400 ms'")
    page.output(asks).get_by_role("button", name="320 ms", exact=True).click(force=True)  # it is disabled by now
    page.screenshot("lesson-guessed", page.output(asks))
    page.run_and_wait(*(i for i in range(measures, reveals + 1) if cells[i]["cell_type"] == "code"))
    assert page.kernel("guess.record()")["committed"] == "400 ms"  # the second click came too late
    assert page.kernel("guess.record()")["right"] is False  # all but the sum of the first layer is hidden
    assert "400 ms" in page.output(reveals).inner_text()
    page.screenshot("lesson-revealed", page.output(reveals))
