"""`run.watch()`: the views of a run, live in a notebook, with Pause and Stop.

What is shown is a function of the trace and of nothing else. One thread draws and is the only one that writes to the
widgets; what a person presses goes to the `Run`. Nothing is printed, so nothing lands in a cell where it does not
belong; what goes wrong stands in the status line.
"""

from __future__ import annotations

import html
import threading
import time
from collections.abc import Iterable
from itertools import count
from typing import Any, Self

import ipywidgets as widgets

from ..errors import BadInput
from ..trace import Trace
from ..views import LabFigure, make_panel, overview
from . import words
from .cells import forget, remember, this_cell
from .echo import Echo, listen
from .painter import SHARE, Painter
from .player import Player
from .screen import Screen

__all__ = ["Watch"]

FIRST_VIEW = ("timeline", "staleness", "gradient_flow", "throughput", "accuracy")
WIDTH = 956  # pixels: the widest panel, and room for the wrapping box to round up
ALONE = 0.3  # of one core for drawing a run that is played, or paced: the cores are idle most of the time
WORDS_EVERY = 0.5  # seconds between two looks at sentence, numbers and log
_numbers = count(1)


class Watch:
    """The live figure of one run. It ends by itself with the run, with `close()`, or when its cell is run again.

    `panels`: names, in order (default: timeline, staleness, gradient_flow, throughput, accuracy; also loss). `seconds`:
    draw no longer than this (wall time). `speed`: play a simulated run at so many virtual seconds a second; then use
    this object's `wait()`, `pause()`, `resume()` and `stop()`, because only one hand may move a run in virtual time.
    """

    def __init__(
        self, run: Any, panels: Iterable[str] | None = None, seconds: float | None = None, speed: float | None = None
    ):
        names = (panels,) if isinstance(panels, str) else tuple(panels) if panels is not None else FIRST_VIEW
        if seconds is not None and not (isinstance(seconds, (int, float)) and seconds > 0):
            raise BadInput(f"seconds={seconds!r}: how long to watch, more than 0; None is to the end of the run.")
        self.run = run
        self.player = Player(run, speed) if speed is not None else None
        self.trace: Trace = run.trace
        self.screens = [Screen(make_panel(name), self.trace) for name in names]
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._paused = self._busy = self._shown = self._closed = False
        self._problem = ""
        self._spoken = 0.0
        self._guard = threading.RLock()
        self._make()
        tick = self._play if self.player is not None else None
        busy = self.player is None and not self.trace.header["cluster"].get("pace")
        share = SHARE if busy else ALONE
        self._painter = Painter(f"labkit-watch-{next(_numbers)}", self._paint, tick, share)
        remember(self, this_cell())
        self._painter.start()

    # what is on the page ----------------------------------------------------------------------------------------------

    def _make(self) -> None:
        self._pause = widgets.Button(description="Pause", icon="pause", layout=widgets.Layout(width="110px"))
        self._stop = widgets.Button(description="Stop", icon="stop", layout=widgets.Layout(width="90px"))
        self._status, self._sentence, self._exact, self._log = (widgets.HTML() for _ in range(4))
        self._pause.on_click(self._pressed_pause)
        self._stop.on_click(self._pressed_stop)
        listen(self._pause, self._stop)
        self._echo = Echo(lambda frame: self._painter.answer(frame))
        self._top = widgets.HBox([self._pause, self._stop, self._status])
        self._panels = widgets.Box(
            [screen.widget for screen in self.screens],
            layout=widgets.Layout(
                display="flex", flex_flow="row wrap", width=f"{WIDTH}px", max_width="100%", grid_gap="0 16px"
            ),
        )
        parts = [self._top, self._sentence, self._panels, self._exact, self._log]
        self.box = widgets.VBox(parts, layout=widgets.Layout(width=f"{WIDTH}px", max_width="100%"))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        self._shown = True
        bundle = self.box._repr_mimebundle_(include=include, exclude=exclude)
        data, more = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        return {**data, "text/plain": repr(self)}, more

    def __repr__(self) -> str:
        return "<labkit Watch>"

    # control ----------------------------------------------------------------------------------------------------------

    def pause(self) -> Self:
        """Hold the run."""
        (self.player or self.run).pause()
        self._paused = True
        self._painter.wake()
        return self

    def resume(self) -> Self:
        """Let the run go on."""
        (self.player or self.run).resume()
        self._paused = False
        self._painter.wake()
        return self

    def stop(self) -> Self:
        """End the run now."""
        (self.player or self.run).stop()
        self._painter.wake()
        return self

    def wait(self) -> Any:
        """Until the run is over and its last frame is drawn; returns the run. Raises what ended the run if that was an
        error.

        Shows the figure first if no cell has shown it yet.
        """
        self._show()
        if self.player is None:
            self.run.wait()
        else:
            while not self.run.done and self._painter.alive:
                self._painter.join(0.1)
            self.player.finish()
        self._painter.wake()
        self._painter.join(10)
        return self.run

    def close(self) -> None:
        """Take the figure off the page and end its thread. The run is left alone. Twice is as good as once."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
        self._painter.close()
        self._echo.close()
        forget(self)
        screens = [w for s in self.screens for w in (s.title, s.image, s.image.layout, s.title.layout, s.widget)]
        own = [
            self._pause,
            self._stop,
            self._status,
            self._sentence,
            self._exact,
            self._log,
        ]
        for widget in (*screens, *own, self._top, self._panels, self.box):
            widget.close()

    def snapshot(self) -> LabFigure:
        """A static figure of the run as it is now: for reports, and for pages where widgets do not live."""
        return overview(self.trace)

    def _show(self) -> None:
        from IPython import get_ipython
        from IPython.display import display

        if not self._shown and not self._closed and getattr(get_ipython(), "kernel", None) is not None:
            display(self)

    # what a person presses (on whichever thread the front end chooses) ------------------------------------------------

    def _pressed_pause(self, _: Any) -> None:
        self._do(self.resume if self._paused else self.pause)

    def _pressed_stop(self, _: Any) -> None:
        self._do(self.stop)

    def _do(self, command: Any) -> None:
        with self._guard:
            if self._busy or self._closed:
                return
            self._busy = True
        self._painter.wake()
        try:
            command()
        except Exception as error:
            self._problem = f"{type(error).__name__}: {error}"
        finally:
            self._busy = False
            self._painter.wake()

    # the drawing thread -----------------------------------------------------------------------------------------------

    def _play(self) -> None:
        try:
            self.player.tick()  # type: ignore[union-attr]
        except Exception as error:
            self._problem = f"{type(error).__name__}: {error}"

    def _paint(self, frame: int) -> bool:
        """One frame. False when it was the last one."""
        over = self._over()
        try:
            t = self.trace.watermark()
            for screen in self.screens if over else self._chosen(t):
                screen.draw(t, frame, scale=2 if over else 1)
            self._speak(over)
        except Exception as error:
            self._problem = f"The picture could not be drawn. {type(error).__name__}: {error}"
            self._say(self._status, self._status_text())
        self._echo.send(frame)
        return not over

    def _over(self) -> bool:
        late = self._deadline is not None and time.monotonic() > self._deadline
        return late or (self.run.done and self.trace.ending is not None) or self.run.engine.error is not None

    def _chosen(self, t: int) -> list[Screen]:
        """The panels of this frame: those drawn anew at every moment, and of the others the one that has waited
        longest.
        """
        changed = [screen for screen in self.screens if screen.changed(t)]
        fast = [s for s in changed if s.panel.period == 1 or s.drawn < 0]
        slow = sorted((s for s in changed if s not in fast), key=lambda s: s.drawn)
        return fast + slow[:1]

    def _speak(self, over: bool) -> None:
        """Sentence, numbers and log, now and then; the status line always."""
        self._say(self._status, self._status_text())
        label, icon = ("Resume", "play") if self._paused else ("Pause", "pause")
        if self._pause.description != label:
            self._pause.description, self._pause.icon = label, icon
            listen(self._pause)
        if over and self.run.done:
            self._pause.disabled = self._stop.disabled = True
        if not over and time.monotonic() - self._spoken < WORDS_EVERY:
            return
        self._spoken = time.monotonic()
        self._say(self._sentence, _line(f"<b>{html.escape(words.sentence(self.trace))}</b>", 15, 1))
        exact = "&ensp;".join(f"{html.escape(n)}&nbsp;<b>{html.escape(v)}</b>" for n, v in words.numbers(self.trace))
        self._say(self._exact, _line(exact, 13, 1))
        self._say(self._log, _line(html.escape(" · ".join(words.log_lines(self.trace)[-6:])), 13, 2))

    def _status_text(self) -> str:
        if self._problem:
            return _line(f'<span style="color:var(--jp-error-color1,#c00)">{html.escape(self._problem)}</span>', 13, 1)
        doing = "" if self.run.done else " · paused" if self._paused else " · working" if self._busy else ""
        return _line(html.escape(words.state(self.trace) + doing), 13, 2)

    @staticmethod
    def _say(widget: Any, text: str) -> None:
        if widget.value != text:
            widget.value = text


def _line(inner: str, size: int, shade: int) -> str:
    """A line of text in the colours of the user's theme."""
    return (
        f'<div style="font-size:{size}px;line-height:1.5;padding:0 8px;white-space:normal;'
        f'color:var(--jp-ui-font-color{shade},#333)">'
        f"{inner}</div>"
    )
