"""A table of results: HTML in notebooks and on pages made of them, aligned text in terminals."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from .errors import BadInput, shown
from .formatting import number_texts

MISSING = "–"
_NUMBER = r"[-−+<>~]?(\d[\d,]*\.?\d*|\.\d+)(e[-+]?\d+)?"
_QUANTITY = re.compile(
    rf"({_NUMBER}( ± {_NUMBER})?( ?[^\W\d]{{1,4}}(/\w+)?| ?%)?|nan|[-+]?inf)"
)  # `12`, `0.5 s`, `1,200 B/s`, `95%`


@dataclass(frozen=True, repr=False)
class Table:
    """A table with a title, which shows itself as HTML in a notebook and as aligned text in a terminal.

    Columns that contain only numbers, or texts that are a number with a unit (`0.5 s`, `95%`), are aligned right; other columns
    are aligned left. Integers have thousands separators, other numbers of a column have one number of decimals, and None is `–`.
    To fix a format, give the cell as text.

    Parameters
    ----------
    columns : sequence of str
        The headings, with units where needed: `"step time (ms)"`.
    rows : iterable of sequences
        The rows. Each has one cell per column: a text, a number, a bool or None; any other object is shown as `str(object)`.
    title : str, optional
        A line above the table.

    Raises
    ------
    BadInput
        If there is no column, or if a row does not have one cell per column.

    Examples
    --------
    >>> lk.Table(["workers", "gradients/s", "sent"], [[1, 9.98, "40 kB"], [16, 151.2, "1.2 MB"]], "Throughput")
    Throughput
    workers  gradients/s    sent
          1        10.0    40 kB
         16       151.2   1.2 MB
    """

    columns: Sequence[str]
    rows: Iterable[Sequence[Any]]
    title: str = ""

    def __post_init__(self) -> None:
        try:
            columns = tuple(map(str, () if isinstance(self.columns, str) else self.columns))
            rows = tuple(row if isinstance(row, str) else tuple(row) for row in self.rows)
        except TypeError:  # a heading or a row that cannot be iterated
            columns, rows = (), ()
        if not columns or isinstance(self.rows, str):
            raise BadInput(
                "Table: give a list of headings, at least one column, and a list of rows, as in "
                'lk.Table(["s", "time"], [[0, 1.5]]).'
            )
        for row in rows:
            if isinstance(row, str) or len(row) != len(columns):
                raise BadInput(f"Table: give each row one cell per column ({', '.join(columns)}), not {shown(row)}.")
        if not isinstance(self.title, str):
            raise BadInput(f"Table: title={shown(self.title)} is not allowed; give a text.")
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "rows", rows)

    def cells(self) -> list[list[str]]:
        """Return the rows as text, without the headings.

        Returns
        -------
        list of list of str
            The cells of each row.
        """
        columns = [_texts([row[i] for row in self.rows]) for i in range(len(self.columns))]
        return [list(row) for row in zip(*columns)]

    def __str__(self) -> str:
        cells = [[" ".join(text.splitlines()) for text in row] for row in [list(self.columns), *self.cells()]]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        right = self._numeric(cells[1:])
        lines = [
            "  ".join(t.rjust(w) if r else t.ljust(w) for t, w, r in zip(row, widths, right)).rstrip() for row in cells
        ]
        return "\n".join([self.title, *lines] if self.title else lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        cells = self.cells()
        right = self._numeric(cells)
        head = "".join(html_cell("th", name, r) for name, r in zip(self.columns, right))
        body = "".join("<tr>" + "".join(html_cell("td", t, r) for t, r in zip(row, right)) + "</tr>\n" for row in cells)
        return html_table(self.title, head, body)

    def _numeric(self, cells: list[list[str]]) -> list[bool]:
        """Return for each column whether it is aligned right."""
        columns = [[row[i] for row in cells if row[i] not in ("", MISSING)] for i in range(len(self.columns))]
        return [bool(texts) and all(_QUANTITY.fullmatch(text) for text in texts) for texts in columns]


def _texts(column: list[Any]) -> list[str]:
    """Return the cells of a column as text."""
    numbers = [value for value in column if _is_number(value)]
    texts = iter(number_texts(numbers))
    return [next(texts) if _is_number(value) else _text(value) for value in column]


def _is_number(value: Any) -> bool:
    """Return whether a value is a real number of Python or NumPy, and not a bool."""
    return isinstance(value, Real) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if value is None:
        return MISSING
    text = str(value)
    return (
        text if isinstance(value, str) else {"True": "yes", "False": "no"}.get(text, text)
    )  # a bool of Python or NumPy


def html_table(title: str, head: str, body: str) -> str:
    """Return a table of finished cells of a heading (or "") and rows.

    Colors are those of the page, so that it is legible on light and dark pages. `dataframe` is the class of the tables of pandas,
    for which themes have styles.
    """
    style = "caption-side: top; text-align: left; color: inherit; font-weight: 600; padding: 2px 8px"
    caption = f'<caption style="{style}">{html.escape(title)}</caption>' if title else ""
    line = "border: 0; border-bottom: 1px solid color-mix(in srgb, currentColor 35%, transparent)"
    heading = f'<thead><tr style="{line}">{head}</tr></thead>\n' if head else ""
    return (
        f'<table class="dataframe" style="border-collapse: collapse; border: 0; margin: 4px 0">{caption}\n'
        f"{heading}<tbody>\n{body}</tbody></table>"
    )


def html_cell(tag: str, text: str, right: bool) -> str:
    """Return a cell (`tag` "td" or "th"), aligned right or left. `align` is for pages that remove styles from outputs."""
    look = (
        'align="right" style="text-align: right; white-space: nowrap"'
        if right
        else 'align="left" style="text-align: left"'
    )
    content = html.escape(text).replace("\n", "<br>")
    return f"<{tag} {look}>{content}</{tag}>"
