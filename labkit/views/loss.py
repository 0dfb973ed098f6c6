"""Loss on held-out samples at every evaluation. Values above three times the first value are cut off."""

from __future__ import annotations

from typing import ClassVar

from ..trace.query import first_loss
from ..trace.trace import Trace
from . import style
from .curves import Curve
from .evaluations import EvaluationPanel


class LossPanel(EvaluationPanel):
    name: ClassVar[str] = "loss"
    title: ClassVar[str] = "Loss"
    what: ClassVar[str] = "loss"
    quantity: ClassVar[str] = "loss"

    def caption(self, trace: Trace, t: int | None = None) -> str:
        reference = super().caption(trace, t)
        return " · ".join(filter(None, ("on held-out samples", self.part(trace), reference)))

    def curves(self, trace: Trace, t: int) -> list[Curve]:
        return self.both(trace, t, 1.0, ".3g")

    def ceiling(self, trace: Trace, highest: float) -> float:
        """Return the upper limit, at most three times the first loss, so that a diverging loss does not flatten the rest."""
        first = first_loss(trace)
        limit = 3 * first if first is not None and 0 < first < float("inf") else highest
        return style.nice_above(1.06 * min(highest, limit))

    def nothing(self, trace: Trace) -> str:
        timing = trace.header.problem.timing_only
        return "timing-only run: no evaluation" if timing else "no evaluation yet"
