"""Variants: the same assignment with other choices, which are determined by a seed.

A choice is a function of the name of the assignment, the name of the choice, and the seed. It does not depend on the
order of the metadata, on other choices, or on Python's hash seed. Without a seed the first choices are used, with which
the reference notebook is written.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Mapping
from typing import Any

from .schema import Assignment, Cell, parse, source_of

Choices = Mapping[str, Mapping[str, Any]]

_PLACE = re.compile(r"\{\{\s*([A-Za-z_]\w*)(\.value)?\s*\}\}")


def choose(assignment: Assignment, seed: str | None) -> Choices:
    """Return one choice ({"value", "words"}) for each variant that the notebook declares."""
    if seed is None:
        return first_choices(assignment)
    return {
        key: choices[_number(assignment.name, key, seed) % len(choices)] for key, choices in assignment.variants.items()
    }


def first_choices(assignment: Assignment) -> Choices:
    return {key: choices[0] for key, choices in assignment.variants.items()}


def digest(assignment: Assignment, seed: str | None) -> str:
    """Return the public name of a variant. It differs between seeds and does not reveal the choices."""
    return f"{_number(assignment.name, 'digest', seed):064x}"[:12] if seed is not None else "first"


# a hash and not `random`, because it is the same on every version of Python
def _number(*words: str) -> int:
    return int.from_bytes(hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).digest())


def with_variant(reference: Assignment, seed: str | None) -> Assignment:
    choices = choose(reference, seed)
    notebook = copy.deepcopy(dict(reference.notebook))
    for cell, raw in zip(reference.cells, notebook["cells"], strict=True):
        if cell.kind == "variant":
            raw["source"] = f"V = { {key: choice['value'] for key, choice in choices.items()}!r}"
        else:
            raw["source"] = _filled(source_of(raw), choices)
    return parse(notebook, reference.name)


def _filled(source: str, choices: Choices) -> str:
    """Replace `{{name}}` by the words and `{{name.value}}` by the value of a variant; other braces are not changed."""

    def put(found: re.Match[str]) -> str:
        choice = choices.get(found[1])
        if choice is None:
            return found[0]
        return str(choice["value"] if found[2] else choice["words"])

    return _PLACE.sub(put, source)


def unknown_places(reference: Assignment, cell: Cell) -> list[str]:
    """Return the names in `{{...}}` of a text cell that are not variants. Code may contain other double braces."""
    if cell.is_code:
        return []
    return [found[1] for found in _PLACE.finditer(cell.source) if found[1] not in reference.variants]
