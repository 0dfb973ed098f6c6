"""`advise`: ranked forecasts of the step times of all strategies that can run on a cluster, and three answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .. import strategies as known
from ..description import Description, HasDescription
from ..engines.base import Cluster
from ..engines.distributions import Deterministic, Distribution
from ..errors import BadInput, shown
from ..formatting import bytes_text, count_text, number_text
from ..problem import Problem
from ..strategies import STRATEGIES, Strategy, strategy_by_name
from ..table import Table
from . import model_parallel, parameter_server, peers, sparse
from .answers import three_answers
from .estimate import Estimate, time_text
from .inputs import CostInputs, gather_inputs, sharing

if TYPE_CHECKING:
    from ..calibration import Calibration

FORMULAS: Mapping[type[Strategy], Callable[[Any, CostInputs], Estimate]] = {
    known.SyncPS: parameter_server.sync_ps, known.AsyncPS: parameter_server.async_ps, known.Downpour: parameter_server.downpour,
    known.SSP: parameter_server.ssp, known.BackupWorkers: parameter_server.backup_workers, known.KSync: parameter_server.k_sync,
    known.KBatchSync: parameter_server.k_batch_sync, known.KAsync: parameter_server.k_async,
    known.KBatchAsync: parameter_server.k_batch_async, known.EASGD: parameter_server.easgd,
    known.RingAllReduce: peers.replicas, known.HalvingDoubling: peers.replicas, known.LocalSGD: peers.local_sgd,
    known.DPSGD: peers.dpsgd, known.ADPSGD: peers.adpsgd, known.FSDP: peers.fsdp,
    known.TensorParallel: model_parallel.tensor_parallel, known.Pipeline: model_parallel.pipeline,
    known.PipeDream: model_parallel.pipedream, known.Hybrid: model_parallel.hybrid, known.SparsePS: sparse.sparse_ps,
}  # fmt: skip


NOT_MODELED = (
    "The progress per gradient (stale or lost gradients, infrequent averaging) is in no formula; measure it with runs."
)
LEGEND = (
    "c: time of a gradient (c*: the slowest of N); s: server work; a: latency; m: the model over one link; L: layers."
)


@dataclass(frozen=True)
class AdviceRow:
    """The forecast for one strategy: a row of an `Advice`. Seconds and bytes are per step (N gradients).

    Parameters
    ----------
    strategy : Strategy
        The strategy.
    label : str
        Its name, with the option that identifies the variant: "SSP s=3".
    step : float
        The time of a step in seconds, the sum of the next three.
    compute, latency, wire : float
        Its parts: computing (with waiting and server work), latency, and transfer.
    update_gradients : float
        The number of gradients that one update applies.
    gradients_per_second : float
        The throughput of all workers.
    bytes : float
        Bytes through the busiest direction of any node's link.
    memory : float
        Bytes of parameters, gradients and optimizer state at the node that needs most. Activations are not counted.
    fits : bool
        Whether `memory` is within the limit.
    staleness : float or None
        The mean staleness; None if it is not known.
    formula : str
        The formula of `step`, with numbers.

    Examples
    --------
    >>> row = lk.advise("digits", lk.SimulatedCluster(workers=4), [lk.SSP(s=3)]).best
    >>> row.label, row.step, row.gradients_per_second
    ('SSP s=3', 0.01, 400.0)
    """

    strategy: Strategy
    label: str
    step: float
    compute: float
    latency: float
    wire: float
    update_gradients: float
    gradients_per_second: float
    bytes: float
    memory: float
    fits: bool
    staleness: float | None
    formula: str


@dataclass(frozen=True)
class Advice(HasDescription):
    """The result of `advise`.

    Parameters
    ----------
    rows : tuple of Forecast
        The forecasts, with the fastest strategy that fits first.
    refused : tuple of tuple
        (strategy, the reason why it cannot run here).
    answers : tuple of str
        The answers to the three design questions.
    inputs : str
        The inputs of the formulas.
    doubts : tuple of str
        Why the inputs are doubtful, if they were measured (`calibration`) and are.

    Examples
    --------
    >>> cluster = lk.SimulatedCluster(workers=4, latency=1e-3)
    >>> advice = lk.advise("digits", cluster, ["async-ps", "sync-ps"])
    >>> advice.best.label, advice["SyncPS"].staleness
    ('AsyncPS', 0.0)
    """

    rows: tuple[AdviceRow, ...]
    refused: tuple[tuple[str, str], ...]
    answers: tuple[str, str, str]
    inputs: str
    doubts: tuple[str, ...] = ()

    @property
    def best(self) -> AdviceRow:
        """The first row: the fastest strategy that fits into memory; if none fits, the fastest."""
        return self.rows[0]

    def __getitem__(self, name: str) -> AdviceRow:
        """Return the row of a strategy, by the name of its class or by its label."""
        for row in self.rows:
            if name in (row.label, row.strategy.name):
                return row
        raise BadInput(f"There is no row {shown(name)}. Allowed: {', '.join(row.label for row in self.rows)}.")

    def _described(self) -> Description:
        head = ("strategy", "step", "gradients/s", "busiest link", "memory", "staleness", "formula")
        refused = (Table(("cannot run here", "reason"), self.refused),) if self.refused else ()
        return Description(
            "Forecast time of a step, fastest first",
            (("inputs", self.inputs), ("symbols", LEGEND)),
            (Table(head, [_cells(row) for row in self.rows]), *refused),
            (*self.answers, NOT_MODELED, *(f"Doubtful: {doubt}." for doubt in self.doubts)),
        )

    def __repr__(self) -> str:
        return f"<Advice: of {len(self.rows):,} strategies {self.best.label} is the fastest, {time_text(self.best.step)} a step>"

    def figure(self) -> Any:
        """Draw the step times as bars, with the formulas, and below them why they are doubtful, if they are.

        Returns
        -------
        LabFigure
            A matplotlib Figure.
        """
        from ..views.advice import bars

        lines = [
            (row.label, row.compute, row.latency, row.wire, row.formula, time_text(row.step), row.fits)
            for row in self.rows
        ]
        return bars(lines, self.inputs, LEGEND, self.doubts)


def advise(
    problem: Problem | str, cluster: Cluster, strategies: Iterable[Strategy | str] | None = None, *, memory: float | None = None,
    density: float | None = None, latency: float | None = None, bandwidth: float | None = None,
    compute: Distribution | float | str | None = None, calibration: Calibration | None = None,
) -> Advice:  # fmt: skip
    """Rank strategies by the forecast time of a step of N gradients, from formulas. No process is started.

    The formulas do not include slowed roles and codecs.

    Parameters
    ----------
    problem : Problem or str
        The learning problem, or the name of a data set.
    cluster : DaskCluster or SimulatedCluster
        The cluster. If it has processes and no pace, the time of a gradient is measured in this process.
    strategies : iterable of Strategy or str, optional
        The strategies. By default all, with default options.
    memory : float, optional
        The bytes that a node has for parameters, gradients and optimizer state. By default there is no limit.
    density : float, optional
        The share of the parameters that a batch's gradient touches, from 0 to 1. By default 1, or for a model with an embedding
        the share that its batches touch.
    latency : float, optional
        Seconds of a message. By default that of the cluster; of processes 30 us, as measured on one machine.
    bandwidth : float, optional
        Bytes per second of a node. By default that of the cluster; of processes 5 GB/s, as measured on one machine.
    compute : Distribution, float or str, optional
        The time of a gradient: a distribution, or seconds. By default that of the cluster.
    calibration : Calibration, optional
        Measured costs (see `calibrate`), which take the place of the defaults for processes: gradients, updates and messages
        take the measured times, and workers share the cores of their hosts. The advice then says why it is doubtful, if it is.

    Returns
    -------
    Advice
        A table when it is displayed or printed. `advice.best` is its first row, `advice["SyncPS"]` that of a strategy.

    Raises
    ------
    BadInput
        If a number is not allowed, or if no strategy can run.

    Examples
    --------
    On slow links a ring divides the traffic, which a single server has to carry alone:

    >>> cluster = lk.SimulatedCluster(workers=8, latency=1e-4, bandwidth=1e7)
    >>> advice = lk.advise("digits", cluster, ["sync-ps", "ring-all-reduce"])
    >>> for row in advice.rows:
    ...     milliseconds, kilobytes = 1000 * row.step, row.bytes / 1000
    ...     print(f"{row.label}: {milliseconds:.1f} ms a step, {kilobytes:.0f} kB on the busiest link")
    RingAllReduce: 18.1 ms a step, 67 kB on the busiest link
    SyncPS: 44.8 ms a step, 308 kB on the busiest link
    """
    problem = Problem(problem) if isinstance(problem, str) else problem
    for name, value, fields in (("problem", problem, ("objective",)), ("cluster", cluster, ("workers", "servers"))):
        if isinstance(value, type) or not all(hasattr(value, field) for field in fields):
            raise BadInput(f"{name}={shown(value)}: give a {name}, as in lk.train(problem, strategy, cluster).")
    costs = None if calibration is None else calibration.costs
    inputs = gather_inputs(problem, cluster, memory, density, latency, bandwidth, compute, costs)
    rows, refused, measured = [], [], []
    for strategy in candidate_strategies(strategies, inputs.n):
        formula = next((FORMULAS[cls] for cls in type(strategy).__mro__ if cls in FORMULAS), None)
        try:
            if formula is None:
                raise BadInput("there is no formula for a user-defined strategy; simulate it.")
            if getattr(strategy, "codec", None) is not None:
                raise BadInput("the formulas do not include codecs; simulate it.")
            used = inputs.cluster if strategy.uses_servers else replace(inputs.cluster, servers=None)
            strategy.layout(problem, used)  # raises if the strategy cannot run here
            rows.append(_forecast(strategy, formula(strategy, inputs), inputs))
            measured.append((strategy, used.spec))
        except BadInput as why:
            refused.append((strategy.name, str(why)))
    if not rows:
        raise BadInput(f"No strategy can run here: {'; '.join(why for _, why in refused)}")
    rows.sort(key=lambda row: (not row.fits, row.step))
    doubts = () if calibration is None else tuple(calibration.doubts_about(problem, measured))
    return Advice(tuple(rows), tuple(refused), three_answers(inputs, rows), _inputs_text(inputs), doubts)


def candidate_strategies(strategies: Iterable[Strategy | str] | None, workers: int) -> list[Strategy]:
    """Return the strategies to rank. The default is all strategies, with a shape of the hybrid that fits the workers."""
    if strategies is None:
        parts = next((p for p in range(2, workers) if workers % p == 0), 1)
        shape: dict[str, Any] = {"hybrid": {"shape": f"{workers // parts}x{parts}"}} if parts > 1 else {}
        return [made(**shape.get(name, {})) for name, made in STRATEGIES.items()]
    made = [strategy_by_name(s)() if isinstance(s, str) else s for s in strategies]
    for strategy in made:
        if not isinstance(strategy, Strategy):
            raise BadInput(f"strategies: {shown(strategy)} is neither a strategy, as lk.SSP(s=1), nor the name of one.")
    return made


def _forecast(strategy: Strategy, e: Estimate, f: CostInputs) -> AdviceRow:
    times = f.n / e.gradients  # updates in a step
    fits = f.memory is None or e.memory <= f.memory
    return AdviceRow(
        strategy, _label(strategy), times * e.seconds, times * e.compute, times * e.latency, times * e.wire, e.gradients,
        e.gradients / e.seconds if e.seconds else float("inf"), times * e.busiest, e.memory, fits, e.staleness,
        e.formula + (f", x {times:.4g} updates" if times != 1 else ""),
    )  # fmt: skip


LABELS = ("s", "b", "K", "H", "tau", "graph", "shape", "order", "dense")  # options that identify the variant


def _label(strategy: Strategy) -> str:
    """Return the class and the option that identifies the variant: `SSP s=3`."""
    shown = next((f" {option}={getattr(strategy, option)}" for option in LABELS if hasattr(strategy, option)), "")
    return strategy.name + shown


def _cells(row: AdviceRow) -> tuple[str, ...]:
    stale = "" if row.staleness is None else number_text(row.staleness)
    memory = bytes_text(row.memory) + ("" if row.fits else ", too much")
    return (
        row.label, time_text(row.step), number_text(row.gradients_per_second), bytes_text(row.bytes), memory, stale,
        row.formula,
    )  # fmt: skip


def _inputs_text(f: CostInputs) -> str:
    wire = "messages take no time" if not f.m and not f.a else f"a = {time_text(f.a)}, m = {time_text(f.m)}"
    memory = "" if f.memory is None else f", {bytes_text(f.memory)} per node"
    gradients, workers = count_text(f.n, "gradient"), count_text(f.n, "worker")
    return (
        f"One step = {gradients}. N = {workers}, S = {f.servers}, M = {bytes_text(f.model)}, density "
        f"{f.density:.3g}, c = {_distribution_text(f.compute)}, {wire}{memory}.{_measured_text(f)}"
    )


def _measured_text(f: CostInputs) -> str:
    """Return that the costs were measured, and how many times longer they take because workers share cores."""
    if f.costs is None:
        return ""
    share, cores = sharing(f.costs, f.n), count_text(f.costs.cores * f.costs.hosts, "core")
    return " Measured costs" + (f", x {share:.3g}: {f.n:,} workers share {cores}." if share > 1 else ".")


def _distribution_text(distribution: Distribution) -> str:
    """Return a constant as a time, any other distribution as its name and parameters."""
    return time_text(distribution.seconds) if isinstance(distribution, Deterministic) else distribution.describe()
