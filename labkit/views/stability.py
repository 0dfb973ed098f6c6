"""Stability: the largest stable step size by the staleness of gradients, and the position of this run.

On the loss f = 1/2 lambda w^2, with gradients that are always tau updates old, the weight is w(k+1) = w(k) - a w(k -
tau), with a = rate x lambda. It converges if and only if all roots z of z^(tau+1) - z^tau + a = 0 lie inside the unit
circle, i.e.

    a < 2 sin(pi / (2 (2 tau + 1)))            the red edge: 2 for tau = 0, 1 for tau = 1, .445 for tau = 3

The dashed line is a = tau^tau / (tau+1)^(tau+1): up to this value the dominant root is real, so that the weight does not
oscillate. If there are several curvatures, the largest one is decisive. Both lines are for plain SGD at constant
staleness. The dot is at the mean staleness of the recently applied gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from ..trace.index import Lookup
from ..trace.query import staleness_between
from ..trace.role_states import slowdowns, workers_of
from ..trace.trace import Trace
from . import style
from .event_labels import option_steps
from .label_placement import pixels_of
from .panel import Panel, Stops, moment

POINTS = 200
THIS_RUN, AWAY = "this run", 14  # pixels between the centres of the dot and the label


def edge(tau: Any) -> Any:
    """Return the largest rate x curvature that is stable at constant staleness `tau`."""
    return 2 * np.sin(np.pi / (2 * (2 * np.asarray(tau, float) + 1)))


def smooth_edge(tau: Any) -> Any:
    """Return the largest rate x curvature at which the weight does not oscillate, at constant staleness `tau`."""
    tau = np.asarray(tau, float)
    return np.exp(np.where(tau > 0, tau * np.log(np.maximum(tau, 1e-300)), 0.0) - (tau + 1) * np.log1p(tau))


@dataclass(frozen=True)
class StabilityPoint:
    """The position of a run.

    `tau`: mean staleness. `rate`: the rate of one step. `product`: rate x largest curvature; None if the curvature is
    unknown.
    """

    tau: float
    rate: float
    product: float | None

    @property
    def stable(self) -> bool | None:
        """Whether the position is stable; None if the curvature is unknown."""
        return None if self.product is None else bool(self.product < edge(self.tau))


def locate_run(trace: Trace, t: int, lookup: Lookup | None = None) -> StabilityPoint | None:
    """Return the position of the run at `t` ns, or None before the first gradient is applied."""
    options = trace.header.strategy.options
    steps = option_steps(trace, "learning_rate", t)
    changed = [time for time, _ in steps] + [time for who in slowdowns(trace, t).values() for time, _ in who]
    since = max((time for time in changed if time <= t), default=0)
    _, stale, count = staleness_between(
        trace, (since + t) // 2, t, lookup
    )  # the first half is left out, because it may be from the previous state
    if not count.sum():
        _, stale, count = staleness_between(trace, 0, t, lookup)
    if not count.sum() or not steps:
        return None
    tau, rate = float(np.average(stale, weights=count)), steps[-1][1]
    if options.get("staleness_aware"):
        rate *= float(np.average(1 / np.maximum(stale, 1), weights=count))
    if options.get("reduce") == "sum":
        rate *= len(workers_of(trace))
    curvature = trace.header.problem.curvature
    return StabilityPoint(tau, rate, None if curvature is None else rate * float(max(curvature)))


class StabilityPanel(Panel):
    name: ClassVar[str] = "stability"
    title: ClassVar[str] = "Stability"
    margins: ClassVar[tuple[int, int, int, int]] = (70, 20, 36, 8)
    tables: ClassVar[tuple[str, ...]] = ("applies",)

    def __init__(self) -> None:
        self._lookup = Lookup()

    def setup(self, axes: Axes) -> Self:
        super().setup(axes)
        axes.set_yscale("log")
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_minor_formatter(NullFormatter())
        style.numbers(axes)
        axes.set_xlabel("staleness, in updates", **style.text(labelpad=2))
        axes.set_ylabel("rate × curvature", **style.text(labelpad=2))
        self.side = PolyCollection([], facecolors=style.BLUE_FILL, alpha=0.3, linewidths=0, zorder=1)
        axes.add_collection(self.side, autolim=False)
        (self.edge,) = axes.plot([], [], color=style.RED, linewidth=2.2, zorder=3)
        (self.smooth,) = axes.plot([], [], color=style.GREY, linewidth=1.5, linestyle=(0, (4, 2.5)), zorder=2)
        (self.way,) = axes.plot([], [], color=style.GREY, linewidth=1.2, linestyle=(0, (2, 2)), zorder=4)
        (self.was,) = axes.plot([], [], "o", markersize=6, color=style.PAPER, markeredgecolor=style.GREY, zorder=4)
        (self.guide,) = axes.plot([], [], color=style.BLUE, linewidth=1.3, linestyle=":", zorder=4)
        (self.dot,) = axes.plot([], [], "o", markersize=10, markeredgecolor=style.PAPER, markeredgewidth=1.5, zorder=6)
        self.edge_text = style.write(axes, 0, 0, "the edge", style.RED, va="bottom", zorder=5)
        self.smooth_text = style.write(axes, 0, 0, "below: no oscillation", va="top", ha="right", zorder=5)
        inside: dict[str, Any] = {"transform": axes.transAxes, "zorder": 5}
        self.dot_text = style.write(axes, 0, 0, THIS_RUN, size=style.NORMAL, fontweight="bold", va="center", **inside)
        self.stable_text = style.write(axes, 0.02, 0.06, "stable", style.BLUE, va="bottom", **inside)
        self.aside = style.write(axes, 0.985, 0.95, "", ha="right", va="top", linespacing=1.35, **inside)
        for words in (self.edge_text, self.smooth_text, self.dot_text, self.aside):
            words.set_path_effects(style.halo())
        return self

    def caption(self, trace: Trace, t: int | None = None) -> str:
        place = locate_run(trace, moment(trace, t), self._lookup)
        options = trace.header.strategy.options
        plain = options.get("optimizer") == "SGD()" and not options.get("compensation")
        aside = "" if plain else " · for plain SGD"
        if place is None:
            return "largest stable step" + aside
        limit = float(edge(place.tau))
        if place.product is None:
            return f"edge of stability at staleness {place.tau:.3g}: {limit:.3g}{aside}"
        return f"{'stable' if place.stable else 'unstable'}: {place.product:.3g}, edge at {limit:.3g}{aside}"

    def update(self, trace: Trace, t: int | None = None) -> None:
        t = moment(trace, t)
        place = locate_run(trace, t, self._lookup)
        right = style.nice_above(max(8.0, 1.25 * place.tau if place else 0.0))
        tau = np.linspace(0, right, POINTS)
        inside = [place.product] if place is not None and place.product else []
        low = min([0.35 * float(smooth_edge(right)), *(0.5 * p for p in inside)])
        high = max([3.5, *(2.5 * p for p in inside)])
        self.axes.set_xlim(-0.03 * right, right)
        self.axes.set_ylim(low, high)
        self.axes.yaxis.set_major_locator(LogLocator(10, (1.0, 2.0, 5.0) if high / low < 60 else (1.0,), numticks=6))
        self.edge.set_data(tau, edge(tau))
        self.smooth.set_data(tau, smooth_edge(tau))
        self.side.set_verts([np.r_[np.c_[tau, edge(tau)], [[right, low], [0, low]]]])
        named = (0.2 if inside else 0.5) * right
        self.edge_text.set_position((named, 1.12 * float(edge(named))))
        self.smooth_text.set_position((0.985 * right, 0.88 * float(smooth_edge(right))))
        self._draw_run(place)
        self._draw_previous(trace, t, place)

    def readout(self, trace: Trace, t: int, x: float, y: float) -> str:
        if x < 0:
            return ""
        said = [f"staleness {x:.4g}: edge {float(edge(x)):.4g}", f"no oscillation below {float(smooth_edge(x)):.4g}"]
        place = locate_run(trace, t, self._lookup)
        if place is not None:
            product = "unknown" if place.product is None else f"{place.product:.4g}"
            said.append(f"this run: staleness {place.tau:.4g}, rate × curvature {product}")
        return "\n".join(said)

    def table(self, trace: Trace, t: int) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        place = locate_run(trace, t, self._lookup)
        rows: list[tuple[Any, ...]] = []
        if place is not None:
            rows.append(("this run", place.tau, "" if place.product is None else place.product))
        for name, limit in (("edge", edge), ("no oscillation below", smooth_edge)):
            rows += [(name, tau, float(limit(tau))) for tau in range(int(self.axes.get_xlim()[1]) + 1)]
        return ("what", "staleness (updates)", "rate × curvature"), rows

    def stops(self, trace: Trace, t: int) -> list[Stops]:
        place = locate_run(trace, t, self._lookup)
        taus = {*map(float, range(int(self.axes.get_xlim()[1]) + 1)), *([place.tau] if place is not None else [])}
        return [[(tau, float(edge(tau))) for tau in sorted(taus)]]

    def _draw_run(self, place: StabilityPoint | None) -> None:
        """Draw the dot, its label, and its distance from the edge, or write the reason why there is no dot."""
        for line in (self.dot, self.guide):
            line.set_data([], [])
        self.dot_text.set_text("")
        self.aside.set_text("no gradient applied yet" if place is None else "")
        if place is None:
            return
        limit = float(edge(place.tau))
        if place.product is None:
            self.guide.set_data([place.tau] * 2, [self.axes.get_ylim()[0], limit])
            self.guide.set_color(style.BLUE)
            self.aside.set_text("curvature unknown;\nuse Problem('quadratic')")
            return
        colour = style.BLUE if place.stable else style.RED
        self.dot.set_data([place.tau], [place.product])
        self.dot.set_markerfacecolor(colour)
        self.guide.set_data([place.tau] * 2, [place.product, limit])
        self.guide.set_color(colour)
        wide, high = pixels_of(self.axes)
        to_axes = self.axes.transData - self.axes.transAxes
        half = style.width(THIS_RUN, style.NORMAL, bold=True) / wide / 2
        x, y = to_axes.transform((place.tau, place.product))
        above = not place.stable
        if x - half < 0.01:  # where the curves are steep, there is room for labels only above them
            x, y = x + half, to_axes.transform((place.tau, max(place.product, limit)))[1]
            above = True
        self.dot_text.set(text=THIS_RUN, color=colour, x=min(x - half, 0.99 - 2 * half))
        self.dot_text.set_y(y + (AWAY if above else -AWAY) / high)

    def _draw_previous(self, trace: Trace, t: int, place: StabilityPoint | None) -> None:
        steps = option_steps(trace, "learning_rate", t)
        was = locate_run(trace, steps[-1][0] - 1, self._lookup) if len(steps) > 1 and place is not None else None
        if was is None or place is None or was.product is None or place.product is None:
            self.was.set_data([], [])
            self.way.set_data([], [])
            return
        self.was.set_data([was.tau], [was.product])
        self.way.set_data([was.tau, place.tau], [was.product, place.product])
