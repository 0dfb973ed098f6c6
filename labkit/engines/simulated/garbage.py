"""Python's cyclic garbage collector while virtual time passes: seldom.

Every event leaves objects that live until the next one of their role. The collector takes so many survivors for a leak
and walks through all that is alive again and again, finding nothing: with 10,000 workers it took a third of a run.
Reference counts free what a run leaves behind; what a role's own cycles hold is still collected, later.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["seldom_collected"]

SURVIVORS = 200_000  # objects more than there were, until the collector looks


@contextlib.contextmanager
def seldom_collected() -> Iterator[None]:
    """A block in which the collector looks for cycles seldom. Afterwards it does what it did before."""
    before = gc.get_threshold()
    if before[0]:  # 0: somebody has switched it off
        gc.set_threshold(max(SURVIVORS, before[0]), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
