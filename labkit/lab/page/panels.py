"""The panels on the page: one image widget each, drawn only when its contents change, at a rate per panel.

The space of a panel is reserved as soon as it is chosen. Only the drawing thread uses figures. Panels that are not chosen any
more are hidden and kept.
"""

from __future__ import annotations

import base64
import html
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from ...views import PANELS, make_panel
from ...views.figures import blank, place
from .canvas import Canvas, encode
from .widget_factory import WidgetFactory

if TYPE_CHECKING:
    from ...trace import Trace
    from ..view import View

__all__ = ["FIRST_VIEW", "PanelGrid", "PanelImage", "shape_of"]

FIRST_VIEW = ("timeline", "staleness", "gradient_flow", "throughput", "accuracy", "predictions")
WIDE = 600  # pixels: a panel with a wider preferred size takes a whole row
BESIDE = (724, 354, 0.86)  # widths in pixels of wide and half panels, and factor of the height, beside a column of controls
ALONE = (940, 462, 1.0)
_EMPTY = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAG7buVgAAAABJRU5ErkJggg=="
)  # one white pixel


def shape_of(name: str, beside: bool) -> tuple[int, int]:
    """(width, height) in pixels of a panel on the page."""
    wide, high = PANELS[name].size
    whole, half, share = BESIDE if beside else ALONE
    return (whole if wide > WIDE else half), round(high * share)


class PanelImage:
    """One panel on the page; `box`: its widget."""

    def __init__(self, factory: WidgetFactory, name: str, beside: bool):
        self.factory, self.name = factory, name
        kind = PANELS[name]
        self.size = shape_of(name, beside)
        self.fast = kind.period == 1  # it changes continuously
        self.place = factory.layout(order="0")
        self._title = factory.html("lk-title", _heading(kind.title, ""))
        self._image = factory.make(widgets.Image, value=_EMPTY, format="png")
        wide = " lk-wide" if kind.size[0] > WIDE else ""
        self.box = factory.box([self._title, self._image], f"lk-panel lk-p-{name}{wide}", layout=self.place)
        self.waits = 1000  # frames in which it was out of date and not drawn; large if it was never drawn
        self._canvas: Canvas | None = None
        self._of: tuple[Trace, Trace | None] | None = None
        self._key: Any = None
        self._scale = 0.0

    @property
    def blank(self) -> bool:
        """Whether the panel was never drawn."""
        return self._of is None

    def behind(self, view: View, scale: float) -> bool:
        """Whether a drawing would look different from the one on the page."""
        if (
            self._canvas is None
            or self._of is None
            or self._of[0] is not view.trace
            or self._of[1] is not view.reference
        ):
            return True
        return scale > self._scale or self._canvas.panel.key(view.trace, view.t) != self._key

    def draw(self, view: View, scale: float) -> None:
        """Draw it, with `scale` times as many pixels as on the page, and send it."""
        self.waits = 0
        try:
            title, png = self._drawn(view, scale)
        except Exception as error:  # the other panels are still drawn
            self._key = self._canvas and self._canvas.panel.key(view.trace, view.t)
            why = f"could not be drawn. {type(error).__name__}: {error}"
            title, png = _heading(PANELS[self.name].title, why, "lk-red"), b""
        with self.factory.lock:
            self.factory.write(self._title, title)
            if png:
                self.factory.put(self._image, value=png)

    def _drawn(self, view: View, scale: float) -> tuple[str, bytes]:
        trace, t = view.trace, view.t
        if self._canvas is None or self._of is None or self._of[0] is not trace or self._of[1] is not view.reference:
            self._begin(trace, view.reference)
        assert self._canvas is not None
        panel = self._canvas.panel
        self._key, self._scale = panel.key(trace, t), scale
        panel.update(trace, t)
        png = encode(self._canvas.draw(scale))
        return _heading(panel.title, panel.caption(trace, t)), png

    def forget(self) -> None:
        """Release the run and the pixels of a hidden panel. Called by the drawing thread."""
        self._canvas = self._of = None

    def _begin(self, trace: Trace, reference: Trace | None) -> None:
        """Make a new panel for a new run, because a panel caches data of one run."""
        self._of = trace, reference
        panel = make_panel(self.name, reference)
        figure = self._canvas.figure if self._canvas is not None else blank(*self.size)
        figure.clear()
        place(figure, panel, 0, 0, *self.size, title=False)
        self._canvas = Canvas(panel, figure)


def _heading(title: str, rest: str, classes: str = "") -> str:
    text = html.escape(rest)
    return f'<b>{html.escape(title)}</b><span class="{classes}" title="{text}">{text}</span>'


class PanelGrid:
    """All panels that were ever chosen. `box`: the widget; `shown`: the chosen panels in order, `names`: their names."""

    def __init__(self, factory: WidgetFactory, names: tuple[str, ...], beside: bool):
        self.factory, self._beside = factory, beside
        self._images: dict[str, PanelImage] = {}
        self.shown: tuple[PanelImage, ...] = ()
        self.box = factory.box([], "lk-panels")
        self.choose(names)

    @property
    def hidden(self) -> list[PanelImage]:
        """The panels that are not shown any more."""
        return [panel for panel in self._images.values() if panel not in self.shown]

    @property
    def names(self) -> tuple[str, ...]:
        """The panels that are shown."""
        return tuple(panel.name for panel in self.shown)

    def choose(self, names: tuple[str, ...]) -> None:
        """Show these, in this order."""
        with self.factory.lock:
            if self.factory.closed:
                return
            new = [name for name in dict.fromkeys(names) if name not in self._images]
            self._images = self._images | {name: PanelImage(self.factory, name, self._beside) for name in new}
            self.shown = tuple(self._images[name] for name in dict.fromkeys(names))
            for panel in self._images.values():
                there = panel in self.shown
                self.factory.mark(panel.box, lk_gone=not there)
                if there:
                    self.factory.put(panel.place, order=str(self.shown.index(panel)))
            if new:
                self.factory.put(self.box, children=(*self.box.children, *(self._images[name].box for name in new)))
