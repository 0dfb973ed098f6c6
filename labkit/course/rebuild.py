"""The rebuilt notebook: everything from the base, and from a submission only the source of its answers.

Its law: `check` and `grade` both come through here, with the pristine release or with the master as the base. In the
rebuilt notebook a student's source does not occur: each solution cell asks the judge for the names that the student's code
defines, and that code stands in `sources.json`, data for the judge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .blocks import defined_names, released
from .schema import Assignment, Cell
from .taken import MARKER, Taken, take

__all__ = ["JUDGE", "MARKER", "Rebuilt", "Taken", "own_answers", "rebuild", "take"]

JUDGE = "labkit.course.judge"
SOURCES = "sources.json"
JUDGE_CELL, VARIANT_CELL = "(judge)", "(variant)"  # no grade_id can be these

Outputs = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class Rebuilt:
    """What is run: a notebook and the sources beside it, both plain JSON."""

    notebook: dict[str, Any]
    sources: dict[str, Any]


def own_answers(master: Assignment) -> Taken:
    """The master's own solutions, as if they were handed in."""
    return Taken({cell.id: cell.source for cell in master.of_kind("solution")}, variant=_variant_source(master))


def _variant_source(base: Assignment) -> str:
    return "".join(cell.source for cell in base.of_kind("variant"))


def rebuild(
    base: Assignment, taken: Taken, outputs: Outputs | None, judge: str = JUDGE, *, reference: Taken | None = None,
    lent: Iterable[str] = (),
) -> Rebuilt:  # fmt: skip
    """Put answers into the base. In the solution cells `lent` those of `reference` count instead, which are read in processes
    of their own: no source of theirs comes into a process that reads the submission's.

    Args:
        outputs: reference outputs of the test cells by grade_id; None records instead of comparing.
        judge: the module that has `Judge`.
    """
    opening = f'from {judge} import Judge\n\njudge = Judge.open("{SOURCES}")'
    cells = [_code(0, JUDGE_CELL, "judge", opening)]
    for cell in base.cells:
        if cell.kind in ("given", "locked"):
            cells.append(_code(len(cells), cell.id, cell.kind, cell.source))
        elif cell.kind == "variant":
            cells.append(_code(len(cells), VARIANT_CELL, cell.kind, cell.source))
        elif cell.kind == "solution":
            cells.append(_code(len(cells), cell.id, cell.kind, f'globals().update(judge.defined("{cell.id}"))'))
        elif cell.kind == "test":
            expected = None if outputs is None else list(outputs.get(cell.id, ()))
            cells.append(_code(len(cells), cell.id, cell.kind, cell.source, expected))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    sources = {"assignment": base.name, "tools": list(base.tools), "cells": _sources(base, taken, frozenset(lent))}
    if reference is not None:
        sources["reference"] = [cell for cell in _sources(base, reference, frozenset()) if _is_before(cell, lent, base)]
    return Rebuilt(notebook, sources)


def _code(number: int, name: str, kind: str, source: str, outputs: list[Any] | None = None) -> dict[str, Any]:
    """A code cell. nbval compares outputs only where there is an execution_count, and only those of tests are compared."""
    return {
        "cell_type": "code",
        "id": f"c{number:02d}",
        "metadata": {"labkit": {"cell": name, "kind": kind}},
        "source": source,
        "execution_count": None if outputs is None else number + 1,
        "outputs": outputs or [],
    }


def _is_before(cell: Mapping[str, Any], lent: Iterable[str], base: Assignment) -> bool:
    """Whether a cell of the reference's stands before the end of the last that is lent."""
    numbers = {each.id: each.number for each in base.cells if each.id}
    return numbers.get(cell["id"], 0) <= max((numbers[name] for name in lent), default=0)


def _sources(base: Assignment, taken: Taken, lent: frozenset[str]) -> list[dict[str, Any]]:
    """Given cells, helpers and answers in the order in which the sandbox runs them; of an answer that is `lent`, its names."""
    cells: list[dict[str, Any]] = []

    def add(name: str, kind: str, source: str, defines: Mapping[str, str] | None = None) -> None:
        cells.append({"id": name, "kind": kind, "source": source, "defines": dict(defines or {})})

    def helpers(sources: Sequence[str]) -> None:
        for source in sources:
            add(f"helper-{sum(cell['kind'] == 'helper' for cell in cells) + 1}", "helper", source)

    if taken.variant:
        add("variant", "given", taken.variant)
    for cell in base.cells:
        if cell.kind == "given":
            add(cell.id, "given", cell.source)
        elif cell.kind == "solution":
            helpers(taken.before.get(cell.id, ()))
            if cell.id in lent:
                add(cell.id, "lent", "", expected_names(cell))
            else:
                add(cell.id, "solution", taken.solutions.get(cell.id, ""), expected_names(cell))
    helpers(taken.after)
    return cells


def expected_names(cell: Cell) -> dict[str, str]:
    """The names that an answer must define: those that stand outside the solution blocks, in master and release alike."""
    return defined_names(released(cell.source, "solution"))
