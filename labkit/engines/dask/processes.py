"""Which process is it, and how it is ended for real: SIGKILL, or what the system has instead.

A process is named by the machine's boot, its number and the time at which it started: numbers are used again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence

import psutil

__all__ = ["boot_id", "end_process", "freeze_process", "thaw_process", "this_process"]


def boot_id() -> str:
    """The same in all processes that share a monotonic clock."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        import platform

        return platform.node()


def this_process() -> tuple[str, int, float]:
    """(boot, number, start)."""
    return boot_id(), os.getpid(), psutil.Process().create_time()


def end_process(process: Sequence[object]) -> None:
    """End a process of this machine, whatever it is doing. One that is gone already is gone."""
    _act(process, psutil.Process.kill)


def freeze_process(process: Sequence[object]) -> None:
    """Stop a process of this machine where it stands (SIGSTOP)."""
    _act(process, psutil.Process.suspend)


def thaw_process(process: Sequence[object]) -> None:
    """Let it go on (SIGCONT)."""
    _act(process, psutil.Process.resume)


def _act(process: Sequence[object], act: Callable[[psutil.Process], None]) -> None:
    _, number, start = process
    with contextlib.suppress(psutil.NoSuchProcess):
        found = psutil.Process(int(number))  # type: ignore[call-overload]
        if found.create_time() == start:
            act(found)
