"""The connection of a `DaskCluster` to Dask: the client, the processes behind it, and the checks of these processes.

`DaskConnection` contains what is the same for all clusters: the lock, the runs, the number of roles on each Dask
worker, and the check that a Dask worker answers and has the same versions. It has one of two components with
the interface `DaskProcesses`. `LocalProcesses` starts and ends processes on this machine. `ExistingScheduler` connects
to a scheduler.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.metadata
import logging
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import wait
from typing import Any

from distributed import Client
from distributed.utils import in_async_call

from ....errors import BadInput, ClusterError, check_installed, shown
from ....interrupts import DeferredInterrupt, interrupt_is_pending, raise_if_interrupted
from ...commands import Stop
from ...machine_limits import MAX_PROCESSES, check_capacity
from ..failure_detector import FailureDetector
from ..requests import heartbeats, run_on_scheduler, run_on_workers, server_type
from ..stages import StartProgress, StartStage
from ..timeouts import ABSENT_S, ANSWER_S, CLOSE_S, CONNECT_S, KILLED_S, LOOK_S, REACH_S, SILENT_S, STARTS
from ..worker.task import check_versions, versions
from .credentials import new_token
from .forked import disown, in_forked_child
from .http_servers import with_token
from .local import check_script, interrupts_blocked, new_cluster, notebooks_not_imported
from .nannies import OwnCluster, ProcessTable
from .settings import SILENT, settings, silence

LINK_S = 2.0  # timeout for the scheduler to answer whether it has a dashboard, seconds


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


class DaskProcesses(ABC):
    """A scheduler and its Dask workers, and the client connected to them.

    `client`: the client; None before `connect`. `local`: whether labkit starts and ends the processes, on this machine.
    Only one thread at a time calls a method that changes the object. Any thread may call the other methods, and
    `cancel_start`, at any time.
    """

    local: bool
    client: Client | None

    @property
    @abstractmethod
    def description(self) -> str:
        """The location of the processes, for `repr`."""

    @property
    @abstractmethod
    def connected(self) -> bool:
        """Whether the client is connected, and the processes have not been closed."""

    @property
    @abstractmethod
    def recovering(self) -> bool:
        """Whether processes that labkit started are running or starting, so that lost processes will be replaced."""

    @abstractmethod
    def progress(self, wanted: int, ready: bool) -> StartProgress: ...

    @abstractmethod
    def dashboard_link(self, client: Client) -> str | None:
        """Return the address of Dask's dashboard, or None if there is none."""

    @abstractmethod
    def check_capacity(self, nodes: int) -> None:
        """Raise `BadInput` if labkit cannot start processes until there are `nodes` of them."""

    @abstractmethod
    def connect(self) -> Client:
        """Replace the client by a connected one, starting processes if there are none. Raises `ClusterError` if that fails."""

    @abstractmethod
    def provide(self, nodes: int) -> bool:
        """Start missing processes, and wait until there are `nodes`. Returns False if labkit cannot start processes."""

    @abstractmethod
    def scale_up(self, nodes: int) -> None:
        """Start processes until there are `nodes`, if labkit can. Lost processes are replaced. Does not wait."""

    @abstractmethod
    def worker_addresses(self, client: Client, wait: bool = False) -> list[str]:
        """Return the addresses of all Dask workers. `wait`: wait for the first on a user's scheduler.

        Raises `ClusterError` if the scheduler does not answer.
        """

    @abstractmethod
    def signs_of_life(self, client: Client) -> Mapping[str, Hashable]:
        """Return {address of a Dask worker: value that changes while it lives}. Raises the error of a failed request."""

    def how_ended(self, address: str) -> str:
        """Return how the process of the Dask worker at `address` has ended; "" if this is not known."""
        return ""

    @abstractmethod
    def cancel_start(self) -> None:
        """Abort a start in progress, and prevent any later start."""

    @abstractmethod
    def close(self) -> None:
        """End the client and the processes that belong to labkit."""

    @abstractmethod
    def disown(self) -> bool:
        """In a forked child: give up the parent's client and processes. Returns False if there is no client."""


