"""The files of a release: the notebook, pytest's configuration, and the public bundle with which `labkit check` compares results.

The bundle contains the released notebook, the outputs of its tests with the reference notebook's solutions, and the
points. It contains no solutions and no hidden tests. `check` takes the tests from the bundle, because the student's
file may have been changed.

`pytest --nbval NOTEBOOK` runs the visible tests, too, and reads the configuration in the folder of the notebook.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import BadInput
from ..files import write_text
from ..formats import Form, Number, check_format, check_json, from_json
from .schema import FORMAT, Assignment, parse

SUFFIX = ".bundle.json"
CONFIGURATION = "pytest.ini"
_MADE = "# Made by `labkit assign`"
# With --nbval-lax a cell fails if it raises an error, and not if it prints something else than when it was saved, such as a time.
_CONFIGURATION = f"""{_MADE} for `pytest --nbval NOTEBOOK`: a cell fails if it raises an error.
[pytest]
required_plugins = nbval
addopts = --nbval-lax --nbval-current-env --nbval-cell-timeout=300 -p no:cacheprovider
"""
POINTS = ("points", "hidden", "partly", "by hand")
WHAT = "a bundle of `labkit assign`"
FORM: Form = {
    "points": {str: dict.fromkeys(POINTS, Number(0, 1e9))}, "outputs": {str: [dict]},
    "notebook": {"metadata": dict, "cells": list},
}  # fmt: skip


@dataclass(frozen=True)
class Bundle:
    """`<assignment>.bundle.json`."""

    base: Assignment
    outputs: Mapping[str, list[dict[str, Any]]]
    points: Mapping[str, Mapping[str, float]]
    """By question: {"points": of all tests, "hidden": of tests that are not released, "partly": of tests with a hidden part,
    "by hand": of explain cells}."""


class ReleaseFiles(NamedTuple):
    notebook: Path
    bundle: Path
    configuration: Path


def write_release(
    folder: Path, notebook: Mapping[str, Any], outputs: Mapping[str, Any], points: Mapping[str, Any]
) -> ReleaseFiles:
    """Write a released notebook, its bundle, and the configuration for `pytest --nbval`.

    Raises `BadInput` if the folder cannot be written or has another configuration of pytest; then nothing is written.
    """
    about = notebook["metadata"]["labkit"]
    bundle = {
        "format": FORMAT, "assignment": about["assignment"], "title": about["title"], "variant": about["variant"],
        "points": points, "outputs": outputs, "notebook": notebook,
    }  # fmt: skip
    name = about["assignment"]
    files = ReleaseFiles(folder / f"{name}.ipynb", folder / f"{name}{SUFFIX}", folder / CONFIGURATION)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if files.configuration.exists() and not files.configuration.read_bytes().startswith(_MADE.encode()):
            raise BadInput(f"{files.configuration} is not from `labkit assign`; a release needs a folder without one.")
        write_text(files.configuration, _CONFIGURATION)
        for path, content in ((files.notebook, notebook), (files.bundle, bundle)):
            write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    except OSError as why:
        raise BadInput(f"{folder} cannot be written: {why.strerror or why}.") from None
    return files


def find_bundle(notebook: Path, assignment: str, given: Path | None) -> Path:
    """Return the path of the bundle of a student's notebook: `given`, or the file beside the notebook. Raises `BadInput` if
    there is none.
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
    raise BadInput(
        f"there is no {names[0]} beside {notebook}: put the file that you received there, or name it with --bundle."
    )


def read_bundle(path: Path) -> Bundle:
    """Read a bundle. Raises `BadInput` if the file cannot be read or is no bundle."""
    try:
        data = path.read_bytes()
    except OSError as why:
        raise BadInput(f"{path} cannot be read: {why.strerror or why}.") from None
    raw: Any = from_json(data, {"format": int}, str(path), WHAT)
    check_format(str(path), raw["format"], FORMAT)
    check_json(str(path), raw, FORM, WHAT)
    points = {question: {name: float(row[name]) for name in POINTS} for question, row in raw["points"].items()}
    return Bundle(parse(raw["notebook"], str(path)), raw["outputs"], points)
