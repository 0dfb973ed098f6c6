"""Several runs in one figure: throughput and accuracy over time.

The first run is blue. The others are grey with different dash patterns. The label at the end of each line has the name,
and the mean throughput of the whole run or the last accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import BadInput
from ..formatting import rate
from ..trace.query import learning_curve, rates
from ..trace.schema import NANO
from ..trace.summary import summary
from ..trace.trace import Trace
from . import style
from .accuracy import AccuracyPanel
from .curves import MOST_CURVES, Curve
from .figures import GUTTER, LabFigure, blank, head, place
from .throughput import ThroughputPanel

_DASHES: tuple[Any, ...] = (
    (0, (4, 2)),
    (0, (1.2, 1.4)),
    (0, (7, 2, 1.5, 2)),
    (0, (8, 3)),
    (0, (3, 1, 1, 1)),
    (0, (2, 2)),
    (0, (12, 3)),
)
SIZE = (462, 250)


def compare(traces: Sequence[Trace], labels: Sequence[str] | None = None) -> LabFigure:
    """Draw the throughput and accuracy of several runs. `labels`: their names, by default the names of their strategies."""
    if not 1 <= len(traces) <= MOST_CURVES:
        raise BadInput(f"compare: {len(traces)} runs; a figure can show 1 to {MOST_CURVES}.")
    names = list(labels) if labels is not None else _names(traces)
    if len(names) != len(traces):
        raise BadInput(f"compare: {len(traces)} runs and {len(names)} labels; give as many of each.")
    figure = blank(2 * SIZE[0] + GUTTER, SIZE[1])
    end = max(trace.watermark() for trace in traces) / NANO
    speed, learned = [], []
    for k, (trace, name) in enumerate(zip(traces, names)):
        look = {"colour": style.BLUE, "width": 2.4, "bold": True} if k == 0 else {
            "colour": style.GREY, "line": _DASHES[k - 1], "width": 1.7}  # fmt: skip
        x, y = rates(trace, trace.watermark())
        # the rate at the end depends on where the budget ended the run
        mean = summary(trace)["gradients_per_second"] or 0.0
        speed.append(Curve(x, y, f"{name} {rate(mean)}/s" if len(y) else "", **look))  # type: ignore[arg-type]
        x, y = learning_curve(trace, trace.watermark(), "accuracy")
        learned.append(Curve(x, 100 * y, f"{name} {y[-1]:.1%}" if len(y) else "", **look))  # type: ignore[arg-type]
    for k, (panel, curves, words) in enumerate(
        (
            (ThroughputPanel(), speed, "gradients per second; numbers: the mean"),
            (AccuracyPanel(), learned, "% of held-out samples"),
        )
    ):
        longest = max(len(c.label) for c in curves)
        panel.outside = True
        panel.margins = (48, min(16 + round(6.8 * longest), SIZE[0] // 2), 36, 10)  # type: ignore[misc]
        left = k * (SIZE[0] + GUTTER)
        place(figure, panel, left, 0, *SIZE, title=True)
        panel.show(curves, max(end, 1e-6), traces[0])
        head(figure, left, 0, panel.title, words, SIZE[0])
    return figure


def _names(traces: Sequence[Trace]) -> list[str]:
    """A name that occurs more than once is numbered."""
    plain = [trace.header.strategy.name for trace in traces]
    return [n if plain.count(n) == 1 else f"{n} {plain[: i + 1].count(n)}" for i, n in enumerate(plain)]
