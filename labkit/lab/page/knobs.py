"""One setting as something to turn: a widget for each `Control`, and sections of them.

A widget is made again only if its control is another one (other choices, another range); a new value moves it. So a
menu that is open stays open, and the focus stays where it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from ..controls import Control
from .kit import Dial, Kit

__all__ = ["Knob", "Section"]


class Knob:
    """`widget` is what is shown; `turned(name, value)` is called when a person has chosen."""

    def __init__(self, kit: Kit, control: Control, turned: Callable[[str, Any], None]):
        self.kit, self.key, self.name = kit, kind_of(control), control.name
        self.widget = _widget(kit, control)
        trait = "index" if control.choices else "value"
        self._dial = Dial(kit, self.widget, lambda value: turned(control.name, _meant(control, value)), trait=trait)

    def show(self, control: Control, later: bool) -> None:
        """Show the value; `later`: the run that is on has another one."""
        self._dial.show(_place(control) if control.choices else control.value)
        self.kit.mark(self.widget, lk_next=later)

    def settle(self) -> None:
        """What was chosen has been taken or refused."""
        self._dial.settle()


def kind_of(control: Control) -> tuple[Any, ...]:
    """Controls of equal kind can be shown by one widget."""
    return control.name, control.label, control.kind, control.choices, control.low, control.high, control.log


def _place(control: Control) -> int:
    """The number of the choice that is chosen: values as None and inf are no concern of a browser's."""
    return next(i for i, (_, value) in enumerate(control.choices) if value == control.value)


def _meant(control: Control, value: Any) -> Any:
    """What a person meant: a slider's numbers have three digits; a text is read by the lab."""
    if control.choices:
        return control.choices[value][1]
    if control.kind == "slider":
        return float(f"{value:.3g}")
    if control.kind == "text":
        return value.strip()
    return value


def _widget(kit: Kit, control: Control) -> Any:
    help = control.help + ("" if control.live else " (for the next run)")
    more = {"description": control.label, "tooltip": f"{control.label}: {help}".strip(": ")}
    if control.kind == "menu":
        bare = control.name == "strategy"
        more["description"] = "" if bare else control.label
        return kit.make(widgets.Dropdown, "lk-knob lk-bare" if bare else "lk-knob", **_choice(control), **more)
    if control.kind == "steps":
        return kit.make(widgets.SelectionSlider, "lk-knob", continuous_update=False, **_choice(control), **more)
    if control.kind == "slider" and control.log:
        low, high = math.log10(control.low), math.log10(control.high)
        return kit.make(
            widgets.FloatLogSlider, "lk-knob", min=low, max=high, step=0.05, value=control.value, readout_format=".3g",
            continuous_update=False, **more,
        )  # fmt: skip
    if control.kind == "slider":
        return kit.make(
            widgets.FloatSlider, "lk-knob", min=control.low, max=control.high, step=(control.high - control.low) / 100,
            value=control.value, readout_format=".3g", continuous_update=False, **more,
        )  # fmt: skip
    if control.kind == "check":
        return kit.make(widgets.Checkbox, "lk-check", indent=False, value=control.value, **more)
    return kit.make(widgets.Text, "lk-knob", value=control.value, continuous_update=False, **more)


def _choice(control: Control) -> dict[str, Any]:
    return {"options": [label for label, _ in control.choices], "index": _place(control)}


class Section:
    """A heading and some knobs. `box` is what is shown."""

    def __init__(self, kit: Kit, title: str, turned: Callable[[str, Any], None], folded: bool = False):
        self.kit, self._turned = kit, turned
        self.folded = folded
        if folded:
            self._head: Any = kit.button("more…", self._fold, "lk-link", again=True)
        else:
            self._head = kit.html("lk-h", title)
        self._knobs: dict[str, Knob] = {}
        self._shown: tuple[Control, ...] = ()
        self._later: frozenset[str] = frozenset()
        self.box = kit.box([self._head], "lk-sec lk-gone lk-more" if folded else "lk-sec lk-gone")

    def show(self, shown: tuple[Control, ...], later: frozenset[str]) -> None:
        """These controls, in this order; `later`: the names of those that the run that is on has otherwise."""
        self._shown, self._later = shown, later
        kit = self.kit
        kit.mark(self.box, lk_gone=not shown)
        if self.folded:
            shown = ()
        before = self._knobs
        self._knobs = {}
        for control in shown:
            old = before.get(control.name)
            kept = old is not None and old.key == kind_of(control)
            self._knobs[control.name] = old if kept and old is not None else Knob(kit, control, self._turned)
            self._knobs[control.name].show(control, control.name in later)
        kit.put(self.box, children=(self._head, *(knob.widget for knob in self._knobs.values())))
        kit.drop(*(knob.widget for name, knob in before.items() if self._knobs.get(name) is not knob))

    def settle(self) -> None:
        """What was chosen has been taken or refused."""
        for knob in self._knobs.values():
            knob.settle()

    def _fold(self) -> None:
        with self.kit.lock:
            self.folded = not self.folded
            self.kit.put(self._head, description="more…" if self.folded else "less")
            self.show(self._shown, self._later)
