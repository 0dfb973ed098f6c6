"""Supervision of the processes of a local cluster: lost processes are replaced at once, and all end when the cluster closes.

This module changes four behaviours of Dask. First, Dask's nannies restart a lost process, but not a process that is
lost during its first start. Second, they restart a process with the start method that is configured at that moment
(spawn, which imports all modules again, instead of fork). Third, 15 s after the process of a nanny was lost,
`SpecCluster` closes the nanny if its process is missing, even if a process is starting. Fourth, a nanny's copy of Dask's
configuration, which each of its processes gets, changes with the original.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import time
import types
from collections.abc import Coroutine, Generator
from concurrent.futures import Future
from typing import Any

import psutil
from distributed import Status
from distributed.deploy.spec import SpecCluster

from ..failure_detector import FailureDetector
from ..timeouts import ABSENT_S, CLOSE_S, KILLED_S, LOOK_S, SILENT_S, STARTS
from . import http_servers
from .settings import settings

__all__ = ["Nanny", "OwnCluster"]

ENDED = (Status.closing, Status.closed, Status.closing_gracefully, Status.failed)


class Nanny(http_servers.Nanny):
    """Starts its process within `settings`, and restarts it when it is lost, whether it was running or starting.

    The class has the name of Dask's class, because Dask uses the name as the server's type. A starting process that
    uses no processor time for `SILENT_S` seconds is killed, and counts as lost. After `STARTS` consecutive failed
    starts the nanny gives up, until `OwnCluster.replace_lost` replaces the nanny.
    """

    def __init__(self, *arguments: Any, **options: Any):
        self._instantiating = False
        with settings:
            super().__init__(*arguments, **options)
            self.config = copy.deepcopy(self.config)  # Dask's copy is shallow, and changes when this context ends

    async def instantiate(self) -> Status:
        """Start the process. Returns when it is registered with the scheduler, or has been lost `STARTS` times."""
        if self._instantiating:  # the process that was starting is lost; the loop of the first call starts the next process
            return Status.starting
        self._instantiating = True
        watch = asyncio.ensure_future(self._watch_start())
        try:
            for _ in range(STARTS):
                status = await stepwise(super().instantiate())
                if status == Status.running or self.status in ENDED:
                    break
            return status
        finally:
            watch.cancel()
            self._instantiating = False

    async def _watch_start(self) -> None:
        """Kill the starting process if it makes no progress."""
        clock, detector = asyncio.get_running_loop().time, FailureDetector(ABSENT_S)
        while True:
            await asyncio.sleep(LOOK_S)
            detector.consult(clock())
            if self.pid is not None:
                detector.watch([self.address], clock())
                detector.progress(self.address, progress_of(self.pid), clock())
                if detector.silent(SILENT_S, clock()):
                    kill_process_of(self)

    @property
    def has_process(self) -> bool:
        """Whether the nanny's process runs or is being started."""
        if self._instantiating or self.status in (Status.init, Status.starting):
            return True
        return self.status not in ENDED and self.process is not None and self.process.is_alive()


class OwnCluster(SpecCluster):
    """A `SpecCluster` in which only the nannies replace lost processes."""

    def _update_worker_status(self, op: str, msg: Any) -> None:
        super(SpecCluster, self)._update_worker_status(op, msg)  # without closing the nanny of a missing process

    def submit(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Run a coroutine of this cluster on its event loop, and return its future. For calls from other threads."""
        loop: Any = self.loop
        return asyncio.run_coroutine_threadsafe(work, loop.asyncio_loop)

    async def replace_lost(self) -> None:
        """Replace the nannies that have ended or given up. Returns when the new nannies have started their processes."""
        lost = [name for name, nanny in self.workers.items() if not nanny.has_process]
        for name in lost:
            self._futures.add(asyncio.ensure_future(self.workers.pop(name).close()))  # awaited when the cluster closes
        await self._correct_state()

    async def end(self) -> bool:
        """Close everything. Returns False if processes were killed because they did not end within `CLOSE_S` seconds."""
        closing, clock = asyncio.ensure_future(self._close()), asyncio.get_running_loop().time
        await asyncio.wait([closing], timeout=CLOSE_S)
        in_order, until = closing.done(), clock() + KILLED_S
        while not closing.done() and clock() < until:
            for nanny in list(self._created):
                if nanny.status not in ENDED:
                    nanny.close_gracefully()  # the nanny starts no other process
                kill_process_of(nanny)
            await asyncio.wait([closing], timeout=0.1)
        for nanny in list(self._created):
            kill_process_of(nanny)
        if not closing.done():
            raise TimeoutError(f"not closed {CLOSE_S + KILLED_S:g} s after the request")
        closing.result()
        return in_order


def kill_process_of(nanny: Any) -> None:
    """Kill the process of a nanny (SIGKILL), if it has one."""
    if nanny.pid is not None:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(nanny.pid).kill()


def progress_of(pid: int) -> tuple[float, ...]:
    """Return a value that changes while a process makes progress: uses processor time, or waits for the disk."""
    try:
        process = psutil.Process(pid)
        waits = process.status() == psutil.STATUS_DISK_SLEEP
        used = process.cpu_times()
    except psutil.NoSuchProcess:
        return ()
    return (pid, used.user + used.system, time.monotonic() if waits else 0.0)


@types.coroutine
def stepwise(work: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Await `work` with `settings` applied in each of its steps, but not while `work` waits.

    Dask's configuration is global: a `with` block around an `await` would also apply to other tasks that run meanwhile.
    """
    step, value = work.send, None
    while True:
        with settings:
            try:
                awaited = step(value)
            except StopIteration as end:
                return end.value
        try:
            step, value = work.send, (yield awaited)
        except BaseException as error:
            step, value = work.throw, error
