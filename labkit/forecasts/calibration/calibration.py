"""`calibrate`: probes on a cluster, and the costs that explain them."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...engines.base import Cluster
from ...engines.cluster_spec import ClusterSpec, slow_with
from ...engines.costs import MAX_S, Costs, WorkCost
from ...engines.distributions import Deterministic, Distribution, Measured, mean_seconds
from ...engines.simulated import SimulatedCluster
from ...errors import BadInput, shown
from ...files import write_text
from ...formats import Either, Form, Mismatch, Number, check, check_format
from ...formatting import bytes_text, call_text, count_text, listed, time_text
from ...nn.index_sets import Boxes
from ...options import check_number
from ...paths import as_path, reason, writing
from ...problem import Problem
from ...progress import TaskProgress, bar_for, check_progress
from ...serialization import from_dict as decoded
from ...serialization import to_dict as encoded
from ...strategies import AsyncPS, HalvingDoubling, Strategy
from ...table import Table
from ..arguments import as_cluster, as_problem
from ..steady_state import NEVER
from .fits import fit_linear, fit_work, quantiles, split_drift
from .hosts import Hosts
from .probes import Cycle, Evaluations, mean_cycle, probe_cycle, probe_evaluations, probe_sharing, variants
from .sharing import Sharing, fit_sharing

if TYPE_CHECKING:
    import matplotlib.figure

FORMAT = 4
COUNT = Number(0, 1 << 62, int)
MEASURED = "measured"  # as a pace: that of the calibrated cluster


FORM: Form = {
    "costs": Costs, "problem": str, "size": (COUNT, COUNT, COUNT), "evaluated": COUNT,
    "parameters": (COUNT, COUNT), "samples": (COUNT, COUNT), "latency": Number(0, MAX_S),
    "bandwidth": Number(1e-6, math.inf), "repeatability": {str: Number(0, 1e18)}, "doubts": [str],
    "pace": Either(None, Distribution), "server_time": Either(None, Distribution), "model": Either(None, str),
}  # fmt: skip
ROUNDS = 3  # repetitions of each probe, in turns; their means are taken
PACES = (0.002, 0.005, 0.02)  # seconds; a server waits about as long for the next push
POLLING_S = 0.001  # how long a process polls before it sleeps, on processes
DRIFT_S = 0.05  # seconds for which the speed of a core is taken as constant
SHARING = 2  # workers per core in the probe of shared cores
LONGER = 3  # how many times longer such a probe is than the others, because their rates vary more
MOST_CORES = 8  # of a host whose cores are shared in a probe; more would need too many processes
LARGEST = 5  # the number of the variant of the problem with the most parameters
# the variants of the problem, of different sizes, with which messages between hosts are measured
OTHER_SIZES = (0, 3, LARGEST)
MOST_BANDWIDTH = 1e11  # bytes per second; faster links are not limited
LEAST_LATENCY, MEMORY_BANDWIDTH = 1e-6, 20e9  # seconds; bytes per second
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
    latency, bandwidth : float
        Those of the links between hosts, in seconds and bytes per second; 0 and infinity if there is one host.
    repeatability : dict
        {quantity: half the range of the repetitions, relative to their median}.
    doubts : tuple of str
        What could not be measured, and what was not repeatable.
    pace, server_time : Distribution, optional
        The pace of gradients, and of updates of servers, of the cluster. None: full speed. The costs are those of full speed.
    model : str, optional
        The model of your own whose gradients and evaluations were measured, with its options. Their time is that of this model
        alone, for batches of the measured sizes. None: networks of dense layers, of the measured sizes.

    See Also
    --------
    calibrate : Measures a cluster.
    forecast : Forecasts runs.

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
    latency: float = 0.0
    bandwidth: float = math.inf
    repeatability: Mapping[str, float] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    pace: Distribution | None = None
    server_time: Distribution | None = None
    model: str | None = None

    def cluster(
        self, workers: int = 4, servers: int | None = None, *, pace: Distribution | float | str | None = MEASURED,
        hosts: int | None = None, **options: Any,
    ) -> SimulatedCluster:  # fmt: skip
        """Return a simulated cluster with these costs.

        Parameters
        ----------
        workers : int, default 4
            The number of workers.
        servers : int, optional
            The number of servers. None: what the strategy needs.
        pace : Distribution or float, default "measured"
            The pace of gradients. "measured": that of the calibrated cluster. None: full speed.
        hosts : int, optional
            The number of hosts, each with the cores of the measured one, on which the roles are placed in turn. None: as many as
            were measured.
        **options : object
            Further options of `SimulatedCluster`, as `slow={"worker-1": 3}`. `server_time`, and `latency` and `bandwidth` between
            hosts, are those of the calibrated cluster by default.

        Returns
        -------
        SimulatedCluster
            The cluster.
        """
        for name in ("cores", "evaluation_time"):
            if name in options:
                raise BadInput(
                    f"{name}={shown(options[name])} has no effect with measured costs, which contain the cores of a host and the "
                    "time of an evaluation; use dataclasses.replace(calibration, costs=dataclasses.replace(calibration.costs, "
                    "cores=16)), for example."
                )
        costs = self.costs if hosts is None else replace(self.costs, hosts=hosts)
        pace = self.pace if isinstance(pace, str) and pace == MEASURED else pace
        # A forecast is one of the calibrated cluster, so its servers are as fast as there, unless the caller says otherwise.
        options = {"server_time": self.server_time} | options
        if costs.hosts > 1:
            options = {"latency": self.latency, "bandwidth": self.bandwidth} | options
        return SimulatedCluster(workers=workers, servers=servers, compute=pace, costs=costs, **options)

    def simulated(
        self, spec: ClusterSpec, workers: int | None = None, hosts: int | None = None
    ) -> SimulatedCluster:  # fmt: skip
        """Return the simulated cluster that stands for another cluster.

        Parameters
        ----------
        spec : ClusterSpec
            The cluster. Its paces, slow roles and replicas remain, and the links of a simulated cluster; those of processes are
            measured.
        workers : int, optional
            The number of workers. None: that of `spec`.
        hosts : int, optional
            The number of hosts. None: as many as were measured.

        Returns
        -------
        SimulatedCluster
            The cluster.
        """
        workers = spec.workers if workers is None else workers
        links = {"latency": spec.latency, "bandwidth": spec.bandwidth} if spec.virtual_time else {}
        return self.cluster(
            workers, spec.servers, pace=spec.compute, hosts=hosts, server_time=spec.server_time, replicas=spec.replicas,
            slow=slow_with(spec.slow, workers), **links,
        )  # fmt: skip

    def constants(self) -> dict[str, float]:
        """Return the measured times and rates of the problem as constants of the network model of `advise`.

        The time of a message, at both ends, becomes the latency and the bandwidth of links.

        Returns
        -------
        dict of str to float
            The arguments of `SimulatedCluster`: ``compute`` and ``server_time``, the times of a gradient and of an update, and
            ``latency``, at least 1e-6, in seconds; ``bandwidth`` in bytes per second, at most 20e9, about that of memory.

        Examples
        --------
        >>> costs = lk.Costs(lk.WorkCost(0.01), send=lk.Linear(2e-5, 4e-10), receive=lk.Linear(3e-5, 6e-10))
        >>> calibration = lk.Calibration(costs, "digits", (9610, 32, 38440), 0, (1, 10**6), (1, 100))
        >>> {name: float(f"{value:.2g}") for name, value in calibration.constants().items()}
        {'compute': 0.01, 'server_time': 0.0, 'latency': 5e-05, 'bandwidth': 1000000000.0}
        """
        c, (parameters, samples, size) = self.costs, self.size
        per_byte = max(c.send.per_byte + c.receive.per_byte + 1.0 / self.bandwidth, 1.0 / MEMORY_BANDWIDTH)
        latency = max(c.send.fixed + c.receive.fixed + c.latency + self.latency, LEAST_LATENCY)
        return {
            "compute": max(c.gradient(parameters, samples), mean_seconds(self.pace) or 0.0),
            "server_time": max(c.update(size), mean_seconds(self.server_time) or 0.0), "latency": latency,
            "bandwidth": 1.0 / per_byte,
        }  # fmt: skip

    def doubts_about(self, problem: Problem, runs: Iterable[tuple[Strategy, ClusterSpec]] = ()) -> list[str]:
        """Return the reasons why forecasts are doubtful.

        Something is outside of what was measured, or the calibration itself was doubtful.

        Parameters
        ----------
        problem : Problem
            The problem.
        runs : iterable of (Strategy, ClusterSpec), optional
            The strategies, each with the cluster on which it is forecast.

        Returns
        -------
        list of str
            The reasons; empty if everything was measured.
        """
        found = []
        size, runs = problem.objective().size, list(runs)
        layouts = [strategy.layout(problem, spec) for strategy, spec in runs]
        batches = {problem.of_worker(layout.shares).batch_size for layout in layouts} or {problem.batch_size}
        for what, value, (low, high) in (
            ("parameters", size, self.parameters),
            *(("samples in a batch", batch, self.samples) for batch in sorted(batches)),
        ):
            if not low <= value <= high:
                found.append(f"{value:,} {what}; measured were {low:,} to {high:,}")
        oversubscribed: set[tuple[int, int]] = set()  # (cores, workers)
        names: dict[str, None] = {}
        most = SHARING if "sharing" in self.repeatability else 1
        full_speed = not runs or any(spec.compute is None for _, spec in runs)
        for (strategy, spec), layout in zip(runs, layouts):
            costs = spec.costs or self.costs
            if costs.hosts > self.costs.hosts:
                have = count_text(self.costs.hosts, "host")
                found.append(f"{count_text(costs.hosts, 'host')} and the link between them; measured was {have}")
            if spec.workers > most * costs.cores * costs.hosts:
                oversubscribed.add((costs.cores * costs.hosts, spec.workers))
            if any(
                role.computes and role.part is not None and Boxes.of(role.part).size < size for role in layout.roles
            ):
                names[strategy.name] = None
        for cores in sorted({cores for cores, _ in oversubscribed}):
            sizes = listed([f"{workers:,}" for of, workers in sorted(oversubscribed) if of == cores])
            found.append(f"{sizes} workers on {count_text(cores, 'core')}; measured were at most {most} for each core")
        own = _model_text(problem)
        if full_speed and (own != self.model or (own is not None and size != self.size[0])):
            measured = "were networks of dense layers" if self.model is None else f"was that of {self.model} alone"
            what = own or "a network of dense layers"
            found.append(
                f"the time of a gradient of {what} with {size:,} parameters; measured {measured}. Calibrate with this problem, "
                "or give the time as pace"
            )
        if names:
            found.append(f"{listed(list(names))}: the time of a part of the network was not measured")
        return list(dict.fromkeys([*found, *self.doubts]))

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
            return [name, what, time_text(seconds), "" if half is None else f"± {half:.0%}"]

        rows = [
            row("gradient", f"{samples:,} samples", c.gradient(parameters, samples)),
            row("send", bytes_text(size), c.send(size)),
            row("receive", bytes_text(size), c.receive(size)),
            row("update", bytes_text(size), c.update(size)),
        ]
        if self.evaluated:
            rows.append(row("evaluation", f"{self.evaluated:,} samples", c.evaluation(parameters, self.evaluated)))
        rows += [row("work after a sleep", f"of {time_text(slept)}", more) for slept, more in c.wake]
        for held, more in c.cold:
            rows.append(["work on a shared core", bytes_text(held), f"+{more:.0%}", ""])
        if c.hosts > 1:
            rows.append(["link", bytes_text(size), time_text(self.latency + size / self.bandwidth), ""])
        where = f"{count_text(c.hosts, 'host')} with {count_text(c.cores, 'core')}"
        model = "" if self.model is None else f", {self.model}"
        title = f"{self.problem}{model}, {parameters:,} parameters, on {where}"
        for name, paced in (("gradients", self.pace), ("updates of servers", self.server_time)):
            title += "" if paced is None else f", {name} paced: {paced.describe()}"
        return Table(["operation", "of", "time", "repeatability"], rows, title)

    def figure(self) -> matplotlib.figure.Figure:
        """Draw the measured distribution of gradients, and the costs of messages by size.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.
        """
        from ...views.calibration import calibration_figure

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
        return {"labkit_calibration": FORMAT} | encoded({f.name: getattr(self, f.name) for f in fields(self)})

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
        try:
            check(plain, {"labkit_calibration": int})
            check_format("This calibration", plain["labkit_calibration"], FORMAT)
            values = decoded(dict(plain))
            check(values, FORM)
        except Mismatch as error:
            raise BadInput(f"This is not a calibration of this version of labkit ({error}); calibrate again.") from None
        return cls(**{f.name: values[f.name] for f in fields(cls)})

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
        with writing(name):
            write_text(name, json.dumps(self.to_dict(), indent=1) + "\n")
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
        except BadInput as error:
            raise BadInput(f"{shown(name)}: {error}") from None
        except (ValueError, RecursionError):
            raise BadInput(f"{shown(name)} is not a calibration: it is not JSON.") from None


def calibrate(
    cluster: Cluster, problem: Problem | str, seconds: float = 10.0, *, progress: bool | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Calibration:  # fmt: skip
    """Measure the costs of a cluster's processes with short runs.

    Most runs have one worker and one server; some have more roles than cores.

    Parameters
    ----------
    cluster : Cluster
        The cluster. Nothing else should run on it.
    problem : Problem or str
        The problem. Its network and batch, and smaller and larger ones, are measured. Of a model of your own, gradients and
        evaluations are measured as it is, with smaller and larger batches; messages and updates of other sizes are those of
        networks.
    seconds : float, default 10
        The time of all measurements together, from 1 to 3600. Starting the probes and computing the costs takes about twenty
        seconds more.
    progress : bool, optional
        Whether a progress bar is shown. None: in terminals and notebooks.
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
    problem, cluster = as_problem("problem", problem), as_cluster("cluster", cluster)
    seconds, bar = check_number("seconds", seconds, 1, 3600), bar_for(check_progress(progress))
    problems = variants(problem.of_worker(1))
    hosts = Hosts.of(cluster)
    within, between = hosts.within(cluster), hosts.between(cluster)
    most = SHARING * hosts.cores
    sharing = shared_runs(problems, most) if hosts.fits(most) and hosts.cores <= MOST_CORES else []
    remote = [problems[i] for i in OTHER_SIZES] if between is not None else []
    probes = ROUNDS * (len(problems) + len(PACES) + len(remote) + len(sharing)) + 1
    each, done = seconds / (probes + (LONGER - 1) * ROUNDS * len(sharing)), 0
    rounds: list[list[Cycle]] = []
    linked: list[list[Cycle]] = []
    shared: list[list[tuple[float, float]]] = []
    with TaskProgress("calibrate", "probe", probes, bar=bar) as shown_progress:

        def count() -> None:
            nonlocal done
            done += 1
            shown_progress.finish()
            if on_progress is not None:
                on_progress(done, probes)

        for _ in range(ROUNDS):
            rounds.append([])
            for one in problems:
                rounds[-1].append(probe_cycle(one, within, each))
                count()
            for pace in _paces(rounds[0][0].gradient):
                rounds[-1].append(probe_cycle(problem, within, each, pace))
                count()
            if between is not None:
                linked.append([])
                for one in remote:
                    linked[-1].append(probe_cycle(one, between, each))
                    count()
            if sharing:
                shared.append([])
                for one, strategy, workers in sharing:
                    shared[-1].append(probe_sharing(one, within, LONGER * each, workers, strategy))
                    count()
        evaluations = None if problem.timing_only else probe_evaluations(problem, within, each, PACES[-1])
        count()
    return _fitted(cluster, hosts, problem, Probes(problems, rounds, linked, sharing, shared, evaluations))


