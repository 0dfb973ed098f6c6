"""Settings of the process while a run in virtual time advances: linear algebra on one thread, so that the same plan gives the
same bytes on every machine, and a higher threshold for garbage collection.

Every event creates objects that live until the next event of their role. The garbage collector would therefore run often and
find nothing: with 10,000 workers it took a third of the time of a run. The objects of a run are freed by reference counts.
Cycles that roles create are still collected, but later.

Several threads may advance runs at the same time, so open blocks are counted. The first block changes the settings, and the
last block restores them.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

from threadpoolctl import ThreadpoolController

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
