"""Figures for reports: `run.plot.staleness()` and similar. Each call creates a new figure of the current trace."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from ..errors import BadInput, nearest, shown
from ..options import check_number
from ..trace.schema import nanoseconds
from ..trace.trace import RunOrTrace, Trace, check_trace
from .accuracy import AccuracyPanel
from .compare import compare
from .data_distribution import DataDistributionPanel
from .decision_boundary import DecisionBoundaryPanel
from .figures import LabFigure, panel_figure, save, stack
from .forecast import RunForecast
from .gradient_flow import GradientFlowPanel
from .hot_rows import HotRowsPanel
from .ledger_panel import LedgerPanel
from .links import LinksPanel
from .loss import LossPanel
from .message_zoom import MessageZoomPanel
from .noise_scale import NoiseScalePanel
from .panel import Panel
from .predictions import PredictionsPanel
from .progress import ProgressPanel
from .stability import StabilityPanel
from .staleness import StalenessPanel
from .staleness_over_time import StalenessOverTimePanel
from .throughput import ThroughputPanel
from .timeline import TimelinePanel
from .topology import TopologyPanel

PANELS: dict[str, type[Panel]] = {
    p.name: p
    for p in (
        TimelinePanel,
        MessageZoomPanel,
        StalenessPanel,
        StalenessOverTimePanel,
        GradientFlowPanel,
        ThroughputPanel,
        AccuracyPanel,
        LossPanel,
        TopologyPanel,
        LinksPanel,
        ProgressPanel,
        StabilityPanel,
        NoiseScalePanel,
        HotRowsPanel,
        PredictionsPanel,
        DecisionBoundaryPanel,
        DataDistributionPanel,
        LedgerPanel,
    )
}
MOST_S = 1e9  # engine seconds
_COMPARED = ("staleness", "throughput", "accuracy", "loss")
_WITH_FORECAST = ("staleness", "staleness_over_time", "throughput")


def make_panel(name: str, reference: Trace | None = None, forecast: RunForecast | None = None, **options: Any) -> Panel:
    """Create the panel of this name. `reference`: the trace of a reference run; `forecast`: the forecast of the run. They are
    ignored by panels that do not support them.

    `options`: arguments of the panel's class, for example `against="updates"`.
    """
    if name not in PANELS:
        raise nearest("panel", name, PANELS)
    made: Any = PANELS[name]
    if forecast is not None and name in _WITH_FORECAST:
        options["forecast"] = forecast
    return made(reference, **options) if name in _COMPARED else made(**options)  # type: ignore[no-any-return]


def overview(
    trace: Trace, t: int | None = None, reference: Trace | None = None, arrays: tuple[Any, Any, Any] | None = None
) -> LabFigure:
    """Draw the panels of the first view of the lab, followed by predictions if the trace has samples.

    `arrays`: (images, labels, predicted) to show instead of these samples.
    """
    names = [["timeline"], ["staleness", "gradient_flow"], ["throughput", "accuracy"]]
    rows: list[list[Any]] = [[make_panel(name, reference) for name in row] for row in names]
    if arrays is not None or not isinstance(trace.header.samples, str):
        rows.append([PredictionsPanel(arrays)])
    return stack(rows, trace, t)


# what the methods of `Plots` that draw panels take, and what they return
PARAMETERS = {
    "t": "float, optional\n    The engine time in seconds. By default the present.",
    "reference": "Run or Trace, optional\n    Another run, which is drawn for comparison.",
    "of": """{"gradients", "samples", "bytes"}, default: "gradients"
    What is counted: applied gradients or samples, or bytes sent.""",
    "against": """{"time", "updates", "samples"}, default: "time"\n    The horizontal axis.""",
    "images": "array_like, optional\n    Other samples, of shape (n, height, width), or flat.",
    "labels": "array_like, optional\n    Their classes, of shape (n,).",
    "predicted": "array_like, optional\n    Their predicted classes, of shape (n,).",
    "arrays": """tuple of array_like, optional
    (images, labels, predicted) of other samples, which are drawn instead of those of the trace.""",
}
FIGURE = "LabFigure\n    A matplotlib Figure, which a notebook shows if it is the last expression of a cell."


class Plots:
    """The figures of a run for reports: the object `run.plot`.

    Parameters
    ----------
    get_trace : callable
        Returns the trace of the run.

    Examples
    --------
    >>> cluster = lk.SimulatedCluster(workers=4, slow={"worker-2": 5})
    >>> run = lk.train("digits", lk.AsyncPS(), cluster, lk.Budget(updates=200)).wait()
    >>> run.plot.staleness().savefig("staleness.png")
    >>> run.plot.timeline(t=0.2).savefig("timeline.png")
    """

    def __init__(self, get_trace: Callable[[], Trace]):
        self._get_trace = get_trace

    def _one(self, name: str, t: float | None, reference: RunOrTrace | None = None, **options: Any) -> LabFigure:
        return panel_figure(make_panel(name, _reference(reference), **options), self._get_trace(), _ns(t))

    def timeline(self, t: float | None = None) -> LabFigure:
        """Plot the timeline: when each role computed and waited, just before a time."""
        return self._one("timeline", t)

    def staleness(self, t: float | None = None, reference: RunOrTrace | None = None) -> LabFigure:
        """Plot the histogram of staleness, with the theoretical mean of the strategy."""
        return self._one("staleness", t, reference)

    def message_zoom(self, t: float | None = None) -> LabFigure:
        """Plot the last few updates before a time, with every message."""
        return self._one("message_zoom", t)

    def staleness_over_time(self, t: float | None = None) -> LabFigure:
        """Plot the mean staleness and its spread, over time, with the theoretical mean of the strategy."""
        return self._one("staleness_over_time", t)

    def gradient_flow(self, t: float | None = None) -> LabFigure:
        """Plot the gradient norm per layer and worker, and the step size relative to the weights."""
        return self._one("gradient_flow", t)

    def throughput(
        self, t: float | None = None, reference: RunOrTrace | None = None, of: str = "gradients"
    ) -> LabFigure:
        """Plot the throughput over time."""
        return self._one("throughput", t, reference, of=of)

    def accuracy(self, t: float | None = None, reference: RunOrTrace | None = None, against: str = "time") -> LabFigure:
        """Plot the held-out accuracy."""
        return self._one("accuracy", t, reference, against=against)

    def loss(self, t: float | None = None, reference: RunOrTrace | None = None, against: str = "time") -> LabFigure:
        """Plot the held-out loss."""
        return self._one("loss", t, reference, against=against)

    def topology(self, t: float | None = None) -> LabFigure:
        """Plot the roles and their links, and the last update in slow motion."""
        return self._one("topology", t)

    def links(self, t: float | None = None) -> LabFigure:
        """Plot the bytes per second of each node just before a time, relative to the bandwidth of its link."""
        return self._one("links", t)

    def progress(self, t: float | None = None) -> LabFigure:
        """Plot the lead of each worker over the slowest, in gradients, over time, and the bound if there is one."""
        return self._one("progress", t)

    def stability(self, t: float | None = None) -> LabFigure:
        """Plot the rate x curvature against staleness: the edge of stability, and the position of this run."""
        return self._one("stability", t)

    def noise_scale(self, t: float | None = None) -> LabFigure:
        """Plot the gradient noise scale over time, and the batch of an update."""
        return self._one("noise_scale", t)

    def hot_rows(self) -> LabFigure:
        """Plot the most requested rows of an embedding table, and each server's share of the traffic."""
        return self._one("hot_rows", None)

    def predictions(
        self, images: ArrayLike | None = None, labels: ArrayLike | None = None, predicted: ArrayLike | None = None,
        t: float | None = None,
    ) -> LabFigure:  # fmt: skip
        """Plot the held-out samples and the predictions of the model at the last evaluation before a time.

        Raises
        ------
        BadInput
            If only some of `images`, `labels` and `predicted` are given.
        """
        given = [what is not None for what in (images, labels, predicted)]
        if any(given) and not all(given):
            raise BadInput(
                "predictions: give images, labels and predicted, all three; or none, to draw from the trace."
            )
        arrays = (images, labels, predicted) if all(given) else None
        return panel_figure(PredictionsPanel(arrays), self._get_trace(), _ns(t))

    def decision_boundary(self, t: float | None = None) -> LabFigure:
        """Plot the class that the model predicts at every point, for data with two features."""
        return self._one("decision_boundary", t)

    def data_distribution(self) -> LabFigure:
        """Plot the number of training samples of each class that every worker has."""
        return self._one("data_distribution", None)

    def ledger(self, t: float | None = None) -> LabFigure:
        """Plot the ledger: the category of every gradient, and whether the ledger balances."""
        return self._one("ledger", t)

    def overview(
        self, t: float | None = None, reference: RunOrTrace | None = None,
        arrays: tuple[ArrayLike, ArrayLike, ArrayLike] | None = None,
    ) -> LabFigure:  # fmt: skip
        """Plot the first view of the lab in one figure."""
        if arrays is not None and not (isinstance(arrays, list | tuple) and len(arrays) == 3):
            raise BadInput(f"arrays={shown(arrays)} is not allowed; give (images, labels, predicted), or None.")
        drawn = None if arrays is None else (arrays[0], arrays[1], arrays[2])
        return overview(self._get_trace(), _ns(t), _reference(reference), drawn)

    def compare(self, others: Sequence[RunOrTrace], labels: Sequence[str] | None = None) -> LabFigure:
        """Plot throughput and accuracy of this run and of other runs in one figure.

        Parameters
        ----------
        others : sequence of Run or Trace
            The other runs.
        labels : sequence of str, optional
            A label for each run, beginning with this one.

        Returns
        -------
        LabFigure
            A matplotlib Figure, which a notebook shows if it is the last expression of a cell.
        """
        traces = [_trace_of("others", other) for other in _listed("others", others)]
        return compare([self._get_trace(), *traces], None if labels is None else _listed("labels", labels))

    def save(self, path: str | Path) -> Path:
        """Write the overview to a file.

        Parameters
        ----------
        path : str or Path
            The file. The extension sets the format (.png, .svg, .pdf).

        Returns
        -------
        Path
            The path.
        """
        return save(self.overview(), path)

    def __repr__(self) -> str:
        return f"<Plots: {', '.join(f'{name}()' for name in (*PANELS, 'overview'))}>"


