"""`sweep`: a grid of runs, and its results as a table with one row per run.

A run of the grid is a problem, a strategy, a cluster, a budget and a seed. Simulated runs are independent of each other and
of the machine, so they are executed in parallel, as Dask tasks. Runs on processes are executed one after the other, because
they would take time from each other.

With `path`, every result is written to a file as soon as its run has ended, one JSON object per line. A sweep that is started
again with the same file executes the runs that are missing in it, and those that have failed.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import importlib.metadata
import io
import itertools
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engines.base import Cluster
from ..engines.machine_limits import MAX_PROCESSES, free_memory, process_capacity, usable_cpus
from ..engines.plan import make_plan
from ..errors import BadInput, LabkitError, check_installed, shown
from ..files import lock_open_file, write_text
from ..formats import Either, Form, check_format, from_json
from ..formatting import bytes_text, count_text, number_text
from ..interrupts import DeferredInterrupt
from ..options import options_of, write_option
from ..paths import as_path, reason, writing
from ..problem import Problem
from ..progress import TaskProgress, bar_for, check_progress
from ..roles.budget import Budget
from ..run import train
from ..spec import RunSpec
from ..strategies import Strategy
from ..table import Table
from .arguments import as_budget, as_cluster, as_problem, as_several, as_strategy

if TYPE_CHECKING:
    import pandas
    from distributed import Client

    from ..views.sweeps import SweepPlots

FORMAT = 1
MAX_SEEDS = 10_000
ALONE_S = 1.0  # wall seconds of simulated runs in this process, before further processes are started for the rest
# The columns of results, in order. The columns before them are settings of the run, see `Sweep`.
RESULTS = (
    "stopped_by", "seconds", "updates", "gradients", "samples_per_second", "updates_per_second",
    "gradients_per_second", "staleness", "staleness_p95", "loss", "accuracy", "target_accuracy", "time_to_accuracy", "bytes_sent",
    "bytes_per_gradient", "ledger_closes", "error",
)  # fmt: skip
# {heading in tables: (result, the text of a value)}
TEXTS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "gradients/s": ("gradients_per_second", number_text), "staleness": ("staleness", "{:.2f}".format),
    "bytes per gradient": ("bytes_per_gradient", bytes_text), "accuracy": ("accuracy", "{:.1%}".format),
    "time to accuracy (s)": ("time_to_accuracy", "{:.3g}".format),
}  # fmt: skip
ALWAYS = ("data", "strategy", "engine", "workers", "servers", "seed")
NUMBER = Either(None, float)
ROW: dict[str, Form] = dict.fromkeys(("data", "strategy", "engine"), str) | dict.fromkeys(
    ("workers", "servers", "seed"), int
)
ROW |= dict.fromkeys(RESULTS, NUMBER)
ROW |= dict.fromkeys(("stopped_by", "error"), Either(None, str)) | {
    "ledger_closes": Either(None, False, True),
}  # fmt: skip
SETTING = Either(None, True, False, float, str)  # of an option that differs within the grid
ENTRY: Form = {"key": str, "row": {str: SETTING} | ROW}


@dataclass(frozen=True)
class Setting:
    """What all seeds of a sweep have in common."""

    problem: Problem
    strategy: Strategy
    cluster: Cluster
    budget: Budget


@dataclass(frozen=True)
class SweepCell:
    """One run: a setting whose problem has the seed. `columns`: its settings in the table. `key`: identifies the run, also
    in other processes.
    """

    setting: Setting
    columns: Mapping[str, Any]
    key: str


@dataclass(frozen=True, repr=False)
class Sweep:
    """The results of a sweep: one row per run. `len(sweep)` is the number of runs.

    Parameters
    ----------
    rows : tuple of mappings
        One per run, in the order of the grid: its settings, then its results. Times are in seconds, sizes in bytes; a value that
        does not exist is None. `error` is the message of a run that failed. `time_to_accuracy` is the time until
        `target_accuracy`, the accuracy of the budget, was reached. The row of a simulated run is the same whenever and wherever
        it is executed.
    varied : tuple of str
        The names of the settings that differ between runs, without the seed.

    See Also
    --------
    sweep : Executes the runs.

    Examples
    --------
    >>> cluster = lk.SimulatedCluster(workers=4, compute=lk.distributions.Exponential(0.01))
    >>> found = lk.sweep("moons", "async-ps", cluster, lk.Budget(updates=50), seeds=[0, 1])
    >>> found.values("updates")
    [50, 50]
    """

    rows: tuple[Mapping[str, Any], ...]
    varied: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def table(self) -> Table:
        """Return the medians over the seeds.

        Returns
        -------
        Table
            One row per setting.
        """
        counts = ["runs", "failed"] if any(row["error"] is not None for row in self.rows) else ["runs"]
        return table_of_medians(self, ["gradients/s", "staleness", "accuracy", "time to accuracy (s)"], counts)

    def __str__(self) -> str:
        return str(self.table())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

    @staticmethod
    def time_text(line: Mapping[str, Any]) -> str | None:
        """Return the median time to accuracy of a setting as text, with the runs that reached it if these are not all.

        Parameters
        ----------
        line : dict
            One item of `medians("time_to_accuracy")`.

        Returns
        -------
        str or None
            The text, as "0.53" or "0.53, 2 of 3 runs"; None if there was no accuracy to reach.
        """
        reached, targeted = line["reached"], line["targeted"]
        if not targeted:
            return None
        if not reached:
            return "not reached"
        middle = line["time_to_accuracy"]
        some = f"{reached:,} of {count_text(targeted, 'run')}"
        text = f"reached by {some}" if middle is None else f"{middle:.3g}, {some}"
        return f"{middle:.3g}" if reached == targeted else text

    def settings(self) -> list[dict[str, Any]]:
        """Return the settings of the grid without repetition.

        Returns
        -------
        list of dict
            The varied settings, once for all seeds.
        """
        found = {tuple(row[name] for name in self.varied): None for row in self.rows}
        return [dict(zip(self.varied, values)) for values in found]

    def values(self, result: str, **settings: Any) -> list[float]:
        """Return the values of a result over the runs with these settings, in the order of the grid.

        Runs that do not have this result, because they failed or did not reach the accuracy, are left out.

        Parameters
        ----------
        result : str
            The name of a column, as "time_to_accuracy".
        **settings : object
            Values of settings, as `workers=4`.

        Returns
        -------
        list of float
            The values.

        Raises
        ------
        BadInput
            If there is no such result or setting.
        """
        for name in (result, *settings):
            if not self.rows or name not in self.rows[0]:
                names = list(self.rows[0]) if self.rows else []
                raise BadInput(f"The sweep has no column {shown(name)}; it has {', '.join(names)}.")
        return [
            row[result] for row in self.rows
            if row[result] is not None and all(row[name] == value for name, value in settings.items())
        ]  # fmt: skip

    def medians(self, *results: str) -> list[dict[str, Any]]:
        """Return the median, the smallest and the largest value over the seeds, for each setting of the grid.

        A run that did not reach the accuracy of its budget has an infinite time to accuracy: leaving it out would make slow
        settings look fast. Runs that failed are left out.

        Parameters
        ----------
        *results : str
            The names of results, as "gradients_per_second".

        Returns
        -------
        list of dict
            One per setting: its varied settings; the number of `runs`, of those that `failed`, of those that had an accuracy to
            reach (`targeted`), and of those that `reached` it; for each result its median under the name of the result, and the
            smallest and largest value as `<result>_low` and `<result>_high`. None if no run has a value, or if the median is
            infinite.
        """
        found = []
        for settings in self.settings():
            rows = [row for row in self.rows if all(row[name] == value for name, value in settings.items())]
            targeted = [row for row in rows if row["error"] is None and row["target_accuracy"] is not None]
            reached = sum(row["time_to_accuracy"] is not None for row in targeted)
            line: dict[str, Any] = settings | {
                "runs": len(rows),
                "failed": sum(row["error"] is not None for row in rows),
            }
            line |= {"targeted": len(targeted), "reached": reached}
            for result in results:
                values = self.values(result, **settings)
                if result == "time_to_accuracy" and values:
                    values += [math.inf] * (len(targeted) - reached)
                middle = statistics.median(values) if values else None
                line[result] = None if middle == math.inf else middle
                line[f"{result}_low"], line[f"{result}_high"] = min(values, default=None), max(values, default=None)
            found.append(line)
        return found

    # files ------------------------------------------------------------------------------------------------------------

    def frame(self) -> pandas.DataFrame:
        """Return the results as a data frame.

        Returns
        -------
        pandas.DataFrame
            One row per run.

        Raises
        ------
        BadInput
            If pandas is not installed.
        """
        check_installed("Data frames need", "pandas")
        with DeferredInterrupt():
            import pandas

        return pandas.DataFrame([dict(row) for row in self.rows])

    def to_csv(self, path: str | Path) -> Path:
        """Write a CSV file with one line per run, and a header.

        Parameters
        ----------
        path : str or path-like
            The file.

        Returns
        -------
        pathlib.Path
            The file.

        Raises
        ------
        BadInput
            If the file cannot be written.
        """
        name, text = as_path("path", path), io.StringIO()
        writer = csv.DictWriter(text, list(self.rows[0]) if self.rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        with writing(name):
            write_text(name, text.getvalue())
        return Path(name)

    def to_parquet(self, path: str | Path) -> Path:
        """Write the data frame as a Parquet file.

        Parameters
        ----------
        path : str or path-like
            The file.

        Returns
        -------
        pathlib.Path
            The file.

        Raises
        ------
        BadInput
            If pandas or pyarrow is not installed, or if the file cannot be written.
        """
        check_parquet()
        name, frame = as_path("path", path), self.frame()
        with writing(name):
            frame.to_parquet(name, engine="pyarrow", index=False)
        return Path(name)

    @classmethod
    def load(cls, path: str | Path) -> Sweep:
        """Return the results in a file that `sweep(..., path=...)` has written, also if that sweep has not ended.

        Parameters
        ----------
        path : str or path-like
            The file.

        Returns
        -------
        Sweep
            The finished runs, in the order in which they ended.

        Raises
        ------
        BadInput
            If the file does not contain a sweep, or was written by another version of labkit.
        """
        rows = list(_Store(path).read().values())
        if not rows:
            raise BadInput(f"{shown(str(path))} contains no finished run.")
        return cls._of(rows)

    @classmethod
    def _of(cls, rows: Sequence[Mapping[str, Any]]) -> Sweep:
        names = list(dict.fromkeys(name for row in rows for name in row if name not in RESULTS))
        made = tuple({name: row.get(name) for name in (*names, *RESULTS)} for row in rows)
        varied = [name for name in names if name != "seed" and _differs(name, made)]
        return cls(made, tuple(varied))

    # figures ----------------------------------------------------------------------------------------------------------

    @property
    def plot(self) -> SweepPlots:
        """The figures of the sweep.

        `sweep.plot.time_to_accuracy()`, `.throughput()`, `.efficiency()`, `.staleness()` and `.pareto()`;
        `sweep.plot.overview()` shows four of them.
        """
        with DeferredInterrupt():
            from ..views.sweeps import SweepPlots

        return SweepPlots(self)


def table_of_medians(
    found: Sweep, headings: Sequence[str], counts: Sequence[str] = (), ranges: bool = False, title: str = ""
) -> Table:  # fmt: skip
    """Return a table with one row per setting: its settings, `counts` of its runs, and the medians of results, by their
    `headings` in `TEXTS`. `ranges`: each with the smallest and largest value, if these differ.
    """
    names = list(found.varied) or ["strategy"]
    rows = []
    for line in found.medians(*(TEXTS[heading][0] for heading in headings)):
        cells = [_median_text(line, *TEXTS[heading], ranges) for heading in headings]
        if line["reached"] < line["targeted"]:
            cells[-1] = found.time_text(line)
        rows.append(
            [*(line.get(name, found.rows[0][name]) for name in names), *(line[name] for name in counts), *cells]
        )
    return Table([*(name.replace("_", " ") for name in names), *counts, *headings], rows, title)


def _median_text(line: Mapping[str, Any], result: str, text: Callable[[Any], str], ranges: bool) -> str | None:
    """Return the median of a result as text, with its range: "1,795 (1,757 – 1,799)"."""
    middle, low, high = (line[f"{result}{end}"] for end in ("", "_low", "_high"))
    if middle is None:
        return None
    alike = not ranges or text(low) == text(high)
    return text(middle) if alike else f"{text(middle)} ({text(low)} – {text(high)})"


def check_parquet() -> None:
    """Raise `BadInput` if Parquet files cannot be written because a package is not installed."""
    check_installed("Parquet files need", "pandas", "pyarrow")


def _differs(name: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a setting differs between runs. Servers count if they differ between runs of one strategy: strategies with
    and without servers differ by the strategy.
    """
    values: dict[Any, set[str]] = {}
    for row in rows:
        values.setdefault(row["strategy"] if name == "servers" else None, set()).add(json.dumps(row[name]))
    return any(len(found) > 1 for found in values.values())