class LocalProcesses(DaskProcesses):
    """Processes of a local cluster.

    `starting()` is called before processes are started. `dashboard`: whether Dask's dashboard is started.
    """

    local = True
    description = "on this machine"

    def __init__(self, dashboard: bool, starting: Callable[[], None]):
        self.client: Client | None = None
        self._token = new_token() if dashboard else None
        self._starting = starting
        self._cluster: OwnCluster | None = None
        self._table = ProcessTable()
        self._cancelled = False
        self._contexts = contextlib.ExitStack()  # those that are open as long as the cluster is
        self._failures = 0  # consecutive failures to replace lost processes

    @property
    def connected(self) -> bool:
        client = self.client
        return client is not None and client.status == "running" and _is_running(self._cluster)

    @property
    def recovering(self) -> bool:
        """Whether processes run or are starting, and the last `STARTS` attempts to replace lost processes did not all fail."""
        cluster = self._cluster
        if cluster is None or self._failures >= STARTS:
            return False
        return any(nanny.has_process for nanny in list(cluster.workers.values()))

    def progress(self, wanted: int, ready: bool) -> StartProgress:
        """Return the progress of a start of `wanted` processes. Works also during a start."""
        return self._table.progress(wanted)

    def dashboard_link(self, client: Client) -> str | None:
        """Return the address of Dask's dashboard, which contains the token, or None if there is no dashboard."""
        link = None if self._token is None else _dashboard_link(client)
        return with_token(link, self._token) if link and self._token else None

    def check_capacity(self, nodes: int) -> None:
        """Raise `BadInput` if this machine cannot run `nodes` processes."""
        cluster = self._cluster
        check_capacity(nodes, 0 if cluster is None else len(cluster.workers))

    def connect(self) -> Client:
        """Replace the client by a connected one. Starts the local cluster if it does not run."""
        if _is_running(self._cluster):
            self.client = Client(self._cluster, set_as_default=False, timeout=CONNECT_S)
        else:
            self._start(1)
        assert self.client is not None
        return self.client

    def provide(self, nodes: int) -> bool:
        """Start missing processes, and wait until there are `nodes`. Returns True."""
        if not _is_running(self._cluster):
            self._start(nodes)
        else:
            if self.client is None or self.client.status in ("closed", "closing"):
                self.connect()
            self._grow(nodes)
        return True

    def _start(self, nodes: int) -> None:
        check_script()
        self.close()  # releases what is left of a cluster that was closed from outside
        self._starting()
        self._table = ProcessTable()
        for context in (silence, notebooks_not_imported):
            self._contexts.enter_context(context)
        try:
            with settings, interrupts_blocked():
                raise_if_interrupted()
                self._cluster = new_cluster(self._table, self._token)
                self.client = Client(self._cluster, set_as_default=False, timeout=CONNECT_S)
                self._grow(nodes)
        except BaseException as error:
            self.close()
            if isinstance(error, ClusterError) or not isinstance(error, Exception):  # Ctrl-C
                raise
            why = f"{type(error).__name__}: {error}"
            raise ClusterError(f"The local cluster of {nodes} processes did not start: {why}") from error

    def _grow(self, nodes: int) -> None:
        """Start missing processes, and wait until there are `nodes`. Lost processes are restarted.

        There is no timeout, because a nanny ends processes that give no sign of life, and several failed starts are an
        error.
        """
        cluster = self._cluster
        assert cluster is not None
        while True:
            raise_if_interrupted()
            with settings:
                _scale(cluster, nodes)
                replaced = cluster.submit(cluster.replace_lost())
            while not replaced.done():
                if self._cancelled or not _is_running(cluster):
                    raise ClusterError("The local cluster was closed while its processes were starting.")
                raise_if_interrupted()
                wait([replaced], LOOK_S / 5)
            if replaced.exception() is not None:
                why = self._table.problem or replaced.exception()
                raise ClusterError(
                    f"The local cluster did not reach {nodes} processes: {why}."
                ) from replaced.exception()
            if len(self._table.addresses) >= nodes:  # else a process was lost meanwhile, and is replaced now
                return

    def scale_up(self, nodes: int) -> None:
        """Start processes until there are `nodes`, including replacements of lost processes. Does not wait."""
        cluster = self._cluster
        if cluster is not None and _is_running(cluster):
            with settings:
                _scale(cluster, min(MAX_PROCESSES, nodes))
            cluster.submit(cluster.replace_lost()).add_done_callback(self._count_failure)

    def _count_failure(self, replaced: Any) -> None:
        failed = not replaced.cancelled() and replaced.exception() is not None
        self._failures = self._failures + 1 if failed else 0

    def worker_addresses(self, client: Client, wait: bool = False) -> list[str]:
        """Return the addresses of all Dask workers. Needs no request, because the scheduler is in this process."""
        return self._table.addresses

    def signs_of_life(self, client: Client) -> Mapping[str, Hashable]:
        """Return {address of a Dask worker: value that changes while its process lives}. Needs no request."""
        return self._table.signs_of_life()

    def how_ended(self, address: str) -> str:
        return self._table.how_ended(address)

    def cancel_start(self) -> None:
        self._cancelled = True

    def close(self) -> None:
        client, cluster = self.client, self._cluster
        self.client = self._cluster = None
        if client is not None:
            _close_in_order("the client", lambda: client.close(timeout=CLOSE_S))
        if cluster is not None:
            _close_in_order("the cluster", lambda: _end_cluster(cluster))
        self._contexts.close()

    def disown(self) -> bool:
        """In a forked child: give up the parent's client and cluster. Returns False if there are none."""
        client, cluster = self.client, self._cluster
        if client is None:
            return False
        self.client = self._cluster = None
        disown(client, cluster)
        return True


