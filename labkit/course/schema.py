"""The schema of an assignment's notebook: which metadata, of nbgrader and of labkit, give a cell which kind.

Every cell has exactly one kind. Unknown metadata is an error, whose message has the number of the cell and the allowed
values. Cells are numbered from 1, including text cells. The version of nbgrader's schema is 3. In the second column of
the table, the flags are the values of `grade`, `solution` and `locked`; "none" means no metadata of nbgrader.

| kind | nbgrader: grade, solution, locked | labkit |
|---|---|---|
| text | none, or false, false, true | none |
| given | code; false, false, true | {"given": true}: for the tests and for the student processes |
| locked | code; false, false, true | none: for the tests only |
| solution | code; false, true, false | {"question": "q1"} |
| test | code; true, false, true, points | {"question": "q1"} |
| explain | markdown; true, true, false, points | {"question": "q1"}: graded by hand |
| live | code; none | {"live": true}: the student's own exploration |
| variant | code; none | {"variant": true}: the values of this variant |
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import BadInput, nearest, shown
from .regions import normalize_newlines, released

FORMAT = 1
SCHEMA_VERSION = 3
MAX_POINTS = 1_000_000  # points of one test
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
IDENTIFIER = re.compile(r"[A-Za-z0-9_-]{1,100}")

NOTEBOOK_KEYS = frozenset({"assignment", "title", "format", "tools", "variants", "variant"})
CELL_KEYS = frozenset({"question", "given", "variant", "live"})
NBGRADER_KEYS = frozenset({"grade_id", "grade", "solution", "locked", "task", "points", "schema_version", "cell_type"})
_OPTIONAL = frozenset({"checksum"})  # nbgrader's own tools add it

# (code cell, grade, solution, locked, labkit's keys) -> kind
_KINDS = {
    (True, False, False, True, ("given",)): "given",
    (True, False, False, True, ()): "locked",
    (True, False, True, False, ("question",)): "solution",
    (True, True, False, True, ("question",)): "test",
    (False, True, True, False, ("question",)): "explain",
    (False, False, False, True, ()): "text",
}
_PLAIN = {(False, ()): "text", (True, ("live",)): "live", (True, ("variant",)): "variant"}
ALLOWED = (
    "allowed for code: given, locked, solution, test (nbgrader's metadata), or live, variant (labkit's); "
    "for markdown: text, explain"
)


class NotebookErrors(BadInput):
    """All errors of a notebook; `lines` has one line for each."""

    def __init__(self, where: str, lines: list[str]) -> None:
        self.lines = lines
        super().__init__(f"{where}: " + (lines[0] if len(lines) == 1 else "\n  " + "\n  ".join(lines)))


@dataclass(frozen=True)
class Cell:
    number: int
    kind: str
    source: str
    id: str = ""
    """nbgrader's grade_id; empty where there is none."""
    key: str = ""
    """nbformat's own cell id."""
    question: str = ""
    points: float = 0.0

    @property
    def is_code(self) -> bool:
        return self.kind not in ("text", "explain")


@dataclass(frozen=True)
class Assignment:
    """A reference notebook or a release: `notebook` is the JSON, `cells` the parsed cells."""

    name: str
    title: str
    tools: tuple[str, ...]
    variants: Mapping[str, list[dict[str, Any]]]
    digest: str
    """The public name of the variant of a release (see `variants.digest`); empty in a reference notebook."""
    cells: tuple[Cell, ...]
    notebook: Mapping[str, Any] = field(repr=False)

    def of_kind(self, *kinds: str) -> list[Cell]:
        """In order."""
        return [cell for cell in self.cells if cell.kind in kinds]

    def questions(self) -> list[str]:
        """In the order of their first cells."""
        return list(dict.fromkeys(cell.question for cell in self.cells if cell.question))

    def markers(self) -> dict[str, str]:
        """Return {name in a marker comment: grade_id of the solution cell}.

        The names are the grade_ids of the solution cells, and each question that has exactly one solution cell.
        """
        found = {cell.id: cell.id for cell in self.of_kind("solution")}
        for question in self.questions():
            ids = [cell.id for cell in self.of_kind("solution") if cell.question == question]
            if len(ids) == 1:
                found.setdefault(question, ids[0])
        return found


def public_data(base: Assignment) -> dict[str, Any]:
    """Return the data needed to find the answers of a submission, without solutions, hidden tests and values of the variant."""
    cells = [
        {**vars(cell), "source": "" if cell.kind == "variant" else released(cell.source, cell.kind)}
        for cell in base.cells
    ]
    return {"name": base.name, "cells": cells}


