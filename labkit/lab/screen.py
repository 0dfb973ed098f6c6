"""From a panel to the browser: one figure, one image widget, one title each; drawn only when there is something new.

Only the drawing thread touches these widgets. A PNG is made by Pillow at its fastest setting: on the same frame
matplotlib's own takes about twice as long.
"""

from __future__ import annotations

import html
import io
from typing import Any

import ipywidgets as widgets
import numpy as np
from PIL import Image

from ..trace import Trace
from ..views import Panel, bare, style

__all__ = ["Screen", "encode", "heading"]


def encode(figure: Any, scale: int = 1) -> bytes:
    """The figure as PNG bytes, `scale` times as many pixels as it is wide on the page."""
    figure.set_dpi(style.DPI * scale)
    figure.canvas.draw()
    picture = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB")
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", compress_level=1)
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
        self.figure = bare(panel)
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
        png = encode(self.figure, scale)
        if png != self.image.value:
            self.image.value = png
