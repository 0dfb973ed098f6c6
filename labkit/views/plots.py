"""Figures for reports: `run.plot.staleness()` and its sisters. Each is a fresh figure of the trace as it is now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..errors import BadInput, nearest
from ..trace.trace import Trace
from .accuracy import Accuracy
from .compare import compare
from .decision_boundary import DecisionBoundary
from .figures import LabFigure, panel_figure, save, stack
from .gradient_flow import GradientFlow
from .hot_rows import HotRows
from .ledger_panel import Ledger
from .loss import Loss
from .panel import Panel
from .predictions import Predictions
from .staleness import Staleness
from .throughput import Throughput
from .timeline import Timeline
from .who_has_what import WhoHasWhat

__all__ = ["PANELS", "Plots", "make_panel", "overview"]

PANELS: dict[str, type[Panel]] = {
    p.name: p
    for p in (
        Timeline,
        Staleness,
        GradientFlow,
        Throughput,
        Accuracy,
        Loss,
        HotRows,
        Predictions,
        DecisionBoundary,
        WhoHasWhat,
        Ledger,
    )
}
_COMPARED = ("staleness", "throughput", "accuracy", "loss")


def make_panel(name: str, pinned: Trace | None = None) -> Panel:
    """The panel of this name; `pinned` is the run that it is compared with, where the panel can."""
    if name not in PANELS:
        raise nearest("panel", name, PANELS)
    made: Any = PANELS[name]
    return made(pinned) if name in _COMPARED else made()


def overview(
    trace: Trace, t: int | None = None, pinned: Trace | None = None, arrays: tuple[Any, Any, Any] | None = None
) -> LabFigure:
    """All panels of the first view; below them predictions, if the trace has samples. `arrays`: (images, labels,
    predicted), to show instead.
    """
    names = [["timeline"], ["staleness", "gradient_flow"], ["throughput", "accuracy"]]
    rows: list[list[Any]] = [[make_panel(name, pinned) for name in row] for row in names]
    if arrays is not None or "labels" in trace.header.get("samples", ()):
        rows.append([Predictions(arrays)])
    return stack(rows, trace, t)


class Plots:
    """What `run.plot` returns. `t` is engine time in seconds; None is now."""

    def __init__(self, get_trace: Callable[[], Trace]):
        self._get_trace = get_trace

    def _one(self, name: str, t: float | None, pinned: Trace | None = None) -> LabFigure:
        return panel_figure(make_panel(name, pinned), self._get_trace(), _ns(t))

    def timeline(self, t: float | None = None) -> LabFigure:
        """Who computed and who waited, just before `t`."""
        return self._one("timeline", t)

    def staleness(self, t: float | None = None, pinned: Trace | None = None) -> LabFigure:
        """Histogram of staleness, with the strategy's law."""
        return self._one("staleness", t, pinned)

    def gradient_flow(self, t: float | None = None) -> LabFigure:
        """Gradient norm per layer and worker."""
        return self._one("gradient_flow", t)

    def throughput(self, t: float | None = None, pinned: Trace | None = None) -> LabFigure:
        """Gradients applied a second, over time."""
        return self._one("throughput", t, pinned)

    def accuracy(self, t: float | None = None, pinned: Trace | None = None) -> LabFigure:
        """Held-out accuracy over time."""
        return self._one("accuracy", t, pinned)

    def loss(self, t: float | None = None, pinned: Trace | None = None) -> LabFigure:
        """Held-out loss over time."""
        return self._one("loss", t, pinned)

    def hot_rows(self) -> LabFigure:
        """Of an embedding table: the rows asked for most, and each server's share of the traffic."""
        return self._one("hot_rows", None)

    def predictions(
        self, images: Any = None, labels: Any = None, predicted: Any = None, t: float | None = None
    ) -> LabFigure:
        """Held-out samples, and what the model said they are at the last evaluation before `t`. Or samples of one's own:
        `images` (n, height, width) or flat, `labels` and `predicted` (n,).
        """
        given = [what is not None for what in (images, labels, predicted)]
        if any(given) and not all(given):
            raise BadInput(
                "predictions: give images, labels and predicted, all three; or none, to draw from the trace."
            )
        arrays = (images, labels, predicted) if all(given) else None
        return panel_figure(Predictions(arrays), self._get_trace(), _ns(t))

    def decision_boundary(self, t: float | None = None) -> LabFigure:
        """Of data in a plane: the class that the model gives to every place."""
        return self._one("decision_boundary", t)

    def who_has_what(self) -> LabFigure:
        """How many training samples of each class every worker has."""
        return self._one("who_has_what", None)

    def ledger(self, t: float | None = None) -> LabFigure:
        """Where every gradient went, and whether the books close."""
        return self._one("ledger", t)

    def overview(
        self, t: float | None = None, pinned: Trace | None = None, arrays: tuple[Any, Any, Any] | None = None
    ) -> LabFigure:
        """The first view of the lab in one figure."""
        return overview(self._get_trace(), _ns(t), pinned, arrays)

    def compare(self, others: Sequence[Any], labels: Sequence[str] | None = None) -> LabFigure:
        """This run and others (runs, or their traces) in one picture."""
        return compare([self._get_trace(), *(getattr(other, "trace", other) for other in others)], labels)

    def save(self, path: str | Path) -> Path:
        """Write the overview to a file; the ending says how (.png, .svg, .pdf)."""
        return save(self.overview(), path)

    def __repr__(self) -> str:
        return f"<Plots: {', '.join(f'{name}()' for name in (*PANELS, 'overview'))}>"


def _ns(t: float | None) -> int | None:
    return None if t is None else round(t * 1e9)