def from_data(data: Mapping[str, Any]) -> Assignment:
    """Return an assignment that has only the name and the cells in `data`, the result of `public_data`."""
    cells = tuple(Cell(**cell) for cell in data["cells"])
    return Assignment(data["name"], data["name"], (), {}, "", cells, {})


def read_notebook(path: Path) -> dict[str, Any]:
    """Read the JSON of the instructor's notebook. Raises `BadInput` if it cannot be read, or is not a notebook of format 4."""
    try:
        raw = json.loads(path.read_bytes())
        json.dumps(raw, ensure_ascii=False).encode()
    except UnicodeEncodeError as why:
        raise BadInput(
            f"{path} has an unpaired surrogate ({why.object[why.start]!r}), which is no character."
        ) from None
    except OSError as why:
        raise BadInput(f"{path} cannot be read: {why.strerror or why}.") from None
    except (ValueError, RecursionError):
        raise BadInput(f"{path} is not a notebook: it is not JSON.") from None
    if not isinstance(raw, dict) or raw.get("nbformat") != 4 or not isinstance(raw.get("cells"), list):
        raise BadInput(f"{path} is not a notebook of format 4: open it in JupyterLab and save it again.")
    return raw


def source_of(cell: Mapping[str, Any]) -> str:
    """Return a cell's source as one string with `\\n` line ends."""
    source = cell.get("source", "")
    return normalize_newlines(source if isinstance(source, str) else "".join(map(str, source)))


def parse(notebook: Mapping[str, Any], where: str) -> Assignment:
    """Parse the kinds of all cells. Raises `NotebookErrors` with all cells whose metadata is unknown or inconsistent."""
    wrong: list[str] = []
    about = _parse_metadata(notebook.get("metadata", {}), wrong)
    cells = []
    for number, raw in enumerate(notebook["cells"], 1):
        try:
            cells.append(_cell(number, raw))
        except BadInput as why:
            wrong.append(f"cell {number}: {why}")
    if wrong:
        raise NotebookErrors(where, wrong)
    return Assignment(cells=tuple(cells), notebook=notebook, **about)


def _parse_metadata(metadata: Any, wrong: list[str]) -> dict[str, Any]:
    """Parse the metadata of the notebook; append errors to `wrong`."""
    data = metadata.get("labkit") if isinstance(metadata, dict) else None
    if not isinstance(data, dict):
        wrong.append(
            'its metadata has no "labkit": {"assignment": ..., "title": ..., "format": 1, "tools": [], "variants": {}}'
        )
        data = {"assignment": "none", "title": "", "format": FORMAT}
    wrong.extend(f"notebook metadata: {nearest('key', key, NOTEBOOK_KEYS)}" for key in data if key not in NOTEBOOK_KEYS)
    name, tools, variants = data.get("assignment"), data.get("tools", []), data.get("variants", {})
    if not isinstance(name, str) or not NAME.fullmatch(name):
        wrong.append(
            f'notebook metadata: "assignment" is {shown(name)}; allowed: letters, digits, "_" and "-" (it names files)'
        )
    if data.get("format") != FORMAT:
        wrong.append(f'notebook metadata: "format" is {shown(data.get("format"))}; allowed: {FORMAT}')
    if not (isinstance(tools, list) and all(isinstance(tool, str) and tool.isidentifier() for tool in tools)):
        wrong.append(f'notebook metadata: "tools" is {shown(tools)}; allowed: a list of names of labkit')
        tools = []
    wrong.extend(_bad_variants(variants))
    return {
        "name": name, "title": str(data.get("title") or name), "tools": tuple(tools),
        "variants": variants if isinstance(variants, dict) else {}, "digest": str(data.get("variant", "")),
    }  # fmt: skip


def _bad_variants(variants: Any) -> list[str]:
    if not isinstance(variants, dict):
        return [
            f'notebook metadata: "variants" is {shown(variants)}; allowed: {{name: [{{"value": ..., "words": "..."}}, ...]}}'
        ]
    wrong = []
    for key, choices in variants.items():
        good = isinstance(choices, list) and len(choices) >= 1 and key.isidentifier()
        for choice in choices if isinstance(choices, list) else ():
            good = good and isinstance(choice, dict) and set(choice) == {"value", "words"}
            good = good and isinstance(choice["words"], str)
        if not good:
            wrong.append(
                f'variant {key!r} is {shown(choices)}; allowed: a list of {{"value": ..., "words": "..."}}, named like a variable'
            )
    return wrong


