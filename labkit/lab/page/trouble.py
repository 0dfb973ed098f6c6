"""The controls for faults: choose a role, then make it slower, kill it, freeze it, cut it off. Servers are green, roles with a
fault are orange; the chip of a role that is away, frozen or cut off is dashed, and says so.

The buttons follow from the commands that the engine supports. A command is undone by the same button, which then says so:
Kill is Restart as long as the role is away. There is a chip for every role and none is ever taken away, only hidden: the
chip that has the focus keeps it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from ...engines.commands import Command, Cut, Freeze, Kill, Reconnect, Restart, Slow, Thaw
from ...formatting import short
from ...trace.trace import Trace
from .kit import Dial, Kit

if TYPE_CHECKING:
    from ..view import View

__all__ = ["Trouble"]

MOST_CHIPS = 16  # of one kind; beyond, a menu
FACTORS = (1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0)
Kind = type[Command]
PAIRS: dict[Kind, Kind] = {Kill: Restart, Freeze: Thaw, Cut: Reconnect}  # a command, and the one that undoes it
LABELS: dict[Kind, str] = {
    Kill: "Kill", Restart: "Restart", Freeze: "Freeze", Thaw: "Thaw", Cut: "Cut off", Reconnect: "Reconnect",
}  # fmt: skip
TIPS: dict[Kind, str] = {
    Kill: "end the process of {} now: it stays away until Restart, so that you see what its absence does",
    Restart: "let {} come back, with what it had saved",
    Freeze: "let the process of {} stand still; when its patience is over the others give it up",
    Thaw: "let {} go on; if it was given up meanwhile, it is told to leave",
    Cut: "let nothing pass between {} and the others; when their patience is over they give it up",
    Reconnect: "let everything pass between {} and the others again",
}


class Trouble:
    """`box` is what is shown. `press("execute", command)` is called for every command that a button makes."""

    def __init__(self, kit: Kit, press: Callable[..., None]):
        self.kit, self._press = kit, press
        self.role = ""  # the one that is chosen
        self._own = False  # whether a person has chosen it
        self._view: View | None = None
        self._roles: tuple[str, ...] = ()
        self._chips: list[Dial] = []
        self._buttons: dict[Kind, Any] = {}
        self._chip_box, self._button_box = kit.box([], "lk-chips"), kit.box([], "lk-verbs")
        menu = kit.make(widgets.Dropdown, "lk-knob lk-gone", description="who", options=[("", "")], value="")
        self._menu = Dial(kit, menu, self._choose)
        slider = kit.make(
            widgets.SelectionSlider, "lk-knob lk-trouble", description="slower", options=_factors(1.0), value=1.0,
            continuous_update=False, tooltip="make the chosen one compute so many times slower; 1x undoes it",
        )  # fmt: skip
        self._slower = Dial(kit, slider, self._slow, patience=1.5)
        self.box = kit.box([kit.html("lk-h", "make trouble"), self._chip_box, menu, slider, self._button_box], "lk-sec")

    # what a person does -----------------------------------------------------------------------------------------------

    def _choose(self, role: str) -> None:
        with self.kit.lock:
            self.role, self._own = role, True
            self._slower.settle()
            if self._view is not None:
                self.show(self._view)

    def _toggled(self, place: int, _: bool) -> None:
        if place < len(self._roles):
            self._choose(self._roles[place])

    def _slow(self, factor: float) -> None:
        if self.role:
            self._press("execute", Slow(self.role, factor))

    def _do(self, kind: Kind) -> None:
        view, role = self._view, self.role
        if not role or view is None:
            return
        meant: Any = self._meant(kind, view)
        stays = {"restart": False} if meant is Kill and Restart in view.supported else {}
        self._press("execute", meant(role, **stays))

    def _meant(self, kind: Kind, view: View) -> Kind:
        """The class of the command that a button makes now: if it would undo something, that one."""
        undo = PAIRS[kind]
        return undo if undo in view.supported and undo.word in view.undo.get(self.role, ()) else kind

    # drawing ----------------------------------------------------------------------------------------------------------

    def show(self, view: View) -> None:
        """Who is there, who is chosen, what is wrong with whom."""
        self._view = view
        trace = view.trace
        servers, workers = (tuple(trace.roles[i] for i in trace.role_ids(kind)) for kind in ("server", "worker"))
        many = len(workers) > MOST_CHIPS or len(servers) > MOST_CHIPS
        roles = (*workers, *servers)
        self._roles = () if many else roles
        if self.role not in roles or not self._own:
            self.role, self._own = self._loudest(view, roles), False
        self._show_chips(view, trace)
        self.kit.mark(self._menu.widget, lk_gone=not many)
        if many:
            self._offer(self._menu, tuple((_named(role, view), role) for role in roles), self.role)
        factor = view.slow.get(self.role, 1.0)
        self._offer(self._slower, _factors(factor), factor)
        self._show_buttons(view)

    @staticmethod
    def _loudest(view: View, roles: tuple[str, ...]) -> str:
        """Who is chosen until somebody chooses."""
        disturbed = (*view.slow, *view.conditions)
        return next((role for role in disturbed if role in roles), roles[0] if roles else "")

    @staticmethod
    def _offer(dial: Dial, options: tuple[tuple[str, Any], ...], value: Any) -> None:
        """Show a value; new options only if they are new, because a browser builds a menu anew for them."""
        dial.show(value, **({"options": options} if dial.widget.options != options else {}))

    def _show_chips(self, view: View, trace: Trace) -> None:
        kit = self.kit
        while len(self._chips) < len(self._roles):
            place = len(self._chips)
            chip = kit.make(widgets.ToggleButton, "", description="")
            self._chips.append(Dial(kit, chip, partial(self._toggled, place), patience=0.0))
            kit.put(self._chip_box, children=(*self._chip_box.children, chip))
        for place, chip in enumerate(self._chips):
            there = place < len(self._roles)
            kit.mark(chip.widget, lk_gone=not there)
            if there:
                role = self._roles[place]
                server = trace.kinds[trace.roles.index(role)] == "server"
                how = view.conditions.get(role, "")
                chip.show(role == self.role, description=f"{short(role)} {how}".strip(), tooltip=_named(role, view))
                kit.mark(chip.widget, lk_server=server, lk_slow=view.slow.get(role, 1) != 1, lk_away=bool(how))

    def _show_buttons(self, view: View) -> None:
        kit = self.kit
        for kind in PAIRS:
            if kind in view.supported and kind not in self._buttons:
                self._buttons[kind] = kit.button(LABELS[kind], partial(self._do, kind), "lk-quiet", tip=LABELS[kind])
                kit.put(self._button_box, children=tuple(self._buttons[k] for k in PAIRS if k in self._buttons))
        for kind, button in self._buttons.items():
            now = self._meant(kind, view)
            tip = TIPS[now].format(short(self.role) if self.role else "the chosen one")
            kit.put(button, description=LABELS[now], tooltip=tip)
            kit.mark(button, lk_off=now not in view.supported, lk_undo=now is not kind)


def _named(role: str, view: View) -> str:
    factor, how = view.slow.get(role, 1), view.conditions.get(role, "")
    return " ".join(filter(None, (short(role), f"×{factor:g}" if factor != 1 else "", how)))


def _factors(now: float) -> tuple[tuple[str, float], ...]:
    return tuple((f"{factor:g}x", factor) for factor in sorted({*FACTORS, now}))
