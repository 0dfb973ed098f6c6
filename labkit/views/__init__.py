"""Views of a trace, one panel per file. A view is a pure function of (trace, time) and independent of engines and widgets."""

from __future__ import annotations

from .accuracy import AccuracyPanel
from .compare import compare
from .data_distribution import DataDistributionPanel
from .decision_boundary import DecisionBoundaryPanel
from .figures import LabFigure, bare_figure, panel_figure, save, stack
from .gradient_flow import GradientFlowPanel
from .ledger_panel import LedgerPanel
from .loss import LossPanel
from .panel import Panel
from .plots import PANELS, Plots, make_panel, overview
from .predictions import PredictionsPanel
from .staleness import StalenessPanel
from .throughput import ThroughputPanel
from .timeline import TimelinePanel

__all__ = [
    "PANELS",
    "AccuracyPanel",
    "DataDistributionPanel",
    "DecisionBoundaryPanel",
    "GradientFlowPanel",
    "LabFigure",
    "LedgerPanel",
    "LossPanel",
    "Panel",
    "Plots",
    "PredictionsPanel",
    "StalenessPanel",
    "ThroughputPanel",
    "TimelinePanel",
    "bare_figure",
    "compare",
    "make_panel",
    "overview",
    "panel_figure",
    "save",
    "stack",
]
