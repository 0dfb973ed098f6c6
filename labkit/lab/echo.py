"""What the browser says back: that it has shown a frame, that a button was pressed.

A frame number is written to one hidden field; a link that runs in the browser copies it to another, which tells the
kernel.

While a cell runs, JupyterLab sends what widgets say to a second shell of the kernel. But ipykernel 7.4 sends it to the
shell that spoke to the widget last, and a widget made in a cell was spoken to by the cell's: then Stop would wait for
the very cell that it should stop. `listen` makes the kernel forget who spoke last (it does nothing on other versions).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

__all__ = ["Echo", "listen"]


def listen(*spoken_to: Any) -> None:
    """What these widgets say is heard although a cell runs. To be called after every change made to them."""
    for widget in spoken_to:
        if widget.comm is not None:
            vars(widget.comm).pop("_reply_subshell_id", None)


class Echo:
    """`send(frame)` from the drawing thread; `heard(frame)` is called, on another thread, when the browser has it."""

    def __init__(self, heard: Callable[[int], Any]):
        self._sent, self._seen = widgets.IntText(value=0), widgets.IntText(value=0)
        self._link = widgets.jsdlink((self._sent, "value"), (self._seen, "value"))
        self._seen.observe(lambda change: heard(change["new"]), "value")
        listen(self._seen)

    def send(self, frame: int) -> None:
        """This frame is on its way."""
        self._sent.value = frame

    def close(self) -> None:
        """Take the fields away."""
        fields = (self._sent, self._seen)
        for widget in (self._link, *fields, *(f.layout for f in fields), *(f.style for f in fields)):
            widget.close()
