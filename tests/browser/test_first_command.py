"""The first command of the README: `labkit lab` opens the start notebook, and its first cell shows a lab that runs."""

from __future__ import annotations

import pytest

from labkit.cli.notebooks import COPY_FOLDER, FIRST
from tests.browser.page import Notebook
from tests.browser.server import LabServer


@pytest.mark.slow
def test_labkit_lab_opens_the_start_notebook_and_its_first_cell_runs_a_lab(tmp_path, context, pictures):
    server = LabServer(tmp_path / "home", ("labkit", "lab", "--"), COPY_FOLDER)
    try:
        assert server.opens == f"lab/tree/{FIRST}"
        page = Notebook(server, context, FIRST, pictures, whole=True)
        first = page.cells.index("code")
        page.run(first)
        page.page.wait_for_selector(".labkit-lab")  # JupyterLab 4.2 has only the visible cells in the page
        page.await_panels(least=5)
        page.screenshot("first-command")
        assert page.errors == []
        page.kernel("lab.close()\n0")
        page.close()
    finally:
        left = server.close()
    assert left == []
