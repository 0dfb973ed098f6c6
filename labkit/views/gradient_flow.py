"""Gradient flow: the length of each worker's newest gradient, layer by layer.

Layers stand left to right as data flow forward; gradients flow from right to left. The colour compares a worker with
the others: its norm over the layer's median, darker orange above it, darker grey-blue below. One pale column is a
healthy layer.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb

from ..trace.trace import Trace
from . import style
from .marks import short, slowed
from .panel import Panel, moment

__all__ = ["GradientFlow", "draw", "newest_norms"]

MOST_ROWS, MOST_WRITTEN = 40, 10
BELOW, MIDDLE, ABOVE = "#b9c0e0", "#f6f6f8", "#fbb669"


def draw(trace: Trace, t: int | None, axes: Axes) -> GradientFlow:
    """The newest gradient norms at `t` (ns) on empty axes."""
    return GradientFlow().draw(trace, t, axes)


def newest_norms(trace: Trace, t: int) -> tuple[list[int], np.ndarray]:
    """(workers, norms of shape (workers, layers)) of each worker's newest recorded gradient; NaN where none is."""
    role, time, layer, norm = trace.column("norms", "role", "time", "layer", "gradient")
    seen = time <= t
    role, layer, norm = role[seen].astype(int), layer[seen].astype(int), norm[seen]
    workers = trace.role_ids("worker") or sorted(set(role.tolist()))
    layers = max(len(trace.header["layers"]), int(layer.max(initial=-1)) + 1)
    place = np.full(len(trace.roles), -1)
    place[workers] = np.arange(len(workers))
    values = np.full((len(workers), layers), np.nan)
    mine = place[role] >= 0
    values[place[role[mine]], layer[mine]] = norm[
        mine
    ]  # rows come in order of time for each worker: the last one stays
    return workers, values


class GradientFlow(Panel):
    """See the module."""

    name: ClassVar[str] = "gradient_flow"
    title: ClassVar[str] = "Gradient flow"
    margins: ClassVar[tuple[int, int, int, int]] = (48, 14, 36, 24)
    tables: ClassVar[tuple[str, ...]] = ("norms",)

    def setup(self, axes: Axes) -> Self:
        """Axes without lines, an arrow that points the way."""
        super().setup(axes)
        style.calm(axes, grid=None)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.tick_params(length=0)
        self.arrow = axes.annotate(
            "", xy=(0, 1.075), xytext=(1, 1.075), xycoords="axes fraction", annotation_clip=False,
            arrowprops={"arrowstyle": "->", "color": style.FAINT, "linewidth": 1.0, "shrinkA": 0, "shrinkB": 0},
        )  # fmt: skip
        self.way = style.write(
            axes, 0.5, 1.075, "gradients flow backward", ha="center", va="center", transform=axes.transAxes,
            bbox={"facecolor": style.PAPER, "edgecolor": "none", "pad": 2},
        )  # fmt: skip
        self._shape: Any = None
        self.image: Any = None
        self.cells: list[Any] = []
        return self

    def caption(self, trace: Trace, t: int | None = None) -> str:
        """What number and colour are."""
        workers = len(trace.role_ids("worker"))
        if workers > MOST_ROWS and len(trace.tables["norms"]):
            return f"against the layer's median · {MOST_ROWS} of {workers:,} workers"
        return "norm · colour: against the layer's median"

    def update(self, trace: Trace, t: int | None = None) -> None:
        """Write and colour the newest norms."""
        t = moment(trace, t)
        workers, values = newest_norms(trace, t)
        known = bool(np.isfinite(values).any())
        self.arrow.set_visible(known)
        self.way.set_visible(known)
        self.axes.xaxis.set_visible(known)
        self.axes.yaxis.set_visible(known)
        timing = trace.header["problem"].get("timing_only")
        self.note.set_text(
            "" if known else "timing only: there are no gradients to show" if timing else "no gradient yet"
        )
        for shown in (self.image, *self.cells) if self.image is not None else ():
            shown.set_visible(known)
        if not known:
            return
        with np.errstate(all="ignore"):
            ratio = values / np.nanmedian(np.where(np.isfinite(values).any(0), values, 1.0), axis=0)
        if len(workers) > MOST_ROWS:
            chosen = np.unique(np.linspace(0, len(workers) - 1, MOST_ROWS).round().astype(int))
            workers, values, ratio = [workers[i] for i in chosen], values[chosen], ratio[chosen]
        self._grid(trace, t, workers, values.shape)
        self.image.set_data(_colours(ratio))
        for cell, value in zip(self.cells, values.ravel().tolist()):
            cell.set_text(_written(value))

    def axes_key(self) -> Any:
        """Ticks are set by hand, one a worker and one a layer."""
        return self._shape, self.axes.xaxis.get_visible()

    def _grid(self, trace: Trace, t: int, workers: list[int], shape: tuple[int, ...]) -> None:
        slow = slowed(trace, t)
        state = (tuple(workers), shape, tuple(slow))
        if state == self._shape:
            return
        self._shape = state
        rows, columns = shape
        if self.image is not None:
            self.image.remove()
            for cell in self.cells:
                cell.remove()
        self.image = self.axes.imshow(np.ones((rows, columns, 3)), aspect="auto", interpolation="nearest", zorder=1)
        every = 1 if rows <= 12 else 4
        ticks = range(0, rows, every)
        self.axes.set_yticks(list(ticks), [short(trace.roles[workers[k]]) for k in ticks])
        for k, label in zip(ticks, self.axes.get_yticklabels()):
            label.set_color(style.ORANGE if workers[k] in slow else style.GREY)
        names = [*trace.header["layers"], *(f"layer {i}" for i in range(len(trace.header["layers"]), columns))]
        sparse = max(1, -(-columns // 8))
        self.axes.set_xticks(range(0, columns, sparse), [_spaced(n) for n in names[::sparse]])
        write = rows <= MOST_WRITTEN and columns <= 8
        self.cells = [
            style.write(self.axes, x, y, "", style.INK, style.NORMAL, ha="center", va="center", zorder=3)
            for y in range(rows if write else 0)
            for x in range(columns)
        ]


def _colours(ratio: np.ndarray) -> np.ndarray:
    """RGB of each cell: half the median and less is `BELOW`, twice and more is `ABOVE`, nothing known is paper."""
    low, middle, high, paper = (np.array(to_rgb(c)) for c in (BELOW, MIDDLE, ABOVE, style.PAPER))
    with np.errstate(all="ignore"):
        where = np.clip(np.log2(ratio), -1.0, 1.0)[..., None]
    mixed = np.where(where < 0, middle + (low - middle) * -where, middle + (high - middle) * where)
    return np.where(np.isnan(where), paper, mixed)


def _written(value: float) -> str:
    if np.isnan(value):
        return ""
    return f"{value:.2f}" if 0.01 <= value < 100 else f"{value:.0f}" if 100 <= value < 1e5 else f"{value:.1e}"


def _spaced(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=\d)", " ", name)