def sweep(
    problem: Problem | str | Sequence[Problem | str],
    strategies: Strategy | str | Sequence[Strategy | str],
    clusters: Cluster | Sequence[Cluster],
    budgets: Budget | Sequence[Budget] | None = None,
    seeds: int | Iterable[int] = 5,
    client: Client | str | None = None,
    *,
    path: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    on_result: Callable[[int, int, Mapping[str, Any]], None] | None = None,
) -> Sweep:
    """Execute every combination of problems, strategies, clusters, budgets and seeds, and return the results.

    A run that fails does not end the sweep: its row has the message of the error. Ctrl-C ends the sweep; the results that
    have been written to `path` remain. Processes are started for simulated runs only if these take more than about a second.

    Parameters
    ----------
    problem : Problem, str, or sequence of them
        The problems, or their names.
    strategies : Strategy, str, or sequence of them
        The strategies, or their names.
    clusters : Cluster or sequence of Cluster
        Clusters of both engines. Simulated runs are executed in parallel, runs on processes one after the other.
    budgets : Budget or sequence of Budget, optional
        The budgets. None: the default budget of the problem.
    seeds : int or iterable of int, default 5
        The number of seeds, from 1 to 10,000, counted from the seed of the problem; or the seeds themselves.
    client : distributed.Client or str, optional
        The Dask cluster that executes simulated runs, or the address of its scheduler. None: the cores of this machine.
    path : str or path-like, optional
        A file to which every result is written as soon as its run has ended. Runs whose results it contains are not repeated,
        except those that have failed. Only one sweep at a time can write to a file.
    progress : bool, optional
        Whether to show a progress bar if this takes longer than half a second. By default it is shown in a terminal (on
        standard error) and in a notebook that a person uses, as by `Run.wait`.
    on_result : callable, optional
        Called after every run with the number of finished runs, the number of all runs, and the row of the run.

    Returns
    -------
    Sweep
        One row per run.

    Raises
    ------
    BadInput
        If an argument is not allowed, a combination does not fit together or occurs twice, or `path` is not a file of a sweep,
        was written by another version of labkit, or is being written by another sweep: then nothing was started. Also if `path`
        cannot be written to any more; the results before remain in it.
    ClusterError
        If the processes for simulated runs cannot be started or reached, or are all lost.

    Examples
    --------
    >>> problem = lk.Problem("moons", hidden=(8,))
    >>> cluster = lk.SimulatedCluster(workers=4, compute=lk.distributions.Exponential(0.01))
    >>> lk.sweep(problem, ["sync-ps", "async-ps"], cluster, lk.Budget(updates=100), seeds=[0])
    strategy  runs  gradients/s  staleness  accuracy  time to accuracy (s)
    SyncPS       1        224.8       0.00     86.0%  –
    AsyncPS      1        467.3       2.89     85.5%  –
    """
    parts = (
        as_several("problems", problem, as_problem), as_several("strategies", strategies, as_strategy),
        as_several("clusters", clusters, as_cluster), as_several("budgets", Budget() if budgets is None else budgets, as_budget),
    )  # fmt: skip
    settings = [Setting(*each) for each in itertools.product(*parts)]
    return execute(settings, seeds, client, path=path, progress=progress, on_result=on_result)


