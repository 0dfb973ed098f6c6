"""Views of a trace, one panel per file. A view is a pure function of (trace, time) and independent of engines and widgets."""

from __future__ import annotations

from . import pictures
from .accuracy import Accuracy
from .compare import compare
from .data_distribution import DataDistribution
from .decision_boundary import DecisionBoundary
from .figures import LabFigure, bare_figure, panel_figure, save, stack
from .gradient_flow import GradientFlow
from .ledger_panel import Ledger
from .loss import Loss
from .panel import Panel
from .plots import PANELS, Plots, make_panel, overview
from .predictions import Predictions
from .staleness import Staleness
from .throughput import Throughput
from .timeline import Timeline

__all__ = [
    "PANELS", "Accuracy", "DecisionBoundary", "GradientFlow", "LabFigure", "Ledger", "Loss", "Panel", "Plots",
    "Predictions", "Staleness", "Throughput", "Timeline", "DataDistribution", "bare_figure", "compare", "make_panel", "overview",
    "panel_figure", "pictures", "save", "stack",
]  # fmt: skip
