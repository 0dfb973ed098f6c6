"""`predict`: simulate strategies on clusters of several sizes, with measured costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..engines.distributions import Distribution
from ..errors import BadInput, shown
from ..problem import Problem
from ..roles.budget import Budget
from ..strategies import Strategy
from ..sweeps import Sweep, sweep
from ..table import Table
from .calibration import Calibration

if TYPE_CHECKING:
    import matplotlib.figure
    from distributed import Client

__all__ = ["Predictions", "predict"]

WIDE = 0.5  # range over the seeds, relative to the median, above which a prediction is doubtful


@dataclass(frozen=True, repr=False)
class Predictions:
    """Predicted runs: throughput, staleness, bytes and time to accuracy.

    Parameters
    ----------
    sweep : Sweep
        The simulated runs, one row per run.
    doubts : tuple of str
        Why predictions are doubtful, if they are.

    See Also
    --------
    predict : Makes predictions.

    Examples
    --------
    >>> costs = lk.Costs(lk.WorkCost(1e-3), send=lk.Linear(2e-5), receive=lk.Linear(3e-5), cores=2)
    >>> cluster = lk.SimulatedCluster(workers=1, servers=1, compute=None, costs=costs)
    >>> calibration = lk.calibrate(cluster, "moons", seconds=1)
    >>> made = lk.predict("moons", "async-ps", calibration, workers=2, budget=lk.Budget(updates=20), seeds=1)
    >>> len(made.sweep)
    1
    """

    sweep: Sweep
    doubts: tuple[str, ...] = ()

    def table(self) -> Table:
        """Return the medians over the seeds, with the range of the throughput.

        Returns
        -------
        Table
            One row per setting.
        """
        rows = []
        for line in self.sweep.medians("gradients_per_second", "staleness", "bytes_per_gradient", "time_to_accuracy"):
            speed, low, high = (line[f"gradients_per_second{end}"] for end in ("", "_low", "_high"))
            reached = line["time_to_accuracy"]
            rows.append([
                *(line[name] for name in self.sweep.varied),
                None if speed is None else round(speed), None if speed is None else f"{low:,.0f} to {high:,.0f}",
                None if line["staleness"] is None else f"{line['staleness']:.2f}", line["bytes_per_gradient"],
                None if reached is None else f"{reached:.3g}",
            ])  # fmt: skip
        names = ["gradients/s", "range over seeds", "staleness", "bytes per gradient", "time to accuracy (s)"]
        return Table([*self.sweep.varied, *names], rows, "Predicted")

    def figure(self) -> matplotlib.figure.Figure:
        """Draw throughput, efficiency, staleness and the Pareto front.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.
        """
        return self.sweep.plot.overview()

    def __str__(self) -> str:
        return "\n".join([str(self.table()), *(f"Doubtful: {doubt}." for doubt in self.doubts)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        import html

        return self.table()._repr_html_() + "".join(f"<p>Doubtful: {html.escape(doubt)}.</p>" for doubt in self.doubts)


def predict(
    problem: Problem | str, strategies: Strategy | str | Sequence[Strategy | str], calibration: Calibration,
    workers: int | Iterable[int] = (2, 4, 8, 16, 32, 64), *, servers: int | None = None,
    pace: Distribution | float | str | None = None,
    hosts: int | None = None, budget: Budget | None = None, seeds: int | Iterable[int] = 3, client: Client | str | None = None,
    **options: Any,
) -> Predictions:  # fmt: skip
    """Predict runs of strategies on clusters of several sizes, by simulating them with measured costs.

    Parameters
    ----------
    problem : Problem or str
        The problem.
    strategies : Strategy, str, or sequence of them
        The strategies, or their names.
    calibration : Calibration
        The measured costs.
    workers : int or iterable of int, default (2, 4, 8, 16, 32, 64)
        The numbers of workers.
    servers : int, optional
        The number of servers. None: what the strategy needs.
    pace : Distribution or float, optional
        The pace of gradients. None: full speed.
    hosts : int, optional
        The number of hosts. None: as many as were measured.
    budget : Budget, optional
        The budget. None: the default budget of the problem, with an accuracy.
    seeds : int or iterable of int, default 3
        The seeds of the simulated runs.
    client : distributed.Client or str, optional
        The Dask cluster that executes the simulated runs. None: the cores of this machine.
    **options : object
        Further options of the simulated clusters, as `slow={"worker-1": 3}`.

    Returns
    -------
    Predictions
        Throughput, staleness, bytes and time to accuracy, with ranges over the seeds.

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
    >>> made = lk.predict("moons", "async-ps", calibration, workers=(2, 8), budget=lk.Budget(updates=50), seeds=1)
    >>> two, eight = made.sweep.values("gradients_per_second")
    >>> eight < 1.2 * two
    True
    """
    problem = Problem(problem) if isinstance(problem, str) else problem
    if not isinstance(calibration, Calibration):
        raise BadInput(f"calibration={shown(calibration)}: give the result of lk.calibrate, or lk.Calibration.load(path).")
    counts = [workers] if isinstance(workers, int) else list(workers)
    clusters = [calibration.cluster(n, servers, pace=pace, hosts=hosts, **options) for n in counts]
    found = sweep(problem, strategies, clusters, budget, seeds, client)
    return Predictions(found, (*calibration.doubts_about(problem), *_wide(found)))


def _wide(found: Sweep) -> list[str]:
    """Return the settings whose throughput differs much between seeds."""
    doubts = []
    for line in found.medians("gradients_per_second"):
        middle, low, high = (line[f"gradients_per_second{end}"] for end in ("", "_low", "_high"))
        if middle and (high - low) / middle > WIDE:
            settings = ", ".join(f"{name}={line[name]}" for name in found.varied)
            doubts.append(f"the throughput of {settings or 'the runs'} differs between seeds from {low:,.0f} to {high:,.0f}")
    return doubts
