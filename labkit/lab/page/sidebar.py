"""The column of controls: all settings, fault injection and the list of runs. And the shelf below the panels: which panels are
shown, and the lab as a share text.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from ...errors import LabkitError
from ..actions import ChangeSettings
from ..controls import GROUPS, controls
from .fault_controls import FaultControls
from .lab_interface import Press
from .run_list import RunList
from .setting_widgets import Section
from .widget_factory import InputWidget, WidgetFactory

if TYPE_CHECKING:
    from ..settings import Settings
    from ..view import View

__all__ = ["Sidebar"]


class Sidebar:
    """`box`, `shelf`: the widgets. `names`: the settings that can be changed, None: all. `panels`: the names of all
    panels. `choose_panel(panel, shown)`: called when a panel is to be shown or hidden. `share_text()`: the lab as a text.
    """

    def __init__(
        self, factory: WidgetFactory, names: tuple[str, ...] | None, faults: FaultControls, press: Press,
        panels: tuple[str, ...], choose_panel: Callable[[str, bool], None], share_text: Callable[[], str],
    ):  # fmt: skip
        self.factory, self._names, self._share_text = factory, names, share_text
        self._shown: tuple[Settings, tuple[str, ...]] | None = None
        self._written: Any = None

        def chosen(name: str, value: Any) -> None:
            press(ChangeSettings({name: value}))

        self._runs = RunList(factory, press)
        self._sections = {group: Section(factory, group, chosen, folded=group == "more") for group in GROUPS}
        self._panels = {name: self._checkbox(name, choose_panel) for name in panels}
        self._text = factory.html("lk-code")
        boxes = {group: section.box for group, section in self._sections.items()}
        parts = [boxes["algorithm"], boxes["cluster"], faults.box, boxes["problem"], boxes["budget"], boxes["more"]]
        self.box = factory.box([*parts, self._runs.box], "lk-side")
        checks = factory.box([check.widget for check in self._panels.values()], "lk-flow")
        shelf = [
            factory.box([factory.html("lk-h", title), box], "lk-sec")
            for title, box in (("panels", checks), ("share text", self._text))
        ]
        self.shelf = factory.box(shelf, "lk-shelf")

    def _checkbox(self, name: str, choose_panel: Callable[[str, bool], None]) -> InputWidget:
        label = name.replace("_", " ")
        made = self.factory.make(
            widgets.Checkbox, "lk-check", value=False, description=label, indent=False, tooltip=f"show {label}"
        )
        return InputWidget(self.factory, made, partial(choose_panel, name))

    def settle(self) -> None:
        """The user's choice was accepted or refused: show the lab's values next time."""
        self._shown = None
        for section in self._sections.values():
            section.settle()

    def show(self, view: View, panels: tuple[str, ...]) -> None:
        """Show the view. `panels`: those that are shown."""
        self._runs.show(view)
        for name, check in self._panels.items():
            check.show(name in panels)
        now = (view.settings, view.changed)
        if self._shown == now:
            return
        self._shown = now
        found, next_run = controls(view.settings, self._names), frozenset(view.changed)
        for group, section in self._sections.items():
            section.show(tuple(c for c in found if c.group == group), next_run)

    def show_text(self, view: View, panels: tuple[str, ...]) -> None:
        """The share text of the lab, or the reason why it has none."""
        now = (view.settings, view.trace, len(view.trace.events), view.scenario, panels)
        if now == self._written:
            return
        self._written = now
        try:
            text = f"<code>{html.escape(self._share_text())}</code>"
        except LabkitError as error:
            text = f'<span class="lk-grey">{html.escape(str(error))}</span>'
        self.factory.write(self._text, text)
