"""Ctrl-C that takes effect only at points at which nothing is half made.

Python raises `KeyboardInterrupt` between any two instructions of the main thread. An interrupted import of a package with
compiled modules cannot be repeated, and an interrupted start may leave processes. So labkit imports and starts under
`DeferredInterrupt`, and the waits in it call `raise_if_interrupted`. (It is not enough to block the signal in the main thread:
the system then delivers it to another thread of the program, and Python interrupts the main thread nevertheless.)
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any, Self


class DeferredInterrupt:
    """Context manager that defers Ctrl-C to the next `check()`, or to the end of the block. Then the handler that was installed
    before is called, which normally raises `KeyboardInterrupt`.

    `requested`: called at the first Ctrl-C; then a second one takes effect at once, because a user's code may run in the block.
    Inside another such block, in other threads than the main thread, and where SIGINT is ignored, the block does nothing.
    """

    def __init__(self, requested: Callable[[], None] | None = None):
        self._requested, self._pending, self._before = requested, False, None

    def _handle(self, number: int, frame: Any) -> None:
        if self._requested is None:
            self._pending = True
            return
        if self._pending:
            self._before(number, frame)  # type: ignore[misc]
        self._pending = True
        self._requested()

    @property
    def pending(self) -> bool:
        """Whether Ctrl-C was pressed; in the main thread, also if it blocks the signal and no other thread has received it."""
        blocked = _in_main_thread() and hasattr(signal, "sigpending") and signal.SIGINT in signal.sigpending()
        return self._pending or blocked

    def check(self) -> None:
        """Call the previous handler if Ctrl-C was pressed."""
        if self._before is not None and self.pending:
            if not self._pending:
                signal.sigwait({signal.SIGINT})
            self._pending = False
            self._before(signal.SIGINT, None)

    def __enter__(self) -> Self:
        before: Any = signal.getsignal(signal.SIGINT)
        if _in_main_thread() and callable(before) and _installed() is None:
            self._before = before
            signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            if kind is None or issubclass(kind, Exception):
                self.check()


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _installed() -> DeferredInterrupt | None:
    """Return the block that the program is in. Any thread may call it."""
    owner = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    return owner if isinstance(owner, DeferredInterrupt) else None


def interrupt_is_pending() -> bool:
    """Return whether Ctrl-C was pressed and is deferred. Any thread may call it."""
    block = _installed()
    return block is not None and block.pending


def raise_if_interrupted() -> None:
    """Let a deferred Ctrl-C take effect: normally, raise `KeyboardInterrupt`. Called where everything can be undone."""
    if _in_main_thread() and (block := _installed()) is not None:
        block.check()