def _document(method: Callable[..., LabFigure]) -> None:
    """Complete the docstring of a method of `Plots`, which has its summary: its parameters, and the figure that it returns."""
    names = list(inspect.signature(method).parameters)[1:]
    summary, *sections = (method.__doc__ or "").split("\n\n", 1)
    given = "\n".join(f"{name} : {PARAMETERS[name]}" for name in names)
    made = [summary, *([f"Parameters\n----------\n{given}"] if names else []), f"Returns\n-------\n{FIGURE}"]
    method.__doc__ = "\n\n".join([*made, *map(inspect.cleandoc, sections)]) + "\n"


for name in (*PANELS, "overview"):
    _document(getattr(Plots, name))


def _ns(t: float | None) -> int | None:
    return None if t is None else nanoseconds(check_number("t", t, 0, MOST_S, unit="None or a number of seconds"))


def _reference(given: Any) -> Trace | None:
    return None if given is None else _trace_of("reference", given)


def _trace_of(name: str, given: Any) -> Trace:
    """Return the trace of a run, or `given` if it is a trace."""
    return check_trace(given if isinstance(given, Trace) else getattr(given, "trace", given), name)


def _listed(name: str, given: Any) -> list[Any]:
    try:
        return list(given)
    except TypeError:
        raise BadInput(f"{name}={shown(given)} is not allowed; give a list.") from None
