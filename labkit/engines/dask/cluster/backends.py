"""Where the processes of a cluster come from. Each backend is a subclass of `DaskProcesses`.

`LocalProcesses` starts and ends processes on this machine. `ExistingScheduler` connects to a scheduler.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import wait
from typing import Any

from distributed import Client
from distributed.deploy import Cluster as DaskDeployment

from ....errors import ClusterError, shown
from ....interrupts import raise_if_interrupted
from ...machine_limits import MAX_PROCESSES, check_capacity
from ..requests import heartbeats, run_on_scheduler, server_type
from ..stages import StartProgress, StartStage
from ..timeouts import ANSWER_S, CLOSE_S, CONNECT_S, KILLED_S, LOOK_S, REACH_S, STARTS
from .credentials import new_token
from .forked import disown
from .http_servers import with_token
from .local import check_script, interrupts_blocked, new_cluster, notebooks_not_imported
from .nannies import OwnCluster, ProcessTable
from .settings import settings, silence

LINK_S = 2.0  # timeout for the scheduler to answer whether it has a dashboard, seconds


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

    `target`: the scheduler's address, a client of the scheduler, or a cluster of Dask. What was passed is never closed.
    """

    local = False
    recovering = False

    def __init__(self, target: str | Client | DaskDeployment):
        self._address = target if isinstance(target, str) else None
        self._deployment = target if isinstance(target, DaskDeployment) else None
        self.arrived = 0  # number of Dask workers, while a program waits for them
        self.client = target if isinstance(target, Client) else None
        self._client_was_passed = self.client is not None

    @property
    def description(self) -> str:
        if self._deployment is not None:
            return f"on {self._deployment.name}"
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
        if self._deployment is not None:
            return self._connect_to(self._deployment)
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

    def _connect_to(self, deployment: DaskDeployment) -> Client:
        """Return a client of a cluster of Dask, with its certificates."""
        if not _is_running(deployment):
            raise ClusterError(f"The given {type(deployment).__name__} is {deployment.status.name}; start another one.")
        self.client = Client(deployment, set_as_default=False, timeout=REACH_S)
        return self.client

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
        if client is not None and not self._client_was_passed:
            self.client = None
            _close_in_order("the client", lambda: client.close(timeout=CLOSE_S))

    def disown(self) -> bool:
        """In a forked child: give up the parent's client. Returns False if there is none."""
        client, self.client = self.client, None
        if client is None:
            return False
        disown(client, None)
        return True


def _is_running(cluster: DaskDeployment | None) -> bool:
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
