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
import sys
import threading
from collections.abc import Iterator

from threadpoolctl import ThreadpoolController

SURVIVORS = 200_000  # new objects before a collection


class InterpreterTuning:
    """`with tuning():` is a block with these settings."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._undo = contextlib.ExitStack()
        self._modules = 0  # number of imported modules when the libraries were looked for
        self._libraries: ThreadpoolController | None = None

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Apply the settings until the end of the last open block."""
        with self._lock:
            if not self._open:
                self._undo.enter_context(self._linear_algebra().limit(limits=1))
                self._undo.enter_context(_rarely_collected())
            self._open += 1
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1
                if not self._open:
                    self._undo.close()

    def _linear_algebra(self) -> ThreadpoolController:
        """Return the control of the libraries for linear algebra.

        Looking for them reads the list of the memory mappings of the process, which took a third of the start of a small run.
        Another library comes only with the import of a module.
        """
        if self._libraries is None or self._modules != len(sys.modules):
            self._modules = len(sys.modules)
            self._libraries = ThreadpoolController()
        return self._libraries


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
