"""Controls of a lab as ipywidgets, for layouts of one's own: `lab.control(name)`. For example, in one cell

    import ipywidgets, labkit as lk
    lab = lk.Lab(controls=())
    ipywidgets.HBox([lab.control("strategy"), lab.control("workers"), lab.control("learning_rate")])

and `lab` in the next one. A widget shows a setting of the next run, and changes it when the user chooses a value. It follows all
other changes of the setting: by a method of the lab, on the page, by Undo, and by a scenario.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import ipywidgets

from ..errors import BadInput
from .controls import Control, controls
from .page.widget import receive_during_cells
from .settings import Settings


class ControlWidget:
    """The widget of one setting. `widget`: a dropdown, a slider over values, a checkbox or a text field; for a number in a range
    a slider and a text field, because a slider of ipywidgets would replace a typed value out of its range without a message.

    `settings()`: the present settings. `choose(name, value)`: changes the setting, or refuses the value, which then does not stay
    in the widget; texts are not parsed yet. Raises `BadInput` if `name` is unknown or has no control with these settings.
    """

    def __init__(self, name: str, settings: Callable[[], Settings], choose: Callable[[str, Any], None]):
        self.name, self._settings, self._choose = name, settings, choose
        self._lock = threading.RLock()  # settings change on any thread
        self._showing = False
        controls(settings(), (name,))
        control = self._control()
        if control is None:
            raise BadInput(f"There is no control for {name!r} with the present settings; use lab.set({name}=...).")
        self._parts = _parts(control)
        self.widget = self._parts[0] if len(self._parts) == 1 else ipywidgets.HBox(self._parts)
        self.show()
        for part in self._parts:
            part.observe(self._chosen, "index" if control.choices else "value")

    def show(self) -> None:
        """Show the present value. The widget is disabled while its setting has no effect."""
        with self._lock:
            control = self._control()
            self._showing = True
            try:
                for part in self._parts:
                    part.disabled = control is None
                    if control is not None:
                        _put(part, control)
                    receive_during_cells(part)
            finally:
                self._showing = False

    def disable(self) -> None:
        """Accept no more values."""
        with self._lock:
            for part in self._parts:
                part.disabled = True

    def _control(self) -> Control | None:
        return {control.name: control for control in controls(self._settings())}.get(self.name)

    def _chosen(self, change: Any) -> None:
        with self._lock:
            control = None if self._showing else self._control()
        if control is not None:
            self._choose(self.name, _value(control, change["new"]))
            self.show()


def _parts(control: Control) -> list[Any]:
    """The widgets for a control, without its value."""
    help = f"{control.help}{'' if control.live else ' (for the next run)'}".strip()
    more: dict[str, Any] = {"description": control.label, "tooltip": help}
    labels = [label for label, _ in control.choices]
    if control.kind == "menu":
        return [ipywidgets.Dropdown(options=labels, **more)]
    if control.kind == "steps":
        return [ipywidgets.SelectionSlider(options=labels, continuous_update=False, **more)]
    if control.kind == "check":
        return [ipywidgets.Checkbox(indent=False, **more)]
    if control.kind == "text":
        return [ipywidgets.Text(continuous_update=False, **more)]
    text = ipywidgets.Text(continuous_update=False, tooltip=help, layout={"width": "80px"})
    more |= {"readout": False, "continuous_update": False}
    if control.log:
        low, high = math.log10(control.low), math.log10(control.high)
        return [ipywidgets.FloatLogSlider(min=low, max=high, step=0.05, **more), text]
    step = (control.high - control.low) / 100
    return [ipywidgets.FloatSlider(min=control.low, max=control.high, step=step, **more), text]


def _put(part: Any, control: Control) -> None:
    """Show the value of a control."""
    if control.choices:
        labels = tuple(label for label, _ in control.choices)
        if part.options != labels:
            part.options = labels
        part.index = next(i for i, (_, value) in enumerate(control.choices) if value == control.value)
    else:
        part.value = str(control.value) if isinstance(part, ipywidgets.Text) else control.value


def _value(control: Control, chosen: Any) -> Any:
    """The value that the user has chosen: a number with three digits for a slider."""
    if control.choices:
        return control.choices[chosen][1]
    if isinstance(chosen, str):
        return chosen.strip()
    return chosen if isinstance(chosen, bool) else float(f"{chosen:.3g}")
