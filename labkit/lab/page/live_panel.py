"""A panel on the page: draws its display list, in the size in which the browser shows it, when its contents have changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.artist import Artist

from ...views import PANELS, make_panel
from ...views.display_list import DisplayList
from ...views.figures import bare_figure

if TYPE_CHECKING:
    from ...trace import Trace
    from ...views.forecast import RunForecast
    from ..view import View

FIRST_VIEW = ("timeline", "staleness", "gradient_flow", "throughput", "accuracy")
WIDE = 600  # pixels: a panel with a wider preferred size takes a whole row


def is_wide(name: str) -> bool:
    """Whether a panel takes a whole row."""
    return PANELS[name].size[0] > WIDE


class LivePanel:
    """One panel. `size`: pixels on the page (CSS pixels), as the browser reports them."""

    def __init__(self, name: str):
        self.name, self.size = name, PANELS[name].size
        self._of: tuple[Trace, Trace | None, RunForecast | None, tuple[int, int]] | None = None
        self._panel: Any = None
        self._t = 0  # of the picture
        self._key: Any = None
        self._axes_key: Any = None

    def resend(self) -> None:
        """Send everything with the next drawing, because the browser has nothing yet."""
        self._key = self._axes_key = None

    def release(self) -> None:
        """Release the run, because the panel is hidden."""
        self._of = self._panel = self._key = self._axes_key = None

    def behind(self, view: View) -> bool:
        """Whether a drawing would look different from the one on the page."""
        return not self._is_of(view, self.size) or self._key is None or self._panel.key(view.trace, view.t) != self._key

    def _is_of(self, view: View, size: tuple[int, int]) -> bool:
        """Whether the panel was made for these traces, this forecast and this size."""
        of = self._of
        same = of is not None and of[0] is view.trace and of[1] is view.reference and of[2] is view.forecast
        return same and of is not None and of[3] == size

    def draw(self, view: View) -> tuple[dict[str, Any], list[bytes]]:
        """The message for the browser, and the buffers to which it refers by number."""
        trace, t = view.trace, view.t
        size = self.size  # the browser may report another one meanwhile
        if not self._is_of(view, size):
            self._begin(trace, view.reference, view.forecast, size)
        panel = self._panel
        self._t, self._key = t, panel.key(trace, t)
        panel.update(trace, t)
        axes = panel.axes
        axes.apply_aspect()
        caption = panel.caption(trace, t)
        message: dict[str, Any] = {
            "name": self.name, "size": list(size), "caption": caption, "alt": f"{panel.title}. {caption}".strip(),
        }  # fmt: skip
        buffers: list[bytes] = []
        frame = (axes.patch, axes.xaxis, axes.yaxis, *axes.spines.values())
        fixed = panel.fixed()
        shown = tuple(part.get_visible() for part in frame)
        key = (axes.get_xlim(), axes.get_ylim(), shown, panel.axes_key())
        if key != self._axes_key:
            self._axes_key = key
            message["axes"] = _layer((*frame[1:], *fixed), size, buffers)
        content = [artist for artist in axes.get_children() if artist not in (*frame, *fixed)]
        message["content"] = _layer(content, size, buffers)
        return message, buffers

    def readout(self, view: View, x: float, y: float) -> str:
        """Return the values at a point. `x`, `y`: shares of the width and the height, from the upper left corner."""
        if not self._draws(view) or not (0 <= x <= 1 and 0 <= y <= 1):
            return ""
        axes = self._panel.axes
        point = (x * self.size[0], (1 - y) * self.size[1])
        if not axes.bbox.contains(*point):
            return ""
        text: str = self._panel.readout(view.trace, self._t, *map(float, axes.transData.inverted().transform(point)))
        return text

    def step(
        self, view: View, at: tuple[float, float] | None, across: int, down: int
    ) -> tuple[str, float, float] | None:
        """Return the values at the next point of the panel in a direction, and that point; None if the panel has none.

        `at`: the present point, or None at first. `across`, `down`: -1, 0 or 1. Points are shares of the width and the height,
        from the upper left corner.
        """
        rows = self._panel.stops(view.trace, self._t) if self._draws(view) else []
        if not rows:
            return None
        transform = self._panel.axes.transData
        pixels = [np.array(transform.transform(np.array(row, dtype=float))) for row in rows]
        row, column = 0, 0 if across >= 0 else len(rows[0]) - 1
        if at is not None:
            here = np.array([at[0] * self.size[0], (1 - at[1]) * self.size[1]])
            away = [np.hypot(*(points - here).T) for points in pixels]
            row = min(range(len(rows)), key=lambda k: float(away[k].min()))
            column = int(away[row].argmin())
            if down and len(rows) > 1:
                row = min(max(row + down, 0), len(rows) - 1)
                column = int(np.abs(pixels[row][:, 0] - here[0]).argmin())
            else:
                column = min(max(column + (across or down), 0), len(rows[row]) - 1)
        x, y = np.clip(pixels[row][column] / self.size, 0.0, 1.0).tolist()
        return self._panel.readout(view.trace, self._t, *rows[row][column]), x, 1 - y

    def table(self, view: View) -> str:
        """Return the values of the panel as tab-separated text, as spreadsheets take it."""
        if not self._draws(view):
            return ""
        columns, rows = self._panel.table(view.trace, self._t)
        return "\n".join("\t".join(map(str, row)) for row in (columns, *rows))

    def _draws(self, view: View) -> bool:
        """Whether the picture is one of this view."""
        return self._of is not None and self._of[0] is view.trace and self._of[3] == self.size

    def _begin(
        self, trace: Trace, reference: Trace | None, forecast: RunForecast | None, size: tuple[int, int]
    ) -> None:  # fmt: skip
        """Make a new panel, because a panel caches data of one run."""
        self._of, self._axes_key = (trace, reference, forecast, size), None
        self._panel = make_panel(self.name, reference, forecast)
        bare_figure(self._panel, size)


def _layer(artists: Iterable[Artist], size: tuple[int, int], buffers: list[bytes]) -> dict[str, Any]:
    recorded = DisplayList(*size).add(artists)
    buffers += [recorded.points.tobytes(), recorded.pixels]
    return {"ops": recorded.instructions, "points": len(buffers) - 2, "pixels": len(buffers) - 1}
