"""Checks the ids, questions, variants and regions of a reference notebook, and the names that are left for the student.

(`schema` checks the kinds of the cells.) Every error that would affect students later is reported to the instructor,
with the number of the cell.
"""

from __future__ import annotations

import ast

from ...errors import BadInput
from ..regions import HIDDEN, MARKER, SOLUTION, defined_names, has_region, released
from ..schema import Assignment, Cell, NotebookErrors
from ..variants import first_choices, unknown_places


def check_reference(reference: Assignment, where: str) -> None:
    """Raise `NotebookErrors` with all errors of a reference notebook, and the numbers of their cells."""
    wrong = [*_ids(reference), *_questions(reference), *_variant(reference)]
    for cell in reference.cells:
        wrong.extend(f"cell {cell.number}: {line}" for line in _cell(reference, cell))
    if wrong:
        raise NotebookErrors(where, wrong)


def _ids(reference: Assignment) -> list[str]:
    """Return an error for each grade_id or cell id that occurs twice."""
    wrong: list[str] = []
    for what, ids in (
        ("grade_id", [(cell.id, cell.number) for cell in reference.cells if cell.id]),
        ("cell id", [(cell.key, cell.number) for cell in reference.cells if cell.key]),
    ):
        seen: dict[str, int] = {}
        for name, number in ids:
            if name in seen:
                wrong.append(f"cell {number}: {what} {name!r} is that of cell {seen[name]} too; allowed: one cell each")
            seen.setdefault(name, number)
    return wrong


def _questions(reference: Assignment) -> list[str]:
    """Return an error for each question without a solution cell or without a test cell."""
    wrong = []
    for question in reference.questions():
        kinds = {cell.kind for cell in reference.cells if cell.question == question}
        if "solution" in kinds and "test" not in kinds:
            wrong.append(f"question {question!r} has a solution cell and no test cell")
        if "test" in kinds and "solution" not in kinds:
            wrong.append(f"question {question!r} has a test cell and no solution cell")
    if not reference.of_kind("test"):
        wrong.append("there is no test cell; allowed: one or more")
    return wrong


def _variant(reference: Assignment) -> list[str]:
    """Return an error if there are two variant cells, or the variant cell does not match the declared variants."""
    cells = reference.of_kind("variant")
    if len(cells) > 1:
        return [f"cell {cells[1].number}: there is a variant cell already (cell {cells[0].number}); allowed: one"]
    if not cells:
        return []
    expected = {key: choice["value"] for key, choice in first_choices(reference).items()}
    try:
        body = ast.parse(cells[0].source).body
        (statement,) = body
        assert isinstance(statement, ast.Assign)
        assert ast.unparse(statement.targets[0]) == "V"
        found = ast.literal_eval(statement.value)
    except (SyntaxError, ValueError, AssertionError, RecursionError, MemoryError):
        return [f"cell {cells[0].number}: a variant cell is `V = {{...}}` with plain values and nothing else"]
    if found != expected:
        return [f"cell {cells[0].number}: V is {found!r}, and the first choices of the variants are {expected!r}"]
    return []


def _cell(reference: Assignment, cell: Cell) -> list[str]:
    wrong = [
        f"there is no variant {name!r} for {{{{{name}}}}}; allowed: {', '.join(sorted(reference.variants)) or 'none'}"
        for name in unknown_places(reference, cell)
    ]
    try:
        if cell.kind != "solution" and cell.kind != "explain" and has_region(cell.source, SOLUTION):
            wrong.append(f"{SOLUTION[0]!r} is in a {cell.kind} cell; allowed: solution and explain cells")
        if cell.kind != "test" and has_region(cell.source, HIDDEN):
            wrong.append(f"{HIDDEN[0]!r} is in a {cell.kind} cell; allowed: test cells")
        left = released(cell.source, cell.kind)
    except BadInput as why:
        return [*wrong, str(why)]
    if not cell.is_code:
        return wrong
    if "NBVAL_" in cell.source:
        wrong.append("a comment for nbval (NBVAL_...) would override the grader; allowed: none")
    if cell.kind == "live":
        return wrong
    for text, whose in ((cell.source, ""), (left, "the release: ")):
        try:
            ast.parse(text)
        except SyntaxError as why:
            return [*wrong, f"{whose}line {why.lineno} is not Python: {why.msg} (no IPython magics here)"]
        except (ValueError, RecursionError, MemoryError) as why:  # for example, a NUL, or thousands of nested brackets
            return [*wrong, f"{whose}Python cannot read it: {str(why) or type(why).__name__}"]
    return [*wrong, *(_solution(reference, cell, left) if cell.kind == "solution" else ())]


def _solution(reference: Assignment, cell: Cell, left: str) -> list[str]:
    """Return the errors in a solution cell: in the marker comment, the region, and the names defined outside the region."""
    wrong = []
    found = MARKER.match(cell.source.split("\n", 1)[0])
    names = sorted(name for name, owner in reference.markers().items() if owner == cell.id)
    if not found or found[1] not in names:
        wrong.append(
            f"its first line is no marker comment; allowed: {' or '.join(f'`# {name} (keep this line)`' for name in names)}"
        )
    if not has_region(cell.source, SOLUTION):
        wrong.append(f"there is nothing to solve: no {SOLUTION[0]!r}")
    stub = defined_names(left)
    for name in defined_names(cell.source):
        if name not in stub and not name.startswith("_"):
            wrong.append(
                f"{name!r} is defined in the solution region only; put its class, def or `{name} = ...` line before it"
            )
    if not stub:
        wrong.append("it leaves no class, function or value for the student to define")
    return wrong
