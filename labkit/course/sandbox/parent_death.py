"""Ends a process when its parent process ends, also if the parent is ended by SIGKILL.

On Linux the kernel sends SIGKILL to the process when the thread that started it ends (PR_SET_PDEATHSIG, prctl(2)),
independent of the code that runs in the process. On other systems with `os.getppid` a thread polls once a second; code
that holds the interpreter lock delays this thread. On Windows there is no effect.

The module imports the standard library only, because it runs in processes that load only a part of labkit.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
POLL_S = 1.0


def end_with_parent(parent: int) -> None:
    """End this process when its parent, with process id `parent`, ends. If the parent has ended already, end it at once.

    Call it in the main thread of the child. On Linux the child ends with the thread that started it, so this thread must wait.
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
    if os.getppid() != parent:  # the parent ended before the signal was requested
        os.kill(os.getpid(), signal.SIGKILL)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_S)
    os.kill(os.getpid(), signal.SIGKILL)
