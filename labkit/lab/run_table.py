"""The table of runs of a lab. It keeps a row for each run, and the last runs, which can be displayed again.

`Runs` is the table for users. It can be displayed in a notebook and in a terminal, and exported as CSV.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import BadInput
from ..files import write_text
from ..forecasts.forecaster import Forecaster
from ..narrative.table import run_row, runs_csv
from ..run import Run
from ..table import Table
from ..trace import Trace
from .settings import Settings

NONE_YET = "no run yet"
KEPT = 12  # number of finished runs that are kept; of older runs only the rows are kept


@dataclass
class Entry:
    """An entry of the table. `run` and its `forecaster` are None if they were released to save memory. `row`: the result of
    `run_row`.
    """

    number: int
    settings: Settings
    run: Run | None
    row: dict[str, Any] = field(default_factory=dict)
    forecaster: Forecaster | None = None

    @property
    def trace(self) -> Trace | None:
        """The trace of the run, if it is kept."""
        return self.run.engine.trace if self.run is not None else None


class RunTable:
    """The finished runs, oldest first. Iterating yields the entries."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def add(
        self, settings: Settings, run: Run, keep: Trace | None = None, forecaster: Forecaster | None = None
    ) -> None:
        """Add a finished run. All runs except the last `KEPT` and the run with the trace `keep` are released; their rows
        remain.
        """
        number = self._entries[-1].number + 1 if self._entries else 1
        self._entries.append(Entry(number, settings, run, run_row(run.engine.trace), forecaster))
        for old in self._entries[:-KEPT]:
            if old.trace is not keep:
                old.run = old.forecaster = None

    def entry(self, number: int) -> Entry:
        """Return the entry of this number. Raises `BadInput` if there is none, or if its run was released."""
        kept = [entry.number for entry in self._entries if entry.trace is not None]
        if number not in kept:
            raise BadInput(f"Run {number!r} is not kept; there is {', '.join(map(str, kept)) or 'none yet'}.")
        return next(entry for entry in self._entries if entry.number == number)

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries))

    def __len__(self) -> int:
        return len(self._entries)


class Runs(list[dict[str, Any]]):
    """The finished runs of a lab: a list of rows (dicts with equal keys), which is displayed as a table.

    Parameters
    ----------
    iterable : iterable of dict, default: ()
        The rows.

    Examples
    --------
    >>> with lk.Lab(cluster=lk.SimulatedCluster(workers=4), budget=lk.Budget(updates=50)) as lab:
    ...     runs = lab.run().wait().runs
    >>> runs[0]["workers"], runs[0]["gradients"], runs[0]["stopped_by"]
    (4, 50, 'updates')
    """

    def csv(self) -> str:
        """Return the table as comma-separated text.

        Returns
        -------
        str
            A line with the names of the columns, and a line for each run.
        """
        return runs_csv(list(self))

    def to_csv(self, path: str | Path) -> Path:
        """Write the table to a file as comma-separated text.

        Parameters
        ----------
        path : str or Path
            The file.

        Returns
        -------
        Path
            The path.
        """
        write_text(path, self.csv())
        return Path(path)

    def _table(self) -> Table:
        return Table(list(self[0]), [list(row.values()) for row in self])

    def __repr__(self) -> str:
        return str(self._table()) if self else NONE_YET

    def _repr_html_(self) -> str:
        return self._table()._repr_html_() if self else f"<p>{NONE_YET}</p>"