@dataclass(frozen=True)
class Probes:
    """The measurements of a calibration. `rounds`: the probes on one host, of each repetition: first those of all `problems` at
    full speed, then those of the paces. `linked`: the probes between hosts. `shared`: the results of `probe_sharing` for each of
    the runs `sharing`.
    """

    problems: Sequence[Problem]
    rounds: Sequence[Sequence[Cycle]]
    linked: Sequence[Sequence[Cycle]]
    sharing: Sequence[tuple[Problem, Strategy, int]]
    shared: Sequence[Sequence[tuple[float, float]]]
    evaluations: Evaluations | None


def shared_runs(problems: Sequence[Problem], workers: int) -> list[tuple[Problem, Strategy, int]]:
    """Return (problem, strategy, workers) of the runs with more roles than cores: asynchronous, collective, and asynchronous with
    a larger network.
    """
    power = 1 << max(1, workers.bit_length() - 1)  # a collective operation by halving and doubling
    collective = HalvingDoubling(eval_every=NEVER)
    asynchronous = AsyncPS(eval_every=NEVER)
    return [
        (problems[0], asynchronous, workers),
        (problems[0], collective, power),
        (problems[LARGEST], asynchronous, workers),
    ]


def _paces(gradient: float) -> tuple[float, ...]:
    """Return the paces of the probes that sleep: `PACES`, longer ones if a gradient takes too long for them."""
    return PACES if 2 * gradient <= PACES[0] else tuple(factor * gradient for factor in (2, 3, 4))


