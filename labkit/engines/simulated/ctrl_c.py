"""Ctrl-C between two events. In the middle of one it would leave a role that can neither go on nor end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any, Self

__all__ = ["CtrlC"]


class CtrlC:
    """A block in which the first Ctrl-C waits for `answer()`, and calls `heard()`; a second one does not wait.

    The handler that was there before it still has the last word. Only the main thread is ever interrupted: elsewhere
    there is nothing to do.
    """

    def __init__(self, heard: Callable[[], None]):
        self._heard, self._asked, self._before = heard, False, None

    def _note(self, number: int, frame: Any) -> None:
        if self._asked:
            self._before(number, frame)  # type: ignore[misc]
        self._asked = True
        self._heard()

    def answer(self) -> None:
        """Pass on a Ctrl-C that has come since: as a rule this raises `KeyboardInterrupt`."""
        if self._asked:
            self._asked = False
            self._before(signal.SIGINT, None)  # type: ignore[misc]

    def __enter__(self) -> Self:
        before: Any = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(before):
            self._before = before
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            if kind is None:
                self.answer()
