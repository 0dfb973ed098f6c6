"""Settings of Dask for the processes that labkit starts on this machine."""

from __future__ import annotations

import logging
import multiprocessing
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import dask
from distributed.utils import get_mp_context, silence_logging_cmgr

from ..timeouts import CONNECT_S

SILENT = logging.CRITICAL + 1  # logging level of Dask's servers, in their processes and in this one

PRE_SPAWN = "distributed.nanny.pre-spawn-environ"
# With Dask's settings glibc returns memory to the kernel after every large free, so every large array causes page faults.
MALLOC = {"MALLOC_TRIM_THRESHOLD_": str(256 << 20), "MALLOC_MMAP_THRESHOLD_": str(64 << 20)}


class SharedContext:
    """A context manager that applies a change of global state while at least one of its contexts is open, in any thread.

    Dask's configuration and the levels of its loggers are global, and Dask restores the values that it found. If two contexts
    overlapped, and the first one left first, the other one would restore the first one's values, and these would stay.

    `change()`: a context manager that makes the change.
    """

    def __init__(self, change: Callable[[], AbstractContextManager[object]]) -> None:
        self._change = change
        self._lock = threading.Lock()
        self._contexts = 0
        self._applied: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._contexts == 0:
                self._applied = self._change()
                self._applied.__enter__()
            self._contexts += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._contexts -= 1
            if self._contexts == 0:
                self._applied.__exit__(*error)


def _for_own_processes() -> dict[str, Any]:
    """Return the Dask settings for starting processes of labkit's own.

    By default each of Dask's servers (the scheduler, and a nanny and a worker per process) checks the clock fifty times
    per second and the machine twice per second. With six processes these checks alone used a tenth of a core.
    """
    return {
        PRE_SPAWN: {**dask.config.get(PRE_SPAWN, {}), **MALLOC},
        "distributed.worker.profile.enabled": False,
        "distributed.admin.tick.interval": "500ms",
        "distributed.admin.system-monitor.interval": "5s",
        "distributed.admin.system-monitor.gil.enabled": False,
        # a process is lost if it gives no sign of life, not if it is slow to connect, to read or to send heartbeats
        "distributed.comm.timeouts.connect": f"{CONNECT_S:g}s",
        "distributed.comm.timeouts.tcp": f"{CONNECT_S:g}s",
        "distributed.scheduler.worker-ttl": None,
        "distributed.logging.distributed": "error",
        "distributed.worker.http.routes": [],  # workers have no HTTP server
        **_fork_server(),
    }


def _fork_server() -> dict[str, str]:
    """Return the setting for a fork server, on Linux: processes are forked from a process that has imported all modules.

    6 processes start in 1.7 s instead of 3.0 s (`python -m benchmarks --only startup`). On other systems forking is not
    safe, so each process imports its modules.
    """
    if not sys.platform.startswith("linux"):
        return {}
    method = {"distributed.worker.multiprocessing-method": "forkserver"}
    with dask.config.set(method):
        get_mp_context()  # Dask sets its preload modules at the first call; the modules of labkit are added below
    preload = ["distributed", "distributed.protocol.numpy", "labkit.strategies", "labkit.engines.dask.worker.task"]
    multiprocessing.get_context("forkserver").set_forkserver_preload(
        [*preload, "labkit.engines.dask.cluster.http_servers"]
    )
    return method


@contextmanager
def _silent() -> Iterator[None]:
    with silence_logging_cmgr(SILENT), silence_logging_cmgr(SILENT, root="bokeh"):
        yield


settings = SharedContext(lambda: dask.config.set(_for_own_processes()))
silence = SharedContext(_silent)
