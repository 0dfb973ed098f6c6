"""The part below the panels: exact numbers, and the log, as text for screen readers."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from ...narrative import log_lines, numbers
from ...trace.stragglers import Stragglers
from .widget_factory import WidgetFactory

if TYPE_CHECKING:
    from ..view import View

__all__ = ["Footer"]

MOST = 60  # lines of the log on the page; the newest ones


class Footer:
    """Numbers and log. `box`: the widget."""

    def __init__(self, factory: WidgetFactory):
        self.factory = factory
        self._numbers, self._log = factory.html("lk-numbers"), factory.html("lk-logs", _log([]))
        self._memory = Stragglers()
        self.box = factory.box([self._numbers, self._log], "lk-foot")

    def show(self, view: View) -> None:
        """Numbers and log at the displayed time."""
        found = [f"<span>{html.escape(n)} <b>{html.escape(v)}</b></span>" for n, v in numbers(view.trace, view.t)]
        if view.dashboard:
            link = html.escape(view.dashboard, quote=True)
            found.append(f'<a href="{link}" target="_blank" rel="noopener">Dask dashboard</a>')
        self.factory.write(self._numbers, " ".join(found))
        self.factory.write(self._log, _log(log_lines(view.trace, view.t, self._memory)[-MOST:]))


def _log(lines: list[str]) -> str:
    """The log, newest lines first, so that these are visible without scrolling."""
    inner = "".join(f"<div>{html.escape(line)}</div>" for line in reversed(lines)) or "<div>&nbsp;</div>"
    return f'<div class="lk-log" role="log" aria-live="polite" aria-label="log" tabindex="0">{inner}</div>'
