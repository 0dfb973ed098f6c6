"""Supervision of the processes of a local cluster: lost processes are replaced at once, and all end when the cluster closes.

Slow processes are not lost: a starting process passes the stages of `stages.py` at its own pace.

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
import signal
import threading
import types
from collections.abc import Coroutine, Generator
from multiprocessing.connection import Connection
from typing import Any

import psutil
from distributed import Status
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.utils import get_mp_context

from ..dask_private import ManualCluster
from ..processes import progress_of
from ..stages import ProcessStart, StartProgress, StartStage
from ..timeouts import CLOSE_S, KILLED_S, LOOK_S, SILENT_S, STARTS
from . import http_servers
from .settings import settings

EXIT_S = 0.2  # limit for a nanny to report how its process has ended, seconds
STARTING = (Status.init, Status.starting)
ENDED = (Status.closing, Status.closed, Status.closing_gracefully, Status.failed)


class ProcessTable(SchedulerPlugin):
    """The processes of a local cluster, which the nannies start: stages, and signs of life. Any thread may read it.

    As a plugin of the scheduler, which is in this process, it learns which Dask workers are connected. `problem`: why a
    process was last given up during its start, or "".
    """

    name = "labkit-process-table"

    def __init__(self) -> None:
        self._stages: dict[Any, StartStage] = {}  # {name of the nanny: stage of its process, at most IMPORTED}
        self._pids: dict[Any, int] = {}
        self._names: dict[str, Any] = {}  # {address of a connected Dask worker: name of its nanny}
        self._end_known = threading.Condition()
        self._ends: dict[str, str] = {}  # {address of a Dask worker whose process has ended: how, see `exit_text`}
        self.problem = ""

    @property
    def addresses(self) -> list[str]:
        """The addresses of the connected Dask workers, sorted."""
        return sorted(self._names.copy())

    def progress(self, wanted: int) -> StartProgress:
        connected = dict.fromkeys(self._names.copy().values(), StartStage.CONNECTED)
        return StartProgress.of_processes((self._stages.copy() | connected).values(), wanted)

    def signs_of_life(self) -> dict[str, tuple[float, ...]]:
        """Return {address of a connected Dask worker: value that changes while its process lives}."""
        pids = self._pids.copy()
        return {address: progress_of(pids[name]) for address, name in self._names.copy().items() if name in pids}

    def reached(self, name: Any, stage: StartStage, pid: int | None = None) -> None:
        """Record the stage of the process of the nanny `name`."""
        self._stages[name] = stage
        if pid is not None:
            self._pids[name] = pid

    def ended(self, address: str, code: int) -> None:
        """Record that the process of the Dask worker at `address` has ended. `code`: as `multiprocessing` reports it."""
        with self._end_known:
            self._ends[address] = exit_text(code)
            self._end_known.notify_all()

    def how_ended(self, address: str) -> str:
        """Return how the process of the Dask worker at `address` has ended; "" if this is not known.

        The scheduler may report a loss before the nanny does, so this waits for up to `EXIT_S` seconds.
        """
        with self._end_known:
            self._end_known.wait_for(lambda: address in self._ends, EXIT_S)
            return self._ends.get(address, "")

    def forget(self, name: Any) -> None:
        """Remove the process of a nanny that has ended."""
        self._stages.pop(name, None)
        self._pids.pop(name, None)

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """Dask's hook: a worker is connected."""
        self._names[worker] = scheduler.workers[worker].name

    def remove_worker(self, scheduler: Any, worker: str, **more: Any) -> None:
        """Dask's hook: a worker has left."""
        self._names.pop(worker, None)


