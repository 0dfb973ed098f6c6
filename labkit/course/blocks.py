"""Marked blocks in a cell's source: what the student does not get, and the names that are left for the student to define.

Its law: cutting is by whole lines, and a marker line is exactly the marker. A line that looks like one and is not would
leave a solution in the students' version, so it is refused.
"""

from __future__ import annotations

import ast
import re

from ..errors import BadInput

__all__ = [
    "ANSWER",
    "HIDDEN",
    "SOLUTION",
    "STUB",
    "Block",
    "cut",
    "defined_names",
    "has_block",
    "one_line_ends",
    "released",
]

Block = tuple[str, str]

SOLUTION: Block = ("### BEGIN SOLUTION", "### END SOLUTION")
HIDDEN: Block = ("### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS")
STUB = 'raise NotImplementedError("your code")'
ANSWER = "*Your answer here.*"

_LIKE_A_MARKER = re.compile(r"\b(BEGIN|END)\s+(SOLUTION|HIDDEN\s+TESTS?)\b", re.IGNORECASE)


def one_line_ends(source: str) -> str:
    """The source with `\\n` at the end of each line, whatever system wrote it."""
    return source.replace("\r\n", "\n").replace("\r", "\n")


def has_block(source: str, block: Block) -> bool:
    """Whether one of the two markers stands on a line of its own."""
    return any(line.strip() in block for line in source.split("\n"))


def cut(source: str, block: Block, put: str = "") -> str:
    """`source` with each block replaced by `put` at the block's indentation (or by nothing).

    Raises:
        BadInput: a block is not ended, not begun, or begun twice; a line looks like a marker and is none.
    """
    begin, end = block
    kept: list[str] = []
    open_line = 0
    for number, line in enumerate(source.split("\n"), 1):
        found = line.strip()
        if found == begin:
            if open_line:
                raise BadInput(f"line {number} is {begin!r}, and the one of line {open_line} has no {end!r}")
            open_line = number
            if put:
                kept.append(line[: len(line) - len(line.lstrip())] + put)
        elif found == end:
            if not open_line:
                raise BadInput(f"line {number} is {end!r} without {begin!r} before it")
            open_line = 0
        elif _LIKE_A_MARKER.search(line) and found not in (*SOLUTION, *HIDDEN):
            allowed = ", ".join(map(repr, (*SOLUTION, *HIDDEN)))
            raise BadInput(
                f"line {number} looks like a marker and is none: {found!r}; allowed on a line alone: {allowed}"
            )
        elif not open_line:
            kept.append(line)
    if open_line:
        raise BadInput(f"{begin!r} in line {open_line} has no {end!r} after it")
    return "\n".join(kept)


def released(source: str, kind: str) -> str:
    """The source of a cell of this kind as students get it; empty when nothing is left of a test."""
    if kind == "solution":
        return cut(source, SOLUTION, STUB)
    if kind == "explain":
        return cut(source, SOLUTION, ANSWER)
    if kind == "test":
        left = cut(source, HIDDEN)
        return left.rstrip("\n") if left.strip() else ""
    return source


def defined_names(source: str) -> dict[str, str]:
    """What a source defines at its top level: name -> "strategy" (a class), "function" or "value" (`name = ...`).

    Raises:
        SyntaxError: the source is no Python.
    """
    found: dict[str, str] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = "strategy"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = "function"
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id: "value" for target in targets if isinstance(target, ast.Name)}
    return found
