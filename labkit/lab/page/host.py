"""What the page needs of a lab."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ..view import View

__all__ = ["Host", "Press"]


class Press(Protocol):
    """Carries out the action of a button, as soon as possible. It raises nothing: errors are shown."""

    def __call__(self, action: str, *arguments: Any) -> None:
        """`action`: see `Lab.press`."""


class Host(Protocol):
    """The lab that a page belongs to."""

    @property
    def press(self) -> Press:
        """Carries out the action of a button."""

    def view(self) -> View:
        """Everything that the page shows, now."""

    def scenarios(self) -> dict[str, str]:
        """{name: title} of the scenarios in the menu."""

    def share_text(self) -> str:
        """The lab as a text. `BadInput` if it has none."""
