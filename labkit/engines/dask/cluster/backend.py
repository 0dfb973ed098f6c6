"""The backend of a `DaskCluster`: starts its processes or connects to a scheduler, checks the processes, and ends them."""

from __future__ import annotations

import atexit
import contextlib
import importlib.metadata
import importlib.util
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import wait
from typing import Any

from distributed import Client
from distributed.utils import in_async_call

from ....errors import BadInput, ClusterError, shown
from ...commands import Stop
from ...machine_limits import MOST_PROCESSES, check_room
from ..requests import run_on_scheduler, run_on_workers, server_type, worker_addresses
from ..timeouts import ANSWER_S, CLOSE_S, KILLED_S, LOOK_S, REACH_S, STARTS
from ..worker.task import DISTRIBUTION, version
from .credentials import new_token
from .forked import disown, in_forked_child
from .local import PresentWorkers, check_script, interrupt_is_pending, interrupts_blocked, new_cluster, settings
from .nannies import OwnCluster
from .servers import with_token

__all__ = ["Backend"]

LINK_S = 2.0  # timeout for the scheduler to answer whether it has a dashboard, seconds


class Backend:
    """A Dask client and, if labkit starts the processes (`local`), these processes. Thread-safe.

    `usage`: number of roles on each address. `runs`: the current runs.
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
        if dashboard and importlib.util.find_spec("bokeh") is None:
            raise BadInput("dashboard=True needs bokeh, which is not installed: pip install bokeh.")
        self._target, self.local, self._dashboard = target, target is None, dashboard
        self._token = new_token() if dashboard else None
        self._client: Client | None = target if isinstance(target, Client) else None
        self._cluster: OwnCluster | None = None
        self._lock = threading.RLock()
        self._present = PresentWorkers()
        self._reached = False  # enough processes have answered
        self._link: tuple[Client, str | None] | None = None  # (client, its dashboard's address)
        self._silent: set[str] = set()  # Dask workers that did not answer the last request
        self._closed = False
        self._owner = os.getpid()  # pid of the process that owns this backend
        self._failures = 0  # consecutive failures to replace lost processes
        self.usage: Counter[str] = Counter()
        self.runs: set[Any] = set()
        in_forked_child(self._forked)

    def _forked(self) -> None:
        """Disable this copy in a forked child: the processes and runs belong to the parent, which continues to use them."""
        self._lock = threading.RLock()  # another thread of the parent may have held the old one
        client, cluster = self._client, self._cluster
        if client is None:
            self._owner = os.getpid()
            return
        self._client = self._cluster = None
        self._reached, self._closed = False, True
        atexit.unregister(self.close)
        runs, self.runs = self.runs, set()
        disown(client, cluster)
        for run in runs:
            run.forked(
                ClusterError(f"This run belongs to the process {self._owner}, which started it, and continues there.")
            )

    def describe(self) -> str:
        """The location of the processes, for `repr`."""
        if self._target is None:
            return "on this machine"
        return self._target if isinstance(self._target, str) else "on a given client"

    # to read from any thread, also while another one opens the cluster: none of these waits for it -----------------

    @property
    def is_open(self) -> bool:
        """Whether the processes have been started or connected to, and not been closed since."""
        client, cluster = self._client, self._cluster
        if not self._reached or client is None or client.status != "running":
            return False
        return not self.local or (cluster is not None and cluster.status.name == "running")

    @property
    def is_closed(self) -> bool:
        """Whether it was closed for good."""
        return self._closed

    def up(self, wanted: int) -> int:
        """The number of the `wanted` processes that are up. On a given scheduler all count as up once it was connected to."""
        if not self.local:
            return wanted if self.is_open else 0
        return min(wanted, self._present.count)

    def dashboard_link(self) -> str | None:
        """The address of Dask's dashboard; None if there is none."""
        client = self._client
        if client is None or not self.is_open or (self.local and not self._dashboard):
            return None
        if self._link is None or self._link[0] is not client:
            link = _dashboard_of(client, ask_first=not self.local)
            self._link = client, with_token(link, self._token) if link and self._token else link
        return self._link[1]

    # reaching ---------------------------------------------------------------------------------------------------------

    def client(self) -> Client:
        """The client, connected."""
        with self._lock:
            if self._closed and self._owner != os.getpid():
                raise ClusterError(
                    f"This DaskCluster belongs to the process {self._owner}, of which this one is a fork; make a new one."
                )
            if self._closed:
                raise ClusterError("This DaskCluster has been closed; make a new one.")
            if self._client is None or self._client.status in ("closed", "closing"):
                if isinstance(self._target, Client):
                    raise ClusterError("The given Client has been closed; make a new one, and a new DaskCluster of it.")
                if isinstance(self._target, str):
                    self._reach()
                elif self._cluster is not None and self._cluster.status.name == "running":
                    self._client = Client(self._cluster, set_as_default=False, timeout=REACH_S)
                else:
                    self._start(1)
            assert self._client is not None
            return self._client

    def addresses(self, nodes: int, every: bool = False) -> list[str]:
        """`nodes` Dask workers that answer and have the same labkit (`every`: all of them), least used first.

        A local cluster is enlarged as needed; `BadInput` if a given cluster is too small.
        """
        if self._target is None:
            cluster = self._cluster
            check_room(nodes, 0 if cluster is None else len(cluster.workers))
        with self._lock:
            if self._target is None and not self._closed:
                if self._cluster is None or self._cluster.status.name != "running":
                    self._start(nodes)
                else:
                    self._grow(nodes)
            client = self.client()
            awake = self._awake(client, sys.maxsize if every else nodes)
            if self._target is None and len(awake) < nodes:
                self._grow(nodes + len(self._silent))
                awake = self._awake(client, nodes)
            if len(awake) < nodes:
                has = f"the cluster has {len(awake)} Dask workers"
                needs = f"This run has {nodes} nodes (one Dask worker each) and {has}"
                if self._silent:
                    silent = f"{len(self._silent)} more do not answer (frozen, or cut off)"
                    raise ClusterError(f"{needs} that answer; {silent}.")
                raise BadInput(f"{needs}; start more, or ask for fewer workers or servers.")
            self._reached = True
            return awake

    def _awake(self, client: Client, nodes: int) -> list[str]:
        """Up to `nodes` Dask workers that have answered a request, because a frozen one would delay the run."""
        there = self._there(client)
        if not there and self._target is not None:
            there = self._await_workers(client)
        self._silent &= set(there)
        there.sort(key=lambda address: (address in self._silent, self.usage[address], address))
        awake: list[str] = []
        while len(awake) < nodes and there:
            asked, there = there[: nodes - len(awake)], there[nodes - len(awake) :]
            for address, answer in run_on_workers(client, asked, ANSWER_S, version, lambda address: ()).items():
                if isinstance(answer, OSError):  # TimeoutError is one
                    self._silent.add(address)
                    continue
                self._silent.discard(address)
                _check(address, answer)
                awake.append(address)
        return awake

    # local cluster ----------------------------------------------------------------------------------------------------

    def _start(self, nodes: int) -> None:
        check_script()
        self._end_processes()  # of a cluster that was closed from outside
        atexit.register(self.close)  # runs before Dask's own handlers: they were registered earlier
        self._present = PresentWorkers()
        try:
            with settings(), interrupts_blocked():
                self._cluster = new_cluster(self._present, self._token)
                self._client = Client(self._cluster, set_as_default=False, timeout=REACH_S)
                self._grow(nodes)
        except BaseException as error:
            self._end_processes()
            if isinstance(error, ClusterError) or not isinstance(error, Exception):  # Ctrl-C
                raise
            why = f"{type(error).__name__}: {error}"
            raise ClusterError(f"The local cluster of {nodes} processes did not start: {why}") from error

    def _grow(self, nodes: int) -> None:
        """Start missing processes, and wait until there are `nodes`. Lost processes are restarted.

        There is no timeout: a nanny ends processes that make no progress, and several failed starts are an error.
        """
        cluster, client = self._cluster, self._client
        assert cluster is not None
        assert client is not None
        while True:
            with settings():
                self._scale(nodes)
                replaced = cluster.submit(cluster.replace_lost())
            while not replaced.done():
                if self._closed or cluster.status.name != "running":
                    raise ClusterError("The local cluster was closed while its processes were starting.")
                if interrupt_is_pending():  # Ctrl-C is delivered when `interrupts_blocked` is left
                    raise ClusterError("The start of the local cluster was interrupted.")
                wait([replaced], LOOK_S / 5)
            if replaced.exception() is not None:
                why = f"The local cluster did not reach {nodes} processes: {replaced.exception()}."
                raise ClusterError(why) from replaced.exception()
            with contextlib.suppress(TimeoutError):  # a process that was lost meanwhile is replaced in the next iteration
                return client.wait_for_workers(nodes, timeout=LOOK_S)

    def _scale(self, nodes: int) -> None:
        """Scale the cluster to `nodes` processes, but never down."""
        assert self._cluster is not None
        self._cluster.scale(max(len(self._cluster.worker_spec), nodes))

    def scale_up(self, nodes: int) -> None:
        """Start processes until there are `nodes`, including replacements of those given up. Does not wait for them."""
        with self._lock, contextlib.suppress(Exception):  # a cluster that is being closed cannot grow
            cluster = self._cluster
            if self.local and cluster is not None and cluster.status.name == "running":
                with settings():
                    self._scale(min(MOST_PROCESSES, nodes))
                replaced = cluster.submit(cluster.replace_lost())
                replaced.add_done_callback(self._count_failure)

    def _count_failure(self, replaced: Any) -> None:
        failed = not replaced.cancelled() and replaced.exception() is not None
        self._failures = self._failures + 1 if failed else 0

    @property
    def recovering(self) -> bool:
        """Whether processes of labkit's own run or are starting, so that lost ones will be replaced."""
        cluster = self._cluster
        if cluster is None or self._failures >= STARTS:
            return False
        return any(nanny.has_process for nanny in list(cluster.workers.values()))

    def known(self) -> list[str]:
        """The addresses of all Dask workers of the cluster."""
        return self._there(self.client())

    # existing scheduler -----------------------------------------------------------------------------------------------

    def _reach(self) -> None:
        assert isinstance(self._target, str)
        try:
            found = server_type(self._target, REACH_S)
            if found == "Scheduler":
                self._client = Client(self._target, set_as_default=False, timeout=REACH_S)
                return
        except Exception as error:  # any kind of server may run at this address
            found = type(error).__name__
        raise ClusterError(
            f"No Dask scheduler answers at {shown(self._target)} within {REACH_S:g} s ({found}). Is the address right, and "
            "the scheduler running (`dask scheduler`)?"
        )

    def _await_workers(self, client: Client) -> list[str]:
        try:
            client.wait_for_workers(1, timeout=REACH_S)
        except Exception:
            return []
        return self._there(client)

    def _there(self, client: Client) -> list[str]:
        """The addresses of all Dask workers."""
        try:
            return worker_addresses(client, REACH_S)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise ClusterError(f"The Dask scheduler did not list its Dask workers ({why}).") from error

    # closing ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the runs, then the processes of labkit's own. Idempotent; any thread may call it, even during a start."""
        if self._client is not None and in_async_call(self._client.loop):
            threading.Thread(target=self.close, name="labkit-close").start()  # garbage collected on Dask's own thread
            return
        for run in list(self.runs):
            run.execute(Stop("closed"))
        first, self._closed = not self._closed, True  # set before locking: a start in progress holds the lock, and aborts
        with self._lock:
            if first:
                atexit.unregister(self.close)
                if not isinstance(self._target, Client):
                    self._end_processes()

    def _end_processes(self) -> None:
        client, cluster = self._client, self._cluster
        self._client = self._cluster = None
        self._reached = False
        ends: list[tuple[str, Callable[[], None]]] = []
        if client is not None:
            ends.append(("the client", lambda: _close_client(client)))
        if cluster is not None:
            ends.append(("the cluster", lambda: _end_cluster(cluster)))
        for name, end in ends:
            try:
                end()
            except Exception as error:  # continue: the other part may still hold processes
                print(f"labkit: {name} did not close cleanly: {error!r}", file=sys.stderr)


