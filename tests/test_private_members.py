"""Tests use no private members of labkit: they would have to change with an implementation that does the same."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PRIVATE = re.compile(r"_[a-zA-Z]\w*")
PROTOCOLS = re.compile(r"_repr_\w+_|_ipython_display_|_esm|_fields|_replace")  # of IPython, anywidget and named tuples


def parsed(folder):
    """Yield (file, its syntax tree) for a folder, one after the other: so many trees at once would be searched for garbage."""
    for file in sorted(folder.rglob("*.py")):
        yield file, ast.parse(file.read_text(encoding="utf-8"))


def of_itself(node):
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def private_names(tree):
    """Return the private names that a file defines: functions, classes, variables, and attributes of `self`."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and of_itself(node):
            found.add(node.attr)
    return {name for name in found if PRIVATE.fullmatch(name) and not PROTOCOLS.fullmatch(name)}


def accesses(tree):
    """Yield (line, name) of each attribute that is not of `self`, each imported name, and each part of a text that names an
    attribute for `getattr`, `setattr` and the like.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not of_itself(node):
            yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")).endswith(
            ("attr", "patch")
        ):
            texts = [part.value for part in node.args if isinstance(part, ast.Constant) and isinstance(part.value, str)]
            yield from ((node.lineno, name) for text in texts for name in text.split("."))


@pytest.mark.slow
def test_tests_use_no_private_members_of_labkit():
    labkit = set().union(*(private_names(tree) for _, tree in parsed(TESTS.parent / "labkit")))
    found, files = [], 0
    for file, tree in parsed(TESTS):
        own, files = private_names(tree), files + 1
        found += [
            f"{file.relative_to(TESTS)}:{line}: {name}"
            for line, name in accesses(tree)
            if name in labkit and name not in own
        ]
    assert len(labkit) > 1000
    assert files > 200
    assert not found, "\n".join(found)
