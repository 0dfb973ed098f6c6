"""A widget for each `Control`, and sections of them.

A widget is replaced only if its control is of another kind (other choices, another range); a new value is shown by the same
widget, so that an open menu stays open and the focus does not move.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from ..controls import Control
from .widget_factory import InputWidget, WidgetFactory

__all__ = ["Section", "SettingWidget"]


class SettingWidget:
    """One control. `widget`: its widget. `chosen(name, value)`: called when the user has chosen a value."""

    def __init__(self, factory: WidgetFactory, control: Control, chosen: Callable[[str, Any], None]):
        self.factory, self.key, self.name = factory, kind_of(control), control.name
        self.widget = _widget(factory, control)
        trait = "index" if control.choices else "value"
        self._input = InputWidget(
            factory, self.widget, lambda value: chosen(control.name, _value(control, value)), trait=trait
        )

    def show(self, control: Control, next_run: bool) -> None:
        """Show the value. `next_run`: the displayed run has a different value."""
        self._input.show(_index(control) if control.choices else control.value)
        self.factory.mark(self.widget, lk_next=next_run)

    def settle(self) -> None:
        """The user's choice was accepted or refused."""
        self._input.settle()


def kind_of(control: Control) -> tuple[Any, ...]:
    """A key: controls with equal keys can be shown by the same widget."""
    return control.name, control.label, control.kind, control.choices, control.low, control.high, control.log


def _index(control: Control) -> int:
    """The index of the choice; a browser cannot represent values such as None and inf."""
    return next(i for i, (_, value) in enumerate(control.choices) if value == control.value)


def _value(control: Control, value: Any) -> Any:
    """The chosen value: three digits for a slider; text is parsed by the lab."""
    if control.choices:
        return control.choices[value][1]
    if control.kind == "slider":
        return float(f"{value:.3g}")
    if control.kind == "text":
        return value.strip()
    return value


def _widget(factory: WidgetFactory, control: Control) -> Any:
    help = control.help + ("" if control.live else " (for the next run)")
    more = {"description": control.label, "tooltip": f"{control.label}: {help}".strip(": ")}
    if control.kind == "menu":
        bare = control.name == "strategy"
        more["description"] = "" if bare else control.label
        return factory.make(
            widgets.Dropdown, "lk-setting lk-bare" if bare else "lk-setting", **_choice(control), **more
        )
    if control.kind == "steps":
        return factory.make(widgets.SelectionSlider, "lk-setting", continuous_update=False, **_choice(control), **more)
    if control.kind == "slider" and control.log:
        low, high = math.log10(control.low), math.log10(control.high)
        return factory.make(
            widgets.FloatLogSlider, "lk-setting", min=low, max=high, step=0.05, value=control.value, readout_format=".3g",
            continuous_update=False, **more,
        )  # fmt: skip
    if control.kind == "slider":
        return factory.make(
            widgets.FloatSlider, "lk-setting", min=control.low, max=control.high, step=(control.high - control.low) / 100,
            value=control.value, readout_format=".3g", continuous_update=False, **more,
        )  # fmt: skip
    if control.kind == "check":
        return factory.make(widgets.Checkbox, "lk-check", indent=False, value=control.value, **more)
    return factory.make(widgets.Text, "lk-setting", value=control.value, continuous_update=False, **more)


def _choice(control: Control) -> dict[str, Any]:
    return {"options": [label for label, _ in control.choices], "index": _index(control)}


class Section:
    """A heading and some settings. `box`: the widget."""

    def __init__(self, factory: WidgetFactory, title: str, chosen: Callable[[str, Any], None], folded: bool = False):
        self.factory, self._chosen = factory, chosen
        self.folded = folded
        if folded:
            self._head: Any = factory.button("more…", self._fold, "lk-link", again=True)
        else:
            self._head = factory.html("lk-h", title)
        self._widgets: dict[str, SettingWidget] = {}
        self._shown: tuple[Control, ...] = ()
        self._next_run: frozenset[str] = frozenset()
        self.box = factory.box([self._head], "lk-sec lk-gone lk-more" if folded else "lk-sec lk-gone")

    def show(self, shown: tuple[Control, ...], next_run: frozenset[str]) -> None:
        """Show these controls, in this order. `next_run`: the names of those of which the displayed run has a different value."""
        self._shown, self._next_run = shown, next_run
        factory = self.factory
        factory.mark(self.box, lk_gone=not shown)
        if self.folded:
            shown = ()
        before = self._widgets
        self._widgets = {}
        for control in shown:
            old = before.get(control.name)
            kept = old is not None and old.key == kind_of(control)
            self._widgets[control.name] = (
                old if kept and old is not None else SettingWidget(factory, control, self._chosen)
            )
            self._widgets[control.name].show(control, control.name in next_run)
        factory.put(self.box, children=(self._head, *(made.widget for made in self._widgets.values())))
        factory.drop(*(made.widget for name, made in before.items() if self._widgets.get(name) is not made))

    def settle(self) -> None:
        """The user's choice was accepted or refused."""
        for made in self._widgets.values():
            made.settle()

    def _fold(self) -> None:
        with self.factory.lock:
            self.folded = not self.folded
            self.factory.put(self._head, description="more…" if self.folded else "less")
            self.show(self._shown, self._next_run)
