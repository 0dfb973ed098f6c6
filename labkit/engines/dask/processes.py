"""Identification of processes, their signs of life, and signals to them (SIGKILL, SIGSTOP, SIGCONT or the equivalents).

A process is identified by the machine's boot, its pid and its start time, because pids are reused.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence

import psutil

__all__ = ["boot_id", "end_process", "freeze_process", "progress_of", "thaw_process", "this_process"]


def boot_id() -> str:
    """Return an identifier that is equal in all processes that share a monotonic clock."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        import platform

        return platform.node()


def this_process() -> tuple[str, int, float]:
    """Return the identity of this process: (boot, pid, start time)."""
    return boot_id(), os.getpid(), psutil.Process().create_time()


def progress_of(pid: int) -> tuple[float, ...]:
    """Return a value that changes while a process of this machine lives: it runs, or waits for a core or for the disk.

    The value of a suspended process, and of a process that has ended, does not change.
    """
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            waits = process.status() in (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP)
            used, switches = process.cpu_times(), process.num_ctx_switches()
    except psutil.Error:
        return ()
    return (pid, used.user + used.system, switches.voluntary, time.monotonic() if waits else 0.0)


def end_process(process: Sequence[object]) -> None:
    """Kill a process of this machine (SIGKILL). No effect if it has ended."""
    _act(process, psutil.Process.kill)


def freeze_process(process: Sequence[object]) -> None:
    """Suspend a process of this machine (SIGSTOP)."""
    _act(process, psutil.Process.suspend)


def thaw_process(process: Sequence[object]) -> None:
    """Resume a process of this machine (SIGCONT)."""
    _act(process, psutil.Process.resume)


def _act(process: Sequence[object], act: Callable[[psutil.Process], None]) -> None:
    _, number, start = process
    with contextlib.suppress(psutil.NoSuchProcess):
        found = psutil.Process(int(number))  # type: ignore[call-overload]
        if found.create_time() == start:
            act(found)