class ExistingScheduler(DaskProcesses):
    """Dask workers that labkit did not start.

    `target`: the scheduler's address, or a client of the scheduler. A client that was passed is never closed.
    """

    local = False
    recovering = False

    def __init__(self, target: str | Client):
        self._address = target if isinstance(target, str) else None
        self.arrived = 0  # number of Dask workers, while a program waits for them
        self.client = target if isinstance(target, Client) else None

    @property
    def description(self) -> str:
        return self._address or "on a given client"

    @property
    def connected(self) -> bool:
        client = self.client
        return client is not None and client.status == "running"

    def progress(self, wanted: int, ready: bool) -> StartProgress:
        """Return that all processes are connected if the cluster is open (`ready`), else those that have arrived."""
        return StartProgress.of_processes([StartStage.CONNECTED] * (wanted if ready else self.arrived), wanted)

    def dashboard_link(self, client: Client) -> str | None:
        """Return the address of Dask's dashboard, or None if there is none.

        Without bokeh a scheduler has no dashboard, but the client nevertheless returns an address.
        """
        try:
            run_on_scheduler(client, LINK_S, importlib.metadata.version, "bokeh")
        except Exception:  # no bokeh, or no answer
            return None
        return _dashboard_link(client)

    def check_capacity(self, nodes: int) -> None:
        """Do nothing, because the processes exist."""

    def connect(self) -> Client:
        """Replace the client by a connected one. Raises `ClusterError` if no scheduler answers."""
        if self._address is None:
            raise ClusterError("The given Client has been closed; make a new one, and a new DaskCluster of it.")
        try:
            found = server_type(self._address, REACH_S)
            if found == "Scheduler":
                self.client = Client(self._address, set_as_default=False, timeout=REACH_S)
                return self.client
        except Exception as error:  # any kind of server may run at this address
            found = type(error).__name__
        raise ClusterError(
            f"No Dask scheduler answers at {shown(self._address)} within {REACH_S:g} s ({found}). Is the address right, and "
            "the scheduler running (`dask scheduler`)?"
        )

    def provide(self, nodes: int) -> bool:
        """Return False, because labkit starts no process."""
        return False

    def scale_up(self, nodes: int) -> None:
        """Do nothing, because labkit starts no process."""

    def worker_addresses(self, client: Client, wait: bool = False) -> list[str]:
        """Return the addresses of all Dask workers. `wait`: wait up to `REACH_S` seconds for the first.

        Raises `ClusterError` if the scheduler does not answer.
        """
        try:
            found = sorted(heartbeats(client, REACH_S))
            self.arrived = len(found)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise ClusterError(f"The Dask scheduler did not list its Dask workers ({why}).") from error
        if found or not wait:
            return found
        try:
            client.wait_for_workers(1, timeout=REACH_S)
        except Exception:
            return []
        return self.worker_addresses(client)

    def signs_of_life(self, client: Client) -> Mapping[str, Hashable]:
        """Return {address of a Dask worker: time of its last heartbeat, by the scheduler's clock}."""
        return heartbeats(client, ANSWER_S)

    def cancel_start(self) -> None:
        """Do nothing, because nothing is started."""

    def close(self) -> None:
        """Close the client, unless it was passed as `target`."""
        client = self.client
        if self._address is not None and client is not None:
            self.client = None
            _close_in_order("the client", lambda: client.close(timeout=CLOSE_S))

    def disown(self) -> bool:
        """In a forked child: give up the parent's client. Returns False if there is none."""
        client, self.client = self.client, None
        if client is None:
            return False
        disown(client, None)
        return True


class DaskConnection:
    """The processes of a cluster, and its runs. Thread-safe.

    `target`: None for processes started by labkit, else a scheduler's address or a `distributed.Client`. `local`:
    whether labkit starts the processes. `usage`: number of roles on each Dask worker, by address. `runs`: the current
    runs.
    """

    def __init__(self, target: Any, dashboard: bool = False):
        if not (target is None or isinstance(target, str | Client)):
            raise BadInput(
                f"DaskCluster({shown(target)}): give no argument, a scheduler's address as 'tcp://host:8786', or a Client."
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

    def addresses(self, nodes: int, every: bool = False) -> list[str]:
        """Return the addresses of `nodes` Dask workers (`every`: of all), least used first.

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
                has = f"the cluster has {len(found)} Dask workers"
                needs = f"This run has {nodes} nodes (one Dask worker each) and {has}"
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


def _is_running(cluster: OwnCluster | None) -> bool:
    return cluster is not None and cluster.status.name == "running"


def _scale(cluster: OwnCluster, nodes: int) -> None:
    """Scale the cluster to `nodes` processes, but never down."""
    cluster.scale(max(len(cluster.worker_spec), nodes))


def _close_in_order(name: str, close: Callable[[], Any]) -> None:
    try:
        close()
    except Exception as error:  # continue: other parts may still hold processes
        print(f"labkit: {name} did not close cleanly: {error!r}", file=sys.stderr)


def _end_cluster(cluster: OwnCluster) -> None:
    cluster.submit(cluster.end()).result(CLOSE_S + 2 * KILLED_S)
    cluster.close(timeout=KILLED_S)  # the processes have ended; this stops the cluster's event loop


def _dashboard_link(client: Client) -> str | None:
    """Return the address of the client's dashboard, or None if there is none.

    The address follows Dask's setting `distributed.dashboard.link`, which may name a proxy, for example.
    """
    try:
        return client.dashboard_link or None
    except Exception:  # an invalid setting
        return None
