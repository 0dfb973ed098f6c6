"""Gradient flow: norm of each worker's newest gradient, layer by layer.

Layers are ordered from left to right in the direction of the forward pass, so gradients flow from right to left. The
colour compares a worker with the other workers: orange means that its norm is above the layer's median, grey-blue that it
is below. If a column is pale, the workers agree. Below each layer is the size of a step relative to the layer's weights:
about 0.001 is usual, much more is unstable, and much less means that training hardly progresses. With more than twelve
workers, three percentiles and the slowed workers are shown.

If the backward pass is computed in pieces, a row fills from its last layer to its first one: norms of the previous gradient
that was measured are faint until those of the new one are known. The stripe above a layer is its colour in the timeline.
"""

from __future__ import annotations

import itertools
import math
import re
from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from ..formatting import short
from ..trace.query import NO_NORM, Norms, medians, relative_steps, totals_only
from ..trace.role_states import slowed, workers_of
from ..trace.trace import Trace
from . import style
from .event_labels import option_steps
from .label_placement import pixels_of
from .panel import Panel, Stops, moment

MOST_ROWS, MOST_SLOWED = 12, 3
WAY = "gradients flow backward"
SHARES = (("95%", 95.0), ("50%", 50.0), ("5%", 5.0))
TINY = 7.5  # points
LEAST = 10  # pixels between the names of two rows
BELOW, ABOVE = ("#7381c1", 0.5), ("#f98f18", 0.45)  # colour, and the largest opacity at which numbers are legible
PALE = 0.04  # opacity at the median
EARLIER = 0.25  # relative opacity of the norms of an earlier gradient
STRIPE = 4  # pixels
FULL = 2.0  # full colour at 2^2 times the median, and at 1/2^2 of it


def step_rate(trace: Trace, t: int) -> float | None:
    """Return the factor by which a gradient is multiplied to give a step at `t` (ns), or None if a step is not such a
    multiple.

    A step is the rate times the gradient only for plain SGD at a constant rate. The gradient is that of one worker,
    before any mean over workers.
    """
    options = trace.header.strategy.options
    plain = options.get("optimizer") == "SGD()" and options.get("schedule") == "Constant()"
    rates = option_steps(trace, "learning_rate", t) if plain else []
    return rates[-1][1] if rates else None


