"""`Page`: the page of a lab in the browser. Each frame is a function of one `View`.

One thread draws. The handler of a message from the browser calls the lab, which returns at once, and sends the sections of the
page that changed itself, so that a reaction never waits for a frame.
"""

from __future__ import annotations

import io
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from ...errors import BadInput, LabkitError, nearest
from ...narrative import log_lines, numbers, sentence
from ...trace.query import Cumulative
from ...trace.schema import NANO
from ...trace.stragglers import Stragglers
from ...views import PANELS, make_panel, panel_figure, style
from ...views.display_list import figure_list
from ..controls import Control
from ..controls import controls as controls_of
from . import content
from .drawing_thread import BUSY, FULL_SPEED, SHARE, DrawingThread
from .live_panel import FIRST_VIEW, LivePanel, is_wide
from .widget import PageWidget

if TYPE_CHECKING:
    from ...trace import Trace
    from ..experiments import Swept
    from ..lab import Lab
    from ..settings import Settings
    from ..view import View

FASTEST = 0.1  # seconds between two frames
TEXT_EVERY = 0.5  # seconds between two updates of sentence, numbers and log
CONFIRM_EVERY = 1.0  # seconds between two frames without pictures, which say that those of the browser are up to date
SETTLES = 0.3  # seconds after which an idle lab is drawn once more
TRIES = 3  # consecutive failures of frames before the page waits for a change
LARGEST = 4000, 4000
_numbers = count(1)
_log = logging.getLogger(__name__)


