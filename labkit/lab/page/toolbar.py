"""The top of the page: the menu of scenarios, the buttons that control the run, and the player with its time slider.

The effect of a press is shown at once: the handler calls the lab and then `refresh`, without waiting for the drawing thread.
Buttons are never disabled, because a browser moves the focus away from disabled elements; a button that has no effect now is
pale, and pressing it shows a message.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from ...trace.schema import NANO
from ...views.style import nice_above
from ..actions import (
    Action,
    BackToLive,
    ChangeSettings,
    Pause,
    Pin,
    PlayScenario,
    Reset,
    Resume,
    Seek,
    Start,
    Step,
    Stop,
    Unpin,
    WhatIf,
)  # fmt: skip
from .lab_interface import Press
from .widget_factory import InputWidget, WidgetFactory

if TYPE_CHECKING:
    from ..view import View

__all__ = ["Toolbar"]

SPEEDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
ENDED = {
    "seconds": "time limit reached", "accuracy": "target accuracy reached", "updates": "limit of updates reached",
    "samples": "limit of samples reached", "epochs": "limit of epochs reached", "finished": "all workers finished",
    "user": "stopped by you", "interrupted": "interrupted", "error": "error", "closed": "the cluster was closed",
}  # fmt: skip
Toggle = type[Start | Pause | Resume | Stop | Reset | Pin | Unpin | Step | WhatIf | BackToLive]  # without arguments
NO_SCENARIO = "no scenario (own settings)"
TICKS = 300  # of the slider: integers, because a browser rounds other numbers and reports the change as the user's choice
REFUSED = 1.5  # seconds for which the page shows that an action has no effect now
LONG = 60.0  # seconds: the slider of a longer run grows with the run


class Toolbar:
    """`box`: the widget. `refresh()`: shows the present state. `scenarios`: {name: title}."""

    def __init__(self, factory: WidgetFactory, press: Press, refresh: Callable[[], None], scenarios: dict[str, str]):
        self.factory, self._press, self._refresh = factory, press, refresh
        self._actions: frozenset[type[Action]] = frozenset()
        self._refused, self._refused_at = "", -REFUSED
        # Whether the button executes the opposite action now.
        self._toggled: dict[type[Action], bool] = {Pause: False, Pin: False}
        self._buttons: dict[tuple[Toggle, ...], Any] = {}
        self._scenario = self._scenario_menu(scenarios)
        make = self._button
        self._run = make("Run", (Start,), "lk-main", "play", "start a run with these settings")
        self._pause = make("Pause", (Pause, Resume), "", "pause")
        self._stop = make("Stop", (Stop,), "", "stop", "end the run, with a final evaluation")
        self._reset = make("Reset, same seed", (Reset,), "", "undo", "back to 0 s with the same settings")
        pinned = "make this the reference run: later runs are drawn over it"
        self._pin = make("Pin", (Pin, Unpin), "", "thumb-tack", pinned)
        self._step = make("Step", (Step,), "lk-quiet", "step-forward", "go to the next applied update", again=True)
        fork = "repeat the run up to this time, and continue from there"
        self._what_if = make("What if from here", (WhatIf,), "", "code-fork", fork)
        self._live = make("Back to live", (BackToLive,), "lk-quiet lk-gone", "", "show the present time")
        self._now, self._ends = factory.html("lk-now"), factory.html("lk-ends")
        back = "show an earlier time of the run"
        slider = factory.make(widgets.IntSlider, "lk-scrub", min=0, max=TICKS, value=0, readout=False, tooltip=back)
        self._time = InputWidget(factory, slider, self._seek)
        self._recorded, self._length = 0.0, 1.0
        fast = "playback speed, in seconds of virtual time per second"
        speeds = factory.make(widgets.Dropdown, "lk-speed", options=_speeds(1.0), value=1.0, tooltip=fast)
        self._speed = InputWidget(factory, speeds, lambda speed: press(ChangeSettings({"speed": speed})))
        buttons = [self._scenario.widget, self._run, self._pause, self._stop, self._reset, self._pin, self._what_if]
        state, slot = factory.box([self._now], "lk-state"), factory.box([self._ends, self._live], "lk-slot")
        player = [state, slider, slot, self._step, speeds]
        self.box = factory.box([factory.box(buttons, "lk-top"), factory.box(player, "lk-player")], "lk-col")

    def _scenario_menu(self, scenarios: dict[str, str]) -> InputWidget:
        options = [(NO_SCENARIO, ""), *((f"Scenario: {title}", name) for name, title in scenarios.items())]
        tip = "prepared experiments; the selected one starts at once"
        menu = self.factory.make(widgets.Dropdown, "lk-scenario", options=options, value="", tooltip=tip)
        return InputWidget(self.factory, menu, lambda name: self._press(PlayScenario(name or None)))

    def _button(self, label: str, actions: tuple[Toggle, ...], *more: Any, **flags: Any) -> Any:
        """A button for one action, or for an action and its opposite. It acts only if one of them is available now."""

        def act() -> None:
            action = actions[-1] if self._toggled.get(actions[0]) else actions[0]
            if any(kind in self._actions for kind in actions):
                self._press(action())
            else:
                self._refused, self._refused_at = f"{action.name}: not available now", self.factory.clock()
                self._refresh()

        made = self.factory.button(label, act, *more, **flags)
        self._buttons[actions] = made
        return made

    def _seek(self, tick: int) -> None:
        seconds = tick * self._length / TICKS
        if seconds >= self._recorded:
            self._press(BackToLive())
        else:
            self._press(Seek(seconds))

    # drawing ----------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """The user's choice was accepted or refused."""
        self._speed.settle()

    def show(self, view: View) -> None:
        """Show the view."""
        factory, self._actions = self.factory, view.actions
        dask = not view.settings.cluster.virtual_time
        active = view.state in ("running", "paused")
        label = "Run again" if active and view.changed else "Run on cluster" if dask else "Run"
        factory.put(self._run, description=label)
        paused = Pause not in view.actions and Resume in view.actions
        paused = {"pausing": True, "resuming": False}.get(view.busy, paused)  # show the requested state at once
        pinned = Unpin in view.actions  # also if the reference run is this one, which is not drawn twice
        self._toggled = {Pause: paused, Pin: pinned}
        label, icon = ("Resume", "play") if paused else ("Pause", "pause")
        factory.put(self._pause, description=label, icon=icon, tooltip="continue" if paused else "pause the run")
        factory.put(self._pin, description="Unpin" if pinned else "Pin")
        factory.put(self._reset, description=f"Reset, same seed {view.settings.problem.seed}")
        looking = not view.live
        factory.mark(self._live, lk_gone=not looking)
        factory.mark(self._ends, lk_gone=looking)
        factory.mark(self._what_if, lk_gone=not (looking and WhatIf in view.actions))
        for actions, button in self._buttons.items():
            factory.mark(button, lk_off=not any(kind in view.actions for kind in actions))
        self._show_player(view, looking)
        factory.write(self._now, self._state(view))
        scenario = view.scenario.name if view.scenario is not None else ""
        if scenario in {value for _, value in self._scenario.widget.options}:
            self._scenario.show(scenario)

    def _show_player(self, view: View, looking: bool) -> None:
        t, self._recorded = view.t / NANO, view.recorded / NANO
        self._length = _length(self._recorded, None if view.ends is None else view.ends / NANO)
        self._time.show(round(min(t / self._length, 1.0) * TICKS))
        played = looking or view.simulated or view.settings.cluster.virtual_time
        self.factory.mark(self._speed.widget, lk_off=not played)
        options = _speeds(view.settings.speed)
        changed = {"options": options} if self._speed.widget.options != options else {}
        self._speed.show(view.settings.speed, **changed)
        self.factory.write(self._ends, _ends(view, t))

    def _state(self, view: View) -> str:
        """The state of the run and its time; below, the command that is being executed."""
        refused = self._refused if self.factory.clock() - self._refused_at < REFUSED else ""
        at = f"{view.t / NANO:.2f} s" if not view.live else f"{view.t / NANO:.1f} s"
        below = view.busy + "…" if view.busy else refused
        if view.processes is not None:
            up, wanted = view.processes
            below = below or f"cluster starting, {up} of {wanted}"
        if not view.live:
            below = below or ("playing" if view.replaying else "looking back")
            above = f"<b>replay {at}</b>" if view.replaying else f"<b>{at}</b>"
        elif view.state == "running":
            below = below or ("virtual time" if view.simulated else "on the cluster")
            above = f'<span class="lk-live">● {"PREVIEW" if view.processes is not None else "LIVE"}</span> {at}'
        else:
            red = ' class="lk-red"' if view.state == "failed" else ""
            state = "ended" if view.state == "over" else view.state
            above = f"<b{red}>{state}</b> {at}" if state != "ready" else f"<b>{state}</b>"
            below = below or _why(view)
        return f"<div>{above}<small>{html.escape(below) or '&nbsp;'}</small></div>"


