"""Figures for reports: `run.plot.staleness()` and its sisters. Each is a fresh figure of the trace as it is now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..errors import nearest
from ..trace.trace import Trace
from .accuracy import Accuracy
from .compare import compare
from .figures import LabFigure, panel_figure, save, stack
from .gradient_flow import GradientFlow
from .hot_rows import HotRows
from .loss import Loss
from .panel import Panel
from .predictions import Predictions
from .staleness import Staleness
from .throughput import Throughput
from .timeline import Timeline

__all__ = ["PANELS", "Plots", "make_panel", "overview"]

PANELS: dict[str, type[Panel]] = {
    p.name: p for p in (Timeline, Staleness, GradientFlow, Throughput, Accuracy, Loss, HotRows)
}  # fmt: skip
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
    """All panels of the first view. `arrays`: (images, labels, predicted), for a strip of predictions below."""
    names = [["timeline"], ["staleness", "gradient_flow"], ["throughput", "accuracy"]]
    rows: list[list[Any]] = [[make_panel(name, pinned) for name in row] for row in names]
    if arrays is not None:
        rows.append([Predictions()])
    return stack(rows, trace, t, arrays)


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

    def predictions(self, images: Any, labels: Any, predicted: Any) -> LabFigure:
        """Samples and what the model says they are: `images` (n, height, width) or flat."""
        return stack([[Predictions()]], self._get_trace(), None, (images, labels, predicted))

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
