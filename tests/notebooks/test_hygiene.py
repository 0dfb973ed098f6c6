"""Notebooks are thin and clean: short cells, no stored outputs but those that nbval compares, no widget state."""

import json
import re
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").rglob("*.ipynb"))
LESSONS = [path for path in NOTEBOOKS if path.parent.name == "notebooks"]


def code_cells(path):
    return [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]


def source(cell):
    return "".join(cell["source"])


def test_there_is_a_notebook_to_start_with():
    assert "00_start_here.ipynb" in [path.name for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
class TestNotebook:
    def test_no_widget_state(self, path):
        assert "widgets" not in json.loads(path.read_text())["metadata"]  # some viewers refuse the whole file over it

    def test_no_cell_over_ten_lines(self, path):
        assert max(len(source(cell).splitlines()) for cell in code_cells(path)) <= 10

    def test_outputs_are_stored_only_where_they_are_compared(self, path):
        for cell in code_cells(path):
            ignored = "nbval-ignore-output" in cell["metadata"].get("tags", [])
            if ignored:
                assert not cell["outputs"]
            if cell["outputs"]:
                assert cell["execution_count"] is not None  # else nbval silently compares nothing
            assert "NBVAL_" not in source(cell)  # a comment would override the tags

    def test_compared_outputs_are_text_and_tables_with_few_decimals(self, path):
        for cell in code_cells(path):
            for output in cell["outputs"]:
                if output["output_type"] == "stream":
                    text = "".join(output["text"])
                else:
                    assert set(output["data"]) == {"text/html", "text/plain"}
                    text = "".join(output["data"]["text/plain"])
                assert not re.search(r"\d\.\d{3}|\de[-+]?\d", text)  # more digits may differ from machine to machine

    def test_cells_that_print_are_compared_or_marked_as_ignored(self, path):
        for cell in code_cells(path):
            if "print(" in source(cell) and "nbval-ignore-output" not in cell["metadata"].get("tags", []):
                assert cell["outputs"]


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.name)
class TestLesson:
    def test_no_code_line_is_cut_off_in_a_narrow_window(self, path):
        long = [line for cell in code_cells(path) for line in source(cell).splitlines() if len(line) > 100]
        assert not long  # JupyterLab does not wrap code, and half of a laptop's screen has room for about so many

    def test_cells_are_numbered_in_order(self, path):
        ids = [cell["id"] for cell in json.loads(path.read_text())["cells"]]
        assert ids == [f"c{number:02d}" for number in range(len(ids))]
