"""Fault injection: choose a role, then slow it down, kill it, freeze it, or cut its links. Servers are green, roles with a fault
are orange; the chip of a role that is down, frozen or cut off is dashed and names the condition.

The buttons are derived from the commands that the engine supports. The same button undoes a command, with another label: Kill
is Restart while the role is down. There is a chip for every role; chips are hidden but never removed, so that the focus stays.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from ...engines.commands import Command, Cut, Freeze, Kill, Reconnect, Restart, Slow, Thaw
from ...formatting import short
from ...trace.trace import Trace
from ..actions import Execute
from .lab_interface import Press
from .widget_factory import InputWidget, WidgetFactory

if TYPE_CHECKING:
    from ..view import View

__all__ = ["FaultControls"]

MOST_CHIPS = 16  # of one kind; a menu if there are more
FACTORS = (1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0)
Kind = type[Command]
PAIRS: dict[Kind, Kind] = {Kill: Restart, Freeze: Thaw, Cut: Reconnect}  # a command, and the one that undoes it
LABELS: dict[Kind, str] = {
    Kill: "Kill", Restart: "Restart", Freeze: "Freeze", Thaw: "Thaw", Cut: "Cut off", Reconnect: "Reconnect",
}  # fmt: skip
TIPS: dict[Kind, str] = {
    Kill: "kill the process of {}; it stays down until Restart",
    Restart: "restart {} from its last checkpoint",
    Freeze: "suspend the process of {}; after the heartbeat timeout it is declared lost",
    Thaw: "resume {}; it is shut down if it was declared lost meanwhile",
    Cut: "cut the links between {} and the others; after the heartbeat timeout it is declared lost",
    Reconnect: "reconnect {} with the others",
}


class FaultControls:
    """The controls for fault injection. `box`: the widget."""

    def __init__(self, factory: WidgetFactory, press: Press):
        self.factory, self._press = factory, press
        self.role = ""  # the chosen one
        self._by_user = False  # whether the user has chosen it
        self._view: View | None = None
        self._roles: tuple[str, ...] = ()
        self._chips: list[InputWidget] = []
        self._buttons: dict[Kind, Any] = {}
        self._chip_box, self._button_box = factory.box([], "lk-chips"), factory.box([], "lk-faults")
        menu = factory.make(widgets.Dropdown, "lk-setting lk-gone", description="role", options=[("", "")], value="")
        self._menu = InputWidget(factory, menu, self._choose)
        slider = factory.make(
            widgets.SelectionSlider, "lk-setting lk-slowdown", description="slowdown", options=_factors(1.0), value=1.0,
            continuous_update=False, tooltip="factor by which computing takes longer; 1x is normal speed",
        )  # fmt: skip
        self._slowdown = InputWidget(factory, slider, self._slow, hold=1.5)
        head = factory.html("lk-h", "inject a fault")
        self.box = factory.box([head, self._chip_box, menu, slider, self._button_box], "lk-sec")

    # what the user does -----------------------------------------------------------------------------------------------

    def _choose(self, role: str) -> None:
        with self.factory.lock:
            self.role, self._by_user = role, True
            self._slowdown.settle()
            if self._view is not None:
                self.show(self._view)

    def _chip_pressed(self, place: int, _: bool) -> None:
        if place < len(self._roles):
            self._choose(self._roles[place])

    def _slow(self, factor: float) -> None:
        if self.role:
            self._press(Execute(Slow(self.role, factor)))

    def _button_pressed(self, kind: Kind) -> None:
        view, role = self._view, self.role
        if not role or view is None:
            return
        now: Any = self._now(kind, view)
        stays_down = {"restart": False} if now is Kill and Restart in view.supported else {}
        self._press(Execute(now(role, **stays_down)))

    def _now(self, kind: Kind, view: View) -> Kind:
        """The class of the command that a button executes now: `kind`, or the one that undoes it if it is in effect."""
        undo = PAIRS[kind]
        return undo if undo in view.supported and undo.word in view.undo.get(self.role, ()) else kind

    # drawing ----------------------------------------------------------------------------------------------------------

    def show(self, view: View) -> None:
        """The roles, the chosen one, and their conditions."""
        self._view = view
        trace = view.trace
        servers, workers = (tuple(trace.roles[i] for i in trace.role_ids(kind)) for kind in ("server", "worker"))
        many = len(workers) > MOST_CHIPS or len(servers) > MOST_CHIPS
        roles = (*workers, *servers)
        self._roles = () if many else roles
        if self.role not in roles or not self._by_user:
            self.role, self._by_user = self._default_role(view, roles), False
        self._show_chips(view, trace)
        self.factory.mark(self._menu.widget, lk_gone=not many)
        if many:
            self._offer(self._menu, tuple((_role_text(role, view), role) for role in roles), self.role)
        factor = view.slow.get(self.role, 1.0)
        self._offer(self._slowdown, _factors(factor), factor)
        self._show_buttons(view)

    @staticmethod
    def _default_role(view: View, roles: tuple[str, ...]) -> str:
        """The role that is chosen before the user chooses one: the first with a fault."""
        disturbed = (*view.slow, *view.conditions)
        return next((role for role in disturbed if role in roles), roles[0] if roles else "")

    @staticmethod
    def _offer(choice: InputWidget, options: tuple[tuple[str, Any], ...], value: Any) -> None:
        """Show a value. Options are sent only if they are new, because a browser rebuilds the menu for them."""
        choice.show(value, **({"options": options} if choice.widget.options != options else {}))

    def _show_chips(self, view: View, trace: Trace) -> None:
        factory = self.factory
        while len(self._chips) < len(self._roles):
            place = len(self._chips)
            chip = factory.make(widgets.ToggleButton, "", description="")
            self._chips.append(InputWidget(factory, chip, partial(self._chip_pressed, place), hold=0.0))
            factory.put(self._chip_box, children=(*self._chip_box.children, chip))
        for place, chip in enumerate(self._chips):
            there = place < len(self._roles)
            factory.mark(chip.widget, lk_gone=not there)
            if there:
                role = self._roles[place]
                server = trace.kinds[trace.roles.index(role)] == "server"
                condition = view.conditions.get(role, "")
                text = f"{short(role)} {condition}".strip()
                chip.show(role == self.role, description=text, tooltip=_role_text(role, view))
                slow = view.slow.get(role, 1) != 1
                factory.mark(chip.widget, lk_server=server, lk_slow=slow, lk_away=bool(condition))

    def _show_buttons(self, view: View) -> None:
        factory = self.factory
        for kind in PAIRS:
            if kind in view.supported and kind not in self._buttons:
                press = partial(self._button_pressed, kind)
                self._buttons[kind] = factory.button(LABELS[kind], press, "lk-quiet", tip=LABELS[kind])
                factory.put(self._button_box, children=tuple(self._buttons[k] for k in PAIRS if k in self._buttons))
        for kind, button in self._buttons.items():
            now = self._now(kind, view)
            tip = TIPS[now].format(short(self.role) if self.role else "the selected role")
            factory.put(button, description=LABELS[now], tooltip=tip)
            factory.mark(button, lk_off=now not in view.supported, lk_undo=now is not kind)


def _role_text(role: str, view: View) -> str:
    factor, condition = view.slow.get(role, 1), view.conditions.get(role, "")
    return " ".join(filter(None, (short(role), f"×{factor:g}" if factor != 1 else "", condition)))


def _factors(now: float) -> tuple[tuple[str, float], ...]:
    return tuple((f"{factor:g}x", factor) for factor in sorted({*FACTORS, now}))
