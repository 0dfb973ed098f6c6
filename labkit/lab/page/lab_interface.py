"""The interface of a lab for its page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..actions import Action

if TYPE_CHECKING:
    from ..view import View

__all__ = ["PageHost", "Press"]


class Press(Protocol):
    """Executes the action of a button as soon as possible. Never raises: errors are shown."""

    def __call__(self, action: Action) -> None:
        """See `Lab.press`."""


class PageHost(Protocol):
    """The lab that a page belongs to."""

    @property
    def press(self) -> Press:
        """Executes the action of a button."""

    def view(self) -> View:
        """The present state, as the page shows it."""

    def scenarios(self) -> dict[str, str]:
        """{name: title} of the scenarios in the menu."""

    def share_text(self) -> str:
        """The lab as a text. `BadInput` if it has none."""
