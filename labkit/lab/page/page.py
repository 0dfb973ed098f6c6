"""`Page`: everything a browser shows of a lab, drawn from one `View` after another and from nothing else.

One thread draws. Whoever presses something calls the lab, which returns at once, and then writes the answer on the page
himself: an answer never waits for a picture.
"""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING, Any

from ...errors import BadInput, nearest
from ...views import PANELS
from ..controls import controls as check
from ..echo import Echo
from .foot import Foot
from .headline import Headline, Question, problem
from .kit import Kit
from .painter import BUSY, SHARE, Painter
from .panels import FIRST_VIEW, Slot, Wall, shape_of
from .sheet import ROOT, sheet
from .side import Side
from .top import Top
from .trouble import Trouble

if TYPE_CHECKING:
    from ..view import View

__all__ = ["Page"]

FASTEST = 0.12  # seconds between two frames
WORDS_EVERY = 0.5  # seconds between two looks at sentence, numbers and log
SETTLES = 0.3  # seconds after which something at rest is looked at once more
FOR_FAST = 0.6  # of the budget for panels that move with every moment; the rest is for the others
TURN = 8  # frames after which it is a panel's turn, whatever there is to spend
LIVELY = 5.5  # frames a second that are wanted, before pictures are drawn finer than they are shown
FINE, COARSE = 1.5, 1.0  # of a panel that moves with every moment
COARSE_FOR = 10.0  # seconds until it is tried again whether they can be fine
SHARP = 2.0  # of all others, and of everything at rest
TRIES = 3  # frames in a row that may fail before the page gives up until something changes
_numbers = count(1)


