"""Messages from the browser: acknowledgements of frames, and the reception of messages while a cell runs.

A frame number is written to one hidden field; a link in the browser copies it to another field, whose change is sent to the
kernel.

While a cell runs, JupyterLab sends messages of widgets to a second shell of the kernel. But ipykernel 7.4 sends them to the
shell that last sent the widget a message; for a widget made in a cell this is the shell of that cell, so Stop would wait for
the cell that it should stop. `receive_during_cells` removes this association (it does nothing on other versions).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

__all__ = ["FrameAcknowledgement", "receive_during_cells"]


def receive_during_cells(*changed: Any) -> None:
    """Receive messages of these widgets also while a cell runs. Call it after every change of them."""
    for widget in changed:
        if widget.comm is not None:
            vars(widget.comm).pop("_reply_subshell_id", None)


class FrameAcknowledgement:
    """`send(frame)` from the drawing thread; `received(frame)` is called, on another thread, when the browser has shown it."""

    def __init__(self, received: Callable[[int], Any]):
        self.sent, self.shown = widgets.IntText(value=0), widgets.IntText(value=0)
        self._link = widgets.jsdlink((self.sent, "value"), (self.shown, "value"))
        self.shown.observe(lambda change: received(change["new"]), "value")
        receive_during_cells(self.shown)

    def send(self, frame: int) -> None:
        """Ask the browser to acknowledge this frame, which has been sent."""
        self.sent.value = frame

    def close(self) -> None:
        """Close the fields."""
        fields = (self.sent, self.shown)
        for widget in (self._link, *fields, *(f.layout for f in fields), *(f.style for f in fields)):
            widget.close()
