"""Settings of the whole process while a run in virtual time is moved: linear algebra on one thread, so that the same plan gives
the same bytes everywhere, and a garbage collector that runs rarely.

Every event leaves objects that live until the next one of their role. The collector takes so many survivors for a leak, and
traverses all that is alive again and again without finding anything: with 10,000 workers it took a third of a run. Reference
counts free what a run leaves behind; cycles that roles make are still collected, later.

Several threads may each move a run of their own, so the blocks that are open are counted: the first one changes the
settings, the last one restores them.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

from threadpoolctl import ThreadpoolController

__all__ = ["SURVIVORS", "TUNING", "InterpreterTuning"]

SURVIVORS = 200_000  # objects more than there were, until the collector runs


class InterpreterTuning:
    """`with tuning(threads):` is a block with these settings. `threads` knows the libraries of linear algebra."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._undo = contextlib.ExitStack()

    @contextlib.contextmanager
    def __call__(self, threads: ThreadpoolController) -> Iterator[None]:
        """The settings hold from here to the end of the last block that is open."""
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
    if before[0]:  # 0: it is switched off
        gc.set_threshold(max(SURVIVORS, before[0]), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


TUNING = InterpreterTuning()  # of the process, and so one
