"""From a panel to the browser: one figure, one image widget, one title each; drawn only when there is something new.

Only the drawing thread touches these widgets. Two thirds of what matplotlib does for a frame are axes: ticks, their
text, the grid. They are drawn once and kept as pixels until they look different. A PNG is made by Pillow at its fastest
setting: on the same frame matplotlib's own takes about twice as long.
"""

from __future__ import annotations

import html
import io
from typing import Any

import ipywidgets as widgets
import numpy as np
from PIL import Image

from ..trace import Trace
from ..views import LabFigure, Panel, bare, style

__all__ = ["Canvas", "Screen", "encode", "heading"]


class Canvas:
    """The figure of one panel, drawn on axes that are kept: the same pixels as if all were drawn anew. `figure`: one on
    which the panel is set up already; None makes one.
    """

    def __init__(self, panel: Panel, figure: LabFigure | None = None):
        self.panel = panel
        self.figure = bare(panel) if figure is None else figure
        self._canvas: Any = self.figure.canvas
        self._key: Any = None
        self._empty: Any = None  # the pixels of the axes with nothing on them

    def draw(self, scale: float = 1) -> np.ndarray:
        """RGBA of the figure, shape (height, width, 4), `scale` times as many pixels as it is wide on the page."""
        axes = self.panel.axes
        content = [a for a in axes.get_children() if a not in (axes.patch, axes.xaxis, axes.yaxis)]
        key = (scale, axes.get_xlim(), axes.get_ylim(), self.panel.axes_key())
        if key != self._key:
            self._key = key
            for artist in content:
                artist.set_animated(True)  # to matplotlib: somebody else draws this one
            self.figure.set_dpi(style.DPI * scale)
            self._canvas.draw()
            self._empty = self._canvas.copy_from_bbox(self.figure.bbox)
        self._canvas.restore_region(self._empty)
        for artist in sorted(content, key=lambda a: a.zorder):
            axes.draw_artist(artist)
        return np.asarray(self._canvas.buffer_rgba())


def encode(pixels: np.ndarray) -> bytes:
    """RGBA pixels as PNG bytes."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).convert("RGB").save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def heading(title: str, rest: str) -> str:
    """The title of a panel in the colours of the user's theme."""
    return (
        '<div style="font-size:13px;line-height:20px;padding-left:8px;color:var(--jp-ui-font-color2,#555)">'
        f'<b style="font-size:14px;color:var(--jp-ui-font-color1,#111)">{html.escape(title)}</b>'
        f"&ensp;{html.escape(rest)}</div>"
    )


class Screen:
    """One panel on the page. `widget` is what is shown."""

    def __init__(self, panel: Panel, trace: Trace):
        self.panel, self.trace = panel, trace
        self.canvas = Canvas(panel)
        width, _ = panel.size
        share = "100%" if width > 600 else "calc(50% - 8px)"  # two small panels stay side by side on a narrow page
        fit = widgets.Layout(width="100%", height="auto", margin="0")
        self.title = widgets.HTML(heading(panel.title, ""), layout=widgets.Layout(height="22px", margin="4px 0 0 0"))
        self.image = widgets.Image(value=b"", format="png", layout=fit)
        self.widget = widgets.VBox(
            [self.title, self.image], layout=widgets.Layout(width=share, max_width=f"{width}px", margin="0 0 4px 0")
        )
        self.drawn = -1  # number of the frame in which it was drawn last
        self._key: Any = None

    def changed(self, t: int) -> bool:
        """Whether a drawing at time `t` would look different from the last one."""
        return self.panel.key(self.trace, t) != self._key

    def draw(self, t: int, frame: int, scale: int = 1) -> None:
        """Draw the panel at time `t` (ns) and send it."""
        self._key, self.drawn = self.panel.key(self.trace, t), frame
        self.panel.update(self.trace, t)
        words = heading(self.panel.title, self.panel.caption(self.trace, t))
        if words != self.title.value:
            self.title.value = words
        png = encode(self.canvas.draw(scale))
        if png != self.image.value:
            self.image.value = png
