"""The list of runs: the newest on top, with buttons to show and to pin each, and a file of all runs."""

from __future__ import annotations

import base64
import html
from typing import TYPE_CHECKING, Any

from ...narrative import runs_csv
from ..actions import Pin, ShowRun, Unpin
from .lab_interface import Press
from .widget_factory import WidgetFactory

if TYPE_CHECKING:
    from ..run_table import Entry
    from ..view import View

__all__ = ["RunList"]

MOST = 8  # rows on the page; the file has all runs


class RunList:
    """The list of runs. `box`: the widget."""

    def __init__(self, factory: WidgetFactory, press: Press):
        self.factory, self._press = factory, press
        self._numbers = [0] * MOST
        self._pinned = [False] * MOST
        self._head = factory.html("lk-row-head", _HEAD)
        self._rows = [self._row(place) for place in range(MOST)]
        self._file = factory.html("lk-gone")
        table = factory.box([self._head, *(box for box, *_ in self._rows)], "lk-col lk-runs")
        self._none = factory.html("lk-grey", '<span style="font-size:12px">none yet</span>')
        self.box = factory.box([factory.html("lk-h", "runs"), self._none, table, self._file], "lk-sec")
        self._known: tuple[Any, ...] = ()

    def _row(self, place: int) -> tuple[Any, Any, Any, Any]:
        factory = self.factory
        show = factory.button(
            "", lambda: self._press(ShowRun(self._numbers[place])), "lk-show", tip="show this run again"
        )
        tip = "make this the reference run: other runs are drawn over it"
        pin = factory.button("", lambda: self._pin(place), "lk-pin", "thumb-tack", tip)
        numbers = factory.html()
        return factory.box([show, numbers, pin], "lk-run lk-gone"), show, numbers, pin

    def _pin(self, place: int) -> None:
        if self._pinned[place]:
            self._press(Unpin())
        else:
            self._press(Pin(self._numbers[place]))

    def show(self, view: View) -> None:
        """The newest runs of the view."""
        factory = self.factory
        newest = list(reversed(view.entries))[:MOST]
        known = (len(view.entries), tuple((e.number, e.trace) for e in newest), view.trace, view.reference)
        if known == self._known:
            return
        self._known = known
        factory.mark(self._none, lk_gone=bool(newest))
        factory.mark(self._head, lk_gone=not newest)
        for place, (box, show, numbers, pin) in enumerate(self._rows):
            entry = newest[place] if place < len(newest) else None
            factory.mark(box, lk_gone=entry is None, lk_on=entry is not None and entry.trace is view.trace)
            if entry is None:
                continue
            self._numbers[place] = entry.number
            self._pinned[place] = entry.trace is not None and entry.trace is view.reference
            factory.put(show, description=f"{entry.number} {entry.settings.strategy.name}")
            factory.mark(show, lk_off=entry.trace is None)
            factory.mark(pin, lk_pinned=self._pinned[place], lk_off=entry.trace is None)
            factory.write(numbers, _row_text(entry))
        factory.mark(self._file, lk_gone=not newest)
        if newest:
            factory.write(self._file, _link(view.entries))


_COLUMNS = {
    "grad/s": "gradients applied per second",
    "stale": "mean staleness",
    "95%": "seconds to the target accuracy, 95% by default",
}
_CELLS = "".join(f'<span title="{help}">{name}</span>' for name, help in _COLUMNS.items())
_HEAD = f'<div class="lk-run"><span></span><div class="lk-row">{_CELLS}</div><span></span></div>'


def _row_text(entry: Entry) -> str:
    row = entry.row
    rate, stale, passed = (row.get(name) for name in ("gradients_per_second", "staleness_mean", "time_to_accuracy"))
    cells = (
        "–" if rate is None else f"{rate:,.0f}" if rate < 10_000 else f"{rate / 1000:,.0f}k",
        "–" if stale is None else f"{stale:.1f}" if 0 < stale < 100 else f"{stale:.0f}",
        "–" if passed is None else f"{passed:.1f}" if passed < 100 else f"{passed:.0f}",
    )
    return f'<div class="lk-row">{"".join(f"<span>{html.escape(cell)}</span>" for cell in cells)}</div>'


def _link(entries: tuple[Entry, ...]) -> str:
    """All rows as a file that the browser saves."""
    text = runs_csv({"run": entry.number, **entry.row} for entry in entries)
    data = base64.b64encode(text.encode()).decode()
    return f'<a download="runs.csv" href="data:text/csv;base64,{data}">Export CSV</a>'
