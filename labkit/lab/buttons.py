"""What a button of the page does. The table of all buttons is `Lab._make_buttons`; a button has the name of the method of `Lab`
that does the same, or the word of a command.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Button:
    """One button.

    `operation`: executed on the command thread, with the arguments of the press. None: `at_once` is all.
    `doing`: what the page says meanwhile. `once`: whether the same press is ignored meanwhile, as after a double click.
    `at_once`: executed before, by the thread of the press, with the same arguments.
    `read`: makes the only argument of both from what the page sends.
    `holds`: whether `Lab.wait` waits until the active run is resumed.
    """

    operation: Callable[..., Any] | None = None
    doing: str = "working"
    once: bool = False
    at_once: Callable[..., Any] | None = None
    read: Callable[..., Any] | None = None
    holds: bool = False

    def arguments(self, sent: tuple[object, ...]) -> tuple[object, ...]:
        """Return the arguments of a press. Raises `TypeError` if their number is wrong, `BadInput` if a value is not allowed."""
        if self.read is not None:
            return (self.read(*sent),)
        takes = self.at_once or self.operation
        assert takes is not None
        inspect.signature(takes).bind(*sent)
        return sent
