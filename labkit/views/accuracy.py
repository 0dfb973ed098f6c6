"""Accuracy: share of held-out samples that are classified correctly, at every evaluation. The dotted line is the budget's
target.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ..trace.trace import Trace
from . import style
from .curves import Curve
from .evaluations import EvaluationPanel


class AccuracyPanel(EvaluationPanel):
    name: ClassVar[str] = "accuracy"
    title: ClassVar[str] = "Accuracy"
    what: ClassVar[str] = "accuracy"
    quantity: ClassVar[str] = "accuracy (%)"

    def caption(self, trace: Trace, t: int | None = None) -> str:
        reference = super().caption(trace, t)
        return " · ".join(filter(None, ("% of held-out samples", self.part(trace), reference)))

    def curves(self, trace: Trace, t: int) -> list[Curve]:
        found = self.both(trace, t, 100.0, ".1%")
        target = trace.header.budget.accuracy
        if target is not None and len(found[0].x):
            near = abs(100 * target - found[0].y[-1]) <= 15
            label = f"target {100 * target:g}%" if len(found) == 1 or not near else ""
            ends = np.array([0.0, self.end(trace, t)])
            found.append(Curve(ends, np.full(2, 100 * target), label, style.INK, ":", 1.2, name="target"))
        return found

    def value(self, y: float) -> str:
        return f"{y:.2f}%"

    def ceiling(self, trace: Trace, highest: float) -> float:
        """Return 100 percent, plus room for a label."""
        return 112.0

    def nothing(self, trace: Trace) -> str:
        if trace.header.problem.timing_only:
            return "timing-only run: no evaluation"
        known = trace.column("evaluations", "accuracy")
        return "this problem has no accuracy" if len(known) and np.isnan(known).all() else "no evaluation yet"
