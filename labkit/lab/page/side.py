"""The column of controls: everything that can be chosen, in the order in which one thinks of it; and, for the shelf
under the pictures, which of them are shown, and the whole lab as a text.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from ...errors import LabkitError
from ..controls import controls
from .kit import Dial, Kit
from .knobs import Section
from .runs import Runs
from .trouble import Trouble

if TYPE_CHECKING:
    from ..settings import Settings
    from ..view import View

__all__ = ["Side"]


class Side:
    """`box` and `shelf` are what is shown. `names`: the settings that can be turned, None: all. `press` is told what a
    person wants; `pick(panel, wanted)` that a panel is to be shown or not. `code()` gives the lab as a text.
    """

    def __init__(
        self, kit: Kit, names: tuple[str, ...] | None, trouble: Trouble, press: Callable[..., None],
        panels: tuple[str, ...], pick: Callable[[str, bool], None], code: Callable[[], str],
    ):  # fmt: skip
        self.kit, self._names, self._code = kit, names, code
        self._shown: tuple[Settings, tuple[str, ...]] | None = None
        self._written: Any = None

        def turned(name: str, value: Any) -> None:
            press("set", {name: value})

        self.runs = Runs(kit, press)
        order = ("algorithm", "cluster", "problem", "stop", "more")
        self._sections = {group: Section(kit, group, turned, folded=group == "more") for group in order}
        self._panels = {name: self._check(name, pick) for name in panels}
        self._text = kit.html("lk-code")
        boxes = {group: section.box for group, section in self._sections.items()}
        parts = [
            boxes["algorithm"], boxes["cluster"], trouble.box, boxes["problem"], boxes["stop"], boxes["more"], self.runs.box,
        ]  # fmt: skip
        self.box = kit.box(parts, "lk-side")
        checks = kit.box([dial.widget for dial in self._panels.values()], "lk-flow")
        shelf = [
            kit.box([kit.html("lk-h", title), box], "lk-sec")
            for title, box in (("panels", checks), ("code", self._text))
        ]
        self.shelf = kit.box(shelf, "lk-shelf")

    def _check(self, name: str, pick: Callable[[str, bool], None]) -> Dial:
        label = name.replace("_", " ")
        made = self.kit.make(
            widgets.Checkbox, "lk-check", value=False, description=label, indent=False, tooltip=f"show {label}"
        )
        return Dial(self.kit, made, partial(pick, name))

    def settle(self) -> None:
        """What was chosen has been taken or refused: what is shown next is the truth."""
        self._shown = None
        for section in self._sections.values():
            section.settle()

    def show(self, view: View, panels: tuple[str, ...]) -> None:
        """Everything as the view says. `panels`: those that are shown."""
        self.runs.show(view)
        for name, dial in self._panels.items():
            dial.show(name in panels)
        now = (view.setup, view.changed)
        if self._shown == now:
            return
        self._shown = now
        found, later = controls(view.setup, self._names), frozenset(view.changed)
        for group, section in self._sections.items():
            section.show(tuple(c for c in found if c.group == group), later)

    def say_code(self, view: View, panels: tuple[str, ...]) -> None:
        """The lab as a text that opens it again; if there is a text for it."""
        now = (view.setup, view.trace, len(view.trace.events), view.story, panels)
        if now == self._written:
            return
        self._written = now
        try:
            text = f"<code>{html.escape(self._code())}</code>"
        except LabkitError as error:
            text = f'<span class="lk-grey">{html.escape(str(error))}</span>'
        self.kit.say(self._text, text)