def execute(
    settings: Sequence[Setting], seeds: int | Iterable[int] = 5, client: Any = None, *,
    path: str | os.PathLike[str] | None = None, progress: bool | None = None, name: str = "sweep",
    on_result: Callable[[int, int, Mapping[str, Any]], None] | None = None,
) -> Sweep:  # fmt: skip
    """Execute these settings with every seed, and return the results; see `sweep`. The settings need not be a complete grid.
    `name`: what the progress bar calls it.
    """
    bar = bar_for(check_progress(progress))
    if not (on_result is None or callable(on_result)):
        raise BadInput(
            f"on_result={shown(on_result)}: give a function of the numbers of finished and of all runs, and the row."
        )
    cells = _cells(settings, seeds)
    store = _Store(path) if path is not None else None
    rows = _finished(cells, store)
    with contextlib.ExitStack() as stack:
        write = None
        if store is not None and len(rows) < len(cells):
            write = stack.enter_context(store.appending())
            rows = _finished(cells, store)  # another sweep may have written until now
        shown_progress = stack.enter_context(TaskProgress(name, "run", len(cells), len(rows), bar=bar))
        try:
            for cell, row in _execute([cell for cell in cells if cell.key not in rows], client, shown_progress.draw):
                rows[cell.key] = row
                if write is not None:
                    write(cell.key, row)
                shown_progress.finish(failed=row["error"] is not None)
                if on_result is not None:
                    on_result(len(rows), len(cells), row)
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(_interrupted(len(rows), len(cells), path))
            raise
    return Sweep._of([rows[cell.key] for cell in cells])


