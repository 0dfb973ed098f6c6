"""`advise`: ranks strategies by simulated step times, explains them, and answers three questions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...description import Description, HasDescription
from ...engines.base import Cluster
from ...engines.cluster_text import distribution_text
from ...engines.distributions import Distribution, Pareto
from ...errors import BadInput, shown
from ...formatting import bytes_text, count_text, number_text, time_text
from ...problem import Problem
from ...strategies import STRATEGIES, Strategy
from ...table import Table
from ..arguments import as_cluster, as_problem, as_several, as_strategy
from ..steady_state import PRECISION, ROUGH, SteadyState
from .answers import three_answers
from .collectives import BOUND, MANY_MESSAGES, TOO_MANY_MESSAGES, ClosedForm, closed_form, messages_of_update
from .explanation import explain
from .inputs import Inputs, gather_inputs
from .memory import memory_of_nodes
from .theory import theory_text

if TYPE_CHECKING:
    from ..calibration import Calibration

NOT_MODELED = (
    "The progress per gradient (stale or lost gradients, infrequent averaging) is not in these times; measure it."
)
LEGEND = (
    "c: time of a gradient (c*: the slowest of N); s: server work; a: latency; m: the model over one link; L: layers."
)
SHOWN_ERROR = 0.001  # a narrower interval is not shown, as a share of the step


@dataclass(frozen=True)
class AdviceRow:
    """The forecast for one strategy: a row of an `Advice`. Seconds and bytes are per step (N mini-batches).

    Parameters
    ----------
    strategy : Strategy
        The strategy.
    label : str
        Its name, with the option that identifies the variant: "SSP s=3".
    step : float
        The time of a step in seconds.
    error : float
        The half-width of its 95% confidence interval in seconds; 0 if steps repeat, infinite if it is unknown. Of a closed
        form, the bound of its error.
    compute, update, latency, wire, wait : float
        The parts of the step on the critical path: gradients, updates, latency, transfer (with queueing for busy links), and
        waiting that no message ended. Waiting for a slower worker is that worker's computing.
    waiting : float
        The share of time in which workers wait, from 0 to 1.
    gradients_per_second : float
        The throughput of all workers, in gradients of one mini-batch.
    bytes : float
        Bytes through the busiest direction of any node's link.
    memory : float
        Bytes of parameters, gradients and optimizer state at the node that needs most. Activations are not counted.
    fits : bool
        Whether `memory` is within the limit.
    staleness : float or None
        The mean staleness; None if it is not known.
    explanation : str
        The parts, the waiting and the bottleneck in words; for a step that was not simulated, its closed form.
    formula : str
        The textbook formula of the step, with the condition under which it holds; "" if there is none.
    simulated : bool
        Whether the step was simulated. If not, a closed form takes its place.

    Examples
    --------
    >>> row = lk.advise("digits", lk.SimulatedCluster(workers=4), [lk.SSP(s=3)]).best
    >>> row.label, row.step, row.gradients_per_second
    ('SSP s=3', 0.01, 400.0)
    """

    strategy: Strategy
    label: str
    step: float
    error: float
    compute: float
    update: float
    latency: float
    wire: float
    wait: float
    waiting: float
    gradients_per_second: float
    bytes: float
    memory: float
    fits: bool
    staleness: float | None
    explanation: str
    formula: str
    simulated: bool = True

    @property
    def time_text(self) -> str:
        """The time of a step as text, with its interval unless that is negligible: "12.3 ms ± 0.9%"."""
        if math.isinf(self.error):
            return f"about {time_text(self.step)}"
        share = self.error / self.step if self.step else 0.0
        return time_text(self.step) + (f" ± {100 * share:.2g}%" if share > SHOWN_ERROR else "")


@dataclass(frozen=True)
class Advice(HasDescription):
    """The result of `advise`.

    Parameters
    ----------
    rows : tuple of AdviceRow
        One row per strategy, with the fastest strategy that fits first.
    refused : tuple of tuple
        (strategy, the reason why it cannot run here).
    answers : tuple of str
        The answers to the three design questions.
    inputs : str
        The sizes and times of the problem and the cluster.
    doubts : tuple of str
        Why the step times are doubtful, if they are: a heavy tail, or costs that were measured for something else.

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
        head = ("strategy", "step", "gradients/s", "busiest link", "memory", "staleness", "explanation")
        theory = [(row.label, row.formula) for row in self.rows if row.formula]
        more = [Table(("strategy", "textbook formula of a step, and when it holds"), theory)] if theory else []
        more += [Table(("cannot run here", "reason"), self.refused)] if self.refused else []
        return Description(
            "Simulated time of a step, fastest first",
            (("inputs", self.inputs), ("symbols", LEGEND)),
            (Table(head, [_cells(row) for row in self.rows]), *more),
            (*self.answers, NOT_MODELED, *(f"Doubtful: {doubt}." for doubt in self.doubts)),
        )

    def __repr__(self) -> str:
        return f"<Advice: of {len(self.rows):,} strategies {self.best.label} is the fastest, {time_text(self.best.step)} a step>"

    def figure(self) -> Any:
        """Draw the step times as bars, with explanations and formulas, and below them why they are doubtful, if they are.

        Returns
        -------
        LabFigure
            A matplotlib Figure.
        """
        from ...views.advice import bars

        lines = [
            (
                row.label, (row.compute, row.update, row.latency, row.wire, row.wait),
                (row.explanation, *([f"theory: {row.formula}"] if row.formula else [])), row.time_text, row.fits,
            )
            for row in self.rows
        ]  # fmt: skip
        return bars(lines, self.inputs, LEGEND, self.doubts)