class Nanny(http_servers.GuardedNanny):
    """Starts its process within `settings`, and restarts it when it is lost, whether it was running or starting.

    The class has the name of Dask's class, because Dask uses the name as the server's type. A starting process may be as
    slow as it likes: it is killed, and counts as lost, only if it gives no sign of life for `SILENT_S` seconds. After
    `STARTS` consecutive failed starts the nanny gives up, until `OwnCluster.replace_lost` replaces the nanny. `table`:
    where the stages of the process are recorded.
    """

    def __init__(self, *arguments: Any, table: ProcessTable, **options: Any):
        self._instantiating = False
        self._table = table
        with settings:
            super().__init__(*arguments, **options)
            self.config = copy.deepcopy(self.config)  # Dask's copy is shallow, and changes when this context ends

    async def instantiate(self) -> Status:
        """Start the process. Returns when it is registered with the scheduler, or has been lost `STARTS` times."""
        # the process that was starting is lost; the loop of the first call starts the next process
        if self._instantiating:
            return Status.starting
        self._instantiating = True
        try:
            for _ in range(STARTS):
                status = await self._start_process()
                if status == Status.running or self.status in ENDED:
                    break
            return status
        finally:
            self._instantiating = False

    async def _start_process(self) -> Status:
        """Start the process once, and watch it until it is connected or lost."""
        imported, written = get_mp_context().Pipe(duplex=False)
        self.set_argument("imported", written)
        self._table.reached(self.name, StartStage.REQUESTED)
        watch = asyncio.ensure_future(self._watch_start(imported))
        try:
            status = await stepwise(super().instantiate())
            if self.pid is not None:
                self._table.reached(self.name, StartStage.IMPORTED, self.pid)
            return status
        finally:
            watch.cancel()
            written.close()

    async def _watch_start(self, imported: Connection) -> None:
        """Record the stages of the starting process, and kill it if it gives no sign of life."""
        clock, start = asyncio.get_running_loop().time, ProcessStart(SILENT_S)
        with imported:
            while True:
                await asyncio.sleep(LOOK_S / 5)
                if (pid := self.pid) is not None:
                    start.observe(pid, imported.poll(), progress_of(pid), clock())
                    self._table.reached(self.name, start.stage, pid)
                    if problem := start.problem(clock()):
                        self._table.problem = problem
                        kill_process_of(self)

    async def close(self, *arguments: Any, **more: Any) -> Any:
        """Dask's method: end the process."""
        try:
            return await super().close(*arguments, **more)
        finally:
            self._table.forget(self.name)

    def process_ended(self, code: int) -> None:
        """Record how the process has ended."""
        if self.worker_address is not None:
            self._table.ended(self.worker_address, code)

    @property
    def has_process(self) -> bool:
        """Whether the nanny's process runs or is being started."""
        if self._instantiating or self.status in STARTING:
            return True
        return self.status not in ENDED and self.process is not None and self.process.is_alive()


class OwnCluster(ManualCluster):
    """A cluster in which only the nannies replace lost processes."""

    async def replace_lost(self) -> None:
        """Replace the nannies that have ended or given up. Returns when the new nannies have started their processes."""
        await self.replace([name for name, nanny in self.workers.items() if not nanny.has_process])

    async def end(self) -> bool:
        """Close everything. Returns False if processes were killed because they did not end within `CLOSE_S` seconds.

        Processes that start for the first time are killed at once.
        """
        for nanny in self.nannies:
            if nanny.status in STARTING:
                nanny.close_gracefully()
                kill_process_of(nanny)
        closing, clock = self.start_closing(), asyncio.get_running_loop().time
        await asyncio.wait([closing], timeout=CLOSE_S)
        in_order, until = closing.done(), clock() + KILLED_S
        while not closing.done() and clock() < until:
            for nanny in self.nannies:
                if nanny.status not in ENDED:
                    nanny.close_gracefully()  # the nanny starts no other process
                kill_process_of(nanny)
            await asyncio.wait([closing], timeout=0.1)
        for nanny in self.nannies:
            kill_process_of(nanny)
        if not closing.done():
            raise TimeoutError(f"not closed {CLOSE_S + KILLED_S:g} s after the request")
        closing.result()
        return in_order


def exit_text(code: int) -> str:
    """Return how a process has ended: "exit code 1", "signal 11, SIGSEGV". `code`: as `multiprocessing` reports it."""
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        name = signal.Signals(-code).name
        remark = ", which the system sends if memory is short" if name == "SIGKILL" else ""
        return f"signal {-code}, {name}{remark}"
    return f"signal {-code}"


def kill_process_of(nanny: Any) -> None:
    if nanny.pid is not None:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(nanny.pid).kill()


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
