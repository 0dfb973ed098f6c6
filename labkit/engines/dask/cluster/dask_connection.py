"""The connection of a `DaskCluster` to Dask: the client, the processes behind it, and the checks of these processes.

`DaskConnection` contains what is the same for all clusters: the lock, the runs, the number of roles on each Dask worker, and the
check that a Dask worker answers and has the same versions. It has one of the `backends`.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

from distributed import Client
from distributed.deploy import Cluster as DaskDeployment
from distributed.utils import in_async_call

from ....errors import BadInput, ClusterError, check_installed, shown
from ....formatting import count_text
from ....interrupts import DeferredInterrupt, interrupt_is_pending, raise_if_interrupted
from ...commands import Stop
from ..failure_detector import FailureDetector
from ..requests import run_on_workers
from ..stages import StartProgress, StartStage
from ..timeouts import ABSENT_S, ANSWER_S, LOOK_S, SILENT_S
from ..worker.task import check_versions, versions
from .backends import DaskProcesses, ExistingScheduler, LocalProcesses
from .forked import in_forked_child
from .settings import SILENT


class OpenConnections:
    """The connections that are open, which are closed when the program ends. Any thread may call the methods."""

    def __init__(self) -> None:
        self._open: list[DaskConnection] = []

    def add(self, connection: DaskConnection) -> None:
        """Add a connection that is being opened."""
        if not self._open:
            atexit.register(self.close)  # runs before Dask's own handlers, because they were registered earlier
        if connection not in self._open:
            self._open.append(connection)

    def __contains__(self, connection: DaskConnection) -> bool:
        return connection in self._open

    def discard(self, connection: DaskConnection) -> None:
        if connection in self._open:
            self._open.remove(connection)
        if not self._open:
            atexit.unregister(self.close)

    def close(self) -> None:
        """End all runs, then close all connections, the newest first. What Dask logs about this is of no use."""
        for name in ("distributed", "distributed.client"):  # the others inherit the level
            logging.getLogger(name).setLevel(SILENT)
        for end in (DaskConnection.end_runs, DaskConnection.close):
            for connection in reversed(self._open.copy()):
                end(connection)


open_connections = OpenConnections()


class DaskConnection:
    """The processes of a cluster, and its runs. Thread-safe.

    `target`: None for processes started by labkit, else a scheduler's address, a client or a cluster of Dask. `local`:
    whether labkit starts the processes. `usage`: number of roles on each Dask worker, by address. `runs`: the current
    runs.
    """

    def __init__(self, target: Any, dashboard: bool = False):
        if not (target is None or isinstance(target, str | Client | DaskDeployment)):
            raise BadInput(
                f"DaskCluster({shown(target)}): give no argument, a scheduler's address as 'tcp://host:8786', a Client, or a "
                "cluster of Dask, as LocalCluster()."
            )
        if isinstance(target, DaskDeployment) and target.asynchronous:
            raise BadInput(
                f"DaskCluster({shown(target)}): this cluster is asynchronous; make it with asynchronous=False."
            )
        if dashboard and target is not None:
            raise BadInput(
                "dashboard=True is for processes that labkit starts; a scheduler that runs has its own, or none."
            )
        if dashboard:
            check_installed("The dashboard needs", "bokeh")
        self._processes: DaskProcesses = (
            LocalProcesses(dashboard, self._before_start) if target is None else ExistingScheduler(target)
        )
        self.local = self._processes.local
        self._lock = threading.RLock()
        self._ready = False  # enough processes have answered
        self._link: tuple[Client, str | None] | None = None  # (client, its dashboard's address)
        self._unresponsive: set[str] = set()  # Dask workers that did not answer the last request
        # {run that starts: (stage, roles that reached it, roles)}
        self._starting: dict[object, tuple[StartStage, int, int]] = {}
        self._closed = False
        self._owner = os.getpid()  # pid of the process that owns this connection
        self.usage: Counter[str] = Counter()
        self.runs: set[Any] = set()
        in_forked_child(self._forked)

    def _before_start(self) -> None:
        self._ready = False
        open_connections.add(self)

    def _forked(self) -> None:
        """Disable this copy in a forked child. The processes and runs belong to the parent, which continues to use them."""
        self._lock = threading.RLock()  # another thread of the parent may have held the old lock
        if not self._processes.disown():
            self._owner = os.getpid()
            return
        self._ready, self._closed = False, True
        open_connections.discard(self)
        runs, self.runs = self.runs, set()
        for run in runs:
            run.forked(
                ClusterError(f"This run belongs to the process {self._owner}, which started it, and continues there.")
            )

    def describe(self) -> str:
        return self._processes.description

    # to read from any thread; these do not wait for another thread that opens the cluster ---------------------------

    @property
    def is_open(self) -> bool:
        """Whether the processes have been started or connected to, and have not been closed since."""
        return self._ready and self._processes.connected

    @property
    def is_closed(self) -> bool:
        """Whether the connection has been closed, after which it cannot be opened again."""
        return self._closed

    @property
    def recovering(self) -> bool:
        """Whether processes of labkit's own run or are starting, so that lost processes will be replaced."""
        return self._processes.recovering

    def progress(self, wanted: int) -> StartProgress:
        """Return the progress of the run that starts, else that of a start of `wanted` processes."""
        processes = self._processes.progress(wanted, self.is_open)
        runs = list(self._starting.copy().values())
        return processes if not runs else StartProgress(processes.up, wanted, *runs[-1])

    def run_starts(self, run: object, stage: StartStage | None, reached: int = 0, total: int = 0) -> None:
        """Record that a run starts, and that `reached` of its `total` roles have reached `stage`. None: its start has ended."""
        if stage is None:
            self._starting.pop(run, None)
        else:
            self._starting[run] = stage, reached, total

    def signs_of_life(self) -> Mapping[str, Hashable]:
        """Return {address of a Dask worker: value that changes while it lives}.

        Raises `OSError` if the scheduler does not answer. For processes of labkit's own, no request is sent.
        """
        client = self._processes.client  # without the lock, which another thread may hold during a start
        if client is None:
            raise OSError("the client is closed")
        return self._processes.signs_of_life(client)

    def how_ended(self, address: str) -> str:
        return self._processes.how_ended(address)

    def dashboard_link(self) -> str | None:
        client = self._processes.client
        if client is None or not self.is_open:
            return None
        if self._link is None or self._link[0] is not client:
            self._link = client, self._processes.dashboard_link(client)
        return self._link[1]

    # connecting -------------------------------------------------------------------------------------------------------

    def client(self) -> Client:
        """Return the connected client. Raises `ClusterError` if it cannot be connected."""
        with DeferredInterrupt(), self._locked():
            if self._closed and self._owner != os.getpid():
                raise ClusterError(
                    f"This DaskCluster belongs to the process {self._owner}, of which this one is a fork; make a new one."
                )
            if self._closed:
                raise ClusterError("This DaskCluster has been closed; make a new one.")
            open_connections.add(self)
            client = self._processes.client
            return self._processes.connect() if client is None or client.status in ("closed", "closing") else client

    def addresses(self, nodes: int, every: bool = False, consisting: str = "") -> list[str]:
        """Return the addresses of `nodes` Dask workers (`every`: of all), least used first. `consisting`: what the nodes are, for
        an error, as "8 workers + 2 servers + 1 chief".

        All of them have answered a request, and have the same versions (`check_versions`). A local cluster is enlarged as
        needed. Raises `BadInput` if an existing cluster is too small.
        """
        self._processes.check_capacity(nodes)
        with DeferredInterrupt(), self._locked():
            if not self._closed:
                self._processes.provide(nodes)
            found = self._responsive(self.client(), sys.maxsize if every else nodes)
            if len(found) < nodes and self._processes.provide(nodes + len(self._unresponsive)):
                found = self._responsive(self.client(), nodes)
            if len(found) < nodes:
                has = f"the cluster has {count_text(len(found), 'Dask worker')}"
                of = f": {consisting}" if consisting else ""
                needs = f"This run has {count_text(nodes, 'node')} (one Dask worker each{of}) and {has}"
                if self._unresponsive:
                    others = f"{len(self._unresponsive)} more do not answer (frozen, or cut off)"
                    raise ClusterError(f"{needs} that answer; {others}.")
                later = f"; if more are still starting, wait with cluster.open(wait=600) or client.wait_for_workers({nodes})"
                raise BadInput(
                    f"{needs}; start more, or ask for fewer workers or servers{'' if self.local else later}."
                )
            self._ready = True
            return found

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock. Ctrl-C ends the wait for another thread, which may be starting processes."""
        while not self._lock.acquire(timeout=LOOK_S):
            raise_if_interrupted()
        try:
            yield
        finally:
            self._lock.release()

    def await_workers(self, nodes: int, limit: float, arrived: Callable[[], object]) -> None:
        """Wait until a user's scheduler has `nodes` Dask workers, at most `limit` seconds. `arrived` is called when their number
        has changed.

        Raises `ClusterError` if the scheduler does not answer, or the cluster is closed.
        """
        until, before = time.monotonic() + limit, -1
        while not self.local:
            there = len(self._processes.worker_addresses(self.client()))
            if there != before:
                arrived()
            if there >= nodes or time.monotonic() >= until:
                return
            before = there
            time.sleep(LOOK_S)

    def _responsive(self, client: Client, nodes: int) -> list[str]:
        """Return up to `nodes` Dask workers that have answered a request.

        A Dask worker that does not answer may be frozen, and would delay the run.
        """
        untried = self._processes.worker_addresses(client, wait=True)
        self._unresponsive &= set(untried)
        untried.sort(key=lambda address: (address in self._unresponsive, self.usage[address], address))
        found: list[str] = []
        while len(found) < nodes and untried:
            asked, untried = untried[: nodes - len(found)], untried[nodes - len(found) :]
            for address, answer in self._versions(client, asked).items():
                if isinstance(answer, OSError):  # includes TimeoutError
                    self._unresponsive.add(address)
                    continue
                self._unresponsive.discard(address)
                check_versions(address, answer)
                found.append(address)
        return found

    def _versions(self, client: Client, addresses: list[str]) -> dict[str, Any]:
        """Ask Dask workers for their versions. Returns {address: versions, or the exception of a failed request}.

        A request takes long on a busy machine: the connection is made, and labkit is imported. A Dask worker is asked
        again until it answers, or has given no sign of life for `SILENT_S` seconds.
        """
        answers: dict[str, Any] = {}
        waiting, detector = addresses, FailureDetector(2 * ANSWER_S + ABSENT_S)  # two requests between two looks
        detector.watch(waiting, time.monotonic())
        self._look_for(client, waiting, detector)
        while waiting:
            answers.update(
                run_on_workers(client, waiting, ANSWER_S, versions, lambda address: (), interrupt_is_pending)
            )
            raise_if_interrupted()
            late = [address for address in waiting if isinstance(answers[address], TimeoutError)]
            self._look_for(client, late, detector)
            silent = detector.silent(SILENT_S, time.monotonic())
            waiting = [address for address in late if address not in silent]
        return answers

    def _look_for(self, client: Client, addresses: list[str], detector: FailureDetector) -> None:
        """Observe the signs of life of these Dask workers."""
        if not addresses:
            return
        # includes TimeoutError; if the scheduler does not answer, there is no sign of life
        with contextlib.suppress(OSError):
            for address, value in self._processes.signs_of_life(client).items():
                if address in addresses:
                    detector.progress(address, value, time.monotonic())
        detector.consult(time.monotonic())

    def worker_addresses(self) -> list[str]:
        """Return the addresses of all Dask workers of the cluster. Does not wait for the first."""
        return self._processes.worker_addresses(self.client())

    def scale_up(self, nodes: int) -> None:
        """Start processes until there are `nodes`, including replacements of processes that were given up. Does not wait."""
        with self._lock, contextlib.suppress(Exception):  # a cluster that is being closed cannot grow
            self._processes.scale_up(nodes)

    # closing ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the runs, then close the client and the processes that labkit started. Idempotent.

        Any thread may call it, even during a start.
        """
        client = self._processes.client
        if client is not None and in_async_call(client.loop):
            # called by a finalizer on Dask's own thread
            threading.Thread(target=self.close, name="labkit-close").start()
            return
        self.end_runs()
        self._closed = True
        self._processes.cancel_start()  # before locking, because a start in progress holds the lock until it is aborted
        with DeferredInterrupt(), self._locked():
            if self in open_connections:
                self._processes.close()
                open_connections.discard(self)  # afterwards, because the end of the program waits for what is open

    def end_runs(self) -> None:
        for run in list(self.runs):
            run.execute(Stop("closed"))
