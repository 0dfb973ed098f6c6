"""Clocks: the lead of each worker over the slowest worker, in gradients, over time (see `trace.clocks`).

In a run with an option `s`, no line crosses the red bound, because a worker that is ahead waits there. With more than six
workers, only the leading worker, the slowed workers and a band with 90% of the workers are drawn.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.ticker import MaxNLocator

from ..formatting import short
from ..trace.clocks import Clocks, binned_maximum, roles_with_clock
from ..trace.query import computed_gradients, gradient_time, sampled
from ..trace.role_states import conditions, slowed
from ..trace.schema import NANO
from ..trace.trace import Trace
from . import style
from .curves import Curve, CurvesPanel, until
from .event_labels import option_steps

MOST_LINES, MOST_BINS = 6, 100
BOUND = "bound"


class ProgressPanel(CurvesPanel):
    name: ClassVar[str] = "progress"
    title: ClassVar[str] = "Worker clocks"
    quantity: ClassVar[str] = "gradients ahead of the slowest"
    tables: ClassVar[tuple[str, ...]] = ("spans", "progress")

    def setup(self, axes: Any) -> Self:
        super().setup(axes)
        axes.yaxis.set_major_locator(MaxNLocator(3, integer=True, steps=[1, 2, 5, 10]))
        self._clocks = Clocks()
        self._roof, self._even = 0.0, False  # the highest bound in the panel; whether no worker was ever ahead
        self.band = PolyCollection([], facecolors=style.BLUE_FILL, alpha=0.6, linewidths=0, zorder=1.5)
        axes.add_collection(self.band, autolim=False)
        return self

    def caption(self, trace: Trace, t: int | None = None) -> str:
        if sampled(trace, "spans"):
            return "gradients applied, ahead of the slowest worker"
        many = len(roles_with_clock(trace)) > MOST_LINES
        return "gradients ahead of the slowest" + (" · band: 90%" if many else " worker")

    def curves(self, trace: Trace, t: int) -> list[Curve]:
        """Return the curves of the bound, the leading worker, the slowed workers, and, if there are few workers, all
        other workers.
        """
        found = self._clocks.leads(trace, t)
        self.band.set_verts([])
        self._roof = 0.0
        self._even = found.lead.size > 0 and not found.lead.any()
        if len(found.roles) < 2 or not found.lead.any() or t <= 0:
            return []
        edges, most = binned_maximum(found, 0, t, int(np.clip(t / (2 * gradient_time(trace)), 1, MOST_BINS)))
        gone, ahead = conditions(trace, t), most[:, -1]
        slow = {*slowed(trace, t), *gone}
        front = int(np.lexsort((-found.lead[:, -1], -ahead))[0])
        few = len(found.roles) <= MOST_LINES

        def line(i: int, colour: str, width: float, bold: bool = False) -> Curve:
            how = gone.get(found.roles[i]) or (f"{ahead[i]:,} ahead" if ahead[i] else "last")
            words = f"{short(trace.roles[found.roles[i]])}, {how}"
            label = words if i == front or found.roles[i] in slow else ""
            name = short(trace.roles[found.roles[i]])
            return Curve(
                *_step_function(edges / NANO, np.r_[most[i], most[i, -1]]), label, colour, "-", width, bold, name
            )

        rest = [i for i in range(len(found.roles)) if i != front]
        made = [line(front, style.ORANGE if found.roles[front] in slow else style.BLUE, 2.4, True)]
        made += [line(i, style.ORANGE, 1.8) for i in rest if found.roles[i] in slow][:3]
        if few:
            made += [line(i, style.BLUE_LINE, 1.3) for i in rest if found.roles[i] not in slow]
        else:
            x, low = _step_function(edges / NANO, np.percentile(np.c_[most, most[:, -1]], 5, axis=0))
            _, high = _step_function(edges / NANO, np.percentile(np.c_[most, most[:, -1]], 95, axis=0))
            self.band.set_verts([np.stack([np.r_[x, x[::-1]], np.r_[low, high[::-1]]], axis=-1)])
        return self._bound(trace, t, int(most.max()), 1 if found.applied else 0) + made

    def _bound(self, trace: Trace, t: int, reached: int, more: int) -> list[Curve]:
        """Return the red line of the bound. It is drawn slightly above the bound, so that a worker at the bound is
        visible.
        """
        steps = option_steps(trace, "s", t)
        if not steps:
            return []
        s = steps[-1][1]
        if s + more > 4 * reached + 4:
            return []
        self._roof = max(value + more for _, value in steps)
        hair = 0.02 * self.ceiling(trace, reached)
        x, y = _step_function(
            np.array([*(time for time, _ in steps), until(trace, t) * NANO]) / NANO,
            np.array([*(value + more + hair for _, value in steps), s + more + hair]),
        )
        words = f"bound: s + 1 = {s + 1:,g}" if more else f"bound: s = {s:,g}"
        return [Curve(x, y, words, style.RED, "-", 1.8, name=BOUND)]

    def readout(self, trace: Trace, t: int, x: float, y: float) -> str:
        found, names = self._clocks.leads(trace, t), [curve.name for curve in self._shown(trace, t)]
        k = int(np.searchsorted(found.time, round(x * NANO), side="right")) - 1
        if k < 0:
            return ""
        bound = (
            [time_and_value[1] for time_and_value in option_steps(trace, "s", round(x * NANO))]
            if BOUND in names
            else []
        )
        said = [f"bound: {bound[-1] + (1 if found.applied else 0):g} ahead"] if bound else []
        for role, lead in zip(found.roles, found.lead[:, k].tolist()):
            if short(trace.roles[role]) in names:
                said.append(f"{short(trace.roles[role])}: {f'{lead:,} ahead of the slowest' if lead else 'last'}")
        return "\n".join([f"at {self.position(x)}", *said])

    def table(self, trace: Trace, t: int) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        found = self._clocks.leads(trace, t)
        rows: list[tuple[Any, ...]] = []
        for role, lead in zip(found.roles, found.lead):
            new = np.flatnonzero(np.diff(lead, prepend=-1))
            rows += [(trace.roles[role], found.time[k].item() / NANO, lead[k].item()) for k in new]
        return ("role", "seconds", self.quantity), rows

    def ceiling(self, trace: Trace, highest: float) -> float:
        """Return the upper limit of the vertical axis. It includes the bound, unless no worker comes near the bound."""
        return style.nice_above(max(1.06 * min(highest, 1e9), 1.25 * self._roof, 1.0))

    def nothing(self, trace: Trace) -> str:
        """Return the reason why there are no curves. A single clock has no lead, and in a synchronous run no worker gets
        ahead.
        """
        if len(roles_with_clock(trace)) < 2:
            return "only one worker clock"
        if self._even:
            return "synchronous: all workers are at the same step"
        return "only totals were recorded" if computed_gradients(trace) else "no gradient yet"


def _step_function(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Convert points to a step function, in which each value holds until the next x."""
    return np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]
