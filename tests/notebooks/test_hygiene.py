"""Notebooks are thin and clean: short cells, no stored outputs but those that nbval compares, no widget state."""

import json
import re
from pathlib import Path

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").rglob("*.ipynb"))
LESSONS = [path for path in NOTEBOOKS if path.parent.name == "notebooks"]


def code_cells(paths):
    """(place, cell) of every code cell."""
    for path in paths:
        for number, cell in enumerate(json.loads(path.read_text())["cells"]):
            if cell["cell_type"] == "code":
                yield f"{path.name}, cell {number}", cell


def source(cell):
    return "".join(cell["source"])


def is_ignored(cell):
    return "nbval-ignore-output" in cell["metadata"].get("tags", [])


def text_of(output):
    """The text of an output; None if it is neither printed nor a table."""
    if output["output_type"] == "stream":
        return "".join(output["text"])
    return "".join(output["data"]["text/plain"]) if set(output["data"]) == {"text/html", "text/plain"} else None


def test_there_are_notebooks_to_check():
    assert "00_start_here.ipynb" in [path.name for path in LESSONS]
    assert len(LESSONS) >= 15
    assert len(NOTEBOOKS) >= len(LESSONS) + 6
    assert len(list(code_cells(NOTEBOOKS))) > 250


def test_no_widget_state():
    """Some viewers refuse the whole file over it."""
    assert [path.name for path in NOTEBOOKS if "widgets" in json.loads(path.read_text())["metadata"]] == []


def test_no_cell_over_ten_lines_is_shown():
    """Tests with many hints are collapsed: they are not for editing."""
    long = [(place, cell["metadata"]) for place, cell in code_cells(NOTEBOOKS) if len(source(cell).splitlines()) > 10]
    assert [place for place, about in long if not about.get("jupyter", {}).get("source_hidden") or about.get("editable", True)] == []


def test_outputs_are_stored_only_where_they_are_compared():
    wrong = []
    for place, cell in code_cells(NOTEBOOKS):
        if is_ignored(cell) and cell["outputs"]:
            wrong.append(f"{place}: outputs that are not compared")
        if cell["outputs"] and cell["execution_count"] is None:
            wrong.append(f"{place}: without a count nbval silently compares nothing")
        if "NBVAL_" in source(cell):
            wrong.append(f"{place}: a comment overrides the tags")
        if "print(" in source(cell) and not is_ignored(cell) and not cell["outputs"]:
            wrong.append(f"{place}: it prints, and is neither compared nor marked as ignored")
    assert not wrong, "\n".join(wrong)


def test_compared_outputs_are_text_and_tables_with_few_decimals():
    """More digits may differ from machine to machine."""
    texts = [(place, text_of(output)) for place, cell in code_cells(NOTEBOOKS) for output in cell["outputs"]]
    assert texts
    assert [place for place, text in texts if text is None or re.search(r"\d\.\d{3}|\de[-+]?\d", text)] == []


def test_no_code_line_is_cut_off_in_a_narrow_window():
    """JupyterLab does not wrap code, and half of a laptop's screen has room for about so many characters."""
    lines = [(place, line) for place, cell in code_cells(LESSONS) for line in source(cell).splitlines()]
    assert [place for place, line in lines if len(line) > 100] == []


def test_cells_are_numbered_in_order():
    ids = {path.name: [cell["id"] for cell in json.loads(path.read_text())["cells"]] for path in LESSONS}
    assert {name: found for name, found in ids.items() if found != [f"c{k:02d}" for k in range(len(found))]} == {}