class GradientFlowPanel(Panel):
    name: ClassVar[str] = "gradient_flow"
    title: ClassVar[str] = "Gradient flow"
    margins: ClassVar[tuple[int, int, int, int]] = (52, 14, 38, 24)
    tables: ClassVar[tuple[str, ...]] = ("norms",)

    def __init__(self) -> None:
        self._norms = Norms()

    def setup(self, axes: Axes) -> Self:
        super().setup(axes)
        style.plain_axes(axes, grid=None)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.tick_params(length=0)
        above = 1 + 12 / pixels_of(axes)[1]
        half = min(0.45, (style.width(WAY) / 2 + 5) / pixels_of(axes)[0])  # of the text, in the middle of the arrow
        self.arrow = axes.annotate(
            "", xy=(0, above), xytext=(0.5 - half, above), xycoords="axes fraction", annotation_clip=False,
            arrowprops={"arrowstyle": "->", "color": style.FAINT, "linewidth": 1.0, "shrinkA": 0, "shrinkB": 0},
        )  # fmt: skip
        (self.tail,) = axes.plot(
            [0.5 + half, 1], [above] * 2, color=style.FAINT, linewidth=1.0, transform=axes.transAxes, clip_on=False
        )
        self.way = style.write(axes, 0.5, above, WAY, ha="center", va="center", transform=axes.transAxes)
        self.what = style.write(axes, 0, 0, "", size=TINY, ha="right", va="bottom", transform=axes.transAxes)
        self.what.set(linespacing=0.95)
        self._shape: Any = None
        self.image: Any = None
        self.stripe: Any = None  # the colours of the layers
        self.cells: list[Any] = []
        self.steps: list[Any] = []
        return self

    def caption(self, trace: Trace, t: int | None = None) -> str:
        workers = len(workers_of(trace))
        if workers > MOST_ROWS:
            return f"norm over {workers:,} workers · colour: relative to the median"
        return "norm · colour: relative to the layer's median"

    def update(self, trace: Trace, t: int | None = None) -> None:
        t = moment(trace, t)
        workers, lengths = self._norms.newest(trace, t)
        known = bool((lengths[..., 0] != NO_NORM).any())
        for part in (self.arrow, self.tail, self.way, self.what, self.axes.xaxis, self.axes.yaxis):
            part.set_visible(known)
        self.note.set_text("" if known else self._nothing(trace))
        for shown in (self.image, self.stripe, *self.cells, *self.steps) if self.image is not None else ():
            shown.set_visible(known)
        if not known:
            return
        names, values = self._rows(trace, t, workers, lengths[..., 0])
        with np.errstate(all="ignore"):
            ratio = values / medians(np.where(lengths[..., 0] == NO_NORM, np.nan, lengths[..., 0]))
        self._grid(trace, names, values.shape)
        pixels, earlier = _colours(np.where(values == NO_NORM, np.nan, ratio)), np.zeros(values.shape, dtype=bool)
        if len(values) == len(workers):  # else rows are percentiles
            earlier = lengths[..., 2] < lengths[..., 2].max(axis=1, keepdims=True)
        pixels[earlier, 3] *= EARLIER
        self.image.set_data(pixels)
        for cell, value, old in zip(self.cells, values.ravel().tolist(), earlier.ravel().tolist()):
            cell.set_text(_written(value))
            cell.set_color(style.RED if not math.isfinite(value) else style.FAINT if old else style.INK)
        self.stripe.set_visible(bool(len(trace.tables["pieces"])))
        rate = step_rate(trace, t)
        steps = relative_steps(lengths, 1.0 if rate is None else rate)
        self.what.set_text(f"{'grad.' if rate is None else 'step'}/\nweight" if np.isfinite(steps).any() else "")
        for text, value in zip(self.steps, steps[:: self._every].tolist()):
            text.set_text(_short_power(value) if math.isfinite(value) else "")

    def fixed(self) -> tuple[Artist, ...]:
        return self.arrow, self.tail, self.way

    def axes_key(self) -> Any:
        """Return the state of the ticks, which are set explicitly: one for each worker and one for each layer."""
        return self._shape, self.axes.xaxis.get_visible()

    def _shown(self, trace: Trace, t: int) -> tuple[list[str], list[str], np.ndarray]:
        """Return the names of rows and layers, and the norms, shape (rows, layers)."""
        workers, lengths = self._norms.newest(trace, t)
        if not (lengths[..., 0] != NO_NORM).any():
            return [], [], np.empty((0, 0))
        names, values = self._rows(trace, t, workers, lengths[..., 0])
        layers = [*trace.header.layers, *(f"layer {i}" for i in range(len(trace.header.layers), values.shape[1]))]
        return [name for name, _ in names], layers[: values.shape[1]], values

    def readout(self, trace: Trace, t: int, x: float, y: float) -> str:
        rows, layers, values = self._shown(trace, t)
        row, column = round(y), round(x)
        if not (0 <= row < len(rows) and 0 <= column < len(layers)) or values[row, column] == NO_NORM:
            return ""
        return f"{rows[row]}, {_spaced(layers[column])}: norm {values[row, column]:.6g}"

    def table(self, trace: Trace, t: int) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        rows, layers, values = self._shown(trace, t)
        found = [(row, layer, values[i, j].item()) for i, row in enumerate(rows) for j, layer in enumerate(layers)]
        return ("worker", "layer", "norm of the gradient"), [each for each in found if each[2] != NO_NORM]

    def stops(self, trace: Trace, t: int) -> list[Stops]:
        _, _, values = self._shown(trace, t)
        found = [
            [(float(j), float(i)) for j, value in enumerate(row) if value != NO_NORM] for i, row in enumerate(values)
        ]
        return [row for row in found if row]

    @staticmethod
    def _nothing(trace: Trace) -> str:
        if trace.header.problem.timing_only:
            return "timing-only run: no gradients"
        return "norms were not recorded" if totals_only(trace, "norms") and trace.ending else "no gradient yet"

    @staticmethod
    def _rows(trace: Trace, t: int, workers: list[int], norms: np.ndarray) -> tuple[list[tuple[str, bool]], np.ndarray]:
        """Return ([(name, whether it is highlighted), ...], norms of shape (rows, layers)).

        The rows are the workers, or the percentiles and the slowed workers.
        """
        slow = slowed(trace, t)
        if len(workers) <= MOST_ROWS:
            return [(short(trace.roles[role]), role in slow) for role in workers], norms
        known = np.where(norms == NO_NORM, np.nan, norms)
        rows = [(name, False, medians(known, share)) for name, share in SHARES]
        rows += [
            (short(trace.roles[role]), True, norms[k]) for k, role in enumerate(workers) if role in slow
        ][:MOST_SLOWED]  # fmt: skip
        values = np.array([row for _, _, row in rows])
        return [(name, highlighted) for name, highlighted, _ in rows], np.where(np.isnan(values), NO_NORM, values)

    def _grid(self, trace: Trace, names: list[tuple[str, bool]], shape: tuple[int, ...]) -> None:
        wide, high = pixels_of(self.axes)
        state = (tuple(names), shape, wide, high)
        if state == self._shape:
            return
        self._shape = state
        rows, columns = shape
        for old in (self.image, self.stripe, *self.cells, *self.steps) if self.image is not None else ():
            old.remove()
        self.image = self.axes.imshow(np.zeros((rows, columns, 4)), aspect="auto", interpolation="none", zorder=1)
        edges, top, bottom = np.arange(columns + 1) - 0.5, -0.5, -0.5 + STRIPE * rows / high
        corners = [[(a, bottom), (a, top), (b, top), (b, bottom)] for a, b in itertools.pairwise(edges)]
        self.stripe = PolyCollection(corners, facecolors=style.layer_colours(columns), linewidths=0, zorder=2)
        self.axes.add_collection(self.stripe, autolim=False)
        every = max(1, -(-LEAST // (high / rows)))
        marked = [k for k, (_, highlighted) in enumerate(names) if highlighted]
        named = [k for k in range(rows) if k in marked or (k % every == 0 and all(abs(k - m) >= every for m in marked))]
        self.axes.set_yticks(named, [names[k][0] for k in named])
        small = TINY if high / rows < 15 else style.SMALL
        for k, label in zip(named, self.axes.get_yticklabels()):
            label.set(color=style.ORANGE if k in marked else style.GREY, fontsize=small)
        layers = [*trace.header.layers, *(f"layer {i}" for i in range(len(trace.header.layers), columns))]
        said = [_spaced(layer) for layer in layers]
        self._every = max(1, -(-round(max(map(style.width, said)) + 6) // max(1, int(wide / columns))))
        self.axes.set_xticks(range(0, columns, self._every), said[:: self._every])
        write = high / rows >= 10.5 and wide / columns >= 36
        size = style.NORMAL if high / rows >= 15 else TINY
        self.cells = [
            style.write(self.axes, x, y, "", style.INK, size, ha="center", va="center", zorder=3)
            for y in range(rows if write else 0)
            for x in range(columns)
        ]
        below = -32 / high
        self.what.set_position((-9 / wide, below))
        self.steps = [
            style.write(
                self.axes, x, below, "", ha="center", va="bottom", transform=self.axes.get_xaxis_transform(), zorder=3
            )
            for x in range(0, columns, self._every)
        ]  # fmt: skip


def _colours(ratio: np.ndarray) -> np.ndarray:
    """Return the pixels of the cells, RGBA: `BELOW` below the median, `ABOVE` above it, transparent if unknown."""
    with np.errstate(all="ignore"):
        where = np.clip(np.log2(ratio) / FULL, -1.0, 1.0)
    far = np.nan_to_num(np.abs(where))
    low, high = (style.tinted(colour, PALE + (most - PALE) * far) for colour, most in (BELOW, ABOVE))
    mixed = np.where((where < 0)[..., None], low, high)
    return np.where(np.isnan(where)[..., None], 0.0, mixed)


def _written(value: float) -> str:
    if value in (NO_NORM, 0.0):
        return "" if value else "0"
    return f"{value:.2f}" if 0.01 <= value < 100 else f"{value:.0f}" if 100 <= value < 1e4 else _short_power(value)


def _short_power(value: float) -> str:
    """As `1.3e−3`."""
    return re.sub(r"e([+-])0*(\d)", r"e\1\2", f"{value:.1e}").replace("+", "").replace("-", "−")


def _spaced(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=\d)", " ", name)
