"""Results of evaluations on held-out samples, against time, updates or samples.

Curves against time depend on the throughput of a strategy. Curves against updates or samples show the progress per update
or sample. An evaluation records the update after which it was made. The number of samples is this update times the mean
number of samples per update of the run.
"""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from ..errors import nearest
from ..options import is_one_of
from ..trace.query import AGAINST, judged_on, learning_curve
from ..trace.schema import NANO
from ..trace.trace import Trace
from . import style
from .curves import Curve, CurvesPanel, reference_curve, this_run

DOTTED = (0, (1, 1.2))
UNITS = {"time": "seconds", "updates": "updates", "samples": "training samples"}


class EvaluationPanel(CurvesPanel):
    """Base class of accuracy and loss. `against`: one of `AGAINST`."""

    tables: ClassVar[tuple[str, ...]] = ("evaluations", "validations")
    period: ClassVar[int] = 1_000_000_000
    what: ClassVar[str] = ""

    def __init__(self, reference: Trace | None = None, against: str = "time"):
        super().__init__(reference)
        if not is_one_of(against, AGAINST):
            raise nearest("against", against, AGAINST)
        self.against = against

    def setup(self, axes: object) -> Self:
        super().setup(axes)
        self.axes.set_xlabel(UNITS[self.against], **style.text(labelpad=2))
        return self

    def across(self, trace: Trace, t: int, time: int) -> float:
        """Return the position of an event at `time` (ns) on the horizontal axis, interpolated between the neighbouring
        evaluations.
        """
        if self.against == "time":
            return super().across(trace, t, time)
        when, _ = learning_curve(trace, t, "loss")
        x, _ = learning_curve(trace, t, "loss", self.against)
        return float(np.interp(time / NANO, when, x)) if len(x) else -1.0

    def position(self, x: float) -> str:
        return super().position(x) if self.against == "time" else f"{x:,.0f} {UNITS[self.against]}"

    def end(self, trace: Trace, t: int) -> float:
        """Return the end of the horizontal axis at `t` (ns): the last evaluation of a finished run, otherwise a round
        number above it.
        """
        if self.against == "time":
            return super().end(trace, t)
        x, _ = learning_curve(trace, t, "loss", self.against)
        last = float(x[-1]) if len(x) else 0.0
        over = trace.ending is not None and t >= trace.ending["time"]
        return last if over and last > 0 else style.nice_above(1.02 * last)

    def part(self, trace: Trace) -> str:
        """Return what the caption says of the validation part; "" without one."""
        return "dotted: the validation part" if judged_on(trace) == "validations" else ""

    def both(self, trace: Trace, t: int, scale: float, form: str) -> list[Curve]:
        """Return the curves of this run, on the test set and on the validation part if there is one, and of the reference run.
        Values are multiplied by `scale`, and labels are formatted with `form`.
        """
        x, y = learning_curve(trace, t, self.what, self.against)
        found = [this_run(x, scale * y, format(y[-1], form) if len(y) else "")]
        if judged_on(trace) == "validations":
            vx, vy = learning_curve(trace, t, self.what, self.against, "validations")
            found.append(
                Curve(vx, scale * vy, "validation" if len(vy) else "", style.BLUE, DOTTED, 1.6, name="validation")
            )
        if self.reference is not None:
            px, py = learning_curve(self.reference, self.reference.watermark(), self.what, self.against)
            shown = py[px <= self.end(trace, t)]
            found.append(reference_curve(px, scale * py, format(shown[-1], form) if len(shown) else ""))
        return found