def _finished(cells: Sequence[SweepCell], store: _Store | None) -> dict[str, dict[str, Any]]:
    """Return {key: row} of the runs that need not be executed."""
    found = store.read() if store is not None else {}
    rows = {}
    for cell in cells:
        row = found.get(cell.key)
        if row is not None and row["error"] is None:
            rows[cell.key] = dict(cell.columns) | {name: row[name] for name in RESULTS}
    return rows


def _interrupted(done: int, total: int, path: Any) -> str:
    """Return what an interrupted sweep tells its user."""
    some = f"{done:,} of {count_text(total, 'run')}"
    if path is None:
        return (
            f"{some} had ended; their results are lost. With a file (path=, or --out) it would continue where it was."
        )
    return f"{some} are in {os.fspath(path)}; the same sweep continues with the others."


# the grid -------------------------------------------------------------------------------------------------------------


def _seeds(given: Any, first: int) -> list[int]:
    """Return the seeds: `given` itself, or as many as it says, counted from `first`."""
    if isinstance(given, int) and not isinstance(given, bool):
        if not 1 <= given <= MAX_SEEDS:
            raise BadInput(f"seeds={shown(given)} is not allowed; give 1 to {MAX_SEEDS:,} seeds, or a list of seeds.")
        return list(range(first, first + given))
    try:
        seeds = list(given)
    except TypeError:
        raise BadInput(f"seeds={shown(given)} is not allowed; give a number of seeds, or a list of seeds.") from None
    if not seeds or len(seeds) > MAX_SEEDS:
        raise BadInput(f"seeds: {len(seeds):,} seeds; give 1 to {MAX_SEEDS:,}.")
    return seeds


