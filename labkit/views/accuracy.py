"""Accuracy: the share of held-out samples that the model gets right, at every evaluation; dotted is the target of the
budget.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from matplotlib.axes import Axes

from ..trace.trace import Trace
from ..trace.vocabulary import NANO
from . import style
from .curves import Curve, Curves, pinned_run, this_run, until

__all__ = ["Accuracy", "course", "draw"]


def draw(trace: Trace, t: int | None, axes: Axes, pinned: Trace | None = None) -> Accuracy:
    """Held-out accuracy up to `t` (ns) on empty axes."""
    return Accuracy(pinned).draw(trace, t, axes)


def course(trace: Trace, t: int, what: str) -> tuple[np.ndarray, np.ndarray]:
    """(seconds, values) of "accuracy" or "loss" at the evaluations up to `t` ns; values that are not finite are left
    out.
    """
    time, value = trace.column("evaluations", "time", what)
    seen = (time <= t) & np.isfinite(value)
    return time[seen] / NANO, value[seen]


class Accuracy(Curves):
    """See the module."""

    name: ClassVar[str] = "accuracy"
    title: ClassVar[str] = "Accuracy"
    tables: ClassVar[tuple[str, ...]] = ("evaluations",)
    period: ClassVar[int] = 1_000_000_000
    labels_at: ClassVar[tuple[float, float]] = (0.07, 0.12)

    def caption(self, trace: Trace, t: int | None = None) -> str:
        """Percent of what, and what the dashed line is."""
        pinned = super().caption(trace, t)
        return "% of held-out samples" + (f" · {pinned}" if pinned else "")

    def curves(self, trace: Trace, t: int) -> list[Curve]:
        """This run, the pinned one, the target."""
        x, y = course(trace, t, "accuracy")
        found = [this_run(x, 100 * y, f"{y[-1]:.1%}" if len(y) else "")]
        if self.pinned is not None:
            px, py = course(self.pinned, self.pinned.watermark(), "accuracy")
            shown = py[px <= until(trace, t)]
            found.append(pinned_run(px, 100 * py, f"{shown[-1]:.1%}" if len(shown) else ""))
        target = trace.header["budget"].get("accuracy")
        if target is not None and len(x):
            label = f"goal {100 * target:g}%" if len(found) == 1 or abs(target - y[-1]) > 0.15 else ""
            ends = np.array([0.0, until(trace, t)])
            found.append(Curve(ends, np.full(2, 100 * target), label, style.INK, ":", 1.2))
        return found

    def ceiling(self, trace: Trace, highest: float) -> float:
        """Percent end at a hundred."""
        return 103.0

    def nothing(self, trace: Trace) -> str:
        """Regressions and timing-only runs have no accuracy."""
        if trace.header["problem"].get("timing_only"):
            return "timing only: nothing is evaluated"
        return "this problem has no accuracy" if len(trace.tables["evaluations"]) else "nothing evaluated yet"
