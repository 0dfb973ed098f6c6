"""Ends a process when the process that started it ends, however that ends (SIGKILL, too).

Linux: the kernel sends SIGKILL when the thread that started the process ends (PR_SET_PDEATHSIG, prctl(2)); this needs no
cooperation of what runs in the process. Other systems with `os.getppid`: a thread looks every second, so code that holds the
interpreter lock delays it. Windows: nothing is done.

Nothing but the standard library: it runs in processes that load labkit in part.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

__all__ = ["end_with_parent"]

DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
LOOK_S = 1.0


def end_with_parent(parent: int) -> None:
    """End this process with its parent, whose process id is `parent`; at once if that has ended already.

    Called in the child, by its first thread. The thread that started the child must wait for it: on Linux its end counts.
    """
    if os.name == "nt":
        return
    if sys.platform.startswith("linux"):
        import ctypes

        zero = ctypes.c_ulong(0)
        failed = ctypes.CDLL(None).prctl(ctypes.c_int(DEATH_SIGNAL), ctypes.c_ulong(signal.SIGKILL), zero, zero, zero)
        if failed:
            threading.Thread(target=_watch, args=(parent,), name="parent", daemon=True).start()
    else:
        threading.Thread(target=_watch, args=(parent,), name="parent", daemon=True).start()
    if os.getppid() != parent:  # it ended before the signal was asked for
        os.kill(os.getpid(), signal.SIGKILL)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os.kill(os.getpid(), signal.SIGKILL)
