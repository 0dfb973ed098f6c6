"""The top of the page: which story, the buttons that run it, and the player: where we are, in time.

What a press does is seen at once: whoever presses calls the lab and then `show`, without a wait for the drawing thread.
Nothing here is ever disabled, because a browser takes the focus from what is disabled; what makes no sense now is pale,
and a press says so.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from ...trace.vocabulary import NANO
from ...views.style import nice_above
from .kit import Dial, Kit

if TYPE_CHECKING:
    from ..view import View

__all__ = ["Top"]

SPEEDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
ENDED = {
    "seconds": "its time is up", "accuracy": "accuracy reached", "updates": "updates done", "samples": "samples done",
    "epochs": "epochs done", "user": "stopped by you", "interrupted": "interrupted", "error": "by an error",
    "closed": "the cluster was closed",
}  # fmt: skip
OWN = "no story: my own"
TICKS = 300  # of the slider: whole numbers, because a browser rounds others and reports that as a person's doing
REFUSED = 1.5  # seconds for which the page says that something makes no sense now
LONG = 60.0  # seconds: a run that ends later than this has a slider that grows with it


class Top:
    """`box` is what is shown. `press(name, *arguments)` is told what a person wants; `refresh()` shows what is now.
    `stories`: {name: title}.
    """

    def __init__(self, kit: Kit, press: Callable[..., None], refresh: Callable[[], None], stories: dict[str, str]):
        self.kit, self._press, self._refresh = kit, press, refresh
        self._can: frozenset[str] = frozenset()
        self._refused, self._refused_at = "", -REFUSED
        self._turned = {"pause": False, "pin": False}  # whether the button says the opposite
        self._buttons: dict[tuple[str, ...], Any] = {}
        self._story = self._stories(stories)
        make = self._button
        self._run = make("Run", ("run",), "lk-main", "play", "start a run with these settings")
        self._pause = make("Pause", ("pause", "resume"), "", "pause")
        self._stop = make("Stop", ("stop",), "", "stop", "end the run, with a last evaluation")
        self._reset = make("Reset, same seed", ("reset",), "", "undo", "back to 0 with the same settings")
        self._pin = make("Pin", ("pin", "unpin"), "", "thumb-tack", "draw next runs over this one")
        self._step = make("Step", ("step",), "lk-quiet", "step-forward", "to the next applied update", again=True)
        fork = "repeat the run up to this moment, and go on from there"
        self._what_if = make("What if from here", ("what_if",), "", "code-fork", fork)
        self._live = make("Back to live", ("live",), "lk-quiet lk-gone", "", "look at now again")
        self._now, self._ends = kit.html("lk-now"), kit.html("lk-ends")
        back = "look back over the run"
        slider = kit.make(widgets.IntSlider, "lk-scrub", min=0, max=TICKS, value=0, readout=False, tooltip=back)
        self._scrub = Dial(kit, slider, self._seek)
        self._recorded, self._length = 0.0, 1.0
        speeds = kit.make(widgets.Dropdown, "lk-speed", options=_speeds(1.0), value=1.0, tooltip="seconds a second")
        self._speed = Dial(kit, speeds, lambda speed: press("set", {"speed": speed}))
        buttons = [self._story.widget, self._run, self._pause, self._stop, self._reset, self._pin, self._what_if]
        state, slot = kit.box([self._now], "lk-state"), kit.box([self._ends, self._live], "lk-slot")
        player = [state, slider, slot, self._step, speeds]
        self.box = kit.box([kit.box(buttons, "lk-top"), kit.box(player, "lk-player")], "lk-col")

    def _stories(self, stories: dict[str, str]) -> Dial:
        options = [(OWN, ""), *((f"Story: {title}", name) for name, title in stories.items())]
        tip = "a prepared experiment, played at once"
        menu = self.kit.make(widgets.Dropdown, "lk-story", options=options, value="", tooltip=tip)
        return Dial(self.kit, menu, lambda name: self._press("tell", name or None))

    def _button(self, label: str, names: tuple[str, ...], *more: Any, **flags: Any) -> Any:
        """A button that presses one of these, if one makes sense at that moment; the last, once it has been turned over."""

        def does() -> None:
            wanted = names[-1] if self._turned.get(names[0]) else names[0]
            if any(name in self._can for name in names):
                self._press(wanted)
            else:
                self._refused, self._refused_at = f"{wanted.replace('_', ' ')}: not now", self.kit.clock()
                self._refresh()

        made = self.kit.button(label, does, *more, **flags)
        self._buttons[names] = made
        return made

    def _seek(self, tick: int) -> None:
        seconds = tick * self._length / TICKS
        if seconds >= self._recorded:
            self._press("live")
        else:
            self._press("seek", seconds)

    # drawing ----------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """What was just asked for has been done or refused."""
        self._speed.settle()

    def show(self, view: View) -> None:
        """Everything as the view says."""
        kit, self._can = self.kit, view.can
        dask = not view.setup.cluster.virtual_time
        on = view.state in ("running", "paused")
        again = " again" if on and view.changed else " for real" if dask else ""
        kit.put(self._run, description=f"Run{again}")
        paused = "pause" not in view.can and "resume" in view.can
        paused = {"pausing": True, "going on": False}.get(view.busy, paused)  # as it will be, at once
        pinned = "unpin" in view.can  # it may be this very run, of which nothing is drawn twice
        self._turned = {"pause": paused, "pin": pinned}
        label, icon = ("Resume", "play") if paused else ("Pause", "pause")
        kit.put(self._pause, description=label, icon=icon, tooltip="go on" if paused else "hold everything")
        kit.put(self._pin, description="Unpin" if pinned else "Pin")
        kit.put(self._reset, description=f"Reset, same seed {view.setup.problem.seed}")
        looking = not view.live
        kit.mark(self._live, lk_gone=not looking)
        kit.mark(self._ends, lk_gone=looking)
        kit.mark(self._what_if, lk_gone=not (looking and "what_if" in view.can))
        for names, button in self._buttons.items():
            kit.mark(button, lk_off=not any(name in view.can for name in names))
        self._player(view, looking)
        kit.say(self._now, self._state(view))
        story = view.story.name if view.story is not None else ""
        if story in {value for _, value in self._story.widget.options}:
            self._story.show(story)

    def _player(self, view: View, looking: bool) -> None:
        t, self._recorded = view.t / NANO, view.recorded / NANO
        self._length = _length(self._recorded, None if view.ends is None else view.ends / NANO)
        self._scrub.show(round(min(t / self._length, 1.0) * TICKS))
        played = looking or view.simulated or view.setup.cluster.virtual_time
        self.kit.mark(self._speed.widget, lk_off=not played)
        options = _speeds(view.setup.speed)
        self._speed.show(view.setup.speed, **({"options": options} if self._speed.widget.options != options else {}))
        self.kit.say(self._ends, _ends(view, t))

    def _state(self, view: View) -> str:
        refused = self._refused if self.kit.clock() - self._refused_at < REFUSED else ""
        at = f"{view.t / NANO:.2f} s" if not view.live else f"{view.t / NANO:.1f} s"
        below = view.busy + "…" if view.busy else refused
        if view.cluster is not None:
            up, wanted = view.cluster
            below = below or f"cluster starting, {up} of {wanted}"
        if not view.live:
            below = below or ("playing" if view.replaying else "looking back")
            above = f"<b>replaying {at}</b>" if view.replaying else f"<b>{at}</b>"
        elif view.state == "running":
            below = below or ("simulated" if view.simulated else "real processes")
            above = f'<span class="lk-live">● {"simulated" if view.cluster is not None else "LIVE"}</span> {at}'
        else:
            words = {"ready": "ready", "paused": "paused", "over": "over", "failed": "failed"}[view.state]
            red = ' class="lk-red"' if view.state == "failed" else ""
            above = f"<b{red}>{words}</b> {at}" if view.state != "ready" else f"<b>{words}</b>"
            below = below or _why(view)
        return f"<div>{above}<small>{html.escape(below) or '&nbsp;'}</small></div>"


def _why(view: View) -> str:
    """What there is to say about a run that does not move."""
    ending = view.trace.ending
    if view.state == "over" and ending is not None:
        return ENDED.get(ending["stopped_by"], ending["stopped_by"])
    return {"ready": "press Run", "paused": "the run stands still"}.get(view.state, "")


def _length(recorded: float, ends: float | None) -> float:
    """Where the slider ends, in seconds: where the run ends, if that can be waited for."""
    if ends is not None and (ends <= LONG or recorded >= ends / 4):
        return max(ends, recorded)
    return nice_above(max(recorded, 10.0))


def _ends(view: View, t: float) -> str:
    """When the run will stop by itself."""
    goal, going = view.shown.budget.accuracy, view.state in ("running", "paused")
    rules = [f"stops at {view.ends / NANO:g} s"] if view.ends is not None else []
    if goal is not None:
        rules.append(f"{'or at' if rules else 'stops at'} {100 * goal:g}%")
    if going and view.ends is not None:
        rules.append(f"{max(0.0, view.ends / NANO - t):.0f} s left")
    first, *more = rules or [""]
    return f"<div>{first}<small>{' · '.join(more) or '&nbsp;'}</small></div>"


def _speeds(now: float) -> tuple[tuple[str, float], ...]:
    """The speeds that are offered, the present one among them."""
    return tuple((f"{speed:g}x", speed) for speed in sorted({*SPEEDS, now}))
