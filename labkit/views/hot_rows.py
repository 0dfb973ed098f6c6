"""Hot rows: the rows of an embedding table that most batches use, and the distribution of the table's traffic over the
servers.

A batch pulls a row once, even if the id of the row occurs several times in the batch. Each row has one owner, so its
owner has all traffic of the hottest row, for any number of servers. The dashed grey line is an even share.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.axes import Axes

from ..formatting import short
from ..trace.query import computed_gradients, hot_rows, row_load
from ..trace.trace import Trace
from . import style
from .label_placement import pixels_of
from .panel import Panel, Stops

MOST_ROWS, MOST_SERVERS = 12, 12


class HotRowsPanel(Panel):
    name: ClassVar[str] = "hot_rows"
    title: ClassVar[str] = "Hot rows"
    margins: ClassVar[tuple[int, int, int, int]] = (48, 12, 36, 8)

    def setup(self, axes: Axes) -> Self:
        super().setup(axes)
        style.plain_axes(axes, grid="y")
        self.bars = axes.bar(np.arange(MOST_ROWS + 1 + MOST_SERVERS), 0.0, width=0.72, linewidth=0, zorder=2)
        (self.even,) = axes.plot([], [], color=style.GREY, linewidth=1.2, linestyle=(0, (4, 2.5)), zorder=3)
        return self

    def caption(self, trace: Trace, t: int | None = None) -> str:
        return "% of batches that need a row · % of the traffic"

    def key(self, trace: Trace, t: int) -> object:
        return tuple(hot_rows(trace, MOST_ROWS)), t // self.period

    def update(self, trace: Trace, t: int | None = None) -> None:
        rows, servers = self._shown(trace)
        self.note.set_text("" if rows else "this model has no embedding table")
        batches = max(1, computed_gradients(trace))
        heights = np.zeros(len(self.bars))
        heights[: len(rows)] = [min(100.0, 100 * pulls / batches) for _, pulls, _ in rows]
        first = len(rows) + 1
        heights[first : first + len(servers)] = [100 * share for _, _, _, share in servers]
        for i, (bar, height) in enumerate(zip(self.bars, heights)):
            bar.set_height(height)
            bar.set_color(style.BLUE if i < len(rows) else style.GREEN)
        names = [str(row) for row, _, _ in rows] + [""] + [short(server) for server, _, _, _ in servers]
        self.axes.set_xticks(range(len(names)), names, fontsize=style.SMALL)
        self.axes.set_xlim(-0.7, max(len(names), 2) - 0.3)
        self.axes.set_ylim(0, min(110.0, style.nice_above(1.06 * heights.max())) if rows else 100.0)
        even = 100 / len(servers) if servers else 0.0
        self.even.set_data([first - 0.5, first + len(servers) - 0.5] if servers else [], [even] * 2 if servers else [])
        self.axes.set_xlabel("row of the table   ·   server", **style.text(size=style.SMALL, labelpad=2))

    def readout(self, trace: Trace, t: int, x: float, y: float) -> str:
        rows, servers = self._shown(trace)
        k, batches = round(x), computed_gradients(trace)
        if 0 <= k < len(rows):
            row, pulls, _ = rows[k]
            return f"row {row}: in {pulls:,} of {batches:,} batches ({pulls / max(1, batches):.1%})"
        if 0 <= k - len(rows) - 1 < len(servers):
            name, touched, load, share = servers[k - len(rows) - 1]
            return f"{name}: {share:.1%} of the traffic\n{load:,} pulls and pushes of {touched:,} rows"
        return ""

    def table(self, trace: Trace, t: int) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        rows, servers = self._shown(trace)
        batches = max(1, computed_gradients(trace))
        found: list[tuple[Any, ...]] = [(f"row {row}", pulls, 100 * pulls / batches) for row, pulls, _ in rows]
        found += [(name, load, 100 * share) for name, _, load, share in servers]
        return ("bar", "batches, or pulls and pushes", "share (%)"), found

    def stops(self, trace: Trace, t: int) -> list[Stops]:
        rows, servers = self._shown(trace)
        places = [*range(len(rows)), *range(len(rows) + 1, len(rows) + 1 + len(servers))]
        _, table = self.table(trace, t)
        return [[(float(k), min(100.0, share)) for k, (_, _, share) in zip(places, table)]] if places else []

    def _shown(self, trace: Trace) -> tuple[list[tuple[int, int, float]], list[tuple[str, int, int, float]]]:
        """Return (as many rows as have room for their names, servers)."""
        rows, servers = hot_rows(trace, MOST_ROWS), row_load(trace)[:MOST_SERVERS]
        widest = 5 + max((style.width(str(row)) for row, _, _ in rows), default=0.0)
        return rows[: max(4, int(pixels_of(self.axes)[0] / widest) - len(servers) - 1)], servers

    def axes_key(self) -> object:
        """Return the texts of the ticks, which are set explicitly."""
        return tuple(label.get_text() for label in self.axes.get_xticklabels())
