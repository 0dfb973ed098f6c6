"""What the moving of a run asks of the whole process: linear algebra on one thread, so that the same plan gives the
same bytes everywhere, and a garbage collector that looks seldom.

Every event leaves objects that live until the next one of their role. The collector takes so many survivors for a leak
and walks through all that is alive again and again, finding nothing: with 10,000 workers it took a third of a run.
Reference counts free what a run leaves behind; what a role's own cycles hold is still collected, later.

Both settings are the process's, not a run's, and several threads may each move a run of their own. So those inside are
counted: the first to come changes the settings, the last to go puts them back.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

from threadpoolctl import ThreadpoolController

__all__ = ["QUIET", "SURVIVORS", "Quiet"]

SURVIVORS = 200_000  # objects more than there were, until the collector looks


class Quiet:
    """`with quiet(threads):` is a block with these settings. `threads` knows the libraries of linear algebra."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._undo = contextlib.ExitStack()

    @contextlib.contextmanager
    def __call__(self, threads: ThreadpoolController) -> Iterator[None]:
        """The settings hold from here to the end of the last block that is open."""
        with self._lock:
            if not self._inside:
                self._undo.enter_context(threads.limit(limits=1))
                self._undo.enter_context(_seldom_collected())
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    self._undo.close()


@contextlib.contextmanager
def _seldom_collected() -> Iterator[None]:
    before = gc.get_threshold()
    if before[0]:  # 0: somebody has switched it off
        gc.set_threshold(max(SURVIVORS, before[0]), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


QUIET = Quiet()  # there is one process, so there is one count of who is inside
