"""Tables of finished runs: the results of one run in rows, of several runs side by side. The numbers are the summary's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..summary import Summary

PIPE_WIDTH = 400  # columns, if the output is not a terminal


def show_summary(summary: Summary, to_stderr: bool) -> None:
    _show([("", summary.rows())], to_stderr)


def show_comparison(summaries: Sequence[Summary], strategies: Sequence[Any], to_stderr: bool) -> None:
    """Print a table with one column per run, and for each strategy what one update is.

    Numbers of updates can be compared only with this information.
    """
    columns = []
    for summary in summaries:
        rows = dict(summary.rows())
        rows.setdefault("reached after", "not reached")
        columns.append((summary["strategy"], [(name, rows[name]) for name in _order(rows)]))
    _show(columns, to_stderr)
    console = _console(to_stderr)
    for name, rule in {s.name: s.one_update() for s in strategies}.items():
        console.print(Text(f"{name}: one update is {rule}."))


def _order(rows: dict[str, str]) -> Iterable[str]:
    """Return the names of rows in order. `reached after` comes before `sent`; `strategy` is left out."""
    names = [name for name in rows if name not in ("reached after", "strategy")]
    names.insert(names.index("sent"), "reached after")
    return names


def _show(columns: Sequence[tuple[str, Sequence[tuple[str, str]]]], to_stderr: bool) -> None:
    table = Table(box=None, show_header=any(title for title, _ in columns), pad_edge=False)
    table.add_column("", style="bold", no_wrap=True)
    for title, _ in columns:
        table.add_column(title, overflow="fold")
    for i, (name, _) in enumerate(columns[0][1]):
        table.add_row(name, *(Text(rows[i][1]) for _, rows in columns))
    _console(to_stderr).print(table)


def _console(to_stderr: bool) -> Console:
    console = Console(stderr=to_stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=to_stderr, highlight=False, width=PIPE_WIDTH)