class Page:
    """The page of `lab`. `panels`: names, in order (None: the first view). `names`: the settings that can be changed (None: all;
    empty: none). `awake=False`: nothing is drawn before the first `wake`. `idle` is called on the drawing thread when the page is
    drawn and nothing moves. `output`: the name of its `StaticOutput`. `BadInput` for an unknown panel or control.
    """

    def __init__(
        self, lab: Lab, panels: tuple[str, ...] | None = None, names: tuple[str, ...] | None = None, awake: bool = True,
        idle: Callable[[], None] = lambda: None, output: str = "",
        make_thread: Callable[[str, Callable[[], float | None]], DrawingThread] = DrawingThread,
    ):  # fmt: skip
        self.lab = lab
        self.chosen = panels  # None: the first view
        self._shown = _known(panels)
        view = lab.view()
        controls_of(view.settings, names)
        self._setting_names, self._idle = names, idle
        self._settings: Settings | None = None  # those of which `_controls` are
        self._controls: tuple[Control, ...] = ()
        self._swept: dict[str, str] = {}  # the settings that can be swept, and their default values
        self._figure_of: Swept | None = None  # the sweep whose figure the browser shows
        self._panels: dict[str, LivePanel] = {}
        self._figures = threading.Lock()  # the drawing thread and questions of the browser use the same figures
        self._visible: frozenset[str] | None = None  # None: the browser has not reported yet
        self._layout = "", 0  # the newest one: the page in the browser, and its number there
        self._counted = Cumulative(), Cumulative()
        self._stragglers = Stragglers()
        self._text_at = -TEXT_EVERY
        self._confirmed_at = -CONFIRM_EVERY
        self._order = threading.RLock()  # what is sent is in the order of the views
        self._trace: Trace | None = None  # the one that the page shows
        self._run = 0  # its number; the browser clears all panels when the number changes
        self._ready_before = False
        self._sentence = ""
        self._values_received: Counter[str] = Counter()  # by setting
        self._failed = 0
        self._sent = False  # whether the present frame sent anything
        self.widget = PageWidget(self._received)
        self._output = output
        self._thread = make_thread(f"labkit-page-{next(_numbers)}", self._paint)
        self._show()
        if awake:
            self.wake()

    # for the lab ------------------------------------------------------------------------------------------------------

    @property
    def panels(self) -> tuple[str, ...]:
        """The panels that are shown."""
        return self._shown

    @property
    def drawing(self) -> bool:
        """Whether the page is being drawn, or will be drawn again without a change."""
        return self._thread.alive

    @property
    def watched(self) -> bool:
        """Whether a browser shows the page: it has acknowledged a frame, and has not been silent since."""
        return self._thread.watched

    def choose(self, panels: tuple[str, ...] | None) -> None:
        """Show these panels, in this order; None: the first view."""
        self._shown = _known(panels)
        self.chosen = panels
        self.widget.put(panels=content.panels(self._shown, is_wide))
        self.wake()

    def wake(self) -> None:
        """Something has changed: draw now."""
        self._thread.wake()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the last frame of an idle lab is drawn; returns whether it is."""
        return self._thread.join(timeout)

    def displayed(self) -> None:
        """A cell has displayed the page: bring it into view."""
        self.widget.message({"do": "show"})

    def close(self) -> None:
        """End the thread and close the widget. Idempotent."""
        self._thread.close()
        self.widget.message({"do": "close"})
        self.widget.close()

    # what the user does -----------------------------------------------------------------------------------------------

    def _received(self, message: dict[str, Any]) -> None:
        """A message of the browser. One that is malformed, or refers to what is no longer shown, has no effect."""
        act = {
            "press": self._pressed, "panels": self._panel_chosen, "layout": self._laid_out, "seen": self._seen,
            "ready": self._ready, "probe": self._probed, "step": self._stepped, "save": self._saved, "copy": self._copied,
            "share": self._shared, "ask": self._asked,
        }.get(str(message.get("do")))  # fmt: skip
        try:
            if act is not None:
                act(message)
        except (LookupError, TypeError, ValueError, LabkitError):
            _log.debug("ignored message %r", message, exc_info=True)

    def _pressed(self, message: dict[str, Any]) -> None:
        """A press of a button is passed to the lab, and the page shows at once that it was received."""
        try:
            name, arguments = message["action"], message.get("args", [])
            if name == "set":
                arguments = [self._chosen_values(*arguments)]
            self.lab.press(name, *arguments)
            self.refresh()
            self._thread.after_action()
            self._thread.wake()
        finally:  # an ignored one is answered, too
            self.widget.message({"do": "answer", "number": message.get("number")})

    def _chosen_values(self, given: dict[str, Any]) -> dict[str, Any]:
        """The values of settings: a menu sends the number of a choice."""
        given = dict(given)
        self._values_received.update(given.keys())
        known = {control.name: control for control in self._controls}
        return {
            name: known[name].choices[value["choice"]][1] if isinstance(value, dict) else value
            for name, value in given.items()
        }

    def _panel_chosen(self, message: dict[str, Any]) -> None:
        panel, names, order = message["name"], [n for n in self._shown if n != message["name"]], list(PANELS)
        if message["shown"]:
            after = [i for i, name in enumerate(names) if order.index(name) < order.index(panel)]
            names.insert(after[-1] + 1 if after else 0, panel)
        if names:
            self.choose(tuple(names))
        else:  # the last panel stays
            self.widget.send_state("panels")

    def _laid_out(self, message: dict[str, Any]) -> None:
        page, order = str(message["page"]), int(message["order"])
        sizes = {name: _pixels(*size) for name, size in message["sizes"].items()}
        visible = frozenset(message["visible"])
        with self._order:
            if page == self._layout[0] and order < self._layout[1]:
                return  # it was overtaken by a newer one
            self._layout, self._visible = (page, order), visible
        for name in sizes.keys() & PANELS.keys():
            self._panel(name).size = sizes[name]
        self._thread.after_action()  # until then the browser shows scaled pictures
        self.wake()

    def _seen(self, message: dict[str, Any]) -> None:
        frame = int(message["frame"])
        if 0 < frame <= self._thread.sent:
            self._thread.acknowledge(frame)

    def _ready(self, _: dict[str, Any]) -> None:
        """A browser shows the page anew, and has no pictures yet."""
        for panel in list(self._panels.values()):
            panel.resend()
        self._figure_of = None
        self.wake()

    def _probed(self, message: dict[str, Any]) -> None:
        """The pointer is over a panel: send the values there."""
        with self._figures:
            text = self._panel(message["panel"]).readout(self.lab.view(), message["x"], message["y"])
        self.widget.message({"do": "answer", "number": message["number"], "text": text})

    def _stepped(self, message: dict[str, Any]) -> None:
        """An arrow key on a panel: send the next values and their place."""
        at, (across, down) = message["at"], message["direction"]
        with self._figures:
            found = self._panel(message["panel"]).step(self.lab.view(), None if at is None else tuple(at), across, down)
        text, x, y = found or ("", 0.0, 0.0)
        self.widget.message({"do": "answer", "number": message["number"], "text": text, "x": x, "y": y})

    def _copied(self, message: dict[str, Any]) -> None:
        with self._figures:
            text = self._panel(message["panel"]).table(self.lab.view())
        self.widget.message({"do": "answer", "number": message["number"], "text": text})

    def _shared(self, message: dict[str, Any]) -> None:
        """The share text is computed when it is shown, because this takes longer than a frame."""
        self.widget.message({"do": "answer", "number": message["number"], **content.share(self.lab.share_text)})

    def _asked(self, message: dict[str, Any]) -> None:
        """The user has opened or closed the question to the model, or has another sample: show the answer at once."""
        try:
            self.lab.inquiry.receive(message["given"])
            with self._order:
                self._put(ask=content.ask(self.lab.view()))
        finally:
            self.widget.message({"do": "answer", "number": message.get("number")})

    def _saved(self, message: dict[str, Any]) -> None:
        """Send the panel as a file of its own: a figure as in a report."""
        view = self.lab.view()
        figure = panel_figure(make_panel(message["panel"], view.reference), view.trace, view.t)
        file = io.BytesIO()
        kind = "svg" if message["format"] == "svg" else "png"
        figure.savefig(file, format=kind, dpi=2 * style.DPI, facecolor=style.PAPER)
        self.widget.message({"do": "answer", "number": message["number"]}, [file.getvalue()])

    def refresh(self) -> None:
        """Show the present state, except pictures, numbers and log; these come with the next frame."""
        self._show()

    # the drawing thread -----------------------------------------------------------------------------------------------

    def _show(self) -> View:
        """Send all sections that are cheap, and return the view that they show. If it has another trace, the same message has all
        texts, and makes the browser clear all panels.
        """
        with self._order:
            view = self.lab.view()
            texts = self._another_run(view) if view.trace is not self._trace else {}
            if view.settings is not self._settings:
                self._settings, self._controls = view.settings, controls_of(view.settings, self._setting_names)
                self._swept = content.sweep_values(view.settings)
            self._put(
                toolbar=content.toolbar(view, self.lab.scenarios()), player={**content.player(view), "run": self._run},
                headline=content.headline(view, lambda: self._sentence), question=content.question(view),
                faults=content.faults(view),
                controls=content.controls(self._controls, frozenset(view.changed), self._values_received, self._swept),
                runs=content.runs(view), panels=content.panels(self._shown, is_wide),
                experiments=content.experiments(view, self._swept), ask=content.ask(view),
                status={"closed": "", "output": self._output}, **texts,
            )  # fmt: skip
        return view

    def _another_run(self, view: View) -> dict[str, Any]:
        """Begin to show this trace, and return its texts. Before the first run, each change of a setting makes another empty
        trace: there is nothing to clear.
        """
        ready = view.state == "ready"
        if not (ready and self._ready_before):
            self._run += 1
            for panel in list(self._panels.values()):
                panel.resend()  # the browser clears all pictures, also if this trace was shown before
        self._trace, self._ready_before = view.trace, ready
        self._sentence = sentence(view.trace, view.t, view.reference)
        return self._texts(view, log_lines(view.trace, view.t))

    def _put(self, **sections: Any) -> None:
        self._sent = self.widget.put(**sections) or self._sent

    def _texts(self, view: View, lines: list[str]) -> dict[str, Any]:
        return {
            "numbers": content.numbers(numbers(view.trace, view.t), view.dashboard), "log_lines": content.log(lines),
        }  # fmt: skip

    def _show_texts(self, view: View) -> None:
        computed = sentence(view.trace, view.t, view.reference, self._counted)
        texts = self._texts(view, log_lines(view.trace, view.t, self._stragglers))
        with self._order:
            if view.trace is self._trace:
                self._sentence = computed
                self._put(headline=content.headline(view, lambda: computed), **texts)

    def _paint(self) -> float | None:
        """One frame. Returns the seconds until the next one; None: nothing moves."""
        self._sent = False
        try:
            still = self._frame()
            settled = still and not self._sent and self._thread.since_action >= SETTLES
            if settled:
                self._idle()
            self._failed = 0
        except Exception as error:  # shown, and retried a limited number of times
            self._failed += 1
            still = self._failed > TRIES
            text = f"The page could not be drawn. {type(error).__name__}: {error}"
            self._put(headline={"first": "⚠ ", "rest": text, "error": True})
            return None if still else 1.0
        if settled:
            return None
        return SETTLES if still else FASTEST

    def _frame(self) -> bool:
        """Draw everything as it is now. Returns whether the lab is idle."""
        with self._order:
            view = self._show()
            run = self._run
        still = _still(view)
        self._thread.share = _share(view)
        now = time.monotonic()
        if still or now - self._text_at >= TEXT_EVERY or not view.live or view.problem:
            self._text_at = now
            self._show_texts(view)
        self._draw_panels(view, run, now)
        self._draw_sweep(view)
        return still

    def _draw_sweep(self, view: View) -> None:
        """Send the figure of the sweep, if it has new results."""
        swept = view.swept
        if swept is None or swept is self._figure_of or not len(swept.sweep):
            return
        self._figure_of = swept
        with self._figures:
            try:
                figure: Figure = swept.sweep.plot.overview(_axis(swept))
            except LabkitError as error:  # as for too many lines; the table shows the results
                figure = _text_figure(str(error))
            drawn = figure_list(figure)
        alt = f"Sweep of {swept.setting.replace('_', ' ')}. {swept.sweep.table()}"
        message = {
            "do": "figure", "size": [drawn.width, drawn.height], "alt": alt,
            "content": {"ops": drawn.instructions, "points": 0, "pixels": 1},
        }  # fmt: skip
        self._sent = True
        self.widget.message(message, [drawn.points.tobytes(), drawn.pixels])

    def _draw_panels(self, view: View, run: int, since: float) -> None:
        """Send the pictures that have changed. `run`: the number of the displayed run. `since`: when the view was made."""
        shown = self._shown if self._visible is None else [name for name in self._shown if name in self._visible]
        with self._figures:
            for name in self._panels.keys() - set(self._shown):
                self._panels[name].release()
        drawn: list[dict[str, Any]] = []
        buffers: list[bytes] = []
        for name in shown:
            panel = self._panel(name)
            if not panel.behind(view):
                continue
            with self._figures:
                message, own = self._drawn(panel, view)
            for layer in ("axes", "content"):
                if layer in message:
                    message[layer]["points"] += len(buffers)
                    message[layer]["pixels"] += len(buffers)
            drawn.append(message)
            buffers += own
        with self._order:
            if run != self._run:  # another run is shown by now; its pictures are drawn next
                for message in drawn:
                    self._panel(message["name"]).resend()
            elif view.trace is self._trace and (drawn or self._confirms(since)):
                self._sent = self._sent or bool(drawn)
                self._confirmed_at = since
                frame = {
                    "do": "frame", "frame": self._thread.next_frame(), "run": run, "panels": drawn, "current": shown,
                    "t": view.t / NANO, "late": time.monotonic() - since,
                }  # fmt: skip
                self.widget.message(frame, buffers)

    def _confirms(self, now: float) -> bool:
        """Whether a browser is to be told now that its pictures are up to date."""
        return self._thread.watched and now - self._confirmed_at >= CONFIRM_EVERY

    @staticmethod
    def _drawn(panel: LivePanel, view: View) -> tuple[dict[str, Any], list[bytes]]:
        try:
            return panel.draw(view)
        except Exception as error:  # the other panels are still drawn
            why = f"could not be drawn. {type(error).__name__}: {error}"
            return {"name": panel.name, "size": list(panel.size), "caption": why, "alt": why, "failed": True}, []

    def _panel(self, name: str) -> LivePanel:
        if name not in self._panels:
            self._panels[name] = LivePanel(name)
        return self._panels[name]


def _known(panels: Iterable[str] | None) -> tuple[str, ...]:
    """The names of panels, checked."""
    if panels is None:
        return tuple(name for name in FIRST_VIEW if name in PANELS)
    names = tuple(dict.fromkeys(panels))
    for name in names:
        if name not in PANELS:
            raise nearest("panel", name, PANELS)
    if not names:
        raise BadInput("panels=(): name at least one, or leave it out for the first view.")
    return names


def _pixels(width: float, height: float) -> tuple[int, int]:
    """The size in which a panel is drawn: a small one is drawn larger, in the same shape, and the browser scales it."""
    width, height = max(width, 1.0), max(height, 1.0)
    scale = max(1.0, content.SMALLEST[0] / width, content.SMALLEST[1] / height)
    return round(min(scale * width, LARGEST[0])), round(min(scale * height, LARGEST[1]))


def _still(view: View) -> bool:
    """Whether the lab is idle: nothing changes without a user's action."""
    moving = (view.state == "running" and view.live) or view.replaying or bool(view.busy or view.processes)
    return not (moving or view.task_active)


def _axis(swept: Swept) -> str | None:
    """The setting on the horizontal axis of the figure of a sweep; None if its values are not numbers."""
    values = [row[swept.setting] for row in swept.sweep.rows]
    numbers = all(
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) for value in values
    )
    return swept.setting if numbers else None


def _text_figure(text: str) -> Figure:
    """A figure that contains only a text."""
    figure = Figure(figsize=(7, 0.6))
    figure.text(0.01, 0.5, text, va="center", color=style.INK)
    return figure


def _share(view: View) -> float:
    """The fraction of one core for drawing, which takes processor time from processes that train."""
    if view.task_active:
        return BUSY
    if view.simulated or view.state != "running":
        return SHARE
    return BUSY if view.shown.cluster.paced else FULL_SPEED