def _cells(settings: Sequence[Setting], seeds: Any) -> list[SweepCell]:
    """Return the runs of these settings. Raises `BadInput` if the parts of a setting do not fit together or occur twice."""
    differing = {
        part: _differing([getattr(each, part) for each in settings]) for part in ("strategy", "budget", "problem")
    }
    differing["cluster"] = _differing([each.cluster.spec for each in settings])
    cells: dict[str, SweepCell] = {}
    named: list[dict[str, Any]] = []  # the columns of the settings so far
    for setting in settings:
        problem, strategy, cluster, budget = setting.problem, setting.strategy, setting.cluster, setting.budget
        plan = make_plan(problem, strategy, cluster.spec, budget)
        spec = RunSpec(problem, strategy, cluster.spec, budget)
        servers = sum(role.kind == "server" for role in plan.layout.roles)
        columns: dict[str, Any] = {
            "data": problem.name, "strategy": strategy.name, "engine": cluster.engine, "workers": cluster.spec.workers,
            "servers": servers,
        } | _varied_options(spec, differing)  # fmt: skip
        alike = sum(columns == other for other in named)
        named.append(columns.copy())
        if alike:  # they differ only by code or data, which have no text
            columns["strategy"] = f"{strategy.name} ({alike + 1})"
        for seed in _seeds(seeds, problem.seed):
            seeded = replace(problem, seed=seed)
            key = _key(replace(spec, problem=seeded), cluster)
            if key in cells:
                raise BadInput(f"The sweep contains {strategy.name} with the same settings and seed {seed} twice.")
            cells[key] = SweepCell(replace(setting, problem=seeded), columns | {"seed": seed}, key)
    return list(cells.values())


