"""`forecast`: simulate strategies on clusters of several sizes, with measured costs."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..engines.cluster_spec import slow_with
from ..engines.distributions import Distribution
from ..errors import BadInput, shown
from ..formatting import listed
from ..problem import Problem
from ..roles.budget import Budget
from ..strategies import Strategy
from ..table import Table
from .arguments import as_budget, as_problem, as_several, as_strategy
from .calibration.calibration import MEASURED, Calibration
from .sweeps import TEXTS, Setting, Sweep, execute, table_of_medians

if TYPE_CHECKING:
    import matplotlib.figure
    from distributed import Client

WIDE = 0.5  # range over the seeds, relative to the median, above which a forecast is doubtful
HEADINGS = ("gradients/s", "staleness", "bytes per gradient", "time to accuracy (s)")  # of `sweeps.TEXTS`


@dataclass(frozen=True, repr=False)
class Forecasts:
    """Forecast runs: throughput, staleness, bytes and time to accuracy.

    Parameters
    ----------
    sweep : Sweep
        The simulated runs, one row per run.
    doubts : tuple of str
        Why forecasts are doubtful, if they are.

    See Also
    --------
    forecast : Makes forecasts.

    Examples
    --------
    >>> costs = lk.Costs(lk.WorkCost(1e-3), send=lk.Linear(2e-5), receive=lk.Linear(3e-5), cores=2)
    >>> cluster = lk.SimulatedCluster(workers=1, servers=1, compute=None, costs=costs)
    >>> calibration = lk.calibrate(cluster, "moons", seconds=1)
    >>> made = lk.forecast("moons", "async-ps", calibration, workers=2, budget=lk.Budget(updates=20), seeds=1)
    >>> len(made.sweep)
    1
    """

    sweep: Sweep
    doubts: tuple[str, ...] = ()

    def table(self) -> Table:
        """Return the medians over the seeds, each with the range over the seeds.

        Returns
        -------
        Table
            One row per setting. A value without a range is the same for all seeds.
        """
        seeds = len({row["seed"] for row in self.sweep.rows})
        over = f"median (smallest – largest) of {seeds:,} seeds" if seeds > 1 else "one seed"
        return table_of_medians(self.sweep, HEADINGS, ranges=True, title=f"Forecast: {over}")

    def figure(self) -> matplotlib.figure.Figure:
        """Draw throughput, staleness, bytes per gradient and time to accuracy, with bands over the seeds.

        The doubts are written below.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.
        """
        return self.sweep.plot.forecast(self.doubts)

    def __str__(self) -> str:
        return "\n".join([str(self.table()), *(f"Doubtful: {doubt}." for doubt in self.doubts)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        import html

        return self.table()._repr_html_() + "".join(f"<p>Doubtful: {html.escape(doubt)}.</p>" for doubt in self.doubts)


def forecast(
    problem: Problem | str, strategies: Strategy | str | Sequence[Strategy | str], calibration: Calibration,
    workers: int | Iterable[int] = (2, 4, 8, 16, 32, 64), *, servers: int | None = None,
    pace: Distribution | float | str | None = MEASURED,
    hosts: int | None = None, budget: Budget | None = None, seeds: int | Iterable[int] = 3, client: Client | str | None = None,
    path: str | os.PathLike[str] | None = None, progress: bool | None = None,
    on_result: Callable[[int, int, Mapping[str, Any]], None] | None = None, **options: Any,
) -> Forecasts:  # fmt: skip
    """Forecast runs of strategies on clusters of several sizes, by simulating them with measured costs.

    Parameters
    ----------
    problem : Problem or str
        The problem.
    strategies : Strategy, str, or sequence of them
        The strategies, or their names.
    calibration : Calibration
        The measured costs.
    workers : int or iterable of int, default (2, 4, 8, 16, 32, 64)
        The numbers of workers. A strategy that cannot run with one of them is an error.
    servers : int, optional
        The number of servers, for strategies that use servers. None: what the strategy needs.
    pace : Distribution or float, default "measured"
        The pace of gradients. "measured": that of the calibrated cluster. None: full speed.
    hosts : int, optional
        The number of hosts. None: as many as were measured. For more, give the `latency` (seconds) and `bandwidth` (bytes per
        second) between hosts, which are measured with several hosts only.
    budget : Budget, optional
        The budget. None: the default budget of the problem, with an accuracy.
    seeds : int or iterable of int, default 3
        The seeds of the simulated runs.
    client : distributed.Client or str, optional
        The Dask cluster that executes the simulated runs. None: the cores of this machine.
    path : str or path-like, optional
        A file that keeps the simulated runs, from which an interrupted forecast continues, as of `sweep`.
    progress : bool, optional
        Whether to show a progress bar, as by `sweep`.
    on_result : callable, optional
        Called after every simulated run, as by `sweep`.
    **options : object
        Further options of the simulated clusters, as `slow={"worker-1": 3}`, which holds for all sizes that have this worker.

    Returns
    -------
    Forecasts
        Throughput, staleness, bytes and time to accuracy, with ranges over the seeds; and the reasons why they are doubtful, if
        they are: the problem or the cluster is outside of what was calibrated, the calibration itself was doubtful, a range over
        the seeds is wide, or runs did not reach the accuracy.

    Raises
    ------
    BadInput
        If an argument is not allowed.

    Examples
    --------
    With two cores, eight workers are hardly faster than two:

    >>> costs = lk.Costs(lk.WorkCost(1e-3), send=lk.Linear(2e-5), receive=lk.Linear(3e-5), cores=2)
    >>> cluster = lk.SimulatedCluster(workers=1, servers=1, compute=None, costs=costs)
    >>> calibration = lk.calibrate(cluster, "moons", seconds=1)
    >>> made = lk.forecast("moons", "async-ps", calibration, workers=(2, 8), budget=lk.Budget(updates=50), seeds=1)
    >>> two, eight = made.sweep.values("gradients_per_second")
    >>> eight < 1.2 * two
    True
    """
    problem = as_problem("problem", problem)
    if not isinstance(calibration, Calibration):
        raise BadInput(
            f"calibration={shown(calibration)}: give the result of lk.calibrate, or lk.Calibration.load(path)."
        )
    budget = as_budget("budget", Budget() if budget is None else budget)
    made = as_several("strategies", strategies, as_strategy)
    if servers is not None and not any(strategy.uses_servers for strategy in made):
        raise BadInput(f"servers={shown(servers)}: {made[0].name} uses no servers; leave it out.")
    settings = []
    sizes = _sizes(workers)
    for strategy, n in itertools.product(made, sizes):
        used = servers if strategy.uses_servers else None
        present = options
        if n < sizes[-1] and isinstance(slow := options.get("slow"), Mapping):
            present = options | {"slow": slow_with(slow, n)}
        cluster = calibration.cluster(n, used, pace=pace, hosts=hosts, **present)
        settings.append(Setting(problem, strategy, cluster, budget))
    return forecast_runs(settings, calibration, seeds, client, path=path, progress=progress, on_result=on_result)


def forecast_runs(
    settings: Sequence[Setting], calibration: Calibration, seeds: int | Iterable[int], client: Client | str | None = None,
    **options: Any,
) -> Forecasts:  # fmt: skip
    """Simulate these settings of one problem, whose clusters have the costs of `calibration`. `options`: of `execute`."""
    found = execute(settings, seeds, client, name="forecast", **options)
    runs = [(setting.strategy, setting.cluster.spec) for setting in settings]
    doubts = calibration.doubts_about(settings[0].problem, runs)
    return Forecasts(found, tuple(dict.fromkeys([*doubts, *_doubts_about_results(found)])))


def _sizes(workers: Any) -> list[int]:
    """Return the numbers of workers, ascending and without repetition. Each is checked where its cluster is made."""
    given = [workers] if isinstance(workers, int) else workers
    try:
        sizes = sorted(set(given))
    except TypeError:
        raise BadInput(f"workers={shown(workers)}: give a number of workers, or several, as (2, 4, 8).") from None
    if not sizes:
        raise BadInput(f"workers={shown(workers)}: give at least one number of workers.")
    return sizes


# doubts ---------------------------------------------------------------------------------------------------------------


def _doubts_about_results(found: Sweep) -> list[str]:
    """Return which settings have a wide range over the seeds, failed, or did not reach the accuracy."""
    doubts = []
    results = {heading: TEXTS[heading][0] for heading in HEADINGS}
    lines = found.medians(*results.values())
    if all(line["runs"] == 1 for line in lines):
        doubts.append("one seed has no range; give more seeds")
    for name, result in results.items():
        wide = [line for line in lines if _is_wide(line, result)]
        if wide:
            what = name.removesuffix(" (s)").replace("gradients/s", "throughput")
            doubts.append(f"the {what} differs between seeds by more than {WIDE:.0%}: {_settings(wide, found.varied)}")
    short = [line for line in lines if line["reached"] < line["targeted"]]
    if short:
        doubts.append(f"runs did not reach the accuracy within the budget: {_settings(short, found.varied)}")
    failed = [line for line in lines if line["failed"]]
    if failed:
        errors = "; ".join(dict.fromkeys(row["error"] for row in found.rows if row["error"] is not None))
        doubts.append(f"runs failed: {_settings(failed, found.varied)} ({errors.rstrip('.')})")
    return doubts


def _is_wide(line: Mapping[str, Any], result: str) -> bool:
    middle, low, high = (line[f"{result}{end}"] for end in ("", "_low", "_high"))
    return bool(middle) and math.isfinite(high) and (high - low) / middle > WIDE


def _settings(lines: Sequence[Mapping[str, Any]], varied: Sequence[str]) -> str:
    """Return settings as text, grouped by all but the number of workers: "SyncPS (4 and 8 workers), AsyncPS (8 workers)"."""
    groups: dict[str, list[str]] = {}
    for line in lines:
        rest = [
            f"{name}={line[name]}" for name in varied if name not in ("strategy", "workers") and line[name] is not None
        ]
        name = ", ".join([*([line["strategy"]] if "strategy" in varied else []), *rest])
        groups.setdefault(name, []).extend([f"{line['workers']:,}"] if "workers" in varied else [])
    texts = []
    for name, sizes in groups.items():
        workers = f"{listed(sizes)} workers" if sizes else ""
        texts.append(f"{name} ({workers})" if name and workers else name or workers or "this setting")
    return ", ".join(texts)
