"""`Page`: the widgets of a lab in the browser. Each frame is a function of one `View`.

One thread draws. The handler of a button calls the lab, which returns at once, and shows the effect itself, so that a
reaction never waits for a frame.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

from ...errors import BadInput, nearest
from ...views import PANELS
from ..actions import Action, Answer, ChangeSettings
from ..controls import controls as check_controls
from .drawing_thread import BUSY, SHARE, DrawingThread
from .fault_controls import FaultControls
from .footer import Footer
from .frontend import FrameAcknowledgement
from .headline import Headline, QuestionBox, error_text
from .lab_interface import Host
from .panels import FIRST_VIEW, PanelGrid, PanelImage, shape_of
from .sidebar import Sidebar
from .stylesheet import ROOT, stylesheet
from .toolbar import Toolbar
from .widget_factory import WidgetFactory

if TYPE_CHECKING:
    from ..view import View

__all__ = ["Page"]

FASTEST = 0.12  # seconds between two frames
TEXT_EVERY = 0.5  # seconds between two updates of sentence, numbers and log
SETTLES = 0.3  # seconds after which an idle lab is drawn once more
FOR_FAST = 0.6  # fraction of the budget for panels that change continuously; the rest is for the others
TURN = 8  # frames after which a panel is drawn even without budget
LIVELY = 5.5  # minimum frames per second for drawing more pixels than are shown
FINE, COARSE = 1.5, 1.0  # pixels drawn per pixel shown, for panels that change continuously
COARSE_FOR = 10.0  # seconds until the fine resolution is tried again
SHARP = 2.0  # pixels drawn per pixel shown, for all other panels, and for all panels of an idle lab
TRIES = 3  # consecutive failures of frames before the page waits for a change
_numbers = count(1)


class Page:
    """The page of `lab`. `panels`: names, in order (None: the first view). `controls`: names of the settings that can be
    changed (None: all; empty: none). `awake=False`: nothing is drawn before the first `wake`. `BadInput` names an unknown
    panel or control.
    """

    def __init__(
        self, lab: Host, panels: tuple[str, ...] | None = None, controls: tuple[str, ...] | None = None,
        awake: bool = True, factory: WidgetFactory | None = None,
        make_thread: Callable[[str, Callable[[], float | None]], DrawingThread] = DrawingThread,
    ):  # fmt: skip
        self.lab = lab
        self.chosen = panels  # None: the first view
        view = lab.view()
        names = _known(panels)
        check_controls(view.settings, controls)
        self._factory = factory = WidgetFactory() if factory is None else factory
        beside = controls is None or bool(controls)
        kind = "beside" if beside else "full"
        shapes = {f"lk-{kind} .lk-p-{name}": shape_of(name, beside) for name in PANELS}
        self._style = factory.html("lk-css", stylesheet(shapes))
        self._toolbar = Toolbar(factory, self.press, self.refresh, lab.scenarios())
        self._headline, self._footer = Headline(factory), Footer(factory)
        self._question = QuestionBox(factory, lambda number: self.press(Answer(number)))
        self._grid = PanelGrid(factory, names, beside)
        self._faults = FaultControls(factory, self.press)
        self._sidebar: Sidebar | None = None
        body = [self._faults.box, self._grid.box]
        if beside:
            self._sidebar = Sidebar(
                factory, controls, self._faults, self.press, tuple(PANELS), self._choose_panel, lab.share_text
            )
            column = factory.box([self._grid.box, self._sidebar.shelf], "lk-main-column")
            body = [factory.box([self._sidebar.box, column], "lk-body")]
        parts = [self._style, self._toolbar.box, self._headline.box, self._question.box, *body, self._footer.box]
        self.box = factory.box(parts, f"{ROOT} lk-{kind}")
        self._text_at = -TEXT_EVERY
        self._cost: dict[tuple[str, float], float] = {}
        self._coarse_until = 0.0
        self._presses = self._failed = 0
        self._thread = make_thread(f"labkit-page-{next(_numbers)}", self._paint)
        self._acknowledgement = FrameAcknowledgement(self._thread.acknowledge)
        if awake:
            self.wake()

    # for the lab ------------------------------------------------------------------------------------------------------

    @property
    def panels(self) -> tuple[str, ...]:
        """The panels that are shown."""
        return self._grid.names

    @property
    def drawing(self) -> bool:
        """Whether the page is being drawn, or will be drawn again without a change."""
        return self._thread.alive

    def choose(self, panels: tuple[str, ...] | None) -> None:
        """Show these panels, in this order; None: the first view."""
        names = _known(panels)
        self.chosen = panels
        self._grid.choose(names)
        self.wake()

    def wake(self) -> None:
        """Something has changed: draw now."""
        self._thread.wake()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the last frame of an idle lab is drawn; returns whether it is."""
        return self._thread.join(timeout)

    def close(self) -> None:
        """End the thread and close all widgets. Idempotent."""
        self._thread.close()
        with self._factory.lock:
            if not self._factory.closed:
                self._acknowledgement.close()
        self._factory.close()

    # what the user does -----------------------------------------------------------------------------------------------

    def press(self, action: Action) -> None:
        """Pass an action to the lab, and show at once that it was received."""
        self.lab.press(action)
        if isinstance(action, ChangeSettings):  # accepted or refused by now
            with self._factory.lock:
                self._toolbar.settle()
                if self._sidebar is not None:
                    self._sidebar.settle()
        self.refresh()
        self._thread.after_action()
        self._thread.wake()

    def refresh(self) -> None:
        """Show the present state, except panels, numbers and log; these come with the next frame."""
        view = self.lab.view()
        with self._factory.lock:
            if self._factory.closed:
                return
            self._presses += 1
            self._show(view)
            if view.problem:
                self._headline.show(view)

    def _choose_panel(self, panel: str, shown: bool) -> None:
        names = [name for name in self.panels if name != panel]
        order = list(PANELS)
        if shown:
            after = [i for i, name in enumerate(names) if order.index(name) < order.index(panel)]
            names.insert(after[-1] + 1 if after else 0, panel)
        if names:
            self.choose(tuple(names))
        else:  # the last panel stays
            self.refresh()

    # the drawing thread -----------------------------------------------------------------------------------------------

    def _show(self, view: View) -> None:
        """All controls, with the lock held."""
        self._toolbar.show(view)
        self._question.show(view)
        self._faults.show(view)
        if self._sidebar is not None:
            self._sidebar.show(view, self.panels)

    def _paint(self) -> float | None:
        """One frame. Returns the seconds until the next one; None: nothing moves."""
        factory, before = self._factory, self._factory.writes
        try:
            still, rest = self._frame()
            self._failed = 0
        except Exception as error:  # shown, and retried a limited number of times
            self._failed += 1
            still, rest = self._failed > TRIES, 1.0
            with factory.lock:
                text = f"The page could not be drawn. {type(error).__name__}: {error}"
                factory.write(self._headline.box, error_text(text))
        if factory.writes != before:
            self._acknowledgement.send(self._thread.next_frame())
        elif still and self._thread.since_action >= SETTLES:
            return None
        return rest

    def _frame(self) -> tuple[bool, float]:
        """Draw everything as it is now. Returns (whether the lab is idle, seconds until the next frame)."""
        presses = self._presses
        view = self.lab.view()
        with self._factory.lock:
            if presses != self._presses:  # a button was pressed in the meantime, and this view may be older
                view = self.lab.view()
            self._show(view)
        still = _still(view)
        self._thread.share = BUSY if _crowded(view) else SHARE
        try:
            self._draw_text(view, still)
        finally:
            rest = self._draw_panels(view, still)
        return still, rest

    def _draw_text(self, view: View, still: bool) -> None:
        """Sentence, numbers, log and share text, at most every `TEXT_EVERY` seconds."""
        now = self._factory.clock()
        if not still and now - self._text_at < TEXT_EVERY and view.live and not view.problem:
            return
        self._text_at = now
        with self._factory.lock:
            self._headline.show(view)
            self._footer.show(view)
            if self._sidebar is not None:
                self._sidebar.show_text(view, self.panels)

    def _draw_panels(self, view: View, still: bool) -> float:
        """Draw the panels that change continuously, and as many of the others as the budget allows, in turn. Returns the seconds
        until the next frame.
        """
        thread = self._thread
        calm = still and thread.since_action >= SETTLES  # the time slider does not move
        rich = thread.share > BUSY
        fine = rich and self._factory.clock() >= self._coarse_until
        fast_scale = SHARP if calm else FINE if fine else COARSE
        scale = SHARP if calm or (rich and not still) else COARSE
        shown, began = self._grid.shown, time.monotonic()
        for image in self._grid.hidden:
            image.forget()
        blank = any(image.blank for image in shown)  # each panel is drawn once before any is drawn again
        moving = [i for i in shown if i.fast and i.behind(view, fast_scale) and (i.blank or not blank)]
        spent = sum(self._draw(image, view, fast_scale) for image in moving)
        if fine and not still and spent * LIVELY > FOR_FAST * thread.share:
            self._coarse_until = self._factory.clock() + COARSE_FOR
        waiting = sorted((i for i in shown if not i.fast and i.behind(view, scale)), key=lambda image: -image.waits)
        for drawn, image in enumerate(waiting):
            late = thread.urgent or (not calm and time.monotonic() - began > FASTEST)
            poor = not calm and thread.left() < self._cost.get((image.name, scale), 0.0)
            if (late or poor) and (drawn or image.waits < TURN):
                image.waits += 1
            else:
                self._draw(image, view, scale)
        return SETTLES if still else max(FASTEST, spent / (FOR_FAST * thread.share))

    def _draw(self, image: PanelImage, view: View, scale: float) -> float:
        """Draw one panel. Returns the seconds of processor time that it took."""
        before = time.thread_time()
        image.draw(view, scale)
        cost = self._cost[image.name, scale] = time.thread_time() - before
        return cost


def _known(panels: tuple[str, ...] | None) -> tuple[str, ...]:
    """The names of panels, checked."""
    if panels is None:
        return tuple(name for name in FIRST_VIEW if name in PANELS)
    for name in panels:
        if name not in PANELS:
            raise nearest("panel", name, PANELS)
    if not panels:
        raise BadInput("panels=(): name at least one, or leave it out for the first view.")
    return tuple(dict.fromkeys(panels))


def _still(view: View) -> bool:
    """Whether the lab is idle: nothing changes without a user's action."""
    moving = (view.state == "running" and view.live) or view.replaying or bool(view.busy) or view.processes is not None
    return not moving


def _crowded(view: View) -> bool:
    """Whether role processes train without pacing and use all cores."""
    return not view.shown.cluster.virtual_time and view.shown.cluster.compute is None and view.state == "running"
