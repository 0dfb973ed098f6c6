"""Finds the answers in a submitted notebook: the sources of its solution cells and of its additional code cells.

Accidental changes cost no points. A split cell is joined, a merged cell is split at its marker comments, a cell that
has lost its id is found by its marker, and a helper cell keeps its position before the answer that uses it. A note
reports each of these changes. In the cells of the assignment that are not answers, the submitted content is ignored.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ...errors import BadInput
from ..regions import MARKER, defined_names, released
from ..schema import Assignment
from .magics import without_magics
from .submitted_notebook import SubmittedCell, SubmittedNotebook

MAX_HELPERS = 500


@dataclass(frozen=True)
class Answers:
    """The answers of a submission.

    solutions: the sources by grade_id. before: the helper cells before each answer. after: the helper cells after the
    last answer. explained: the texts of explain cells. notes: what the student should know about the reading.
    """

    solutions: Mapping[str, str]
    before: Mapping[str, list[str]] = field(default_factory=dict)
    after: list[str] = field(default_factory=list)
    explained: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    variant: str = ""
    """The source of the variant cell, if the answers are the reference notebook's."""
    untouched: frozenset[str] = frozenset()
    """The ids of unchanged answers, if a reader process has determined them."""

    def is_untouched(self, base: Assignment, name: str) -> bool:
        """Whether the answer is unchanged from the release, and no helper cell defines a name that the answer must define."""
        stub = next(released(cell.source, "solution") for cell in base.of_kind("solution") if cell.id == name)
        elsewhere = "\n".join([*(text for texts in self.before.values() for text in texts), *self.after])
        return self.solutions.get(name, "").strip() in ("", stub.strip()) and not _mentions(
            elsewhere, defined_names(stub)
        )


def find_answers(base: Assignment, notebook: SubmittedNotebook) -> Answers:
    """Find the answers in a submitted notebook.

    Raises `BadInput` if the notebook belongs to another assignment, has no solution cell, or has too many helper cells.
    """
    if notebook.assignment and notebook.assignment != base.name:
        raise BadInput(f"this is the notebook of another assignment: {notebook.assignment!r}; allowed: {base.name!r}")
    collector = _Collector(base, notebook)
    for cell in notebook.cells:
        collector.add(cell)
    return collector.answers()


def _mentions(source: str, names: Iterable[str]) -> bool:
    """Whether a line of the source begins with one of the names, or with the definition of one of the names."""
    return any(re.search(rf"^(?:(?:async )?def |class )?{re.escape(name)}\b", source, re.MULTILINE) for name in names)


