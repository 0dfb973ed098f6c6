"""What counts of a submission: the sources of its solution cells and of its extra code cells, and where each belongs.

Its law: an honest accident costs nothing. A split cell is joined, a merged one is parted at its markers, an id that was
lost is found again, a helper cell keeps its place before the answer that needs it; each is said in a note. Cells of the base
that are not answers are ignored whatever they hold now.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..errors import BadInput
from .blocks import defined_names, released
from .handed import Handed, HandedCell
from .magics import without_magics
from .schema import Assignment

__all__ = ["MARKER", "Taken", "take"]

MARKER = re.compile(r"#\s*([A-Za-z0-9_-]+)\s*\(\s*keep this line\s*\)", re.IGNORECASE)
MOST_HELPERS = 500


@dataclass(frozen=True)
class Taken:
    """Answers by grade_id, helper cells before each and after the last, texts of explain cells, and what there is to say."""

    solutions: Mapping[str, str]
    before: Mapping[str, list[str]] = field(default_factory=dict)
    after: list[str] = field(default_factory=list)
    explained: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    variant: str = ""
    """The V cell, where answers of the master are among the solutions."""
    untouched: frozenset[str] = frozenset()
    """The answers that are what students were given, of a submission that another process has read."""

    def is_untouched(self, base: Assignment, name: str) -> bool:
        """Whether the answer is what students were given, and no helper cell defines a name of it."""
        stub = next(released(cell.source, "solution") for cell in base.of_kind("solution") if cell.id == name)
        elsewhere = "\n".join([*(text for texts in self.before.values() for text in texts), *self.after])
        return self.solutions.get(name, "").strip() in ("", stub.strip()) and not _mentions(
            elsewhere, defined_names(stub)
        )


def take(base: Assignment, handed: Handed) -> Taken:
    """Find a submission's answers.

    Raises:
        BadInput: it is another assignment's notebook, has no solution cell, or has hundreds of helper cells.
    """
    if handed.assignment and handed.assignment != base.name:
        raise BadInput(f"this is the notebook of another assignment: {handed.assignment!r}; allowed: {base.name!r}")
    collector = _Collector(base, handed)
    for cell in handed.cells:
        collector.see(cell)
    return collector.taken()


def _mentions(source: str, names: Iterable[str]) -> bool:
    """Whether a source has a line that defines one of the names at its left edge."""
    return any(re.search(rf"^(?:(?:async )?def |class )?{re.escape(name)}\b", source, re.MULTILINE) for name in names)


class _Collector:
    """Goes through the cells in order; `waiting` are the helpers that no answer has followed yet."""

    def __init__(self, base: Assignment, handed: Handed) -> None:
        self.base = base
        self.solution_ids = {cell.id for cell in base.of_kind("solution")}
        self.other_ids = {cell.id: cell for cell in base.cells if cell.id and cell.id not in self.solution_ids}
        self.keys = {cell.key: cell for cell in base.cells if cell.key}
        others = [cell for cell in base.cells if cell.is_code and cell.kind != "solution"]
        self.fixed = {released(cell.source, cell.kind).strip() for cell in others} - {""}
        own = {cell.grade_id for cell in handed.cells if cell.type == "code"}
        self.markers = {word: name for word, name in base.markers().items() if name not in own}
        self.lost = (
            self.solution_ids - own - {name for cell in handed.cells for _, name in self._parts(cell.source) if name}
        )
        self.parts: dict[str, list[str]] = {}
        self.before: dict[str, list[str]] = {}
        self.waiting: list[str] = []
        self.explained: dict[str, str] = {}
        self.live: list[str] = []
        self.notes: list[str] = []
        self.dropped = 0

    # which cell is what ---------------------------------------------------------------------------------------------

    def see(self, cell: HandedCell) -> None:
        """Put one cell where it belongs."""
        known = self.other_ids.get(cell.grade_id)
        if known is None and cell.grade_id not in self.solution_ids:
            known = self.keys.get(cell.key)  # what says least, and so is believed least
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
                self.notes.append(f"the cell {known.id!r} was changed: what it holds now does not count")
        elif cell.source.strip() in self.fixed or not cell.source.strip():
            pass
        elif cell.live or (known and known.kind == "live"):
            self.live.append(cell.source)
        else:
            self.waiting.append(self._python(cell.source))

    def _text(self, cell: HandedCell, known: str) -> None:
        name = cell.grade_id if cell.grade_id in self.solution_ids else known
        if name in self.solution_ids and cell.source.strip() and name not in self.parts:
            self.notes.append(
                f"the cell {name!r} is a {cell.type or 'text'} cell now and is not run: make it a code cell"
            )
        elif name in self.other_ids and self.other_ids[name].kind == "explain":
            self.explained[name] = "\n\n".join(filter(None, (self.explained.get(name, ""), cell.source)))

    # answers --------------------------------------------------------------------------------------------------------

    def _parts(self, source: str) -> Iterator[tuple[str, str]]:
        """The source parted at markers of ids that no cell has: (text, id or "")."""
        lines: list[str] = []
        owner = ""
        for line in source.split("\n"):
            found = MARKER.match(line)
            if found and (name := self.markers.get(found[1])) and name != owner:
                yield "\n".join(lines), owner
                lines, owner = [], name
            lines.append(line)
        yield "\n".join(lines), owner

    def _answers(self, cell: HandedCell, owner: str) -> None:
        for text, name in self._parts(self._without_tests(cell.source)):
            if name and name not in self.parts:
                self.notes.append(f"the cell of {name!r} had lost its id and was found by its marker")
            if name or owner:
                self._answer(name or owner, text)
            elif text.strip():
                self.waiting.append(self._python(text))

    def _answer(self, name: str, source: str) -> None:
        """One (more) piece of an answer."""
        if name not in self.parts:
            self.before[name], self.parts[name] = self.waiting, [self._python(source)]
        else:
            self.notes.append(f"several cells have the id {name!r}: joined in their order")
            self.parts[name] += [*self.waiting, self._python(source)]  # a helper between two halves stays between them
        self.waiting = []

    def _without_tests(self, source: str) -> str:
        """A cell that was merged with the test below it."""
        for text in sorted(self.fixed, key=len, reverse=True):
            if "\n" in text and text in source:
                source = source.replace(text, "")
                self.notes.append("a test was merged into an answer: it was taken out again")
        return source

    def _python(self, source: str) -> str:
        kept, dropped = without_magics(source)
        self.dropped += dropped
        return kept

    # the end --------------------------------------------------------------------------------------------------------

    def taken(self) -> Taken:
        """What was found.

        Raises:
            BadInput: no solution cell, or too many helper cells.
        """
        expected = {
            name for cell in self.base.of_kind("solution") for name in defined_names(released(cell.source, "solution"))
        }
        if not self.parts and not _mentions("\n".join(self.waiting), expected):
            raise BadInput("there is no solution cell in it: neither the ids nor the marker comments were found")
        helpers = sum(map(len, self.before.values())) + len(self.waiting)
        if helpers > MOST_HELPERS:
            raise BadInput(f"there are {helpers} extra code cells; allowed: {MOST_HELPERS}")
        for cell in self.base.of_kind("solution"):
            if cell.id not in self.parts:
                self.notes.append(f"the cell {cell.id!r} is not in the notebook (deleted?)")
        if helpers:
            self.notes.append(f"{helpers} extra code cell{'s' * (helpers > 1)} taken along")
        if self.dropped:
            self.notes.append(f"{self.dropped} line{'s' * (self.dropped > 1)} of IPython (%, !, ?) not run")
        self.notes.extend(self._missed())
        solutions = {name: "\n".join(parts) for name, parts in self.parts.items()}
        return Taken(solutions, self.before, self.waiting, self.explained, tuple(dict.fromkeys(self.notes)))

    def _missed(self) -> Iterator[str]:
        """Names that an answer uses and that a cell for the live cluster, which is not handed in, defines."""
        used = {word for parts in self.parts.values() for part in parts for word in re.findall(r"[A-Za-z_]\w*", part)}
        for source in self.live:
            try:
                body = ast.parse(without_magics(source)[0]).body
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
            for node in body:
                if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name in used:
                    yield f"{node.name!r} is defined in a cell for the live cluster, which does not count: move it to its own"
