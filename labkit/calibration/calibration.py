"""`calibrate`: probes on a cluster, and the costs that explain them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engines.base import Cluster
from ..engines.costs import Costs, WorkCost
from ..engines.distributions import Deterministic, Distribution, Measured
from ..engines.machine_limits import usable_cpus
from ..engines.simulated import SimulatedCluster
from ..errors import BadInput, shown
from ..formatting import bytes_text, count_text, duration
from ..options import check_number
from ..paths import as_path, reason
from ..problem import Problem
from ..table import Table
from .fits import fit_linear, fit_work, quantiles
from .probes import Cycle, Evaluations, median_cycle, probe_cycle, probe_evaluations, variants

if TYPE_CHECKING:
    import matplotlib.figure

__all__ = ["Calibration", "calibrate"]

FORMAT = 1
ROUNDS = 3  # repetitions of each probe, in turns; medians are taken
PACES = (0.002, 0.005, 0.02)  # seconds; a server waits about as long for the next push
POLLING_S = 0.001  # how long a process polls before it sleeps, on processes
WIDE = 0.2  # spread between repetitions, relative to the median, above which a calibration is doubtful


@dataclass(frozen=True)
class Calibration:
    """The measured costs of a cluster's processes.

    Parameters
    ----------
    costs : Costs
        The costs of one host.
    problem : str
        The problem with which they were measured.
    size : tuple of int
        Parameters, samples of a batch, and bytes of a gradient, of this problem.
    evaluated : int
        The held-out samples of this problem; 0 if evaluations were not measured.
    parameters, samples : tuple of int
        The smallest and largest number of parameters, and samples of a batch, that were measured.
    repeatability : dict
        {quantity: half the range of the repetitions, relative to their median}.
    cycles : int
        The number of gradients that were measured.
    doubts : tuple of str
        What could not be measured, and what was not repeatable.

    See Also
    --------
    calibrate : Measures a cluster.
    predict : Predicts runs.

    Examples
    --------
    A simulated cluster with known costs, instead of processes:

    >>> costs = lk.Costs(lk.WorkCost(1e-3), send=lk.Linear(2e-5), receive=lk.Linear(3e-5), cores=2)
    >>> cluster = lk.SimulatedCluster(workers=1, servers=1, compute=None, costs=costs)
    >>> calibration = lk.calibrate(cluster, "moons", seconds=1)
    >>> calibration.cluster(workers=64).workers
    64
    """

    costs: Costs
    problem: str
    size: tuple[int, int, int]
    evaluated: int
    parameters: tuple[int, int]
    samples: tuple[int, int]
    repeatability: Mapping[str, float] = field(default_factory=dict)
    cycles: int = 0
    doubts: tuple[str, ...] = ()

    def cluster(
        self, workers: int = 4, servers: int | None = None, *, pace: Distribution | float | str | None = None,
        hosts: int | None = None, **options: Any,
    ) -> SimulatedCluster:  # fmt: skip
        """Return a simulated cluster with these costs.

        Parameters
        ----------
        workers : int, default 4
            The number of workers.
        servers : int, optional
            The number of servers. None: what the strategy needs.
        pace : Distribution or float, optional
            The pace of gradients. None: full speed.
        hosts : int, optional
            The number of hosts, each with the cores of the measured one, on which the roles are placed in turn. None: as many as
            were measured.
        **options : object
            Further options of `SimulatedCluster`, as `slow={"worker-1": 3}`, or `latency` and `bandwidth` between hosts.

        Returns
        -------
        SimulatedCluster
            The cluster.
        """
        costs = self.costs if hosts is None else replace(self.costs, hosts=hosts)
        return SimulatedCluster(workers=workers, servers=servers, compute=pace, costs=costs, **options)

    def doubts_about(self, problem: Problem) -> list[str]:
        """Return the reasons why predictions for a problem are doubtful: it is outside of what was measured.

        Parameters
        ----------
        problem : Problem
            The problem.

        Returns
        -------
        list of str
            The reasons; empty if the problem is within what was measured.
        """
        found = []
        size, batch = problem.objective().size, problem.batch_size
        for what, value, (low, high) in (("parameters", size, self.parameters), ("samples in a batch", batch, self.samples)):
            if not low <= value <= high:
                found.append(f"{value:,} {what}; measured were {low:,} to {high:,}")
        return found

    # display ----------------------------------------------------------------------------------------------------------

    def table(self) -> Table:
        """Return the costs of the calibrated problem.

        Returns
        -------
        Table
            One row per operation.
        """
        c, (parameters, samples, size) = self.costs, self.size

        def row(name: str, what: str, seconds: float) -> list[str]:
            half = self.repeatability.get(name)
            return [name, what, duration(1e9 * seconds), "" if half is None else f"± {half:.0%}"]

        rows = [
            row("gradient", f"{samples:,} samples", c.gradient(parameters, samples)),
            row("send", bytes_text(size), c.send(size)),
            row("receive", bytes_text(size), c.receive(size)),
            row("update", bytes_text(size), c.update(size)),
        ]
        if self.evaluated:
            rows.append(row("evaluation", f"{self.evaluated:,} samples", c.evaluation(parameters, self.evaluated)))
        rows += [row("wake up", f"after {duration(1e9 * waited)}", delay) for waited, delay in c.wake]
        where = f"{count_text(c.hosts, 'host')} with {count_text(c.cores, 'core')}"
        title = f"{self.problem}, {parameters:,} parameters, on {where}"
        return Table(["operation", "of", "time", "repeatability"], rows, title)

    def figure(self) -> matplotlib.figure.Figure:
        """Draw the measured distribution of gradients, and the costs of messages by size.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.
        """
        from ..views.calibration import calibration_figure

        spread = self.costs.spread
        factors = spread.durations if isinstance(spread, Measured) else (1.0,)
        return calibration_figure(factors, self.costs.send, self.costs.receive, self.costs.update)

    def __str__(self) -> str:
        return "\n".join([str(self.table()), *(f"Doubtful: {doubt}." for doubt in self.doubts)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        import html

        return self.table()._repr_html_() + "".join(f"<p>Doubtful: {html.escape(doubt)}.</p>" for doubt in self.doubts)

    # files ------------------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the calibration as values for JSON; `from_dict` reads it.

        Returns
        -------
        dict
            The values.
        """
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "costs"}
        return {"labkit_calibration": FORMAT, "costs": self.costs.to_dict()} | plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Calibration:
        """Return the calibration that `to_dict` has written.

        Parameters
        ----------
        plain : dict
            The values.

        Returns
        -------
        Calibration
            The calibration.

        Raises
        ------
        BadInput
            If the values are not a calibration.
        """
        if not isinstance(plain, Mapping) or plain.get("labkit_calibration") != FORMAT:
            raise BadInput(f"{shown(plain)} is not a calibration of this version of labkit.")
        try:
            return cls(
                Costs.from_dict(plain["costs"]), str(plain["problem"]), _integers(plain["size"], 3), int(plain["evaluated"]),
                _integers(plain["parameters"], 2), _integers(plain["samples"], 2),
                {str(k): float(v) for k, v in plain["repeatability"].items()}, int(plain["cycles"]),
                tuple(map(str, plain["doubts"])),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadInput(f"This calibration cannot be read: {type(error).__name__}: {error}.") from None

    def save(self, path: str | Path) -> Path:
        """Write the calibration as JSON.

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
        name = as_path("path", path)
        try:
            Path(name).write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise BadInput(f"{shown(name)} cannot be written: {reason(error)}.") from None
        return Path(name)

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Return the calibration in a file.

        Parameters
        ----------
        path : str or path-like
            The file.

        Returns
        -------
        Calibration
            The calibration.

        Raises
        ------
        BadInput
            If the file does not contain a calibration.
        """
        name = as_path("path", path)
        try:
            return cls.from_dict(json.loads(Path(name).read_text(encoding="utf-8")))
        except OSError as error:
            raise BadInput(f"{shown(name)} cannot be read: {reason(error)}.") from None
        except ValueError as error:
            if isinstance(error, BadInput):
                raise
            raise BadInput(f"{shown(name)} is not a calibration: it is not JSON.") from None


def calibrate(
    cluster: Cluster, problem: Problem | str, seconds: float = 10.0, *, on_progress: Callable[[int, int], None] | None = None
) -> Calibration:
    """Measure the costs of a cluster's processes, with short runs of one worker and one server.

    Parameters
    ----------
    cluster : Cluster
        The cluster. Nothing else should run on it.
    problem : Problem or str
        The problem. Its network and batch, and smaller and larger ones, are measured.
    seconds : float, default 10
        The time of all probes together, from 1 to 3600. Starting the probes takes some seconds more.
    on_progress : callable, optional
        Called after every probe with the number of finished probes, and of all probes.

    Returns
    -------
    Calibration
        The costs, with what could not be measured (`doubts`).

    Raises
    ------
    BadInput
        If an argument is not allowed.
    ClusterError
        If the cluster cannot be started or reached, or is too slow.

    Examples
    --------
    A simulated cluster with known costs, instead of processes:

    >>> costs = lk.Costs(lk.WorkCost(1e-3), send=lk.Linear(2e-5), receive=lk.Linear(3e-5), cores=2)
    >>> cluster = lk.SimulatedCluster(workers=1, servers=1, compute=None, costs=costs)
    >>> calibration = lk.calibrate(cluster, "moons", seconds=1)
    >>> print(f"{1000 * calibration.costs.gradient(1000, 32):.2f} ms")
    1.00 ms
    """
    problem = Problem(problem) if isinstance(problem, str) else problem
    if not isinstance(problem, Problem):
        raise BadInput(f"problem={shown(problem)}: give a lk.Problem or the name of a data set.")
    if not isinstance(cluster, Cluster):
        raise BadInput(f"cluster={shown(cluster)}: give lk.DaskCluster(workers=4), for example.")
    seconds = check_number("seconds", seconds, 1, 3600)
    problems = variants(problem)
    probes = ROUNDS * (len(problems) + len(PACES)) + 1
    each, done = seconds / probes, 0

    def count() -> None:
        nonlocal done
        done += 1
        if on_progress is not None:
            on_progress(done, probes)

    rounds: list[list[Cycle]] = []
    for _ in range(ROUNDS):
        found = []
        for one, pace in [*((p, None) for p in problems), *((problem, pace) for pace in PACES)]:
            found.append(probe_cycle(one, cluster, each, pace))
            count()
        rounds.append(found)
    evaluations = None if problem.timing_only else probe_evaluations(problem, cluster, each, PACES[-1])
    count()
    return _fitted(cluster, problem, len(problems), rounds, evaluations)


def _fitted(
    cluster: Cluster, problem: Problem, count: int, rounds: Sequence[Sequence[Cycle]], evaluations: Evaluations | None
) -> Calibration:
    """Return the calibration that explains the probes."""
    cycles = [median_cycle(same) for same in zip(*rounds)]
    fast, paced = cycles[:count], cycles[count:]
    gradient = fit_work([(c.parameters, c.samples, c.gradient) for c in fast])
    send, receive = (fit_linear([(c.size, value(c)) for c in fast]) for value in (lambda c: c.send, lambda c: c.rest))
    update = fit_linear([(c.size, c.update) for c in fast])
    messages = 2 * (send(fast[0].size) + receive(fast[0].size)) + update(fast[0].size)
    delays = [(c.pace or 0.0, max(0.0, c.total - (c.pace or 0.0) - messages)) for c in paced]
    spread: Distribution = Measured(quantiles(fast[0].durations)) if len(fast[0].durations) > 1 else Deterministic(1.0)
    evaluation = WorkCost()
    if evaluations is not None:
        evaluation = fit_work([(evaluations.parameters, evaluations.samples, evaluations.seconds)])
    costs = cluster.spec.costs
    cores = costs.cores if costs is not None else max(1, int(usable_cpus()))
    polling = costs.polling if costs is not None else POLLING_S
    made = Costs(gradient, spread, update, evaluation, send, receive, 0.0, polling, tuple(delays), cores)
    repeatability = {
        name: _half_range([value(one[0]) for one in rounds])
        for name, value in (
            ("gradient", lambda c: c.gradient), ("send", lambda c: c.send), ("receive", lambda c: c.rest),
            ("update", lambda c: c.update),
        )
    }  # fmt: skip
    repeatability["cycle"] = _half_range([one[0].total for one in rounds])
    doubts = [
        f"the {name} differed by ± {half:.0%} between repetitions" for name, half in repeatability.items()
        if half > WIDE and name in ("gradient", "cycle")
    ]  # fmt: skip
    if evaluations is None:
        doubts.append("evaluations were not measured")
    first = fast[0]
    return Calibration(
        made, problem.name, (first.parameters, first.samples, first.size), evaluations.samples if evaluations else 0,
        _range([c.parameters for c in fast]), _range([c.samples for c in fast]), repeatability,
        sum(c.cycles for c in cycles), tuple(doubts),
    )  # fmt: skip


def _half_range(values: Sequence[float]) -> float:
    """Return half the range relative to the median."""
    middle = statistics.median(values)
    return 0.0 if middle <= 0 else (max(values) - min(values)) / 2 / middle


def _range(values: Sequence[int]) -> tuple[int, int]:
    return min(values), max(values)


def _integers(value: Any, count: int) -> Any:
    """Return `value` as a tuple of integers. Raises `ValueError` if these are not `count`."""
    found = tuple(int(each) for each in value)
    if len(found) != count:
        raise ValueError(f"{count} integers are expected, not {len(found)}")
    return found