def _close_client(client: Client) -> None:
    client.close(timeout=CLOSE_S)


def _end_cluster(cluster: OwnCluster) -> None:
    cluster.submit(cluster.end()).result(CLOSE_S + 2 * KILLED_S)
    cluster.close(timeout=KILLED_S)  # it has ended: this stops its event loop


def _dashboard_of(client: Client, ask_first: bool) -> str | None:
    """The client's dashboard address, by Dask's setting `distributed.dashboard.link` (a proxy's address, for example).

    The client returns an address even if the scheduler has no bokeh and so no dashboard. `ask_first`: check for bokeh first.
    """
    try:
        if ask_first:
            run_on_scheduler(client, LINK_S, importlib.metadata.version, "bokeh")
        return client.dashboard_link or None
    except Exception:  # no bokeh, no answer, or an invalid setting
        return None


def _check(address: str, answer: Any) -> None:
    """`ClusterError` unless the Dask worker has the same version of labkit: it imports the code of roles."""
    mine = version()
    if isinstance(answer, Exception) and "No module named 'labkit" in str(answer):
        raise ClusterError(f"The Dask worker at {address} has no labkit; install {DISTRIBUTION} {mine} there.")
    if isinstance(answer, Exception):
        raise ClusterError(f"The Dask worker at {address} cannot use labkit: {type(answer).__name__}: {answer}")
    if answer != mine:
        raise ClusterError(
            f"The Dask worker at {address} has labkit {answer} and this process has {mine}; they must be equal."
        )
