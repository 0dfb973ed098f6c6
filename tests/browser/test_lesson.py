"""A lesson in a real JupyterLab: an answer is clicked before the measurement, stored, and compared with the measurement.

That the lesson runs to its end is a test of notebooks.
"""

from __future__ import annotations

import json
from pathlib import Path

LESSON = Path(__file__).parents[2] / "notebooks" / "03_stragglers.ipynb"
ASKS, REVEALS = "lk.Guess(", "guess.reveal("


def code_cells():
    """{number of the cell: its source}."""
    cells = json.loads(LESSON.read_text())["cells"]
    return {i: "".join(cell["source"]) for i, cell in enumerate(cells) if cell["cell_type"] == "code"}


def test_a_guess_is_clicked_kept_and_revealed(notebook):
    page, code = notebook(LESSON), code_cells()
    asks, reveals = (next(i for i, source in code.items() if words in source) for words in (ASKS, REVEALS))
    page.run_and_wait(*(i for i in code if i <= asks))
    page.output(asks).get_by_role("button", name="0.1 s", exact=True).click()
    page.await_kernel("guess.committed == '0.1 s'")
    page.output(asks).get_by_role("button", name="0.4 s", exact=True).click(force=True)  # it is disabled by now
    page.screenshot("lesson-guessed", page.output(asks))
    page.run_and_wait(*(i for i in code if asks < i <= reveals))
    assert page.kernel("guess.record()")["committed"] == "0.1 s"  # the second click came too late
    assert page.kernel("guess.record()")["right"] is False  # H(4) is 2.08
    assert "0.1 s" in page.output(reveals).inner_text()
    page.screenshot("lesson-revealed", page.output(reveals))
