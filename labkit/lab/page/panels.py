"""The pictures: one image widget a panel, drawn only when there is something new, each at its own rate.

A panel is on the page as soon as it is chosen, and its room with it; it is drawn by the drawing thread, the only one
that touches figures. Panels that are not chosen any more are hidden and kept.
"""

from __future__ import annotations

import base64
import html
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from ...views import PANELS, make_panel
from ...views.figures import blank, place
from ..screen import Canvas, encode
from .kit import Kit

if TYPE_CHECKING:
    from ...trace import Trace
    from ..view import View

__all__ = ["FIRST_VIEW", "Slot", "Wall", "shape_of"]

FIRST_VIEW = ("timeline", "staleness", "gradient_flow", "throughput", "accuracy", "predictions")
WIDE = 600  # pixels: a panel that likes to be wider than this has a row of its own
BESIDE = (724, 354, 0.86)  # pixels of wide and half panels, and how high, beside a column of controls
ALONE = (940, 462, 1.0)
_EMPTY = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAG7buVgAAAABJRU5ErkJggg=="
)  # one white pixel


def shape_of(name: str, beside: bool) -> tuple[int, int]:
    """(width, height) in pixels of a panel on the page."""
    wide, high = PANELS[name].size
    whole, half, share = BESIDE if beside else ALONE
    return (whole if wide > WIDE else half), round(high * share)


class Slot:
    """One panel on the page; `box` is what is shown."""

    def __init__(self, kit: Kit, name: str, beside: bool):
        self.kit, self.name = kit, name
        kind = PANELS[name]
        self.size = shape_of(name, beside)
        self.fast = kind.period == 1  # it moves with every moment
        self.place = kit.layout(order="0")
        self._title = kit.html("lk-title", _heading(kind.title, ""))
        self._image = kit.make(widgets.Image, value=_EMPTY, format="png")
        wide = " lk-wide" if kind.size[0] > WIDE else ""
        self.box = kit.box([self._title, self._image], f"lk-panel lk-p-{name}{wide}", layout=self.place)
        self.waits = 1000  # frames in which it was behind and not drawn; of one that was never drawn, many
        self._canvas: Canvas | None = None
        self._of: tuple[Trace, Trace | None] | None = None
        self._key: Any = None
        self._scale = 0.0

    @property
    def blank(self) -> bool:
        """Whether it was never drawn."""
        return self._of is None

    def behind(self, view: View, scale: float) -> bool:
        """Whether a drawing would look different from the one on the page."""
        if self._canvas is None or self._of is None or self._of[0] is not view.trace or self._of[1] is not view.pinned:
            return True
        return scale > self._scale or self._canvas.panel.key(view.trace, view.t) != self._key

    def draw(self, view: View, scale: float) -> None:
        """Draw it as the view says, `scale` times as fine as it is on the page, and send it."""
        self.waits = 0
        try:
            title, png = self._drawn(view, scale)
        except Exception as error:  # the others are drawn all the same
            self._key = self._canvas and self._canvas.panel.key(view.trace, view.t)
            said = f"could not be drawn. {type(error).__name__}: {error}"
            title, png = _heading(PANELS[self.name].title, said, "lk-red"), b""
        with self.kit.lock:
            self.kit.say(self._title, title)
            if png:
                self.kit.put(self._image, value=png)

    def _drawn(self, view: View, scale: float) -> tuple[str, bytes]:
        trace, t = view.trace, view.t
        if self._canvas is None or self._of is None or self._of[0] is not trace or self._of[1] is not view.pinned:
            self._begin(trace, view.pinned)
        assert self._canvas is not None
        panel = self._canvas.panel
        self._key, self._scale = panel.key(trace, t), scale
        panel.update(trace, t)
        png = encode(self._canvas.draw(scale))
        return _heading(panel.title, panel.caption(trace, t)), png

    def forget(self) -> None:
        """It is not shown: let go of its run and of its pixels. Called by the drawing thread."""
        self._canvas = self._of = None

    def _begin(self, trace: Trace, pinned: Trace | None) -> None:
        """A new panel for a new run: what a panel remembers of one run is not true of another."""
        self._of = trace, pinned
        panel = make_panel(self.name, pinned)
        figure = self._canvas.figure if self._canvas is not None else blank(*self.size)
        figure.clear()
        place(figure, panel, 0, 0, *self.size, title=False)
        self._canvas = Canvas(panel, figure)


def _heading(title: str, rest: str, classes: str = "") -> str:
    said = html.escape(rest)
    return f'<b>{html.escape(title)}</b><span class="{classes}" title="{said}">{said}</span>'


class Wall:
    """All panels that were ever chosen. `box` is what is shown, `shown` the slots in order, `names` their names."""

    def __init__(self, kit: Kit, names: tuple[str, ...], beside: bool):
        self.kit, self._beside = kit, beside
        self._slots: dict[str, Slot] = {}
        self.shown: tuple[Slot, ...] = ()
        self.box = kit.box([], "lk-panels")
        self.choose(names)

    @property
    def hidden(self) -> list[Slot]:
        """The panels that are not shown any more."""
        return [slot for slot in self._slots.values() if slot not in self.shown]

    @property
    def names(self) -> tuple[str, ...]:
        """The panels that are shown."""
        return tuple(slot.name for slot in self.shown)

    def choose(self, names: tuple[str, ...]) -> None:
        """Show these, in this order."""
        with self.kit.lock:
            if self.kit.closed:
                return
            new = [name for name in dict.fromkeys(names) if name not in self._slots]
            self._slots = self._slots | {name: Slot(self.kit, name, self._beside) for name in new}
            self.shown = tuple(self._slots[name] for name in dict.fromkeys(names))
            for slot in self._slots.values():
                there = slot in self.shown
                self.kit.mark(slot.box, lk_gone=not there)
                if there:
                    self.kit.put(slot.place, order=str(self.shown.index(slot)))
            if new:
                self.kit.put(self.box, children=(*self.box.children, *(self._slots[name].box for name in new)))
