"""How the public objects show themselves: one description each, as HTML in notebooks and as text in terminals."""

from __future__ import annotations

import html
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from .errors import without_addresses
from .table import Table, html_cell, html_table

TEXT = "margin: 2px 8px; font-size: 0.9em"  # the style of a line of text


@dataclass(frozen=True, repr=False)
class Description:
    """A title, rows of name and value, tables, and sentences below them.

    `str(description)` is the text with aligned values; a notebook shows the same as HTML.
    """

    title: str = ""
    rows: tuple[tuple[str, str], ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        width = max((len(name) for name, _ in self.rows), default=0)
        rows = [f"{name:<{width}}  {value}" for name, value in self.rows]
        head = "\n".join([self.title, *rows] if self.title else rows)
        return "\n\n".join(part for part in (head, *map(str, self.tables), "\n".join(self.notes)) if part)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        cells = [(html_cell("th", name, False), html_cell("td", value, False)) for name, value in self.rows]
        body = "".join(f"<tr>{name}{value}</tr>\n" for name, value in cells)
        rows = html_table("", "", body) if body else ""
        tables = "".join(table._repr_html_() for table in self.tables)
        title = f'<div style="{TEXT}; font-weight: 600">{html.escape(self.title)}</div>' if self.title else ""
        notes = "".join(f'<div style="{TEXT}">{html.escape(note)}</div>' for note in self.notes)
        return f'<div style="overflow-x: auto">{title}{rows}{tables}{notes}</div>'


class HasDescription:
    """Base class of objects that a notebook and `print` show by their description. `repr` stays one line.

    Making a description starts nothing, waits for nothing that can take long, and does not raise.
    """

    __slots__ = ()

    @abstractmethod
    def _described(self) -> Description:
        """Return the description as of now."""

    def __str__(self) -> str:
        return str(self._described())

    def _repr_html_(self) -> str:
        return self._described()._repr_html_()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the text that IPython prints: `repr` without addresses in memory, so that stored outputs can be compared.

        (IPython would not call `_repr_pretty_` of this class for a dataclass, because that has a `__repr__` of its own.)
        """
        return {"text/plain": without_addresses(repr(self))}
