"""Settings of the process while a run in virtual time advances: linear algebra on one thread, so that the same plan gives the
same bytes everywhere, and a higher threshold for garbage collection.

Every event creates objects that live until the next event of their role. With so many survivors the collector runs often and
finds nothing: with 10,000 workers it took a third of a run. Reference counts free the objects of a run; cycles made by roles
are still collected, later.

Several threads may each advance a run, so open blocks are counted: the first one changes the settings, the last one restores
them.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

from threadpoolctl import ThreadpoolController

__all__ = ["SURVIVORS", "TUNING", "InterpreterTuning"]

SURVIVORS = 200_000  # new objects before a collection


class InterpreterTuning:
    """`with tuning(threads):` is a block with these settings. `threads`: controls the libraries for linear algebra."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._undo = contextlib.ExitStack()

    @contextlib.contextmanager
    def __call__(self, threads: ThreadpoolController) -> Iterator[None]:
        """Apply the settings until the end of the last open block."""
        with self._lock:
            if not self._open:
                self._undo.enter_context(threads.limit(limits=1))
                self._undo.enter_context(_rarely_collected())
            self._open += 1
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1
                if not self._open:
                    self._undo.close()


@contextlib.contextmanager
def _rarely_collected() -> Iterator[None]:
    before = gc.get_threshold()
    if before[0]:  # 0: disabled
        gc.set_threshold(max(SURVIVORS, before[0]), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


TUNING = InterpreterTuning()  # one instance, because the settings are process-wide