def _differing(values: Sequence[Any]) -> set[str]:
    """Return the names of the options whose values differ between objects of the same class."""
    seen: dict[tuple[type, str], list[Any]] = {}
    for value in values:
        for name in options_of(value):
            seen.setdefault((type(value), name), []).append(getattr(value, name))
    return {name for (_, name), found in seen.items() if any(each != found[0] for each in found[1:])}


def _varied_options(spec: RunSpec, differing: Mapping[str, set[str]]) -> dict[str, Any]:
    """Return the columns of the options that differ within the grid. An option that the run does not have is left out."""
    found: dict[str, Any] = {}
    for part, names in differing.items():
        owner = getattr(spec, part)
        for name, option in options_of(owner).items():
            if name not in names or name in ALWAYS:
                continue
            value = getattr(owner, name)
            # as the budget's seconds, which are also a result
            column = name if name not in (*RESULTS, *found) else f"{part}_{name}"
            try:
                found[column] = (
                    value if isinstance(value, bool | int | float | str | None) else write_option(option, value)
                )
            except BadInput:  # a user-defined object has no text
                found[column] = shown(value)
    return found


def _key(spec: RunSpec, cluster: Cluster) -> str:
    """Return the identity of a run, as hexadecimal digits."""
    plain = {"run": spec.to_dict(), "cluster": type(cluster).__name__}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:24]


# executing ------------------------------------------------------------------------------------------------------------


def _execute(
    cells: list[SweepCell], client: Any, tick: Callable[[], None]
) -> Iterator[tuple[SweepCell, dict[str, Any]]]:
    """Execute the runs and yield (cell, row) as they end: first the simulated runs, then those on processes.

    `tick` is called repeatedly while runs are executed in other processes.
    """
    began = time.monotonic()
    simulated = [cell for cell in cells if cell.setting.cluster.virtual_time]
    while simulated and client is None and (time.monotonic() - began < ALONE_S or _processes(len(simulated)) == 1):
        cell = simulated.pop(0)
        yield cell, _row(cell)
    if simulated:
        from ..engines.dask.cluster.tasks import TaskPool

        with TaskPool(client, _processes(len(simulated))) as pool:
            for i, result in pool.call(_row, [(cell,) for cell in simulated], tick):
                lost = isinstance(result, LabkitError)
                yield simulated[i], _failed(simulated[i], str(result)) if lost else result
    for cell in cells:
        if not cell.setting.cluster.virtual_time:
            yield cell, _row(cell)


