"""Rebuilds a notebook: all cells are from the base, and only the sources of the answers are from the submission.

The base of `check` is the release; the base of `grade` is the reference notebook. The rebuilt notebook contains no
submitted source. Each solution cell gets the names that the answer defines from `RemoteAnswers`, which reads the
sources from `sources.json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..regions import defined_names, released
from ..schema import Assignment, Cell
from .answers import Answers

ANSWERS_MODULE = "labkit.course.sandbox.remote_answers"
SOURCES = "sources.json"
SETUP_CELL, VARIANT_CELL = "(setup)", "(variant)"  # names that cannot be a grade_id

Outputs = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class Rebuilt:
    """A notebook to run and the content of its `sources.json`, both plain JSON."""

    notebook: dict[str, Any]
    sources: dict[str, Any]


def solutions_as_answers(reference: Assignment) -> Answers:
    """Return the reference notebook's own solutions as if they were the answers of a submission."""
    return Answers({cell.id: cell.source for cell in reference.of_kind("solution")}, variant=_variant_source(reference))


def _variant_source(base: Assignment) -> str:
    return "".join(cell.source for cell in base.of_kind("variant"))


def rebuild(
    base: Assignment, answers: Answers, outputs: Outputs | None, answers_module: str = ANSWERS_MODULE, *,
    reference_answers: Answers | None = None, replaced: Iterable[str] = (),
) -> Rebuilt:  # fmt: skip
    """Put answers into the base.

    `outputs`: reference outputs of the test cells by grade_id. Those of other test cells are recorded, not compared; with None,
    those of all. `answers_module`: the module that has `RemoteAnswers`. `reference_answers`: the reference's answers, which are
    used in the solution cells `replaced`. They run in separate processes, so that no process that runs submitted code has their
    source.
    """
    setup = f'from {answers_module} import RemoteAnswers\n\nanswers = RemoteAnswers.open("{SOURCES}")'
    cells = [_code(0, SETUP_CELL, "setup", setup)]
    for cell in base.cells:
        if cell.kind in ("given", "locked"):
            cells.append(_code(len(cells), cell.id, cell.kind, cell.source))
        elif cell.kind == "variant":
            cells.append(_code(len(cells), VARIANT_CELL, cell.kind, cell.source))
        elif cell.kind == "solution":
            cells.append(_code(len(cells), cell.id, cell.kind, f'globals().update(answers.defined("{cell.id}"))'))
        elif cell.kind == "test":
            expected = None if outputs is None or cell.id not in outputs else list(outputs[cell.id])
            cells.append(_code(len(cells), cell.id, cell.kind, cell.source, expected))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    sources = {
        "assignment": base.name,
        "tools": list(base.tools),
        "cells": _sources(base, answers, frozenset(replaced)),
    }
    if reference_answers is not None:
        sources["reference"] = [
            cell for cell in _sources(base, reference_answers, frozenset()) if _is_needed(cell, replaced, base)
        ]
    return Rebuilt(notebook, sources)


def _code(number: int, name: str, kind: str, source: str, outputs: list[Any] | None = None) -> dict[str, Any]:
    """Make a code cell. nbval compares only the outputs of cells with an execution_count, so only tests have one."""
    return {
        "cell_type": "code",
        "id": f"c{number:02d}",
        "metadata": {"labkit": {"cell": name, "kind": kind}},
        "source": source,
        "execution_count": None if outputs is None else number + 1,
        "outputs": outputs or [],
    }


def _is_needed(cell: Mapping[str, Any], replaced: Iterable[str], base: Assignment) -> bool:
    """Whether a cell of the reference is the last replaced cell or precedes it."""
    numbers = {each.id: each.number for each in base.cells if each.id}
    return numbers.get(cell["id"], 0) <= max((numbers[name] for name in replaced), default=0)


def _sources(base: Assignment, answers: Answers, replaced: frozenset[str]) -> list[dict[str, Any]]:
    """Return given cells, helpers and answers, in the order in which they run. A `replaced` answer has names but no source."""
    cells: list[dict[str, Any]] = []

    def add(name: str, kind: str, source: str, defines: Mapping[str, str] | None = None) -> None:
        cells.append({"id": name, "kind": kind, "source": source, "defines": dict(defines or {})})

    def helpers(sources: Sequence[str]) -> None:
        for source in sources:
            add(f"helper-{sum(cell['kind'] == 'helper' for cell in cells) + 1}", "helper", source)

    if answers.variant:
        add("variant", "given", answers.variant)
    for cell in base.cells:
        if cell.kind == "given":
            add(cell.id, "given", cell.source)
        elif cell.kind == "solution":
            helpers(answers.before.get(cell.id, ()))
            if cell.id in replaced:
                add(cell.id, "reference", "", expected_names(cell))
            else:
                add(cell.id, "solution", answers.solutions.get(cell.id, ""), expected_names(cell))
    helpers(answers.after)
    return cells


def expected_names(cell: Cell) -> dict[str, str]:
    """Return the names that an answer must define: the names outside the solution regions of the reference notebook."""
    return defined_names(released(cell.source, "solution"))