def _why(view: View) -> str:
    """The reason why the run does not advance."""
    ending = view.trace.ending
    if view.state == "over" and ending is not None:
        return ENDED.get(ending["stopped_by"], ending["stopped_by"])
    return {"ready": "press Run", "paused": "press Resume"}.get(view.state, "")


def _length(recorded: float, ends: float | None) -> float:
    """The end of the slider, in seconds: the end of the budget if that is at most `LONG` or a quarter of it is recorded."""
    if ends is not None and (ends <= LONG or recorded >= ends / 4):
        return max(ends, recorded)
    return nice_above(max(recorded, 10.0))


def _ends(view: View, t: float) -> str:
    """The limits of the run's budget, and the time left, as HTML."""
    goal, active = view.shown.budget.accuracy, view.state in ("running", "paused")
    limits = [f"ends at {view.ends / NANO:g} s"] if view.ends is not None else []
    if goal is not None:
        limits.append(f"{'or at' if limits else 'ends at'} {100 * goal:g}%")
    if active and view.ends is not None:
        limits.append(f"{max(0.0, view.ends / NANO - t):.0f} s left")
    first, *more = limits or [""]
    return f"<div>{first}<small>{' · '.join(more) or '&nbsp;'}</small></div>"


def _speeds(now: float) -> tuple[tuple[str, float], ...]:
    """The speeds in the menu, including the present one."""
    return tuple((f"{speed:g}x", speed) for speed in sorted({*SPEEDS, now}))
