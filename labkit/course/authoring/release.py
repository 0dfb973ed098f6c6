"""Makes the release of a reference notebook: the notebook without solutions, hidden tests and variant cell, and the points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..bundle import POINTS
from ..regions import HIDDEN, has_region, released
from ..schema import FORMAT, Assignment, Cell

MAX_SHOWN_LINES = 10
# `pytest --nbval`: answers and tests fail if they raise an error, whatever they print; cells for the live cluster are not run.
TAGS = {"solution": "nbval-ignore-output", "test": "nbval-ignore-output", "live": "nbval-skip"}


def release(reference: Assignment, variant: str) -> dict[str, Any]:
    """Return the JSON of the released notebook. `variant`: the variant's public name; `reference` has its choices already."""
    cells = []
    for cell, raw in zip(reference.cells, reference.notebook["cells"], strict=True):
        text = released(cell.source, cell.kind)
        if cell.kind == "variant" or (cell.kind == "test" and not text):
            continue
        cells.append(_released_cell(cell, raw, text))
    plain = {key: value for key, value in reference.notebook["metadata"].items() if key not in ("labkit", "widgets")}
    about = {
        "assignment": reference.name,
        "title": reference.title,
        "format": FORMAT,
        "tools": list(reference.tools),
        "variant": variant,
    }
    return {"cells": cells, "metadata": {**plain, "labkit": about}, "nbformat": 4, "nbformat_minor": 5}


def _released_cell(cell: Cell, raw: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Return a cell without outputs, with the metadata that prevents JupyterLab from deleting or editing it."""
    metadata = {key: value for key, value in raw.get("metadata", {}).items() if key in ("labkit", "nbgrader", "tags")}
    if cell.id:
        metadata["deletable"] = False
    if cell.kind in ("given", "locked", "test"):
        metadata["editable"] = False
    if cell.kind in ("locked", "test") and len(text.splitlines()) > MAX_SHOWN_LINES:
        # hints for many wrong answers; JupyterLab shows the cell collapsed
        metadata["jupyter"] = {"source_hidden": True}
    if cell.kind in TAGS:
        others = [tag for tag in metadata.get("tags", ()) if tag not in TAGS.values()]
        metadata["tags"] = sorted([*others, TAGS[cell.kind]])
    made = {"cell_type": raw["cell_type"], "id": cell.key or f"c{cell.number - 1:02d}", "metadata": metadata}
    made["source"] = text.splitlines(keepends=True)
    return made | ({"execution_count": None, "outputs": []} if cell.is_code else {})


def points_by_question(reference: Assignment) -> dict[str, dict[str, float]]:
    """Return the points of each question: of all tests, hidden tests, tests with a hidden part, and cells graded by hand."""
    table = {question: dict.fromkeys(POINTS, 0.0) for question in reference.questions()}
    for cell in reference.of_kind("test", "explain"):
        row = table[cell.question]
        row["by hand" if cell.kind == "explain" else "points"] += cell.points
        if cell.kind == "test" and has_region(cell.source, HIDDEN):
            row["partly" if released(cell.source, "test") else "hidden"] += cell.points
    return table
