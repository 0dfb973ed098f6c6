"""The table of runs: the newest on top, each to be looked at again or pinned; and all of them as a file."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...narrative import runs_csv
from .kit import Kit

if TYPE_CHECKING:
    from ..stage import Entry
    from ..view import View

__all__ = ["Runs"]

MOST = 8  # rows on the page; the file has them all


class Runs:
    """`box` is what is shown. `press(name, number)` is told what a person wants."""

    def __init__(self, kit: Kit, press: Callable[..., None]):
        self.kit, self._press = kit, press
        self._numbers = [0] * MOST
        self._pinned = [False] * MOST
        self._head = kit.html("lk-row-head", _HEAD)
        self._rows = [self._row(place) for place in range(MOST)]
        self._file = kit.html("lk-gone")
        table = kit.box([self._head, *(box for box, *_ in self._rows)], "lk-col lk-runs")
        self._none = kit.html("lk-grey", '<span style="font-size:12px">none yet</span>')
        self.box = kit.box([kit.html("lk-h", "runs"), self._none, table, self._file], "lk-sec")
        self._known: tuple[Any, ...] = ()

    def _row(self, place: int) -> tuple[Any, Any, Any, Any]:
        kit = self.kit
        look = kit.button(
            "", lambda: self._press("look_at", self._numbers[place]), "lk-look", tip="look at this run again"
        )
        pin = kit.button("", lambda: self._pin(place), "lk-pin", "thumb-tack", "draw the other runs over this one")
        numbers = kit.html()
        return kit.box([look, numbers, pin], "lk-run lk-gone"), look, numbers, pin

    def _pin(self, place: int) -> None:
        if self._pinned[place]:
            self._press("unpin")
        else:
            self._press("pin", self._numbers[place])

    def show(self, view: View) -> None:
        """The newest runs of the view."""
        kit = self.kit
        newest = list(reversed(view.entries))[:MOST]
        known = (len(view.entries), tuple((e.number, e.trace) for e in newest), view.trace, view.pinned)
        if known == self._known:
            return
        self._known = known
        kit.mark(self._none, lk_gone=bool(newest))
        kit.mark(self._head, lk_gone=not newest)
        for place, (box, look, numbers, pin) in enumerate(self._rows):
            entry = newest[place] if place < len(newest) else None
            kit.mark(box, lk_gone=entry is None, lk_on=entry is not None and entry.trace is view.trace)
            if entry is None:
                continue
            self._numbers[place] = entry.number
            self._pinned[place] = entry.trace is not None and entry.trace is view.pinned
            kit.put(look, description=f"{entry.number} {_title(entry)}")
            kit.mark(look, lk_off=entry.trace is None)
            kit.mark(pin, lk_pinned=self._pinned[place], lk_off=entry.trace is None)
            kit.say(numbers, _numbers(entry))
        kit.mark(self._file, lk_gone=not newest)
        if newest:
            kit.say(self._file, _link(view.entries))


_NAMES = {
    "grad/s": "gradients applied a second",
    "stale": "mean staleness",
    "95%": "seconds to the goal, 95% by default",
}
_CELLS = "".join(f'<span title="{help}">{name}</span>' for name, help in _NAMES.items())
_HEAD = f'<div class="lk-run"><span></span><div class="lk-row">{_CELLS}</div><span></span></div>'


def _title(entry: Entry) -> str:
    return entry.setup.strategy.name


def _numbers(entry: Entry) -> str:
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
