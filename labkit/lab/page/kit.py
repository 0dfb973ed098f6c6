"""The widgets of one page: who makes them, who writes to them, and who takes them away.

A person's press comes on whichever thread the front end chooses, pictures come from the drawing thread, so everybody
writes under one lock, and only what has changed. All looks are in the style sheet, under class names: so one layout and
one style of a kind serve all widgets, and a page is a third of the messages that it would be.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import ipywidgets as widgets

from ..echo import listen

__all__ = ["Dial", "Kit"]

TWICE = 0.35  # seconds within which a second press of the same button is the rest of a double click


class Kit:
    """`lock` is to be held while writing. `writes` counts what was sent. `clock` returns seconds of wall time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self.lock = threading.RLock()
        self.clock = clock
        self.writes = 0
        self.closed = False
        self._layout = widgets.Layout()
        self._styles: dict[type, Any] = {}
        self._made: list[Any] = []

    def make(self, kind: type, classes: str = "", **traits: Any) -> Any:
        """A widget of this kind that looks as these classes say."""
        traits.setdefault("layout", self._layout)
        shape = kind.class_traits().get("style")  # type: ignore[attr-defined]
        if shape is not None:
            if shape.klass not in self._styles:
                self._styles[shape.klass] = shape.klass()
            traits["style"] = self._styles[shape.klass]
        made = kind(_dom_classes=tuple(classes.split()), **traits)
        listen(made)
        self._made.append(made)
        return made

    def layout(self, **traits: Any) -> Any:
        """A layout for one widget alone, where what it says changes."""
        made = widgets.Layout(**traits)
        self._made.append(made)
        return made

    def box(self, children: Iterable[Any], classes: str = "", **traits: Any) -> Any:
        """A box around these."""
        return self.make(widgets.Box, classes, children=tuple(children), **traits)

    def html(self, classes: str = "", text: str = "") -> Any:
        """A piece of text."""
        return self.make(widgets.HTML, classes, value=text)

    def button(
        self, label: str, does: Callable[[], Any], classes: str = "", icon: str = "", tip: str = "", again: bool = False
    ) -> Any:
        """A button. A double click presses it once, unless to press it `again` and again makes sense."""
        made = self.make(widgets.Button, classes, description=label, icon=icon, tooltip=tip or None)
        last = [-TWICE]

        def pressed(_: Any) -> None:
            with self.lock:
                now = self.clock()
                twice = not again and now - last[0] < TWICE
                last[0] = now
                if self.closed or twice:
                    return
            does()

        made.on_click(pressed)
        return made

    # writing, with the lock held --------------------------------------------------------------------------------------

    def put(self, widget: Any, **traits: Any) -> None:
        """Give a widget these traits: what it has already is not sent, what is new goes in one message."""
        new = {name: value for name, value in traits.items() if getattr(widget, name) != value}
        if not new or self.closed:
            return
        self.writes += 1
        with widget.hold_sync():
            for name, value in new.items():
                setattr(widget, name, value)
        listen(widget)

    def say(self, widget: Any, text: str) -> None:
        """Give a piece of text its text."""
        self.put(widget, value=text)

    def mark(self, widget: Any, **classes: bool) -> None:
        """Give it these classes, or take them away; `lk_off=True` is the class lk-off."""
        wanted = {name.replace("_", "-"): on for name, on in classes.items()}
        kept = [name for name in widget._dom_classes if wanted.get(name, True)]
        new = [name for name, on in wanted.items() if on and name not in kept]
        self.put(widget, _dom_classes=(*kept, *new))

    # the end ----------------------------------------------------------------------------------------------------------

    def drop(self, *gone: Any) -> None:
        """Take widgets away for good."""
        for widget in gone:
            self._made = [kept for kept in self._made if kept is not widget]
            widget.close()

    def close(self) -> None:
        """Take all of them away. Twice is as good as once."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
            for widget in (*reversed(self._made), *self._styles.values(), self._layout):
                widget.close()
            self._made.clear()


class Dial:
    """A widget with a value that a person turns and the lab sets. What the lab sets never comes back as a command.

    `turned(value)` is called when a person has chosen something. For `patience` seconds after that the widget is left
    alone, so that it does not jump back while the lab still says the old value. `trait`: which of the widget's it is.
    """

    def __init__(
        self, kit: Kit, widget: Any, turned: Callable[[Any], Any], patience: float = 0.3, trait: str = "value"
    ):
        self.kit, self.widget, self._turned, self.patience, self._trait = kit, widget, turned, patience, trait
        self._shown = getattr(widget, trait)
        self._since: float | None = None
        self._showing = False
        widget.observe(self._moved, trait)

    def _moved(self, change: Any) -> None:
        with self.kit.lock:
            if self.kit.closed or self._showing or change["new"] == self._shown:
                return
            self._shown, self._since = change["new"], self.kit.clock()
        self._turned(change["new"])

    def settle(self) -> None:
        """What the lab says now is the truth already."""
        self._since = None

    def show(self, value: Any, **traits: Any) -> None:
        """Show what the lab says, with the lock held."""
        if self._since is not None and value != self._shown and self.kit.clock() - self._since < self.patience:
            return
        self._since, self._shown, self._showing = None, value, True
        try:
            self.kit.put(self.widget, **traits, **{self._trait: value})
        finally:
            self._showing = False