class _Collector:
    """Collects the answers from the cells in order. `waiting`: helper cells after the last answer found so far."""

    def __init__(self, base: Assignment, notebook: SubmittedNotebook) -> None:
        self.base = base
        self.solution_ids = {cell.id for cell in base.of_kind("solution")}
        self.other_ids = {cell.id: cell for cell in base.cells if cell.id and cell.id not in self.solution_ids}
        self.keys = {cell.key: cell for cell in base.cells if cell.key}
        others = [cell for cell in base.cells if cell.is_code and cell.kind != "solution"]
        self.fixed = {released(cell.source, cell.kind).strip() for cell in others} - {""}
        own = {cell.grade_id for cell in notebook.cells if cell.type == "code"}
        self.markers = {word: name for word, name in base.markers().items() if name not in own}
        self.lost = (
            self.solution_ids - own - {name for cell in notebook.cells for _, name in self._parts(cell.source) if name}
        )
        self.parts: dict[str, list[str]] = {}
        self.before: dict[str, list[str]] = {}
        self.waiting: list[str] = []
        self.explained: dict[str, str] = {}
        self.live: list[str] = []
        self.not_code: dict[str, str] = {}  # the type of each solution cell that is not a code cell
        self.notes: list[str] = []
        self.dropped = 0

    # cells ----------------------------------------------------------------------------------------------------------

    def add(self, cell: SubmittedCell) -> None:
        """Assign the next cell to an answer or to the helpers, or ignore it."""
        known = self.other_ids.get(cell.grade_id)
        if known is None and cell.grade_id not in self.solution_ids:
            known = self.keys.get(cell.key)  # the cell id is used last, because programs change it
            known = known if known and known.kind in ("solution", "explain", "live") else None
        if cell.type != "code":
            self._text(cell, known.id if known else "")
        elif cell.grade_id in self.solution_ids:
            self._answers(cell, cell.grade_id)
        elif any(name for _, name in self._parts(cell.source)):
            self._answers(cell, "")
        elif known and known.id in self.lost and known.id not in self.parts:
            self._answers(cell, known.id)
        elif known and known.kind != "solution" and known.kind != "live":
            if cell.source.strip() != released(known.source, known.kind).strip():
                self.notes.append(f"the cell {known.id!r} was changed: its content is ignored")
        elif cell.source.strip() in self.fixed or not cell.source.strip():
            pass
        elif cell.live or (known and known.kind == "live"):
            self.live.append(cell.source)
        else:
            self.waiting.append(self._python(cell.source))

    def _text(self, cell: SubmittedCell, known: str) -> None:
        name = cell.grade_id if cell.grade_id in self.solution_ids else known
        lost = [name] if name in self.solution_ids else [found for _, found in self._parts(cell.source) if found]
        if lost and cell.source.strip():
            self.not_code |= {each: (cell.type or "text").replace("markdown", "Markdown") for each in lost}
        elif name in self.other_ids and self.other_ids[name].kind == "explain":
            self.explained[name] = "\n\n".join(filter(None, (self.explained.get(name, ""), cell.source)))

    # answers --------------------------------------------------------------------------------------------------------

    def _parts(self, source: str) -> Iterator[tuple[str, str]]:
        """Split a source at marker comments whose ids no cell has, and yield (text, id or "") of each part."""
        lines: list[str] = []
        owner = ""
        for line in source.split("\n"):
            found = MARKER.match(line)
            if found and (name := self.markers.get(found[1])) and name != owner:
                yield "\n".join(lines), owner
                lines, owner = [], name
            lines.append(line)
        yield "\n".join(lines), owner

    def _answers(self, cell: SubmittedCell, owner: str) -> None:
        for text, name in self._parts(self._without_tests(cell.source)):
            if name and name not in self.parts:
                self.notes.append(f"the cell of {name!r} had lost its id and was found by its marker comment")
            if name or owner:
                self._answer(name or owner, text)
            elif text.strip():
                self.waiting.append(self._python(text))

    def _answer(self, name: str, source: str) -> None:
        if name not in self.parts:
            self.before[name], self.parts[name] = self.waiting, [self._python(source)]
        else:
            self.notes.append(f"several cells have the id {name!r}: joined in their order")
            self.parts[name] += [*self.waiting, self._python(source)]  # a helper between two parts stays between them
        self.waiting = []

    def _without_tests(self, source: str) -> str:
        for text in sorted(self.fixed, key=len, reverse=True):
            if "\n" in text and text in source:
                source = source.replace(text, "")
                self.notes.append("a test was merged into an answer: it was removed")
        return source

    def _python(self, source: str) -> str:
        kept, dropped = without_magics(source)
        self.dropped += dropped
        return kept

    # result ---------------------------------------------------------------------------------------------------------

    def answers(self) -> Answers:
        expected = {
            name for cell in self.base.of_kind("solution") for name in defined_names(released(cell.source, "solution"))
        }
        not_code = {name: kind for name, kind in self.not_code.items() if name not in self.parts}
        not_run = [
            f"the cell {name!r} is a {kind} cell now and is not run: make it a code cell"
            for name, kind in not_code.items()
        ]
        if not self.parts and not _mentions("\n".join(self.waiting), expected):
            if not_run:
                raise BadInput("; ".join(not_run))
            raise BadInput("there is no solution cell in it: neither the ids nor the marker comments were found")
        helpers = sum(map(len, self.before.values())) + len(self.waiting)
        if helpers > MAX_HELPERS:
            raise BadInput(f"there are {helpers} extra code cells; allowed: {MAX_HELPERS}")
        for cell in self.base.of_kind("solution"):
            if cell.id not in self.parts and cell.id not in not_code:
                self.notes.append(f"the cell {cell.id!r} is not in the notebook (deleted?)")
        self.notes.extend(not_run)
        if helpers:
            self.notes.append(f"{helpers} extra code cell{'s' * (helpers > 1)} run too")
        if self.dropped:
            self.notes.append(f"{self.dropped} line{'s' * (self.dropped > 1)} of IPython (%, !, ?) not run")
        self.notes.extend(self._defined_in_live_cells())
        solutions = {name: "\n".join(parts) for name, parts in self.parts.items()}
        return Answers(solutions, self.before, self.waiting, self.explained, tuple(dict.fromkeys(self.notes)))

    def _defined_in_live_cells(self) -> Iterator[str]:
        """Yield a note for each name that an answer uses but that is defined in a live cell, which is not graded."""
        used = {word for parts in self.parts.values() for part in parts for word in re.findall(r"[A-Za-z_]\w*", part)}
        for source in self.live:
            try:
                body = ast.parse(without_magics(source)[0]).body
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
            for node in body:
                if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name in used:
                    yield f"{node.name!r} is defined in a cell for the live cluster, which is not graded: move it to its own"
