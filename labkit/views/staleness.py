"""Staleness: how many updates were applied between reading the weights and applying the gradient that was computed on
them.

Blue is the share of gradients with each staleness, red is what the strategy's law says the mean must be, dashed grey is
how it was before something was disturbed (or a pinned run), and an orange pin is the mean of each slowed worker.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.ticker import MaxNLocator

from ..trace.measures import staleness, staleness_law, staleness_rows
from ..trace.trace import Trace
from . import style
from .marks import factors, short, slowed
from .panel import Panel, moment

__all__ = ["Staleness", "draw", "histogram"]

MOST_BARS, ENOUGH = 40, 20


def draw(trace: Trace, t: int | None, axes: Axes, pinned: Trace | None = None) -> Staleness:
    """Staleness of all gradients applied up to `t` (ns) on empty axes."""
    return Staleness(pinned).draw(trace, t, axes)


def histogram(trace: Trace, t: int, first: int = 0) -> dict[int, int]:
    """{staleness: gradients} applied in [first, t]: from the counters where they say the same, else counted from the
    rows.
    """
    if first <= 0 and t >= trace.watermark():
        return {int(k): n for k, n in staleness(trace)["histogram"].items()}
    _, stale, count = staleness_rows(trace, first, t)
    values, where = np.unique(stale, return_inverse=True)
    return dict(zip(values.tolist(), np.bincount(where, count, len(values)).astype(int).tolist()))


class Staleness(Panel):
    """See the module."""

    name: ClassVar[str] = "staleness"
    title: ClassVar[str] = "Staleness"
    tables: ClassVar[tuple[str, ...]] = ("applies",)

    def __init__(self, pinned: Trace | None = None):
        self.pinned = pinned

    def setup(self, axes: Axes) -> Self:
        """Bars, a law, a comparison, pins."""
        super().setup(axes)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
        axes.set_xlabel("updates applied since the weights were read", **style.text(labelpad=2))
        self.bars = PolyCollection([], facecolors=style.BLUE, edgecolors="none", zorder=2)
        axes.add_collection(self.bars, autolim=False)
        (self.before,) = axes.plot(
            [], [], color=style.GREY, linestyle="--", linewidth=1.3, drawstyle="steps-mid", zorder=3
        )
        (self.law,) = axes.plot([], [], color=style.RED, linewidth=1.8, zorder=4)
        across = axes.get_xaxis_transform()
        self.law_text = style.write(axes, 0, 0.93, "", style.RED, style.NORMAL, va="center", transform=across)
        self.law_text.set_path_effects(style.halo())
        self.pins: list[tuple[Any, Any]] = []
        for _ in range(3):
            (line,) = axes.plot([], [], color=style.ORANGE, linewidth=1.8, transform=across, zorder=5)
            words = style.write(axes, 0, 0.40, "", style.ORANGE, style.NORMAL, ha="center", transform=across)
            words.set_path_effects(style.halo())
            self.pins.append((line, words))
        return self

    def caption(self, trace: Trace, t: int | None = None) -> str:
        """Share of gradients; and what the dashed line is, if there is one."""
        then = self._compared(trace, moment(trace, t))
        kept = "a sample of the gradients" if trace.tables["applies"].skipped else "gradients"
        return f"share of {kept}" + (f" · dashed: {then[1]}" if then else "")

    def update(self, trace: Trace, t: int | None = None) -> None:
        """Bars up to `t`, the law, the comparison, the pins."""
        t = moment(trace, t)
        counts = histogram(trace, t)
        self.note.set_text("" if counts else "no gradient applied yet")
        then = self._compared(trace, t)
        law = staleness_law(trace)
        largest = max([*counts, *(then[0] if then else ()), int(2 * law[0]) if law else 0, 5])
        wide = max(1, -(-(largest + 1) // MOST_BARS))
        left, share = _binned(counts, wide)
        self.bars.set_verts(_bars(left, share, wide))  # type: ignore[arg-type]
        high = max(share, default=0.0)
        if then:
            x, y = _binned(then[0], wide)
            y = [0.0, *y, 0.0]
            self.before.set_data([x[0] - wide, *x, x[-1] + wide], y)
            self.before.set_xdata(np.asarray(self.before.get_xdata()) + (wide - 1) / 2)
            high = max(high, *y)
        else:
            self.before.set_data([], [])
        self.axes.set_xlim(-0.5 - 0.03 * largest, largest + 0.6 + 0.02 * largest)
        self.axes.set_ylim(0, style.nice_above(1.12 * high) if counts else 1.0)
        self._law(law if counts else None, largest)
        self._pins(trace, t, law)

    def _compared(self, trace: Trace, t: int) -> tuple[dict[int, int], str] | None:
        disturbed = [(steps[0][0], role) for role, steps in factors(trace, t).items() if steps[0][0] > 0]
        if disturbed:
            time, role = min(disturbed)
            counts = histogram(trace, time - 1)
            if sum(counts.values()) >= ENOUGH and len(counts) > 1:
                return counts, f"before {short(trace.roles[role])} slowed"
        elif self.pinned is not None:
            counts = histogram(self.pinned, self.pinned.watermark())
            if counts:
                return counts, f"pinned, {self.pinned.header['strategy']['name']}"
        return None

    def _law(self, law: tuple[float, str] | None, largest: float) -> None:
        if law is None:
            self.law.set_data([], [])
            self.law_text.set_text("")
            return
        at, words = law
        self.law.set_data([at, at], [0, self.axes.get_ylim()[1]])
        right = at < 0.55 * largest
        self.law_text.set_text(f"law: {words}")
        self.law_text.set_x(at + (0.025 if right else -0.025) * largest)
        self.law_text.set_horizontalalignment("left" if right else "right")

    def _pins(self, trace: Trace, t: int, law: tuple[float, str] | None) -> None:
        slow, found = slowed(trace, t), []
        if slow:
            since = min(factors(trace, t)[role][-1][0] for role in slow)
            sender, stale, count = staleness_rows(trace, since, t)
            for role in sorted(slow)[: len(self.pins)]:
                mine = sender == role
                mean = float(np.average(stale[mine], weights=count[mine])) if count[mine].sum() else None
                if mean is not None and (law is None or abs(mean - law[0]) >= 1):
                    found.append((role, mean))
        for (line, words), pin in zip(self.pins, [*found, *[None] * len(self.pins)]):
            words.set_text(short(trace.roles[pin[0]]) if pin else "")
            words.set_x(pin[1] if pin else 0)
            line.set_data([pin[1]] * 2 if pin else [], [0.14, 0.36] if pin else [])


def _binned(counts: dict[int, int], wide: int) -> tuple[list[int], list[float]]:
    """Left edges and shares of bars that are `wide` values wide, without gaps."""
    total = sum(counts.values())
    if not total:
        return [], []
    sums = [0] * (max(counts) // wide + 1)
    for value, count in counts.items():
        sums[value // wide] += count
    return [i * wide for i in range(len(sums))], [s / total for s in sums]


def _bars(left: list[int], share: list[float], wide: int) -> np.ndarray:
    x0 = np.asarray(left, dtype=float) - 0.5 + 0.1 * wide
    x1, top, zero = x0 + 0.8 * wide, np.asarray(share, dtype=float), np.zeros(len(left))
    return np.stack([x0, zero, x0, top, x1, top, x1, zero], axis=-1).reshape(-1, 4, 2)
