"""Markdown from values: tables, and docstrings in plain text."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from labkit.cli.strategy_list import names_for
from labkit.options import Option, describe, write_option

__all__ = ["escaped", "option_rows", "plain_docstring", "table"]

SPECIAL = re.compile(r"([\\*_<>$\[\]|])")


def escaped(text: str) -> str:
    """Return plain text as Markdown. Text in backticks stays code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else SPECIAL.sub(r"\\\1", part) for part in parts)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. The cells are Markdown in one line."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', '/') if '`' in cell else cell for cell in row)} |" for row in lines
    )


def plain_docstring(about: Any) -> str:
    """Return a docstring as Markdown: indented paragraphs are code, all others are text."""
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(about))
    return "\n\n".join(
        "```text\n" + textwrap.dedent(part) + "\n```" if part.startswith("    ") else escaped(" ".join(part.split()))
        for part in paragraphs
    )


def option_rows(owner: type, options: Iterable[Option]) -> list[list[str]]:
    """Return the rows of a table of options of the class `owner`: name, default, meaning, allowed values."""
    rows = []
    for option in options:
        default = f"`{write_option(option, option.default)}`" if option.default is not None else "none"
        allowed = _allowed(owner, option) + ("; may change during a run" if option.live else "")
        rows.append([f"`{option.name}`", default, escaped(option.help), escaped(allowed)])
    return rows


def _allowed(owner: type, option: Option) -> str:
    """Return the type, limits and unit of an option, or the names of its values."""
    if option.names is not None:
        return "one of " + ", ".join(f"`{name}`" for name in names_for(owner, option))
    if option.choices:
        return "one of " + ", ".join(f"`{choice}`" for choice in option.choices)
    return re.sub(r"\b10\*\*(-?\d+)", r"10{sup}`\1`", describe(option))
