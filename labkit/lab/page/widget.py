"""The widget of a page: its state as traits, and messages in both directions. The part in the browser is `drawing.js`,
`ask.js` and `page.js`.

While a cell runs, JupyterLab sends messages of widgets to a second shell of the kernel. But ipykernel sends them to the shell
that last sent the widget a message; for a widget made in a cell this is the shell of that cell, so Stop would wait for the cell
that it should stop. `receive_during_cells` removes this association. ipykernel 7.4 asks the comm for the shell, which answers
with that of the browser. With other versions the association is removed after each message; a press that comes while a message
is being sent may wait for the cell.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from importlib import resources
from typing import Any

import anywidget
import traitlets


def _file(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


def receive_during_cells(widget: Any) -> None:
    """Receive messages of this widget also while a cell runs. Call it after every message to it."""
    if widget.comm is None:
        return
    if hasattr(widget.comm, "_reply_subshell_for"):
        widget.comm._reply_subshell_for = _shell_of_browser
    vars(widget.comm).pop("_reply_subshell_id", None)


def _shell_of_browser(data: Any, shell: str | None) -> str | None:
    return shell


def widget_view(widget: anywidget.AnyWidget) -> dict[str, Any]:
    """The output of a cell that shows this widget, by mime type, and nothing else: its text is in a `StaticOutput`."""
    bundle = widget._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    return {kind: value for kind, value in (data or {}).items() if kind != "text/plain"}


class PageWidget(anywidget.AnyWidget):  # type: ignore[misc]
    """The page of a lab. `put(section=value, ...)` sends the sections that have changed, in one message."""

    _esm = re.sub("^export (function|class)", r"\1", _file("drawing.js") + _file("ask.js"), flags=re.MULTILINE) + _file(
        "page.js"
    )
    _css = _file("style.css")

    toolbar = traitlets.Dict().tag(sync=True)
    player = traitlets.Dict().tag(sync=True)
    headline = traitlets.Dict().tag(sync=True)
    question = traitlets.Dict().tag(sync=True)
    faults = traitlets.Dict().tag(sync=True)
    controls: Any = traitlets.List().tag(sync=True)
    runs = traitlets.Dict().tag(sync=True)
    numbers = traitlets.Dict().tag(sync=True)
    log_lines: Any = traitlets.List().tag(sync=True)
    panels = traitlets.Dict().tag(sync=True)
    experiments = traitlets.Dict().tag(sync=True)
    ask = traitlets.Dict().tag(sync=True)
    status = traitlets.Dict().tag(sync=True)

    def __init__(self, received: Callable[[dict[str, Any]], None]):
        self.lock = threading.RLock()  # to be held while sending: buttons and the drawing thread do
        self.closed = False
        super().__init__()
        self.on_msg(lambda _, message, buffers: received(message))
        receive_during_cells(self)

    def put(self, **sections: Any) -> bool:
        """Set sections; returns whether one has changed, and was sent."""
        with self.lock:
            changed = {name: value for name, value in sections.items() if getattr(self, name) != value}
            if changed and not self.closed:
                with self.hold_sync():
                    for name, value in changed.items():
                        setattr(self, name, value)
                receive_during_cells(self)
            return bool(changed)

    def message(self, content: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        """Send a message that is not part of the state."""
        with self.lock:
            if not self.closed:
                self.send(content, buffers)
                receive_during_cells(self)

    def close(self) -> None:
        """Close the widget, here and in the browser. Idempotent."""
        with self.lock:
            if not self.closed:
                self.closed = True
                self.layout.close()  # a widget of its own
                super().close()
