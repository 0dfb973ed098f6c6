"""The runs of a lab as a table that shows itself, in a notebook and in a terminal, and that a spreadsheet can open."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from ..narrative.table import runs_csv

__all__ = ["Runs"]


class Runs(list[dict[str, Any]]):
    """A list of rows (dicts with equal keys)."""

    def csv(self) -> str:
        """The table as text, comma-separated."""
        return runs_csv(list(self))

    def to_csv(self, path: str | Path) -> Path:
        """Write it to a file."""
        Path(path).write_text(self.csv(), encoding="utf-8", newline="")
        return Path(path)

    def _cells(self) -> list[list[str]]:
        return [[_plain(value) for value in row.values()] for row in self]

    def __repr__(self) -> str:
        if not self:
            return "no run yet"
        rows = [list(self[0]), *self._cells()]
        wide = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        return "\n".join("  ".join(text.ljust(w) for text, w in zip(row, wide)).rstrip() for row in rows)

    def _repr_html_(self) -> str:
        if not self:
            return "<p>no run yet</p>"
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self[0])
        body = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in self._cells())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _plain(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