def _processes(runs: int) -> int:
    """Return the number of local processes for so many simulated runs: one per core, if they fit into memory."""
    cores = min(math.ceil(usable_cpus()), os.cpu_count() or 1, MAX_PROCESSES)
    return max(1, min(cores, process_capacity(free_memory()), runs))


def _failed(cell: SweepCell, error: str) -> dict[str, Any]:
    """Return the row of a run that has no results."""
    empty = dict.fromkeys(RESULTS) | {"target_accuracy": _target(cell.setting), "error": error}
    return dict(cell.columns) | empty


def _target(setting: Setting) -> float | None:
    return setting.budget.settled(setting.problem).accuracy


def _row(cell: SweepCell) -> dict[str, Any]:
    """Execute one run; return its settings and results."""
    setting, run, error = cell.setting, None, None
    try:
        run = train(setting.problem, setting.strategy, setting.cluster, setting.budget, checkpoint=False)
        run.wait(progress=False)
    except LabkitError as failure:
        error = str(failure)
    results = _failed(cell, "")
    if run is not None:
        summary = run.summary()
        stale = summary["staleness"]
        results |= {name: summary[name] for name in RESULTS if name in summary.values and name != "staleness"}
        sent = sum(count for kinds in summary["bytes_sent"].values() for count in kinds.values())
        results |= {
            "staleness": stale["mean"], "staleness_p95": stale["p95"], "ledger_closes": summary["ledger"]["closes"],
            "bytes_sent": sent, "bytes_per_gradient": sent / summary["gradients"] if summary["gradients"] else None,
        }  # fmt: skip
    return results | {"error": error}


# the file -------------------------------------------------------------------------------------------------------------


class _Store:
    """The file of a sweep: a first line that names the format, then one line per finished run."""

    def __init__(self, path: Any):
        self.path = as_path("path", path)
        self._header = {"labkit_sweep": FORMAT, "labkit": importlib.metadata.version("labkit-distributed")}

    def read(self) -> dict[str, dict[str, Any]]:
        """Return {key: row} of the finished runs; empty if there is no file. An incomplete last line is ignored."""
        try:
            lines = Path(self.path).read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{shown(self.path)} cannot be read: {reason(error)}.") from None
        if lines == [""]:
            return {}
        header: Any = from_json(lines[0], {"labkit_sweep": int, "labkit": str}, shown(self.path), "a file of a sweep")
        check_format(shown(self.path), header["labkit_sweep"], FORMAT)
        if header != self._header:
            raise BadInput(
                f"{shown(self.path)} was written by labkit {header.get('labkit')}, and this is {self._header['labkit']}: results "
                "may differ, so they are not mixed; give another name."
            )
        found = {}
        for number, line in enumerate(lines[1:-1], 2):
            entry: Any = from_json(line, ENTRY, f"{shown(self.path)}, line {number},", "the result of a run")
            found[entry["key"]] = entry["row"]
        return found

    @contextlib.contextmanager
    def appending(self) -> Iterator[Callable[[str, Mapping[str, Any]], None]]:
        """Open the file, and return a function that appends the row of a run. An incomplete last line is removed.

        Raises `BadInput` if the file cannot be written, or if another sweep has opened it. The function raises the same.
        """
        with writing(self.path):
            file = open(self.path, "a+b", buffering=0)  # noqa: SIM115
        with file:
            if lock_open_file(file.fileno()) is False:
                raise BadInput(
                    f"{shown(self.path)} is being written by another sweep; wait for it, or give another name."
                )
            with writing(self.path):
                file.seek(0)
                end = file.read().rfind(b"\n") + 1
                file.truncate(end)
                if not end:
                    _append(file, self._header)

            def write(key: str, row: Mapping[str, Any]) -> None:
                with writing(self.path):
                    _append(file, {"key": key, "row": row})

            yield write


def _append(file: Any, line: Mapping[str, Any]) -> None:
    """Append a line with one system call if the system accepts it as a whole. Raises `OSError` if the disk is full."""
    rest = memoryview(json.dumps(line).encode() + b"\n")
    while rest:
        rest = rest[file.write(rest) :]
