"""A number that the browser writes back: how a lab knows that its frames are seen.

Two hidden fields, joined by a link that runs in the browser. A kernel that is busy with a cell handles such answers on
a second shell, but an answer sent before JupyterLab had opened that shell waits for the cell to end, and a field with
an answer under way sends no other. So a lab that hears nothing makes fresh fields, a few times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

__all__ = ["Echo"]

RENEWALS = 3


class Echo:
    """`send(frame)` from the drawing thread; `heard(frame)` is called, on another thread, when the browser has it."""

    def __init__(self, heard: Callable[[int], Any]):
        self._heard = heard
        self._left = RENEWALS
        self._make()

    def _make(self) -> None:
        self._sent, self._seen = widgets.IntText(value=0), widgets.IntText(value=0)
        self._link = widgets.jsdlink((self._sent, "value"), (self._seen, "value"))
        self._seen.observe(self._answered, "value")

    def _answered(self, change: Any) -> None:
        self._left = RENEWALS
        self._heard(change["new"])

    def send(self, frame: int) -> None:
        """This frame is on its way."""
        self._sent.value = frame

    def renew(self) -> None:
        """Nothing was heard for a while: try with fresh fields, unless that was tried often enough."""
        if self._left > 0:
            self._left -= 1
            self.close()
            self._make()

    def close(self) -> None:
        """Take the fields away."""
        self._seen.unobserve_all()
        for widget in (self._link, self._sent, self._seen):
            widget.close()