def _fitted(cluster: Cluster, hosts: Hosts, problem: Problem, probes: Probes) -> Calibration:
    rounds, evaluations, shared = probes.rounds, probes.evaluations, probes.shared
    cycles = [mean_cycle(same) for same in zip(*rounds)]
    sizes = len(probes.problems)
    fast, paced = cycles[:sizes], cycles[sizes:]

    def work(first: int) -> WorkCost:
        """Return the time of a gradient of variant number `first`, by those with the same model."""
        same = [i for i, one in enumerate(probes.problems) if one.model == probes.problems[first].model and i != first]
        return fit_work([(fast[i].parameters, fast[i].samples, fast[i].gradient) for i in (first, *same)])

    gradient = work(0)
    send, receive = (fit_linear([(c.size, value(c)) for c in fast]) for value in (lambda c: c.send, lambda c: c.rest))
    update = fit_linear([(c.size, c.update) for c in fast])
    messages = 2 * (send(fast[0].size) + receive(fast[0].size)) + update(fast[0].size)
    # two roles have slept for about the pace in every cycle: the worker, until its gradient is over, and the server
    delays = [(c.pace or 0.0, max(0.0, c.total - c.gradient - messages) / 2) for c in paced]
    slow, single = _variations(rounds, sizes)
    spread: Distribution = Measured(quantiles(single)) if len(single) > 1 else Deterministic(1.0)
    drift: Distribution = Measured(quantiles(slow)) if slow else Deterministic(1.0)
    evaluation = WorkCost()
    if evaluations is not None:
        evaluation = fit_work([(evaluations.parameters, evaluations.samples, evaluations.seconds)])
    costs = cluster.spec.costs
    made = Costs(
        gradient, spread, drift, DRIFT_S if slow else 0.0, update, evaluation, send, receive,
        polling=POLLING_S if costs is None else costs.polling, wake=tuple(delays),
        time_slice=Costs().time_slice if costs is None else costs.time_slice,
        min_slice=min_slice(hosts.cores) if costs is None else costs.min_slice, pinned=hosts.pinned, cores=hosts.cores,
        hosts=hosts.count, speeds=hosts.speeds,
    )  # fmt: skip
    latency, bandwidth = 0.0, math.inf
    if probes.linked:
        made, latency, bandwidth = _with_links(made, [mean_cycle(same) for same in zip(*probes.linked)])
    if shared:
        background = statistics.fmean(used for one in shared for _, used in one)
        runs = [
            Sharing(
                *run,
                statistics.fmean(rate for rate, _ in same),
                gradient if run[0].model == problem.model else work(LARGEST),
            )
            for run, same in zip(probes.sharing, zip(*shared))
        ]
        fitted = fit_sharing(replace(made, hosts=1, speeds=(1.0,), background=background), *runs)
        made = replace(fitted, hosts=hosts.count, speeds=hosts.speeds)
    repeatability = {
        name: _half_range([value(one[0]) for one in rounds])
        for name, value in (
            ("gradient", lambda c: c.gradient), ("send", lambda c: c.send), ("receive", lambda c: c.rest),
            ("update", lambda c: c.update), ("cycle", lambda c: c.total),
        )
    }  # fmt: skip
    if shared:
        repeatability["sharing"] = _half_range([one[0][0] for one in shared])
    doubts = [*hosts.doubts, *(
        f"the {name} differed by ± {half:.0%} between repetitions" for name, half in repeatability.items()
        if half > WIDE and name in ("gradient", "cycle", "sharing")
    )]  # fmt: skip
    if cluster.spec.slow:
        doubts.append(f"slow={shown(dict(cluster.spec.slow))} of the calibrated cluster is not part of the forecasts")
    if evaluations is None:
        doubts.append("evaluations were not measured")
    if not shared:
        doubts.append("how roles that share cores slow each other was not measured")
    first = fast[0]
    return Calibration(
        made, problem.name, (first.parameters, first.samples, first.size), evaluations.samples if evaluations else 0,
        _range([c.parameters for c in fast]), _range([c.samples for c in fast]), latency, bandwidth, repeatability,
        tuple(doubts), cluster.spec.compute, cluster.spec.server_time, _model_text(problem),
    )  # fmt: skip


