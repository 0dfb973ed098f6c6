"""Layout of whole figures: a panel with its title, or several rows of panels. A notebook displays a figure that a cell
returns.

Sizes are in notebook pixels. The layout is computed and does not depend on the display, so a figure is the same on every
machine. pyplot is not used: it would keep a reference to every figure, so that figures would not be freed.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..errors import BadInput, shown
from ..paths import as_path, writing
from ..trace.trace import Trace
from . import style
from .panel import Panel, moment

WIDTH, GUTTER, TITLE_ROOM, EDGE = 940, 16, 24, 6  # pixels


class LabFigure(Figure):
    """A `matplotlib.figure.Figure` that displays itself in Jupyter without pyplot, at twice the screen resolution. Equal figures
    have equal files: without a date, and with identifiers in SVG that depend only on the content.
    """

    def savefig(self, fname: Any, **options: Any) -> None:
        kind = str(options.get("format") or Path(str(getattr(fname, "name", fname))).suffix.removeprefix(".")).lower()
        undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
        with rc_context({"svg.hashsalt": "labkit"}):
            super().savefig(fname, **options | {"metadata": undated | (options.get("metadata") or {})})

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """Return (PNG bytes, intended display size in pixels)."""
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=2 * style.DPI, facecolor=style.PAPER)
        width, height = self.get_size_inches() * style.DPI
        return buffer.getvalue(), {"width": round(width), "height": round(height)}

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the figure for display. Jupyter prefers this method to the formatter of pyplot's inline backend, which
        would crop the figure.
        """
        png, size = self._repr_png_()
        return {"image/png": png, "text/plain": repr(self)}, {"image/png": size}


def blank(width: int, height: int) -> LabFigure:
    """Sizes in pixels."""
    figure = LabFigure(figsize=(width / style.DPI, height / style.DPI), dpi=style.DPI, facecolor=style.PAPER)
    FigureCanvasAgg(figure)
    return figure


def place(figure: Figure, panel: Any, left: int, top: int, width: int, height: int, title: bool) -> Axes:
    """Create axes for `panel` in the box whose upper left corner is at (left, top), in pixels, and set up the panel on them."""
    whole, high = figure.get_size_inches() * style.DPI
    room = TITLE_ROOM if title else 0
    on_left, on_right, below, above = panel.margins
    box = (
        (left + on_left) / whole,
        (high - top - height + below) / high,
        (width - on_left - on_right) / whole,
        (height - room - below - above) / high,
    )
    axes = figure.add_axes(box)
    panel.setup(axes)
    return axes


def bare_figure(panel: Any, size: tuple[int, int] | None = None) -> LabFigure:
    """Return a figure of `panel` alone, without a title, for a live view. `size`: in pixels; None: that of the panel."""
    width, height = size or panel.size
    figure = blank(width, height)
    place(figure, panel, 0, 0, width, height, title=False)
    return figure


def head(figure: Figure, left: int, top: int, title: str, rest: str, width: int | None = None) -> None:
    """Write the bold title of a panel, followed by as much of the caption as fits into `width` pixels."""
    _, high = figure.get_size_inches() * style.DPI
    whole = figure.get_size_inches()[0] * style.DPI
    y = 1 - (top + 13) / high
    bold = figure.text(
        (left + 8) / whole, y, title, **style.text(style.INK, style.TITLE, fontweight="bold", va="center")
    )
    canvas: Any = figure.canvas
    wide = bold.get_window_extent(canvas.get_renderer()).width
    if width is not None:
        rest = truncated(rest, width - 8 - wide - 7)
    figure.text((left + 8 + wide + 7) / whole, y, rest, **style.text(style.GREY, style.NORMAL, va="center"))


def truncated(words: str, room: float) -> str:
    """Return as many whole parts of a caption as fit into `room` pixels. If the first part does not fit, it is cut off."""
    for mark in (" · ", "; "):
        while style.width(words, style.NORMAL) > room and mark in words:
            words = words[: words.rindex(mark)]
    while style.width(words, style.NORMAL) > room and len(words) > 1:
        words = words.rstrip("…")[:-1].rstrip() + "…"
    return words


def panel_figure(panel: Panel, trace: Trace, t: int | None = None) -> LabFigure:
    """Draw one panel with its title, at its preferred width."""
    return stack([[panel]], trace, t)


def stack(rows: list[list[Any]], trace: Trace, t: int | None = None) -> LabFigure:
    """Draw rows of panels, top to bottom, all at time `t`."""
    t = moment(trace, t)
    heights = [max(p.size[1] for p in row) + TITLE_ROOM for row in rows]
    width = max(sum(p.size[0] for p in row) + GUTTER * (len(row) - 1) for row in rows)
    figure = blank(width, sum(heights) + GUTTER // 2 * (len(rows) - 1) + 2 * EDGE)
    top = EDGE
    for row, height in zip(rows, heights):
        left = 0
        for panel in row:
            place(figure, panel, left, top, panel.size[0], height, title=True)
            panel.update(trace, t)
            head(figure, left, top, panel.title, panel.caption(trace, t), panel.size[0])
            left += panel.size[0] + GUTTER
        top += height + GUTTER // 2
    return figure


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure to a file. The extension sets the format (.png, .svg, .pdf). Raises `BadInput` if the file cannot be
    written.
    """
    name = as_path("path", path)
    ending, known = Path(name).suffix.lower().removeprefix("."), figure.canvas.get_supported_filetypes()
    if ending and ending not in known:
        raise BadInput(f"{shown(name)}: a picture's name ends in {', '.join('.' + each for each in sorted(known))}.")
    with writing(name):
        figure.savefig(name, dpi=2 * style.DPI, facecolor=style.PAPER)
    return Path(name)
