"""The students' version of a master, and the public bundle beside it.

Its law: nothing of the solutions and the hidden tests is in either; what students see of the variant is its words. The
bundle holds what `check` compares with, so that nothing depends on what a student's file says: the pristine released
notebook, the outputs of its tests under the master's own solutions, and the points.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BadInput
from .blocks import HIDDEN, has_block, released
from .schema import FORMAT, Assignment, Cell, parse

__all__ = ["SUFFIX", "Bundle", "find_bundle", "points_of", "read_bundle", "release", "write_release"]

SUFFIX = ".bundle.json"
# an unsolved notebook passes nbval: what is to be solved is not run
TAGS = ("nbval-ignore-output", "nbval-skip")
_POINTS = ("points", "hidden", "partly", "by hand")


@dataclass(frozen=True)
class Bundle:
    """What `check` needs; read from `<assignment>.bundle.json`."""

    base: Assignment
    outputs: Mapping[str, list[dict[str, Any]]]
    points: Mapping[str, Mapping[str, float]]
    """By question: {"points": of all tests, "hidden": of those that are not here, "partly": of those that go on when they
    are graded, "by hand": of explain cells}."""


def release(master: Assignment, variant: str) -> dict[str, Any]:
    """The students' notebook. `variant` names the variant (see `variants.digest`); its choices are in `master` already."""
    cells = []
    for cell, raw in zip(master.cells, master.notebook["cells"], strict=True):
        text = released(cell.source, cell.kind)
        if cell.kind == "variant" or (cell.kind == "test" and not text):
            continue
        cells.append(_released_cell(cell, raw, text))
    plain = {key: value for key, value in master.notebook["metadata"].items() if key not in ("labkit", "widgets")}
    about = {
        "assignment": master.name,
        "title": master.title,
        "format": FORMAT,
        "tools": list(master.tools),
        "variant": variant,
    }
    return {"cells": cells, "metadata": {**plain, "labkit": about}, "nbformat": 4, "nbformat_minor": 5}


def _released_cell(cell: Cell, raw: Mapping[str, Any], text: str) -> dict[str, Any]:
    """One cell without outputs, with the metadata that makes JupyterLab keep what must stay."""
    metadata = {key: value for key, value in raw.get("metadata", {}).items() if key in ("labkit", "nbgrader", "tags")}
    if cell.id:
        metadata["deletable"] = False
    if cell.kind in ("given", "locked", "test"):
        metadata["editable"] = False
    if cell.kind in ("solution", "test", "live"):
        metadata["tags"] = sorted({*metadata.get("tags", ()), *TAGS})
    made = {"cell_type": raw["cell_type"], "id": cell.key or f"c{cell.number - 1:02d}", "metadata": metadata}
    made["source"] = text.splitlines(keepends=True)
    return made | ({"execution_count": None, "outputs": []} if cell.is_code else {})


def points_of(master: Assignment) -> dict[str, dict[str, float]]:
    """Points by question: of all tests, of those of which students get nothing, or a part, of what is graded by hand."""
    table = {question: dict.fromkeys(_POINTS, 0.0) for question in master.questions()}
    for cell in master.of_kind("test", "explain"):
        row = table[cell.question]
        row["by hand" if cell.kind == "explain" else "points"] += cell.points
        if cell.kind == "test" and has_block(cell.source, HIDDEN):
            row["partly" if released(cell.source, "test") else "hidden"] += cell.points
    return table


def write_release(
    folder: Path, notebook: Mapping[str, Any], outputs: Mapping[str, Any], points: Mapping[str, Any]
) -> tuple[Path, Path]:
    """Write the students' notebook and its bundle; (notebook, bundle).

    Raises:
        BadInput: the folder cannot be written.
    """
    about = notebook["metadata"]["labkit"]
    bundle = {
        "format": FORMAT, "assignment": about["assignment"], "title": about["title"], "variant": about["variant"],
        "points": points, "outputs": outputs, "notebook": notebook,
    }  # fmt: skip
    files = folder / f"{about['assignment']}.ipynb", folder / f"{about['assignment']}{SUFFIX}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in zip(files, (notebook, bundle)):
            path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as why:
        raise BadInput(f"{folder} cannot be written: {why.strerror or why}.") from None
    return files


def find_bundle(notebook: Path, assignment: str, given: Path | None) -> Path:
    """The bundle that belongs to a student's notebook: the one that is given, or the one beside it.

    Raises:
        BadInput: there is none.
    """
    if given is not None:
        return given
    names = [f"{assignment}{SUFFIX}"] if assignment else [f"{notebook.stem}{SUFFIX}"]
    for name in names:
        if (notebook.parent / name).is_file():
            return notebook.parent / name
    beside = sorted(notebook.parent.glob(f"*{SUFFIX}"))
    if len(beside) == 1 and not assignment:
        return beside[0]
    raise BadInput(f"there is no {names[0]} beside {notebook}: put it there as you got it, or name it with --bundle.")


def read_bundle(path: Path) -> Bundle:
    """Read a bundle.

    Raises:
        BadInput: it is none.
    """
    try:
        raw = json.loads(path.read_bytes())
        if raw["format"] != FORMAT:
            raise BadInput(f"{path} has format {raw['format']!r}; allowed: {FORMAT}. Another labkit made it.")
        points = {question: {name: float(row[name]) for name in _POINTS} for question, row in raw["points"].items()}
        return Bundle(parse(raw["notebook"], str(path)), dict(raw["outputs"]), points)
    except BadInput:
        raise
    except OSError as why:
        raise BadInput(f"{path} cannot be read: {why.strerror or why}.") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadInput(
            f"{path} is not a bundle of `labkit assign`: get it again from where the notebook came from."
        ) from None