def _model_text(problem: Problem) -> str | None:
    """Return the name and the options of a model of the user's; None for labkit's network."""
    return None if problem.model is None else call_text(*problem.model._identity())


def _variations(rounds: Sequence[Sequence[Cycle]], sizes: int) -> tuple[list[float], list[float]]:
    """Return ([factors of the speed of a core], [factors or durations of single gradients]).

    The speed is that during the probes of all `sizes` variants of the problem, each relative to its mean: together they last long
    enough to contain slow and fast times. The single gradients are those of the problem.
    """
    split = [split_drift([one[i].durations for one in rounds], DRIFT_S) for i in range(sizes)]
    return [factor for slow, _ in split for factor in slow], split[0][1]


def min_slice(cores: int) -> float:
    """Return the seconds for which Linux lets a process have a core although another one has been woken: 0.7 ms, with more cores
    up to four times as much (`sysctl_sched_base_slice` in kernel/sched/fair.c).
    """
    return 0.0007 * min(cores, 8).bit_length()


def _with_links(costs: Costs, cycles: Sequence[Cycle]) -> tuple[Costs, float, float]:
    """Return (the costs with those of messages between hosts, latency in seconds, bandwidth in bytes per second).

    A message between hosts costs the receiver as much processor time as one within a host; what it takes longer is the link.
    """
    rest = fit_linear([(c.size, c.rest) for c in cycles])
    send = fit_linear([(c.size, c.send) for c in cycles])
    latency = max(0.0, rest.fixed - costs.receive.fixed)
    per_byte = rest.per_byte - costs.receive.per_byte
    return replace(costs, remote_send=send), latency, 1.0 / per_byte if per_byte > 1.0 / MOST_BANDWIDTH else math.inf


def _half_range(values: Sequence[float]) -> float:
    middle = statistics.median(values)
    return 0.0 if middle <= 0 else (max(values) - min(values)) / 2 / middle


def _range(values: Sequence[int]) -> tuple[int, int]:
    return min(values), max(values)