def advise(
    problem: Problem | str, cluster: Cluster, strategies: Iterable[Strategy | str] | None = None, *, memory: float | None = None,
    latency: float | None = None, bandwidth: float | None = None, compute: Distribution | float | str | None = None,
    calibration: Calibration | None = None,
) -> Advice:  # fmt: skip
    """Rank strategies by the time of a step of N gradients, which is simulated. No process is started.

    Each strategy is simulated in virtual time, without computing gradients, until its steps repeat exactly or the 95% confidence
    interval of the step time is within 5%; if it may be the fastest, within 2%. A run ends before that if it has sent 100,000
    messages. The row shows the interval. The same arguments give the same advice.

    Parameters
    ----------
    problem : Problem or str
        The learning problem, or the name of a data set.
    cluster : DaskCluster or SimulatedCluster
        The cluster. If it has processes and no pace, the time of a gradient is measured in this process.
    strategies : iterable of Strategy or str, optional
        The strategies, also your own. By default all of labkit, with default options.
    memory : float, optional
        The bytes that a node has for parameters, gradients and optimizer state. By default there is no limit.
    latency : float, optional
        Seconds of a message. By default that of the cluster; of processes 30 us, as measured on one machine.
    bandwidth : float, optional
        Bytes per second of a node. By default that of the cluster; of processes 5 GB/s, as measured on one machine.
    compute : Distribution, float or str, optional
        The time of a gradient: a distribution, or seconds. By default that of the cluster.
    calibration : Calibration, optional
        Measured costs (see `calibrate`), with which roles are simulated as processes that share the cores of their hosts. The
        advice then says why it is doubtful, if it is.

    Returns
    -------
    Advice
        A table when it is displayed or printed. `advice.best` is its first row, `advice["SyncPS"]` that of a strategy.

    Raises
    ------
    BadInput
        If a number is not allowed, or if no strategy can run.

    Notes
    -----
    If one update of an all-reduce, `FSDP` or `TensorParallel` sends more than 5,000 messages (a ring of more than 50 workers),
    the closed form of the collective takes the place of the simulation, and the row says so. It is exact with constant
    times, and within 10% of the simulation otherwise.

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
    problem, cluster = as_problem("problem", problem), as_cluster("cluster", cluster)
    known: dict[int, Inputs] = {}  # by the batch of a worker

    def gathered(shares: int) -> Inputs:
        each = problem.of_worker(shares)
        if each.batch_size not in known:
            known[each.batch_size] = gather_inputs(each, cluster, memory, latency, bandwidth, compute, calibration)
        return known[each.batch_size]

    divides = problem.batch_size % cluster.spec.workers == 0
    inputs = gathered(cluster.spec.workers if divides else 1)
    found, refused = [], []
    for strategy in candidate_strategies(strategies, inputs.n):
        used = inputs if strategy.uses_servers else replace(inputs, cluster=replace(inputs.cluster, servers=None))
        try:
            if problem.partition.divides_batch:  # the stages of a pipeline compute on the batch of one worker
                own = gathered(strategy.layout(problem, used.cluster.spec).shares)
                used = replace(own, cluster=replace(own.cluster, servers=used.cluster.servers))
            found.append((*_forecast(strategy, used), used))
        except BadInput as why:
            refused.append((strategy.name, str(why)))
    if not found:
        raise BadInput(f"No strategy can run here: {'; '.join(why for _, why in refused)}")
    longest = min((row.step + row.error for row, _, _ in found if row.fits), default=0.0)  # of the fastest
    rows = []
    for row, steady, used in found:
        may_be_first = row.fits and row.step - row.error <= longest
        if steady is not None and may_be_first:
            steady.advance(PRECISION)
            row = _simulated(row.strategy, used, steady)
        rows.append(row)
    rows.sort(key=lambda row: (not row.fits, row.step))
    doubts = _doubts(inputs)
    if len(known) > 1 and inputs.cluster.costs is None:
        doubts.append(
            "a gradient takes the same time for batches of any size; with a calibration, it depends on the size"
        )
    if calibration is not None:
        doubts += calibration.doubts_about(problem, [(row.strategy, used.cluster.spec) for row, _, used in found])
    return Advice(tuple(rows), tuple(refused), three_answers(inputs, rows), _inputs_text(inputs), tuple(doubts))


def candidate_strategies(strategies: Iterable[Strategy | str] | None, workers: int) -> list[Strategy]:
    """Return the strategies to rank. The default is all strategies, with a shape of the hybrid that fits the workers."""
    if strategies is None:
        parts = next((p for p in range(2, workers) if workers % p == 0), 1)
        shape: dict[str, Any] = {"hybrid": {"shape": f"{workers // parts}x{parts}"}} if parts > 1 else {}
        return [made(**shape.get(name, {})) for name, made in STRATEGIES.items()]
    return as_several("strategies", strategies, as_strategy)


def _forecast(strategy: Strategy, f: Inputs) -> tuple[AdviceRow, SteadyState | None]:
    """Return the row of a strategy, and its simulation, if there is one. Raises `BadInput` with the reason if it cannot run."""
    layout = strategy.layout(f.problem, f.cluster.spec)
    messages = messages_of_update(strategy, f)
    form = closed_form(strategy, f) if messages > MANY_MESSAGES else None
    if form is not None:
        return _in_closed_form(strategy, f, form, messages, max(memory_of_nodes(layout, strategy, f).values())), None
    if messages > TOO_MANY_MESSAGES:
        raise BadInput(
            f"an update sends {messages:,} messages, too many to simulate, and there is no closed form; advise on fewer workers."
        )
    steady = SteadyState(f.problem, strategy, f.cluster)
    steady.advance(ROUGH)
    return _simulated(strategy, f, steady), steady


def _simulated(strategy: Strategy, f: Inputs, steady: SteadyState) -> AdviceRow:
    memory = max(memory_of_nodes(steady.layout, strategy, f, steady.trace).values())
    why = explain(steady, f)
    part = why.parts
    return AdviceRow(
        strategy, _label(strategy), steady.step, steady.error, part.compute, part.update, part.latency, part.transfer, part.wait,
        why.waiting, f.n / steady.step if steady.step else math.inf, why.bytes, memory, f.memory is None or memory <= f.memory,
        why.staleness, why.text, theory_text(strategy),
    )  # fmt: skip


def _in_closed_form(strategy: Strategy, f: Inputs, form: ClosedForm, messages: int, memory: float) -> AdviceRow:
    text = f"closed form, not simulated (an update sends {messages:,} messages): {form.formula}"
    error = 0.0 if f.constant else BOUND * form.step
    return AdviceRow(
        strategy, _label(strategy), form.step, error, form.compute, 0.0, form.latency, form.wire, 0.0, form.waiting,
        f.n / form.step if form.step else math.inf, form.bytes, memory, f.memory is None or memory <= f.memory, 0.0, text,
        theory_text(strategy), simulated=False,
    )  # fmt: skip


LABELS = ("s", "b", "K", "H", "tau", "graph", "shape", "order", "dense")  # options that identify the variant


def _label(strategy: Strategy) -> str:
    """Return the class and the options that identify the variant: `SSP s=3`, `SyncPS accumulate=4`."""
    shown = next((f" {option}={getattr(strategy, option)}" for option in LABELS if hasattr(strategy, option)), "")
    batches = getattr(strategy, "accumulate", 1)
    return f"{strategy.name}{shown}" + (f" accumulate={batches}" if batches > 1 else "")


def _cells(row: AdviceRow) -> tuple[str, ...]:
    stale = "" if row.staleness is None else number_text(row.staleness)
    memory = bytes_text(row.memory) + ("" if row.fits else ", too much")
    return (
        row.label, row.time_text, number_text(row.gradients_per_second), bytes_text(row.bytes), memory, stale,
        row.explanation,
    )  # fmt: skip


def _inputs_text(f: Inputs) -> str:
    wire = "messages take no time" if not f.m and not f.a else f"a = {time_text(f.a)}, m = {time_text(f.m)}"
    memory = "" if f.memory is None else f", {bytes_text(f.memory)} per node"
    gradients, workers = count_text(f.n, "gradient"), count_text(f.n, "worker")
    times = (
        (name, each) for name, each in (("c", f.cluster.compute), ("s", f.cluster.server_time)) if each is not None
    )
    given = "".join(f"{name} = {distribution_text(each)}; " for name, each in times)
    return (
        f"One step = {gradients}. N = {workers}, S = {f.servers}, M = {bytes_text(f.model)}, density "
        f"{f.density:.3g}; {given}{wire}{memory}.{_measured_text(f)}"
    )


def _doubts(f: Inputs) -> list[str]:
    heavy = {
        each.describe()
        for each in (f.cluster.compute, f.cluster.server_time)
        if isinstance(each, Pareto) and each.alpha <= 2
    }
    return [f"{name} has no variance, so step times may be outside of their intervals" for name in sorted(heavy)]


def _measured_text(f: Inputs) -> str:
    """Return that the costs were measured, and how many workers share how many cores."""
    costs = f.cluster.costs
    if costs is None:
        return ""
    cores = costs.cores * costs.hosts
    gradient = time_text(costs.gradient(f.objective.size, f.problem.batch_size))
    shared = f": {f.n:,} workers share {count_text(cores, 'core')}" if f.n > cores else ""
    return f" Measured costs, c = {gradient}{shared}."
