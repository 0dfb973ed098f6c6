"""Identification of processes, their signs of life, and signals to them (SIGKILL, SIGSTOP, SIGCONT or the equivalents).

A process is identified by the machine's boot, its pid and its start time, because pids are reused.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import psutil

LEASE_S = 20.0  # a nanny thaws a process this long after the last request to keep it frozen, seconds
ENDS_WITH_PARENT = sys.platform.startswith("linux")  # whether `end_with_parent` ends suspended processes
GUARD = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
number = int(sys.argv[1])
try:
    process = os.pidfd_open(number)
    thaw = lambda: signal.pidfd_send_signal(process, signal.SIGCONT)  # never to another process with the same number
except (AttributeError, OSError):
    thaw = lambda: os.kill(number, signal.SIGCONT)
os.read(0, 1)
thaw()
"""


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


def end_with_parent() -> None:
    """End this process when its parent process ends, even if this process is suspended, or holds the interpreter lock.

    For processes that `multiprocessing` has started from a fork server: on Linux the kernel sends SIGKILL when the parent's end
    of their pipe is closed. Elsewhere there is no effect; Dask's own thread, which reads such a pipe, ends the process.
    """
    parent = multiprocessing.parent_process()
    if not ENDS_WITH_PARENT or parent is None:
        return
    import fcntl

    pipe = parent.sentinel
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([pipe], [], [], 0)[0]:  # it was closed before
        os.kill(os.getpid(), signal.SIGKILL)


def end_process(process: Sequence[object]) -> None:
    """Kill a process of this machine (SIGKILL). No effect if it has ended."""
    _act(process, psutil.Process.kill)


def freeze_process(process: Sequence[object]) -> None:
    """Suspend a process of this machine (SIGSTOP)."""
    _act(process, psutil.Process.suspend)


def thaw_process(process: Sequence[object]) -> None:
    """Resume a process of this machine (SIGCONT)."""
    _act(process, psutil.Process.resume)


class Guard:
    """Thaws a frozen process of this machine when this process has ended, however it ends. It is a small process itself."""

    def __init__(self, process: Sequence[object]) -> None:
        command = [sys.executable, "-I", "-S", "-c", GUARD, str(process[1])]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def end(self) -> None:
        """End the guard, and leave the process as it is."""
        self._process.kill()
        self._process.communicate()


def freeze_on_lease(process: Sequence[object], renew: bool = False, dask_worker: Any = None) -> None:
    """Suspend a process for `LEASE_S` seconds. `renew`: prolong this, unless it has been thawed. Runs in the process's nanny.

    The client renews the lease while it wants the process to be frozen. Thus a process is thawed if its client is gone.
    """
    leases: dict[tuple[object, ...], asyncio.TimerHandle] = vars(dask_worker).setdefault("labkit_leases", {})
    key = tuple(process)
    if key in leases:
        leases.pop(key).cancel()
    elif renew:
        return
    else:
        freeze_process(process)
    leases[key] = asyncio.get_running_loop().call_later(LEASE_S, thaw_on_lease, process, dask_worker)


def thaw_on_lease(process: Sequence[object], dask_worker: Any = None) -> None:
    """Resume a process that was suspended by `freeze_on_lease`. Runs in its nanny."""
    lease = vars(dask_worker).get("labkit_leases", {}).pop(tuple(process), None)
    if lease is not None:
        lease.cancel()
    thaw_process(process)


def _act(process: Sequence[object], act: Callable[[psutil.Process], None]) -> None:
    _, number, start = process
    with contextlib.suppress(psutil.NoSuchProcess):
        found = psutil.Process(int(number))  # type: ignore[call-overload]
        if found.create_time() == start:
            act(found)