class Page:
    """The page of `lab`. `panels`: names, in order (None: the first view). `controls`: names of the settings that can be
    turned (None: all; empty: none). `awake=False`: nothing is drawn before the first `wake`. `BadInput` names what there is
    not.
    """

    def __init__(
        self, lab: Any, panels: tuple[str, ...] | None = None, controls: tuple[str, ...] | None = None,
        awake: bool = True,
    ):  # fmt: skip
        self.lab = lab
        self.chosen = panels  # None: the first view
        view = lab.view()
        names = _known(panels)
        check(view.setup, controls)
        self.kit = kit = Kit()
        self._beside = controls is None or bool(controls)
        self._kind = "beside" if self._beside else "full"
        self._style = kit.html(
            "lk-css", sheet({f"lk-{self._kind} .lk-p-{n}": shape_of(n, self._beside) for n in PANELS})
        )
        self.top = Top(kit, self.press, self.show, lab.stories())
        self.headline, self.foot = Headline(kit), Foot(kit)
        self.question = Question(kit, lambda number: self.press("answer", number))
        self.wall = Wall(kit, names, self._beside)
        self.trouble = Trouble(kit, self.press)
        self.side = None
        body = [self.trouble.box, self.wall.box]
        if self._beside:
            self.side = Side(kit, controls, self.trouble, self.press, tuple(PANELS), self._pick, lab.code)
            body = [kit.box([self.side.box, kit.box([self.wall.box, self.side.shelf], "lk-main-column")], "lk-body")]
        parts = [self._style, self.top.box, self.headline.box, self.question.box, *body, self.foot.box]
        self.box = kit.box(parts, f"{ROOT} lk-{self._kind}")
        self._said_at = -WORDS_EVERY
        self._cost: dict[tuple[str, float], float] = {}
        self._coarse_until = 0.0
        self._acts = self._failed = 0
        self.painter = Painter(f"labkit-page-{next(_numbers)}", self._paint)
        self._echo = Echo(self.painter.answer)
        if awake:
            self.wake()

    # what the lab asks ------------------------------------------------------------------------------------------------

    @property
    def panels(self) -> tuple[str, ...]:
        """The panels that are shown."""
        return self.wall.names

    def choose(self, panels: tuple[str, ...] | None) -> None:
        """Show these panels, in this order; None: the first view."""
        names = _known(panels)
        self.chosen = panels
        self.wall.choose(names)
        self.wake()

    def wake(self) -> None:
        """Something has changed: draw now."""
        self.painter.wake()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the last frame of a lab at rest is drawn; whether it is."""
        return self.painter.join(timeout)

    def close(self) -> None:
        """End the thread and take all widgets away. Twice is as good as once."""
        self.painter.close()
        with self.kit.lock:
            if not self.kit.closed:
                self._echo.close()
        self.kit.close()

    # what a person does -----------------------------------------------------------------------------------------------

    def press(self, name: str, *arguments: Any) -> None:
        """Hand it to the lab and show at once that it was heard."""
        self.lab.press(name, *arguments)
        if name == "set":  # taken or refused by now
            with self.kit.lock:
                self.top.settle()
                if self.side is not None:
                    self.side.settle()
        self.show()
        self.painter.treat()
        self.painter.wake()

    def show(self) -> None:
        """Show what is now, but for pictures, numbers and log; those come when they are drawn."""
        view = self.lab.view()
        with self.kit.lock:
            if self.kit.closed:
                return
            self._acts += 1
            self._show(view)
            if view.problem:
                self.headline.show(view)

    def _pick(self, panel: str, wanted: bool) -> None:
        names = [name for name in self.panels if name != panel]
        order = list(PANELS)
        if wanted:
            after = [i for i, name in enumerate(names) if order.index(name) < order.index(panel)]
            names.insert(after[-1] + 1 if after else 0, panel)
        if names:
            self.choose(tuple(names))
        else:  # one stays
            self.show()

    # the drawing thread -----------------------------------------------------------------------------------------------

    def _show(self, view: View) -> None:
        """Everything that a person turns or presses, with the lock held."""
        self.top.show(view)
        self.question.show(view)
        self.trouble.show(view)
        if self.side is not None:
            self.side.show(view, self.panels)

    def _paint(self) -> float | None:
        """One frame. Seconds to the next one; None: nothing moves."""
        kit, before = self.kit, self.kit.writes
        try:
            still, rest = self._frame()
            self._failed = 0
        except Exception as error:  # shown; and tried again, but not for ever
            self._failed += 1
            still, rest = self._failed > TRIES, 1.0
            with kit.lock:
                kit.say(self.headline.box, problem(f"The page could not be drawn. {type(error).__name__}: {error}"))
        if kit.writes != before:
            self._echo.send(self.painter.stamp())
        elif still and self.painter.quiet >= SETTLES:
            return None
        return rest

    def _frame(self) -> tuple[bool, float]:
        """Draw everything as it is now: (nothing moves by itself, seconds to the next frame)."""
        acts = self._acts
        view = self.lab.view()
        with self.kit.lock:
            if acts != self._acts:  # somebody has pressed something meanwhile, and shown what came of it
                view = self.lab.view()
            self._show(view)
        still = _still(view)
        self.painter.share = BUSY if _crowded(view) else SHARE
        try:
            self._speak(view, still)
        finally:
            rest = self._pictures(view, still)
        return still, rest

    def _speak(self, view: View, still: bool) -> None:
        """Sentence, numbers and log, now and then."""
        now = self.kit.clock()
        if not still and now - self._said_at < WORDS_EVERY and view.live and not view.problem:
            return
        self._said_at = now
        with self.kit.lock:
            self.headline.show(view)
            self.foot.show(view)
            if self.side is not None:
                self.side.say_code(view, self.panels)

    def _pictures(self, view: View, still: bool) -> float:
        """Those that move with every moment; and of the others as many as the budget allows, in turn. Returns the
        seconds until the next frame.
        """
        painter = self.painter
        calm = still and painter.quiet >= SETTLES  # nobody is scrubbing
        rich = painter.share > BUSY
        fine = rich and self.kit.clock() >= self._coarse_until
        fast_scale = SHARP if calm else FINE if fine else COARSE
        scale = SHARP if calm or (rich and not still) else COARSE
        shown, began = self.wall.shown, time.monotonic()
        for slot in self.wall.hidden:
            slot.forget()
        blank = any(s.blank for s in shown)  # until each has a picture, none gets a second one
        moving = [s for s in shown if s.fast and s.behind(view, fast_scale) and (s.blank or not blank)]
        spent = sum(self._draw(s, view, fast_scale) for s in moving)
        if fine and not still and spent * LIVELY > FOR_FAST * painter.share:
            self._coarse_until = self.kit.clock() + COARSE_FOR
        waiting = sorted((s for s in shown if not s.fast and s.behind(view, scale)), key=lambda s: -s.waits)
        for drawn, slot in enumerate(waiting):
            late = painter.urgent or (not calm and time.monotonic() - began > FASTEST)
            poor = not calm and painter.left() < self._cost.get((slot.name, scale), 0.0)
            if (late or poor) and (drawn or slot.waits < TURN):
                slot.waits += 1
            else:
                self._draw(slot, view, scale)
        return SETTLES if still else max(FASTEST, spent / (FOR_FAST * painter.share))

    def _draw(self, slot: Slot, view: View, scale: float) -> float:
        """Draw one; the seconds of processor time that it took."""
        before = time.thread_time()
        slot.draw(view, scale)
        cost = self._cost[slot.name, scale] = time.thread_time() - before
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
    """Whether nothing moves any more by itself."""
    moving = (view.state == "running" and view.live) or view.replaying or bool(view.busy) or view.cluster is not None
    return not moving


def _crowded(view: View) -> bool:
    """Whether real roles train without a pause and need every core."""
    return not view.shown.cluster.virtual_time and view.shown.cluster.compute is None and view.state == "running"
