"""Makes the widgets of one page, writes to them, and closes them.

Button events arrive on any thread and frames on the drawing thread, so all writes are done under one lock, and only changes
are sent. All styles are in the style sheet, by class names: widgets share one layout and one style of each kind, which reduces
the messages of a page to a third.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import ipywidgets as widgets

from .frontend import receive_during_cells

__all__ = ["InputWidget", "WidgetFactory"]

DOUBLE_CLICK = 0.35  # seconds within which a second press of the same button is ignored as a double click


class WidgetFactory:
    """`lock`: to be held while writing. `writes`: how many messages were sent. `clock`: returns seconds of wall time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self.lock = threading.RLock()
        self.clock = clock
        self.writes = 0
        self.closed = False
        self._layout = widgets.Layout()
        self._styles: dict[type, Any] = {}
        self._made: list[Any] = []

    def make(self, kind: type, classes: str = "", **traits: Any) -> Any:
        """A widget of this kind with these classes of the style sheet."""
        traits.setdefault("layout", self._layout)
        shape = kind.class_traits().get("style")  # type: ignore[attr-defined]
        if shape is not None:
            if shape.klass not in self._styles:
                self._styles[shape.klass] = shape.klass()
            traits["style"] = self._styles[shape.klass]
        made = kind(_dom_classes=tuple(classes.split()), **traits)
        receive_during_cells(made)
        self._made.append(made)
        return made

    def layout(self, **traits: Any) -> Any:
        """A layout for one widget only, if it changes."""
        made = widgets.Layout(**traits)
        self._made.append(made)
        return made

    def box(self, children: Iterable[Any], classes: str = "", **traits: Any) -> Any:
        """A box with these children."""
        return self.make(widgets.Box, classes, children=tuple(children), **traits)

    def html(self, classes: str = "", text: str = "") -> Any:
        """A piece of text."""
        return self.make(widgets.HTML, classes, value=text)

    def button(
        self,
        label: str,
        action: Callable[[], Any],
        classes: str = "",
        icon: str = "",
        tip: str = "",
        again: bool = False,
    ) -> Any:
        """A button. A double click presses it once, unless repeated presses are allowed (`again`)."""
        made = self.make(widgets.Button, classes, description=label, icon=icon, tooltip=tip or None)
        last = [-DOUBLE_CLICK]

        def pressed(_: Any) -> None:
            with self.lock:
                now = self.clock()
                twice = not again and now - last[0] < DOUBLE_CLICK
                last[0] = now
                if self.closed or twice:
                    return
            action()

        made.on_click(pressed)
        return made

    # writing, with the lock held --------------------------------------------------------------------------------------

    def put(self, widget: Any, **traits: Any) -> None:
        """Set these traits of a widget. Only changed traits are sent, in one message."""
        new = {name: value for name, value in traits.items() if getattr(widget, name) != value}
        if not new or self.closed:
            return
        self.writes += 1
        with widget.hold_sync():
            for name, value in new.items():
                setattr(widget, name, value)
        receive_during_cells(widget)

    def write(self, widget: Any, text: str) -> None:
        """Set the text of a text widget."""
        self.put(widget, value=text)

    def mark(self, widget: Any, **classes: bool) -> None:
        """Add these classes to a widget, or remove them; `lk_off=True` adds the class lk-off."""
        wanted = {name.replace("_", "-"): on for name, on in classes.items()}
        kept = [name for name in widget._dom_classes if wanted.get(name, True)]
        new = [name for name, on in wanted.items() if on and name not in kept]
        self.put(widget, _dom_classes=(*kept, *new))

    # the end ----------------------------------------------------------------------------------------------------------

    def drop(self, *gone: Any) -> None:
        """Close these widgets."""
        for widget in gone:
            self._made = [kept for kept in self._made if kept is not widget]
            widget.close()

    def close(self) -> None:
        """Close all of them. Idempotent."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
            for widget in (*reversed(self._made), *self._styles.values(), self._layout):
                widget.close()
            self._made.clear()


class InputWidget:
    """A widget with a value that the user chooses and the lab shows. Values shown by the lab are not reported as choices.

    `chosen(value)`: called when the user has chosen a value. For `hold` seconds after that `show` does not change the value, so
    that the widget does not jump back while the lab still has the old one. `trait`: which of the widget's traits is the value.
    """

    def __init__(
        self, factory: WidgetFactory, widget: Any, chosen: Callable[[Any], Any], hold: float = 0.3, trait: str = "value"
    ):
        self.factory, self.widget, self._chosen, self.hold, self._trait = factory, widget, chosen, hold, trait
        self._shown = getattr(widget, trait)
        self._since: float | None = None
        self._showing = False
        widget.observe(self._changed, trait)

    def _changed(self, change: Any) -> None:
        with self.factory.lock:
            if self.factory.closed or self._showing or change["new"] == self._shown:
                return
            self._shown, self._since = change["new"], self.factory.clock()
        self._chosen(change["new"])

    def settle(self) -> None:
        """The lab accepted or refused the chosen value: end the hold."""
        self._since = None

    def show(self, value: Any, **traits: Any) -> None:
        """Show the lab's value, with the lock held."""
        if self._since is not None and value != self._shown and self.factory.clock() - self._since < self.hold:
            return
        self._since, self._shown, self._showing = None, value, True
        try:
            self.factory.put(self.widget, **traits, **{self._trait: value})
        finally:
            self._showing = False
