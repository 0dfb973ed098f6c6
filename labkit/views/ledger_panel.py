"""The ledger as bars: the number of gradients computed, and the number in each category.

Each bar begins where the previous bar ends. If the ledger balances, the last bar ends at the end of the bar `computed`.
Missing gradients are a red bar.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from ..trace.ledger import ledger
from ..trace.schema import NANO
from ..trace.trace import Trace
from . import style
from .evaluation_samples import without_axes
from .panel import Panel, Stops, moment

MOST = 12  # bars
LABEL, NUMBER, BAR = 146, 206, 216  # pixels from the left: end of the name, end of the number, start of the bar
ROW = 34.0  # pixels, maximum
DROPPED = "#c3c9d3"
COLOURS = {
    "computed": style.BLUE, "applied": style.GREEN, "partly applied": "#a9d3bd", "rolled back": style.FAINT,
    "lost": style.ORANGE, "in flight": style.BLUE_FILL, "missing": style.RED,
}  # fmt: skip

Line = tuple[str, int | None]


def lines(book: dict[str, Any]) -> list[Line]:
    """Return (name, gradients) of every entry of the ledger that is not 0: computed first, then the categories."""
    found: list[Line] = [("computed", book["computed"]), ("applied", book["applied"])]
    found += [("partly applied", book["partly_applied"])] if book["partly_applied"] else []
    found += [(f"dropped: {why}", count) for why, count in book["dropped"].items()] or [("dropped", 0)]
    found += [(name.replace("_", " "), book[name]) for name in ("rolled_back", "lost") if book[name]]
    found.append(("in flight", book["in_flight"]))
    return found + ([("missing", _missing(book))] if _missing(book) else [])


def _missing(book: dict[str, Any]) -> int:
    return int(book["missing"]) if book["closes"] is False else 0


class LedgerPanel(Panel):
    name: ClassVar[str] = "ledger"
    title: ClassVar[str] = "Ledger"
    margins: ClassVar[tuple[int, int, int, int]] = (8, 14, 6, 6)
    tables: ClassVar[tuple[str, ...]] = ("applies", "progress", "drops")

    def setup(self, axes: Axes) -> Self:
        """Hide the axes, and use pixels as units, measured down from the top."""
        super().setup(axes)
        without_axes(axes)
        box, page = axes.get_position(), axes.get_figure().get_size_inches() * style.DPI  # type: ignore[union-attr]
        self._wide, self._high = float(box.width * page[0]), float(box.height * page[1])
        axes.set_xlim(0, self._wide)
        axes.set_ylim(self._high, 0)
        self.bars: Any = PolyCollection([], edgecolors="none", zorder=2)
        axes.add_collection(self.bars, autolim=False)
        (self.end,) = axes.plot([], [], color=style.GREY, linewidth=1.2, linestyle=(0, (4, 2.5)), zorder=1)
        self.names = [style.write(axes, LABEL, 0, "", ha="right", va="center") for _ in range(MOST)]
        self.counts = [
            style.write(axes, NUMBER, 0, "", style.INK, style.NORMAL, ha="right", va="center", fontweight="bold")
            for _ in range(MOST)
        ]
        self.verdict = style.write(axes, self._wide, 0, "", style.INK, style.NORMAL, ha="right", va="center")
        return self

    def caption(self, trace: Trace, t: int | None = None) -> str:
        return "each gradient is in one category"

    def update(self, trace: Trace, t: int | None = None) -> None:
        t = moment(trace, t)
        book = ledger(trace, t)
        shown = lines(book)[:MOST]
        step = self._step(len(shown))
        known = book["computed"] is not None  # if it is unknown, no bars are drawn
        counts = np.array([(count or 0) if known else 0 for _, count in shown], dtype=float)
        longest = max(counts[0], counts[1:].sum(), 1.0)
        before = np.r_[0.0, 0.0, np.cumsum(counts[1:-1])]
        scale = (self._wide - BAR) / longest
        y = (np.arange(len(shown)) + 0.5) * step
        left, right = BAR + before * scale, BAR + (before + counts) * scale
        # one of a million gradients is still visible as a line
        right = np.where(counts > 0, np.maximum(right, left + 2), left)
        top, bottom = y - min(0.33 * step, 9), y + min(0.33 * step, 9)
        self.bars.set_verts(np.stack([left, top, left, bottom, right, bottom, right, top], axis=-1).reshape(-1, 4, 2))
        self.bars.set_facecolors([COLOURS.get(name, DROPPED) for name, _ in shown])
        end = BAR + counts[0] * scale
        self.end.set_data([end, end] if counts[0] else [], [bottom[0], bottom[-1] + 0.2 * step] if counts[0] else [])
        for k, (name, number) in enumerate(zip(self.names, self.counts)):
            what, count = shown[k] if k < len(shown) else ("", 0)
            wrong = what == "missing"
            at = (k + 0.5) * step
            name.set(text=what, y=at, color=style.RED if wrong else style.GREY)
            number.set(text="" if not what else "?" if count is None else f"{count:,}", y=at)
            number.set_color(style.RED if wrong else style.INK)
        self._write_verdict(book, t, trace, (len(shown) + 0.55) * step)

    def _step(self, bars: int) -> float:
        return min(ROW, self._high / (bars + 1.1))

    def readout(self, trace: Trace, t: int, x: float, y: float) -> str:
        book = ledger(trace, t)
        shown = lines(book)[:MOST]
        k = int(y // self._step(len(shown)))
        if not 0 <= k < len(shown):
            return ""
        name, count = shown[k]
        computed = book["computed"]
        share = f" ({count / computed:.1%} of those computed)" if count is not None and computed and k else ""
        return f"{name}: {'unknown' if count is None else f'{count:,} gradients'}{share}"

    def table(self, trace: Trace, t: int) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        return ("category", "gradients"), [
            (name, "" if count is None else count) for name, count in lines(ledger(trace, t))
        ]

    def stops(self, trace: Trace, t: int) -> list[Stops]:
        count = len(lines(ledger(trace, t))[:MOST])
        return [[(float(BAR), (k + 0.5) * self._step(count)) for k in range(count)]]

    def _write_verdict(self, book: dict[str, Any], t: int, trace: Trace, y: float) -> None:
        text, colour = _verdict(book, t, trace)
        self.verdict.set(text=text, color=colour, y=y, fontweight="normal" if book["closes"] is None else "bold")


def _verdict(book: dict[str, Any], t: int, trace: Trace) -> tuple[str, str]:
    if book["closes"]:
        return "all gradients accounted for ✓", style.INK
    if book["closes"] is False:
        return f"{_missing(book):,} gradients not accounted for", style.RED
    if book["in_flight"] is None:
        return "incomplete records for this time", style.GREY
    if t < trace.watermark():
        return f"at {t / NANO:.2f} s; the rest is in flight", style.GREY
    return "still counting; the rest is in flight", style.GREY
