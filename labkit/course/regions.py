"""Regions of a cell's source that hold solutions or hidden tests, their removal, and the marker comments of answers.

As in nbgrader, a region consists of the lines between two delimiters, and each delimiter is alone on its line. A line
that resembles a delimiter but is not one is an error, because a misspelt delimiter would leave a solution in the release.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from ..errors import BadInput

Region = tuple[str, str]  # the delimiters

SOLUTION: Region = ("### BEGIN SOLUTION", "### END SOLUTION")
HIDDEN: Region = ("### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS")
STUB = 'raise NotImplementedError("your code")'
ANSWER = "*Your answer here.*"
MARKER = re.compile(r"#\s*([A-Za-z0-9_-]+)\s*\(\s*keep this line\s*\)", re.IGNORECASE)  # the first line of an answer

_LIKE_A_DELIMITER = re.compile(r"\b(BEGIN|END)\s+(SOLUTION|HIDDEN\s+TESTS?)\b", re.IGNORECASE)


def normalize_newlines(source: str) -> str:
    """Return the source with `\\n` at the end of each line, for files from any system."""
    return source.replace("\r\n", "\n").replace("\r", "\n")


def has_region(source: str, region: Region) -> bool:
    return any(line.strip() in region for line in source.split("\n"))


def in_region(lines: Sequence[str], region: Region, number: int) -> bool:
    """Whether line `number`, counted from 1, is between the two delimiters."""
    found = [line.strip() for line in lines[:number] if line.strip() in region]
    return bool(found) and found[-1] == region[0]


def replace_regions(source: str, region: Region, put: str = "") -> str:
    """Return `source` with each region replaced by the line `put`, indented as the region, or removed if `put` is empty.

    Raises `BadInput` if delimiters are not paired, or if a line resembles a delimiter but is not one.
    """
    begin, end = region
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
        elif _LIKE_A_DELIMITER.search(line) and found not in (*SOLUTION, *HIDDEN):
            allowed = ", ".join(map(repr, (*SOLUTION, *HIDDEN)))
            raise BadInput(
                f"line {number} looks like a delimiter and is none: {found!r}; allowed on a line alone: {allowed}"
            )
        elif not open_line:
            kept.append(line)
    if open_line:
        raise BadInput(f"{begin!r} in line {open_line} has no {end!r} after it")
    return "\n".join(kept)


def released(source: str, kind: str) -> str:
    """Return the source that a cell of this kind has in the release; it is empty if nothing remains of a test."""
    if kind == "solution":
        return replace_regions(source, SOLUTION, STUB)
    if kind == "explain":
        return replace_regions(source, SOLUTION, ANSWER)
    if kind == "test":
        left = replace_regions(source, HIDDEN)
        return left.rstrip("\n") if left.strip() else ""
    return source


def defined_names(source: str) -> dict[str, str]:
    """Return the names defined at the top level: {name: "class", "function", or "value" (`name = ...`)}. Raises
    SyntaxError.
    """
    found: dict[str, str] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = "class"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = "function"
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id: "value" for target in targets if isinstance(target, ast.Name)}
    return found