def _cell(number: int, raw: Any) -> Cell:
    """Parse one cell. Raises `BadInput`, whose text does not have the number of the cell."""
    if not isinstance(raw, dict) or raw.get("cell_type") not in ("code", "markdown"):
        raise BadInput("is neither a code nor a markdown cell")
    source = raw.get("source", "")
    if not isinstance(source, str) and not (isinstance(source, list) and all(isinstance(line, str) for line in source)):
        raise BadInput(f"its source is {shown(source)}; allowed: a text, or a list of lines")
    metadata = raw.get("metadata", {})
    if not isinstance(metadata, dict):
        raise BadInput(f"its metadata is {shown(metadata)}; allowed: a table")
    ours, theirs = metadata.get("labkit", {}), metadata.get("nbgrader")
    if not isinstance(ours, dict):
        raise BadInput(f"labkit's metadata is {shown(ours)}; allowed: a table")
    for key in ours:
        if key not in CELL_KEYS:
            raise BadInput(f"labkit's metadata: {nearest('key', key, CELL_KEYS)}")
    keys = tuple(sorted(key for key in ours if ours[key] is not False))
    cell = {
        "number": number,
        "source": source_of(raw),
        "key": str(raw.get("id", "")),
        "question": ours.get("question", ""),
    }
    code = raw["cell_type"] == "code"
    if theirs is None:
        kind = _PLAIN.get((code, keys))
        if kind is None:
            raise BadInput(
                f"a {raw['cell_type']} cell with labkit's {list(keys)} and no nbgrader metadata has no kind; {ALLOWED}"
            )
        return Cell(kind=kind, **cell)
    _check_nbgrader(theirs, raw["cell_type"])
    shape = (code, theirs["grade"], theirs["solution"], theirs["locked"], keys)
    if shape not in _KINDS:
        flags = ", ".join(f"{name} {str(theirs[name]).lower()}" for name in ("grade", "solution", "locked"))
        raise BadInput(f"a {raw['cell_type']} cell with {flags} and labkit's {list(keys)} has no kind; {ALLOWED}")
    if "question" in keys and not (isinstance(ours["question"], str) and IDENTIFIER.fullmatch(ours["question"])):
        raise BadInput(f'"question" is {shown(ours["question"])}; allowed: letters, digits, "_" and "-"')
    return Cell(kind=_KINDS[shape], id=theirs["grade_id"], points=float(theirs.get("points", 0)), **cell)


def _check_nbgrader(data: Any, cell_type: str) -> None:
    """Raise `BadInput` if the metadata does not conform to nbgrader's schema 3."""
    if not isinstance(data, dict):
        raise BadInput(f"nbgrader's metadata is {shown(data)}; allowed: a table")
    for key in data:
        if key not in NBGRADER_KEYS | _OPTIONAL:
            raise BadInput(f"nbgrader's metadata: {nearest('key', key, NBGRADER_KEYS)}")
    grade_id, points = data.get("grade_id"), data.get("points")
    if not isinstance(grade_id, str) or not IDENTIFIER.fullmatch(grade_id):
        raise BadInput(f'grade_id is {shown(grade_id, 60)}; allowed: letters, digits, "_" and "-", at most 100')
    for flag in ("grade", "solution", "locked"):
        if not isinstance(data.get(flag), bool):
            raise BadInput(f"nbgrader's {flag!r} is {shown(data.get(flag))}; allowed: true, false")
    if data.get("task", False) is not False:
        raise BadInput("nbgrader's 'task' cells are not used here; allowed: false")
    if data.get("schema_version") != SCHEMA_VERSION:
        raise BadInput(f"nbgrader's schema_version is {shown(data.get('schema_version'))}; allowed: {SCHEMA_VERSION}")
    if data.get("cell_type", cell_type) != cell_type:
        raise BadInput(f"nbgrader's cell_type is {shown(data['cell_type'])}, and the cell is a {cell_type} cell")
    number = isinstance(points, int | float) and not isinstance(points, bool)
    if data["grade"] and not (number and 0 < points <= MAX_POINTS):  # type: ignore[operator]
        raise BadInput(f"points is {shown(points)}; allowed: a number above 0, at most {MAX_POINTS:,}")
    if not data["grade"] and "points" in data and points != 0:
        raise BadInput("points belong to tests and explain cells only")
