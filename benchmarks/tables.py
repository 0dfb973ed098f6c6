"""Prints rows as a table. Numbers have at most four digits, which is the precision of the measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import shorten

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .rows import Benchmark, Row

PIPE_WIDTH = 160  # columns, if the output is not a terminal
REASON_CHARS = 60  # characters of the reason why a side was skipped; `--json` has the whole reason


def number(value: float) -> str:
    """Return a number as text with at most four significant digits: "12,340", "1.234", "0.01234"."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    digits = 3 - math.floor(math.log10(abs(value)))
    return f"{round(value, digits):,.{max(0, digits)}f}"


def wide_console() -> Console:
    """Return a console as wide as the terminal or, without a terminal, wide enough for every table."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPE_WIDTH)


def show(console: Console, benchmark: Benchmark, rows: Sequence[Row], error: str | None) -> None:
    """Print the rows of a benchmark, or the reason why there are none."""
    console.print()
    console.print(Text(f"{benchmark.name}: {benchmark.what}", style="bold"))
    if error is not None:
        console.print(Text(f"failed: {error}", style="red"))
        return
    console.print(_table(rows))
    if benchmark.note:
        console.print(Text(benchmark.note, style="dim"))


def _table(rows: Sequence[Row]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("measured", "side"):
        table.add_column(title)
    for title in ("median", "min–max"):
        table.add_column(title, justify="right", no_wrap=True)
    for title in ("unit", "repetitions"):
        table.add_column(title)
    for row in rows:
        cells = (row.name, row.side, *_numbers(row), row.unit, str(row.repetitions) if row.repetitions else "")
        table.add_row(*map(Text, cells), style="dim" if row.skipped else None)
    return table


def _numbers(row: Row) -> tuple[str, str]:
    if row.median is None or row.low is None or row.high is None:
        return "skipped", shorten(row.skipped or "", REASON_CHARS)
    return number(row.median), f"{number(row.low)}–{number(row.high)}"
