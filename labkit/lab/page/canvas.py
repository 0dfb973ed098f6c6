"""Fast drawing of a panel to pixels and encoding as PNG.

Two thirds of matplotlib's time for a frame is for axes: ticks, their labels, the grid. They are drawn once and cached as
pixels until they change. Pillow encodes the PNG at its fastest setting; matplotlib's encoder takes about twice as long.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

from ...views import LabFigure, Panel, bare_figure, style

__all__ = ["Canvas", "encode"]


class Canvas:
    """The figure of one panel, drawn on cached axes: the same pixels as a complete redraw. `figure`: one on which the
    panel is set up already; None makes one.
    """

    def __init__(self, panel: Panel, figure: LabFigure | None = None):
        self.panel = panel
        self.figure = bare_figure(panel) if figure is None else figure
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
                artist.set_animated(True)  # matplotlib leaves this artist out
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
