"""Gradient noise scale over time, and the batch of an update.

While the batch is smaller than the scale, twice as many workers need about half as many updates. Batches that are larger need
hardly fewer updates. The scale increases in the course of a training. Each point is an average over the newest half of the run.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ..trace.gradient_noise import noise_scale_history, unmeasured
from ..trace.query import samples_per_update
from ..trace.schema import NANO
from ..trace.trace import Trace
from . import style
from .curves import Curve, CurvesPanel, this_run

MOST = 4  # the vertical axis ends at so many times the newest value or the batch: the first values are very noisy


class NoiseScalePanel(CurvesPanel):
    name: ClassVar[str] = "noise_scale"
    title: ClassVar[str] = "Gradient noise scale"
    quantity: ClassVar[str] = "samples"
    tables: ClassVar[tuple[str, ...]] = ("gradient_noise", "applies")
    period: ClassVar[int] = 1_000_000_000

    def __init__(self) -> None:
        super().__init__(None)

    def caption(self, trace: Trace, t: int | None = None) -> str:
        return "in samples · dashed: batch of an update"

    def curves(self, trace: Trace, t: int) -> list[Curve]:
        x, scale = noise_scale_history(trace, t)
        batch = samples_per_update(trace, t)
        self._limit = MOST * max(float(scale[-1]), batch) if len(x) else 0.0
        found = [this_run(x, scale, f"{scale[-1]:,.0f}" if len(x) else "")]
        if len(x):
            ends, label = np.array([0.0, t / NANO]), f"batch {batch:,.0f}"
            found.append(
                Curve(ends, np.full(2, batch), label, style.GREY, (0, (4, 2.5)), 1.6, name="batch of an update")
            )
        return found

    def ceiling(self, trace: Trace, highest: float) -> float:
        return style.nice_above(1.06 * min(highest, self._limit) if self._limit else highest)

    def nothing(self, trace: Trace) -> str:
        measured = len(trace.tables["gradient_noise"])
        return "the noise hides the gradient" if measured else unmeasured(trace)
