"""Data distribution: the number of training samples of each class that every worker has, and their total.

The darker a cell, the more samples. The bars on the right are the totals of the workers. The dashed grey line is an even
share. The distribution is fixed before the run begins.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from ..formatting import short
from ..trace.header import RecordedShares
from ..trace.role_states import slowed
from ..trace.trace import Trace
from . import style
from .evaluation_samples import class_name, missing_text
from .panel import Panel, Stops, moment

GAP, BARS = 0.06, 0.22  # share of the width: between the cells and the bars, and the longest bar
PALE, FULL = 0.04, 0.7  # opacity of an empty cell, and the largest at which numbers are legible
LETTER, LINE = 8.0, 13.0  # pixels: width of a digit in a cell, height of a line
NARROW = 420  # pixels: below this width the caption is short


class DataDistributionPanel(Panel):
    name: ClassVar[str] = "data_distribution"
    title: ClassVar[str] = "Data distribution"
    margins: ClassVar[tuple[int, int, int, int]] = (58, 46, 22, 6)

    def setup(self, axes: Axes) -> Self:
        super().setup(axes)
        style.plain_axes(axes, grid=None)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.tick_params(length=0)
        self.image: Any = axes.imshow(np.zeros((1, 1, 4)), aspect="auto", interpolation="none", zorder=1)
        self.bars = PolyCollection([], facecolors=style.BLUE_FILL, edgecolors="none", zorder=2)
        axes.add_collection(self.bars, autolim=False)
        (self.even,) = axes.plot([], [], color=style.GREY, linewidth=1.2, linestyle=(0, (4, 2.5)), zorder=3)
        self.words: list[Any] = []
        self._made: Any = None
        return self

    def caption(self, trace: Trace, t: int | None = None) -> str:
        shares = trace.header.shares
        if isinstance(shares, str):
            return ""
        if shares.shared:
            return "every worker has all samples"
        rows = len(shares.counts)
        if rows < shares.shares:
            return f"{shares.shares:,} workers in {rows} groups"
        return "training samples" + (" · dashed: an even share" if rows > 1 and self.size[0] > NARROW else "")

    def key(self, trace: Trace, t: int) -> Any:
        """Return the slowed workers, because nothing else in the picture changes."""
        return tuple(slowed(trace, t))

    def axes_key(self) -> Any:
        """Return the state of the ticks, which are set explicitly: one for each worker and one for each class."""
        return self._made

    def update(self, trace: Trace, t: int | None = None) -> None:
        shares, slow = trace.header.shares, tuple(slowed(trace, moment(trace, t)))
        self.note.set_text(missing_text(shares, self.size[0]))
        for part in (self.axes.xaxis, self.axes.yaxis, self.image, self.bars, self.even):
            part.set_visible(not isinstance(shares, str))
        state = (trace.header.seed, str(shares), slow)
        if state == self._made:
            return
        self._made = state
        for words in self.words:
            words.remove()
        self.words = []
        if not isinstance(shares, str):
            self._table(shares)
            self._names(trace, shares, slow)

    def readout(self, trace: Trace, t: int, x: float, y: float) -> str:
        shares, row = trace.header.shares, int(np.floor(y))
        if isinstance(shares, str) or not 0 <= row < len(shares.counts):
            return ""
        counts, name = shares.counts[row], _row_name(trace, _owners(trace, shares)[row], shares.shared)
        if shares.classes and 0 <= x < shares.classes:
            count = counts[int(x)]
            return f"{name}, class {class_name(shares.names, int(x))}: {count:,} of {sum(counts):,} training samples"
        return f"{name}: {sum(counts):,} training samples" if x >= shares.classes else ""

    def table(self, trace: Trace, t: int) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        shares = trace.header.shares
        if isinstance(shares, str):
            return ("worker", "training samples"), []
        names = [_row_name(trace, owners, shares.shared) for owners in _owners(trace, shares)]
        classes = [f"class {class_name(shares.names, number)}" for number in range(shares.classes)]
        rows = [(name, *(counts if classes else ()), sum(counts)) for name, counts in zip(names, shares.counts)]
        return ("worker", *classes, "training samples"), list(rows)

    def stops(self, trace: Trace, t: int) -> list[Stops]:
        shares = trace.header.shares
        if isinstance(shares, str):
            return []
        columns = shares.classes
        total = columns * (1 + GAP + BARS / 2) if columns else 0.5
        across = [*(k + 0.5 for k in range(columns)), total]
        return [[(x, row + 0.5) for x in across] for row in range(len(shares.counts))]

    def _table(self, shares: RecordedShares) -> None:
        counts = np.array(shares.counts, dtype=float)
        rows, columns = len(counts), shares.classes
        totals, cells = counts.sum(axis=1), columns or 1
        first = cells * (1 + GAP) if columns else 0.0
        longest = cells * BARS if columns else 1.0
        part = counts / max(counts.max(), 2 * counts.mean(), 1.0)
        self.image.set_data(style.tinted(style.BLUE, PALE + (FULL - PALE) * part) if columns else np.zeros((1, 1, 4)))
        self.image.set_extent((0, cells, rows, 0) if columns else (0, 1e-9, rows, 0))
        ends, y = first + longest * totals / max(totals.max(), 1.0), np.arange(rows)
        thick = 0.3 if rows <= 16 else 0.42
        left, top, bottom = np.full(rows, first), y + 0.5 - thick, y + 0.5 + thick
        self.bars.set_verts(np.stack([left, top, left, bottom, ends, bottom, ends, top], axis=-1).reshape(-1, 4, 2))  # type: ignore[arg-type]
        even = first + longest * totals.mean() / max(totals.max(), 1.0)
        self.even.set_data([even, even] if rows > 1 else [], [0, rows] if rows > 1 else [])
        self.axes.set_xlim(0, first + longest)
        self.axes.set_ylim(rows, 0)
        self._numbers(counts, columns)

    def _numbers(self, counts: np.ndarray, columns: int) -> None:
        rows = len(counts)
        box, page = self.axes.get_position(), self.axes.get_figure().get_size_inches() * style.DPI  # type: ignore[union-attr]
        wide, high = box.width * page[0] / self.axes.get_xlim()[1], box.height * page[1] / rows
        if high < LINE:
            return
        end = self.axes.get_xlim()[1] + 5 / wide
        for y, total in enumerate(counts.sum(axis=1)):
            self.words.append(style.write(self.axes, end, y + 0.5, f"{total:,.0f}", va="center"))
        if not columns or wide < LETTER * len(f"{counts.max():.0f}"):
            return
        for y, x in np.ndindex(counts.shape):
            colour = style.INK if counts[y, x] else style.FAINT
            self.words.append(
                style.write(
                    self.axes, x + 0.5, y + 0.5, f"{counts[y, x]:.0f}", colour, style.SMALL, ha="center", va="center",
                    zorder=3,
                )
            )  # fmt: skip

    def _names(self, trace: Trace, shares: RecordedShares, slow: tuple[int, ...]) -> None:
        columns, rows = shares.classes, len(shares.counts)
        owners = _owners(trace, shares)
        tall = self.axes.get_position().height * self.axes.get_figure().get_size_inches()[1] * style.DPI / rows  # type: ignore[union-attr]
        every = next(step for step in (1, 2, 4, 8, 16, 32, 64) if step * tall >= LINE or step >= rows)
        highlighted = [k for k in range(rows) if any(o in slow for o in owners[k]) and len(owners[k]) == 1]
        quiet = [k for k in range(0, rows, every) if all(abs(k - other) >= every for other in highlighted)]
        ticks = sorted({*highlighted, *quiet})
        self.axes.set_yticks([k + 0.5 for k in ticks], [_row_name(trace, owners[k], shares.shared) for k in ticks])
        for k, label in zip(ticks, self.axes.get_yticklabels()):
            label.set_color(style.ORANGE if k in highlighted else style.GREY)
        sparse = max(1, -(-columns // 16))
        end = self.axes.get_xlim()[1]
        at = [x + 0.5 for x in range(0, columns, sparse)]
        bars = columns * (1 + GAP) + columns * BARS / 2 if columns else end / 2
        names = [class_name(shares.names, x, 6) for x in range(0, columns, sparse)]
        self.axes.set_xticks([*at, bars], [*names, "total" if columns else "samples"])


def _owners(trace: Trace, shares: RecordedShares) -> list[list[int]]:
    first = [*shares.first, shares.shares]
    owners: list[list[int]] = [[] for _ in shares.counts] if not shares.shared else [[]]
    for number, role in enumerate(trace.header.layout.roles):
        if role.data is not None:
            row = 0 if shares.shared else int(np.searchsorted(first, role.data, side="right")) - 1
            owners[row].append(number)
    return owners


def _row_name(trace: Trace, owners: list[int], shared: bool) -> str:
    """Return the name of a row: `w2` for one worker, `w16 …` for several neighbours, `all` if all workers share the data."""
    if shared and len(owners) > 1:
        return "all"
    return short(trace.roles[owners[0]]) + (" …" if len(owners) > 1 else "") if owners else ""
